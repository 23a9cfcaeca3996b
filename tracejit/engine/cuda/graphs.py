"""Graphs of kernels: a segment of a schedule as one launch of the driver.

    setter -> kernels, in the order of their dependencies -> finish, if any kernel can fail

The blocks of all kernels lie in memory of the device, filled once with what never changes. What changes from
launch to launch (addresses, numbers) is a row of *values*, with the places in these blocks where they go;
they are the parameters of the setter, so a launch patches one node, whatever the number of kernels (one for
each `VALUES` values). Kernels that come after one that can fail have the words that it lowers as parameters,
and return at once if one of them is set.

An instance of a program has an executable graph of its own; all of them use the same blocks, as the device
runs what is launched on its stream one after the other.
"""

from __future__ import annotations

import ctypes
import struct
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from tracejit.engine.cuda.device import Gpu, HandleLease
from tracejit.kernels.executor import layout
from tracejit.kernels.executor.layout import RANK

VALUES = 500
"""Most values of a setter: its parameters take at most 4 KB."""

SETTER_SLOTS = VALUES + layout.SETTER_VALUES
FINISH_SLOTS = 3
THREADS = 128  # threads of a setter

PARAMETERS = struct.Struct("<q7I4xqqqq")
"""The driver's CUDA_KERNEL_NODE_PARAMS, version 2."""


class KernelNode(NamedTuple):
    """A kernel of a graph. `block`: its words, None for those that change; `after`: earlier nodes."""

    function: int
    grid: tuple[int, int]
    threads: tuple[int, int]
    shared: int
    block: Sequence[int | None]
    after: tuple[int, ...]
    fails: bool


