"""The table of scalar functions, filled by the decorator `scalar` at each definition.

`scalar` leaves the function as it is, so scalar functions call one another as functions over
lanes; kernels call the compiled form in `FUNCTIONS`.
"""

from tracejit.kernels.compiler.lane import compiled

FUNCTIONS = {}
"""Every scalar function by name, as kernels call it."""


def scalar(returns=None):
    """Declare a scalar function; its result has the dtype `returns`, or that of the last argument."""

    def declare(function):
        FUNCTIONS[function.__name__] = compiled(function, returns)
        return function

    return declare
