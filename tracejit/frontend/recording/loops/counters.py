"""Numbers that count the rounds of loops with looks (induction variables), as run-time numbers.

    n = 0
    while n < 300:                       n is a number of Python's, another one in each round
        x = f(x); n += 1
        if x.max() < 1e-5: break

Rounds are equal (`states`) if numbers that differ are run-time numbers. A variable that begins as a literal
is none, so each count of rounds would be a path of its own. When a body looks at the same place again in
another state, the call is recorded anew with counters: at each look, variables that the code adds to become
run-time numbers, and so does the variable of a ``for`` over Python's `range`. A ``for`` over an array counts
its rows. If a body asks for the value itself of such a number (`losses[n]` of a list), the answer would
differ in each round: then the function has no counters.
"""

from __future__ import annotations

import builtins
import ctypes
import functools
import sys
import types
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tracejit.frontend.python.bytecode import GENERATORS, instructions, operations, stack_steps
from tracejit.frontend.recording.loops.frames import frames_of_body
from tracejit.frontend.recording.number import NumberProxy, is_of
from tracejit.frontend.recording.trace_numbers import Numbers

if TYPE_CHECKING:
    from tracejit.frontend.recording.trace import Trace

STATEMENT = 16  # instructions before the end of a statement ``n = n + 1``


@functools.lru_cache(maxsize=256)
def counters(code: types.CodeType) -> frozenset[str]:
    """Local variables that a statement of one line computes of their old values: ``t = t * 0.5``."""
    found: set[str] = set()
    known = operations(code)
    for position, instruction in enumerate(known):
        if position == 0 or known[position - 1].opname != "BINARY_OP":
            continue
        stored = _names(instruction)[:1] if instruction.opname.startswith("STORE_FAST") else ()
        before = known[max(0, position - STATEMENT) : position]
        line = instruction.positions.lineno if instruction.positions else None
        loads = [i for i in before if i.opname.startswith("LOAD_FAST")]
        loads = [i for i in loads if i.positions is not None and i.positions.lineno == line]
        found |= {name for name in stored if any(name in _names(i) for i in loads)}
    return frozenset(found - set(code.co_cellvars))


@functools.lru_cache(maxsize=256)
def attribute_counters(code: types.CodeType) -> frozenset[str]:
    """Attributes that a statement computes of their old values: ``self.t += 1``."""
    lines: dict[int | None, set[str]] = {}
    found: set[str] = set()
    for i in operations(code):
        line = i.positions.lineno if i.positions else None
        if i.opname == "LOAD_ATTR":
            lines.setdefault(line, set()).add(i.argval)
        elif i.opname == "STORE_ATTR" and i.argval in lines.get(line, ()):
            found.add(i.argval)
    return frozenset(found)


def may_count(code: types.CodeType) -> bool:
    """Whether a loop of the code may have a counter."""
    iterates = "range" in code.co_names and any(i.opname == "FOR_ITER" for i in instructions(code))
    return iterates or bool(counters(code))


def count_attributes(trace: Trace, frames: Sequence[types.FrameType]) -> tuple[Any, ...]:
    """Make attributes that code adds to, and that the body has set, run-time numbers. Gives names and values
    of those which an expression may have loaded already, as `count_in` does.
    """
    names = frozenset[str]().union(*map(attribute_counters, list(trace.body.executed)))
    if not names:
        return ()
    pending = frozenset[str]().union(*(loaded(frame.f_code, frame.f_lasti) for frame in frames))
    plain = []
    for slot, now in trace.body.changes():
        if type(now) in (int, float) and slot.assignable and slot.key in names:
            if "." + slot.key in pending:
                plain.append((slot.key, repr(now)))
            slot.put(counter(now, trace.numbers))
    return tuple(plain)


def count_in(frame: types.FrameType, numbers: Numbers) -> tuple[Any, ...]:
    """Make the counters of a frame run-time numbers, where they are plain ones. Gives names and values of
    those which the expression that is being evaluated may have loaded already, as plain ones: in
    ``n += int(x[k])`` n is loaded before the look.
    """
    names = [n for n in counters(frame.f_code) if type(frame.f_locals.get(n)) in (int, float)]
    if not names:
        return ()
    held = frame.f_locals
    pending = loaded(frame.f_code, frame.f_lasti)
    plain = tuple((name, repr(held[name])) for name in names if name in pending)
    for name in names:
        held[name] = counter(held[name], numbers)
    if sys.version_info < (3, 13):  # there, `f_locals` is a copy
        ctypes.pythonapi.PyFrame_LocalsToFast(ctypes.py_object(frame), ctypes.c_int(0))
    return plain


