"""`tj.range`: a loop of which the first rounds are recorded, whatever its count.

    for i in tj.range(n):            round 0 and round 1 are recorded; then the loop ends,
        x = tanh(x * w + i)          and a node `loop` stands for all rounds but the first

At the begin of each round all that the rest of the body can depend on is noted (`headers`). When two headers
are equal but for the content of arrays, all further rounds repeat the one between them: its nodes become the
body of a `loop` (`loop_node`), arrays that are alive get the loop's results, and ``for`` ends. The count is a
run-time number, checked to be at least `LEAST`; smaller counts are recorded like those of Python's `range`.
Where headers stay different, or the body asks for the value of the loop variable, the call is recorded again
with Python's `range` in this place (`unroll`), and ``explain()`` says why.
"""

from __future__ import annotations

import builtins
import operator
import sys
import types
import weakref
from collections.abc import Hashable, Iterator
from typing import TYPE_CHECKING, Any, NoReturn

from tracejit.errors import ArgumentError, OutOfBoundsError, locate
from tracejit.frontend.recording.location import is_ours, user_location
from tracejit.frontend.recording.look_loops.counters import for_at
from tracejit.frontend.recording.number import NumberProxy, unproxied
from tracejit.frontend.recording.operations import Operation
from tracejit.frontend.recording.ranges.headers import Header, header_at
from tracejit.frontend.recording.ranges.induction import after, follow
from tracejit.frontend.recording.ranges.loop_node import loop_of
from tracejit.frontend.recording.ranges.positions import Outside, Unequal, fixed, left, slope_of
from tracejit.frontend.recording.recording import thread
from tracejit.frontend.recording.restart import Restart
from tracejit.frontend.recording.sources import OF_LOOPS, Computed, Progression, Varying
from tracejit.frontend.recording.trace_numbers import Numbers
from tracejit.ir.graph import Node, Value
from tracejit.ir.view import View

if TYPE_CHECKING:
    from tracejit.frontend.recording.trace import Trace

LEAST = 4
"""The least rounds of a loop: counts below it are recorded round by round."""

HEADERS = 5
"""Rounds that may differ before all are recorded."""

PLAIN = Numbers()
"""The numbers of proxies that only stand for their value."""
PLAIN.closed = True


class Range:
    """A range whose rounds are recorded a few times (see `range`). It can be run through again and again.

    >>> import tracejit as tj
    >>> tj.range(2, 8, 3)
    tj.range(2, 8, 3)
    >>> len(tj.range(2, 8, 3))
    2
    """

    __slots__ = ("start", "step", "stop")

    def __init__(self, start: Any, stop: Any, step: Any) -> None:
        self.start, self.stop, self.step = start, stop, step

    def __iter__(self) -> Iterator[Any]:
        trace = thread.trace
        if trace is not None:
            rounds = self._rounds(trace, sys._getframe(1))
            if rounds is not None:
                return rounds
        return iter(builtins.range(self.start, self.stop, self.step))

    def __len__(self) -> int:
        return len(builtins.range(self.start, self.stop, self.step))

    def __repr__(self) -> str:
        return f"tj.range({self.start}, {self.stop}, {self.step})"

    def _rounds(self, trace: Trace, frame: types.FrameType) -> RangeLoop | None:
        """The rounds of a ``for`` statement, if a loop may stand for them."""
        if not may_roll(frame) or for_at(frame.f_code, frame.f_lasti) is None:
            return None
        step = operator.index(self.step)
        count = self.stop
        if type(self.start) is NumberProxy or self.start != 0 or step != 1:
            distance = self.stop - self.start if step > 0 else self.start - self.stop
            count = (distance + (abs(step) - 1)) // abs(step)
        return self._loop(trace, frame, self.start, step, count) if count >= self._least() else None

    def _least(self) -> int:
        """The least rounds of a loop."""
        return LEAST

    def _loop(self, *parts: Any) -> RangeLoop:
        return RangeLoop(*parts)


