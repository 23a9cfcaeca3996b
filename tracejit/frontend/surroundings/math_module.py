"""Stand-ins for Python's `math` in a traced body that computes with numbers read from arrays.

    if random.item() < math.exp(-delta / T):     delta: a number read from an array

`math.exp` is C code, which needs the number's value, and the value of a number read from an array differs
from call to call. When a body that names `math` is about to ask for all digits of such a number, the trace
therefore restarts, and the body finds a stand-in for the module and for its functions
(`Assumptions.math`). Applied to a run-time number, these functions return another run-time number, which
every replay computes with the original function of `math`; applied to an array of one element, they look at
the element first. All other attributes of the stand-in are those of `math`. In other threads that access it,
the stand-in behaves like `math`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tracejit.frontend.arrays.core import ArrayCore
from tracejit.frontend.recording.number import computed_by
from tracejit.frontend.recording.operations import FUNCTIONS, TESTS
from tracejit.frontend.recording.recording import thread
from tracejit.frontend.surroundings.module_stand_ins import StandIns


def is_computed() -> bool:
    """Return whether this thread records a trace in which `math`'s functions compute run-time numbers."""
    assumptions = thread.trace.assumed if thread.trace is not None else None
    return assumptions is not None and assumptions.math


def _function(name: str) -> Callable[..., Any]:
    original = getattr(math, name)

    def compute(*args: Any, **options: Any) -> Any:
        if options:
            return original(*args, **options)
        with_first = _with_number(name, 0, args, args)  # no loop: it would hide the body's state at the looks
        with_both = _with_number(name, 1, with_first, args)
        return computed_by(original, f"math.{name}", with_both, thread.trace.numbers)

    return compute


def _with_number(name: str, position: int, args: tuple[Any, ...], given: tuple[Any, ...]) -> tuple[Any, ...]:
    """Look at the argument at a position if it is an array of one element. `given`: all arguments as they
    were before the looks.
    """
    array = args[position] if position < len(args) else None
    if not isinstance(array, ArrayCore) or array.size != 1:
        return args
    used_up = [before._storage for before in given[:position] if isinstance(before, ArrayCore)]
    number = thread.trace.element(array, f"math.{name}()", used_up)
    return (*args[:position], number, *args[position + 1 :])


MATH = StandIns(math, {name: _function(name) for name in (*FUNCTIONS, *TESTS)}, is_computed)