@functools.lru_cache(maxsize=256)
def loaded(code: types.CodeType, offset: int) -> frozenset[str]:
    """Variables, and attributes with a dot before them, whose values, or what was computed of them, may be on
    the stack of an instruction.
    """
    found: list[tuple[int, str]] = []  # depths of the stack below them
    for i, before, after in stack_steps(code):
        if i.offset >= offset:
            break
        if before is None:  # an exception handler
            return frozenset((*code.co_varnames, *(f".{name}" for name in code.co_names)))
        if i.opname.startswith("LOAD_FAST"):
            found += ((before, name) for name in _names(i))
        elif i.opname == "STORE_FAST_LOAD_FAST":  # from Python 3.13 on, of one line
            found.append((before - 1, _names(i)[1]))
        elif i.opname == "LOAD_ATTR":
            found.append((before - 1, f".{i.argval}"))
        if i.opname != "PRECALL" and after is not None:
            found = [(below, name) for below, name in found if below < after]
    return frozenset(name for _, name in found)


def counter(value: Any, numbers: Numbers) -> Any:
    """A run-time number that is a literal at first."""
    return numbers.proxy(numbers.begin(value))


def counted_range(trace: Trace, frame: types.FrameType, bounds: tuple[Any, ...]) -> Any:
    """Python's ``range(*bounds)``, whole numbers, as a body with counters finds it in this frame."""
    start, stop = (0, bounds[0]) if len(bounds) == 1 else bounds[:2]
    step = bounds[2] if len(bounds) == 3 else 1
    place = for_after(frame.f_code, frame.f_lasti)
    if place is None or type(step) is not int or step == 0:
        return builtins.range(*bounds)
    numbers = trace.numbers
    first = start if type(start) is NumberProxy else counter(start, numbers)
    made = CountedRange(first, stop, step)
    trace.looks.ranges[id(frame), place] = weakref.ref(made)
    return made


def counted_rows(trace: Trace, frame: types.FrameType, array: Any) -> CountedRows | None:
    """The rows of an array, as a ``for`` of a body with counters finds them; None elsewhere."""
    frames = frames_of_body()
    if not frames or frames[0] is not frame:
        return None
    place = for_at(frame.f_code, frame.f_lasti)
    trace.looks.iterates = trace.looks.iterates or place is not None
    if place is None or not trace.assumed.counted:
        return None
    made = CountedRows(counter(0, trace.numbers), array.shape[0], 1)
    made.array = array
    trace.looks.ranges[id(frame), place] = weakref.ref(made)
    return made


def is_whole(bound: Any, trace: Trace) -> bool:
    """Whether a bound of a range is a whole number, perhaps one of the call."""
    return type(bound) is int or (is_of(bound, trace.numbers) and type(bound._value) is int)


class CountedRange:
    """The iterator of a ``for`` over a range, whose state is numbers of the call."""

    __slots__ = ("__weakref__", "next", "step", "stop")

    array: Any = None

    def __init__(self, first: Any, stop: Any, step: int) -> None:
        self.next, self.stop, self.step = first, stop, step

    def __iter__(self) -> CountedRange:
        return self

    def __next__(self) -> Any:
        here = self.next
        if not (here < self.stop if self.step > 0 else here > self.stop):
            raise StopIteration
        self.next = here + self.step
        return here


class CountedRows(CountedRange):
    """The iterator of a ``for`` over an array."""

    __slots__ = ("array",)

    def __next__(self) -> Any:
        return self.array[super().__next__()]


@functools.lru_cache(maxsize=256)
def for_after(code: types.CodeType, offset: int) -> int | None:
    """The place of the ``for`` that iterates over what is called at an instruction, and over nothing else."""
    known = operations(code)
    following = [i for i in known if i.offset > offset][:2]  # the offset of a call may be in its caches
    if [i.opname for i in following] != ["GET_ITER", "FOR_ITER"] or following[0].is_jump_target:
        return None
    return following[1].offset


@functools.lru_cache(maxsize=256)
def for_at(code: types.CodeType, offset: int) -> int | None:
    """The place of the ``for`` whose iterator is made at an instruction, if nothing else uses it."""
    if code.co_flags & GENERATORS:
        return None
    known = operations(code)
    here = next((k for k, i in enumerate(known) if i.offset == offset), None)
    if here is None or [i.opname for i in known[here : here + 2]] != ["GET_ITER", "FOR_ITER"]:
        return None
    return known[here + 1].offset


def _names(instruction: Any) -> tuple[str, ...]:
    """The variables of an instruction that loads or stores one, or two at once."""
    named = instruction.argval
    return named if isinstance(named, tuple) else (named,)
