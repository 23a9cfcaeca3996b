"""GPU tasks: from a planned task to a `Job`, like `tracejit.assembly.cpu_jobs`.

The argument block begins with the arguments of the driver's functions (`kernels.executor.layout`,
`ISSUED_...`).

    exp(%0)  ->  Job(words=[event, ..., function, 264, 1, 256, 1, 0, ..., 40, ValueAddress(%0), 1000, ...],
                     units=1)

The job of a kernel is a draft at first: `join` turns one draft into a launch, and several into a graph.
"""

# No `from __future__ import annotations`: a named tuple compiles every annotation that is a string.

from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Any, NamedTuple

from tracejit import ops
from tracejit.assembly.blocks import as_fused, words_of
from tracejit.assembly.gpu_kernels import GpuKernel, kernel_of
from tracejit.assembly.words import DeviceWork, Job, LaunchWord, ValueAddress, kernel_name
from tracejit.codegen.gpu.emit import emit_gpu
from tracejit.codegen.gpu.launch import EXTRA_SLOTS, LaunchDimensions
from tracejit.codegen.gpu.launch import launch as launch_of
from tracejit.codegen.gpu.product import product_launch, product_source, product_units, product_words
from tracejit.codegen.lower import lower
from tracejit.codegen.spec import Product
from tracejit.engine.cuda.device import Gpu, open_device
from tracejit.engine.cuda.graphs import FINISH_SLOTS, SETTER_SLOTS, KernelGraph, KernelNode, failed_task
from tracejit.errors import DeviceError, TracejitError, locate
from tracejit.ir.graph import Node, Value
from tracejit.ir.op import Op
from tracejit.ir.types import Device, name_of
from tracejit.ir.view import View
from tracejit.kernels.executor.layout import IN, ISSUED_PARAMETERS, OUT, WITHIN
from tracejit.kernels.gemm.plan import gemm_layout
from tracejit.kernels.gpu.plan import CALLS, COMPLEX_OPERATORS, gpu_call
from tracejit.loopnest.build import is_generated
from tracejit.passes.memory.aliases import can_fail
from tracejit.passes.memory.plan import PlannedTask

HEADER = ISSUED_PARAMETERS // 8  # words before the parameters


class PendingLaunch(NamedTuple):
    """A kernel to be launched, by itself or in a graph.

    key, source, slots: see `kernel_of`.
    words:   the words of its block, before those common to all kernels (`EXTRA_SLOTS`).
    scratch: the bytes of GPU memory that it needs for itself.
    """

    gpu: Gpu
    name: str
    key: Hashable
    source: Callable[[], str]
    slots: int
    launch: LaunchDimensions
    words: tuple[LaunchWord, ...]
    units: int
    scratch: int
    fails: bool

    def kernel(self, *, indirect: bool) -> GpuKernel:
        """Return the kernel. `indirect`: the kernel is for a graph."""
        return kernel_of(self.gpu, self.name, self.key, self.source, self.slots, indirect=indirect)


def gpu_of(node: Node) -> Device:
    """Return the GPU that runs a node. For a copy, it is the GPU on either side, preferably that of the
    result.
    """
    types = [v.type for v in (*node.outputs, *node.inputs)]
    return next(t.device for t in types if not t.on_host and not t.device.is_addressable)


def has_kernel(op: Op) -> bool:
    """Return whether GPUs have a kernel for an operator, either handwritten or generated."""
    return op.name in CALLS or is_generated(op)