def range(*bounds: Any) -> Range:
    """Python's ``range(stop)`` or ``range(start, stop[, step])`` for loops of many rounds.

    In a traced function the first rounds are recorded, and stand for all of them: recording, compiling and
    kernels do not depend on the count, which is a run-time number: other counts of at least 4 replay. The
    rounds must do the same with other values: arrays are rebound (``x = f(x)``), updated in place, read and
    stored at places that move with the loop variable (``out[i] = x[i + 1]``), and the loop variable is used
    in arithmetic. Where they differ, where the loop variable is compared, and in a gradient of a gradient,
    all rounds are recorded, as with Python's `range`; results are the same, and ``explain()`` says why.
    While a gradient is taken, other counts are recorded anew: what a round needs for it is kept (see
    `tj.checkpoint`). Elsewhere it is Python's `range`.

    Raises an `ArgumentError`, which is a `TypeError`, for bounds that are not integers and a step of 0. An
    index out of range is an `OutOfBoundsError`, an `IndexError`, that names the line and the round.

    >>> import tracejit as tj
    >>> @tj.jit
    ... def grow(x, n):
    ...     for i in tj.range(n):
    ...         x = x * 0.5 + i
    ...     return x
    >>> grow(tj.zeros(2), 1000), grow(tj.zeros(2), 2000)
    (NDArray([1996., 1996.], dtype=float32), NDArray([3996., 3996.], dtype=float32))
    >>> grow.cache_info().traces
    1
    """
    if not 1 <= len(bounds) <= 3:
        raise locate(
            ArgumentError(f"tj.range takes stop, or start, stop and step, got {len(bounds)} arguments"),
            user_location(),
        )
    start, stop = (0, bounds[0]) if len(bounds) == 1 else bounds[:2]
    step = bounds[2] if len(bounds) == 3 else 1
    for name, bound in (("start", start), ("stop", stop), ("step", step)):
        if not hasattr(type(unproxied(bound)), "__index__") or isinstance(bound, float):
            message = f"tj.range: {name} must be an integer, got {type(unproxied(bound)).__name__} {bound!r}"
            raise locate(ArgumentError(message), user_location())
    if step == 0:
        raise locate(ArgumentError("tj.range: step must not be 0"), user_location())
    start, stop = (b if isinstance(b, int) else operator.index(b) for b in (start, stop))
    return Range(start, stop, step)


def may_roll(frame: types.FrameType) -> bool:
    """Whether the rounds of a loop in this frame may be recorded a few times."""
    trace = thread.trace
    places = trace.unrolled if trace is not None else None
    if places is None or len(trace.tapes) != thread.tapes or thread.tapes > 1:
        return False
    return site_of(frame) not in places


def record_all(reason: str) -> None:
    """Record all rounds of the innermost loop that is being recorded, if there is one."""
    if thread.trace is not None and thread.trace.nest.loops:
        thread.trace.nest.loops[-1].unroll(reason)


def site_of(frame: types.FrameType) -> Hashable:
    """The place of a loop; for one in this package, the place where the user's code calls it."""
    caller: types.FrameType | None = frame
    while caller is not None and is_ours(caller):
        caller = caller.f_back
    place = frame if caller is None else caller
    return place.f_code, place.f_lasti


class Nest:
    """The loops over `tj.range` that are being recorded.

    loops:  outermost first.
    ended:  places of loops that have ended, so that a few rounds stand for all.
    values: values of the graph for numbers that differ from round to round.
    counts: numbers of rounds, by places of loops over Python's `range`.
    has_plain: whether loops over Python's `range` might be recorded so, too (see `plain`).
    """

    def __init__(self) -> None:
        self.loops: list[RangeLoop] = []
        self.ended: set[Hashable] = set()
        self.counts: dict[Hashable, int] = {}
        self.has_plain = False
        self.values: dict[Value, Progression | Varying] = {}


