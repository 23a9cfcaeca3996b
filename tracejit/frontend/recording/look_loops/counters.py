"""Iteration counters of loops over looks (induction variables), as run-time numbers.

    n = 0
    while n < 300:                       n is a Python number with another value in each iteration
        x = f(x); n += 1
        if x.max() < 1e-5: break

Iterations are equal (`states`) if all numbers that differ are run-time numbers. A variable that starts as a
literal is not, so each trip count would be a path of its own. When a body looks again at the same position in
another state, the call is recorded again *with counters*: at each look, variables that the code updates
become run-time numbers, and so does the variable of a ``for`` over Python's `range`. A ``for`` over an array
counts its rows. If a body depends on the value of such a number itself (`losses[n]` of a list), the answer
would differ in each iteration; such a function is recorded without counters.
"""

from __future__ import annotations

import builtins
import ctypes
import operator
import sys
import types
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tracejit.frontend.python.code_loops import (
    for_after,
    for_at,
    iterates,
    updated_attributes,
    updated_variables,
)
from tracejit.frontend.python.stack import names_on_stack
from tracejit.frontend.recording.look_loops.frames import frames_of_body
from tracejit.frontend.recording.number import NumberProxy, is_of, unproxied
from tracejit.frontend.recording.restart import Restart
from tracejit.frontend.recording.sources import OF_LOOPS
from tracejit.frontend.recording.trace_numbers import Numbers
from tracejit.ir.graph import Value
from tracejit.ir.op import Trait
from tracejit.loopnest.operands import MAX_SHORT
from tracejit.ops import scatter, update, view

if TYPE_CHECKING:
    from tracejit.frontend.recording.trace import Trace


LONG_SEGMENT = 2048
"""The maximum number of operations between two looks in a loop over elements that records all iterations."""

LONG_RUN, SHORT_RUN = 1024, 64
"""The maximum number of numbers that are computed between two looks in a loop that records all iterations,
and the number after which variables are counted, if the recording has counters.
"""

MAX_NEW_STATES = 16
"""The number of consecutive looks in new or unknown states after which iterations have no looks of their
own.
"""

CALLED = {Trait.ORDERED, Trait.HOST, Trait.LIBRARY}
"""The traits of operators that cannot be part of a kernel."""

MAX_REQUIRED = 16
"""The largest trip count that is required instead of being a run-time number."""


def may_count(code: types.CodeType) -> bool:
    """Whether a loop of the code may have a counter."""
    return ("range" in code.co_names and iterates(code)) or bool(updated_variables(code))


def count(trace: Trace, frames: Sequence[types.FrameType]) -> tuple[Any, ...] | None:
    """Turn variables and attributes that the code updates into run-time numbers, if they are ordinary ones.
    Return the names and values of those that an expression may already have loaded as ordinary numbers:
    ``n += int(x[k])`` loads n before the look.

    At a later look of the same expression (``n += f(x)``, if f looks twice), the variable is a run-time
    number, but the expression goes on with the loaded one. The variable does not change before the statement
    ends. While it has not changed since it became a run-time number, the loaded value is unknown: return
    None.
    """
    literals, is_known = _Counted(trace, frames), True
    for frame in frames:
        is_known = literals.count_variables(frame) and is_known
    is_known = literals.count_attributes() and is_known
    return tuple(literals.found) if is_known else None


