"""Stand-ins for NumPy in a traced body, used where a NumPy array would have to contain recorded values.

A body that calls `np.zeros` receives a NumPy array, which is a constant of the trace. This costs nothing, and
is correct as long as no recorded value is stored in the array. Only when the body is about to look at a value
(because it writes a recorded array into a NumPy array, say), the trace restarts, and the body finds a
stand-in for the module `numpy` and for its functions that create arrays. These functions create recorded
arrays with NumPy's dtypes (`arrays.makers`). All other attributes of the stand-in are NumPy's. In other
threads that access it, the stand-in behaves like NumPy.

A recorded array is not a `numpy.ndarray`, and a zero-dimensional one is not a NumPy scalar. Cases in which a
body could observe the difference (`Trace.recorded_numpy` tells which recording it is):

- C code that needs an array or a number requests the values: the body runs piecewise, as without stand-ins;
- an error, because an attribute or a function is missing, restarts the trace without stand-ins;
- code that inspects types (`TELLS`) or handles errors makes the function piecewise, before the code runs;
- so do a scalar that changes in place, and a float64 scalar that is combined with float32: NumPy's scalars
  are immutable, and weakly typed.
"""

from __future__ import annotations

import types
from typing import Any

import numpy as np

from tracejit.frontend.arrays.core import ArrayCore
from tracejit.frontend.arrays.makers import MAKERS
from tracejit.frontend.python.bytecode import codes, facts, handles_errors
from tracejit.frontend.recording.number import NumberProxy, unproxied
from tracejit.frontend.recording.recording import thread
from tracejit.frontend.surroundings.module_stand_ins import StandIns

TELLS = frozenset(
    ["isinstance", "issubclass", "type", "hasattr", "getattr", "callable", "dir", "vars", "isscalar"]
)
"""Functions that can distinguish NumPy's arrays and scalars from recorded arrays."""


def _unless_array(name: str) -> Any:
    """Return a function that calls NumPy's where the result may be the operand itself, else the recorded
    function.
    """
    ours, theirs = MAKERS[name], getattr(np, name)

    def make(obj: Any, *args: Any, **options: Any) -> Any:
        is_array = isinstance(obj, ArrayCore | np.ndarray)
        return (theirs if is_array else ours)(obj, *args, **options)

    return make


def _copied(obj: Any, dtype: Any = None, *, copy: bool | None = True, **options: Any) -> Any:
    """Return a recorded copy, as `numpy.array` does; without ``copy=True``, the result is that of NumPy,
    which may be the operand itself.
    """
    if copy is not True or options.keys() - {"ndmin", "like"}:
        return np.array(obj, dtype, copy=copy, **options)
    return MAKERS["array"](obj, dtype, **options)


RECORDED: dict[str, Any] = {
    name: make for name, make in MAKERS.items() if name not in ("fromfunction", "asanyarray")
} | {
    "array": _copied,
    "asarray": _unless_array("asarray"),
    "ascontiguousarray": _unless_array("ascontiguousarray"),
    "asfortranarray": _unless_array("asfortranarray"),
}
"""The replacements for NumPy's functions in a body, by NumPy's names."""


def is_recorded() -> bool:
    """Return whether this thread records a trace in which NumPy's functions create recorded arrays."""
    return thread.trace is not None and bool(thread.trace.recorded_numpy)


class _Listing:
    """A function of NumPy whose first operand may be a list of recorded arrays, which becomes an array.

    NumPy asks the elements of such a list for their values: ``np.argmin([a[i], a[j]])``.
    """

    def __init__(self, function: Any) -> None:
        self.function = function

    def __call__(self, *operands: Any, **options: Any) -> Any:
        return self.function(*map(_listed, operands[:1]), *operands[1:], **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.function, name)


class _ListingUfunc(_Listing):
    """A ufunc whose operands may be such lists."""

    def __call__(self, *operands: Any, **options: Any) -> Any:
        return self.function(*map(_listed, operands), **options)

    def reduce(self, array: Any, *args: Any, **options: Any) -> Any:
        return self.function.reduce(_listed(array), *args, **options)


def _listed(operand: Any) -> Any:
    """Return a list that contains recorded arrays or numbers as a recorded array, anything else unchanged."""
    return MAKERS["array"](operand) if _has_recorded(operand) and thread.trace is not None else operand


def _has_recorded(operand: Any) -> bool:
    return isinstance(operand, list | tuple) and any(
        isinstance(each, ArrayCore | NumberProxy) or _has_recorded(each) for each in operand
    )


LISTING: dict[str, Any] = {
    name: _Listing(getattr(np, name))
    for name in (
        *("max", "min", "amax", "amin", "sum", "prod", "mean", "median", "average", "std", "var", "ptp"),
        *("any", "all", "argmax", "argmin", "sort", "argsort", "cumsum", "cumprod", "percentile", "quantile"),
    )
}
"""The stand-ins for functions of NumPy that are called with lists, by NumPy's names."""

LISTING |= {
    name: _ListingUfunc(getattr(np, name))
    for name in ("add", "multiply", "maximum", "minimum", "logical_and", "logical_or", "sqrt", "exp", "abs")
}


def _where(condition: Any, *choices: Any) -> Any:
    """Implement `numpy.where`. Between two Python floats, the result is float64, as in NumPy."""
    if is_recorded() and isinstance(condition, ArrayCore) and all(map(_is_float, choices)):
        choices = tuple(map(MAKERS["array"], choices))
    return np.where(condition, *choices)


def _is_float(choice: Any) -> bool:
    return type(unproxied(choice)) is float


NUMPY = StandIns(np, RECORDED, is_recorded, {"where": _where, **LISTING})


_MAKERS = {id(getattr(np, name)) for name in RECORDED}


def makes_arrays(code: types.CodeType, namespace: dict[str, Any]) -> bool:
    """Return whether `code` names NumPy and attributes that create arrays, or such functions of NumPy."""
    names = facts(code)
    values = [NUMPY.original(namespace[name]) for name in names.globals if name in namespace]
    is_named = not RECORDED.keys().isdisjoint(names.attributes)
    return any(id(value) in _MAKERS or (value is np and is_named) for value in values)


def takes_lists(code: types.CodeType) -> bool:
    """Return whether `code` names attributes like functions of NumPy that are called with lists."""
    return not LISTING.keys().isdisjoint(facts(code).attributes)


def tells(code: types.CodeType) -> str | None:
    """Describe the code in `code` that could distinguish a recorded array from NumPy's; None if there is
    none.
    """
    for each in codes(code):
        names = facts(each)
        if named := TELLS & (names.globals | names.attributes):
            return f"{min(named)}()"
        if handles_errors(each) or "__match_args__" in names.attributes:
            return f"{each.co_qualname}, which handles errors or matches classes,"
    return None
