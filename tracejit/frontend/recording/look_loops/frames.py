"""The frames of a body at a look: which functions are running, and what is known of their temporaries.

A function that the body calls may look. C code that calls functions, such as `sorted` and `map`, has no
frame, and its state cannot be read. A caller is therefore known to call a function directly only if its code
names that function: ``converged(x)``, ``self.check(x)``. Functions called by other means (an operator, the
result of an expression) are not. For the same reason, the instruction that looks must be one that looks once:
a jump, ``float(x)``, ``max(x, y)``, but not ``x in values`` or ``any(values)``.

Temporaries of an expression (``return -x.sum(), bool(done)``) are on a frame's stack, which cannot be read
either. If the code has no branch since the start of the statement, it determines what they are: loaded
values, results of operators on loaded values, and results of calls. Results of calls must be arrays or
numbers of the call that are alive and in no variable: in ``rate(k) * float(x)``, ``rate`` may return a
literal from another branch.
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
"""Functions of this package that call the user's functions in a loop: their variables count as the body's."""

PASSING: set[types.CodeType] = set()
"""Functions of this package that only forward to a function of the user's."""

NAMES = frozenset({"LOAD_FAST", "LOAD_FAST_CHECK", "LOAD_FAST_BORROW", "LOAD_DEREF", "LOAD_GLOBAL"})
ATTRIBUTES = frozenset({"LOAD_ATTR", "LOAD_METHOD"})
CONSTANTS = frozenset({"LOAD_CONST", "LOAD_SMALL_INT"})
TRUTHS = frozenset({"UNARY_NOT", "TO_BOOL"})

CALLS = frozenset({"CALL", "CALL_KW", "CALL_FUNCTION_EX"})

LOADED, COMPUTED, ANY = "loaded", "computed", "any"
"""Kinds of temporaries: a variable or constant, the result of an operator on these, anything else."""

NUMBERS = (bool, int, float, np.generic, NumberProxy)
"""Classes of numbers."""


def frames_of_body() -> list[types.FrameType]:
    """Return the frames of the traced function, of the user's functions that it is calling, directly or
    through one another, and of loops of this package between them, innermost first. Empty if other code is
    between them.
    """
    frame: types.FrameType | None = sys._getframe(1)
    while frame is not None and is_ours(frame) and frame.f_code not in LOOPS:
        frame = frame.f_back
    frames = []
    while frame is not None and not frame.f_code.co_flags & GENERATORS:
        frames.append(frame)
        if frame.f_back is not None and runs_body(frame.f_back):
            return frames
        frame = _caller(frame)
    return []


def _caller(frame: types.FrameType) -> types.FrameType | None:
    """Return the frame that called a frame, if it belongs to the body; None if hidden code is between
    them.
    """
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
    """Return the frames of the body at a look, if bytecode (and not C code) decides how often it looks; else
    an empty list.

    asks_equality: whether the look is at the result of a comparison for equality, as in C code that searches.
    """
    frames = frames_of_body()
    is_known = frames and (frames[0].f_code in LOOPS or _looks_once(frames[0], asks_equality))
    return frames if is_known else []


def positions_of_ours() -> list[tuple[types.CodeType, int]]:
    """Return the positions in functions of this package that the body's innermost frame has called, innermost
    first. (The frames themselves would include the caller's own, a reference cycle.)
    """
    frame: types.FrameType | None = sys._getframe(1)
    positions = []
    while frame is not None and is_ours(frame) and frame.f_code not in LOOPS:
        positions.append((frame.f_code, frame.f_lasti))
        frame = frame.f_back
    return positions