def job(task: PlannedTask) -> Job:
    """Return the job of a planned task."""
    node = task.node
    device = gpu_of(node)
    gpu = open_device(device.index)
    if node.op is ops.copy_to:
        return _copy(node, gpu)
    if node.op is ops.matmul:
        return _product(node, Product(0, _full_view(node.inputs[0]), 1, _full_view(node.inputs[1]), 2), gpu)
    if node.op.name in CALLS:
        return _called(node, device, gpu)
    if node.op is not ops.fused:
        if not has_kernel(node.op):
            raise _missing(node, device)
        node = as_fused(node)
    lowered = lower(node, task.shared)
    if lowered.product is not None:
        return _product(node, lowered.product, gpu)
    launch, words = launch_of(lowered, gpu.processors), words_of(node, lowered)
    scratch = launch.grid[0] * lowered.scratch
    source = partial(emit_gpu, lowered.spec)
    return _launched(node, lowered.spec, source, launch, words, lowered.units, gpu, scratch)


def _product(node: Node, product: Product, gpu: Gpu) -> Job:
    """Return the job of a matrix product. Its kernel has no epilogue, see `Tuning.panels`."""
    operands = (*node.inputs, *node.outputs)
    a, b = operands[product.a], operands[product.b]
    assert product.result is not None
    layout = gemm_layout(
        product.a_view.shape, product.a_view.strides, product.b_view.shape, product.b_view.strides
    )
    assert layout is not None, "fusion copies operands that cannot be read in place"
    dtype = name_of(a.type.dtype)
    size = a.type.dtype.itemsize
    variant = dtype, layout.a.transposed, layout.b.transposed
    words: tuple[LaunchWord, ...] = (
        *product_words(layout, product.add),
        ValueAddress(a, size * product.a_view.offset),
        ValueAddress(b, size * product.b_view.offset),
        ValueAddress(operands[product.result]),
    )
    source, launch = partial(product_source, *variant), product_launch(layout, dtype)
    return _launched(node, ("matmul", *variant), source, launch, words, product_units(layout), gpu)


def _full_view(value: Value) -> View:
    return View.of_shape(value.type.shape)


def _called(node: Node, device: Device, gpu: Gpu) -> Job:
    """Return the job of an operator that has a handwritten kernel."""
    name, operands = node.op.name, (*node.inputs, *node.outputs)
    if node.inputs[0].type.dtype.kind == "c" and node.op.name not in COMPLEX_OPERATORS:
        raise _missing(node, device, " of complex numbers")
    call = gpu_call(name, [v.type.shape for v in operands], node.attrs, name_of(node.inputs[0].type.dtype))
    source = partial(library_source, call.kernel, call.dtype)
    words = (*call.words, *map(ValueAddress, operands))
    launch = LaunchDimensions((call.blocks, 1), (call.threads, 1), call.shared)
    key, scratch = ("library", call.kernel, call.dtype), call.blocks * call.scratch
    return _launched(node, key, source, launch, words, call.units, gpu, scratch)


def library_source(name: str, dtype: str) -> str:
    """Return the source of a handwritten kernel."""
    return f'from tracejit.kernels.gpu.table import make\n\nkernel = make("{name}", "{dtype}")\n'


def _launched(
    node: Node,
    key: Hashable,
    source: Callable[[], str],
    launch: LaunchDimensions,
    words: tuple[LaunchWord, ...],
    units: int,
    gpu: Gpu,
    scratch: int = 0,
) -> Job:
    """Return the draft job of a kernel, which `join` completes."""
    name, fails = kernel_name(node), can_fail(node)
    draft = PendingLaunch(gpu, name, key, source, len(words), launch, words, units, scratch, fails)
    draft_job = _issued(name, (), gpu, "engine_issue_kernel", fails, ())
    assert draft_job.issued is not None
    return draft_job._replace(issued=draft_job.issued._replace(join=join, draft=draft))


