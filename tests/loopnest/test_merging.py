"""Random programs compute the same when branches that end alike are merged."""

from __future__ import annotations

import pytest

from tests.fuzz.count import COUNT
from tests.loopnest.statement_programs import INPUTS, random_block, stored
from tracejit.loopnest.assignments import line_count, with_assignments
from tracejit.loopnest.merging import merged
from tracejit.loopnest.statements import (
    ApplyFunction,
    Choose,
    LiteralNumber,
    Offset,
    StatementBlock,
    StoreElement,
)

CONSTANTS = [LiteralNumber(scalar, "int64", value) for scalar, value in INPUTS.items()]


@pytest.mark.parametrize("batch", range(COUNT // 4))
def test_random_programs(batch: int) -> None:
    for seed in range(30 * batch, 30 * batch + 30):
        block, scalar_count = random_block(seed)
        smaller = merged(block, CONSTANTS, scalar_count)
        assert stored(smaller) == stored(block), seed
        assert stored(with_assignments(smaller)) == stored(block), seed


def test_some_random_programs_have_branches_that_end_alike() -> None:
    def is_smaller(seed: int) -> bool:
        block, scalar_count = random_block(seed)
        return line_count(merged(block, CONSTANTS, scalar_count)) < line_count(block)

    assert sum(map(is_smaller, range(300))) > 20


def tree(questions: int, first: int, value: int) -> tuple[StatementBlock, int]:
    """A decision tree: each of several branches changes a number, and what follows uses it."""
    if questions == 0:
        store = StoreElement(0, Offset(-1, ()), value, "int64")
        return StatementBlock((store, store, store), ()), first
    changed = ApplyFunction(first, "int64", "f", (value, questions % 3))
    after_true, count = tree(questions - 1, first + 1, changed.result)
    after_false, count = tree(questions - 1, count, value)
    if_true = StatementBlock((changed, *after_true.statements), ())
    return StatementBlock((Choose((), questions % 3, True, (after_false, if_true)),), ()), count


def test_a_decision_tree_becomes_a_sequence_of_branches() -> None:
    block, scalar_count = tree(8, 3, 0)
    assert line_count(block) > 2**8
    smaller = merged(block, CONSTANTS, scalar_count)
    assert line_count(smaller) < 8 * 8
    assert stored(smaller) == stored(block)


def test_numbers_of_different_dtypes_are_not_merged() -> None:
    root = Offset(-1, ())
    f = ApplyFunction(3, "float64", "f", (0, 1))
    branches = [StatementBlock((StoreElement(0, root, value, "x"),) * 5, ()) for value in (3, 2)]
    block = StatementBlock((f, Choose((), 0, True, tuple(branches))), ())
    assert merged(block, CONSTANTS, 4) == block
