"""The slots of the argument block of a loop (`executor.loop`): rows of 8 bytes each. Imports nothing; Python
uses it too: `tracejit.assembly.loops` fills it in.
"""

from __future__ import annotations

import enum


class Loop(enum.IntEnum):
    """Slots of ``loop``: a program of tasks that runs COUNT times, on MEMBERS threads at most. UNTIL is the
    address of a truth value that ends the loop after the round that makes it false, or 0.

    Behind these come, with offsets in bytes: TASKS rows of `LoopTask`, rows of `Growth` for INTEGERS, FLOATS
    (float32) and DOUBLES, ARENA rows of (offset of a slot, bytes from the start of the arena), and
    BLOCK_BYTES of argument blocks. SPACE is memory of the launch: it holds a copy of the blocks, and from
    ARENA_AT on the arena.

    After every PATIENCE rounds the thread may leave the loop (`layout.LEFT`). Then, and after a failure,
    ROUND, TASK and UNIT say where it is: task TASK has done the units before UNIT. UNTIL is the address of a
    truth value that ends the loop after the round that makes it false, or 0.
    """

    COUNT = 0
    TASKS = 1
    INTEGERS = 2
    FLOATS = 3
    DOUBLES = 4
    ARENA = 5
    BLOCK_BYTES = 6
    SPACE = 7
    ARENA_AT = 8
    PATIENCE = 9
    MEMBERS = 10
    ROUND = 11
    TASK = 12
    UNIT = 13
    UNTIL = 14


class LoopTask(enum.IntEnum):
    """A task of a loop: the address of its kernel, the offsets of its block and of two slots: its units, and
    how many of them are done at once.
    """

    FUNCTION = 0
    BLOCK = 1
    UNITS = 2


class Growth(enum.IntEnum):
    """Words of a slot's growth: the slot, and the step (an integer, or bits of a float) for each round."""

    SLOT = 0
    STEP = 1


KINDS = "int64", "float32", "float64"
"""The dtypes of slots that grow, in the order of their rows."""
