"""The table of scalar functions, filled by the decorator `scalar` at each definition.

`scalar` returns the function unchanged, so scalar functions call one another as functions of typed values;
kernels call the compiled form in `FUNCTIONS`. A function of half-precision numbers is computed in float32 and
rounded once.
"""

import functools

from tracejit.kernels.compiler.half import HALVES
from tracejit.kernels.compiler.intrinsics import convert
from tracejit.kernels.compiler.typed_values import compiled, dtype_of, is_complex, is_half, result_dtype

FUNCTIONS = {}
"""All scalar functions by name, as kernels call them."""

COMPLEX = {}
"""Formulas for complex values, by name, if they differ from the formula for real values."""


HALF = {}
"""Formulas for half-precision values, by name, if computing in float32 is not correct."""


def scalar(returns=None, *, moves=False):
    """Declare a scalar function. Its result has the dtype of the last argument, or the dtype `returns`, or
    ``returns(dtype)``. A function that only `moves` its arguments accepts half-precision values directly.
    """

    def declare(function):
        @functools.wraps(function)
        def dispatch(*arguments):
            name, last = function.__name__, arguments[-1]
            if name in COMPLEX and is_complex(last):
                return COMPLEX[name](*arguments)
            if moves or not is_half(last):
                return function(*arguments)
            if name in HALF:
                return HALF[name](*arguments)
            result = function(*(convert(x, "float32") for x in arguments))
            dtype = result_dtype(returns, dtype_of(last))
            return convert(result, dtype) if dtype in HALVES else result

        FUNCTIONS[function.__name__] = compiled(dispatch, returns)
        return function

    return declare


def on_half(name):
    """Declare the formula of the function `name` for half-precision values."""

    def declare(formula):
        HALF[name] = formula
        return formula

    return declare


def on_complex(name):
    """Declare the formula of the function `name` for complex values."""

    def declare(formula):
        COMPLEX[name] = formula
        return formula

    return declare
