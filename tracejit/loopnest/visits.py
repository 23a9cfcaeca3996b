"""Visits of the statements of serial kernels: what they read, and other names for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tracejit.loopnest.statements import (
    ApplyFunction,
    Assign,
    CheckIndex,
    Choose,
    LoadElement,
    Offset,
    Repeat,
    StatementBlock,
    StoreElement,
)


def blocks_in(statement: Any) -> tuple[StatementBlock, ...]:
    """Return the blocks in a statement."""
    if isinstance(statement, Choose):
        return statement.branches
    return (statement.block,) if isinstance(statement, Repeat) else ()


def reads(statement: Any) -> list[int]:
    """Return the scalars that a statement, or one within it, reads, in the order of the fields."""
    found: list[int] = []

    def note(scalar: int) -> int:
        found.append(scalar)
        return scalar

    mapped(statement, note)
    return found


def renamed(block: StatementBlock, names: Mapping[int, int]) -> StatementBlock:
    """Return a block that reads the scalars `names` instead of others."""
    return _mapped_block(block, lambda scalar: names.get(scalar, scalar))


def mapped(statement: Any, name: Callable[[int], int]) -> Any:
    """Return a statement that reads ``name(v)`` instead of each scalar v, in the order of the fields."""
    match statement:
        case ApplyFunction():
            return statement._replace(args=tuple(map(name, statement.args)))
        case LoadElement():
            return statement._replace(offset=_mapped_offset(statement.offset, name))
        case StoreElement():
            offset = _mapped_offset(statement.offset, name)
            return statement._replace(offset=offset, value=name(statement.value))
        case CheckIndex():
            return statement._replace(checked=name(statement.checked))
        case Assign():
            return statement._replace(values=tuple(map(name, statement.values)))
        case Choose():
            which = name(statement.which)
            branches = tuple(_mapped_block(branch, name) for branch in statement.branches)
            return statement._replace(which=which, branches=branches)
        case Repeat():
            count = name(statement.trip_count)
            registers = tuple(x._replace(first=name(x.first)) for x in statement.registers)
            block = _mapped_block(statement.block, name)
            return statement._replace(trip_count=count, registers=registers, block=block)
    raise AssertionError(f"unknown statement {statement}")


def _mapped_offset(offset: Offset, name: Callable[[int], int]) -> Offset:
    return offset._replace(terms=tuple((name(scalar), slot) for scalar, slot in offset.terms))


def _mapped_block(block: StatementBlock, name: Callable[[int], int]) -> StatementBlock:
    statements = tuple(mapped(statement, name) for statement in block.statements)
    return StatementBlock(statements, tuple(map(name, block.values)))
