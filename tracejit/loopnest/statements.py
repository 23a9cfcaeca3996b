"""The program of a serial kernel (see `serial`): statements over numbered scalars, as data.

A statement computes the scalar `result`. Numbers that depend on shapes are in slots of the argument block.

    v3 = x0[v1 * n4]          LoadElement(3, "float64", 0, Offset(-1, ((1, 4),)))
    v5 = add(v3, v2)          ApplyFunction(5, "float64", "add", (3, 2))
    x0[n6] = v5               StoreElement(0, Offset(6, ()), 5, "float64")
"""

from __future__ import annotations

import enum
from typing import Any, NamedTuple

from tracejit.ir.graph import Node


class Offset(NamedTuple):
    """The offset of an element in its memory: slot `start` (-1: zero), the sum of `terms`, which are pairs of
    a scalar and the slot that contains its factor (-1: one), and a small number `near`.
    """

    start: int
    terms: tuple[tuple[int, int], ...]
    near: int = 0


class SlotNumber(NamedTuple):
    """The number in a slot."""

    result: int
    dtype: str
    slot: int


class LiteralNumber(NamedTuple):
    """A number that is part of the program."""

    result: int
    dtype: str
    value: int | bool


class ApplyFunction(NamedTuple):
    """A scalar function of scalars."""

    result: int
    dtype: str
    function: str
    args: tuple[int, ...]


class LoadElement(NamedTuple):
    """The element at an offset in memory."""

    result: int
    dtype: str
    memory: int
    offset: Offset


class StoreElement(NamedTuple):
    """Writes a scalar to an offset in memory."""

    memory: int
    offset: Offset
    value: int
    dtype: str


class CheckIndex(NamedTuple):
    """The index `checked`, counted from the start, in an extent that is in a slot. If it is out of range,
    the kernel fails in check number `number`.
    """

    result: int
    checked: int
    extent: int
    number: int


class Assign(NamedTuple):
    """Assigns values to variables, in parallel."""

    variables: tuple[int, ...]
    values: tuple[int, ...]


class StatementBlock(NamedTuple):
    """Statements in order, and the scalars that they return (none in a `SerialProgram`)."""

    statements: tuple[Any, ...]
    values: tuple[int, ...]


class Choose(NamedTuple):
    """Runs one of several blocks: 0 or 1 for the truth value `which`, or number `which`. `results` are the
    values of the block (none in a `SerialProgram`, whose branches contain an `Assign` instead).

    repeated: the blocks that iterations of the loop run again if `which` is their number afterwards, too.
              Such a choice is the last statement of the loop's block.
    again:    the statements that compute `which` for the next iteration.
    """

    results: tuple[int, ...]
    which: int
    is_bool: bool
    branches: tuple[StatementBlock, ...]
    repeated: tuple[int, ...] = ()
    again: tuple[ApplyFunction | LoadElement, ...] = ()


class Register(NamedTuple):
    """A loop-carried scalar: `variable` is `first` in the first iteration, and the block's value `value`,
    which an `Assign` stores, in the following ones. An induction variable has no such value (-1), but
    grows by slot `step`.
    """

    variable: int
    dtype: str
    first: int
    value: int = -1
    step: int = -1


class Repeat(NamedTuple):
    """Runs a block `trip_count` times. `iteration` is the number of the iteration. `until`: the position of
    the register that ends the loop when it becomes false, or -1.
    """

    trip_count: int
    iteration: int
    registers: tuple[Register, ...]
    block: StatementBlock
    until: int


class OperandSlot(NamedTuple):
    """A slot that contains the address of an operand's memory, or the number that it is."""

    operand: int


class KnownSlot(NamedTuple):
    """A slot with a known int64, or the bits of another known number."""

    value: int


class SerialProgram(NamedTuple):
    """A serial kernel.

    memories:  the dtype and the slot of each memory.
    constants: numbers, which no statement changes.
    block:     the statements. The only `Repeat` that is not within another one is the loop.
    """

    memories: tuple[tuple[str, int], ...]
    constants: tuple[SlotNumber | LiteralNumber, ...]
    block: StatementBlock


class SerialSlot(enum.IntEnum):
    """Slots of the argument block after those of a program.

    RESUME is the iteration at which the kernel continues if `lo` is 1: a thread left the loop there, see
    `tracejit.kernels.executor.loop`. If a check fails, CHECK is its number, INDEX the bad index, and the
    following slots are the iterations of the loops around it, outermost first (at most `MAX_DEPTH`).
    """

    RESUME = 0
    CHECK = 1
    INDEX = 2
    ITERATIONS = 3


MAX_DEPTH = 8
"""The maximal depth of nested loops in a serial kernel."""


class LoweredSerial(NamedTuple):
    """A serial kernel, and the slots of its argument block for concrete shapes.

    checks: the nodes that check indices, by the number of their statements, each with the number of loops
            around it.
    """

    program: SerialProgram
    checks: tuple[tuple[Node, int], ...]
    slots: tuple[OperandSlot | KnownSlot, ...]
