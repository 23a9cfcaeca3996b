"""Places that move with the rounds of a loop over `tj.range`: ``x[i + 1]``, ``x[:, 2 * i : 2 * i + 2]``.

A position is a number that moves (`induction`), and so is the offset of a view: an `ir.moving.Moving`. As the
count of rounds is not known, it has samples: the value now, and the value a round further of each loop that
is being recorded (`DEPTH` of them).

    for i in tj.range(n):      i = 2 in this round, rows of 10 elements
        x[i + 1]               offset (30, 40, 30, 30): it grows by 10 a round of the outermost loop

Positions are checked for this round and the last one, which is a guard where the count is a run-time number.
So in all rounds between them they are in range, and count from the same end. A position that leaves the array
in a later round is an `OutOfBoundsError` when the loop is made. Where the body may catch that, or where the
place has another size in other rounds (a slice that is cut at the end of an array), all rounds are recorded.
"""

from __future__ import annotations

import operator
import sys
import types
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from tracejit.frontend.recording.location import is_ours, runs_body, user_location
from tracejit.frontend.recording.number import NumberProxy
from tracejit.frontend.recording.ranges.induction import does_move, ends_of
from tracejit.ir import moving
from tracejit.ir.graph import Node, Value
from tracejit.ir.moving import Differs
from tracejit.ir.view import LateView, View
from tracejit.ops import update, view

if TYPE_CHECKING:
    from tracejit.frontend.recording.ranges.ranges import RangeLoop

DEPTH = 3
"""Nested loops that may move a place."""


class Unequal(Exception):
    """The round does not equal the next ones."""


class Outside(NamedTuple):
    """An index that leaves its array in a later round of a loop."""

    round: int
    message: str
    location: str | None


def any_moves(part: slice) -> bool:
    """Whether a bound of a slice moves."""
    return does_move(part.start) or does_move(part.stop) or does_move(part.step)


def position(part: NumberProxy, axis: int, extent: int) -> Any:
    """The place along an axis that an index means, not negative. It is in range in this round."""
    found, source = _sampled(part), part._source
    from_end = part._value < 0
    for end in ends_of(part):
        if not (-extent <= end if from_end else end < extent):
            _leaves(part, axis, extent)
        elif not (end < 0 if from_end else end >= 0):
            source.loop.unroll("an index counts from another end of the array in later rounds")
    return found + extent if from_end else found


def bounds(part: slice, extent: int) -> tuple[Any, int, int]:
    """Start, count and step of a slice with bounds that move."""
    loop: RangeLoop = next(b._source.loop for b in (part.start, part.stop, part.step) if does_move(b))
    step = 1 if part.step is None else part.step
    if does_move(step) or step < 0 or part.start is None or part.stop is None:
        loop.unroll("a slice has another size in each round")
    start, stop = (_bound(b, extent, loop) for b in (part.start, part.stop))
    size = stop - start
    if type(size) is moving.Moving:
        loop.unroll("a slice has another size in each round")
    return start, len(range(0, size, operator.index(step))), operator.index(step)


def _bound(part: Any, extent: int, loop: RangeLoop) -> Any:
    """A bound of a slice, which has to stay within the axis."""
    if not all(end >= 0 and end <= extent for end in ends_of(part)):
        loop.unroll("a slice is cut at the end of an array")
    return _sampled(part) if does_move(part) else operator.index(part)


def _sampled(part: NumberProxy) -> Any:
    """Samples of a number: now, and a round further of each loop."""
    slopes, number = [0] * DEPTH, part
    while does_move(number):
        source = number._source
        depth = source.loop.depth()
        if not 0 <= depth < DEPTH:
            source.loop.unroll(f"an index moves with more than {DEPTH} loops")
        slopes[depth] += source.slope
        number = source.base
    operator.index(number)  # a look: the first value must be the same in all calls
    return moving.whole([part._value + slope for slope in (0, *slopes)])


