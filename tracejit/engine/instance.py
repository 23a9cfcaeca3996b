"""Instances: the native records of a program's launches.

`Plan` is what all instances of a program share (who comes after whom, who uses what), as lists in native memory.
An `Instance` has the records that change while it runs, the argument blocks, and an arena of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from tracejit.engine.memory import pool
from tracejit.engine.native import ENGINE, Record
from tracejit.engine.task import ARENA, Task
from tracejit.kernels import executor_layout as layout

LABEL = 1 << 24  # a profiler label is the number of the program times this, plus the index of the task

List = tuple[int, int]  # address of the first item, and how many there are


def _native_lists(lists: Iterable[Iterable[int]]) -> tuple[Record, list[List]]:
    """Lists of integers in one piece of native memory."""
    rows = [list(items) for items in lists]
    record = Record(8 * sum(map(len, rows)) + 8)
    places, position = [], 0
    for row in rows:
        places.append((record.address + 8 * position, len(row)))
        for item in row:
            record.words[position] = item
            position += 1
    return record, places


class Plan:
    """The static part of a program."""

    def __init__(
        self,
        number: int,
        tasks: Sequence[Task],
        template: np.ndarray,
        patches: Sequence[tuple[int, int, int]],
        arguments: Sequence[int],
        sizes: tuple[int, int],
        small: bool,
    ) -> None:
        self.number, self.tasks, self.template, self.arguments = number, tasks, template, arguments
        self.arena_bytes, self.scratch_bytes = sizes
        self.small = small
        self.arena_patches = [(slot, addend) for slot, argument, addend in patches if argument == ARENA]
        successors: list[list[int]] = [[] for _ in tasks]
        users: list[list[int]] = [[] for _ in arguments]
        for i, task in enumerate(tasks):
            for earlier in task.after:
                successors[earlier].append(i)
            for argument in task.uses:
                users[argument].append(i)
        triples = [item for patch in patches if patch[1] != ARENA for item in patch]
        count = len(tasks)
        self._memory, lists = _native_lists([*successors, *(task.uses for task in tasks), *users, triples])
        self.successors, self.uses, self.users = (
            lists[:count],
            lists[count : 2 * count],
            lists[2 * count : -1],
        )
        self.patches: List = (lists[-1][0], lists[-1][1] // 3)


class Instance(Record):
    """The native records of one launch at a time, its argument blocks, and the arena they point to."""

    __slots__ = ("arena", "block", "packed", "plan")

    def __init__(self, plan: Plan) -> None:
        tasks = len(plan.tasks)
        requests = layout.INSTANCE_BYTES + tasks * layout.TASK_BYTES
        block = requests + len(plan.arguments) * layout.REQUEST_BYTES
        super().__init__(block + 8 * len(plan.template))
        self.plan = plan  # keeps its lists alive
        self.packed = b""  # the arguments, for Python tasks
        self.block = self.address + block
        self.arena = pool.allocate(plan.arena_bytes)
        words = np.frombuffer(self.words, np.int64)
        words[block // 8 :] = plan.template
        for slot, addend in plan.arena_patches:
            words[block // 8 + slot] = self.arena.address + addend
        self._fill_header(plan, requests)
        for i, task in enumerate(plan.tasks):
            start = (layout.INSTANCE_BYTES + i * layout.TASK_BYTES) // 8
            self._fill_task(words[start : start + layout.TASK_BYTES // 8], plan, i, task)
        for i, access in enumerate(plan.arguments):
            start = (requests + i * layout.REQUEST_BYTES) // 8
            request = words[start : start + layout.REQUEST_BYTES // 8]
            request[layout.REQUEST_ACCESS // 8] = access
            request[layout.REQUEST_USERS // 8], request[layout.REQUEST_USER_COUNT // 8] = plan.users[i]
            request[layout.REQUEST_INSTANCE // 8] = self.address

    def _fill_header(self, plan: Plan, requests: int) -> None:
        header = {
            layout.INSTANCE_ENGINE: ENGINE.address,
            layout.INSTANCE_TASKS: self.address + layout.INSTANCE_BYTES,
            layout.INSTANCE_TASK_COUNT: len(plan.tasks),
            layout.INSTANCE_REQUESTS: self.address + requests,
            layout.INSTANCE_ARGUMENT_COUNT: len(plan.arguments),
            layout.INSTANCE_BLOCK: self.block,
            layout.INSTANCE_PATCHES: plan.patches[0],
            layout.INSTANCE_PATCH_COUNT: plan.patches[1],
            layout.INSTANCE_SCRATCH: plan.scratch_bytes,
            layout.INSTANCE_SMALL: int(plan.small),
        }
        for offset, value in header.items():
            self.words[offset // 8] = value

    def _fill_task(self, words: np.ndarray, plan: Plan, index: int, task: Task) -> None:
        values = {
            layout.TASK_FUNCTION: task.function,
            layout.TASK_BLOCK: self.block + 8 * task.block,
            layout.TASK_UNITS: task.units,
            layout.TASK_CHUNK: task.chunk,
            layout.TASK_CHUNKS: task.chunks,
            layout.TASK_BEFORE: len(task.after),
            layout.TASK_PRIORITY: task.priority,
            layout.TASK_LANE: layout.HOST if task.callable else layout.NATIVE,
            layout.TASK_INSTANCE: self.address,
            layout.TASK_LABEL: plan.number * LABEL + index,
        }
        for offset, value in values.items():
            words[offset // 8] = value
        words[layout.TASK_SUCCESSORS // 8], words[layout.TASK_SUCCESSOR_COUNT // 8] = plan.successors[index]
        words[layout.TASK_USES // 8], words[layout.TASK_USE_COUNT // 8] = plan.uses[index]
