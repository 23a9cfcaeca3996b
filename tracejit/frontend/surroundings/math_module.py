"""Stand-ins for Python's `math` in a traced body, for when it computes with numbers found in arrays.

    if random.item() < math.exp(-delta / T):     delta: a number found in an array

`math.exp` is C code, which takes a number's value; a value that was found in an array is another one in every
call. So when a body is about to ask for all its digits, and names `math`, the trace starts again, and this
time the body finds a stand-in for the module, and for its functions: given a run-time number they compute
another one (`Trace.computes_math`), by the very function of `math` in every replay. Everything else in the
stand-in is `math`'s. Other threads that find it get `math`.
"""

from __future__ import annotations

import math
import types
from collections.abc import Callable
from typing import Any

from tracejit.frontend.recording.number import FUNCTIONS, TESTS, computed_by
from tracejit.frontend.recording.recording import thread


def _computing() -> bool:
    """Whether this thread is recording a trace in which the functions of `math` compute run-time numbers."""
    return thread.trace is not None and bool(thread.trace.computes_math)


def _function(name: str) -> Callable[..., Any]:
    theirs = getattr(math, name)

    def call(*args: Any, **options: Any) -> Any:
        if options or not _computing():
            return theirs(*args, **options)
        return computed_by(theirs, f"math.{name}", args, thread.trace.numbers)

    return call


class StandIn(types.ModuleType):
    """Stands for `math` where a trace records what it computes; for other threads it is `math`."""

    def __getattr__(self, name: str) -> Any:
        if name in FOUND and _computing():
            return FOUND[name]
        return getattr(math, name)


MODULE = StandIn("math")
FOUND = {name: _function(name) for name in (*FUNCTIONS, *TESTS)}
"""By the names of `math`: what a body finds in their place."""
_STAND_INS = {id(math): MODULE} | {id(getattr(math, name)): call for name, call in FOUND.items()}
_ORIGINALS = {id(MODULE): math} | {id(call): getattr(math, name) for name, call in FOUND.items()}


def stand_in(value: Any) -> Any:
    """The stand-in for `value` if that is `math` or a function of it; else None."""
    return _STAND_INS.get(id(value))


def settled(value: Any) -> Any:
    """The original of a stand-in; other values as they are."""
    return _ORIGINALS.get(id(value), value)
