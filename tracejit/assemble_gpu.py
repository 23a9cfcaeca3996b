"""Tasks of GPUs: like `tracejit.assemble`, from a planned task to a `Job`.

The argument block begins with what the driver is given (`kernels.executor.layout`, `ISSUED_...`).

    exp(%0)  ->  Job(words=[event, ..., function, 264, 1, 256, 1, 0, ..., 40, At(%0), 1000, ...], units=1)

Kernels are compiled when a process first needs them: Numba's front end, LLVM's NVPTX back end, the driver.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from functools import partial
from typing import Any

from tracejit import ops
from tracejit.assemble import alone, kernel_name, words_of
from tracejit.codegen.gpu.emit import emit_gpu
from tracejit.codegen.gpu.launch import MORE
from tracejit.codegen.gpu.launch import launch as launch_of
from tracejit.codegen.lower import lower
from tracejit.codegen.objects.loader import compiler
from tracejit.codegen.spec import KernelSpec
from tracejit.engine.cuda.device import Gpu, open_device
from tracejit.errors import DeviceError, TracejitError, locate
from tracejit.forking import make_rlock
from tracejit.ir.graph import Node
from tracejit.ir.op import OPS, Trait
from tracejit.ir.types import CPU, Device
from tracejit.kernels.attention.plan import CALLS as ATTENTION
from tracejit.kernels.executor.layout import IN, ISSUED_PARAMETERS, OUT, WITHIN
from tracejit.kernels.images.windows import WINDOWS
from tracejit.kernels.library.plan import CALLS
from tracejit.passes.memory.aliases import can_fail
from tracejit.passes.memory.plan import PlannedTask
from tracejit.words import At, Issued, Job, Word

KEPT = 512
"""Kernels that stay on a device for the next program."""

HEADER = ISSUED_PARAMETERS // 8  # words before the parameters


MISSING = frozenset(
    {
        ops.matmul,
        ops.callback,
        *(OPS[name] for name in (*WINDOWS, *ATTENTION, *CALLS) if name != ops.copy.name),
    }
)
"""Operators for which CPUs have a library or a kernel of its own, and GPUs nothing yet."""


class GpuKernel:
    """A kernel on a device, for as long as somebody refers to this; the facts are those of a
    `codegen.objects.loader.Kernel`.
    """

    width = 1
    origin = "compiled"

    def __init__(self, gpu: Gpu, name: str, spec: KernelSpec) -> None:
        start = time.perf_counter()
        self.name, self.source, self.key = name, emit_gpu(spec), repr((spec, gpu.processor))
        image = compiler().image(self.source, len(spec.slot_names()) + len(MORE), gpu.processor, gpu.driver)
        self._gpu = gpu
        self._module, self.function = gpu.load(image, "kernel")
        self.seconds = time.perf_counter() - start

    def __del__(self) -> None:
        if "_module" in vars(self):
            self._gpu.unload(self._module)


_lock = make_rlock()
_kernels: OrderedDict[tuple[int, KernelSpec], GpuKernel] = OrderedDict()


def kernel_of(gpu: Gpu, name: str, spec: KernelSpec) -> GpuKernel:
    """The kernel of a structure on a device."""
    with _lock:
        found = _kernels.get((gpu.number, spec))
        if found is None:
            found = _kernels[gpu.number, spec] = GpuKernel(gpu, name, spec)
            if len(_kernels) > KEPT:
                _kernels.popitem(last=False)
        _kernels.move_to_end((gpu.number, spec))
        return found


def device_of(node: Node) -> Device:
    """The GPU that a node is for: for a copy, the one on either side, that of the result first."""
    types = [v.type for v in (*node.outputs, *node.inputs)]
    return next(t.device for t in types if not t.on_host and t.device.kind != CPU.kind)


def job(task: PlannedTask) -> Job:
    """What is issued for a planned task."""
    node = task.node
    device = device_of(node)
    gpu = open_device(device.index)
    if node.op is ops.copy_to:
        return _copy(node, gpu)
    if node.op is not ops.fused:
        if node.op in MISSING or Trait.HOST in node.op.traits:
            raise _missing(node.op.name, device, node)
        node = alone(node)
    lowered = lower(node, task.shared)
    if lowered.product is not None:
        raise _missing("matmul", device, node)
    name = kernel_name(node)
    launch = launch_of(lowered, gpu.processors)
    kernel = kernel_of(gpu, name, lowered.spec)
    if lowered.scratch:
        gpu.reserve(launch.grid[0] * lowered.scratch)
    parameters = (*words_of(node, lowered), lowered.units, 0, 0)
    first = (kernel.function, *launch.grid, *launch.threads, launch.shared)
    words: tuple[Word, ...] = (
        0,
        0,
        0,
        gpu.record.address,
        *first,
        *[0] * 5,
        8 * len(parameters),
        *parameters,
    )
    assert len(words) == HEADER + len(parameters)
    return _issued(name, words, gpu, "engine_issue_kernel", can_fail(node), (kernel,))


def _copy(node: Node, gpu: Gpu) -> Job:
    """Memory between two devices."""
    (source,), target = node.inputs, node.output
    kinds = {(True, False): IN, (False, True): OUT, (False, False): WITHIN}
    kind = kinds[source.type.device.kind == CPU.kind, target.type.device.kind == CPU.kind]
    words = (0, 0, 0, gpu.record.address, kind, At(target), At(source), target.type.nbytes)
    return _issued(node.op.name, words, gpu, "engine_issue_copy", False, ())


def _issued(
    name: str, words: tuple[Word, ...], gpu: Gpu, function: str, fails: bool, kernels: tuple[Any, ...]
) -> Job:
    prepare = partial(gpu.prepare, fails=fails)
    issued = Issued(gpu.number, gpu.addresses[function], prepare, kernels, gpu.explain)
    return Job(name, (), words, 1, 1, issued=issued)


def _missing(name: str, device: Device, node: Node) -> TracejitError:
    """The error for an operator that GPUs do not have yet."""
    error = DeviceError(
        f"{name} does not run on {device} yet; elementwise operators, reductions, indexing and copies do. "
        'Move its operands first, as in x.to("cpu:0")'
    )
    return locate(error, node.location)