def _looks_once(frame: types.FrameType, asks_equality: bool) -> bool:
    """Whether the current instruction of a frame looks at one value at most."""
    steps = steps_to(frame.f_code, frame.f_lasti)
    instruction = steps[-1].instruction
    if instruction.opname.startswith(("POP_JUMP", "JUMP_IF")) or instruction.opname in TRUTHS:
        return True
    if instruction.opname == "FOR_ITER":  # of a range (see `counters.CountedRange`)
        return True
    if instruction.opname == "COMPARE_OP":  # from Python 3.13 on, which asks for the truth of a comparison
        return "bool" in instruction.argrepr and (not asks_equality or _compares_one(frame, steps))
    low = _below_called(steps)
    if low is None:
        return False
    loads = _loads(steps, low, low + 2)
    if not loads:  # a method of what an expression computes
        names = [i.argval for i, _before, after in steps if after == low + 2 and i.opname in ATTRIBUTES]
        return names[-1:] == [code.co_name for code, _offset in positions_of_ours()[-1:]]
    called = _loaded_value(frame, loads)
    if called is float or called is int or called is bool:
        return True
    if isinstance(called, functools.partial):  # for example the project's replacement of `min`
        called = next(iter(called.args), called.func)
    if called is min or called is max:
        return instruction.opname == "CALL" and instruction.arg == 2
    return isinstance(called, types.FunctionType) and str(called.__module__).partition(".")[0] == "tracejit"


def _compares_one(frame: types.FrameType, steps: Sequence[StackStep]) -> bool:
    """Whether an operand of a frame's current comparison is known to be a number or an array, rather than a
    container whose items are compared.
    """
    depth = steps[-1].before
    if depth is None:
        return False
    for low in (depth - 2, depth - 1):
        loads = _loads(steps[:-1], low, low + 1)
        value = _loaded_value(frame, loads) if loads else None
        if isinstance(value, NUMBERS) or isinstance(getattr(value, "_storage", None), Storage):
            return True
    return False


def calls_directly(caller: types.FrameType, callee: types.FrameType) -> bool:
    """Whether the current instruction of `caller` has called the function of `callee`."""
    loads = called_at(caller.f_code, caller.f_lasti)
    if not loads:
        return False
    value = _loaded_value(caller, loads)
    while isinstance(value, functools.partial):
        value = value.func
    if isinstance(value, types.MethodType | classmethod | staticmethod):
        value = value.__func__
    elif not isinstance(value, types.FunctionType | type):
        value = inherited(type(value), "__call__")
    return isinstance(value, types.FunctionType) and value.__code__ is callee.f_code


def value_loaded_between(frame: types.FrameType, offset: int, low: int, high: int) -> Any:
    """Return the value that the code before an instruction has loaded on the stack between two depths, from a
    variable and its attributes; `GONE` if something else is there.
    """
    loads = _loads(steps_to(frame.f_code, offset)[:-1], low, high)
    return _loaded_value(frame, loads) if loads else GONE


def callee_at(frame: types.FrameType, offset: int) -> Any:
    """Return the callee of the call at an instruction, if it is in a variable or an attribute; else
    `GONE`.
    """
    loads = called_at(frame.f_code, offset)
    return _loaded_value(frame, loads) if loads else GONE


def _loaded_value(frame: types.FrameType, loads: Sequence[dis.Instruction]) -> Any:
    """Return the value that loads of a constant, or of a variable and its attributes, have in a frame."""
    first, *attributes = loads
    if first.opname in CONSTANTS:
        return first.argval
    scopes = frame.f_locals, frame.f_globals, frame.f_builtins
    value = next((scope[first.argval] for scope in scopes if first.argval in scope), GONE)
    for load in attributes:
        value = _attribute(value, load.argval)
    return value


def _attribute(holder: Any, name: str) -> Any:
    """Return an attribute of a module, of an object, or of its class, without running code of the user's."""
    if isinstance(holder, types.ModuleType):
        return vars(holder).get(name, GONE)
    value = GONE if isinstance(holder, type) else Attributes(holder).get(name)
    return inherited(holder if isinstance(holder, type) else type(holder), name) if value is GONE else value


@functools.lru_cache(maxsize=256)
def called_at(code: types.CodeType, offset: int) -> tuple[dis.Instruction, ...]:
    """Return the instructions with which a call loads its callee from a variable or an attribute of one;
    empty for other instructions.

    >>> def f(model, x): return model.layer.forward(x)
    >>> calls = [i.offset for i in dis.get_instructions(f) if i.opname == "CALL"]
    >>> [load.argval for load in called_at(f.__code__, calls[0])]
    ['model', 'layer', 'forward']
    """
    steps = steps_to(code, offset)
    low = _below_called(steps)
    return () if low is None else tuple(_loads(steps, low, low + 2))


