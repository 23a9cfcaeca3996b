"""Live variables: the local variables that the rest of a function may read.

>>> def f(x, y):
...     t = x + y
...     return g(t) + x
>>> call = next(i.offset for i in operations(f.__code__) if i.opname == "CALL")
>>> sorted(live_after(f.__code__, call))
['x']
"""

from __future__ import annotations

import dis
import functools
import types
from collections.abc import Iterator

from tracejit.frontend.python.bytecode import is_generator, is_jump, operations, variables_of

_ALWAYS = frozenset({"JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT", "JUMP_ABSOLUTE"})
_ENDS = frozenset({"RETURN_VALUE", "RETURN_CONST", "RAISE_VARARGS", "RERAISE"})
_INSPECTING = frozenset(
    {"locals", "vars", "dir", "eval", "exec", "super", "_getframe", "currentframe", "stack"}
)


def live_after(code: types.CodeType, offset: int) -> frozenset[str] | None:
    """Return the local variables that a function may read after the instruction at `offset`; None for all of
    them.
    """
    live = _live_variables(code)
    if live is None:
        return None
    position = sum(1 for i in operations(code) if i.offset <= offset) - 1  # `offset` may be in caches
    return live[position]


@functools.lru_cache(maxsize=256)
def _live_variables(code: types.CodeType) -> tuple[frozenset[str], ...] | None:
    """Return the variables that are live after each instruction; None if this cannot be told: handlers of
    exceptions continue anywhere, and `locals` reads all variables, `super` the first one.
    """
    if code.co_exceptiontable or is_generator(code) or not _INSPECTING.isdisjoint(code.co_names):
        return None
    code_operations = operations(code)
    positions = {i.offset: position for position, i in enumerate(code_operations)}
    accesses = [list(_accesses(i)) for i in code_operations]
    after: list[frozenset[str]] = [frozenset()] * len(code_operations)
    before = list(after)
    is_changing = True
    while is_changing:
        is_changing = False
        for position in range(len(code_operations) - 1, -1, -1):
            successors = _successors(code_operations[position], position, positions)
            live = frozenset[str]().union(*(before[k] for k in successors))
            after[position] = live
            for name, is_read in reversed(accesses[position]):
                live = live | {name} if is_read else live - {name}
            is_changing = is_changing or live != before[position]
            before[position] = live
    return tuple(after)


def _successors(instruction: dis.Instruction, position: int, positions: dict[int, int]) -> Iterator[int]:
    """The positions of the instructions that may follow one."""
    if is_jump(instruction):
        yield positions[_target(instruction, positions)]
    if (
        instruction.opname not in _ENDS
        and instruction.opname not in _ALWAYS
        and position + 1 < len(positions)
    ):
        yield position + 1


def _target(instruction: dis.Instruction, positions: dict[int, int]) -> int:
    """The offset of the operation that a jump leads to: the first one from its target on."""
    target: int = instruction.argval
    return target if target in positions else min(offset for offset in positions if offset >= target)


def _accesses(instruction: dis.Instruction) -> Iterator[tuple[str, bool]]:
    """The variables that an instruction accesses, in order, and whether it reads them. Instructions that
    delete or restore variables count as reading them.
    """
    name = instruction.opname
    if "_FAST" not in name:
        return
    variables = variables_of(instruction)
    if name == "STORE_FAST_LOAD_FAST":
        yield from zip(variables, (False, True), strict=True)
        return
    is_store = name in ("STORE_FAST", "STORE_FAST_STORE_FAST")
    for variable in variables:
        yield variable, not is_store
