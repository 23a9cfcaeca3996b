"""Graphs of kernels: a segment of a schedule as a single launch of the driver.

    setter -> kernels, in the order of their dependencies -> finish, if any kernel can fail

The argument blocks of all kernels reside in memory of the device, where the constant words are written once.
The words that change with each launch (addresses, numbers) are a list of *values* with their addresses in the
blocks. The values are parameters of the setter kernel, which stores them, so a launch updates a single node
(one for each `VALUES` values) whatever the number of kernels. Kernels after one that can fail receive the
failure words as parameters, and return immediately if one of them is set.

Each instance of a program has its own executable graph. All of them share the blocks, because the device runs
launches on its stream sequentially.
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
"""Maximum number of values of a setter: kernel parameters are limited to 4 KB."""

SETTER_SLOTS = VALUES + layout.SETTER_VALUES
FINISH_SLOTS = 3
THREADS = 128  # threads of a setter

PARAMETERS = struct.Struct("<q7I4xqqqq")
"""The driver's CUDA_KERNEL_NODE_PARAMS, version 2."""


class KernelNode(NamedTuple):
    """A kernel of a graph.

    block: the words of its argument block; None for words that change with each launch
    after: indices of earlier nodes on which it depends
    fails: whether it can fail
    """

    function: int
    grid: tuple[int, int]
    threads: tuple[int, int]
    shared: int
    block: Sequence[int | None]
    after: tuple[int, ...]
    fails: bool