def _below_called(steps: Sequence[StackStep]) -> int | None:
    """Return the depth of the stack below the callee of the last instruction and its object or null; None if
    the instruction is not a call.
    """
    call, before, _after = steps[-1]
    if call.opname not in CALLS or call.arg is None:
        return None
    if len(steps) > 1 and steps[-2].instruction.opname == "PRECALL":
        before = steps[-2].before
    count = 1 + (call.arg & 1) if call.opname == "CALL_FUNCTION_EX" else call.arg + (call.opname == "CALL_KW")
    return None if before is None else before - count - 2


def _loads(steps: Sequence[StackStep], low: int, high: int) -> list[dis.Instruction]:
    """Return the last instructions that pushed a constant, or a variable and its attributes, between two
    depths of the stack; empty if something else is there.
    """
    steps = [single for step in steps for single in _single_loads(step)]
    start = max((k for k, step in enumerate(steps) if step.before == low), default=len(steps))
    loads: list[dis.Instruction] = []
    for instruction, before, _after in steps[start:]:
        if before is None or (loads and before >= high):
            break
        if instruction.opname == "PUSH_NULL":
            continue
        if instruction.opname not in (ATTRIBUTES if loads else NAMES | CONSTANTS):
            return []
        loads.append(instruction)
    return loads


def _single_loads(step: StackStep) -> list[StackStep]:
    """Return a step as loads of one variable each: from Python 3.13 on, an instruction may load two."""
    instruction, before, after = step
    if instruction.opname != "LOAD_FAST_LOAD_FAST" or before is None:
        return [step]
    first, second = (instruction._replace(opname="LOAD_FAST", argval=name) for name in instruction.argval)
    return [StackStep(first, before, before + 1), StackStep(second, before + 1, after)]


@functools.lru_cache(maxsize=256)
def pending(code: types.CodeType, offset: int) -> tuple[int, int] | None:
    """Count the temporaries on the stack below the operands of an instruction: how many are results of
    operators on loaded values, and how many are others (a call may return anything). Iterators of the
    enclosing ``for`` statements and values that were only loaded do not count. None if the stack is unknown,
    for instance after a branch.

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
    callee, (instruction, depth, _after) = _below_called(steps), steps[-1]
    operand_count = 2 if instruction.opname == "COMPARE_OP" else 1
    below = kinds[: (callee if callee is not None else (depth or 0) - operand_count) - low]
    return below.count(COMPUTED), below.count(ANY)


def _statement(steps: Sequence[StackStep], low: int) -> Sequence[StackStep]:
    """Return the steps since the stack was last empty; none if there is a branch among them."""
    for k in range(len(steps) - 1, -1, -1):
        instruction, before, _after = steps[k]
        if before == low:
            return steps[k:]
        is_jump = instruction.opcode in dis.hasjrel or instruction.opcode in dis.hasjabs
        if before is None or instruction.is_jump_target or (is_jump and k < len(steps) - 1):
            break
    return ()


def _kinds(steps: Sequence[StackStep], low: int) -> list[str] | None:
    """Return the kinds of the stack's values before the last of these steps, from a depth upwards."""
    if not steps:
        return None
    kinds: list[str] = []
    for instruction, before, after in steps[:-1]:
        if before is None or after is None:
            return None
        name, depth = instruction.opname, after - low
        if name.startswith(("LOAD_FAST", "LOAD_DEREF", "LOAD_GLOBAL", "PUSH_NULL")) or name in CONSTANTS:
            kinds += [LOADED] * (depth - len(kinds))
        elif name in ATTRIBUTES:
            kinds += [kinds[-1]] * (depth - len(kinds))
        elif name.startswith(("BINARY", "UNARY", "COMPARE")):
            operands = [kinds.pop() for _ in range(len(kinds) - depth + 1)]
            kinds.append(ANY if ANY in operands else COMPUTED)
        elif name == "COPY":
            kinds.append(kinds[-(instruction.arg or 1)])
        elif name not in ("SWAP", "PRECALL", "KW_NAMES", "RESUME", "NOP"):
            del kinds[max(depth - 1, 0) :]
            kinds += [ANY] * (depth - len(kinds))
    return kinds
