"""From a memory plan to what the engine runs: kernels to load, tasks, argument blocks and patches.

Each planned task becomes a `Job`: the kernels it needs (`Recipe`s), its argument block as *words* (see
`words`), and how its work is split.

    matmul(%0, %1)
        ->  Job(recipes=[gemm float32], words=[At(%0), At(%1), At(%2), sgemm, 1024, ...], units=4)

A `fused` node of kind ``panel`` is a product whose kernel calls the generated one after each panel: one job
with two kernels and two blocks, one behind the other.
"""

# No `from __future__ import annotations`: a named tuple compiles every annotation that is a string.

import ctypes
import functools
from collections.abc import Callable, Mapping, Sequence
from operator import index
from typing import Any

import numpy as np

from tracejit import ops
from tracejit.assembly.loops import loop_job, place_of
from tracejit.assembly.words import At, Distance, Job, Ref, Tag, Word, kernel_name
from tracejit.codegen.lower import lower
from tracejit.codegen.objects.loader import Recipe
from tracejit.codegen.spec import IntegerSlot, KernelSpec, Lowered
from tracejit.engine.hosts import OperatorError, communication_is_wanted
from tracejit.errors import LinAlgError, OutOfBoundsError, PeerError, TracejitError, VerificationError, locate
from tracejit.ir.evaluate import evaluate_node
from tracejit.ir.graph import Builder, Graph, Node, Value
from tracejit.ir.moving import Differs
from tracejit.ir.op import Op, Trait
from tracejit.ir.types import ArrayType, is_floating, name_of
from tracejit.ir.view import View
from tracejit.kernels.attention import plan as attention_plan
from tracejit.kernels.gemm.plan import (
    Gemm,
    GemmPlan,
    gemm_layout,
    gemm_plan,
    gemm_slots,
    gram_plan,
    is_gram,
    packing,
)
from tracejit.kernels.images import winograd_plan
from tracejit.kernels.images.windows import WINDOWS, window_call
from tracejit.kernels.library.plan import CALLS, ROUTINES
from tracejit.kernels.split import Call, ceil_div
from tracejit.ops.communicate import BETWEEN_RANKS, COLLECTIVE, agree, transport
from tracejit.ops.structure import CALLBACKS
from tracejit.passes.memory.aliases import can_fail
from tracejit.passes.memory.plan import PlannedTask
from tracejit.tuning import tuning_of


def job(task: PlannedTask) -> Job:
    """The job of a planned task."""
    node = task.node
    if node.op is ops.loop:
        return loop_job(node, job)
    special = _JOBS.get(node.op)
    if special is not None:
        return special(node)
    if node.op.name in WINDOWS:
        return _called(node, "IMAGES", window_call)
    if node.op.name in winograd_plan.CALLS:
        return _called(node, "IMAGES", winograd_plan.winograd_call)
    if node.op.name in attention_plan.CALLS:
        return _called(node, "ATTENTION", attention_plan.CALLS[node.op.name])
    if node.op.name in CALLS:
        return _called(node, "LIBRARY", CALLS[node.op.name])
    if node.op in BETWEEN_RANKS:
        return _communicating(node)
    if Trait.HOST in node.op.traits:
        return _routine(node)
    if node.op is not ops.fused:
        node = as_fused(node)
    lowered = lower(node, task.shared, task.parts)
    made = _panel(node, lowered) if lowered.product is not None else _generated(node, lowered)
    return made._replace(name=ops.copy_to.name) if task.node.op is ops.copy_to else made


def as_fused(node: Node) -> Node:
    """A `fused` node around one node; a copy from elsewhere is one, as all CPU devices see all memory."""
    body = Builder()
    inputs = [body.input(v.type) for v in node.inputs]
    outputs = body.copy(node, inputs) if node.op is not ops.copy_to else [body.emit(ops.copy, *inputs)]
    return Node(
        ops.fused, node.inputs, node.outputs, {"body": body.graph(outputs), "kind": "map"}, node.location
    )


# ---------------------------------------------------------------------------------------- generated kernels


def _generated(node: Node, lowered: Lowered) -> Job:
    name = kernel_name(node)
    return Job(
        name,
        (_recipe(name, lowered),),
        words_of(node, lowered),
        lowered.units,
        lowered.chunk,
        lowered.scratch,
    )


def _recipe(name: str, lowered: Lowered) -> Recipe:
    return Recipe(name, lowered.spec, lambda: source_of(lowered.spec))


def source_of(spec: KernelSpec) -> str:
    """The source of a generated kernel: ``kernel(block, lo, hi, scratch) -> status``."""
    from tracejit.codegen.cpu.emit import (
        emit_cpu,  # where all kernels are in the store, nothing writes source
    )

    return emit_cpu(spec)


