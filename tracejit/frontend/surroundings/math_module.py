"""Stand-ins for Python's `math` in a traced body, for when it computes with numbers found in arrays.

    if random.item() < math.exp(-delta / T):     delta: a number found in an array

`math.exp` is C code, which reads a number's value; that of a number found in an array differs in every
call. So when a body is about to ask for all its digits, and names `math`, the trace starts again, and this
time the body finds a stand-in for the module, and for its functions: given a run-time number they compute
another one (`Assumptions.math`), by the very function of `math` in every replay. Everything else in the
stand-in is `math`'s. Other threads that find it get `math`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tracejit.frontend.recording.number import computed_by
from tracejit.frontend.recording.operations import FUNCTIONS, TESTS
from tracejit.frontend.recording.recording import thread
from tracejit.frontend.surroundings.module_stand_ins import StandIns


def is_computed() -> bool:
    """Whether this thread is recording a trace in which the functions of `math` compute run-time numbers."""
    assumed = thread.trace.assumed if thread.trace is not None else None
    return assumed is not None and assumed.math


def _function(name: str) -> Callable[..., Any]:
    theirs = getattr(math, name)

    def compute(*args: Any, **options: Any) -> Any:
        if options:
            return theirs(*args, **options)
        return computed_by(theirs, f"math.{name}", args, thread.trace.numbers)

    return compute


MATH = StandIns(math, {name: _function(name) for name in (*FUNCTIONS, *TESTS)}, is_computed)
