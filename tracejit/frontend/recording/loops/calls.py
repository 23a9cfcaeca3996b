"""Calls between functions of the user's: whether a frame was called by the code of the one below it.

C code that calls functions, as `sorted` and `map` do, has no frame, and a state that nobody sees. So the
callee is looked up where the caller's code names it: ``converged(x)``, ``self.check(x)``. What is called in
another way (an operator, what an expression returns) is not known to be called directly.
"""

from __future__ import annotations

import functools
import types
from typing import Any

from tracejit.frontend.python.bytecode import stack_steps
from tracejit.frontend.python.content import GONE, Attributes, inherited

NAMES = frozenset({"LOAD_FAST", "LOAD_FAST_CHECK", "LOAD_FAST_BORROW", "LOAD_DEREF", "LOAD_GLOBAL"})
ATTRIBUTES = frozenset({"LOAD_ATTR", "LOAD_METHOD"})


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
    if call.opname not in ("CALL", "CALL_KW") or call.arg is None:
        return None
    if len(steps) > 1 and steps[-2].instruction.opname == "PRECALL":
        steps.pop()
    depth = steps.pop().before
    if depth is None:
        return None
    low = depth - call.arg - 2 - (call.opname == "CALL_KW")  # below what is called, and its object or a null
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