def join(jobs: Sequence[Job], after: Sequence[Sequence[int]]) -> Job:
    """Return the job of a segment: the launch of its only kernel, or of a graph."""
    drafts = [job.issued.draft for job in jobs if job.issued is not None]
    if len(drafts) > 1:
        return _graph(drafts, after)
    (draft,) = drafts
    gpu, kernel, launch = draft.gpu, draft.kernel(indirect=False), draft.launch
    gpu.reserve(draft.scratch)
    parameters = (*draft.words, draft.units, 0, 0)
    block: tuple[LaunchWord, ...] = (
        *(0, 0, 0, gpu.record.address),
        *(kernel.function, *launch.grid, *launch.threads, launch.shared),
        *[0] * 5,
        8 * len(parameters),
        *parameters,
    )
    assert len(block) == HEADER + len(parameters)
    return _issued(draft.name, block, gpu, "engine_issue_kernel", draft.fails, (kernel,))


def _graph(drafts: Sequence[PendingLaunch], after: Sequence[Sequence[int]]) -> Job:
    """Return the job of a graph of several kernels. Its values are the words that a launch fills in."""
    gpu = drafts[0].gpu
    kernels = [draft.kernel(indirect=True) for draft in drafts]
    values = [word for draft in drafts for word in draft.words if not isinstance(word, int)]
    nodes = [
        KernelNode(
            kernel.function,
            draft.launch.grid,
            draft.launch.threads,
            draft.launch.shared,
            [word if isinstance(word, int) else None for word in (*draft.words, draft.units, 0, 0)],
            tuple(before),
            draft.fails,
        )
        for draft, kernel, before in zip(drafts, kernels, after, strict=True)
    ]
    source = "from tracejit.kernels.gpu.kernel_graph import {} as kernel\n".format
    setter = kernel_of(
        gpu, "set blocks", "set blocks", lambda: source("set_blocks"), SETTER_SLOTS - len(EXTRA_SLOTS)
    )
    finish = kernel_of(gpu, "tell", "tell", lambda: source("tell"), FINISH_SLOTS, indirect=True)
    graph = KernelGraph(gpu, nodes, setter.function, finish.function, [draft.scratch for draft in drafts])
    remaining = iter(values)
    words = (0, 0, 0, gpu.record.address, 0, *(next(remaining) if w is None else w for w in graph.record))
    fails = bool(graph.fails)

    def prepare(block: int) -> object:
        return gpu.prepare(block, fails), graph.prepare(block)

    def failed(status: int) -> tuple[int, int]:
        rank, task_status = failed_task(status)
        return graph.fails[rank], task_status

    issued = DeviceWork(
        gpu.number,
        gpu.addresses["engine_issue_graph"],
        prepare,
        (*kernels, setter, finish),
        gpu.explain,
        failed=failed,
    )
    return Job(f"graph of {len(drafts)} kernels", (), words, 1, 1, issued=issued)


def _copy(node: Node, gpu: Gpu) -> Job:
    """Return the job of a copy between two devices, or within one."""
    (source,), target = node.inputs, node.output
    kinds = {(True, False): IN, (False, True): OUT, (False, False): WITHIN}
    kind = kinds[source.type.device.is_addressable, target.type.device.is_addressable]
    words = (
        0,
        0,
        0,
        gpu.record.address,
        kind,
        ValueAddress(target),
        ValueAddress(source),
        target.type.nbytes,
    )
    return _issued(node.op.name, words, gpu, "engine_issue_copy", False, ())


def _issued(
    name: str, words: tuple[LaunchWord, ...], gpu: Gpu, function: str, fails: bool, kernels: tuple[Any, ...]
) -> Job:
    prepare = partial(gpu.prepare, fails=fails)
    issued = DeviceWork(gpu.number, gpu.addresses[function], prepare, kernels, gpu.explain)
    return Job(name, (), words, 1, 1, issued=issued)


def _missing(node: Node, device: Device, detail: str = "") -> TracejitError:
    """Return the error for an operator that GPUs do not support yet."""
    error = DeviceError(
        f"{node.op.name}{detail} does not run on {device} yet (docs/guide/gpu.md lists what does). Move its "
        'operands first, as in x.to("cpu:0"), and the result back'
    )
    return locate(error, node.location)
