"""Results of branches and of iterations as assignments where they are computed.

The lowering gives each branch its own results, and each iteration its values. Nested branches would copy all
of them at each level:

    if a:                                      if a:
        if b: t = x                                if b: s = x
        else: t = s                            (s keeps its value otherwise)
        u = t
    else: u = s
    s = u

`with_assignments` passes the variable that receives a result to the branches that compute it. At the end of a
branch, all assignments are one parallel `Assign`; a variable that keeps its value is not assigned. This is
the coalescing of copies of SSA destruction (Sreedhar et al. 1999), for structured programs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tracejit.loopnest.statements import Assign, Choose, Repeat, StatementBlock
from tracejit.loopnest.visits import blocks_in, reads, renamed


def with_assignments(block: StatementBlock) -> StatementBlock:
    """Return the block with an `Assign` for each result of a branch and each value of an iteration: all
    `results` and `values` are empty.
    """
    names: dict[int, int] = {}
    return renamed(StatementBlock(_assigned(block, [], names), ()), names)


def assigned_in_branches(block: StatementBlock) -> set[int]:
    """Return the variables that branches assign."""
    found: set[int] = set()

    def visit(statements: Sequence[Any], is_branch: bool) -> None:
        for statement in statements:
            if isinstance(statement, Assign) and is_branch:
                found.update(statement.variables)
            for nested in blocks_in(statement):
                visit(nested.statements, is_branch or isinstance(statement, Choose))

    visit(block.statements, False)
    return found


def line_count(block: StatementBlock) -> int:
    """Return the number of lines of source that a block becomes, approximately."""
    total = 0
    for statement in block.statements:
        total += len(statement.variables) if isinstance(statement, Assign) else 1
        total += sum(line_count(nested) + 1 for nested in blocks_in(statement))
    return total


def _assigned(
    block: StatementBlock, ends: Sequence[tuple[int, int]], names: dict[int, int]
) -> tuple[Any, ...]:
    """Return the statements of a block, followed by the assignments `ends`: pairs of a variable and a value.
    A result that becomes such a variable is registered in `names`.
    """
    remaining = [(variable, value) for variable, value in ends if variable != value]
    statements: list[Any] = []
    for position, statement in enumerate(block.statements):
        if isinstance(statement, Repeat):
            statements.append(_assigned_loop(statement, names))
        elif isinstance(statement, Choose):
            later = block.statements[position + 1 :]
            if later:
                chosen, remaining = _received(statement.results, later, remaining)
                names.update(chosen)
                results = [(chosen.get(result, result), result) for result in statement.results]
            else:  # the branches assign everything
                results, remaining = remaining, []
            statements.append(_assigned_branches(statement, results, names))
        else:
            statements.append(statement)
    if remaining:
        variables, values = zip(*remaining, strict=True)
        statements.append(Assign(variables, values))
    return tuple(statements)


def _received(
    results: Sequence[int], later: Sequence[Any], ends: Sequence[tuple[int, int]]
) -> tuple[dict[int, int], list[tuple[int, int]]]:
    """Return the variable that receives a result at once, for those that can, and the other assignments.

    A variable cannot if its old value is needed afterwards: by a statement in `later` or another assignment.
    """
    needed = {scalar for statement in later for scalar in reads(statement)}
    needed.update(value for _, value in ends)
    chosen: dict[int, int] = {}
    others: list[tuple[int, int]] = []
    for variable, value in ends:
        if value in results and value not in chosen and variable not in needed:
            chosen[value] = variable
        else:
            others.append((variable, value))
    return chosen, others


def _assigned_branches(choice: Choose, ends: Sequence[tuple[int, int]], names: dict[int, int]) -> Choose:
    """Return branches that assign `ends`: pairs of a variable, and a result or another value."""
    branches = []
    for branch in choice.branches:
        values = dict(zip(choice.results, branch.values, strict=True))
        pairs = [(variable, values.get(value, value)) for variable, value in ends]
        branches.append(StatementBlock(_assigned(branch, pairs, names), ()))
    return choice._replace(results=(), branches=tuple(branches))


def _assigned_loop(loop: Repeat, names: dict[int, int]) -> Repeat:
    """Return a loop whose iterations assign the loop-carried scalars."""
    carried = [register for register in loop.registers if register.value >= 0]
    ends = [(register.variable, loop.block.values[register.value]) for register in carried]
    return loop._replace(block=StatementBlock(_assigned(loop.block, ends, names), ()))
