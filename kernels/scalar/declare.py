"""The table of scalar functions, filled by the decorator `scalar` at each definition.

`scalar` leaves the function as it is, so scalar functions call one another as functions over
lanes; kernels call the compiled form in `FUNCTIONS`. A function of half numbers is computed in float32 and
rounded once.
"""

import functools

from tracejit.kernels.compiler.half import HALVES
from tracejit.kernels.compiler.intrinsics import convert
from tracejit.kernels.compiler.lane import compiled, dtype_of, is_complex, is_half, result_dtype

FUNCTIONS = {}
"""Every scalar function by name, as kernels call it."""

COMPLEX = {}
"""Functions on complex lanes, by name, where they have another formula."""


HALF = {}
"""Functions on half lanes, by name, where float32 lanes will not do."""


def scalar(returns=None, *, moves=False):
    """Declare a scalar function; its result has the dtype of the last argument, `returns`, or what `returns`
    makes of the former. One that `moves` its arguments only takes half lanes as they are.
    """

    def declare(function):
        @functools.wraps(function)
        def of_any_kind(*arguments):
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

        FUNCTIONS[function.__name__] = compiled(of_any_kind, returns)
        return function

    return declare


def on_half(name):
    """Declare what computes the function `name` on half lanes."""

    def declare(formula):
        HALF[name] = formula
        return formula

    return declare


def on_complex(name):
    """Declare what computes the function `name` on complex lanes."""

    def declare(formula):
        COMPLEX[name] = formula
        return formula

    return declare