class _Counted:
    """Counters as they become run-time numbers.

    found: the names and values of those that an expression may have loaded.
    """

    def __init__(self, trace: Trace, frames: Sequence[types.FrameType]) -> None:
        self.trace, self.frames = trace, frames
        self.found: list[Any] = []

    def count_variables(self, frame: types.FrameType) -> bool:
        """Count the variables of a frame. Return whether it is known what its expression has loaded."""
        names, variables, has_changed = updated_variables(frame.f_code), frame.f_locals, False
        loaded = names_on_stack(frame.f_code, frame.f_lasti) & names
        is_known = not any(self._may_be_loaded(frame, name, variables.get(name)) for name in loaded)
        for name in sorted(names):
            if self._is_fixed(variables.get(name)):
                variables[name] = self._counter(frame, name, variables[name], name in loaded)
                has_changed = True
        if has_changed and sys.version_info < (3, 13):  # there, `f_locals` is a copy
            ctypes.pythonapi.PyFrame_LocalsToFast(ctypes.py_object(frame), ctypes.c_int(0))
        return is_known

    def count_attributes(self) -> bool:
        """Count the attributes that the code updates, and that the body has set. Return whether it is known
        what expressions have loaded.
        """
        trace, is_known = self.trace, True
        names = frozenset[str]().union(*map(updated_attributes, list(trace.body.executed)))
        if not names:
            return True
        loaded = frozenset[str]().union(*(names_on_stack(f.f_code, f.f_lasti) for f in self.frames))
        for slot, now in trace.body.changes():
            if slot.key not in names:
                continue
            is_loaded = "." + slot.key in loaded
            if is_loaded and self._may_be_loaded(slot.holder, slot.key, now):
                is_known = False
            if self._is_fixed(now) and slot.assignable:
                slot.put(self._counter(slot.holder, slot.key, now, is_loaded))
        return is_known

    def _is_fixed(self, value: Any) -> bool:
        """Whether a value is a number that is the same in each iteration: an ordinary one, or a number of the
        call that depends neither on an array nor on a counter.
        """
        numbers = self.trace.numbers
        if not is_of(value, numbers):
            return type(value) in (int, float)
        source = value._source
        return (
            type(source) not in OF_LOOPS
            and type(value._value) in (int, float)
            and not numbers.is_recomputed(source)
        )

    def _counter(self, holder: Any, name: str, value: Any, is_loaded: bool) -> NumberProxy:
        """Return a counter that starts as the value of a variable or attribute."""
        number: NumberProxy = counter(value, self.trace.numbers)
        if is_loaded:
            self.found.append((name, repr(value)))
            self.trace.looks.loaded[id(holder), name] = number
        return number

    def _may_be_loaded(self, holder: Any, name: str, now: Any) -> bool:
        """Whether an expression may have loaded the ordinary number that a variable or attribute was before
        it became the number that it is now.
        """
        return now is not None and self.trace.looks.loaded.get((id(holder), name)) is now


def counter(value: Any, numbers: Numbers) -> Any:
    """Return a run-time number that starts as this number."""
    return numbers.proxy(numbers.start_counter(value))


def counted_range(trace: Trace, frame: types.FrameType, bounds: tuple[Any, ...]) -> Any:
    """Return Python's ``range(*bounds)`` of integers for a body with counters, which is running this
    frame.
    """
    start, stop = (0, bounds[0]) if len(bounds) == 1 else bounds[:2]
    step = bounds[2] if len(bounds) == 3 else 1
    loop = for_after(frame.f_code, frame.f_lasti) or for_at(frame.f_code, frame.f_lasti)
    if loop is None or type(step) is not int or step == 0:
        return builtins.range(*bounds)
    is_varying = type(start) is NumberProxy or type(stop) is NumberProxy
    if is_varying and _is_required(trace, start, stop, step):
        start, stop, is_varying = operator.index(start), operator.index(stop), False
    numbers = trace.numbers
    is_counted = type(start) is NumberProxy and numbers.is_recomputed(start._source)
    first = start if is_counted else counter(start, numbers)
    counted = CountedRange(first, stop, step, trace, is_varying=is_varying)
    trace.looks.ranges[id(frame), loop] = weakref.ref(counted)
    return counted


def _is_required(trace: Trace, start: Any, stop: Any, step: int) -> bool:
    """Whether the bounds of a loop are required, until they vary: those of a short loop in another one, or
    after a look. Otherwise, each of its iterations is a transition between states, although it may have no
    look.
    """
    is_inner = bool(trace.looks.cuts) or any(known() is not None for known in trace.looks.ranges.values())
    is_short = len(builtins.range(unproxied(start), unproxied(stop), step)) <= MAX_REQUIRED
    return is_inner and is_short and not (trace.varies(start) or trace.varies(stop))


def counted_rows(trace: Trace, frame: types.FrameType, array: Any) -> CountedRows | None:
    """Return the iterator over the rows of an array for a ``for`` of a body with counters; None elsewhere."""
    frames = frames_of_body()
    if not frames or frames[0] is not frame:
        return None
    loop = for_at(frame.f_code, frame.f_lasti)
    trace.looks.iterates = trace.looks.iterates or loop is not None
    if loop is None or not trace.assumed.counted:
        return None
    rows = CountedRows(counter(0, trace.numbers), array.shape[0], 1, trace)
    rows.array = array
    trace.looks.ranges[id(frame), loop] = weakref.ref(rows)
    return rows


