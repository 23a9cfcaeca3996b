"""Lowering of a `fused` node with concrete shapes to a `Lowered` kernel: structure, argument block, units.

Lowering does not need Numba. It proceeds in four steps:

- `analyse`, which the fusion pass shares, determines the computation and its schedule.
- `traffic` determines which memory is streamed, transposed and prefetched.
- `Encoder` separates the structure (the `KernelSpec`) from the run-time values (the slots).
- `units.split` divides the domain into units, by shape only.

    y = exp(x) over float32[100,200]
        spec: map, kept 1, pointers (float32, float32), one layout ("kept", "one")
        slots: n0=20000, tile=16384, x0=AddressSlot(0, 0), x1=AddressSlot(1, 0)
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from tracejit.codegen.encode import PANEL, Encoder
from tracejit.codegen.spec import IntegerSlot, Lowered, Product
from tracejit.codegen.units import column_tile, split
from tracejit.errors import VerificationError
from tracejit.ir.graph import Graph, Node, Value, producers_of
from tracejit.ir.view import View
from tracejit.loopnest.analysis import analyse
from tracejit.loopnest.program import LoopProgram, OutputStore
from tracejit.loopnest.schedule import schedule
from tracejit.loopnest.sweep import Sweep, without_edges
from tracejit.loopnest.traffic import traffic


def lower(node: Node, shared: Sequence[tuple[int, int]] = (), subdivision: int = 1) -> Lowered:
    """Return the kernel of a `fused` node. `shared`: pairs (output, input) that share memory.
    `subdivision`: the factor by which units are shorter than usual.
    """
    body: Graph = node.attrs["body"]
    cache: dict[Hashable, Lowered] = body.notes.setdefault("lowered", {})  # several nodes may share a body
    key = (node.attrs.get("result"), subdivision, *shared)
    lowered = cache.get(key)
    if lowered is None:
        lowered = cache[key] = _lower(body, node, shared, subdivision)
    return lowered


def _lower(body: Graph, node: Node, shared: Sequence[tuple[int, int]], subdivision: int) -> Lowered:
    sweep: Sweep | None = node.attrs.get("sweep")
    analysis = analyse(without_edges(body, sweep))
    if analysis.sweep != sweep:
        raise VerificationError(f"fused with sweep={sweep}; its body needs sweep={analysis.sweep}")
    program, loop_schedule = analysis.program, analysis.schedule
    operands = {value: number for number, value in enumerate(body.inputs)}
    outputs = range(len(body.inputs), len(body.inputs) + len(body.outputs))
    updates = [(s.output, s.base) for s in program.stores if s.base is not None]
    for output, source in [*shared, *updates]:  # a shared buffer has one pointer: the output's
        operands[body.inputs[source]] = outputs[output]
    product = None
    matmul = program.matmul
    if matmul is not None:
        result = node.attrs.get("result")
        product = _product(body, matmul, None if result is None else outputs[result])
        stores = _needed_stores(program, result)
        if result is None and (0, analysis.addend()) in shared:
            product = product._replace(result=outputs[0], add=True)
            stores = ()
        operands[matmul.output] = PANEL if product.result is None else product.result
        if len(stores) < len(program.stores):
            program = program._replace(stores=stores)
            loop_schedule = schedule(program)
    memory_traffic = traffic(body, program, loop_schedule, sweep, operands, outputs)
    encoder = Encoder(
        body, program, loop_schedule, operands, outputs, column_tile(program), sweep, memory_traffic
    )
    spec = encoder.encode()
    slots = encoder.slots
    units, chunk, tiles = split(
        _subdivided(program, subdivision), loop_schedule.orientation, encoder.side, sweep
    )
    slots.update({name: IntegerSlot(n) for name, n in {**tiles, "scratch_bytes": encoder.scratch}.items()})
    return Lowered(
        spec, tuple(slots[name] for name in spec.slot_names()), units, chunk, encoder.scratch, product
    )


def _subdivided(program: LoopProgram, subdivision: int) -> LoopProgram:
    """Return the program with units that are `subdivision` times shorter."""
    tuning = program.tuning
    units = tuning.units._replace(nanoseconds=tuning.units.nanoseconds // subdivision)
    return program._replace(tuning=tuning._replace(units=units))


def _product(body: Graph, matmul: Node, result: int | None) -> Product:
    """Return the operands of a panel's matrix product, including the views that the body applies to them."""
    (a, a_view), (b, b_view) = (operand_of(body, value) for value in matmul.inputs)
    return Product(a, a_view, b, b_view, result)


def _needed_stores(program: LoopProgram, result: int | None) -> tuple[OutputStore, ...]:
    """Return the stores of a panel except a store that writes the product to the buffer that already
    contains it.
    """
    assert program.matmul is not None
    product = program.matmul.output
    return tuple(s for s in program.stores if s.output != result or s.term.value is not product)


def operand_of(body: Graph, value: Value) -> tuple[int, View]:
    """Return the input of `body` that `value` is a view of, and the view."""
    producers = producers_of(body.nodes)
    view = View.of_shape(value.type.shape)
    while value in producers:
        inner: View = producers[value].attrs["view"]
        composed = inner.compose(view)
        assert composed is not None, "the fusion pass leaves one view before a product"
        view, (value,) = composed, producers[value].inputs
    return body.inputs.index(value), view