def _leaves(part: NumberProxy, axis: int, extent: int) -> None:
    """Note that an index is out of range in a later round."""
    loop, slope, now = part._source.loop, part._source.slope, part._value
    if does_move(part._source.base) or _may_catch():
        loop.unroll("an index is out of range in a later round")
    further = (extent - now + slope - 1) // slope if slope > 0 else (now + extent) // -slope + 1
    message = (
        f"index {now + further * slope} is out of range for axis {axis} with extent {extent}, in round "
        f"{loop.round + further} of the loop"
    )
    if loop.outside is None or loop.round + further < loop.outside.round:
        loop.outside = Outside(loop.round + further, message, user_location())


def _may_catch() -> bool:
    """Whether an error might be caught between here and the call of the traced function."""
    frame: types.FrameType | None = sys._getframe(1)
    while frame is not None and not runs_body(frame):
        if not is_ours(frame) and frame.f_code.co_exceptiontable:
            return True
        frame = frame.f_back
    return False


# ------------------------------------------------------------------------------------------- views that move


def moves(view: View) -> bool:
    """Whether a view moves with a loop that is being recorded."""
    return isinstance(view.offset, moving.Moving)


def _samples(number: Any) -> Any:
    return tuple(number.each) if type(number) is moving.Moving else number


def slope_of(number: Any, depth: int) -> int:
    """The growth of a sampled number with each round of a loop."""
    return int(number.each[1 + depth] - number.each[0]) if type(number) is moving.Moving else 0


def fixed(number: Any, depth: int) -> Any:
    """A sampled number with its present value for a loop; with enclosing loops it moves as before."""
    if type(number) is not moving.Moving:
        return number
    each = number.each.copy()
    each[1 + depth] = each[0]
    return moving.whole(each)


def at_start(view: View, loop: RangeLoop) -> Any:
    """A key that is equal for views that differ only by the rounds between them."""
    if type(view) is not View or not moves(view):
        return view
    first = view.offset - slope_of(view.offset, loop.depth()) * loop.round
    return _samples(first), view.shape, view.strides


class MovingSlice(NamedTuple):
    """A place that moves with the rounds: `size` elements from `low` on, further by `step` each round.

    `low` is a number that moves with the loops around, or an integer.
    """

    low: Any
    size: int
    step: int


def slice_of(
    first: Value, nodes: Sequence[Node], carried: Mapping[Value, Value], depth: int
) -> MovingSlice | None:
    """The slice in which the nodes of a round read and store a value, if it moves, and moves as a whole.

    carried: the new values of those with which the round begins.
    """
    members, last = {first}, carried.get(first, first)
    accesses: list[View] = []
    others = False
    for node in nodes:
        if members.isdisjoint(node.inputs):
            continue
        if node.op not in (view, update) or not members.isdisjoint(node.inputs[1:]):
            others = True
        else:
            accesses.append(node.attrs["view"])
        if node.op is update and node.inputs[0] in members:
            members.add(node.output)
    if not any(map(moves, accesses)):
        return None
    steps = {slope_of(seen.offset, depth) for seen in accesses}
    elsewhere = any(v in members for f, v in carried.items() if f is not first)
    if others or len(steps) > 1 or last not in members or elsewhere:
        raise Unequal("an array is used at places that move, and at others")
    try:
        low, high = accesses[0].span()
        for seen in accesses[1:]:
            low, high = min(low, seen.span()[0]), max(high, seen.span()[1])
    except Differs:
        raise Unequal("the places of an array move apart") from None
    return MovingSlice(low, high - low, steps.pop())


class Left(LateView):
    """A view that moved, after its loop. Its first use looks at the count."""

    __slots__ = ()

    def __init__(self, view: View, offset: Any, further: NumberProxy) -> None:
        self._facts = view, offset, further  # type: ignore[assignment]

    def _resolve(self) -> None:
        held: Any = self._facts
        view, offset, further = held
        self.offset, self.shape, self.strides = offset + operator.index(further), view.shape, view.strides
        self.writable = view.writable
        del self._facts
        self.__class__ = View  # type: ignore[assignment]


def left(view: View, depth: int, rest: Any) -> View:
    """A view as it is after `rest` further rounds."""
    further, offset = slope_of(view.offset, depth) * rest, fixed(view.offset, depth)
    if type(further) is NumberProxy:
        return Left(view, offset, further)
    return View(offset + further, view.shape, view.strides, view.writable)
