"""GPUs as devices of the engine: a lane whose tasks are issued to a stream, and a thread that completes them.

    gpu = open_device(0)            # raises DeviceError if it cannot be used
    gpu.number                      # of its lane, its pool and its arenas
    gpu.load(image, "kernel")       # a function that tasks launch
    gpu.prepare(block, fails)       # objects of one instance of a task: an event, a word for failures

A device is opened once, at its first use, with its primary context, which other libraries share. Its kernels
run on a single stream, in the order in which they are issued (`kernels.executor.devices`).
"""

from __future__ import annotations

import atexit
import ctypes
import os
from collections import deque
from collections.abc import Callable
from typing import Any

from tracejit.device_kinds import GPU_KIND
from tracejit.engine import memory, native
from tracejit.engine.cuda.driver import Driver, current
from tracejit.engine.cuda.memory import DevicePool
from tracejit.engine.native import LOCK, Record
from tracejit.engine.threads import WATCHERS, CompletionThread
from tracejit.errors import DeviceError
from tracejit.kernels.executor import layout

CAPABILITY_MAJOR, CAPABILITY_MINOR, PROCESSORS = 75, 76, 16  # device attributes
NON_BLOCKING = 1  # stream flag: no synchronisation with the default stream
BLOCKING_SYNC, NO_TIMING = 1, 2  # event flags: waiting threads sleep; timestamps are not recorded
PORTABLE = 1  # flag of pinned host memory: accessible in all contexts

MIN_CAPABILITY = 7, 5
"""The minimum compute capability for which kernels are generated."""

FUNCTIONS = {
    layout.DEVICE_SET_CURRENT: "cuCtxSetCurrent",
    layout.DEVICE_LAUNCH: "cuLaunchKernel",
    layout.DEVICE_RECORD: "cuEventRecord",
    layout.DEVICE_SYNCHRONIZE: "cuEventSynchronize",
    layout.DEVICE_COPY_IN: "cuMemcpyHtoDAsync",
    layout.DEVICE_COPY_OUT: "cuMemcpyDtoHAsync",
    layout.DEVICE_COPY_WITHIN: "cuMemcpyDtoDAsync",
    layout.DEVICE_SET_NODE: "cuGraphExecKernelNodeSetParams",
    layout.DEVICE_LAUNCH_GRAPH: "cuGraphLaunch",
}
"""The driver functions that the executor calls, by the offset of their address in the device's record."""

KernelLoader = Callable[[], Any]
_loader: KernelLoader | None = None


def install(loader: KernelLoader) -> None:
    """Set the loader of the native functions for GPUs, which returns their addresses by name."""
    global _loader
    _loader = loader


class HandleLease:
    """Handles used by one instance, which return to the free list when it is collected.

    No other Python code runs then.
    """

    __slots__ = ("_free", "_handles")

    def __init__(self, free: deque[Any], handles: Any) -> None:
        self._free, self._handles = free, handles

    def __del__(self) -> None:
        self._free.append(self._handles)


