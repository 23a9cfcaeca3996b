"""`tj.range`: a loop of which the first rounds are recorded, whatever its count.

    for i in tj.range(n):            round 0 and round 1 are recorded; then the loop ends,
        x = tanh(x * w + i)          and a node `loop` stands for all rounds but the first

At the begin of each round, its *head*, all that the rest of the body can depend on is noted (`heads`). A body
does the same where it depends on the same. So when two heads are equal, but for what arrays hold, all further
rounds are the one between them again: its nodes become the body of a `loop` (`looped`), arrays that are alive
hold the loop's results, and ``for`` ends. The count is a run-time number, checked to be at least `LEAST`;
smaller counts are recorded like those of Python's `range`.

The loop variable is a number that *moves*: it has a slope, and what it is in the round being recorded
(`Moving`). Sums and differences with whole numbers move, too, and so do views at such places (`places`).
Floats that are computed from it (``rate / (i + 1)``) vary: the loop computes them in each round.
Whoever asks for its value (a comparison, a shape) would get another answer in each round: then, and where
heads stay different, the call is recorded again with Python's `range` in this place (`unroll`). ``explain()``
tells why.
"""

from __future__ import annotations

import builtins
import operator
import sys
import types
import weakref
from collections.abc import Hashable, Iterator
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from tracejit.errors import ArgumentError, OutOfBoundsError, locate
from tracejit.frontend.python.bytecode import instructions
from tracejit.frontend.recording import operations
from tracejit.frontend.recording.heads import Head, head_at
from tracejit.frontend.recording.location import user_location
from tracejit.frontend.recording.looped import VARYING, Unequal, loop_of
from tracejit.frontend.recording.number import NumberProxy, Numbers, settled
from tracejit.frontend.recording.operations import Operation
from tracejit.frontend.recording.places import Outside, corners, does_move, fixed, left, slope_of
from tracejit.frontend.recording.recording import thread
from tracejit.frontend.recording.sources import OF_LOOPS, Computed, Moving, Varying
from tracejit.ir.graph import Node
from tracejit.ir.view import View
from tracejit.passes.rolling.wiring import EXACT

if TYPE_CHECKING:
    from tracejit.frontend.recording.trace import Trace

LEAST = 4
"""The least rounds of a loop: counts below it are recorded round by round."""

HEADS = 5
"""So many rounds may differ before all are recorded."""

PLAIN = Numbers()
"""Those of numbers that are nothing but their value."""
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

    def _rounds(self, trace: Trace, frame: types.FrameType) -> Rounds | None:
        """The rounds of a ``for`` statement, if a loop may stand for them."""
        if not may_roll(frame) or not _is_for(frame.f_code, frame.f_lasti):
            return None
        step = operator.index(self.step)
        count = self.stop
        if type(self.start) is NumberProxy or self.start != 0 or step != 1:
            distance = self.stop - self.start if step > 0 else self.start - self.stop
            count = (distance + (abs(step) - 1)) // abs(step)
        return Rounds(trace, frame, self.start, step, count) if count >= LEAST else None


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
        if not hasattr(type(settled(bound)), "__index__") or isinstance(bound, float):
            message = f"tj.range: {name} must be an integer, got {type(settled(bound)).__name__} {bound!r}"
            raise locate(ArgumentError(message), user_location())
    if step == 0:
        raise locate(ArgumentError("tj.range: step must not be 0"), user_location())
    start, stop = (b if isinstance(b, int) else operator.index(b) for b in (start, stop))
    return Range(start, stop, step)


def may_roll(frame: types.FrameType) -> bool:
    """Whether the rounds of a loop in this frame may be recorded a few times."""
    trace = thread.trace
    if trace is None or trace.unrolled is None or len(trace.tapes) != thread.tapes or thread.tapes > 1:
        return False
    return _site_of(frame) not in trace.unrolled


def record_all(reason: str) -> None:
    """Record all rounds of the innermost loop that is being recorded, if there is one."""
    if thread.trace is not None and thread.trace.open_ranges:
        thread.trace.open_ranges[-1].unroll(reason)


def _site_of(frame: types.FrameType) -> Hashable:
    """Where a loop is; one of this package is where people's code calls it."""
    caller: types.FrameType | None = frame
    while caller is not None and str(caller.f_globals.get("__name__")).partition(".")[0] == "tracejit":
        caller = caller.f_back
    place = frame if caller is None else caller
    return place.f_code, place.f_lasti


def _is_for(code: types.CodeType, offset: int) -> bool:
    """Whether the iterator that is made at an instruction is that of a ``for``, and nobody else's."""
    if code.co_flags & GENERATORS:
        return False
    known = [i for i in instructions(code) if i.opname not in ("CACHE", "EXTENDED_ARG")]
    here = next((k for k, i in enumerate(known) if i.offset == offset), None)
    return here is not None and [i.opname for i in known[here : here + 2]] == ["GET_ITER", "FOR_ITER"]


