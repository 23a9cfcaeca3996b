"""Stand-ins for NumPy in a traced body, for when NumPy's own arrays would hold what must be recorded.

A body that calls `np.zeros` gets a plain array, which is a constant of the trace: that costs nothing, and is
right as long as nothing recorded is stored in it. Only when the body is about to look at a value, because it
writes a recorded array into a plain one, say, the trace starts again, and this time the body finds a stand-in
for the module `numpy`, and for those of its functions that make arrays: they make recorded arrays with
NumPy's dtypes (`arrays.makers`). Everything else in the stand-in is NumPy's. Other threads that find it get
NumPy.

A recorded array is no `numpy.ndarray`, and one without dimensions no NumPy number. Where a body could tell
(`Trace.recorded_numpy` says which recording it is):

- C code that needs an array or a number asks for the values: the body runs piecewise, as it did before;
- an error, for an attribute or a function that there is not, starts the trace again without stand-ins;
- code that asks for types (`TELLS`) or handles errors makes the function piecewise, before it runs;
- so do a number that changes in place, and one of float64 that meets float32: NumPy's are immutable, and
  weak.
"""

from __future__ import annotations

import types
from typing import Any

import numpy as np

from tracejit.frontend.arrays.core import ArrayCore
from tracejit.frontend.arrays.makers import MAKERS
from tracejit.frontend.python.bytecode import codes, facts, handles_errors
from tracejit.frontend.recording.recording import thread
from tracejit.frontend.surroundings.module_stand_ins import StandIns

TELLS = frozenset(
    ["isinstance", "issubclass", "type", "hasattr", "getattr", "callable", "dir", "vars", "isscalar"]
)
"""Functions that tell NumPy's arrays and numbers from others."""


def _unless_array(name: str) -> Any:
    """NumPy's function where it may return its operand itself, else the recorded one."""
    ours, theirs = MAKERS[name], getattr(np, name)

    def make(obj: Any, *args: Any, **options: Any) -> Any:
        is_array = isinstance(obj, ArrayCore | np.ndarray)
        return (theirs if is_array else ours)(obj, *args, **options)

    return make


def _copied(obj: Any, dtype: Any = None, *, copy: bool | None = True, **options: Any) -> Any:
    """NumPy's `array`, which may return its operand itself unless it is to copy it."""
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
"""By NumPy's names: what a body finds in their place."""


def is_recorded() -> bool:
    """Whether this thread is recording a trace in which NumPy's functions make recorded arrays."""
    return thread.trace is not None and bool(thread.trace.recorded_numpy)


NUMPY = StandIns(np, RECORDED, is_recorded)


def makes_arrays(code: types.CodeType, namespace: dict[str, Any]) -> bool:
    """Whether `code` names NumPy, or functions of it, and what could make arrays."""
    found = facts(code)
    held = [NUMPY.original(namespace[name]) for name in found.globals if name in namespace]
    is_named = not RECORDED.keys().isdisjoint(found.attributes)
    return any(NUMPY.stand_in(value) is not None and (value is not np or is_named) for value in held)


def tells(code: types.CodeType) -> str | None:
    """Name the part of `code` that could tell a recorded array from NumPy's; None if there is none."""
    for each in codes(code):
        found = facts(each)
        if named := TELLS & (found.globals | found.attributes):
            return f"{min(named)}()"
        if handles_errors(each) or "__match_args__" in found.attributes:
            return f"{each.co_qualname}, which handles errors or matches classes,"
    return None
