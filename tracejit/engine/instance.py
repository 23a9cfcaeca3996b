"""Instances: the native records of a program's launches.

An `InstancePlan` is shared by all instances of a program: the order of tasks and their uses, as lists in
native memory, and the *image* of an instance with the places of its own addresses. An `Instance` is a copy of
the image at its own address. While it is in flight it has an arena on each device where it needs one, whose
address is in its blocks (`ArenaLease`); the next time it takes the same one, unless another instance has it.

    header | tasks | requests | argument blocks
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from tracejit.engine.memory import Arena, Pool, pool_of
from tracejit.engine.native import ENGINE, Record, lane_of
from tracejit.engine.task import ARENA, Task
from tracejit.kernels.executor import layout

LABEL = 1 << 24  # a profiler label is the number of the program times this, plus the index of the task

List = tuple[int, int]  # address of the first item, and the number of items
Column = int | Sequence[int]  # one word of each of several records


class InstancePlan:
    """The static part of a program; see `Program` for the arguments."""

    def __init__(
        self,
        number: int,
        tasks: Sequence[Task],
        template: np.ndarray,
        patches: Sequence[tuple[int, int, int]],
        arguments: Sequence[int],
        arenas: Mapping[int, int],
    ) -> None:
        self._number, self._tasks, self._arguments = number, tasks, arguments
        self.requests = layout.INSTANCE_BYTES + len(tasks) * layout.TASK_BYTES
        self.block = self.requests + len(arguments) * layout.REQUEST_BYTES
        self.image = np.zeros(self.block // 8 + len(template), np.int64)
        self.image[self.block // 8 :] = template
        self._own: list[int] = []
        self._write_records(self._make_lists(patches))
        self.own = np.array(self._own)  # indices of the words to which the instance's address is added
        self.arenas = []
        for device, nbytes in arenas.items():
            mine = [(slot, addend) for slot, argument, addend in patches if argument == ARENA - device]
            words = np.array([self.block // 8 + slot for slot, _ in mine], np.int64)
            addends = np.array([addend for _, addend in mine], np.int64)
            self.arenas.append((pool_of(device), nbytes, words, addends))

    def _make_lists(self, patches: Sequence[tuple[int, int, int]]) -> list[List]:
        """Successors of each task, uses of each task, users of each argument, patches."""
        successors: list[list[int]] = [[] for _ in self._tasks]
        users: list[list[int]] = [[] for _ in self._arguments]
        for i, task in enumerate(self._tasks):
            for earlier in task.after:
                successors[earlier].append(i)
            for argument in task.uses:
                users[argument].append(i)
        triples = [item for patch in patches if patch[1] > ARENA for item in patch]
        self._memory, lists = _native_lists([*successors, *(t.uses for t in self._tasks), *users, triples])
        return lists

    def _write_records(self, lists: list[List]) -> None:
        tasks, count = self._tasks, len(self._tasks)
        self._write(0, layout.INSTANCE_BYTES, 1, self._header(*lists[-1]), self._header_addresses())
        columns = self._columns(lists[:count], lists[count : 2 * count])
        blocks = [self.block + 8 * task.block for task in tasks]
        own: dict[int, Column] = {layout.TASK_INSTANCE: 0, layout.TASK_BLOCK: blocks}
        self._write(layout.INSTANCE_BYTES, layout.TASK_BYTES, count, columns, own)
        users = lists[2 * count : -1]
        requests: dict[int, Column] = {
            layout.REQUEST_ACCESS: self._arguments,
            layout.REQUEST_USERS: [address for address, _ in users],
            layout.REQUEST_USER_COUNT: [number for _, number in users],
        }
        own = {layout.REQUEST_INSTANCE: 0}
        self._write(self.requests, layout.REQUEST_BYTES, len(users), requests, own)

    def _write(
        self, start: int, size: int, count: int, values: Mapping[int, Column], own: Mapping[int, Column]
    ) -> None:
        """Write `count` records of `size` bytes from offset `start` on, a column of words for each offset in
        them; `own` are offsets from the instance's address.
        """
        first, words = start // 8, size // 8
        records = self.image[first : first + count * words].reshape(count, words)
        for offset, column in (*values.items(), *own.items()):
            records[:, offset // 8] = column
        for offset in own:
            self._own += range(first + offset // 8, first + count * words, words)

    def _header(self, patches: int, patch_words: int) -> dict[int, Column]:
        return {
            layout.INSTANCE_ENGINE: ENGINE.address,
            layout.INSTANCE_TASK_COUNT: len(self._tasks),
            layout.INSTANCE_ARGUMENT_COUNT: len(self._arguments),
            layout.INSTANCE_PATCHES: patches,
            layout.INSTANCE_PATCH_COUNT: patch_words // 3,
            layout.INSTANCE_PASSES: self._passes(),
        }

    def _passes(self) -> int:
        """The lane of all tasks, if they are issued and none can fail: what follows there need not wait."""
        lanes = {task.queue for task in self._tasks}
        if len(lanes) != 1 or any(t.can_fail or not t.is_issued for t in self._tasks):
            return 0
        return lane_of(lanes.pop()).address

    def prepare(self, block: int) -> list[object]:
        """The private objects of the tasks of one instance, whose blocks are at `block`."""
        return [task.prepare(block + 8 * task.block) for task in self._tasks if task.prepare]

    def _header_addresses(self) -> dict[int, Column]:
        return {
            layout.INSTANCE_TASKS: layout.INSTANCE_BYTES,
            layout.INSTANCE_REQUESTS: self.requests,
            layout.INSTANCE_BLOCK: self.block,
        }

    def _columns(self, successors: Sequence[List], uses: Sequence[List]) -> dict[int, Column]:
        """The words of all tasks."""
        tasks, first = self._tasks, self._number * LABEL
        return {
            layout.TASK_FUNCTION: [task.function for task in tasks],
            layout.TASK_UNITS: [task.units for task in tasks],
            layout.TASK_CHUNK: [task.chunk for task in tasks],
            layout.TASK_CHUNKS: [task.chunks for task in tasks],
            layout.TASK_SUCCESSORS: [address for address, _ in successors],
            layout.TASK_SUCCESSOR_COUNT: [number for _, number in successors],
            layout.TASK_USES: [address for address, _ in uses],
            layout.TASK_USE_COUNT: [number for _, number in uses],
            layout.TASK_BEFORE: [len(task.after) for task in tasks],
            layout.TASK_PRIORITY: [task.priority for task in tasks],
            layout.TASK_LANE: [lane_of(task.queue).address for task in tasks],
            layout.TASK_ALWAYS: [task.always or (task.is_issued and task.can_fail) for task in tasks],
            layout.TASK_LABEL: range(first, first + len(tasks)),
        }


def _native_lists(lists: Iterable[Sequence[int]]) -> tuple[Record, list[List]]:
    """Pack lists of integers into one piece of native memory."""
    rows = list(lists)
    counts = [len(row) for row in rows]
    record = Record(8 * sum(counts) + 8)
    np.frombuffer(record.words, np.int64)[:-1] = list(itertools.chain.from_iterable(rows))
    starts = itertools.accumulate(counts, initial=0)
    return record, [(record.address + 8 * start, count) for start, count in zip(starts, counts, strict=False)]


class Instance(Record):
    """The native records of one launch at a time."""

    __slots__ = ("__weakref__", "_held", "_plan", "block", "borrow", "packed", "return_arenas")

    def __init__(self, plan: InstancePlan) -> None:
        super().__init__(plan.image.nbytes)
        self._plan = plan  # keeps its lists alive
        self.block = self.address + plan.block
        self.packed = b""  # the arguments, for Python tasks
        words = np.frombuffer(self.words, np.int64)
        words[:] = plan.image
        words[plan.own] += self.address
        self._held = plan.prepare(self.block)
        leases = [ArenaLease(words, *arena) for arena in plan.arenas]
        self.borrow = _all([lease.begin for lease in leases])
        self.return_arenas = _all([lease.end for lease in leases])


def _all(calls: Sequence[Callable[[], None]]) -> Callable[[], None]:
    """A function that makes these calls; of one of them itself."""
    if len(calls) == 1:
        return calls[0]

    def every() -> None:
        for call in calls:
            call()

    return every


class ArenaLease:
    """The use of an arena of one device by an instance: the places in its blocks that hold the address."""

    __slots__ = ("_addends", "_arena", "_nbytes", "_number", "_places", "_pool", "_words")

    def __init__(
        self, words: np.ndarray, pool: Pool, nbytes: int, places: np.ndarray, addends: np.ndarray
    ) -> None:
        self._words, self._pool, self._nbytes = words, pool, nbytes
        self._places, self._addends = places, addends
        self._arena: Arena | None = None
        self._number = 0  # of the arena whose address is in the blocks

    def begin(self) -> None:
        """Borrow an arena: the last one, if it is idle."""
        arena = self._pool.idle.pop(self._number, None)
        if arena is None:
            arena = self._pool.borrow(self._nbytes)
            self._words[self._places] = arena.memory + self._addends
            self._number = arena.number
        self._arena = arena

    def end(self) -> None:
        """Return the arena, if there is one."""
        arena = self._arena
        if arena is not None:
            self._arena = None
            self._pool.idle[arena.number] = arena