GENERATORS = 0x20 | 0x80 | 0x200  # inspect.CO_GENERATOR, CO_COROUTINE, CO_ASYNC_GENERATOR


class Rounds:
    """The iterator of a ``for``: round after round, until two heads are equal."""

    def __init__(self, trace: Trace, frame: types.FrameType, start: Any, step: int, count: Any) -> None:
        self.trace = trace
        self.site = _site_of(frame)
        self.location = user_location() or frame.f_code.co_filename
        self.start, self.step, self.count = start, step, count
        self.round = -1  # the one being recorded
        self.head: Head | None = None
        self.numbers: list[weakref.ref[NumberProxy]] = []  # that move
        self.begin = 0  # the node at which round 1 begins, of those that stay in front of the loop
        self.outside: Outside | None = None  # an index of this round, in a later one
        trace.open_ranges.append(self)

    def __iter__(self) -> Rounds:
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
        if self.round >= min(HEADS, settled(self.count)):
            self.unroll("the rounds of tj.range differ", detail=True)
        self.outside = None
        self.head = self.head if self.round > 1 else head_at(self, frame)
        if self.round == 1:
            self.begin = len(trace.nodes)
        assert self.head is not None
        self.head.holders, self.head.moving = [], []  # so that this round frees what it rebinds
        return self.moving(self.step, self.start + self.step * self.round)

    def moving(self, slope: int, base: Any) -> NumberProxy:
        """A number that is `base` in this round, and grows by `slope` each round."""
        source = Moving(self, slope, base, self.round)
        self.trace.numbers.given = True
        proxy = NumberProxy(settled(base), source, self.trace.numbers)
        self.numbers.append(weakref.ref(proxy))
        return proxy

    def depth(self) -> int:
        """How many loops are around this one; -1 if it has ended."""
        return self.trace.open_ranges.index(self) if self in self.trace.open_ranges else -1

    def number(self, source: Moving | Computed) -> NumberProxy:
        """What a source stands for, in this round."""
        value = settled(source.base) if isinstance(source, Moving) else source.value
        return NumberProxy(value, source, self.trace.numbers)

    def unroll(self, reason: str, *, detail: bool = False) -> NoReturn:
        """Record the call again, with Python's `range` here."""
        if detail and self.head is not None:
            reason += f": {self.head.difference}"
        self.trace.unroll(self.site, reason, self.location)

    def _ends(self, frame: types.FrameType) -> bool:
        """End the loop if the round that was just recorded stands for all further ones."""
        before, trace = self.head, self.trace
        assert before is not None
        after = head_at(self, frame)
        if not before.equals(after):
            after.difference = before.difference
            self.head = after
            return False
        if self.outside is not None:
            raise locate(OutOfBoundsError(self.outside.message), self.outside.location)
        count = self.count - (self.round - 1)
        try:
            loop_of(trace, self, before, after, count, self.location)
        except Unequal as error:
            after.difference = str(error)
            self.head = after
            return False
        self._draw_on(before)
        self._settle(after)
        trace.open_ranges.remove(self)
        return True

    def _draw_on(self, before: Head) -> None:
        """The further rounds draw random numbers, each as many as the one recorded since `before`."""
        trace, rest = self.trace, self.count - self.round
        of_round = trace.draws.of_round(before.drawn) or []
        if any(of_round) and (trace.tapes or len(trace.open_ranges) > 1):
            rest = operator.index(rest)  # a look: a round of the loop around draws the same in all calls
        trace.draws.go_on(of_round, rest)

    def _settle(self, head: Head) -> None:
        """Numbers and views that move are what they are in the last round, those in recorded nodes what they
        are there.
        """
        rest, depth = self.count - self.round, self.depth()
        for array in head.moving:
            array._view = left(array._view, depth, rest)
        nodes = self.trace.nodes
        for i, node in enumerate(nodes[self.begin :], self.begin):
            seen = node.attrs.get("view")
            if isinstance(seen, View) and slope_of(seen.offset, depth):
                attrs = {**node.attrs, "view": seen.moved(fixed(seen.offset, depth) - seen.offset)}
                nodes[i] = Node(node.op, node.inputs, node.outputs, attrs, node.location)
        moving = self.trace.moving
        for value in [v for v, s in moving.items() if type(s) is Varying and s.rounds is self]:
            del moving[value]  # of a round in front of the loop
        for known in self.numbers:
            proxy = known()
            source: Any = proxy._source if proxy is not None else None
            if proxy is None or type(source) not in OF_LOOPS or source.rounds is not self:
                continue
            last = _after(source, rest, self.trace.numbers)
            if type(last) is NumberProxy:
                proxy._value, proxy._source = last._value, last._source
                if type(last._source) is Moving:
                    last._source.rounds.numbers.append(known)
            else:
                proxy._value, proxy._source, proxy._numbers = last, None, PLAIN


