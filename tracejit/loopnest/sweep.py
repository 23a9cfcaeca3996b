"""Sweeps: kernels that update an array in place although they read it at shifted indices.

    a[1:-1, 1:-1] = 0.25 * (a[:-2, 1:-1] + a[2:, 1:-1] + a[1:-1, :-2] + a[1:-1, 2:])

Computing the new elements in a temporary array and copying them afterwards would triple the memory traffic.
Instead the kernel computes the rows of the update in order. A row is one index of the outermost dimension, or
a run of the only dimension. A new row is kept in a ring of a few rows until no row that is still to be
computed reads the old row it replaces:

    up, down    row i reads elements of the rows i - up to i + down, so row i may be stored after row i + up
    ring        up + 1 rows in the scratch memory of a worker; or up rows, if the only elements of row i - up
                that row i reads are those directly above it: then row i - up is stored *along* with
                computing row i, in the same loop

A unit is a *band* of rows. The rows next to the boundary between two bands are read by both, at any time. So
the last `up` rows of a band and the first `down` rows of the next one are not stored in the array. They are
written to a second output, the *edges*, which an ordinary `update` copies into the array when the kernel is
done:

    %1: f32[2048,2048], %2: f32[30,2,2046] = fused(%0) [sweep=...]     # update(%0, new), new[cuts]
    %3: f32[2048,2048] = update(%1, %2) [cuts]

By its semantics the second node changes nothing: in the IR the first result is the complete update, and only
the second node reads it. In memory it lacks the rows that the second node copies. Bands depend on shapes.
"""

# No `from __future__ import annotations`: a named tuple compiles every annotation that is a string.

import math
from collections.abc import Iterable
from typing import NamedTuple

from tracejit import ops
from tracejit.ir.graph import Builder, Graph, Value
from tracejit.ir.view import View
from tracejit.loopnest.program import LoopProgram, OutputStore, Term, TermKind, elements_per_unit

RUN_LENGTH = 1024
"""The number of elements in a row of a one-dimensional update."""

ROWS_PER_EDGE = 32
"""The number of rows in a band for each row of its edges, if there are enough rows: the edges are written
twice.
"""

MIN_ROWS_PER_EDGE = 8
"""The minimal number of rows in a band for each row of its edges."""

TARGET_BANDS = 16
"""The number of bands below which bands are shorter than `ROWS_PER_EDGE` implies."""

MIN_BANDS = 4
"""A kernel of at least this many units does not become a sweep if it would have fewer bands."""


class Sweep(NamedTuple):
    """A division of rows into bands, and the range of rows that a row reads.

    bands:    the number of bands.
    band:     rows per band; the last band consists of the remaining rows, which may be more or fewer.
    up, down: a row reads up to `up` rows before and `down` rows after itself.
    run:      the number of elements in a row if there is one dimension (the last row may have fewer); else 0.
    along:    whether a row is stored by the loop that computes the row `up` rows later.
    """

    bands: int
    band: int
    up: int
    down: int
    run: int
    along: bool

    @property
    def ring(self) -> int:
        """The number of rows in the ring."""
        return self.up + (not self.along)

    @property
    def has_edges(self) -> bool:
        """Whether there are edges: rows that the kernel does not store in the array."""
        return self.bands > 1 and self.up + self.down > 0

    def cuts(self, elements: View) -> View:
        """Return the view [boundary, row, ...] of the rows around the boundaries between bands, within the
        view `elements` of the new elements.
        """
        rows = as_rows(elements, self.run)
        (_, *extents), (stride, *strides) = rows.shape, rows.strides
        first = elements.offset + (self.band - self.up) * stride
        shape = (self.bands - 1, self.up + self.down, *extents)
        return View(first, shape, (self.band * stride, stride, *strides))


# ---------------------------------------------------------------------------------------------- which kernels


