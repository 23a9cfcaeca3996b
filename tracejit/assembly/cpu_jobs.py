"""CPU tasks: from a planned task to the kernels to load, an argument block and patches.

Each planned task becomes a `Job`: the kernels it needs (`Recipe`s), its argument block as *words* (see
`words`), and the division of its work into units.

    matmul(%0, %1)
        ->  Job(recipes=[gemm float32],
                words=[ValueAddress(%0), ValueAddress(%1), ValueAddress(%2), sgemm, 1024, ...], units=4)

A `fused` node of kind ``panel`` is a product whose kernel calls the generated kernel after each panel: one
job with two kernels and two consecutive blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tracejit import ops
from tracejit.assembly.blocks import as_fused, words_of
from tracejit.assembly.cpu_kernels import generated_kernel, library_kernel
from tracejit.assembly.host_tasks import Callback, Communication, Routine
from tracejit.assembly.loops import loop_job
from tracejit.assembly.products import matmul, panel
from tracejit.assembly.words import ExchangeTag, Job, LaunchWord, ValueAddress, kernel_name
from tracejit.codegen.lower import lower
from tracejit.codegen.spec import Lowered
from tracejit.ir.graph import Node
from tracejit.ir.op import Op, Trait
from tracejit.ir.types import name_of
from tracejit.kernels.attention import plan as attention_plan
from tracejit.kernels.images import winograd_plan
from tracejit.kernels.images.windows import WINDOWS, window_call
from tracejit.kernels.library.plan import CALLS, routine_call
from tracejit.kernels.split import KernelCall
from tracejit.ops.communicate import BETWEEN_RANKS, COLLECTIVE, agree, transport
from tracejit.ops.structural import CALLBACKS
from tracejit.passes.memory.plan import PlannedTask


def job(task: PlannedTask) -> Job:
    """Return the job of a planned task."""
    node = task.node
    if node.op is ops.loop:
        return loop_job(node, job)
    special = _JOBS.get(node.op)
    if special is not None:
        return special(node)
    library = _library_kernel(node.op.name)
    if library is not None:
        return _called(node, *library)
    if Trait.HOST in node.op.traits:
        return _routine(node)
    if node.op is not ops.fused:
        node = as_fused(node)
    lowered = lower(node, task.shared, task.subdivision)
    result = panel(node, lowered) if lowered.product is not None else _generated(node, lowered)
    return result._replace(name=ops.copy_to.name) if task.node.op is ops.copy_to else result


# ---------------------------------------------------------------------------------------- kernels


def _generated(node: Node, lowered: Lowered) -> Job:
    name = kernel_name(node)
    return Job(
        name,
        (generated_kernel(name, lowered),),
        words_of(node, lowered),
        lowered.units,
        lowered.chunk,
        lowered.scratch,
    )


def _called(node: Node, table: str, call: Callable[..., KernelCall]) -> Job:
    """Return the job of an operator that has a handwritten kernel in a table."""
    return _with_operands(node, table, _call_of(node, call))


def _call_of(node: Node, call: Callable[..., Any]) -> Any:
    """Return the result of `call` for the shapes and the dtype of a node."""
    operands = (*node.inputs, *node.outputs)
    dtype = name_of(operands[-1].type.dtype)
    return call(node.op.name, [v.type.shape for v in operands], node.attrs, dtype)


def _with_operands(node: Node, table: str, call: KernelCall) -> Job:
    """Return the job of a kernel call. The addresses of the operands are last in the block."""
    recipe, operands = (
        library_kernel(call.kernel, call.dtype, table),
        map(ValueAddress, (*node.inputs, *node.outputs)),
    )
    return Job(node.op.name, (recipe,), (*call.words, *operands), call.units, call.chunk, call.scratch)


# ---------------------------------------------------------------------------------------- Python


def _callback(node: Node) -> Job:
    call = Callback(CALLBACKS[node.attrs["id"]], node.inputs)
    return Job("callback", (), tuple(ValueAddress(v) for v in node.inputs), 0, 1, callable=call)


def _routine(node: Node) -> Job:
    """Return the job of a NumPy routine, or of a kernel instead if there is little work."""
    shapes = [v.type.shape for v in (*node.inputs, *node.outputs)]
    call = routine_call(node.op.name, shapes, node.attrs, name_of(node.inputs[0].type.dtype))
    return _hosted(node) if call is None else _with_operands(node, "LIBRARY", call)


def _hosted(node: Node) -> Job:
    operands = (*node.inputs, *node.outputs)
    return Job(node.op.name, (), tuple(map(ValueAddress, operands)), 0, 1, callable=Routine(node))


def _communicating(node: Node) -> Job:
    operands: tuple[LaunchWord, ...] = tuple(map(ValueAddress, (*node.inputs, *node.outputs)))
    words = (*operands, ExchangeTag()) if node.op in COLLECTIVE else operands
    plan = None if node.op is agree else transport().plan(node)
    call = Communication(node, plan)
    return Job(node.op.name, (), words, 0, 1, callable=call, plan=0 if plan is None else plan.address)


_JOBS: dict[Op, Callable[[Node], Job]] = {
    ops.matmul: matmul,
    ops.callback: _callback,
    **dict.fromkeys(BETWEEN_RANKS, _communicating),
}


Call = Callable[..., KernelCall]

_TABLES: tuple[tuple[str, Mapping[str, Any], Call | None], ...] = (
    ("IMAGES", WINDOWS, window_call),
    ("IMAGES", winograd_plan.CALLS, winograd_plan.winograd_call),
    ("ATTENTION", attention_plan.CALLS, None),
    ("LIBRARY", CALLS, None),
)
"""Tables of handwritten kernels: the name of the table, its operators, and the function that builds the
call of each operator. If that is None, the mapping of operators contains the functions.
"""


def _library_kernel(name: str) -> tuple[str, Call] | None:
    """Return the table with an operator's kernel and the function that builds its call, or None if there
    is no such kernel.
    """
    for table, operators, call in _TABLES:
        if name in operators:
            return table, operators[name] if call is None else call
    return None
