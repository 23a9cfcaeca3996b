"""Instances: the native records of a program's launches.

All instances of a program share an `InstancePlan`: the dependencies of tasks and their uses of arguments, as
lists in native memory, and the *image* of an instance with its relocations. An `Instance` is a copy of the
image, relocated to its own address. While it is in flight it borrows an arena on each device where it needs
one, whose address is in its blocks (`ArenaLease`); it prefers the arena of its previous launch.

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
Column = int | Sequence[int]  # the same field of several records


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
        self._relocations: list[int] = []
        self._write_records(self._create_lists(patches))
        self.relocations = np.array(self._relocations)  # indices of words that are relative to the address
        self.arenas = []
        for device, nbytes in arenas.items():
            patched = [(slot, addend) for slot, argument, addend in patches if argument == ARENA - device]
            words = np.array([self.block // 8 + slot for slot, _ in patched], np.int64)
            addends = np.array([addend for _, addend in patched], np.int64)
            self.arenas.append((pool_of(device), nbytes, words, addends))

    def _create_lists(self, patches: Sequence[tuple[int, int, int]]) -> list[List]:
        """Create native lists: successors and uses of each task, users of each argument, patches."""
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
        tasks, n_tasks = self._tasks, len(self._tasks)
        self._write(0, layout.INSTANCE_BYTES, 1, self._header(*lists[-1]), self._header_addresses())
        columns = self._columns(lists[:n_tasks], lists[n_tasks : 2 * n_tasks])
        blocks = [self.block + 8 * task.block for task in tasks]
        relocated: dict[int, Column] = {layout.TASK_INSTANCE: 0, layout.TASK_BLOCK: blocks}
        self._write(layout.INSTANCE_BYTES, layout.TASK_BYTES, n_tasks, columns, relocated)
        users = lists[2 * n_tasks : -1]
        requests: dict[int, Column] = {
            layout.REQUEST_ACCESS: self._arguments,
            layout.REQUEST_USERS: [address for address, _ in users],
            layout.REQUEST_USER_COUNT: [number for _, number in users],
        }
        relocated = {layout.REQUEST_INSTANCE: 0}
        self._write(self.requests, layout.REQUEST_BYTES, len(users), requests, relocated)

    def _write(
        self, start: int, size: int, count: int, values: Mapping[int, Column], relocated: Mapping[int, Column]
    ) -> None:
        """Write `count` records of `size` bytes at offset `start`, from columns by offset of a field.

        The columns `relocated` contain offsets to which the instance's address is added.
        """
        first, words = start // 8, size // 8
        records = self.image[first : first + count * words].reshape(count, words)
        for offset, column in (*values.items(), *relocated.items()):
            records[:, offset // 8] = column
        for offset in relocated:
            self._relocations += range(first + offset // 8, first + count * words, words)

    def _header(self, patches: int, patch_words: int) -> dict[int, Column]:
        return {
            layout.INSTANCE_ENGINE: ENGINE.address,
            layout.INSTANCE_TASK_COUNT: len(self._tasks),
            layout.INSTANCE_ARGUMENT_COUNT: len(self._arguments),
            layout.INSTANCE_PATCHES: patches,
            layout.INSTANCE_PATCH_COUNT: patch_words // 3,
            layout.INSTANCE_PASSES: self._passing_lane(),
        }

    def _passing_lane(self) -> int:
        """The address of the lane if all tasks are issued to the same one and none can fail, else 0.

        Later launches on that lane need not wait for such a launch.
        """
        lanes = {task.queue for task in self._tasks}
        if len(lanes) != 1 or any(t.can_fail or not t.is_issued for t in self._tasks):
            return 0
        return lane_of(lanes.pop()).address

    def prepare(self, block: int) -> list[object]:
        """Create the objects that the tasks of one instance, whose blocks are at `block`, own."""
        return [task.prepare(block + 8 * task.block) for task in self._tasks if task.prepare]

    def _header_addresses(self) -> dict[int, Column]:
        return {
            layout.INSTANCE_TASKS: layout.INSTANCE_BYTES,
            layout.INSTANCE_REQUESTS: self.requests,
            layout.INSTANCE_BLOCK: self.block,
        }

    def _columns(self, successors: Sequence[List], uses: Sequence[List]) -> dict[int, Column]:
        """The columns of the task records."""
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
    """Pack lists of integers into one native record; return it with the address and length of each list."""
    rows = list(lists)
    lengths = [len(row) for row in rows]
    record = Record(8 * sum(lengths) + 8)
    np.frombuffer(record.words, np.int64)[:-1] = list(itertools.chain.from_iterable(rows))
    starts = itertools.accumulate(lengths, initial=0)
    return record, [
        (record.address + 8 * start, length) for start, length in zip(starts, lengths, strict=False)
    ]


class Instance(Record):
    """The native records of one launch at a time."""

    __slots__ = ("__weakref__", "_plan", "_task_objects", "block", "borrow", "packed", "return_arenas")

    def __init__(self, plan: InstancePlan) -> None:
        super().__init__(plan.image.nbytes)
        self._plan = plan  # keeps the native lists alive
        self.block = self.address + plan.block
        self.packed = b""  # the arguments, for Python tasks
        words = np.frombuffer(self.words, np.int64)
        words[:] = plan.image
        words[plan.relocations] += self.address
        self._task_objects = plan.prepare(self.block)
        leases = [ArenaLease(words, *arena) for arena in plan.arenas]
        self.borrow = _combined([lease.begin for lease in leases])
        self.return_arenas = _combined([lease.end for lease in leases])


def _combined(calls: Sequence[Callable[[], None]]) -> Callable[[], None]:
    """Return a function that calls all of `calls`; the only element itself if there is one."""
    if len(calls) == 1:
        return calls[0]

    def call_all() -> None:
        for call in calls:
            call()

    return call_all


class ArenaLease:
    """An instance's use of an arena on one device. slots: indices of words with addresses in the arena."""

    __slots__ = ("_addends", "_arena", "_nbytes", "_number", "_pool", "_slots", "_words")

    def __init__(
        self, words: np.ndarray, pool: Pool, nbytes: int, slots: np.ndarray, addends: np.ndarray
    ) -> None:
        self._words, self._pool, self._nbytes = words, pool, nbytes
        self._slots, self._addends = slots, addends
        self._arena: Arena | None = None
        self._number = 0  # of the arena whose address is in the words

    def begin(self) -> None:
        """Borrow an arena: the previous one if it is idle."""
        arena = self._pool.idle.pop(self._number, None)
        if arena is None:
            arena = self._pool.borrow(self._nbytes)
            self._words[self._slots] = arena.memory + self._addends
            self._number = arena.number
        self._arena = arena

    def end(self) -> None:
        """Return the arena, if one is borrowed."""
        arena = self._arena
        if arena is not None:
            self._arena = None
            self._pool.idle[arena.number] = arena
