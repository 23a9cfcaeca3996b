"""The frames of a body at a look: which functions run, and what is known of their temporaries.

A look may be made by a function that the body calls. C code that calls functions, as `sorted` and `map` do,
has no frame, and a state that cannot be read. So the callee is looked up where the caller's code names it:
``converged(x)``, ``self.check(x)``. What is called in another way (an operator, what an expression returns)
is not known to be called directly.

Temporaries of an expression (``return -x.sum(), bool(done)``) are on a frame's stack, which cannot be read
either. Where the code from the beginning of the statement on has no branches, they are what it computes.
"""

from __future__ import annotations

import dis
import functools
import sys
import types
from typing import Any

from tracejit.frontend.python.bytecode import GENERATORS, enclosing, stack_steps
from tracejit.frontend.python.content import GONE, Attributes, inherited
from tracejit.frontend.recording.location import is_ours, runs_body

LOOPS: set[types.CodeType] = set()
"""Functions of this package that loop over the user's functions: their variables count as the body's."""

PASSING: set[types.CodeType] = set()
"""Functions of this package that do nothing but call a function of the user's."""

NAMES = frozenset({"LOAD_FAST", "LOAD_FAST_CHECK", "LOAD_FAST_BORROW", "LOAD_DEREF", "LOAD_GLOBAL"})
ATTRIBUTES = frozenset({"LOAD_ATTR", "LOAD_METHOD"})


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


def calls_directly(caller: types.FrameType, callee: types.FrameType) -> bool:
    """Whether the instruction that `caller` is at has called the function of `callee`."""
    path = called_at(caller.f_code, caller.f_lasti)
    if path is None:
        return False
    name, *attributes = path
    value = caller.f_locals.get(name, caller.f_globals.get(name, GONE))
    for attribute in attributes:
        value = _attribute(value, attribute)
    while isinstance(value, functools.partial):
        value = value.func
    if isinstance(value, types.MethodType | classmethod | staticmethod):
        value = value.__func__
    elif not isinstance(value, types.FunctionType | type):
        value = inherited(type(value), "__call__")
    return isinstance(value, types.FunctionType) and value.__code__ is callee.f_code


def _attribute(holder: Any, name: str) -> Any:
    """An attribute that no code of the user's computes: of a module, of an object, or of its class."""
    if isinstance(holder, types.ModuleType):
        return vars(holder).get(name, GONE)
    found = GONE if isinstance(holder, type) else Attributes(holder).get(name)
    return inherited(holder if isinstance(holder, type) else type(holder), name) if found is GONE else found


@functools.lru_cache(maxsize=256)
def called_at(code: types.CodeType, offset: int) -> tuple[str, ...] | None:
    """The variable, and the attributes, by which a call finds what it calls; None for other instructions.

    >>> def f(model, x): return model.layer.forward(x)
    >>> import dis
    >>> [found for i in dis.get_instructions(f) if (found := called_at(f.__code__, i.offset))][-1]
    ('model', 'layer', 'forward')
    """
    steps = [step for step in stack_steps(code) if step.instruction.offset <= offset]
    call = steps[-1].instruction
    if call.opname not in ("CALL", "CALL_KW", "CALL_FUNCTION_EX") or call.arg is None:
        return None
    if len(steps) > 1 and steps[-2].instruction.opname == "PRECALL":
        steps.pop()
    depth = steps.pop().before
    if depth is None:
        return None
    given = 1 + (call.arg & 1) if call.opname == "CALL_FUNCTION_EX" else call.arg + (call.opname == "CALL_KW")
    low = depth - given - 2  # below what is called, and its object or a null
    start = max((k for k, step in enumerate(steps) if step.before == low), default=len(steps))
    found: list[str] = []
    for instruction, before, _after in steps[start:]:
        if before is None or before >= low + 2:  # an argument
            break
        if instruction.opname == "PUSH_NULL":
            continue
        if instruction.opname not in (ATTRIBUTES if found else NAMES):
            return None
        found.append(instruction.argval)
    return tuple(found) or None


@functools.lru_cache(maxsize=256)
def is_straight(code: types.CodeType, offset: int) -> bool:
    """Whether all that is on the stack at an instruction, but the iterators of the ``for`` statements around
    it, was computed without a branch since.

    >>> def f(x): return -x, (x if x else 0), bool(x)
    >>> calls = [i.offset for i in dis.get_instructions(f) if i.opname == "CALL"]
    >>> is_straight(f.__code__, calls[-1])
    False
    """
    low = len(enclosing(code, offset))
    for instruction, before, _after in reversed(stack_steps(code)):
        if instruction.offset > offset:
            continue
        if before is not None and before <= low:
            return True
        is_jump = instruction.opcode in dis.hasjrel or instruction.opcode in dis.hasjabs
        if before is None or instruction.is_jump_target or (is_jump and instruction.offset < offset):
            return False
    return False
