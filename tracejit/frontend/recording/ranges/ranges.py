"""`tj.range`: a loop of which only the first iterations are recorded, whatever its trip count.

    for i in tj.range(n):            iterations 0 and 1 are recorded; then the ``for`` statement ends,
        x = tanh(x * w + i)          and a node `loop` represents all iterations but the first

At the start of each iteration, the recorder takes a snapshot of everything that the rest of the body can
depend on (`headers`). If two headers are equal except for the content of arrays, all further iterations
repeat the one between them. Its nodes become the body of a `loop` (`loop_node`), live arrays get the loop's
results, and the ``for`` statement ends. The trip count is a run-time number with a guard that it is at least
`MIN_TRIP_COUNT`; loops with smaller trip counts are recorded like those over Python's `range`. If headers
remain different, or the body asks for the value of the loop variable, the call is recorded again with
Python's `range` at this call site (`RangeLoop.unroll`), and ``explain()`` shows the reason.
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
from tracejit.frontend.python.code_loops import for_at
from tracejit.frontend.recording.location import is_ours, user_location
from tracejit.frontend.recording.look_loops.counters import counted_range, is_integer
from tracejit.frontend.recording.number import NumberProxy, unproxied
from tracejit.frontend.recording.operations import Operation
from tracejit.frontend.recording.ranges.headers import Header, header_at
from tracejit.frontend.recording.ranges.induction import after, follow
from tracejit.frontend.recording.ranges.loop_node import loop_of
from tracejit.frontend.recording.ranges.positions import Outside, Unequal, final_view, fixed, slope_of
from tracejit.frontend.recording.recording import thread
from tracejit.frontend.recording.restart import Restart
from tracejit.frontend.recording.sources import OF_LOOPS, Computed, Progression, Varying
from tracejit.frontend.recording.trace_numbers import Numbers
from tracejit.ir.graph import Node, Value
from tracejit.ir.view import View

if TYPE_CHECKING:
    from tracejit.frontend.recording.trace import Trace

MIN_TRIP_COUNT = 4
"""The minimum trip count of a loop node. Loops with fewer iterations are unrolled."""

MAX_HEADERS = 5
"""The maximum number of iterations without two equal headers. After that, the loop is unrolled."""

LONG_UNROLLED = 8192
"""The maximum number of operations of a recording that unrolls a loop over single elements."""

SOURCELESS = Numbers()
"""The numbers to which proxies belong that have only a value, and no source."""
SOURCELESS.closed = True


class Range:
    """A range of which only a few iterations are recorded (see `range`). It can be iterated over repeatedly.

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
            loop = self._recorded_loop(trace, sys._getframe(1))
            if loop is not None:
                return loop
            bounds = self.start, self.stop, self.step
            if trace.assumed.counted and all(is_integer(bound, trace) for bound in bounds):
                return iter(counted_range(trace, sys._getframe(1), bounds))
        return iter(builtins.range(self.start, self.stop, self.step))

    def __len__(self) -> int:
        return len(builtins.range(self.start, self.stop, self.step))

    def __repr__(self) -> str:
        return f"tj.range({self.start}, {self.stop}, {self.step})"

    def _recorded_loop(self, trace: Trace, frame: types.FrameType) -> RangeLoop | None:
        """Return the iterator for a ``for`` statement that may become a loop node, or None."""
        if not may_roll(frame) or for_at(frame.f_code, frame.f_lasti) is None:
            return None
        if trace.assumed.counted and (trace.varies(self.start) or trace.varies(self.stop)):
            return None  # each iteration is a transition of a loop over looks (see `look_loops.counters`)
        step = operator.index(self.step)
        trip_count = self.stop
        if type(self.start) is NumberProxy or self.start != 0 or step != 1:
            distance = self.stop - self.start if step > 0 else self.start - self.stop
            trip_count = (distance + (abs(step) - 1)) // abs(step)
        return (
            self._new_loop(trace, frame, self.start, step, trip_count)
            if trip_count >= self._min_trip_count()
            else None
        )

    def _min_trip_count(self) -> int:
        """Return the minimum trip count of a loop node."""
        return MIN_TRIP_COUNT

    def _new_loop(self, *arguments: Any) -> RangeLoop:
        return RangeLoop(*arguments)


