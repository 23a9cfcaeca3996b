"""States that iterations stay in, and conditions that remain true, become inner loops.

The iterations of a native loop over looks choose a branch by the state in which they start. A nested loop of
the body is a state from which iterations return to it:

    while c:                                   while c:
        if s == 0: ...; s = 1                      if s == 0: ...; s = 1
        else:                                      else:
            ...                                        while True:
            s = 1 if d else 0                              ...
                                                           s = 1 if d else 0
                                                           if s != 1 or not c: break

The end of a nested loop whose iterations are all in one state is a condition:

    while c:                                   while c:
        if j < n: ...; j += 1                      if j < n:
        else: ...; i += 1; j = 0                       while True:
                                                           ...; j += 1
                                                           if not (j < n) or not c: break
                                                   else: ...; i += 1; j = 0

`with_inner_loops` marks such branches (`Choose.repeated`). The compiler finds the inner loop's invariants and
keeps them in registers, and no iteration in it compares the state. What follows the choice in an iteration is
repeated in all branches; what precedes a condition is repeated at the end of its branch (`Choose.again`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tracejit.loopnest.assignments import line_count
from tracejit.loopnest.statements import (
    ApplyFunction,
    Assign,
    Choose,
    LiteralNumber,
    LoadElement,
    Repeat,
    SlotNumber,
    StatementBlock,
)
from tracejit.loopnest.visits import blocks_in, reads

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
    statements = loop.block.statements
    at = next((i for i, each in enumerate(statements) if isinstance(each, Choose)), len(statements))
    before, rest = statements[:at], statements[at + 1 :]
    if at == len(statements):
        return loop
    choice: Choose = statements[at]
    carried = {register.variable for register in loop.registers if register.value >= 0}
    if not before and not choice.is_bool and choice.which in carried:
        repeated = tuple(
            number
            for number, branch in enumerate(choice.branches)
            if _may_stay(branch, choice.which, number, literals)
        )
    else:
        repeated = _repeated_conditions(choice, before, loop)
    if not repeated or len(rest) * len(choice.branches) + len(before) > MAX_REPEATED:
        return loop
    branches = tuple(StatementBlock((*each.statements, *rest), ()) for each in choice.branches)
    choice = choice._replace(branches=branches, repeated=repeated, again=before)
    return loop._replace(block=StatementBlock((*before, choice), ()))


def _repeated_conditions(choice: Choose, before: tuple[Any, ...], loop: Repeat) -> tuple[int, ...]:
    """Return the branch of a condition that becomes an inner loop: the shorter one, as an outer loop does
    more than an inner one. The statements `before` compute the condition from loop-carried scalars only.
    """
    growing = {loop.iteration, *(each.variable for each in loop.registers if each.value < 0)}
    computed = {each.result for each in before if isinstance(each, ApplyFunction | LoadElement)}
    if not choice.is_bool or choice.which not in computed or len(computed) < len(before):
        return ()
    if any(not growing.isdisjoint(reads(each)) for each in before):
        return ()
    sizes = [line_count(branch) for branch in choice.branches]
    shorter = int(sizes[1] <= sizes[0])
    has_loops = _has_loop(choice.branches[shorter])
    return () if has_loops or sizes[shorter] <= 1 else (shorter,)


def _has_loop(block: StatementBlock) -> bool:
    return any(isinstance(each, Repeat) or any(map(_has_loop, blocks_in(each))) for each in block.statements)


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
