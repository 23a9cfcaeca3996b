"""Python's own `range` in a body whose recording becomes long.

    for i in range(200):                 32,000 iterations would take seconds to record, so the
        for j in range(160):             call is recorded again with `tj.range` for both loops,
            a[i, j] -= a[i, j - 1] * b   and one or two iterations of each are recorded

Normally, iterations of Python's `range` are recorded one by one, and `passes.rolling` detects equal ones.
This is best for few iterations: a kernel may compute several of them, and an iteration may ask for the value
of its variable. When a body that has started a ``for`` over at least `MIN_TRIP_COUNT` integers has recorded
more than `LONG_RECORDING` operations, the recording starts again, and such loops are recorded like loops over
`tj.range`. Loops that `tj.range` does not support are unrolled, as before.

Two restrictions keep this profitable. After `LONG_RECORDING` operations of a second recording, only a loop
that has already ended once at the same call site may start in this form: if another loop had to be unrolled,
all these operations would be recorded again. And a loop whose trip count differs from one execution of its
call site to the next (a triangular loop) is unrolled, because equal iterations are easier to detect when all
are recorded.

If unrolled loops compute single elements, their iterations become those of a loop over looks:

    for i in range(400):
        for j in range(i):               The trip count is a number of the call, which each iteration compares
            s -= a[i, j] * x[j]          with its counter: a look (`look_loops.counters`)

After `LONG_UNROLLED` operations, the recording starts again with counters; if the body needs the value of
one, all iterations are recorded after all.

If the pass `roll` is disabled, all iterations are recorded. Only code of the traced function itself sees this
`range` (see `surroundings.numbers_found`).
"""

from __future__ import annotations

import builtins
import sys
import types
from typing import TYPE_CHECKING, Any

from tracejit.config import config
from tracejit.frontend.python.code_loops import for_after
from tracejit.frontend.recording.look_loops.counters import computes_elements, counted_range, is_integer
from tracejit.frontend.recording.number import unproxied
from tracejit.frontend.recording.ranges.ranges import Range, RangeLoop, may_roll, site_of
from tracejit.frontend.recording.recording import thread
from tracejit.passes.rolling.roll import LONG_SCALE, check_size
from tracejit.passes.rolling.wiring import NotRollable

if TYPE_CHECKING:
    from tracejit.frontend.recording.trace import Trace

LONG_RECORDING = 4096
"""The maximum number of operations in a recording that unrolls all loops; recording them takes a tenth of a
second.
"""

MIN_TRIP_COUNT = 16
"""The minimum trip count of a loop that is recorded like one over `tj.range`."""


def range_of_body(*bounds: Any) -> Any:
    """The replacement for Python's `range` in a traced body."""
    trace, frame = thread.trace, sys._getframe(1)
    if trace is None or not all(is_integer(bound, trace) for bound in bounds):
        return builtins.range(*bounds)
    if trace.assumed.counted:
        return counted_range(trace, frame, bounds)
    iterations = builtins.range(*map(unproxied, bounds))
    may_be_long = len(iterations) >= MIN_TRIP_COUNT and not (
        trace.tapes or trace.looks.cuts or trace.numbers.concrete
    )
    if may_be_long and for_after(frame.f_code, frame.f_lasti) is not None:
        if trace.assumed.rolled:
            start, stop = (0, bounds[0]) if len(bounds) == 1 else bounds[:2]
            return _BuiltinRange(start, stop, bounds[2] if len(bounds) == 3 else 1)
        trace.nest.has_builtin = trace.unrolled is not None and "roll" not in config.disable
    return builtins.range(*bounds)


def range_of_called(*bounds: Any) -> Any:
    """The replacement for Python's `range` in a function that a traced body calls. It only counts the
    iterations of loops over looks.
    """
    trace = thread.trace
    if trace is None or not trace.assumed.counted or not all(is_integer(bound, trace) for bound in bounds):
        return builtins.range(*bounds)
    return counted_range(trace, sys._getframe(1), bounds)


def should_count(trace: Trace) -> bool:
    """Whether the iterations of unrolled loops should become those of a loop over looks: they compute single
    elements, or arrays as short as serial kernels have, as their last operations show.
    """
    if trace.assumed.counted is not None or trace.looks.cuts or not trace.assumed.unrolled:
        return False
    return not trace.draws.totals and computes_elements(trace, LONG_RECORDING)


class _BuiltinRange(Range):
    """A built-in range of which only a few iterations are recorded."""

    __slots__ = ()

    def _min_trip_count(self) -> int:
        return MIN_TRIP_COUNT

    def _recorded_loop(self, trace: Trace, frame: types.FrameType) -> RangeLoop | None:
        is_new = site_of(frame) not in trace.nest.ended
        if (is_new and len(trace.nodes) > LONG_RECORDING) or not may_roll(frame):
            return None
        loop = super()._recorded_loop(trace, frame)
        if loop is not None:
            trip_count = len(builtins.range(*map(unproxied, (self.start, self.stop, self.step))))
            if trace.nest.trip_counts.setdefault(loop.site, trip_count) != trip_count:
                loop.unroll("the trip count differs from one execution to the next")
        return loop

    def _new_loop(self, *arguments: Any) -> RangeLoop:
        return _BuiltinLoop(*arguments)


class _BuiltinLoop(RangeLoop):
    """The iterator of a ``for`` over Python's `range`."""

    def check(self, begin: int) -> None:
        """Unroll the loop if its iterations are long enough to be distributed over several workers, as
        `passes.rolling` does.
        """
        try:
            check_size(self.trace.nodes[begin:], LONG_SCALE)
        except NotRollable as error:
            self.unroll(str(error))