class RangeLoop:
    """The iterator of a ``for``: round after round, until two headers are equal."""

    def __init__(self, trace: Trace, frame: types.FrameType, start: Any, step: int, count: Any) -> None:
        self.trace = trace
        self.site = site_of(frame)
        self.location = user_location() or frame.f_code.co_filename
        self.start, self.step, self.count = start, step, count
        self.round = -1  # the one being recorded
        self.header: Header | None = None
        self.numbers: list[weakref.ref[NumberProxy]] = []  # the moving ones
        self.begin = 0  # the node at which round 1 begins, of those that stay in front of the loop
        self.outside: Outside | None = None  # an index of this round, in a later one
        trace.nest.loops.append(self)

    def __iter__(self) -> RangeLoop:
        return self

    def __next__(self) -> Any:
        trace, self.round = self.trace, self.round + 1
        if self.round == 0:
            return self.start
        if thread.trace is not trace:
            self.unroll("the loop goes on while something else is recorded")
        frame = sys._getframe(1)  # that of the ``for``; not kept, as it keeps arrays
        if self.round > 1 and self._ends(frame):
            raise StopIteration
        if self.round >= min(HEADERS, unproxied(self.count)):
            self.unroll("the rounds of tj.range differ", detail=True)
        self.outside = None
        self.header = self.header if self.round > 1 else header_at(self, frame)
        if self.round == 1:
            self.begin = len(trace.nodes)
        assert self.header is not None
        self.header.holders, self.header.moving = [], []  # so that this round frees what it rebinds
        return self.moving(self.step, self.start + self.step * self.round)

    def moving(self, slope: int, base: Any) -> NumberProxy:
        """A number that is `base` in this round, and grows by `slope` each round."""
        self.trace.numbers.given = True
        proxy = self.number(Progression(self, slope, base, unproxied(base)))
        self.numbers.append(weakref.ref(proxy))
        return proxy

    def depth(self) -> int:
        """The number of enclosing loops; -1 if this one has ended."""
        return self.trace.nest.loops.index(self) if self in self.trace.nest.loops else -1

    def number(self, source: Progression | Computed) -> NumberProxy:
        """The number of a source, in this round."""
        return NumberProxy(source.value, source, self.trace.numbers)

    def follow(self, operation: Operation, value: Any, operands: tuple[Any, ...]) -> NumberProxy:
        """The result `value` of arithmetic on numbers of this loop, and others."""
        return follow(operation, value, operands)

    def unroll(self, reason: str, *, detail: bool = False) -> NoReturn:
        """Record the call again, with Python's `range` here."""
        if detail and self.header is not None:
            reason += f": {self.header.difference}"
        self.trace.interrupt(Restart(unrolled=(self.site, (reason, self.location))))

    def _ends(self, frame: types.FrameType) -> bool:
        """End the loop if the round that was just recorded stands for all further ones."""
        before, trace = self.header, self.trace
        assert before is not None
        header = header_at(self, frame)
        if not before.equals(header):
            header.difference = before.difference
            self.header = header
            return False
        if self.outside is not None:
            raise locate(OutOfBoundsError(self.outside.message), self.outside.location)
        self.check(before.nodes)
        count = self.count - (self.round - 1)
        try:
            loop_of(self, before, header, count, self.location)
        except Unequal as error:
            header.difference = str(error)
            self.header = header
            return False
        self._draw_on(before)
        self._move_to_last(header)
        trace.nest.loops.remove(self)
        trace.nest.ended.add(self.site)
        return True

    def check(self, begin: int) -> None:
        """Refuse a round, recorded from node `begin` on, if a loop of such rounds is not wanted."""

    def _draw_on(self, before: Header) -> None:
        """Count the draws of the further rounds, each of which draws as much as the one since `before`."""
        trace, rest = self.trace, self.count - self.round
        of_round = trace.draws.of_round(before.drawn) or []
        if any(of_round) and (trace.tapes or len(trace.nest.loops) > 1):
            rest = operator.index(rest)  # a look: a round of the loop around draws the same in all calls
        trace.draws.go_on(of_round, rest)

    def _move_to_last(self, header: Header) -> None:
        """Set moving numbers and views to their values in the last round; those in recorded nodes keep the
        values that they have there.
        """
        rest, depth = self.count - self.round, self.depth()
        for array in header.moving:
            array._view = left(array._view, depth, rest)
        nodes = self.trace.nodes
        for i, node in enumerate(nodes[self.begin :], self.begin):
            seen = node.attrs.get("view")
            if isinstance(seen, View) and slope_of(seen.offset, depth):
                attrs = {**node.attrs, "view": seen.moved(fixed(seen.offset, depth) - seen.offset)}
                nodes[i] = Node(node.op, node.inputs, node.outputs, attrs, node.location)
        moving = self.trace.nest.values
        for value in [v for v, s in moving.items() if type(s) is Varying and s.loop is self]:
            del moving[value]  # of a round in front of the loop
        for known in self.numbers:
            proxy = known()
            source: Any = proxy._source if proxy is not None else None
            if proxy is None or type(source) not in OF_LOOPS or source.loop is not self:
                continue
            last = after(source, rest, self.trace.numbers)
            if type(last) is NumberProxy:
                proxy._value, proxy._source = last._value, last._source
                if type(last._source) is Progression:
                    last._source.loop.numbers.append(known)
            else:
                proxy._value, proxy._source, proxy._numbers = last, None, PLAIN