class KernelGraph:
    """A graph of kernels on a device.

    setter, finish: functions of the kernels that store the values and that report failures.
    scratch:        bytes of private scratch memory of each kernel.
    record:         the words, from GRAPH_SETTERS on, of the argument block of a task that launches the graph;
                    None for values.
    fails:          indices of the nodes that can fail.
    """

    def __init__(
        self, gpu: Gpu, nodes: Sequence[KernelNode], setter: int, finish: int, scratch: Sequence[int]
    ) -> None:
        self._gpu, self._free = gpu, deque[int]()
        driver = gpu.driver
        gpu.enter()
        self.fails = [number for number, node in enumerate(nodes) if node.fails]
        self._memory = gpu.pool.allocate(max(8, _size(nodes, len(self.fails), sum(scratch))))
        failure_words, self._starts, patched = self._fill(nodes, scratch)
        self._graph = driver.get("cuGraphCreate", 0)
        self.record = self._record(failure_words, patched, setter)
        guarded_nodes = guarded(nodes)
        count = len(self.fails)
        handles: list[int] = []
        for number, node in enumerate(nodes):
            arguments = (self._starts[number], failure_words, count if number in guarded_nodes else 0)
            predecessors = [handles[i] for i in node.after] or self._setters
            launch_size = (*node.grid, 1, *node.threads, 1, node.shared)
            handles.append(self._add(node.function, launch_size, arguments, predecessors))
        if count:
            self._add(finish, (1, 1, 1, 1, 1, 1, 0), (self._finish, 0, 0), handles)

    def _fill(self, nodes: Sequence[KernelNode], scratch: Sequence[int]) -> tuple[int, list[int], list[int]]:
        """Write the failure words, the argument blocks and the addresses of values to memory of the device.

        Returns the address of the failure words, the addresses of the blocks, and those of the values.
        """
        address = failure_words = self._memory.memory
        content = [layout.NEVER] * len(self.fails)
        starts, patched = [], []
        if self.fails:
            self._finish = address + 8 * len(content)
            patched.append(self._finish + 8 * layout.FINISH_TARGET)
            content += [failure_words, len(self.fails), 0]
        scratch_address = address + 8 * (_words(nodes, len(self.fails)))
        ranks = {number: rank for rank, number in enumerate(self.fails)}
        for number, (node, nbytes) in enumerate(zip(nodes, scratch, strict=True)):
            start = address + 8 * len(content)
            starts.append(start)
            patched += [start + 8 * i for i, word in enumerate(node.block) if word is None]
            failure = failure_words + 8 * ranks[number] if node.fails else 0
            content += [word or 0 for word in node.block[:-2]] + [scratch_address if nbytes else 0, failure]
            scratch_address += nbytes
        self._value_addresses = address + 8 * len(content)
        content += patched
        data = (ctypes.c_int64 * len(content))(*content)
        self._gpu.driver.call("cuMemcpyHtoD", address, ctypes.addressof(data), ctypes.sizeof(data))
        return failure_words, starts, patched

    def _record(self, failure_words: int, patched: Sequence[int], setter: int) -> list[int | None]:
        """Add the setters; return the words of a task's argument block that contain their values."""
        record: list[int | None] = []
        self._setters: list[int] = []
        for first in range(0, max(len(patched), 1), VALUES):
            count = min(VALUES, len(patched) - first)
            failing = len(self.fails) if first == 0 else 0
            header = (failure_words, failing, self._value_addresses + 8 * first, count)
            size = (1, 1, 1, THREADS, 1, 1, 0)
            block = ctypes.create_string_buffer(struct.pack("<4q", *header), 8 * SETTER_SLOTS)
            handle = self._add_raw(setter, size, [ctypes.addressof(block)], [])
            self._setters.append(handle)
            parameters = struct.unpack("<9q", PARAMETERS.pack(setter, *size, 0, 0, 0, 0))
            values: list[int | None] = [None] * count
            if failing:
                values[0] = 0  # the target of the status, which the executor sets
            padding = [0] * (VALUES - count)  # the driver reads all parameters of the setter
            nbytes = layout.NODE_BLOCK + 8 * SETTER_SLOTS
            record += [nbytes, handle, *parameters, 0, *header, *values, *padding]
        return [len(self._setters), *record]

    def _add(self, function: int, size: Sequence[int], arguments: Sequence[int], after: Sequence[int]) -> int:
        """Add a kernel node whose parameters are integers; return its handle."""
        values = (ctypes.c_int64 * len(arguments))(*arguments)
        start = ctypes.addressof(values)
        return self._add_raw(function, size, [start + 8 * i for i in range(len(arguments))], after)

    def _add_raw(
        self, function: int, size: Sequence[int], argument_addresses: Sequence[int], after: Sequence[int]
    ) -> int:
        """Add a kernel node whose arguments are stored at the given addresses; return its handle."""
        addresses = (ctypes.c_int64 * len(argument_addresses))(*argument_addresses)
        packed = PARAMETERS.pack(function, *size, ctypes.addressof(addresses), 0, 0, 0)
        parameters = ctypes.create_string_buffer(packed, len(packed))
        dependencies = (ctypes.c_int64 * len(after))(*after)
        return self._gpu.driver.get(
            "cuGraphAddKernelNode",
            self._graph,
            ctypes.addressof(dependencies) if after else 0,
            len(after),
            ctypes.addressof(parameters),
        )

    def prepare(self, block: int) -> HandleLease:
        """Write an executable graph to the argument block of one instance of a task; the result owns it."""
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
    """Decode the status of a graph: the index among the nodes that can fail, and that node's status.

    >>> failed_task(3 * RANK + 8)
    (3, 8)
    """
    return divmod(status, RANK)


def guarded(nodes: Sequence[KernelNode]) -> set[int]:
    """The indices of the nodes that depend, directly or not, on one that can fail."""
    result: set[int] = set()
    for number, node in enumerate(nodes):
        if any(nodes[i].fails or i in result for i in node.after):
            result.add(number)
    return result


def _words(nodes: Sequence[KernelNode], fails: int) -> int:
    """The number of words of a graph's memory before the scratch memory of its kernels."""
    values = sum(word is None for node in nodes for word in node.block)
    count = fails + (FINISH_SLOTS + 1) * bool(fails) + values + sum(len(node.block) for node in nodes)
    return count + count % 2


def _size(nodes: Sequence[KernelNode], fails: int, scratch: int) -> int:
    return 8 * _words(nodes, fails) + scratch
