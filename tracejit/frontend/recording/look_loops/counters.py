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
from tracejit.frontend.recording.number import NumberProxy, is_of
from tracejit.frontend.recording.trace_numbers import Numbers

if TYPE_CHECKING:
    from tracejit.frontend.recording.trace import Trace


def may_count(code: types.CodeType) -> bool:
    """Whether a loop of the code may have a counter."""
    return ("range" in code.co_names and iterates(code)) or bool(updated_variables(code))


def count_attributes(trace: Trace, frames: Sequence[types.FrameType]) -> tuple[Any, ...]:
    """Turn attributes that the code updates, and that the body has set, into run-time numbers. Return the
    names and values of those that an expression may have loaded already, as `count_in` does.
    """
    names = frozenset[str]().union(*map(updated_attributes, list(trace.body.executed)))
    if not names:
        return ()
    pending = frozenset[str]().union(*(names_on_stack(frame.f_code, frame.f_lasti) for frame in frames))
    literals = []
    for slot, now in trace.body.changes():
        if type(now) in (int, float) and slot.assignable and slot.key in names:
            if "." + slot.key in pending:
                literals.append((slot.key, repr(now)))
            slot.put(counter(now, trace.numbers))
    return tuple(literals)


def count_in(frame: types.FrameType, numbers: Numbers) -> tuple[Any, ...]:
    """Turn the counters of a frame into run-time numbers, if they are ordinary ones. Return the names and
    values of those that the present expression may already have loaded as ordinary numbers: ``n +=
    int(x[k])`` loads n before the look.
    """
    names = [n for n in updated_variables(frame.f_code) if type(frame.f_locals.get(n)) in (int, float)]
    if not names:
        return ()
    variables = frame.f_locals
    pending = names_on_stack(frame.f_code, frame.f_lasti)
    literals = tuple((name, repr(variables[name])) for name in names if name in pending)
    for name in names:
        variables[name] = counter(variables[name], numbers)
    if sys.version_info < (3, 13):  # there, `f_locals` is a copy
        ctypes.pythonapi.PyFrame_LocalsToFast(ctypes.py_object(frame), ctypes.c_int(0))
    return literals


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
    numbers = trace.numbers
    is_counted = type(start) is NumberProxy and numbers.is_recomputed(start._source)
    first = start if is_counted else counter(start, numbers)
    is_varying = type(start) is NumberProxy or type(stop) is NumberProxy
    counted = CountedRange(first, stop, step, trace if is_varying else None)
    trace.looks.ranges[id(frame), loop] = weakref.ref(counted)
    return counted


def counted_rows(trace: Trace, frame: types.FrameType, array: Any) -> CountedRows | None:
    """Return the iterator over the rows of an array for a ``for`` of a body with counters; None elsewhere."""
    frames = frames_of_body()
    if not frames or frames[0] is not frame:
        return None
    loop = for_at(frame.f_code, frame.f_lasti)
    trace.looks.iterates = trace.looks.iterates or loop is not None
    if loop is None or not trace.assumed.counted:
        return None
    rows = CountedRows(counter(0, trace.numbers), array.shape[0], 1)
    rows.array = array
    trace.looks.ranges[id(frame), loop] = weakref.ref(rows)
    return rows


def is_integer(bound: Any, trace: Trace) -> bool:
    """Whether a bound of a range is an integer, maybe a run-time one."""
    return type(bound) is int or (is_of(bound, trace.numbers) and type(bound._value) is int)


class CountedRange:
    """The iterator of a ``for`` over a range. Its state consists of numbers of the call.

    looks: the number of looks of the trace when the last iteration started, if the trip count is a run-time
           number: an iteration without a look ends with one, so that each is a transition between states.
    """

    __slots__ = ("__weakref__", "looks", "next", "step", "stop", "trace")

    array: Any = None

    def __init__(self, first: Any, stop: Any, step: int, trace: Trace | None = None) -> None:
        self.next, self.stop, self.step, self.trace = first, stop, step, trace
        self.looks = -1

    def __iter__(self) -> CountedRange:
        return self

    def __next__(self) -> Any:
        here, trace = self.next, self.trace
        if not (here < self.stop if self.step > 0 else here > self.stop):
            raise StopIteration
        if trace is not None:
            if self.looks == len(trace.looks.cuts):
                trace.look_at_number(here)
            self.looks = len(trace.looks.cuts)
        self.next = here + self.step
        return here


class CountedRows(CountedRange):
    """The iterator of a ``for`` over an array."""

    __slots__ = ("array",)

    def __next__(self) -> Any:
        return self.array[super().__next__()]
