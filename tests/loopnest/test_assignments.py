"""Random programs compute the same with results of branches and with assignments."""

from __future__ import annotations

import pytest

from tests.fuzz.count import COUNT
from tests.loopnest.statement_programs import random_block, stored
from tracejit.loopnest.assignments import assigned_in_branches, line_count, with_assignments
from tracejit.loopnest.statements import Choose, Register, Repeat, StatementBlock
from tracejit.loopnest.visits import blocks_in


@pytest.mark.parametrize("batch", range(COUNT // 4))
def test_random_programs(batch: int) -> None:
    for seed in range(20 * batch, 20 * batch + 20):
        block, _ = random_block(seed)
        assigned = with_assignments(block)
        assert results_in(assigned) == 0, seed
        assert stored(assigned) == stored(block), seed


def results_in(block: StatementBlock) -> int:
    """The number of results and values in a block."""
    total = len(block.values)
    for statement in block.statements:
        total += len(statement.results) if isinstance(statement, Choose) else 0
        total += sum(map(results_in, blocks_in(statement)))
    return total


def chain(depth: int, variables: tuple[int, ...], changed: int) -> StatementBlock:
    """Nested branches that change one of the variables at the innermost level."""
    if depth == 0:
        values = tuple(changed if variable == variables[0] else variable for variable in variables)
        return StatementBlock((), values)
    results = tuple(1000 * depth + variable for variable in variables)
    keep = StatementBlock((), variables)
    choice = Choose(results, 0, True, (keep, chain(depth - 1, variables, changed)))
    return StatementBlock((choice,), results)


def test_nested_branches_assign_what_they_change_only() -> None:
    variables = tuple(range(10, 30))
    registers = tuple(Register(v, "int64", 1, value=k) for k, v in enumerate(variables))
    block = with_assignments(StatementBlock((Repeat(2, 3, registers, chain(8, variables, 1), -1),), ()))
    assert assigned_in_branches(block) == {10}
    assert line_count(block) < 40
