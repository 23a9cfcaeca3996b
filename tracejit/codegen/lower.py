"""A `fused` node with concrete shapes to a `Lowered` kernel: structure, argument block, units. Needs no
Numba.

`analyse` (shared with the fusion pass) says what is computed and when; `Encoder` splits that
into structure (the `Spec`) and run-time values (the slots); `units_of` cuts the domain into units by shape
alone.

    y = exp(x) over float32[100,200]     spec: map, kept 1, pointers (float32, float32), one layout ("kept",
    "one")
                                         slots: n0=20000, tile=16384, x0=Address(0, 0), x1=Address(1, 0)
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence

from tracejit.codegen.encode import PANEL, Encoder
from tracejit.codegen.spec import Integer, Lowered, Product
from tracejit.errors import VerificationError
from tracejit.ir.graph import Graph, Node, Value
from tracejit.ir.view import View
from tracejit.loopnest.program import GATHER, LOAD, REDUCE, SCAN, Program, Store, elements_per_unit, row_tile
from tracejit.loopnest.schedule import COLUMNS, MAP, ROWS, schedule
from tracejit.loopnest.sweep import Sweep, without_edges
from tracejit.passes.fusion.bodies import analyse
from tracejit.passes.fusion.prepare import FAR

SHARED = 8
"""Chunks that a task should have: it falls into so many shares, of which each thread has its own."""

MANY, LONGER = 256, 16
"""Up to LONGER times as many units as are worth it are taken at once where MANY chunks are left: in a kernel
over rows the last row of a chunk has no next one whose loops run meanwhile, and what is streamed must arrive
before a chunk ends.
"""

COLUMN_TILE = 1024
"""Most columns of a unit that reduces over rows: its accumulators stay in the first cache."""

WIDE_TILE = 16384
"""The same, of all accumulators together, where no cache holds what is read: they stay in the second cache,
and memory is read in order.
"""


def lower(node: Node, shared: Sequence[tuple[int, int]] = ()) -> Lowered:
    """The kernel of a `fused` node. `shared`: pairs (output, input) that have the same memory."""
    body: Graph = node.attrs["body"]
    known: dict[Hashable, Lowered] = body.notes.setdefault("lowered", {})  # many nodes may share one body
    key = (node.attrs.get("result"), *shared)
    found = known.get(key)
    if found is None:
        found = known[key] = _lower(body, node, shared)
    return found


def _lower(body: Graph, node: Node, shared: Sequence[tuple[int, int]]) -> Lowered:
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
    encoder = Encoder(body, program, plan, operands, outputs, column_tile(program), sweep)
    spec = encoder.encode()
    slots = encoder.slots
    split = _SPLITS[plan.orientation](program, encoder.side)
    units, chunk, tiles = split if sweep is None else split_sweep(sweep)
    slots.update({name: Integer(n) for name, n in {**tiles, "scratch_bytes": encoder.scratch}.items()})
    return Lowered(
        spec, tuple(slots[name] for name in spec.slot_names()), units, chunk, encoder.scratch, product
    )


def _product(body: Graph, matmul: Node, result: int | None) -> Product:
    """The operands of a panel's matrix product, through the views that the body puts before them."""
    (a, a_view), (b, b_view) = (operand_of(body, value) for value in matmul.inputs)
    return Product(a, a_view, b, b_view, result)


def _without(program: Program, result: int | None) -> tuple[Store, ...]:
    """The stores of a panel, without one that writes the product where it already is."""
    assert program.matmul is not None
    product = program.matmul.output
    return tuple(s for s in program.stores if s.output != result or s.term.value is not product)


def operand_of(body: Graph, value: Value) -> tuple[int, View]:
    """The input of `body` that `value` is a view of, and the view."""
    producers = {value: node for node in body.nodes for value in node.outputs}
    view = View.of_shape(value.type.shape)
    while value in producers:
        inner: View = producers[value].attrs["view"]
        composed = inner.compose(view)
        assert composed is not None, "the fusion pass leaves one view before a product"
        view, (value,) = composed, producers[value].inputs
    return body.inputs.index(value), view


