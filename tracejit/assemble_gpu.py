"""Tasks of GPUs: like `tracejit.assemble`, from a planned task to a `Job`.

The argument block begins with what the driver is given (`kernels.executor.layout`, `ISSUED_...`).

    exp(%0)  ->  Job(words=[event, ..., function, 264, 1, 256, 1, 0, ..., 40, At(%0), 1000, ...], units=1)

Kernels are compiled when a process first needs them: Numba's front end, LLVM's NVPTX back end, the driver.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from functools import partial
from typing import Any

from tracejit import ops
from tracejit.assemble import alone, kernel_name, words_of
from tracejit.codegen.gpu.emit import emit_gpu
from tracejit.codegen.gpu.launch import MORE, Launch
from tracejit.codegen.gpu.launch import launch as launch_of
from tracejit.codegen.gpu.product import product_launch, product_source, product_units, product_words
from tracejit.codegen.lower import lower
from tracejit.codegen.objects.loader import compiler
from tracejit.codegen.spec import Product
from tracejit.engine.cuda.device import Gpu, open_device
from tracejit.errors import DeviceError, TracejitError, locate
from tracejit.forking import make_rlock
from tracejit.ir.graph import Node, Value
from tracejit.ir.op import OPS, Trait
from tracejit.ir.types import CPU, Device, name_of
from tracejit.ir.view import View
from tracejit.kernels.attention.plan import CALLS as ATTENTION
from tracejit.kernels.executor.layout import IN, ISSUED_PARAMETERS, OUT, WITHIN
from tracejit.kernels.gemm.plan import gemm_layout
from tracejit.kernels.gpu.plan import CALLS, gpu_call
from tracejit.kernels.images.windows import WINDOWS
from tracejit.kernels.images.winograd_plan import CALLS as WINOGRAD
from tracejit.ops.communicate import BETWEEN_RANKS
from tracejit.passes.memory.aliases import can_fail
from tracejit.passes.memory.plan import PlannedTask
from tracejit.words import At, Issued, Job, Word

KEPT = 512
"""Kernels that stay on a device for the next program."""

HEADER = ISSUED_PARAMETERS // 8  # words before the parameters


MISSING = frozenset(
    {
        *(ops.callback, ops.loop, *BETWEEN_RANKS),
        *(OPS[name] for name in (*WINDOWS, *WINOGRAD, *ATTENTION) if name not in CALLS),
        *(op for op in OPS.values() if Trait.HOST in op.traits and op.name not in CALLS),
    }
)
"""Operators for which CPUs have a library, a kernel of its own or Python, and GPUs nothing yet."""


class GpuKernel:
    """A kernel on a device, for as long as somebody refers to this; the facts are those of a
    `codegen.objects.loader.Kernel`.
    """

    width = 1
    origin = "compiled"

    def __init__(self, gpu: Gpu, name: str, key: Hashable, source: str, slots: int) -> None:
        start = time.perf_counter()
        self.name, self.source, self.key = name, source, repr((key, gpu.processor))
        image = compiler().image(source, slots + len(MORE), gpu.processor, gpu.driver)
        self._gpu = gpu
        self._module, self.function = gpu.load(image, "kernel")
        self.seconds = time.perf_counter() - start

    def __del__(self) -> None:
        if "_module" in vars(self):
            self._gpu.unload(self._module)


_lock = make_rlock()
_kernels: OrderedDict[tuple[int, Hashable], GpuKernel] = OrderedDict()


def kernel_of(gpu: Gpu, name: str, key: Hashable, source: Callable[[], str], slots: int) -> GpuKernel:
    """The kernel on a device that `key` names: `source` is its text, its block has so many slots before those
    of all kernels.
    """
    with _lock:
        found = _kernels.get((gpu.number, key))
        if found is None:
            found = _kernels[gpu.number, key] = GpuKernel(gpu, name, key, source(), slots)
            if len(_kernels) > KEPT:
                _kernels.popitem(last=False)
        _kernels.move_to_end((gpu.number, key))
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
    if node.op in MISSING:
        raise _missing(node, device)
    if node.op is ops.matmul:
        return _product(node, Product(0, _whole(node.inputs[0]), 1, _whole(node.inputs[1]), 2), gpu)
    if node.op.name in CALLS:
        return _called(node, device, gpu)
    if node.op is not ops.fused:
        node = alone(node)
    lowered = lower(node, task.shared)
    if lowered.product is not None:
        return _product(node, lowered.product, gpu)
    name, slots = kernel_name(node), len(lowered.spec.slot_names())
    kernel = kernel_of(gpu, name, lowered.spec, partial(emit_gpu, lowered.spec), slots)
    launch = launch_of(lowered, gpu.processors)
    if lowered.scratch:
        gpu.reserve(launch.grid[0] * lowered.scratch)
    return _launched(node, kernel, launch, words_of(node, lowered), lowered.units, gpu)


def _product(node: Node, product: Product, gpu: Gpu) -> Job:
    """A matrix product; nothing follows it in its kernel, as `Tuning.panels` says."""
    operands = (*node.inputs, *node.outputs)
    a, b = operands[product.a], operands[product.b]
    assert product.result is not None
    layout = gemm_layout(
        product.a_view.shape, product.a_view.strides, product.b_view.shape, product.b_view.strides
    )
    assert layout is not None, "fusion copies operands that cannot be read in place"
    dtype = name_of(a.type.dtype)
    size = a.type.dtype.itemsize
    way = dtype, layout.a.transposed, layout.b.transposed
    words: tuple[Word, ...] = (
        *product_words(layout, product.add),
        At(a, size * product.a_view.offset),
        At(b, size * product.b_view.offset),
        At(operands[product.result]),
    )
    kernel = kernel_of(gpu, "matmul", ("matmul", *way), partial(product_source, *way), len(words))
    return _launched(node, kernel, product_launch(layout, dtype), words, product_units(layout), gpu)


def _whole(value: Value) -> View:
    return View.of_shape(value.type.shape)


def _called(node: Node, device: Device, gpu: Gpu) -> Job:
    """An operator with a kernel of its own."""
    name, operands = node.op.name, (*node.inputs, *node.outputs)
    if node.inputs[0].type.dtype.kind == "c":
        raise _missing(node, device, " of complex numbers")
    call = gpu_call(name, [v.type.shape for v in operands], node.attrs, name_of(node.inputs[0].type.dtype))
    source = (
        f'from tracejit.kernels.gpu.table import make\n\nkernel = make("{call.kernel}", "{call.dtype}")\n'
    )
    words = (*call.words, *map(At, operands))
    kernel = kernel_of(gpu, name, ("library", call.kernel, call.dtype), lambda: source, len(words))
    launch = Launch((call.blocks, 1), (call.threads, 1), call.shared)
    return _launched(node, kernel, launch, words, call.units, gpu)


def _launched(
    node: Node, kernel: GpuKernel, launch: Launch, words: tuple[Word, ...], units: int, gpu: Gpu
) -> Job:
    """The launch of a kernel with these words in its block, before those of all kernels (`MORE`)."""
    parameters = (*words, units, 0, 0)
    first = (kernel.function, *launch.grid, *launch.threads, launch.shared)
    block: tuple[Word, ...] = (
        *(0, 0, 0, gpu.record.address),
        *first,
        *[0] * 5,
        8 * len(parameters),
        *parameters,
    )
    assert len(block) == HEADER + len(parameters)
    return _issued(kernel_name(node), block, gpu, "engine_issue_kernel", can_fail(node), (kernel,))


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


def _missing(node: Node, device: Device, what: str = "") -> TracejitError:
    """The error for an operator that GPUs do not have yet."""
    error = DeviceError(
        f"{node.op.name}{what} does not run on {device} yet (docs/guide/gpu.md lists what does). Move its "
        'operands first, as in x.to("cpu:0"), and the result back'
    )
    return locate(error, node.location)