def words_of(node: Node, lowered: Lowered) -> tuple[Word, ...]:
    """The block of a generated kernel."""
    operands = (*node.inputs, *node.outputs)
    words: list[Word] = []
    for slot in lowered.slots:
        if isinstance(slot, IntegerSlot):
            words.append(slot.value)
        else:
            words.append(At(operands[slot.operand], slot.byte_offset))
    return tuple(words)


# -------------------------------------------------------------------------------------------- library kernels


def _library(name: str, dtype: str, table: str = "LIBRARY") -> Recipe:
    source = (
        f"from tracejit.kernels.{table.lower()}.table import {table}\n\n"
        f'kernel = {table}["{name}", "{dtype}"]\n'
    )
    return Recipe(name if name == "copy" else f"{name} {dtype}", ("library", name, dtype), lambda: source)


def _panel(node: Node, lowered: Lowered) -> Job:
    """A matrix product, followed by the generated kernel on the rows of each panel."""
    product = lowered.product
    assert product is not None
    operands = (*node.inputs, *node.outputs)
    has_epilogue = any(section.steps for section in lowered.spec.sections)
    a, b = (operands[product.a], product.a_view), (operands[product.b], product.b_view)
    in_scratch = product.result is None
    c = lowered.scratch if product.result is None else At(operands[product.result])
    gemm, plain, split, room = _gemm(a, b, c, has_epilogue, product.add)
    name = kernel_name(node)
    dtype = a[0].type.dtype
    if not has_epilogue:
        plain[Gemm.ADD] = product.add
        return Job(name, (gemm,), _row(plain, Gemm), split.units, split.chunk, room)
    panel = in_scratch * split.panel_rows * split.panel_columns * dtype.itemsize
    line = tuning_of(node.outputs[0].type.device).caches.line
    before = lowered.scratch + ceil_div(panel, line) * line
    linked: dict[Any, Word] = {
        Gemm.EPILOGUE: Ref(1),
        Gemm.EPILOGUE_BLOCK: Distance(len(Gemm)),
        Gemm.IN_SCRATCH: in_scratch,
        Gemm.PACKED: before,
    }
    words = (*_row({**plain, **linked}, Gemm), *words_of(node, lowered))
    return Job(name, (gemm, _recipe(name, lowered)), words, split.units, split.chunk, before + room)


def _matmul(node: Node) -> Job:
    a, b = ((v, View.of_shape(v.type.shape)) for v in node.inputs)
    gemm, words, split, room = _gemm(a, b, At(node.output))
    return Job("matmul", (gemm,), _row(words, Gemm), split.units, split.chunk, room)


def _gemm(
    a: tuple[Value, View], b: tuple[Value, View], c: Word, has_epilogue: bool = False, adds: bool = False
) -> tuple[Recipe, dict[Any, Word], GemmPlan, int]:
    """The kernel of the product of two views, its slots, its split, and bytes of scratch memory that it needs
    besides. `adds`: to what is in `c`.
    """
    (a_value, a_view), (b_value, b_view) = a, b
    dtype = a_value.type.dtype
    layout = gemm_layout(a_view.shape, a_view.strides, b_view.shape, b_view.strides)
    if layout is None:
        raise VerificationError(
            f"matmul of {a_view} and {b_view}: not readable in place; fuse copies such operands"
        )
    kernel = "gemm"
    split = gemm_plan(layout.batch, layout.m, layout.n, layout.k, dtype.itemsize, epilogue=has_epilogue)
    if is_floating(dtype) and layout.m == 1 and layout.n == 1:
        kernel = "dot"
    elif (
        is_floating(dtype)
        and not (has_epilogue or adds)
        and a_value is b_value
        and is_gram(layout)
        and a_view.offset == b_view.offset
    ):
        kernel, split = "gram", gram_plan(layout.batch, layout.n)
    slots: dict[Any, Word] = dict(gemm_slots(layout, split, name_of(dtype)))
    slots |= {
        Gemm.A: At(a_value, a_view.offset * dtype.itemsize),
        Gemm.B: At(b_value, b_view.offset * dtype.itemsize),
        Gemm.C: c,
        Gemm.EPILOGUE: 0,
        Gemm.EPILOGUE_BLOCK: 0,
        Gemm.IN_SCRATCH: 0,
        Gemm.ADD: 0,
        Gemm.PACKED: 0,
    }
    room = packing(layout, split, dtype.itemsize) if is_floating(dtype) else 0
    return _library(kernel, name_of(dtype)), slots, split, room


def _called(node: Node, table: str, call: Callable[..., Call]) -> Job:
    """An operator with a kernel of its own in a table."""
    return _with_operands(node, table, _call_of(node, call))


