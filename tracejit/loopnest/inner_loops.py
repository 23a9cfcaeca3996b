"""States that iterations stay in become inner loops.

The iterations of a native loop over looks choose a branch by the state in which they start. A nested loop of
the body is a state from which iterations return to it:

    while c:                                   while c:
        if s == 0: ...; s = 1                      if s == 0: ...; s = 1
        else:                                      else:
            ...                                        while True:
            s = 1 if d else 0                              ...
                                                           s = 1 if d else 0
                                                           if s != 1 or not c: break

`with_inner_loops` marks such branches (`Choose.repeated`). The compiler finds the inner loop's invariants and
keeps them in registers, and no iteration in it compares the state. What follows the choice in an iteration is
repeated in all branches.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tracejit.loopnest.statements import (
    Assign,
    Choose,
    LiteralNumber,
    Repeat,
    SlotNumber,
    StatementBlock,
)
from tracejit.loopnest.visits import blocks_in

MAX_REPEATED = 24
"""The largest number of statements that branches repeat."""


def with_inner_loops(
    block: StatementBlock, constants: Iterable[SlotNumber | LiteralNumber]
) -> StatementBlock:
    """Return a block of a program with assignments in whose outermost loops such branches are marked."""
    literals = {each.result: each.value for each in constants if isinstance(each, LiteralNumber)}
    statements = [
        _with_inner_loops(each, literals) if isinstance(each, Repeat) and each.until >= 0 else each
        for each in block.statements
    ]
    return block._replace(statements=tuple(statements))


def _with_inner_loops(loop: Repeat, literals: dict[int, int]) -> Repeat:
    choice, *rest = loop.block.statements or (None,)
    carried = {register.variable for register in loop.registers if register.value >= 0}
    if not isinstance(choice, Choose) or choice.is_bool or choice.which not in carried:
        return loop
    repeated = tuple(
        number
        for number, branch in enumerate(choice.branches)
        if _may_stay(branch, choice.which, number, literals)
    )
    if not repeated or len(rest) * len(choice.branches) > MAX_REPEATED:
        return loop
    branches = tuple(StatementBlock((*each.statements, *rest), ()) for each in choice.branches)
    choice = choice._replace(branches=branches, repeated=repeated)
    return loop._replace(block=StatementBlock((choice,), ()))


def _may_stay(branch: StatementBlock, state: int, number: int, literals: dict[int, int]) -> bool:
    """Whether a branch, without nested loops, assigns its own number to the state."""
    found = False
    stack: list[Any] = [*branch.statements]
    while stack:
        statement = stack.pop()
        if isinstance(statement, Repeat):
            return False
        if isinstance(statement, Assign):
            assigned = dict(zip(statement.variables, statement.values, strict=True))
            found |= state in assigned and literals.get(assigned[state]) == number
        for block in blocks_in(statement):
            stack += block.statements
    return found