def counted_arrays(
    trace: Trace,
    frame: types.FrameType,
    arrays: tuple[Any, ...],
    start: Any = None,
    *,
    packs: bool = False,
) -> CountedArrays | None:
    """Return the iterator of a ``for`` over ``zip(*arrays)``, over ``enumerate(array, start)``, or, if it
    `packs`, over ``enumerate(zip(*arrays), start)``, of a body with counters; None elsewhere.
    """
    loop = for_after(frame.f_code, frame.f_lasti)
    if loop is None or not all(array.shape for array in arrays):
        return None
    trace.looks.iterates = True
    if not trace.assumed.counted:
        return None
    items = CountedArrays(counter(0, trace.numbers), min(array.shape[0] for array in arrays), 1, trace)
    items.array = start, arrays, packs
    trace.looks.ranges[id(frame), loop] = weakref.ref(items)
    return items


def is_integer(bound: Any, trace: Trace) -> bool:
    """Whether a bound of a range is an integer, maybe a run-time one."""
    return type(bound) is int or (is_of(bound, trace.numbers) and type(bound._value) is int)


def computes_elements(trace: Trace, n_last: int) -> bool:
    """Whether the last `n_last` operations of a recording compute single elements, or arrays short enough for
    a serial kernel: none of them by a library, for gradients, or between numbers of a NumPy generator.
    """
    if trace.tapes:
        return False
    changed = set[Value]()  # arrays of which a few elements have changed
    for node in trace.nodes[-n_last:]:
        if node is trace.draws.last or not CALLED.isdisjoint(node.op.traits):
            return False
        if node.op is view:  # of an array that is indexed
            continue
        computed = node.inputs[1] if node.op in (update, scatter) else node.outputs[0]
        if computed not in changed and computed.type.size > MAX_SHORT:
            return False
        if node.op is scatter:
            changed.add(node.output)
    return True


class CountedRange:
    """The iterator of a ``for`` over a range. Its state consists of numbers of the call.

    is_stepped: whether an iteration without a look ends with one, so that each is a transition between
                states: the trip count is a run-time number, or the recording of all iterations is long.
    looks:      the number of looks of the trace when the last iteration started.
    n_numbers:  the number of steps with numbers before the first of the iterations since the last look.
    n_new:      the number of the last such looks at which the state of the body is a new one or unknown.
    """

    __slots__ = ("__weakref__", "is_stepped", "looks", "n_new", "n_numbers", "next", "step", "stop", "trace")

    array: Any = None

    def __init__(self, first: Any, stop: Any, step: int, trace: Trace, *, is_varying: bool = False) -> None:
        self.next, self.stop, self.step, self.trace = first, stop, step, trace
        self.is_stepped = is_varying or bool(trace.assumed.stepped)
        self.looks, self.n_numbers, self.n_new = -1, 0, 0

    def __iter__(self) -> CountedRange:
        return self

    def __next__(self) -> Any:
        here, trace = self.next, self.trace
        if not (here < self.stop if self.step > 0 else here > self.stop):
            raise StopIteration
        if self.looks == len(trace.looks.cuts):
            if self.is_stepped:
                self._step(here)
            elif trace.assumed.stepped is None and self._is_long():
                trace.interrupt(Restart(stepped=True))
        if self.looks != len(trace.looks.cuts):
            self.looks, self.n_numbers = len(trace.looks.cuts), len(trace.numbers.steps)
        self.next = here + self.step
        return here

    def _step(self, here: Any) -> None:
        """Look at the counter. If the state there is always another one, as a list grows, or unknown, record
        all iterations instead.
        """
        trace = self.trace
        graph = trace.looks.state_graph
        n_states = graph.n_states
        trace.look_at_number(here)
        is_new = trace.looks.n_unknown > 0 or graph.n_states > n_states
        self.n_new = self.n_new + 1 if is_new else 0
        if trace.assumed.stepped and self.n_new > MAX_NEW_STATES:
            trace.interrupt(Restart(stepped=False))

    def _is_long(self) -> bool:
        """Whether many operations or numbers were recorded without a look, which compute elements."""
        trace = self.trace
        is_long = len(trace.nodes) > LONG_SEGMENT or len(trace.numbers.steps) - self.n_numbers > LONG_RUN
        return is_long and computes_elements(trace, LONG_SEGMENT)


class CountedRows(CountedRange):
    """The iterator of a ``for`` over an array."""

    __slots__ = ("array",)

    def __next__(self) -> Any:
        return self.array[super().__next__()]


class CountedArrays(CountedRows):
    """The iterator of a ``for`` over several arrays, or over arrays and a number that counts from a start.
    `array` consists of the start, or None, the arrays, and whether their elements are a tuple.
    """

    __slots__ = ()

    def __next__(self) -> Any:
        here, (start, arrays, packs) = CountedRange.__next__(self), self.array
        items = tuple([array[here] for array in arrays])
        if packs:
            return here + start, items
        return items if start is None else (here + start, *items)
