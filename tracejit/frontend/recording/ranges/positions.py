"""Positions that move with the iterations of a loop over `tj.range`: ``x[i + 1]``, ``x[:, 2 * i : 2 * i +
2]``.

An index may be an induction variable (`induction`). The offset of the view then is an `ir.moving.Moving`. As
the trip count is not known, a `Moving` consists of samples: the present value, and the value one iteration
later of each loop that is being recorded (up to `DEPTH` nested loops).

    for i in tj.range(n):      i = 2 in this iteration, rows of 10 elements
        x[i + 1]               offset (30, 40, 30, 30): it grows by 10 per iteration of the outermost loop

Positions are checked for the present iteration and for the last one; the latter is a guard if the trip count
is a run-time number. Since positions are linear, those of all iterations between the two are then in range,
too, and count from the same end. A position that leaves the array in a later iteration raises an
`OutOfBoundsError` when the loop node is created. All iterations are recorded if the body may catch that
error, or if the slice has another size in other iterations (because it is cut off at the end of an array).
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
from tracejit.ir.moving import IterationsDiffer
from tracejit.ir.view import LazyView, View
from tracejit.ops import update, view

if TYPE_CHECKING:
    from tracejit.frontend.recording.ranges.ranges import RangeLoop

DEPTH = 3
"""The maximum depth of nested loops with which a position may move."""


class Unequal(Exception):
    """The iteration does not equal the next ones."""


class Outside(NamedTuple):
    """An index that leaves its array in a later iteration of a loop."""

    iteration: int
    message: str
    location: str | None


def any_moves(part: slice) -> bool:
    """Whether a bound of a slice is an induction variable."""
    return does_move(part.start) or does_move(part.stop) or does_move(part.step)


def position(index: NumberProxy, axis: int, extent: int) -> Any:
    """Return the nonnegative position along an axis that an index refers to. It is in range in this
    iteration.
    """
    samples, source = _sampled(index), index._source
    from_end = index._value < 0
    for end in ends_of(index):
        if not (-extent <= end if from_end else end < extent):
            _leaves(index, axis, extent)
        elif not (end < 0 if from_end else end >= 0):
            source.loop.unroll("an index counts from another end of the array in later iterations")
    return samples + extent if from_end else samples


def bounds(part: slice, extent: int) -> tuple[Any, int, int]:
    """Return start, size and step of a slice with bounds that move."""
    loop: RangeLoop = next(b._source.loop for b in (part.start, part.stop, part.step) if does_move(b))
    step = 1 if part.step is None else part.step
    if does_move(step) or step < 0 or part.start is None or part.stop is None:
        loop.unroll("a slice has another size in each iteration")
    start, stop = (_bound(b, extent, loop) for b in (part.start, part.stop))
    size = stop - start
    if type(size) is moving.Moving:
        loop.unroll("a slice has another size in each iteration")
    return start, len(range(0, size, operator.index(step))), operator.index(step)


def _bound(bound: Any, extent: int, loop: RangeLoop) -> Any:
    """Return a bound of a slice, which has to stay within the axis."""
    if not all(end >= 0 and end <= extent for end in ends_of(bound)):
        loop.unroll("a slice is cut off at the end of an array")
    return _sampled(bound) if does_move(bound) else operator.index(bound)


def _sampled(index: NumberProxy) -> Any:
    """Return the samples of a number: the present value, and the value one iteration later of each loop."""
    slopes, number = [0] * DEPTH, index
    while does_move(number):
        source = number._source
        depth = source.loop.depth()
        if not 0 <= depth < DEPTH:
            source.loop.unroll(f"an index moves with more than {DEPTH} loops")
        slopes[depth] += source.slope
        number = source.base
    operator.index(number)  # a look: the first value must be the same in all calls
    return moving.from_values([index._value + slope for slope in (0, *slopes)])


def _leaves(index: NumberProxy, axis: int, extent: int) -> None:
    """Note that an index is out of range in a later iteration."""
    loop, slope, now = index._source.loop, index._source.slope, index._value
    if does_move(index._source.base) or _may_catch():
        loop.unroll("an index is out of range in a later iteration")
    iterations = (extent - now + slope - 1) // slope if slope > 0 else (now + extent) // -slope + 1
    message = (
        f"index {now + iterations * slope} is out of range for axis {axis} with extent {extent}, in "
        f"iteration {loop.iteration + iterations} of the loop"
    )
    if loop.outside is None or loop.iteration + iterations < loop.outside.iteration:
        loop.outside = Outside(loop.iteration + iterations, message, user_location())


def _may_catch() -> bool:
    """Whether a function between this one and the traced function's caller may catch an error."""
    frame: types.FrameType | None = sys._getframe(1)
    while frame is not None and not runs_body(frame):
        if not is_ours(frame) and frame.f_code.co_exceptiontable:
            return True
        frame = frame.f_back
    return False


