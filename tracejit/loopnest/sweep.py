"""Sweeps: kernels that update an array in place although they read it at shifted places.

    a[1:-1, 1:-1] = 0.25 * (a[:-2, 1:-1] + a[2:, 1:-1] + a[1:-1, :-2] + a[1:-1, 2:])

New elements in an array of their own, copied into place afterwards, would be three times the memory traffic.
Instead the kernel goes through the rows of the update in order (a row is one index of its outermost
dimension, or a run of the only one), and keeps a new row in a ring of a few rows until no row that is still
to come reads what stood in its place:

    up, down    row i reads elements of the rows i - up to i + down, so row i may be stored after row i + up
    ring        up + 1 rows in the scratch memory of a worker; or up rows, where row i reads of row i - up
                only what stands above it: then row i - up is stored *along* with computing row i

A *band* of rows is a unit. Rows next to a cut between two bands are read from both sides, at any time. So
the last `up` rows of a band and the first `down` rows of the next one are left out, and go into a second
output, the *edges*, which an ordinary `update` puts in its place when the kernel is done:

    %1: f32[2048,2048], %2: f32[30,2,2046] = fused(%0) [sweep=...]     # update(%0, new), new[cuts]
    %3: f32[2048,2048] = update(%1, %2) [cuts]

As a function the second node changes nothing: the first result is the whole update in the IR, which nobody
else reads. In memory it lacks the rows that the second one delivers. Bands follow from shapes alone.
"""

# No `from __future__ import annotations`: a named tuple compiles every annotation that is a string.

import math
from collections.abc import Iterable
from typing import NamedTuple

from tracejit import ops
from tracejit.ir.graph import Builder, Graph, Value
from tracejit.ir.view import View
from tracejit.loopnest.program import LoopProgram, OutputStore, Term, TermKind, elements_per_unit

RUN = 1024
"""Elements of a row where the update has one dimension only."""

SHARE = 32
"""Rows of a band for each row of its edges, where there are rows enough: the edges are written twice."""

LEAST = 8
"""Rows of a band for each row of its edges, at least."""

BANDS = 16
"""The number of bands below which they are shorter than `SHARE` says."""

FEWEST = 4
"""A kernel of this many units, or more, is no sweep if it would have fewer bands."""


class Sweep(NamedTuple):
    """A division of rows into bands (the last takes what is left, more or less), and the rows a row reads.
    `run`: elements of a row if there is one dimension only, of which the last row may have fewer; else 0.
    `along`: whether a row is stored along with computing the one that is `up` rows further.
    """

    bands: int
    band: int
    up: int
    down: int
    run: int
    along: bool

    @property
    def ring(self) -> int:
        """The number of rows that wait."""
        return self.up + (not self.along)

    @property
    def has_edges(self) -> bool:
        """Whether rows are left out."""
        return self.bands > 1 and self.up + self.down > 0

    def cuts(self, places: View) -> View:
        """The rows around the cuts in the `places` of new elements: [cut, row, ...]."""
        rows = in_rows(places, self.run)
        (_, *extents), (stride, *strides) = rows.shape, rows.strides
        first = places.offset + (self.band - self.up) * stride
        shape = (self.bands - 1, self.up + self.down, *extents)
        return View(first, shape, (self.band * stride, stride, *strides))


# ---------------------------------------------------------------------------------------------- which kernels


def find_sweep(program: LoopProgram, shifted: Iterable[Term]) -> Sweep | None:
    """The sweep by which a kernel without reductions updates an array that it reads at the places of the
    terms `shifted`, some of which it writes; None if it cannot, or should not.
    """
    updates = [store for store in program.stores if store.base is not None]
    kept = program.domain.kept
    if not program.tuning.sweeps or len(updates) != 1:
        return None
    if not math.prod(kept) or updates[0].view.strides[-1] != 1:
        return None
    (store,) = updates
    run = RUN if len(kept) == 1 else 0
    rows = in_rows(store.view, run)
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
    bands, band = in_bands(elements_per_unit(program), rows, up, down, run)
    sweep = Sweep(bands, band, up, down, run, along)
    ring = sweep.ring * math.prod(rows.shape[1:]) * store.term.dtype.itemsize
    if not bands or ring > program.tuning.caches.scratch:  # more than the second cache holds still pays
        return None
    return sweep


def in_rows(places: View, run: int) -> View:
    """`places` as rows; in runs if they have one dimension only, which the last one may go beyond."""
    if not run:
        return places
    (count,), (stride,) = places.shape, places.strides
    return View(places.offset, (-(-count // run), run), (run * stride, stride))


def rows_read(rows: View, shift: int) -> tuple[int, int]:
    """The first and the last of the rows, relative to its own, in which an index reads `shift` elements
    further on than it writes; the last is before the first if it reads in none. Rows that reach into one
    another count if they might.
    """
    (count, *extents), (stride, *strides) = rows.shape, rows.strides
    reach = 1 + sum(abs(s) * (n - 1) for n, s in zip(extents, strides, strict=True))
    step = abs(stride)
    lowest, highest = (shift - reach) // step + 1, -((-shift - reach) // step) - 1
    if stride < 0:
        lowest, highest = -highest, -lowest
    return max(lowest, 1 - count), min(highest, count - 1)


def in_bands(unit: int, rows: View, up: int, down: int, run: int) -> tuple[int, int]:
    """The number of bands, and of rows in each; no bands if there would be too few of them for the work.

    `unit`: elements that make one.
    """
    count, edge, size = rows.shape[0], up + down, math.prod(rows.shape[1:])
    least = LEAST * edge + bool(run)  # the last row may be short, and is in no edge
    band = max(1, unit // size, least, min(SHARE * edge, count // BANDS))
    bands = max(1, count // band)
    if bands < min(FEWEST, rows.size // unit):
        return 0, 0
    even = -(-count // bands)
    return bands, even if count - (bands - 1) * even >= max(least, 1) else count // bands


# ---------------------------------------------------------------------------------------------- edges


def updating(program: LoopProgram) -> OutputStore:
    """The store of a sweep."""
    (store,) = (s for s in program.stores if s.base is not None)
    return store


def with_edges(body: Graph, program: LoopProgram, sweep: Sweep) -> Graph:
    """`body`, with its edges as the last output if it has any."""
    if not sweep.has_edges:
        return body
    found: Graph | None = body.notes.get("with edges")  # equal steps of a loop share one body
    if found is None:
        updated = body.outputs[updating(program).output]
        (new,) = (n.inputs[1] for n in body.nodes if updated in n.outputs)
        builder = Builder()
        view = sweep.cuts(View.of_shape(program.domain.kept))
        edges = builder.emit(ops.view, new, view=view)
        found = Graph(body.inputs, (*body.nodes, *builder.nodes), (*body.outputs, edges))
        body.notes["with edges"] = found
    return found


def without_edges(body: Graph, sweep: Sweep | None) -> Graph:
    """The inverse of `with_edges`: the body without its output of edges."""
    if sweep is None or not sweep.has_edges:
        return body
    return Graph(body.inputs, body.nodes[:-1], body.outputs[:-1])


def put_edges(
    builder: Builder, program: LoopProgram, sweep: Sweep, outputs: tuple[Value, ...], location: str | None
) -> tuple[Value, ...]:
    """The results of the body, from the outputs of its kernel: the edges are put in their place."""
    if not sweep.has_edges:
        return outputs
    *results, edges = outputs
    store = updating(program)
    base, view = results[store.output], sweep.cuts(store.view)
    results[store.output] = builder.emit(ops.update, base, edges, view=view, location=location)
    return tuple(results)