# ------------------------------------------------------------------------------------------------ units

Split = tuple[int, int, dict[str, int]]
"""How many units, how many to take at once, and the slots that say so to the kernel."""


def ceil_div(total: int, size: int) -> int:
    """How many pieces of `size` cover `total`."""
    return -(-total // size)


def at_once(units: int, wanted: int) -> int:
    """How many units to take at once: as many as are worth it, or down to a quarter of that where there would
    hardly be chunks enough for all threads, and more where there are plenty.
    """
    return max(1, min(wanted, max(units // SHARED, wanted // 4)), min(LONGER * wanted, units // MANY))


def split_map(program: Program, side: int) -> Split:
    """Tiles over the last two dimensions, of the given side unless that is 0; for the epilogue of a product
    each is one row of it.
    """
    kept = program.domain.kept
    budget = elements_per_unit(program)
    if program.matmul is not None:
        rows, columns = row_tile(program)
    elif side and len(kept) > 1:
        rows = columns = side
    else:
        columns = min(kept[-1], budget)
        rows = max(1, budget // max(columns, 1))
    if len(kept) == 1:
        tile = max(1, columns if program.matmul is not None else budget)
        units = ceil_div(kept[0], tile)
        return units, at_once(units, 1), {"tile": tile}
    rows, columns = max(1, min(rows, kept[-2])), max(1, columns)
    row_tiles, column_tiles = ceil_div(kept[-2], rows), ceil_div(kept[-1], columns)
    slots = {"rows": rows, "row_tiles": row_tiles, "columns": columns, "column_tiles": column_tiles}
    units = math.prod(kept[:-2]) * row_tiles * column_tiles
    return units, at_once(units, budget // (rows * columns)), slots


def split_sweep(sweep: Sweep) -> Split:
    """One unit for each band of rows."""
    slots = {"bands": sweep.bands, "band": sweep.band, "up": sweep.up, "down": sweep.down}
    slots |= {"columns": sweep.run} if sweep.run else {}
    return sweep.bands, 1, slots


def split_rows(program: Program, side: int) -> Split:
    """One unit for each kept index and piece."""
    domain = program.domain
    units = math.prod(domain.kept) * max(1, domain.pieces)
    length = ceil_div(math.prod(domain.reduced), max(1, domain.pieces))
    return units, at_once(units, elements_per_unit(program) // max(1, length)), {}


def column_tile(program: Program) -> int:
    """Columns of a unit of a COLUMNS kernel; 1 at least."""
    if not program.domain.kept:
        return 1
    reads = [t for t in program.terms if t.kind in (LOAD, GATHER) and t.view is not None]
    is_far = program.domain.pieces and sum(t.view.size * t.dtype.itemsize for t in reads if t.view) > FAR
    accumulators = sum(t.kind in (REDUCE, SCAN) for t in program.terms)
    most = WIDE_TILE // max(accumulators, 1) if is_far else COLUMN_TILE
    return max(1, min(program.domain.kept[-1], max(most, COLUMN_TILE)))


def split_columns(program: Program, side: int) -> Split:
    """One unit for each tile of the last kept dimension, outer kept index and piece."""
    domain = program.domain
    columns = column_tile(program)
    tiles = ceil_div(domain.kept[-1], columns)
    units = math.prod(domain.kept[:-1]) * tiles * max(1, domain.pieces)
    work = ceil_div(math.prod(domain.reduced), max(1, domain.pieces)) * columns
    slots = {"columns": columns, "column_tiles": tiles}
    return units, at_once(units, elements_per_unit(program) // max(1, work)), slots


_SPLITS = {
    MAP: split_map,
    ROWS: split_rows,
    COLUMNS: split_columns,
}
