"""Loops in a code object: ``for`` statements, and variables that statements compute from their old values.

A ``for`` is identified by an offset in the code.

>>> def f(x):
...     n = 0
...     for row in x:
...         n = n + 1
>>> updated_variables(f.__code__), iterates(f.__code__)
(frozenset({'n'}), True)
"""

from __future__ import annotations

import functools
import types

from tracejit.frontend.python.bytecode import instructions, is_generator, operations, variables_of

_STATEMENT = 16  # instructions before the end of a statement ``n = n + 1``
_COLLECTING = frozenset({"LIST_APPEND", "SET_ADD", "MAP_ADD"})


def iterates(code: types.CodeType) -> bool:
    """Whether `code` contains a ``for`` or a comprehension."""
    return any(i.opname == "FOR_ITER" for i in instructions(code))


def enclosing(code: types.CodeType, offset: int) -> list[int]:
    """Return the offsets of the ``for`` statements and comprehensions that enclose an instruction."""
    ends = ((i.offset, i.argval) for i in instructions(code) if i.opname == "FOR_ITER")
    return [begin for begin, end in ends if begin <= offset < end]


def collects(code: types.CodeType, begin: int) -> bool:
    """Return whether a ``for`` belongs to a comprehension, whose partial result no other code can access."""
    end = next(i.argval for i in instructions(code) if i.offset == begin)
    return any(begin < i.offset < end and i.opname in _COLLECTING for i in instructions(code))


@functools.lru_cache(maxsize=256)
def for_after(code: types.CodeType, offset: int) -> int | None:
    """Return the offset of the ``for`` that iterates over the result of the call at an instruction, if no
    other code can reach that ``for``.
    """
    following = [i for i in operations(code) if i.offset > offset][:2]  # a call's offset may be in its caches
    if [i.opname for i in following] != ["GET_ITER", "FOR_ITER"] or following[0].is_jump_target:
        return None
    return following[1].offset


@functools.lru_cache(maxsize=256)
def for_at(code: types.CodeType, offset: int) -> int | None:
    """Return the offset of the ``for`` whose iterator an instruction creates, if nothing else uses it."""
    if is_generator(code):
        return None
    code_operations = operations(code)
    here = next((k for k, i in enumerate(code_operations) if i.offset == offset), None)
    if here is None or [i.opname for i in code_operations[here : here + 2]] != ["GET_ITER", "FOR_ITER"]:
        return None
    return code_operations[here + 1].offset


@functools.lru_cache(maxsize=256)
def updated_variables(code: types.CodeType) -> frozenset[str]:
    """Return the local variables that a one-line statement computes from their old values: ``t = t *
    0.5``.
    """
    updated: set[str] = set()
    code_operations = operations(code)
    for position, instruction in enumerate(code_operations):
        if position == 0 or code_operations[position - 1].opname != "BINARY_OP":
            continue
        stored = variables_of(instruction)[:1] if instruction.opname.startswith("STORE_FAST") else ()
        before = code_operations[max(0, position - _STATEMENT) : position]
        line = instruction.positions.lineno if instruction.positions else None
        loads = [i for i in before if i.opname.startswith("LOAD_FAST")]
        loads = [i for i in loads if i.positions is not None and i.positions.lineno == line]
        updated |= {name for name in stored if any(name in variables_of(i) for i in loads)}
    return frozenset(updated - set(code.co_cellvars))


@functools.lru_cache(maxsize=256)
def updated_attributes(code: types.CodeType) -> frozenset[str]:
    """Return the attributes that a statement computes from their old values: ``self.t += 1``."""
    lines: dict[int | None, set[str]] = {}
    updated: set[str] = set()
    for i in operations(code):
        line = i.positions.lineno if i.positions else None
        if i.opname == "LOAD_ATTR":
            lines.setdefault(line, set()).add(i.argval)
        elif i.opname == "STORE_ATTR" and i.argval in lines.get(line, ()):
            updated.add(i.argval)
    return frozenset(updated)
