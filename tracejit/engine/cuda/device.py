"""GPUs as devices of the engine: a lane whose tasks are issued to a stream, and a thread that watches it.

    gpu = open_device(0)            # raises DeviceError: what is missing
    gpu.number                      # of its lane, its pool and its arenas
    gpu.load(draft, "kernel")       # a function that tasks launch
    gpu.prepare(block, fails)       # one instance of a task has for itself: an event, a word for failures

A device is opened once, when it is first named, on its primary context, which other libraries share. Its
kernels run on one stream, in the order in which they are issued (`kernels.executor.devices`).
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

CAPABILITY_MAJOR, CAPABILITY_MINOR, PROCESSORS = 75, 76, 16  # attributes of a device
NON_BLOCKING = 1  # flag of a stream: it does not wait for the default one
SLEEPS, NO_TIMING = 1, 2  # flags of an event: whoever waits for it sleeps; it takes no time
PINNED = 1  # flag of memory of the host: all contexts see it

OLDEST = 7, 5
"""The oldest compute capability for which kernels are made."""

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
"""Functions that the executor calls, by the word of the device's record that has their address."""

Loader = Callable[[], Any]
_loader: Loader | None = None


def install(loader: Loader) -> None:
    """Set what loads the native functions for GPUs: it returns their addresses by name."""
    global _loader
    _loader = loader


class HandleLease:
    """Handles that one instance uses, free again when it is gone. No other line of Python runs then."""

    __slots__ = ("_free", "_handles")

    def __init__(self, free: deque[Any], handles: Any) -> None:
        self._free, self._handles = free, handles

    def __del__(self) -> None:
        self._free.append(self._handles)


class Gpu:
    """An open GPU.

    number:     among the devices of the engine
    processors: of the GPU
    processor:  its kind, as LLVM names it: ``sm_90``
    """

    def __init__(self, driver: Driver, index: int) -> None:
        self.driver, self.index, self.number = driver, index, GPU_KIND.first + index
        device = driver.get("cuDeviceGet", index) & 0xFFFFFFFF
        major, minor, self.processors = (
            driver.get("cuDeviceGetAttribute", which, device)
            for which in (CAPABILITY_MAJOR, CAPABILITY_MINOR, PROCESSORS)
        )
        if (major, minor) < OLDEST:
            raise DeviceError(
                f"gpu:{index} has compute capability {major}.{minor}; expected "
                f"{OLDEST[0]}.{OLDEST[1]} at least"
            )
        self.processor = f"sm_{major}{minor}"
        self._context = driver.get("cuDevicePrimaryCtxRetain", device)
        self.enter()
        self.record = Record(layout.DEVICE_BYTES)
        self.record.words[layout.DEVICE_CONTEXT >> 3] = self._context
        self.record.words[layout.DEVICE_STREAM >> 3] = driver.get("cuStreamCreate", NON_BLOCKING)
        for word, name in FUNCTIONS.items():
            self.record.words[word >> 3] = driver.addresses[name]
        self._scratch: list[memory.Buffer] = []  # the last one is in use; kernels in flight may use others
        self._scratch_bytes = 0
        self._events: deque[tuple[int, int]] = deque()  # and the words for failures that go with them
        self.pool = DevicePool(f"gpu:{index}", self._allocate, self._free)
        memory.add_pool(self.number, self.pool)
        assert _loader is not None, "tracejit.targets.gpu installs one"
        self.addresses = _loader()
        self._watch()

    def enter(self) -> None:
        """Let this thread call the driver for this device."""
        self.driver.call("cuCtxSetCurrent", self._context)

    def _allocate(self, nbytes: int) -> int:
        self.enter()
        return self.driver.get("cuMemAlloc", nbytes)

    def _free(self, address: int) -> None:
        self.release("cuMemFree", address)

    def _watch(self) -> None:
        """Have a thread that completes what the device has done."""
        lane = native.lane_of(self.number, self.record.address)
        prototype = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * 3)
        watch = prototype(self.addresses["engine_watch"])
        WATCHERS.append(CompletionThread(f"gpu:{self.index} watcher", lane, watch))

    def load(self, image: bytes, name: str) -> tuple[int, int]:
        """A module of kernels, and its function `name`."""
        self.enter()
        data = ctypes.create_string_buffer(image)
        symbol = ctypes.create_string_buffer(name.encode())
        module = self.driver.get("cuModuleLoadData", ctypes.addressof(data))
        return module, self.driver.get("cuModuleGetFunction", module, ctypes.addressof(symbol))

    def unload(self, module: int) -> None:
        """Take a module out again; nothing of it runs any more."""
        self.release("cuModuleUnload", module)

    def release(self, function: str, handle: int) -> None:
        """Release a handle of the driver that nothing uses any more, by the function for it."""
        if _returns:
            self.driver.code("cuCtxSetCurrent", self._context)
            self.driver.code(function, handle)

    def reserve(self, nbytes: int) -> None:
        """Have at least so much scratch memory, which the kernels of the stream use one after the other."""
        with LOCK:
            if nbytes > self._scratch_bytes:
                buffer = self.pool.allocate(nbytes)
                self._scratch.append(buffer)
                self._scratch_bytes = nbytes
                self.record.words[layout.DEVICE_SCRATCH >> 3] = buffer.memory

    def prepare(self, block: int, fails: bool) -> HandleLease:
        """Write what one instance of a task has for itself into its argument block, at address `block`."""
        try:
            event, failure = self._events.pop()
        except IndexError:
            self.enter()
            event, failure = self.driver.get("cuEventCreate", SLEEPS | NO_TIMING), 0
        if fails and not failure:
            self.enter()
            failure = self.driver.get("cuMemHostAlloc", 8, PINNED)
        words = (ctypes.c_int64 * 2).from_address(block + layout.ISSUED_EVENT)
        words[0], words[1] = event, failure if fails else 0
        return HandleLease(self._events, (event, failure))

    def explain(self, status: int) -> DeviceError:
        """The exception for a task whose status, negative, is a code of the driver."""
        error = self.driver.error(-status, f"gpu:{self.index}")
        return DeviceError(
            f"{error}. Arrays there may be lost; those on cpu:0 are as they were, and a new process can use "
            "the device again"
        )


_open: dict[int, Gpu] = {}
_forked = False  # this process has the parent's devices, which a child cannot use
_returns = True  # memory and modules are given back: not in such a child, nor when the process ends


def open_device(index: int) -> Gpu:
    """The GPU with this number; raises DeviceError if it cannot be used."""
    found = _open.get(index)
    if found is None:
        with LOCK:
            found = _open.get(index)
            if found is None:
                driver = current()
                count = driver.get("cuDeviceGetCount")
                if index >= count:
                    raise DeviceError(f"there is no device gpu:{index}: the driver has {count} GPUs")
                found = _open[index] = Gpu(driver, index)
    if _forked:
        raise DeviceError(
            f"gpu:{index} was in use when this process was forked, and cannot be used here; start processes "
            'by multiprocessing.get_context("spawn")'
        )
    return found


def _after_fork_in_child() -> None:
    global _forked, _returns
    _forked = bool(_open)
    _returns = not _forked
    WATCHERS.clear()


def _at_exit() -> None:
    global _returns
    _returns = False


atexit.register(_at_exit)
os.register_at_fork(after_in_child=_after_fork_in_child)
