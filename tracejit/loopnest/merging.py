"""Branches that end alike are merged: their common end follows them.

A native loop over looks is a decision tree: what follows a branch in the body is in both of its subtrees.

    if a:                                      if a: p = x + 1
        y = x + 1                              else: p = x
        z = f(y)                               z = f(p)
    else:
        z = f(x)

`merged` finds the longest common end of two branches; a scalar that differs in it becomes a result of the
branches. The merged program is smaller, by a factor of two for each such branch, and the processor need not
predict a branch that only selects numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from tracejit.loopnest.statements import (
    ApplyFunction,
    CheckIndex,
    Choose,
    LiteralNumber,
    LoadElement,
    Register,
    Repeat,
    SlotNumber,
    StatementBlock,
)
from tracejit.loopnest.visits import blocks_in, mapped, reads, renamed

MIN_SAVED = 2
"""The minimal number of saved statements for each scalar that differs."""


def merged(
    block: StatementBlock, constants: Iterable[SlotNumber | LiteralNumber], scalar_count: int
) -> StatementBlock:
    """Return a block in which branches that end alike are merged. New scalars have numbers from
    `scalar_count` on.
    """
    dtypes = {constant.result: constant.dtype for constant in constants}
    _note_dtypes(block, dtypes)
    merging = _Merging(dtypes, scalar_count)
    return renamed(merging.block(block), merging.names)


class Different(Exception):
    """Two statements do not compute the same."""


class _Merging:
    """The merging of all branches of a program.

    dtypes: of all scalars.
    names:  the scalars that replace the results of merged branches.
    """

    def __init__(self, dtypes: dict[int, str], scalar_count: int) -> None:
        self.dtypes, self.scalar_count = dtypes, scalar_count
        self.names: dict[int, int] = {}

    def block(self, block: StatementBlock) -> StatementBlock:
        """Merge the branches in a block, innermost first."""
        statements: list[Any] = []
        for statement in block.statements:
            if isinstance(statement, Repeat):
                statements.append(statement._replace(block=self.block(statement.block)))
            elif isinstance(statement, Choose):
                branches = tuple(map(self.block, statement.branches))
                statements += self.choice(statement._replace(branches=branches))
            else:
                statements.append(statement)
        return StatementBlock(tuple(statements), block.values)

    def choice(self, choice: Choose) -> Sequence[Any]:
        """Return a choice, or one with shorter branches, followed by their common end."""
        if len(choice.branches) != 2:
            return (choice,)
        first, second = choice.branches
        for length in range(min(len(first.statements), len(second.statements)), 0, -1):
            common = _CommonEnd(self)
            try:
                end = common.block(_end(first, length), _end(second, length))
            except Different:
                continue
            if _size(end.statements) > MIN_SAVED * len(common.selected):
                return self.split(choice, end, common.selected)
        return (choice,)

    def split(self, choice: Choose, end: StatementBlock, selected: dict[tuple[int, int], int]) -> list[Any]:
        """Return a choice whose branches select scalars, and their common end."""
        self.scalar_count += len(selected)
        self.dtypes.update((scalar, self.dtypes[a]) for (a, _), scalar in selected.items())
        self.names.update(zip(choice.results, end.values, strict=True))
        branches = []
        for number, branch in enumerate(choice.branches):
            kept = branch.statements[: len(branch.statements) - len(end.statements)]
            branches.append(StatementBlock(kept, tuple(pair[number] for pair in selected)))
        if not selected and not any(branch.statements for branch in branches):
            return list(end.statements)
        return [choice._replace(results=tuple(selected.values()), branches=tuple(branches)), *end.statements]

    def name(self, scalar: int) -> int:
        """Return the scalar that replaces another one."""
        while scalar in self.names:
            scalar = self.names[scalar]
        return scalar


class _CommonEnd:
    """Statements of two branches that compute the same.

    selected: the new scalar for each pair of different scalars that the statements read.
    _same:    for each scalar of the first branch's statements, that of the second one's.
    """

    def __init__(self, merging: _Merging) -> None:
        self.merging = merging
        self.selected: dict[tuple[int, int], int] = {}
        self._same: dict[int, int] = {}
        self._seconds: set[int] = set()

    def block(self, a: StatementBlock, b: StatementBlock) -> StatementBlock:
        """Return statements that are equal but for what they read. Raises `Different`."""
        if len(a.statements) != len(b.statements):
            raise Different
        statements = tuple(map(self.statement, a.statements, b.statements))
        return StatementBlock(statements, tuple(map(self.scalar, a.values, b.values)))

    def statement(self, a: Any, b: Any) -> Any:
        """Return the statement that replaces two."""
        if type(a) is not type(b):
            raise Different
        if isinstance(a, Choose):
            return self.choice(a, b)
        if isinstance(a, Repeat):
            return self.loop(a, b)
        has_result = isinstance(a, ApplyFunction | LoadElement | CheckIndex)
        same_result = b._replace(result=a.result) if has_result else b
        if mapped(a, lambda _: 0) != mapped(same_result, lambda _: 0):
            raise Different
        read = iter(reads(b))
        common = mapped(a, lambda scalar: self.scalar(scalar, next(read)))
        if has_result:
            self.define(a.result, b.result)
        return common

    def choice(self, a: Choose, b: Choose) -> Choose:
        """Return the choice that replaces two."""
        if a.is_bool != b.is_bool or len(a.branches) != len(b.branches) or len(a.results) != len(b.results):
            raise Different
        which = self.scalar(a.which, b.which)
        branches = tuple(map(self.block, a.branches, b.branches))
        self.define_all(a.results, b.results)
        return a._replace(which=which, branches=branches)

    def loop(self, a: Repeat, b: Repeat) -> Repeat:
        """Return the loop that replaces two."""
        if a.until != b.until or len(a.registers) != len(b.registers):
            raise Different
        count = self.scalar(a.trip_count, b.trip_count)
        registers = tuple(map(self.register, a.registers, b.registers))
        self.define(a.iteration, b.iteration)
        self.define_all([x.variable for x in a.registers], [x.variable for x in b.registers])
        return a._replace(trip_count=count, registers=registers, block=self.block(a.block, b.block))

    def register(self, a: Register, b: Register) -> Register:
        """Return the register that replaces two."""
        if a._replace(variable=0, first=0) != b._replace(variable=0, first=0):
            raise Different
        return a._replace(first=self.scalar(a.first, b.first))

    def define(self, a: int, b: int) -> None:
        """Register that two scalars, which the statements compute, are equal."""
        self._same[a] = b
        self._seconds.add(b)

    def define_all(self, a: Sequence[int], b: Sequence[int]) -> None:
        """Register that several scalars are equal."""
        for x, y in zip(a, b, strict=True):
            self.define(x, y)

    def scalar(self, a: int, b: int) -> int:
        """Return the scalar that replaces two."""
        a, b = self.merging.name(a), self.merging.name(b)
        if a in self._same or b in self._seconds:
            if self._same.get(a) != b:
                raise Different
            return a
        if a == b:
            return a
        dtypes = self.merging.dtypes
        if dtypes[a] != dtypes[b]:
            raise Different
        return self.selected.setdefault((a, b), self.merging.scalar_count + len(self.selected))


def _end(block: StatementBlock, length: int) -> StatementBlock:
    """Return the last statements of a block."""
    return block._replace(statements=block.statements[-length:])


def _size(statements: Sequence[Any]) -> int:
    """Return the number of statements, those in nested blocks included."""
    nested = sum(_size(block.statements) for statement in statements for block in blocks_in(statement))
    return len(statements) + nested


def _note_dtypes(block: StatementBlock, dtypes: dict[int, str]) -> None:
    """Add the dtypes of all scalars of a block."""
    for statement in block.statements:
        match statement:
            case ApplyFunction() | LoadElement():
                dtypes[statement.result] = statement.dtype
            case CheckIndex():
                dtypes[statement.result] = "int64"
            case Choose():
                for branch in statement.branches:
                    _note_dtypes(branch, dtypes)
                values = statement.branches[0].values
                dtypes.update((r, dtypes[v]) for r, v in zip(statement.results, values, strict=True))
            case Repeat():
                dtypes[statement.iteration] = "int64"
                dtypes.update((register.variable, register.dtype) for register in statement.registers)
                _note_dtypes(statement.block, dtypes)