def range(*bounds: Any) -> Range:
    """Python's ``range(stop)`` or ``range(start, stop[, step])`` for loops of many iterations.

    In a traced function, only the first iterations are recorded, and they represent all iterations. The costs
    of recording and compilation, and the kernels, do not depend on the trip count. It is a run-time number,
    and any trip count of at least 4 replays. The iterations must do the same with different values: rebind
    arrays (``x = f(x)``), update them in place, read and write them at positions that move with the loop
    variable (``out[i] = x[i + 1]``), and use the loop variable in arithmetic. If the iterations differ, if
    the loop variable is compared, and in a gradient of a gradient, all iterations are recorded, as with
    Python's `range`. The results are the same, and ``explain()`` shows the reason. While a gradient is taken,
    each trip count has a recording of its own, because the values that the backward pass needs are kept for
    every iteration (see `tj.checkpoint`). Outside of traced functions, `tj.range` behaves like Python's
    `range`.

    Raises an `ArgumentError`, which is a `TypeError`, for bounds that are not integers and for a step of 0.
    An index out of range is an `OutOfBoundsError`, an `IndexError`, that names the line and the iteration.

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
    """Whether loops at the call site of this frame may be recorded with a few iterations."""
    trace = thread.trace
    unrolled = trace.unrolled if trace is not None else None
    if unrolled is None or len(trace.tapes) != thread.tapes or thread.tapes > 1:
        return False
    return site_of(frame) not in unrolled


def record_all(reason: str) -> None:
    """Unroll the innermost loop that is being recorded, if there is one."""
    if thread.trace is not None and thread.trace.nest.loops:
        thread.trace.nest.loops[-1].unroll(reason)


def site_of(frame: types.FrameType) -> Hashable:
    """Return the call site of a loop. For a loop inside this package, it is the position at which the user's
    code calls the package.
    """
    caller: types.FrameType | None = frame
    while caller is not None and is_ours(caller):
        caller = caller.f_back
    site = frame if caller is None else caller
    return site.f_code, site.f_lasti


class Nest:
    """The loops over `tj.range` that are being recorded.

    loops:       the loops, outermost first.
    ended:       call sites of loops that have become loop nodes.
    trip_counts: trip counts, by call site of loops over Python's `range`.
    has_builtin: whether loops over Python's `range` could be recorded in the same form (see `builtin_range`).
    values:      the graph values of numbers that differ between iterations, with their sources.
    next_check:  the number of operations above which `builtin_range` decides again.
    """

    def __init__(self) -> None:
        self.loops: list[RangeLoop] = []
        self.ended: set[Hashable] = set()
        self.trip_counts: dict[Hashable, int] = {}
        self.has_builtin = False
        self.next_check = LONG_UNROLLED
        self.values: dict[Value, Progression | Varying] = {}


class RangeLoop:
    """The iterator of a ``for`` statement: it records iterations until two headers are equal."""

    def __init__(self, trace: Trace, frame: types.FrameType, start: Any, step: int, trip_count: Any) -> None:
        self.trace = trace
        self.site = site_of(frame)
        self.location = user_location() or frame.f_code.co_filename
        self.start, self.step, self.trip_count = start, step, trip_count
        self.iteration = -1  # the iteration that is being recorded
        self.header: Header | None = None
        self.numbers: list[weakref.ref[NumberProxy]] = []  # the numbers that differ between iterations
        self.begin = 0  # position of the first node of iteration 1: nodes from here on may have moving views
        self.outside: Outside | None = None  # the first index that leaves its array in a later iteration
        trace.nest.loops.append(self)

    def __iter__(self) -> RangeLoop:
        return self

    def __next__(self) -> Any:
        trace, self.iteration = self.trace, self.iteration + 1
        if self.iteration == 0:
            return self.start
        if thread.trace is not trace:
            self.unroll("the loop continues while another function is recorded")
        frame = sys._getframe(1)  # of the ``for`` statement; not stored, because it keeps arrays alive
        if self.iteration > 1 and self._ends(frame):
            raise StopIteration
        if self.iteration >= min(MAX_HEADERS, unproxied(self.trip_count)):
            self.unroll("the iterations of tj.range differ", detail=True)
        self.outside = None
        self.header = self.header if self.iteration > 1 else header_at(self, frame)
        if self.iteration == 1:
            self.begin = len(trace.nodes)
        assert self.header is not None
        self.header.holders, self.header.moving = [], []  # so that rebound arrays are freed
        return self.moving(self.step, self.start + self.step * self.iteration)

    def moving(self, slope: int, base: Any) -> NumberProxy:
        """Return a number that is `base` in the present iteration and grows by `slope` in each."""
        self.trace.numbers.given = True
        proxy = self.number(Progression(self, slope, base, unproxied(base)))
        self.numbers.append(weakref.ref(proxy))
        return proxy

    def depth(self) -> int:
        """Return the number of enclosing loops; -1 if this loop has ended."""
        return self.trace.nest.loops.index(self) if self in self.trace.nest.loops else -1

    def number(self, source: Progression | Computed) -> NumberProxy:
        """Return the number of a source in the present iteration."""
        return NumberProxy(source.value, source, self.trace.numbers)

    def follow(self, operation: Operation, value: Any, operands: tuple[Any, ...]) -> NumberProxy:
        """Return the result `value` of arithmetic on numbers of this loop and others."""
        return follow(operation, value, operands)

    def unroll(self, reason: str, *, detail: bool = False) -> NoReturn:
        """Abort the recording. The call is recorded again, with Python's `range` at this call site."""
        if detail and self.header is not None:
            reason += f": {self.header.difference}"
        self.trace.interrupt(Restart(unrolled=(self.site, (reason, self.location))))

    def _ends(self, frame: types.FrameType) -> bool:
        """End the loop if the iteration that was just recorded represents all further ones."""
        before, trace = self.header, self.trace
        assert before is not None
        header = header_at(self, frame)
        if not before.equals(header):
            header.difference = before.difference
            self.header = header
            return False
        if self.outside is not None:
            raise locate(OutOfBoundsError(self.outside.message), self.outside.location)
        self.check(before.n_nodes)
        trip_count = self.trip_count - (self.iteration - 1)
        try:
            loop_of(self, before, header, trip_count, self.location)
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
        """Unroll the loop if a loop node for this iteration, recorded from node `begin` on, would not be
        profitable.
        """

    def _draw_on(self, before: Header) -> None:
        """Count the random draws of the remaining iterations, each of which draws as many numbers as the one
        since `before`.
        """
        trace, remaining = self.trace, self.trip_count - self.iteration
        per_iteration = trace.draws.drawn_since(before.drawn) or []
        if any(per_iteration) and (trace.tapes or len(trace.nest.loops) > 1):
            # A look: an iteration of the enclosing loop must draw the same number in all calls.
            remaining = operator.index(remaining)
        trace.draws.add_iterations(per_iteration, remaining)

    def _move_to_last(self, header: Header) -> None:
        """Set induction variables and moving views to their values in the last iteration. Recorded nodes keep
        the present values.
        """
        remaining, depth = self.trip_count - self.iteration, self.depth()
        for array in header.moving:
            array._view = final_view(array._view, depth, remaining)
        nodes = self.trace.nodes
        for i, node in enumerate(nodes[self.begin :], self.begin):
            view = node.attrs.get("view")
            if isinstance(view, View) and slope_of(view.offset, depth):
                attrs = {**node.attrs, "view": view.moved(fixed(view.offset, depth) - view.offset)}
                nodes[i] = Node(node.op, node.inputs, node.outputs, attrs, node.location)
        moving = self.trace.nest.values
        for value in [v for v, s in moving.items() if type(s) is Varying and s.loop is self]:
            del moving[value]  # of an iteration before the loop node
        for reference in self.numbers:
            proxy = reference()
            source: Any = proxy._source if proxy is not None else None
            if proxy is None or type(source) not in OF_LOOPS or source.loop is not self:
                continue
            last = after(source, remaining, self.trace.numbers)
            if type(last) is NumberProxy:
                proxy._value, proxy._source = last._value, last._source
                if type(last._source) is Progression:
                    last._source.loop.numbers.append(reference)
            else:
                proxy._value, proxy._source, proxy._numbers = last, None, SOURCELESS