def find_sweep(program: LoopProgram, shifted: Iterable[Term]) -> Sweep | None:
    """Return the sweep by which a kernel without reductions updates an array that it also reads in the
    terms `shifted`, at indices some of which it writes. Return None if there is no such sweep, or if it is
    not profitable.
    """
    updates = [store for store in program.stores if store.base is not None]
    kept = program.domain.kept
    if not program.tuning.sweeps or len(updates) != 1:
        return None
    if not math.prod(kept) or updates[0].view.strides[-1] != 1:
        return None
    (store,) = updates
    run = RUN_LENGTH if len(kept) == 1 else 0
    rows = as_rows(store.view, run)
    reads: list[tuple[int, int, int]] = []
    for term in shifted:
        assert term.view is not None
        if term.kind is not TermKind.LOAD or term.view.strides != store.view.strides:
            return None
        shift = term.view.offset - store.view.offset
        lowest, highest = rows_read(rows, shift)
        if lowest <= highest:
            reads.append((lowest, highest, shift))
    up = max([0, *(-lowest for lowest, _, _ in reads)])
    down = max([0, *(highest for _, highest, _ in reads)])
    above = {shift for lowest, highest, shift in reads if lowest <= -up <= highest}
    along = not run and up > 0 and above == {-up * rows.strides[0]}
    bands, band = split_bands(elements_per_unit(program), rows, up, down, run)
    sweep = Sweep(bands, band, up, down, run, along)
    ring = sweep.ring * math.prod(rows.shape[1:]) * store.term.dtype.itemsize
    if (
        not bands or ring > program.tuning.caches.scratch
    ):  # exceeding the second-level cache is still profitable
        return None
    return sweep


def as_rows(elements: View, run: int) -> View:
    """Return `elements` divided into rows. A one-dimensional view is divided into runs; the last run may
    extend beyond its end.
    """
    if not run:
        return elements
    (size,), (stride,) = elements.shape, elements.strides
    return View(elements.offset, (-(-size // run), run), (run * stride, stride))


def rows_read(rows: View, shift: int) -> tuple[int, int]:
    """Return the first and the last row, relative to its own, in which an index reads if it reads `shift`
    elements after the element it writes. The last is before the first if it reads in none. If rows
    interleave in memory, all rows that might be read count.
    """
    (n_rows, *extents), (stride, *strides) = rows.shape, rows.strides
    row_span = 1 + sum(abs(s) * (n - 1) for n, s in zip(extents, strides, strict=True))
    distance = abs(stride)
    lowest, highest = (shift - row_span) // distance + 1, -((-shift - row_span) // distance) - 1
    if stride < 0:
        lowest, highest = -highest, -lowest
    return max(lowest, 1 - n_rows), min(highest, n_rows - 1)


def split_bands(unit: int, rows: View, up: int, down: int, run: int) -> tuple[int, int]:
    """Return the number of bands and the number of rows in each. The number of bands is 0 if there would
    be too few bands for the amount of work.

    `unit`: the number of elements that are worth a unit.
    """
    n_rows, edge, size = rows.shape[0], up + down, math.prod(rows.shape[1:])
    min_band = MIN_ROWS_PER_EDGE * edge + bool(run)  # the last row may be short, and must not be in an edge
    band = max(1, unit // size, min_band, min(ROWS_PER_EDGE * edge, n_rows // TARGET_BANDS))
    bands = max(1, n_rows // band)
    if bands < min(MIN_BANDS, rows.size // unit):
        return 0, 0
    even = -(-n_rows // bands)
    return bands, even if n_rows - (bands - 1) * even >= max(min_band, 1) else n_rows // bands


# ---------------------------------------------------------------------------------------------- edges


def updating(program: LoopProgram) -> OutputStore:
    """Return the store of a sweep."""
    (store,) = (s for s in program.stores if s.base is not None)
    return store


def with_edges(body: Graph, program: LoopProgram, sweep: Sweep) -> Graph:
    """Return `body` with its edges as an additional last output, if it has any."""
    if not sweep.has_edges:
        return body
    extended: Graph | None = body.notes.get("with edges")  # equal steps of a loop share a body
    if extended is None:
        updated = body.outputs[updating(program).output]
        (new,) = (n.inputs[1] for n in body.nodes if updated in n.outputs)
        builder = Builder()
        view = sweep.cuts(View.of_shape(program.domain.kept))
        edges = builder.emit(ops.view, new, view=view)
        extended = Graph(body.inputs, (*body.nodes, *builder.nodes), (*body.outputs, edges))
        body.notes["with edges"] = extended
    return extended


def without_edges(body: Graph, sweep: Sweep | None) -> Graph:
    """Return the body without its output of edges: the inverse of `with_edges`."""
    if sweep is None or not sweep.has_edges:
        return body
    return Graph(body.inputs, body.nodes[:-1], body.outputs[:-1])


def copy_edges(
    builder: Builder, program: LoopProgram, sweep: Sweep, outputs: tuple[Value, ...], location: str | None
) -> tuple[Value, ...]:
    """Return the results of the body from the outputs of its kernel, by copying the edges into the updated
    array.
    """
    if not sweep.has_edges:
        return outputs
    *results, edges = outputs
    store = updating(program)
    base, view = results[store.output], sweep.cuts(store.view)
    results[store.output] = builder.emit(ops.update, base, edges, view=view, location=location)
    return tuple(results)
