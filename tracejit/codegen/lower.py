"""Lowers a `fused` node with concrete shapes to a `Lowered` kernel: structure, argument block, units.

It needs no Numba.

`analyse` (shared with the fusion pass) says what is computed and when, `traffic` what is streamed, transposed
and prefetched; `Encoder` splits that into structure (the `KernelSpec`) and run-time values (the slots);
`units.split` cuts the domain into units by shape alone.

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


def lower(node: Node, shared: Sequence[tuple[int, int]] = (), parts: int = 1) -> Lowered:
    """The kernel of a `fused` node. `shared`: pairs (output, input) that have the same memory. `parts`: units
    are so many times shorter than usual.
    """
    body: Graph = node.attrs["body"]
    known: dict[Hashable, Lowered] = body.notes.setdefault("lowered", {})  # many nodes may share one body
    key = (node.attrs.get("result"), parts, *shared)
    found = known.get(key)
    if found is None:
        found = known[key] = _lower(body, node, shared, parts)
    return found


def _lower(body: Graph, node: Node, shared: Sequence[tuple[int, int]], parts: int) -> Lowered:
    sweep: Sweep | None = node.attrs.get("sweep")
    analysis = analyse(without_edges(body, sweep))
    if analysis.sweep != sweep:
        raise VerificationError(f"fused with sweep={sweep}; its body needs sweep={analysis.sweep}")
    program, plan = analysis.program, analysis.plan
    operands = {value: number for number, value in enumerate(body.inputs)}
    outputs = range(len(body.inputs), len(body.inputs) + len(body.outputs))
    updates = [(s.output, s.base) for s in program.stores if s.base is not None]
    for output, source in [*shared, *updates]:  # one pointer for each buffer: the output's
        operands[body.inputs[source]] = outputs[output]
    product = None
    matmul = program.matmul
    if matmul is not None:
        result = node.attrs.get("result")
        product = _product(body, matmul, None if result is None else outputs[result])
        stores = _without(program, result)
        if result is None and (0, analysis.addend()) in shared:
            product = product._replace(result=outputs[0], add=True)
            stores = ()
        operands[matmul.output] = PANEL if product.result is None else product.result
        if len(stores) < len(program.stores):
            program = program._replace(stores=stores)
            plan = schedule(program)
    moved = traffic(body, program, plan, sweep, operands, outputs)
    encoder = Encoder(body, program, plan, operands, outputs, column_tile(program), sweep, moved)
    spec = encoder.encode()
    slots = encoder.slots
    units, chunk, tiles = split(_in_parts(program, parts), plan.orientation, encoder.side, sweep)
    slots.update({name: IntegerSlot(n) for name, n in {**tiles, "scratch_bytes": encoder.scratch}.items()})
    return Lowered(
        spec, tuple(slots[name] for name in spec.slot_names()), units, chunk, encoder.scratch, product
    )


def _in_parts(program: LoopProgram, parts: int) -> LoopProgram:
    """The program for shorter units."""
    tuning = program.tuning
    units = tuning.units._replace(nanoseconds=tuning.units.nanoseconds // parts)
    return program._replace(tuning=tuning._replace(units=units))


def _product(body: Graph, matmul: Node, result: int | None) -> Product:
    """The operands of a panel's matrix product, through the views that the body puts before them."""
    (a, a_view), (b, b_view) = (operand_of(body, value) for value in matmul.inputs)
    return Product(a, a_view, b, b_view, result)


def _without(program: LoopProgram, result: int | None) -> tuple[OutputStore, ...]:
    """The stores of a panel, without one that writes the product where it already is."""
    assert program.matmul is not None
    product = program.matmul.output
    return tuple(s for s in program.stores if s.output != result or s.term.value is not product)


def operand_of(body: Graph, value: Value) -> tuple[int, View]:
    """The input of `body` that `value` is a view of, and the view."""
    producers = producers_of(body.nodes)
    view = View.of_shape(value.type.shape)
    while value in producers:
        inner: View = producers[value].attrs["view"]
        composed = inner.compose(view)
        assert composed is not None, "the fusion pass leaves one view before a product"
        view, (value,) = composed, producers[value].inputs
    return body.inputs.index(value), view