def follow(operation: Operation, value: Any, operands: tuple[Any, ...]) -> Any:
    """The result of arithmetic on numbers that move: it moves, too, or the loop is unrolled."""
    inner = max((o.rounds for o in operands if type(o) in OF_LOOPS), key=Rounds.depth)
    if type(value) is float:
        return _vary(inner, operation, value, operands)
    bases, slopes = [], []
    for operand in operands:
        if type(operand) is Moving and operand.rounds is inner:
            bases.append(operand.base)
            slopes.append(operand.slope)
            if operand.round != inner.round:
                inner.unroll("a number of the round before is used in arithmetic")
        elif type(operand) is int:
            bases.append(operand)
            slopes.append(0)
        elif type(operand) in (Moving, Computed):
            bases.append(inner.number(operand))
            slopes.append(0)
        else:
            inner.unroll(f"arithmetic of the loop variable and {getattr(operand, 'path', operand)}")
    slope = _slope(operation, bases, slopes)
    if slope is None or type(value) is not int:
        told = operation.written(*["i"] * len(operands))
        inner.unroll(f"{told} does not grow evenly with the loop variable i")
    return inner.moving(slope, operation.function(*bases))


def _vary(rounds: Rounds, operation: Operation, value: float, operands: tuple[Any, ...]) -> NumberProxy:
    """A float that is computed in each round, or the loop is unrolled."""
    source = Varying(rounds, operation, operands, value)
    what = source.path
    for operand in operands:
        if type(operand) in OF_LOOPS:
            of_outer = type(operand) is Moving and does_move(operand.base)
            if of_outer or (operand.rounds, operand.round) != (rounds, rounds.round):
                rounds.unroll(f"{what} of a number of another round or loop")
            if type(operand) is Moving:
                check_exact(operand, np.dtype("float64"))
        elif type(operand) not in (int, float) and type(getattr(operand, "value", None)) is not float:
            rounds.unroll(f"arithmetic of the loop variable and {getattr(operand, 'path', operand)}")
        elif type(operand) is int and abs(operand) >= EXACT["float64"]:
            rounds.unroll(f"{what} of a number that float64 does not hold")
    if operation not in VARYING or (operation is operations.DIVIDE and not _divides(rounds, operands[1])):
        rounds.unroll(f"{what} is no arithmetic that a loop does")
    proxy = NumberProxy(value, source, rounds.trace.numbers)
    rounds.numbers.append(weakref.ref(proxy))
    return proxy


def _divides(rounds: Rounds, divisor: Any) -> bool:
    """Whether a divisor is not 0 in any round: Python raises an error then."""
    if type(divisor) is not Moving:
        return type(divisor) in (int, float)
    number = NumberProxy(settled(divisor.base), divisor, rounds.trace.numbers)
    ends = corners(number)
    return all(end > 0 for end in ends) or all(end < 0 for end in ends)


def in_front(source: Any, numbers: Numbers) -> Any:
    """What a number is in the rounds that are being recorded: a plain number, or a run-time number."""
    if type(source) is Varying:
        return source.operation.function(*[in_front(o, numbers) for o in source.operands])
    if type(source) is Moving:
        return origin_of(source)
    return source if type(source) in (int, float) else NumberProxy(source.value, source, numbers)


def _after(source: Any, rest: Any, numbers: Numbers) -> Any:
    """What a number is after `rest` further rounds."""
    if type(source) is Varying:
        return source.operation.function(*[_after(o, rest, numbers) for o in source.operands])
    if type(source) is Moving:
        return source.base + rest * source.slope
    return in_front(source, numbers)


def _slope(operation: Operation, bases: list[Any], slopes: list[int]) -> int | None:
    """By how much a result grows in each round; None if not evenly."""
    match operation:
        case operations.ADD:
            return slopes[0] + slopes[1]
        case operations.SUBTRACT:
            return slopes[0] - slopes[1]
        case operations.MULTIPLY if slopes[0] == 0 and type(bases[0]) is int:
            return bases[0] * slopes[1]
        case operations.MULTIPLY if slopes[1] == 0 and type(bases[1]) is int:
            return slopes[0] * bases[1]
        case operations.NEGATIVE:
            return -slopes[0]
        case operations.POSITIVE | operations.INT:
            return slopes[0]
    return None


def check_exact(source: Moving, dtype: np.dtype) -> None:
    """Numbers of a loop grow by adding: they must stay whole numbers that their dtype counts exactly."""
    rounds = source.rounds
    number = NumberProxy(settled(source.base), source, rounds.trace.numbers)
    most = int(np.iinfo(dtype).max) if dtype.kind in "iu" else EXACT.get(str(dtype), 0)
    least = 0 if dtype.kind == "u" else -most
    if not all(least <= end and end <= most for end in corners(number)):
        rounds.unroll(f"{dtype} does not count the rounds exactly")


def origin_of(source: Moving) -> Any:
    """What a number is in the rounds that are being recorded: a whole number, or a run-time number."""
    base = source.base
    outer = base._source if type(base) is NumberProxy else None
    return origin_of(outer) if type(outer) is Moving else base