class Gpu:
    """An open GPU.

    number:     the device number in the engine
    processors: the number of streaming multiprocessors
    processor:  LLVM's name of the architecture, such as ``sm_90``
    """

    def __init__(self, driver: Driver, index: int) -> None:
        self.driver, self.index, self.number = driver, index, GPU_KIND.first + index
        device = driver.get("cuDeviceGet", index) & 0xFFFFFFFF
        major, minor, self.processors = (
            driver.get("cuDeviceGetAttribute", attribute, device)
            for attribute in (CAPABILITY_MAJOR, CAPABILITY_MINOR, PROCESSORS)
        )
        if (major, minor) < MIN_CAPABILITY:
            raise DeviceError(
                f"gpu:{index} has compute capability {major}.{minor}; expected "
                f"{MIN_CAPABILITY[0]}.{MIN_CAPABILITY[1]} at least"
            )
        self.processor = f"sm_{major}{minor}"
        self._context = driver.get("cuDevicePrimaryCtxRetain", device)
        self.enter()
        self.record = Record(layout.DEVICE_BYTES)
        self.record.words[layout.DEVICE_CONTEXT >> 3] = self._context
        self.record.words[layout.DEVICE_STREAM >> 3] = driver.get("cuStreamCreate", NON_BLOCKING)
        for word, name in FUNCTIONS.items():
            self.record.words[word >> 3] = driver.addresses[name]
        self._scratch: list[memory.Buffer] = []  # the last one is current; kernels in flight may use others
        self._scratch_bytes = 0
        self._events: deque[tuple[int, int]] = deque()  # with the addresses of their failure words
        self.pool = DevicePool(f"gpu:{index}", self._allocate, self._free)
        memory.add_pool(self.number, self.pool)
        assert _loader is not None, "tracejit.targets.gpu installs one"
        self.addresses = _loader()
        self._watch()

    def enter(self) -> None:
        """Make the device's context current on the calling thread."""
        self.driver.call("cuCtxSetCurrent", self._context)

    def _allocate(self, nbytes: int) -> int:
        self.enter()
        return self.driver.get("cuMemAlloc", nbytes)

    def _free(self, address: int) -> None:
        self.release("cuMemFree", address)

    def _watch(self) -> None:
        """Register the thread that completes tasks of the device."""
        lane = native.lane_of(self.number, self.record.address)
        prototype = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * 3)
        watch = prototype(self.addresses["engine_watch"])
        WATCHERS.append(CompletionThread(f"gpu:{self.index} watcher", lane, watch))

    def load(self, image: bytes, name: str) -> tuple[int, int]:
        """Load a module of kernels; return the handles of the module and of its function `name`."""
        self.enter()
        data = ctypes.create_string_buffer(image)
        symbol = ctypes.create_string_buffer(name.encode())
        module = self.driver.get("cuModuleLoadData", ctypes.addressof(data))
        return module, self.driver.get("cuModuleGetFunction", module, ctypes.addressof(symbol))

    def unload(self, module: int) -> None:
        """Unload a module none of whose kernels is in flight."""
        self.release("cuModuleUnload", module)

    def release(self, function: str, handle: int) -> None:
        """Release an unused handle of the driver with the given driver function."""
        if _can_release:
            self.driver.code("cuCtxSetCurrent", self._context)
            self.driver.code(function, handle)

    def reserve(self, nbytes: int) -> None:
        """Ensure `nbytes` of scratch memory, which the kernels of the stream use in turn."""
        with LOCK:
            if nbytes > self._scratch_bytes:
                buffer = self.pool.allocate(nbytes)
                self._scratch.append(buffer)
                self._scratch_bytes = nbytes
                self.record.words[layout.DEVICE_SCRATCH >> 3] = buffer.memory

    def prepare(self, block: int, fails: bool) -> HandleLease:
        """Write the event and failure word of one instance of a task to its argument block at `block`.

        fails: whether the task can fail. The result owns the event and the word.
        """
        try:
            event, failure = self._events.pop()
        except IndexError:
            self.enter()
            event, failure = self.driver.get("cuEventCreate", BLOCKING_SYNC | NO_TIMING), 0
        if fails and not failure:
            self.enter()
            failure = self.driver.get("cuMemHostAlloc", 8, PORTABLE)
        words = (ctypes.c_int64 * 2).from_address(block + layout.ISSUED_EVENT)
        words[0], words[1] = event, failure if fails else 0
        return HandleLease(self._events, (event, failure))

    def explain(self, status: int) -> DeviceError:
        """Return the exception for a task whose status is a negated error code of the driver."""
        error = self.driver.error(-status, f"gpu:{self.index}")
        return DeviceError(
            f"{error}. Arrays there may be lost; those on cpu:0 are as they were, and a new process can use "
            "the device again"
        )


_open: dict[int, Gpu] = {}
_forked = False  # whether the parent process used devices before the fork, which this child cannot use
_can_release = True  # whether handles may be released: not in a forked child, nor at exit


def open_device(index: int) -> Gpu:
    """Return the GPU with this index, which is opened at the first call; raise DeviceError if unusable."""
    gpu = _open.get(index)
    if gpu is None:
        with LOCK:
            gpu = _open.get(index)
            if gpu is None:
                driver = current()
                count = driver.get("cuDeviceGetCount")
                if index >= count:
                    raise DeviceError(f"there is no device gpu:{index}: the driver has {count} GPUs")
                gpu = _open[index] = Gpu(driver, index)
    if _forked:
        raise DeviceError(
            f"gpu:{index} was in use when this process was forked, and cannot be used here; start processes "
            'by multiprocessing.get_context("spawn")'
        )
    return gpu


def _after_fork_in_child() -> None:
    global _forked, _can_release
    _forked = bool(_open)
    _can_release = not _forked
    WATCHERS.clear()


def _at_exit() -> None:
    global _can_release
    _can_release = False


atexit.register(_at_exit)
os.register_at_fork(after_in_child=_after_fork_in_child)
