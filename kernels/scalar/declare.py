"""The table of scalar functions, filled by the decorator `scalar` at each definition.

`scalar` leaves the function as it is, so scalar functions call one another as functions over
lanes; kernels call the compiled form in `FUNCTIONS`.
"""

import functools

from tracejit.kernels.compiler.lane import compiled, is_complex

FUNCTIONS = {}
"""Every scalar function by name, as kernels call it."""

COMPLEX = {}
"""What computes the functions of these names on complex lanes, where that is another formula."""


def scalar(returns=None):
    """Declare a scalar function; its result has the dtype of the last argument, `returns`, or what `returns`
    makes of the former.
    """

    def declare(function):
        @functools.wraps(function)
        def of_any_kind(*arguments):
            name = function.__name__
            formula = COMPLEX[name] if name in COMPLEX and is_complex(arguments[-1]) else function
            return formula(*arguments)

        FUNCTIONS[function.__name__] = compiled(of_any_kind, returns)
        return function

    return declare


def on_complex(name):
    """Declare what computes the function `name` on complex lanes."""

    def declare(formula):
        COMPLEX[name] = formula
        return formula

    return declare
