"""The frames of a body at a look: which functions run, and what is known of their temporaries.

A look may be made by a function that the body calls. C code that calls functions, as `sorted` and `map` do,
has no frame, and a state that cannot be read. So the callee is looked up where the caller's code names it:
``converged(x)``, ``self.check(x)``. What is called in another way (an operator, what an expression returns)
is not known to be called directly. For the same reason the instruction that looks has to be one that looks
once: a jump, ``float(x)``, ``max(x, y)``; not ``x in values``, ``any(values)``.

Temporaries of an expression (``return -x.sum(), bool(done)``) are on a frame's stack, which cannot be read
either. Where the code from the beginning of the statement on has no branches, it tells what they are: loaded
values, results of operators on these, and results of calls, which must be arrays or numbers of the call that
are alive and in no variable: ``rate(k) * float(x)`` may have got a literal by another branch of ``rate``.
"""

from __future__ import annotations

import dis
import functools
import sys
import types
from collections.abc import Sequence
from typing import Any

import numpy as np

from tracejit.frontend.python.bytecode import GENERATORS, StackStep, enclosing, steps_to
from tracejit.frontend.python.content import GONE, Attributes, inherited
from tracejit.frontend.recording.location import is_ours, runs_body
from tracejit.frontend.recording.number import NumberProxy
from tracejit.frontend.recording.storage import Storage

LOOPS: set[types.CodeType] = set()
"""Functions of this package that loop over the user's functions: their variables count as the body's."""

PASSING: set[types.CodeType] = set()
"""Functions of this package that do nothing but call a function of the user's."""

NAMES = frozenset({"LOAD_FAST", "LOAD_FAST_CHECK", "LOAD_FAST_BORROW", "LOAD_DEREF", "LOAD_GLOBAL"})
ATTRIBUTES = frozenset({"LOAD_ATTR", "LOAD_METHOD"})
CONSTANTS = frozenset({"LOAD_CONST", "LOAD_SMALL_INT"})
TRUTHS = frozenset({"UNARY_NOT", "TO_BOOL"})

CALLS = frozenset({"CALL", "CALL_KW", "CALL_FUNCTION_EX"})

LOADED, COMPUTED, ANY = "loaded", "computed", "any"
"""Kinds of temporaries: a variable or constant, an operator's result on such, anything else."""

ONE = (bool, int, float, np.generic, NumberProxy)
"""Classes of numbers."""


def frames_of_body() -> list[types.FrameType]:
    """The frames of the traced function, of functions of the user's that it calls, directly or through one
    another, and of loops of this package between them, the innermost one first. Nothing if other code is
    between them.
    """
    frame: types.FrameType | None = sys._getframe(1)
    while frame is not None and is_ours(frame) and frame.f_code not in LOOPS:
        frame = frame.f_back
    found = []
    while frame is not None and not frame.f_code.co_flags & GENERATORS:
        found.append(frame)
        if frame.f_back is not None and runs_body(frame.f_back):
            return found
        frame = _caller(frame)
    return []


def _caller(frame: types.FrameType) -> types.FrameType | None:
    """The frame that has called a frame, if that is the body's, too; None if what is between is hidden."""
    caller = frame.f_back
    if frame.f_code in LOOPS:
        while caller is not None and is_ours(caller):
            caller = caller.f_back
        return caller
    while caller is not None and caller.f_code in PASSING:
        frame, caller = caller, caller.f_back
    if caller is None or (is_ours(caller) and caller.f_code in LOOPS):
        return caller
    return caller if not is_ours(caller) and calls_directly(caller, frame) else None


def frames_at_look(*, asks_equality: bool) -> list[types.FrameType]:
    """The frames of the body at a look of which Python's code decides how often it is made; else nothing.

    asks_equality: whether the result of a comparison for equality is looked at, as C code does that searches.
    """
    frames = frames_of_body()
    is_known = frames and (frames[0].f_code in LOOPS or _looks_once(frames[0], asks_equality))
    return frames if is_known else []


