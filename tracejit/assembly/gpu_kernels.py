"""Kernels loaded on GPUs. They are compiled when a process first needs them, by Numba's front end, LLVM's
NVPTX back end and the driver.

    kernel = kernel_of(gpu, "exp", spec, partial(emit_gpu, spec), slots=12)
    kernel.function        # the function that the driver launches
"""

from __future__ import annotations

import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable

from tracejit.codegen.gpu.launch import EXTRA_SLOTS
from tracejit.codegen.objects.loader import compiler
from tracejit.engine.cuda.device import Gpu
from tracejit.forking import make_rlock

KEPT = 512
"""The number of kernels retained on devices for later programs."""


class GpuKernel:
    """A kernel on a device, loaded as long as this object lives. Its fields are those of a
    `codegen.objects.loader.Kernel`.
    """

    width = 1
    origin = "compiled"

    def __init__(self, gpu: Gpu, name: str, key: Hashable, source: str, slots: int) -> None:
        start = time.perf_counter()
        self.name, self.source = name, source
        self.key = hashlib.sha256(repr((key, gpu.processor)).encode()).hexdigest()
        image = compiler().image(source, slots, gpu.processor, gpu.driver)
        self._gpu = gpu
        self._module, self.function = gpu.load(image, "kernel")
        self.seconds = time.perf_counter() - start

    def __del__(self) -> None:
        if "_module" in vars(self):
            self._gpu.unload(self._module)


_lock = make_rlock()
_kernels: OrderedDict[tuple[int, Hashable, bool], GpuKernel] = OrderedDict()


def kernel_of(
    gpu: Gpu, name: str, key: Hashable, source: Callable[[], str], slots: int, *, indirect: bool = False
) -> GpuKernel:
    """Return the kernel that `key` identifies on a device.

    source:   generates its source text.
    slots:    the number of slots in its block, without those common to all kernels.
    indirect: whether its argument is the address of its block, as for kernels of graphs, not the block.
    """
    cache_key = gpu.number, key, indirect
    with _lock:
        kernel = _kernels.get(cache_key)
        if kernel is None:
            total = 0 if indirect else slots + len(EXTRA_SLOTS)
            kernel = _kernels[cache_key] = GpuKernel(gpu, name, (key, indirect), source(), total)
            if len(_kernels) > KEPT:
                _kernels.popitem(last=False)
        _kernels.move_to_end(cache_key)
        return kernel
