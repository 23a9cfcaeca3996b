"""Python's own `range` in a body whose recording becomes long.

    for i in range(200):                 32,000 rounds: recording them takes seconds; so the call is
        for j in range(160):             recorded again with `tj.range` in both places, a round or
            a[i, j] -= a[i, j - 1] * b   two of each

Rounds of Python's `range` are recorded one by one, and `passes.rolling` finds equal ones, which is best while
they are few: kernels may compute several rounds, and a round may ask for the value of its variable. When more
than `LONG` operations are recorded in a body that has begun a ``for`` over at least `ROUNDS` whole numbers,
the recording starts again, and such loops are recorded like those over `tj.range`. What `tj.range` cannot
stand for is recorded round by round, as before. No loop begins so behind `LONG` operations of a second
recording, unless it has ended at this place before: if it had to be unrolled, these would be recorded again.
Nor does one with other numbers of rounds at one place: in triangular loops, equal rounds are found better
when all are there.

With the pass `roll` disabled all rounds are recorded. Only code of the traced function itself finds this
`range` (see `surroundings.numbers_found`).
"""

from __future__ import annotations

import builtins
import sys
import types
from typing import TYPE_CHECKING, Any

from tracejit.config import config
from tracejit.frontend.recording.look_loops.counters import counted_range, for_after, is_integer
from tracejit.frontend.recording.number import unproxied
from tracejit.frontend.recording.ranges.ranges import Range, RangeLoop, may_roll, site_of
from tracejit.frontend.recording.recording import thread
from tracejit.passes.rolling.roll import LONG_SCALE, check_size
from tracejit.passes.rolling.wiring import Unlike

if TYPE_CHECKING:
    from tracejit.frontend.recording.trace import Trace

LONG = 4096
"""The most operations of a recording, a tenth of a second, in which all rounds are recorded."""

ROUNDS = 16
"""The least rounds of a loop that is recorded like one over `tj.range`."""


def range_of_body(*bounds: Any) -> Any:
    """Python's `range` as a traced body finds it."""
    trace, frame = thread.trace, sys._getframe(1)
    if trace is None or not all(is_integer(bound, trace) for bound in bounds):
        return builtins.range(*bounds)
    if trace.assumed.counted:
        return counted_range(trace, frame, bounds)
    plain = builtins.range(*map(unproxied, bounds))
    may_be_long = len(plain) >= ROUNDS and not (trace.tapes or trace.looks.cuts or trace.numbers.concrete)
    if may_be_long and for_after(frame.f_code, frame.f_lasti) is not None:
        if trace.assumed.rolled:
            start, stop = (0, bounds[0]) if len(bounds) == 1 else bounds[:2]
            return _PlainRange(start, stop, bounds[2] if len(bounds) == 3 else 1)
        trace.nest.has_plain = trace.unrolled is not None and "roll" not in config.disable
    return builtins.range(*bounds)


def range_of_called(*bounds: Any) -> Any:
    """Python's `range` as a function finds it that a traced body calls: it counts rounds with looks."""
    trace = thread.trace
    if trace is None or not trace.assumed.counted or not all(is_integer(bound, trace) for bound in bounds):
        return builtins.range(*bounds)
    return counted_range(trace, sys._getframe(1), bounds)


class _PlainRange(Range):
    """A range of Python's whose rounds are recorded a few times."""

    __slots__ = ()

    def _least(self) -> int:
        return ROUNDS

    def _rounds(self, trace: Trace, frame: types.FrameType) -> RangeLoop | None:
        is_new = site_of(frame) not in trace.nest.ended
        if (is_new and len(trace.nodes) > LONG) or not may_roll(frame):
            return None
        rounds = super()._rounds(trace, frame)
        if rounds is not None:
            count = len(builtins.range(*map(unproxied, (self.start, self.stop, self.step))))
            if trace.nest.counts.setdefault(rounds.site, count) != count:
                rounds.unroll("the number of rounds differs from one time to the next")
        return rounds

    def _loop(self, *parts: Any) -> RangeLoop:
        return _PlainLoop(*parts)


class _PlainLoop(RangeLoop):
    """The iterator of a ``for`` over Python's `range`."""

    def check(self, begin: int) -> None:
        """Leave rounds to several workers that are worth them, as `passes.rolling` does."""
        try:
            check_size(self.trace.nodes[begin:], LONG_SCALE)
        except Unlike as error:
            self.unroll(str(error))
