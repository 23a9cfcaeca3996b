"""Short branches of serial kernels as selects; random kernels, in `test_serial`, check their bits."""

from __future__ import annotations

import pytest

from tracejit.loopnest.selects import MAX_COMPUTED, with_selects
from tracejit.loopnest.statements import (
    ApplyFunction,
    Choose,
    LiteralNumber,
    LoadElement,
    Offset,
    SlotNumber,
    StatementBlock,
)

CONSTANTS = (SlotNumber(0, "int64", 0), SlotNumber(1, "bool", 1), LiteralNumber(2, "int64", 1))


def shift(result, function="bitwise_right_shift"):
    return ApplyFunction(result, "int64", function, (0, 2))


def choice(if_true, if_false, values=(3, 4), *, is_bool=True):
    """A choice by scalar 1 with one result, scalar 9; `values`: the results if true and if false."""
    branches = (StatementBlock(tuple(if_false), values[1:]), StatementBlock(tuple(if_true), values[:1]))
    return Choose((9,), 1, is_bool, branches)


def converted(*statements):
    return with_selects(StatementBlock(statements, (9,)), CONSTANTS).statements


def test_branches_that_compute_are_selected():
    inner = choice([shift(3)], [shift(4, "add")])
    assert converted(inner) == (
        shift(4, "add"),
        shift(3),
        ApplyFunction(9, "int64", "where", (1, 3, 4)),
    )


def test_nested_branches_are_selected_from_the_inside():
    inner = choice([shift(3)], [shift(4)])
    outer = Choose((10,), 1, True, (StatementBlock((inner,), (9,)), StatementBlock((shift(5),), (5,))))
    found = converted(outer)
    assert [each.function for each in found if each.function == "where"] == ["where"] * 2
    assert found[-1] == ApplyFunction(10, "int64", "where", (1, 5, 9))


@pytest.mark.parametrize(
    "kept",
    [
        choice([shift(3, "divide")], [shift(4)]),
        choice([LoadElement(3, "int64", 0, Offset(-1, ()))], [shift(4)]),
        choice([], [shift(4)], (2, 4)),  # assigns a literal: perhaps the state
        choice([shift(3)], [shift(4)], is_bool=False),
        choice([shift(20 + k) for k in range(MAX_COMPUTED)] + [shift(3)], [shift(4)]),
    ],
)
def test_other_branches_stay(kept):
    assert converted(kept) == (kept,)