class KernelGraph:
    """A graph on a device.

    setter, finish: the functions of the two kernels that every graph has.
    scratch:        bytes of scratch memory of each kernel; it has them for itself.
    record:         the words of the block of a task that launches it, from GRAPH_SETTERS on; None: a value.
    """

    def __init__(
        self, gpu: Gpu, nodes: Sequence[KernelNode], setter: int, finish: int, scratch: Sequence[int]
    ) -> None:
        self._gpu, self._free = gpu, deque[int]()
        driver = gpu.driver
        gpu.enter()
        self.fails = [number for number, node in enumerate(nodes) if node.fails]
        self._memory = gpu.pool.allocate(max(8, _size(nodes, len(self.fails), sum(scratch))))
        words, self._starts, places = self._fill(nodes, scratch)
        self._graph = driver.get("cuGraphCreate", 0)
        self.record = self._record(words, places, setter)
        blocked = guarded(nodes)
        count = len(self.fails)
        handles: list[int] = []
        for number, node in enumerate(nodes):
            arguments = (self._starts[number], words, count if number in blocked else 0)
            before = [handles[i] for i in node.after] or self._setters
            size = (*node.grid, 1, *node.threads, 1, node.shared)
            handles.append(self._add(node.function, size, arguments, before))
        if count:
            self._add(finish, (1, 1, 1, 1, 1, 1, 0), (self._finish, 0, 0), handles)

    def _fill(self, nodes: Sequence[KernelNode], scratch: Sequence[int]) -> tuple[int, list[int], list[int]]:
        """Write words for failures, blocks and places; the words' address, the blocks', and the places."""
        address = words = self._memory.memory
        content = [layout.NEVER] * len(self.fails)
        starts, places = [], []
        if self.fails:
            self._finish = address + 8 * len(content)
            places.append(self._finish + 8 * layout.FINISH_TARGET)
            content += [words, len(self.fails), 0]
        room = address + 8 * (_words(nodes, len(self.fails)))
        ranks = {number: rank for rank, number in enumerate(self.fails)}
        for number, (node, nbytes) in enumerate(zip(nodes, scratch, strict=True)):
            start = address + 8 * len(content)
            starts.append(start)
            places += [start + 8 * at for at, word in enumerate(node.block) if word is None]
            failure = words + 8 * ranks[number] if node.fails else 0
            content += [word or 0 for word in node.block[:-2]] + [room if nbytes else 0, failure]
            room += nbytes
        self._places = address + 8 * len(content)
        content += places
        data = (ctypes.c_int64 * len(content))(*content)
        self._gpu.driver.call("cuMemcpyHtoD", address, ctypes.addressof(data), ctypes.sizeof(data))
        return words, starts, places

    def _record(self, words: int, places: Sequence[int], setter: int) -> list[int | None]:
        """Add the setters; the words of a task's block that hold their values."""
        record: list[int | None] = []
        self._setters: list[int] = []
        for first in range(0, max(len(places), 1), VALUES):
            count = min(VALUES, len(places) - first)
            failing = len(self.fails) if first == 0 else 0
            head = (words, failing, self._places + 8 * first, count)
            size = (1, 1, 1, THREADS, 1, 1, 0)
            block = ctypes.create_string_buffer(struct.pack("<4q", *head), 8 * SETTER_SLOTS)
            handle = self._add_raw(setter, size, [ctypes.addressof(block)], [])
            self._setters.append(handle)
            parameters = struct.unpack("<9q", PARAMETERS.pack(setter, *size, 0, 0, 0, 0))
            values: list[int | None] = [None] * count
            if failing:
                values[0] = 0  # where the status goes; the executor knows
            rest = [0] * (VALUES - count)  # the driver reads as many as the setter has
            nbytes = layout.NODE_BLOCK + 8 * SETTER_SLOTS
            record += [nbytes, handle, *parameters, 0, *head, *values, *rest]
        return [len(self._setters), *record]

    def _add(self, function: int, size: Sequence[int], arguments: Sequence[int], after: Sequence[int]) -> int:
        """Add a kernel whose parameters are integers."""
        words = (ctypes.c_int64 * len(arguments))(*arguments)
        start = ctypes.addressof(words)
        return self._add_raw(function, size, [start + 8 * i for i in range(len(arguments))], after)

    def _add_raw(
        self, function: int, size: Sequence[int], places: Sequence[int], after: Sequence[int]
    ) -> int:
        """Add a kernel whose arguments lie at `places`; its handle."""
        addresses = (ctypes.c_int64 * len(places))(*places)
        packed = PARAMETERS.pack(function, *size, ctypes.addressof(addresses), 0, 0, 0)
        parameters = ctypes.create_string_buffer(packed, len(packed))
        before = (ctypes.c_int64 * len(after))(*after)
        return self._gpu.driver.get(
            "cuGraphAddKernelNode",
            self._graph,
            ctypes.addressof(before) if after else 0,
            len(after),
            ctypes.addressof(parameters),
        )

    def prepare(self, block: int) -> HandleLease:
        """Write an executable graph into the block of one instance of a task."""
        try:
            executable = self._free.pop()
        except IndexError:
            self._gpu.enter()
            executable = self._gpu.driver.get("cuGraphInstantiate", self._graph, 0)
        ctypes.c_int64.from_address(block + layout.GRAPH_EXECUTABLE).value = executable
        return HandleLease(self._free, executable)

    def __del__(self) -> None:
        if "_graph" in vars(self):
            for executable in self._free:
                self._gpu.release("cuGraphExecDestroy", executable)
            self._gpu.release("cuGraphDestroy", self._graph)


def failed_task(status: int) -> tuple[int, int]:
    """The number, among the tasks that can fail, of the one that a status tells of, and its own status.

    >>> failed_task(3 * RANK + 8)
    (3, 8)
    """
    return divmod(status, RANK)


def guarded(nodes: Sequence[KernelNode]) -> set[int]:
    """The nodes that come after one that can fail."""
    found: set[int] = set()
    for number, node in enumerate(nodes):
        if any(nodes[i].fails or i in found for i in node.after):
            found.add(number)
    return found


def _words(nodes: Sequence[KernelNode], fails: int) -> int:
    """Words of a graph's memory before the scratch memory of its kernels."""
    values = sum(word is None for node in nodes for word in node.block)
    count = fails + (FINISH_SLOTS + 1) * bool(fails) + values + sum(len(node.block) for node in nodes)
    return count + count % 2


def _size(nodes: Sequence[KernelNode], fails: int, scratch: int) -> int:
    return 8 * _words(nodes, fails) + scratch