def _call_of(node: Node, call: Callable[..., Any]) -> Any:
    """The result of `call` for the shapes and the dtype of a node."""
    operands = (*node.inputs, *node.outputs)
    dtype = name_of(operands[-1].type.dtype)
    return call(node.op.name, [v.type.shape for v in operands], node.attrs, dtype)


def _with_operands(node: Node, table: str, made: Call) -> Job:
    """The job of a call; the operands' addresses come last in the block."""
    recipe, operands = _library(made.kernel, made.dtype, table), map(At, (*node.inputs, *node.outputs))
    return Job(node.op.name, (recipe,), (*made.words, *operands), made.units, made.chunk, made.scratch)


def _row(slots: Mapping[Any, Word], names: Any) -> tuple[Word, ...]:
    """The words of a block whose slots have names."""
    return tuple([slots[name] for name in _members(names)])


@functools.cache
def _members(names: Any) -> tuple[Any, ...]:
    """The members of an enumeration, which takes its time to list them."""
    return tuple(names)


# --------------------------------------------------------------------------------------------- Python tasks


def _callback(node: Node) -> Job:
    call = Callback(CALLBACKS[node.attrs["id"]], node.inputs)
    return Job("callback", (), tuple(At(v) for v in node.inputs), 0, 1, callable=call)


class Callback:
    """Calls a Python function with copies of arrays and numbers, which it finds through an argument block."""

    def __init__(self, function: Callable[..., object], operands: Sequence[Value]):
        self._function = function
        self._types = [v.type for v in operands]

    def __call__(self, block: int) -> None:
        self._function(*[_memory(type, block + 8 * i).copy() for i, type in enumerate(self._types)])


def _routine(node: Node) -> Job:
    """A routine of NumPy's, or a kernel in its place where there is little to do."""
    call = ROUTINES.get(node.op.name)
    made = None if call is None else _call_of(node, call)
    return _hosted(node) if made is None else _with_operands(node, "LIBRARY", made)


def _hosted(node: Node) -> Job:
    operands = (*node.inputs, *node.outputs)
    return Job(node.op.name, (), tuple(map(At, operands)), 0, 1, callable=Routine(node))


class Routine:
    """Runs NumPy's meaning of an operator on the memory of its operands, found through an argument block."""

    def __init__(self, node: Node):
        self._node = node

    def __call__(self, block: int) -> None:
        node = self._node
        operands = (*node.inputs, *node.outputs)
        arrays = [_memory(value.type, block + 8 * slot) for slot, value in enumerate(operands)]
        count = len(node.inputs)
        try:
            with np.errstate(all="ignore"):
                results = evaluate_node(node, arrays[:count])
        except TracejitError as error:
            raise OperatorError(error) from None
        for out, result in zip(arrays[count:], results, strict=True):
            np.copyto(out, result, casting="no")


def _communicating(node: Node) -> Job:
    operands: tuple[Word, ...] = tuple(map(At, (*node.inputs, *node.outputs)))
    words = (*operands, Tag()) if node.op in COLLECTIVE else operands
    plan = None if node.op is agree else transport().plan(node)
    call = Communication(node, plan)
    return Job(node.op.name, (), words, 0, 1, callable=call, plan=0 if plan is None else plan.address)


class Communication:
    """Begins an operator between ranks, on the thread of communication, and moves bytes until there is more
    to begin. It runs in launches that have failed, too: the other ranks wait for it.
    """

    def __init__(self, node: Node, plan: object = None):
        """plan: by which machine code begins and ends it instead, where all is as usual."""
        self.node, self._plan = node, plan

    def __call__(self, block: int, failure: BaseException | None, done: Callable[..., object]) -> None:
        node, carrier, end = self.node, transport(), self._end(done)
        if node.op is agree:
            carrier.agree(node, failure, end)
        else:
            carrier.post(node, *self._arrays(block), self._tag(block), end)
        carrier.progress(communication_is_wanted)

    def resume(
        self, begun: object, block: int, failure: BaseException | None, done: Callable[..., object]
    ) -> None:
        """Go on with what machine code has begun."""
        _, results = self._arrays(block)
        transport().resume(self.node, begun, results, self._tag(block), self._end(done))

    def _end(self, done: Callable[..., object]) -> Callable[[BaseException | None], None]:
        """The function that ends the task."""

        def end(error: BaseException | None) -> None:
            torn = isinstance(error, PeerError) and error.out_of_step
            done(OperatorError(error, torn) if isinstance(error, TracejitError) else error)

        return end

    def _arrays(self, block: int) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """The operands and the results, on the memory itself."""
        operands, count = (*self.node.inputs, *self.node.outputs), len(self.node.inputs)
        arrays = [_memory(value.type, block + 8 * slot) for slot, value in enumerate(operands)]
        return arrays[:count], arrays[count:]

    def _tag(self, block: int) -> int:
        """The number of the operation, of those in which all ranks take part."""
        if self.node.op not in COLLECTIVE:
            return 0
        count = len(self.node.inputs) + len(self.node.outputs)
        return ctypes.c_int64.from_address(block + 8 * count).value