def places_of_ours() -> list[tuple[types.CodeType, int]]:
    """The places in functions of this package in front of the body's frames, the innermost one first. (Who
    kept the frames would be in one of them.)
    """
    frame: types.FrameType | None = sys._getframe(1)
    found = []
    while frame is not None and is_ours(frame) and frame.f_code not in LOOPS:
        found.append((frame.f_code, frame.f_lasti))
        frame = frame.f_back
    return found


def _looks_once(frame: types.FrameType, asks_equality: bool) -> bool:
    """Whether the instruction that a frame is at looks at one value at most."""
    steps = steps_to(frame.f_code, frame.f_lasti)
    instruction = steps[-1].instruction
    if instruction.opname.startswith(("POP_JUMP", "JUMP_IF")) or instruction.opname in TRUTHS:
        return True
    if instruction.opname == "COMPARE_OP":  # from Python 3.13 on, which asks for the truth of a comparison
        return "bool" in instruction.argrepr and (not asks_equality or _compares_one(frame, steps))
    low = _below_called(steps)
    if low is None:
        return False
    loads = _loads(steps, low, low + 2)
    if not loads:  # a method of what an expression computes
        names = [i.argval for i, _before, after in steps if after == low + 2 and i.opname in ATTRIBUTES]
        return names[-1:] == [code.co_name for code, _offset in places_of_ours()[-1:]]
    called = _held(frame, loads)
    if called is float or called is int or called is bool:
        return True
    if isinstance(called, functools.partial):  # ours of `min`, say
        called = next(iter(called.args), called.func)
    if called is min or called is max:
        return instruction.opname == "CALL" and instruction.arg == 2
    return isinstance(called, types.FunctionType) and str(called.__module__).partition(".")[0] == "tracejit"


def _compares_one(frame: types.FrameType, steps: Sequence[StackStep]) -> bool:
    """Whether an operand of the comparison that a frame is at is no container: a constant, or a variable."""
    depth = steps[-1].before
    if depth is None:
        return False
    for low in (depth - 2, depth - 1):
        loads = _loads(steps[:-1], low, low + 1)
        value = _held(frame, loads) if loads else None
        if isinstance(value, ONE) or isinstance(getattr(value, "_storage", None), Storage):
            return True
    return False


def calls_directly(caller: types.FrameType, callee: types.FrameType) -> bool:
    """Whether the instruction that `caller` is at has called the function of `callee`."""
    loads = called_at(caller.f_code, caller.f_lasti)
    if not loads:
        return False
    value = _held(caller, loads)
    while isinstance(value, functools.partial):
        value = value.func
    if isinstance(value, types.MethodType | classmethod | staticmethod):
        value = value.__func__
    elif not isinstance(value, types.FunctionType | type):
        value = inherited(type(value), "__call__")
    return isinstance(value, types.FunctionType) and value.__code__ is callee.f_code


def _held(frame: types.FrameType, loads: Sequence[dis.Instruction]) -> Any:
    """The value that loads of a constant, or of a variable and attributes, find in a frame."""
    first, *attributes = loads
    if first.opname in CONSTANTS:
        return first.argval
    known = frame.f_locals, frame.f_globals, frame.f_builtins
    value = next((held[first.argval] for held in known if first.argval in held), GONE)
    for load in attributes:
        value = _attribute(value, load.argval)
    return value


def _attribute(holder: Any, name: str) -> Any:
    """An attribute that no code of the user's computes: of a module, of an object, or of its class."""
    if isinstance(holder, types.ModuleType):
        return vars(holder).get(name, GONE)
    found = GONE if isinstance(holder, type) else Attributes(holder).get(name)
    return inherited(holder if isinstance(holder, type) else type(holder), name) if found is GONE else found


@functools.lru_cache(maxsize=256)
def called_at(code: types.CodeType, offset: int) -> tuple[dis.Instruction, ...]:
    """The instructions by which a call finds what it calls, in a variable or an attribute of it; none for
    other instructions.

    >>> def f(model, x): return model.layer.forward(x)
    >>> calls = [i.offset for i in dis.get_instructions(f) if i.opname == "CALL"]
    >>> [load.argval for load in called_at(f.__code__, calls[0])]
    ['model', 'layer', 'forward']
    """
    steps = steps_to(code, offset)
    low = _below_called(steps)
    return () if low is None else tuple(_loads(steps, low, low + 2))


