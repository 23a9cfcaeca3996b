"""Small programs that run at once on the calling thread, on NumPy arrays that no variable orders.

A launch orders itself among others by variables, and takes an instance for the time it is in flight. Where
the caller knows that nobody writes what a program reads, and nobody else knows what it writes, all this is
for nothing: a `Direct` has one set of argument blocks and one native call.

    direct = Direct(program)          # `Direct.admits(program)`
    direct(x, y, out)                 # NumPy arrays; the bits of numbers as integers

The call holds the GIL, so two threads never use the blocks at once.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from tracejit.engine import native
from tracejit.engine.native import Record
from tracejit.engine.program import Program
from tracejit.engine.task import ARENA, NUMBER, READ
from tracejit.kernels.executor.layout import (
    DIRECT_BYTES,
    DIRECT_PATCH_COUNT,
    DIRECT_PATCHES,
    DIRECT_SCRATCH,
    DIRECT_TASK_BYTES,
    DIRECT_TASK_COUNT,
    DIRECT_TASKS,
    PATCH_BYTES,
    SCRATCH_HEAD,
)

MOST_BYTES = 1 << 16
"""The most bytes that a direct call keeps for intermediate arrays and for its kernels' scratch."""


class Direct:
    """A program as a direct call.

    program: see `admits`; it is kept, with the code of its kernels
    call:    ``call(*arguments)``, in the order of the program's arguments
    address: that of its record
    """

    __slots__ = ("_arena", "_blocks", "_record", "_scratch", "address", "call", "program")

    @staticmethod
    def admits(program: Program) -> bool:
        """Whether a program can run so: small, of native tasks that cannot fail."""
        return (
            program.is_small
            and program.arena_bytes + program.scratch_bytes <= MOST_BYTES
            and not any(task.callable or task.can_fail for task in program.tasks)
        )

    def __init__(self, program: Program) -> None:
        self.program = program
        self._blocks, self._arena = Record(8 * len(program.template)), Record(program.arena_bytes)
        self._scratch = Record(SCRATCH_HEAD + program.scratch_bytes)
        self._blocks.words[:] = program.template.data
        rows = []
        for slot, argument, addend in program.patches:
            if argument == ARENA:
                self._blocks.words[slot] = self._arena.address + addend
            else:  # the call's own address comes first among the arguments of the native function
                mode = NUMBER if program.arguments[argument] == NUMBER else READ
                rows.append((self._blocks.address + 8 * slot, 1 + argument, mode, addend))
        tasks = [(t.function, self._blocks.address + 8 * t.block, t.units, t.chunk) for t in program.tasks]
        self._record = record = Record(
            DIRECT_BYTES + PATCH_BYTES * len(rows) + DIRECT_TASK_BYTES * len(tasks)
        )
        patches = record.address + DIRECT_BYTES
        header = {
            DIRECT_PATCHES: patches,
            DIRECT_PATCH_COUNT: len(rows),
            DIRECT_TASKS: patches + PATCH_BYTES * len(rows),
            DIRECT_TASK_COUNT: len(tasks),
            DIRECT_SCRATCH: self._scratch.address + SCRATCH_HEAD,
        }
        for offset, word in header.items():
            record.words[offset >> 3] = word
        body = np.array([word for row in (*rows, *tasks) for word in row], np.int64)
        record.words[DIRECT_BYTES >> 3 :] = body.data
        self.address = record.address
        self.call: Callable[..., Any] = partial(native.calls().direct, self.address)
