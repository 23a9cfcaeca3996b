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
import itertools
import types
from collections.abc import Mapping, Sequence
from typing import Any

from tracejit.frontend.python.bytecode import instructions, is_generator, operations, variables_of

_STATEMENT = 16  # instructions before the end of a statement ``n = n + 1``
_NAMED = frozenset({"LOAD_GLOBAL", "LOAD_NAME", "LOAD_ATTR", "LOAD_METHOD", "LOAD_DEREF"})
_OF_NUMBERS = frozenset({"abs", "divmod", "float", "int", "max", "min", "pow", "round"})
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
    """Return the local variables that statements compute from their old values: ``t = t * 0.5``, also through
    other variables: ``m = (lo + hi) // 2; lo = m + 1``.
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
    updated |= _updated_through_others(code_operations)
    return frozenset(updated - set(code.co_cellvars))


def _updated_through_others(code_operations: Sequence[Any]) -> set[str]:
    """Return the variables on a cycle of assignments that compute with operators. Lines that call functions,
    except for those that compute numbers, are left out.
    """
    operands: dict[str, set[str]] = {}  # of each variable
    computed: set[tuple[str, str]] = set()  # variables, with an operand of an operator
    for _, line in itertools.groupby(code_operations, lambda i: i.positions and i.positions.lineno):
        group = list(line)
        names = {i.argval for i in group if i.opname in _NAMED}
        if not names <= _OF_NUMBERS:
            continue
        loaded = {name for i in group for name in _accessed(i, "LOAD_FAST")}
        for name in {name for i in group for name in _accessed(i, "STORE_FAST")}:
            operands.setdefault(name, set()).update(loaded)
            if any(i.opname == "BINARY_OP" for i in group):
                computed.update((name, operand) for operand in loaded)
    reached = {name: _reachable(name, operands) for name in operands}
    return {
        name
        for name, others in reached.items()
        if name in others
        and any(a in others and b in others and name in reached[b] for a, b in computed if b in reached)
    }


def _accessed(instruction: Any, access: str) -> list[str]:
    """Return the variables that an instruction loads or stores, maybe one of several that are fused."""
    accesses = [part for part in ("LOAD_FAST", "STORE_FAST") if part in instruction.opname]
    if access not in accesses:
        return []
    variables = variables_of(instruction)
    if len(accesses) == 1:
        return list(variables)
    return [variables[instruction.opname.startswith("STORE_FAST") == (access == "LOAD_FAST")]]


def _reachable(name: str, operands: Mapping[str, set[str]]) -> set[str]:
    """Return the variables from which a variable is computed, directly or through others."""
    found: set[str] = set()
    waiting = [name]
    while waiting:
        new = operands.get(waiting.pop(), set()) - found
        found |= new
        waiting += new
    return found


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
