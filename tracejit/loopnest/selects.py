"""Short branches of serial kernels that only compute become selects.

    if crc & 1:                                a = crc >> 1
        crc = (crc >> 1) ^ 0x8408              b = a ^ 0x8408
    else:                                      crc = where(crc & 1, b, a)
        crc = crc >> 1

A branch that depends on data is mispredicted in half of the iterations, which takes as long as twenty cheap
operations. Branches that assign literals are kept: they choose the state of the next iteration (see
`inner_loops`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tracejit import ops
from tracejit.loopnest.statements import (
    ApplyFunction,
    Choose,
    LiteralNumber,
    LoadElement,
    Repeat,
    SlotNumber,
    StatementBlock,
)

MAX_COMPUTED = 6
"""The largest number of statements of the branches together."""

MAX_RESULTS = 2
"""The largest number of selected results."""

CHEAP = frozenset(
    str(op.kernel)
    for op in (
        *(ops.add, ops.subtract, ops.multiply, ops.negative, ops.abs, ops.minimum, ops.maximum, ops.where),
        *(ops.bitwise_and, ops.bitwise_or, ops.bitwise_xor, ops.bitwise_invert),
        *(ops.bitwise_left_shift, ops.bitwise_right_shift),
        *(ops.less, ops.less_equal, ops.greater, ops.greater_equal, ops.equal, ops.not_equal),
        *(ops.logical_and, ops.logical_or, ops.logical_xor, ops.logical_not, ops.astype, ops.bitcast),
    )
)
"""Scalar functions that take a few cycles, and have a result for all operands."""

SELECT = str(ops.where.kernel)


def with_selects(block: StatementBlock, constants: Iterable[SlotNumber | LiteralNumber]) -> StatementBlock:
    """Return a block, whose branches return their results, with selects instead of such branches."""
    return _Selects(constants).block(block)


class _Selects:
    """The dtypes of the scalars that are known so far, and the literals among them."""

    def __init__(self, constants: Iterable[SlotNumber | LiteralNumber]) -> None:
        self.dtypes, self.literals = dict[int, str](), set[int]()
        for each in constants:
            self.dtypes[each.result] = each.dtype
            if isinstance(each, LiteralNumber):
                self.literals.add(each.result)

    def block(self, block: StatementBlock) -> StatementBlock:
        statements: list[Any] = []
        for each in block.statements:
            if isinstance(each, ApplyFunction | LoadElement):
                self.dtypes[each.result] = each.dtype
            if isinstance(each, Repeat):
                self.dtypes |= {register.variable: register.dtype for register in each.registers}
                self.dtypes[each.iteration] = "int64"
                statements.append(each._replace(block=self.block(each.block)))
            elif isinstance(each, Choose):
                statements += self._chosen(each._replace(branches=tuple(map(self.block, each.branches))))
            else:
                statements.append(each)
        return block._replace(statements=tuple(statements))

    def _chosen(self, choice: Choose) -> list[Any]:
        """Return the statements that replace a choice: selects, or the choice itself."""
        for k, result in enumerate(choice.results):
            kinds = {self.dtypes.get(branch.values[k]) for branch in choice.branches} - {None}
            if len(kinds) == 1:
                self.dtypes[result] = str(kinds.pop())
        computed = [each for branch in choice.branches for each in branch.statements]
        is_short = choice.is_bool and len(computed) <= MAX_COMPUTED and len(choice.results) <= MAX_RESULTS
        is_cheap = all(isinstance(each, ApplyFunction) and each.function in CHEAP for each in computed)
        if not (is_short and is_cheap):
            return [choice]
        pairs = [tuple(branch.values[k] for branch in choice.branches) for k in range(len(choice.results))]
        if any(not self.literals.isdisjoint(pair) for pair in pairs):
            return [choice]
        if any(result not in self.dtypes for result in choice.results):
            return [choice]
        return computed + [
            ApplyFunction(result, self.dtypes[result], SELECT, (choice.which, if_true, if_false))
            for result, (if_false, if_true) in zip(choice.results, pairs, strict=True)
        ]
