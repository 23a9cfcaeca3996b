"""The slots of the argument blocks of the library kernels other than ``gemm``: rows of 8 bytes each.

The addresses of the operands come last, inputs first; `tracejit.kernels.library.plan` fills in the rest.
Those of a loop are filled in by `tracejit.rounds`.
"""

from __future__ import annotations

import enum


class Copy(enum.IntEnum):
    """Slots of ``copy``: BYTES bytes from SOURCE to TARGET, which do not overlap; unit = UNIT_BYTES."""

    BYTES = 0
    UNIT_BYTES = 1
    SOURCE = 2
    TARGET = 3


class ScatterAdd(enum.IntEnum):
    """Slots of ``scatter_add``: OUT = 0, then for p in order ``OUT[o, INDEX[p], :] += X[o, p, :]``.

    X is (outer, COUNT, INNER), INDEX is int64 (COUNT,) and in range, OUT is (outer, EXTENT, INNER), all
    C-contiguous. Unit = (o, part of the target rows, part of the columns). Every element of OUT belongs to
    one unit and takes its additions in the order of INDEX, so the split does not show in the result.
    """

    COUNT = 0
    INNER = 1
    EXTENT = 2
    ROWS = 3  # target rows in a part
    ROW_PARTS = 4
    COLUMNS = 5  # columns in a part
    COLUMN_PARTS = 6
    X = 7
    INDEX = 8
    OUT = 9


class Loop(enum.IntEnum):
    """Slots of ``loop``: a program of tasks that runs COUNT times on one thread.

    Behind these come, with offsets in bytes: TASKS rows of `LoopTask`, GROWTHS rows of `Growth`, ARENA rows
    of (offset of a slot, bytes from the start of the arena), and BLOCK_BYTES of argument blocks. Scratch
    memory holds a copy of the blocks, from ARENA_AT on the arena, and from REST_AT on what the tasks need.
    After a failure, FAILED_TASK and FAILED_ROUND say where it was. UNTIL is the address of a truth value that
    ends the loop after the round that makes it false, or 0.
    """

    COUNT = 0
    TASKS = 1
    GROWTHS = 2
    ARENA = 3
    BLOCK_BYTES = 4
    ARENA_AT = 5
    REST_AT = 6
    FAILED_TASK = 7
    FAILED_ROUND = 8
    UNTIL = 9


class LoopTask(enum.IntEnum):
    """A task of a loop: the address of its kernel, the offsets of its block and of the slot for its units."""

    FUNCTION = 0
    BLOCK = 1
    UNITS = 2


class Growth(enum.IntEnum):
    """What is added to a slot after each round: `STEP`, an integer or the bits of a float, as `KIND` says."""

    SLOT = 0
    KIND = 1
    STEP = 2


INTEGER, FLOAT32, FLOAT64 = range(3)
"""Kinds of growth."""
