"""Direct calls: small programs that run synchronously on the calling thread, without variables.

A launch is ordered by variables and uses an instance while it is in flight. Neither is necessary if the
caller knows that no task writes what the program reads, and that nothing else refers to what it writes. A
`Direct` has a single set of argument blocks and needs a single native call.

    direct = Direct(program)          # requires `Direct.admits(program)`
    direct.call(x, y, out)            # NumPy arrays; the bits of numbers as integers

The call holds the GIL, so threads never use the blocks concurrently.
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

MAX_BYTES = 1 << 16
"""Maximum bytes of intermediate arrays and kernel scratch memory of a direct call."""


class Direct:
    """A program that is called directly.

    program: one that `admits` accepts; it is kept alive, with the code of its kernels
    call:    ``call(*arguments)``, in the order of the program's arguments
    address: of the native record
    """

    __slots__ = ("_arena", "_blocks", "_record", "_scratch", "address", "call", "program")

    @staticmethod
    def admits(program: Program) -> bool:
        """Whether a program is small and consists of native tasks that cannot fail."""
        return (
            program.is_small
            and program.arena_bytes + program.scratch_bytes <= MAX_BYTES
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
            else:  # argument 0 of the native function is the record's address
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
        for offset, value in header.items():
            record.words[offset >> 3] = value
        rows_and_tasks = np.array([value for row in (*rows, *tasks) for value in row], np.int64)
        record.words[DIRECT_BYTES >> 3 :] = rows_and_tasks.data
        self.address = record.address
        self.call: Callable[..., Any] = partial(native.calls().direct, self.address)
