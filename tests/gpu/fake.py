"""A driver of GPUs that computes on the CPU: memory, streams, events, modules, behind the same table.

    fake = fake_driver()
    x = tj.ones(3, device=tj.gpu(0))
    fake.fail("cuMemAlloc", 2)          # the next call returns this code

There are two devices. A thread runs what stands in their streams: the streams take turns at random, and now
and then it waits. Memory is poisoned when it is allocated and when it is freed, and nobody but what runs in a
stream can touch it: code that takes it for memory of the CPU ends the process. Kernels run on the simulator.
An error of what runs in a stream stays: every later call of that device returns it, until `restore`.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import mmap
import random
import re
import struct
import threading
import time
from collections import deque

import numpy as np

from tests.gpu.simulator import POISON, Simulated, object_code
from tracejit.codegen.gpu.launch import LaunchDimensions
from tracejit.engine.cuda import driver as drivers
from tracejit.engine.cuda.driver import NAMES, Driver
from tracejit.engine.cuda.graphs import PARAMETERS
from tracejit.kernels.executor.layout import NEVER

INVALID, OUT_OF_MEMORY, ILLEGAL_ADDRESS = 1, 2, 700
ERRORS = {
    INVALID: b"CUDA_ERROR_INVALID_VALUE",
    OUT_OF_MEMORY: b"CUDA_ERROR_OUT_OF_MEMORY",
    ILLEGAL_ADDRESS: b"CUDA_ERROR_ILLEGAL_ADDRESS",
}
MAY_FAIL = {
    "cuMemAlloc": OUT_OF_MEMORY,
    **dict.fromkeys(("cuMemHostAlloc", "cuGraphInstantiate", "cuModuleLoadData"), OUT_OF_MEMORY),
    **dict.fromkeys(("cuLaunchKernel", "cuGraphLaunch", "cuGraphExecKernelNodeSetParams"), INVALID),
    **dict.fromkeys(("cuMemcpyHtoDAsync", "cuMemcpyDtoHAsync", "cuMemcpyDtoDAsync"), INVALID),
    **dict.fromkeys(("cuEventCreate", "cuEventRecord"), INVALID),
}
"""What fails where `Fake.failures` is not 0, and with which code."""
ATTRIBUTES = {75: 9, 76: 0, 16: 4}
SLOWEST = 3e-4  # seconds that the thread waits now and then
PAGE = mmap.PAGESIZE

_protect = ctypes.CDLL(None).mprotect
_protect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


class Memory:
    """One allocation, in pages of its own."""

    def __init__(self, nbytes):
        self.nbytes = nbytes
        self.pages = mmap.mmap(-1, -(-(nbytes + 1) // PAGE) * PAGE)
        self.bytes = np.frombuffer(self.pages, np.uint8)
        self.address = self.bytes.ctypes.data
        self.bytes[:] = POISON
        self.allow(False)

    def allow(self, whether):
        """Let everybody touch it, or nobody."""
        assert _protect(self.address, len(self.bytes), 3 if whether else 0) == 0


class Fake:
    """The state of the driver; its methods named like the driver's functions are the table.

    launches:       how many kernels and graphs have been launched.
    graph_launches: how many of these were graphs.
    """

    def __init__(self, seed=0, limit=1 << 30):
        self.random = random.Random(seed)
        self.limit, self.used, self.launches, self.graph_launches = limit, 0, 0, 0
        self.graphs, self.executables = {}, {}
        self.resting = threading.Lock()  # nothing that runs in a stream has the memory of devices
        self.memory, self.pinned, self.images, self.modules, self.functions = {}, {}, {}, {}, {}
        self.streams, self.events = {}, {}
        self.broken = {}
        self.injected = {}
        self.failures, self.chance = 0.0, random.Random(seed)  # how often a call fails, of those that may
        self.failed = 0  # how many did
        self.handles = itertools.count(1000)
        self.changed = threading.Condition()
        self.here = threading.local()
        self.paused = False
        self.table = {}
        for name in NAMES:
            self.table[name] = self._callback(name)
        addresses = {name: ctypes.cast(f, ctypes.c_void_p).value for name, f in self.table.items()}
        self.driver = Driver(addresses, keep=self, image=self.image)
        threading.Thread(target=self._run, name="fake driver", daemon=True).start()

    def _callback(self, name):
        method = getattr(self, name)
        count = method.__code__.co_argcount - 1

        def call(*arguments):
            try:
                with self.changed:
                    code = self._injected(name)
                if code == 0 and name not in ("cuGetErrorName", "cuGetErrorString", "cuMemFree"):
                    code = self.broken.get(getattr(self.here, "device", 0), 0)
                return code or method(*arguments) or 0
            except Exception:
                import traceback

                traceback.print_exc()
                return 999

        return ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_int64] * count)(call)

    # ---- what tests do

    def fail(self, name, code, after=0):
        """Let a function return `code` once, after so many calls that do not."""
        self.injected[name] = [after, code]

    def _injected(self, name):
        planned = self.injected.get(name)
        if planned is None:
            fails = name in MAY_FAIL and self.failures and self.chance.random() < self.failures
            self.failed += bool(fails)
            return MAY_FAIL[name] if fails else 0
        planned[0] -= 1
        if planned[0] >= 0:
            return 0
        del self.injected[name]
        return planned[1]

    def break_device(self, device, code=ILLEGAL_ADDRESS):
        """What runs next in a stream of `device` fails, and all after it."""
        with self.changed:
            self.broken[device] = code
            for stream in self.streams.values():
                if stream["device"] == device:
                    for kind, *what in stream["queue"]:
                        if kind == "event":
                            self.events[what[0]] = True
                    stream["queue"].clear()
            self.changed.notify_all()

    def restore(self):
        """No device is broken any more, and nothing more will fail."""
        self.broken.clear()
        self.injected.clear()

    @contextlib.contextmanager
    def at_rest(self):
        """Nothing in any stream runs meanwhile."""
        with self.changed:
            self.paused = True
        try:
            yield
        finally:
            with self.changed:
                self.paused = False
                self.changed.notify_all()

    def image(self, draft):
        """In the place of PTX."""
        name = b"simulated %d" % next(self.handles)
        found = re.search(r"byval\(\[(\d+) x i64\]\)", draft.modules[-1])
        self.images[name] = object_code(draft), 8 * int(found[1]) if found else 0
        return name

    # ---- streams

    def _run(self):
        while True:
            with self.changed:
                ready = [s for s in self.streams.values() if s["queue"]]
                while not ready or self.paused:
                    self.changed.wait()
                    ready = [s for s in self.streams.values() if s["queue"]]
                stream = self.random.choice(ready)
                kind, *what = stream["queue"][0]
            if self.random.random() < 0.2:
                time.sleep(self.random.random() * SLOWEST)
            try:
                code = self._do(kind, *what)
            except Exception:
                import traceback

                traceback.print_exc()
                code = ILLEGAL_ADDRESS
            with self.changed:
                if stream["queue"]:
                    stream["queue"].popleft()
                if code:
                    self.broken[stream["device"]] = code
                self.changed.notify_all()

    def _do(self, kind, *what):
        if kind == "event":
            self.events[what[0]] = True
            return 0
        with self.resting:
            return self._do_with_memory(kind, *what)

    def _do_with_memory(self, kind, *what):
        memories = list(self.memory.values())
        for memory in memories:
            memory.allow(True)
        try:
            if kind == "copy":
                ctypes.memmove(*what)
            elif kind == "graph":
                self._run_graph(*what)
            else:
                kernel, launch, parameters = what
                self._run_kernel(kernel, ctypes.addressof(parameters), launch)
        finally:
            for memory in memories:
                memory.allow(False)
        return 0

    def _run_kernel(self, kernel, block, launch):
        kernel(block, launch, np.random.default_rng(self.random.getrandbits(32)))

    def _run_graph(self, nodes):
        """Nodes one by one, each of them as soon or as late as its dependencies allow."""
        left, done = dict(nodes), set()
        while left:
            handle = self.random.choice([h for h, node in left.items() if node[3] <= done])
            function, launch, arguments, _ = left.pop(handle)
            if self.random.random() < 0.1:
                time.sleep(self.random.random() * SLOWEST)
            kernel, size = self.functions[function]
            if size:
                self._run_kernel(kernel, ctypes.addressof(arguments), launch)
            else:
                block, words, count = struct.unpack("<3q", arguments.raw[:24])
                if all(ctypes.c_int64.from_address(words + 8 * i).value == NEVER for i in range(count)):
                    self._run_kernel(kernel, block, launch)
            done.add(handle)

    def _enqueue(self, stream, *item):
        with self.changed:
            self.streams[stream]["queue"].append(item)
            self.changed.notify_all()

    # ---- the functions

    def cuInit(self, flags):
        return 0

    def cuDriverGetVersion(self, place):
        return self._give(place, 13000)

    def cuGetErrorName(self, code, place):
        name = ERRORS.get(code, b"CUDA_ERROR_UNKNOWN")
        return self._give(place, ctypes.cast(ctypes.c_char_p(name), ctypes.c_void_p).value)

    cuGetErrorString = cuGetErrorName

    def cuDeviceGetCount(self, place):
        return self._give(place, 2)

    def cuDeviceGet(self, place, index):
        return self._give(place, index)

    def cuDeviceGetAttribute(self, place, which, device):
        return self._give(place, ATTRIBUTES[which])

    def cuDevicePrimaryCtxRetain(self, place, device):
        return self._give(place, device + 1)

    def cuCtxSetCurrent(self, context):
        self.here.device = context - 1

    def cuCtxSynchronize(self):
        with self.changed:
            while any(s["queue"] for s in self.streams.values()):
                self.changed.wait()

    def cuStreamCreate(self, place, flags):
        handle = next(self.handles)
        self.streams[handle] = {"device": self.here.device, "queue": deque()}
        return self._give(place, handle)

    def cuEventCreate(self, place, flags):
        handle = next(self.handles)
        self.events[handle] = True
        return self._give(place, handle)

    def cuEventRecord(self, event, stream):
        self.events[event] = False
        self._enqueue(stream, "event", event)

    def cuEventSynchronize(self, event):
        with self.changed:
            while not self.events[event]:
                self.changed.wait()
        return self.broken.get(self.here.device, 0)

    def cuMemAlloc(self, place, nbytes):
        if nbytes <= 0:
            return INVALID
        if self.used + nbytes > self.limit:
            return OUT_OF_MEMORY
        memory = Memory(nbytes)
        with self.changed:
            self.memory[memory.address] = memory
            self.used += nbytes
        return self._give(place, memory.address)

    def cuMemFree(self, address):
        with self.changed:
            memory = self.memory.pop(address)
            self.used -= memory.nbytes
            memory.allow(True)
            memory.bytes[:] = POISON

    def cuMemHostAlloc(self, place, nbytes, flags):
        words = np.zeros(nbytes // 8 + 1, np.int64)
        self.pinned[words.ctypes.data] = words
        return self._give(place, words.ctypes.data)

    def cuMemFreeHost(self, address):
        del self.pinned[address]

    def cuMemcpyHtoDAsync(self, target, source, nbytes, stream):
        staged = ctypes.create_string_buffer(ctypes.string_at(source, nbytes), nbytes)
        self._check(target, nbytes)
        self._enqueue(stream, "copy", target, staged, nbytes)

    def cuMemcpyDtoHAsync(self, target, source, nbytes, stream):
        self._check(source, nbytes)
        self._enqueue(stream, "copy", target, source, nbytes)
        with self.changed:  # memory that is not pinned: the driver waits
            while self.streams[stream]["queue"]:
                self.changed.wait()

    def cuMemcpyDtoDAsync(self, target, source, nbytes, stream):
        self._check(target, nbytes)
        self._check(source, nbytes)
        self._enqueue(stream, "copy", target, source, nbytes)

    def cuModuleLoadData(self, place, data):
        handle = next(self.handles)
        code, size = self.images[ctypes.string_at(data)]
        self.modules[handle] = Simulated(code), size
        return self._give(place, handle)

    def cuModuleGetFunction(self, place, module, name):
        handle = next(self.handles)
        self.functions[handle] = self.modules[module]
        return self._give(place, handle)

    def cuModuleUnload(self, module):
        del self.modules[module]

    def cuLaunchKernel(self, function, gx, gy, gz, tx, ty, tz, shared, stream, parameters, extra):
        words = (ctypes.c_int64 * 5).from_address(extra)
        if parameters or list(words[0::2]) != [1, 2, 0]:
            return INVALID
        size = ctypes.c_int64.from_address(words[3]).value
        copied = ctypes.create_string_buffer(ctypes.string_at(words[1], size), size)
        with self.changed:
            self.launches += 1
        launch = LaunchDimensions((gx, gy), (tx, ty), shared)
        self._enqueue(stream, "kernel", self.functions[function][0], launch, copied)

    def cuMemcpyHtoD(self, target, source, nbytes):
        self._check(target, nbytes)
        (memory,) = self._memories(target, nbytes)
        with self.resting:
            memory.allow(True)
            ctypes.memmove(target, source, nbytes)
            memory.allow(False)

    def cuGraphCreate(self, place, flags):
        self.graphs[handle := next(self.handles)] = {}
        return self._give(place, handle)

    def _node(self, parameters, after):
        """(function, launch, copied arguments, nodes that come before) of a kernel node."""
        packed = ctypes.string_at(parameters, PARAMETERS.size)
        function, gx, gy, gz, tx, ty, tz, shared, place, extra, kernel, context = PARAMETERS.unpack(packed)
        if extra or kernel or context or gz != 1 or tz != 1:
            return None
        size = self.functions[function][1]
        pointers = (ctypes.c_int64 * (1 if size else 3)).from_address(place)
        data = b"".join(ctypes.string_at(pointer, size or 8) for pointer in pointers)
        return (
            function,
            LaunchDimensions((gx, gy), (tx, ty), shared),
            ctypes.create_string_buffer(data, len(data)),
            after,
        )

    def cuGraphAddKernelNode(self, place, graph, before, count, parameters):
        after = set((ctypes.c_int64 * count).from_address(before)) if count else set()
        node = self._node(parameters, after)
        if node is None or not after <= self.graphs[graph].keys():
            return INVALID
        self.graphs[graph][handle := next(self.handles)] = node
        return self._give(place, handle)

    def cuGraphInstantiate(self, place, graph, flags):
        self.executables[handle := next(self.handles)] = dict(self.graphs[graph])
        return self._give(place, handle)

    def cuGraphExecKernelNodeSetParams(self, executable, node, parameters):
        before = self.executables[executable][node]
        made = self._node(parameters, before[3])
        if made is None or made[0] != before[0]:
            return INVALID
        self.executables[executable][node] = made

    def cuGraphLaunch(self, executable, stream):
        with self.changed:
            self.launches += 1
            self.graph_launches += 1
        self._enqueue(stream, "graph", list(self.executables[executable].items()))

    def cuGraphExecDestroy(self, executable):
        del self.executables[executable]

    def cuGraphDestroy(self, graph):
        del self.graphs[graph]

    def _check(self, address, nbytes):
        """What is copied lies in one allocation."""
        assert self._memories(address, nbytes)

    def _memories(self, address, nbytes):
        with self.changed:
            memories = list(self.memory.values())
        return [m for m in memories if m.address <= address and address + nbytes <= m.address + m.nbytes]

    @staticmethod
    def _give(place, value):
        ctypes.c_int64.from_address(place).value = value


_fake = None


def fake_driver(seed=0):
    """The one fake driver of this process: devices that are open stay so. `seed`: of one that is made now."""
    global _fake
    if _fake is None:
        _fake = Fake(seed)
    drivers.install(_fake.driver)
    return _fake