def _memory(type: ArrayType, slot: int) -> np.ndarray:
    """The array of this type to which a slot leads, or the number in it, on the memory itself."""
    start = slot if type.on_host else ctypes.c_int64.from_address(slot).value
    return np.ndarray(type.shape, type.dtype, memoryview((ctypes.c_char * type.nbytes).from_address(start)))


_JOBS: dict[Op, Callable[[Node], Job]] = {
    ops.matmul: _matmul,
    ops.callback: _callback,
}
"""Operators that are more than one call of a kernel."""


# ---------------------------------------------------------------------------------------------------- facts


def locations(node: Node) -> tuple[str, ...]:
    """The user's lines that a node computes, in order."""
    inner = node.attrs["body"].nodes if "body" in node.attrs else ()
    lines = [n.location for n in (*inner, node) if n.location]
    return tuple(dict.fromkeys(lines))


def failure(node: Node, status: int, job: Job, block: int) -> BaseException:
    """The exception for a task that reported `status`: 1 plus the position of the first bad index.

    The index itself is found by checking once more, on what the task's argument block, at address `block`,
    leads to. A later launch may have overwritten that; then only the position is known. A loop's blocks are
    those of the round that failed; where its extents or places move, they say only the position, too.
    """
    if job.issued is not None and status < 0:
        return locate(job.issued.explain(status), node.location)
    if Trait.HOST in node.op.traits:
        what = "matrix is not positive definite" if node.op is ops.cholesky else "singular matrix"
        return locate(LinAlgError(f"{node.op.name}: {what}"), node.location)
    where = ""
    if node.op is ops.loop:
        first = node.attrs.get("first", 0)
        node, job, block, rounds = place_of(job, block)
        where = f" in round {', '.join(map(str, [rounds[0] + first, *rounds[1:]]))} of the loop"
    if job.issued is None:  # else its operands are not in this memory
        try:
            _check_again(node, job, block, where)
        except OutOfBoundsError as error:
            return error
        except Differs:
            pass
    return _unnamed(node, status, where)


def _unnamed(node: Node, status: int, where: str) -> BaseException:
    """The exception for a bad index of which only the position is known."""
    inner = node.attrs["body"].nodes if node.op is ops.fused else (node,)
    checks = [n for n in inner if can_fail(n)]
    places = [
        f"axis {n.attrs['axis']} with extent {n.attrs['extent']}, expected {-n.attrs['extent']} to "
        f"{n.attrs['extent'] - 1}"
        for n in checks
        if "what" not in n.attrs
    ]
    told = [f"index number {status - 1} is out of bounds for {'; or '.join(places)}"] if places else []
    told += [n.attrs["what"] for n in checks if "what" in n.attrs]
    unnamed = OutOfBoundsError("; or ".join(dict.fromkeys(told)) + where)
    return locate(unnamed, checks[0].location if checks else node.location)


def _check_again(node: Node, job: Job, block: int, where: str) -> None:
    """Let the NumPy evaluator do the index checks of a task; `where` is added to what it says."""
    body: Graph | None = node.attrs.get("body")
    nodes, inputs = (body.nodes, body.inputs) if body else ((node,), node.inputs)
    needed: set[Value] = set()
    path = []
    for inner in reversed(nodes):
        if can_fail(inner) or not needed.isdisjoint(inner.outputs):
            path.append(inner)
            needed.update(inner.inputs)
    memory = _operands(node, job, block)
    known = {v: memory[outer] for v, outer in zip(inputs, node.inputs, strict=True) if outer in memory}
    for inner in reversed(path):
        if known.keys() >= set(inner.inputs):
            try:
                results = evaluate_node(inner, [known[v] for v in inner.inputs])
            except OutOfBoundsError as error:
                told = str(error).partition("\n")[0]
                raise locate(OutOfBoundsError(told + where), inner.location) from None
            known.update(zip(inner.outputs, results, strict=True))


def _operands(node: Node, job: Job, block: int) -> dict[Value, np.ndarray]:
    """The inputs of a task that its argument block, at address `block`, leads to, as they are in memory."""
    found = {}
    for position, word in enumerate(job.words):
        if isinstance(word, At) and word.value in node.inputs:
            start, type = block + 8 * position, word.value.type
            if not type.on_host:
                start = ctypes.c_int64.from_address(start).value - index(word.offset)
            memory = memoryview((ctypes.c_char * index(type.nbytes)).from_address(start))
            found[word.value] = np.ndarray(type.shape, type.dtype, memory)
    return found