def _below_called(steps: Sequence[StackStep]) -> int | None:
    """The depth of the stack below what the last instruction calls, and its object or a null; None if it
    calls nothing.
    """
    call, before, _after = steps[-1]
    if call.opname not in CALLS or call.arg is None:
        return None
    if len(steps) > 1 and steps[-2].instruction.opname == "PRECALL":
        before = steps[-2].before
    given = 1 + (call.arg & 1) if call.opname == "CALL_FUNCTION_EX" else call.arg + (call.opname == "CALL_KW")
    return None if before is None else before - given - 2


def _loads(steps: Sequence[StackStep], low: int, high: int) -> list[dis.Instruction]:
    """The last instructions that put a constant, a variable, or an attribute of it, on the stack between two
    depths; none if something else is there.
    """
    start = max((k for k, step in enumerate(steps) if step.before == low), default=len(steps))
    found: list[dis.Instruction] = []
    for instruction, before, _after in steps[start:]:
        if before is None or (found and before >= high):
            break
        if instruction.opname == "PUSH_NULL":
            continue
        if instruction.opname not in (ATTRIBUTES if found else NAMES | CONSTANTS):
            return []
        found.append(instruction)
    return found


@functools.lru_cache(maxsize=256)
def pending(code: types.CodeType, offset: int) -> tuple[int, int] | None:
    """Temporaries on the stack below the operands of an instruction: how many are results of operators on
    what was loaded, and how many are others (a call may return anything). Iterators of the ``for`` statements
    around it, and what was only loaded, do not count. None where nothing is known, after a branch for
    instance.

    >>> def f(x, y): return -x, f(x), y, bool(x)
    >>> calls = [i.offset for i in dis.get_instructions(f) if i.opname == "CALL"]
    >>> pending(f.__code__, calls[-1])
    (1, 1)
    >>> def f(x, y): return (x if y else 1.0) * float(x)
    >>> calls = [i.offset for i in dis.get_instructions(f) if i.opname == "CALL"]
    >>> pending(f.__code__, calls[-1]) is None
    True
    """
    low = len(enclosing(code, offset))
    steps = steps_to(code, offset)
    kinds = _kinds(_statement(steps, low), low)
    if kinds is None:
        return None
    call, (instruction, depth, _after) = _below_called(steps), steps[-1]
    taken = 2 if instruction.opname == "COMPARE_OP" else 1
    left = kinds[: (call if call is not None else (depth or 0) - taken) - low]
    return left.count(COMPUTED), left.count(ANY)


def _statement(steps: Sequence[StackStep], low: int) -> Sequence[StackStep]:
    """The steps since the stack was empty for the last time, without a branch; none if there is one."""
    for k in range(len(steps) - 1, -1, -1):
        instruction, before, _after = steps[k]
        if before == low:
            return steps[k:]
        is_jump = instruction.opcode in dis.hasjrel or instruction.opcode in dis.hasjabs
        if before is None or instruction.is_jump_target or (is_jump and k < len(steps) - 1):
            break
    return ()


def _kinds(steps: Sequence[StackStep], low: int) -> list[str] | None:
    """The kinds of what is on the stack before the last of these steps, from a depth on."""
    if not steps:
        return None
    found: list[str] = []
    for instruction, before, after in steps[:-1]:
        if before is None or after is None:
            return None
        name, depth = instruction.opname, after - low
        if name.startswith(("LOAD_FAST", "LOAD_DEREF", "LOAD_GLOBAL", "PUSH_NULL")) or name in CONSTANTS:
            found += [LOADED] * (depth - len(found))
        elif name in ATTRIBUTES:
            found += [found[-1]] * (depth - len(found))
        elif name.startswith(("BINARY", "UNARY", "COMPARE")):
            operands = [found.pop() for _ in range(len(found) - depth + 1)]
            found.append(ANY if ANY in operands else COMPUTED)
        elif name == "COPY":
            found.append(found[-(instruction.arg or 1)])
        elif name not in ("SWAP", "PRECALL", "KW_NAMES", "RESUME", "NOP"):
            del found[max(depth - 1, 0) :]
            found += [ANY] * (depth - len(found))
    return found