# ------------------------------------------------------------------------------------------- views that move


def moves(view: View) -> bool:
    """Whether the offset of a view moves with a loop that is being recorded."""
    return isinstance(view.offset, moving.Moving)


def _samples(number: Any) -> Any:
    return tuple(number.values) if type(number) is moving.Moving else number


def slope_of(number: Any, depth: int) -> int:
    """Return the increment of a sampled number per iteration of a loop."""
    return int(number.values[1 + depth] - number.values[0]) if type(number) is moving.Moving else 0


def fixed(number: Any, depth: int) -> Any:
    """Return a sampled number with its present value for one loop; it moves with the enclosing loops."""
    if type(number) is not moving.Moving:
        return number
    each = number.values.copy()
    each[1 + depth] = each[0]
    return moving.from_values(each)


def at_start(view: View, loop: RangeLoop) -> Any:
    """Return a key that is equal for views that differ only by the number of iterations between them."""
    if type(view) is not View or not moves(view):
        return view
    first = view.offset - slope_of(view.offset, loop.depth()) * loop.iteration
    return _samples(first), view.shape, view.strides


class MovingSlice(NamedTuple):
    """A slice that moves with the iterations: `size` elements from `low` on, which advances by `step` in each
    iteration.

    `low` is an integer, or moves with the enclosing loops.
    """

    low: Any
    size: int
    step: int


def slice_of(
    first: Value, nodes: Sequence[Node], carried: Mapping[Value, Value], depth: int
) -> MovingSlice | None:
    """Return the slice in which the nodes of an iteration read and write a value. None if it does not move.
    Raises `Unequal` if only a subset of the accesses moves, or if they move by different steps.

    carried: the values at the start of the iteration, with the new value of each.
    """
    members, last = {first}, carried.get(first, first)
    accesses: list[View] = []
    has_other_uses = False
    for node in nodes:
        if members.isdisjoint(node.inputs):
            continue
        if node.op not in (view, update) or not members.isdisjoint(node.inputs[1:]):
            has_other_uses = True
        else:
            accesses.append(node.attrs["view"])
        if node.op is update and node.inputs[0] in members:
            members.add(node.output)
    if not any(map(moves, accesses)):
        return None
    steps = {slope_of(access.offset, depth) for access in accesses}
    escapes = any(v in members for f, v in carried.items() if f is not first)
    if has_other_uses or len(steps) > 1 or last not in members or escapes:
        raise Unequal("an array is used at positions that move, and at others")
    try:
        low, high = accesses[0].span()
        for access in accesses[1:]:
            low, high = min(low, access.span()[0]), max(high, access.span()[1])
    except IterationsDiffer:
        raise Unequal("the positions in an array move apart") from None
    return MovingSlice(low, high - low, steps.pop())


class FinalView(LazyView):
    """The view that a moving view has become after its loop. The first use of it looks at the trip count."""

    __slots__ = ()

    def __init__(self, view: View, offset: Any, distance: NumberProxy) -> None:
        self._facts = view, offset, distance  # type: ignore[assignment]

    def _resolve(self) -> None:
        facts: Any = self._facts
        view, offset, distance = facts
        self.offset, self.shape, self.strides = offset + operator.index(distance), view.shape, view.strides
        self.writable = view.writable
        del self._facts
        self.__class__ = View  # type: ignore[assignment]


def final_view(view: View, depth: int, remaining: Any) -> View:
    """Return a view as it is after `remaining` further iterations."""
    distance, offset = slope_of(view.offset, depth) * remaining, fixed(view.offset, depth)
    if type(distance) is NumberProxy:
        return FinalView(view, offset, distance)
    return View(offset + distance, view.shape, view.strides, view.writable)
