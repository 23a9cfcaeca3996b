"""The layout of the argument block of a loop (`executor.loop`): an array of 8-byte slots.

This module imports nothing, because Python uses it too: `tracejit.assembly.loops` fills in the block.
"""

from __future__ import annotations

import enum


class Loop(enum.IntEnum):
    """Slots of ``loop``: a program of tasks that runs COUNT times, on at most MEMBERS threads.

    UNTIL is 0, or the address of a truth value that ends the loop after the iteration that makes it false.

    These slots are followed by TASKS rows of `LoopTask`; INTEGERS, FLOATS (float32) and DOUBLES rows of
    `Growth`; ARENA rows of (offset of a slot, offset in the arena); and BLOCK_BYTES of argument blocks. All
    offsets are in bytes. SPACE is the address of memory of the launch: it contains a copy of the argument
    blocks, and from ARENA_OFFSET on the arena.

    After every CHECK_INTERVAL iterations the thread may leave the loop (`layout.LEFT`). Then, and after a
    failure, ITERATION, TASK and UNIT record its position: the iteration, the task, and the first unit of the
    task that is not done.
    """

    COUNT = 0
    TASKS = 1
    INTEGERS = 2
    FLOATS = 3
    DOUBLES = 4
    ARENA = 5
    BLOCK_BYTES = 6
    SPACE = 7
    ARENA_OFFSET = 8
    CHECK_INTERVAL = 9
    MEMBERS = 10
    ITERATION = 11
    TASK = 12
    UNIT = 13
    UNTIL = 14


class LoopTask(enum.IntEnum):
    """A task of a loop: the address of its kernel, the offset of its argument block, the offset of two slots.

    The two slots contain the number of units and the number of units per call of the kernel.
    """

    FUNCTION = 0
    BLOCK = 1
    UNITS = 2


class Growth(enum.IntEnum):
    """Words of an induction variable: the offset of its slot, and its step per iteration.

    The step is an integer or the bits of a float.
    """

    SLOT = 0
    STEP = 1


KINDS = "int64", "float32", "float64"
"""The dtypes of the induction variables, in the order of their rows."""
