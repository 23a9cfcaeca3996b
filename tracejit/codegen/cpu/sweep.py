"""The loops of a sweep (see `tracejit.loopnest.sweep`): rows in order, their results through a ring.

    for unit in range(lo, hi):                             # a band of rows
        a0 = unit * band
        b0 = a0 + band if unit < bands - 1 else n0
        for i0 in range(a0, b0 + up):
            if i0 < b0:                                    # compute a row
                p0 = i0 * s0_0
                line = i0 % (up + 1) * n1
                for i1 in independent(0, n1):
                    ...
                    ring[line + i1] = v7
            row = i0 - up
            if row >= a0:                                  # store the row that nobody reads any more
                edge = edge_row(row, a0, b0, unit, bands, up, down)
                line = row % (up + 1) * n1
                if edge < 0:
                    move(x4, row * s0_0, ring, line, n1)
                else:
                    move(edges, edge * n1, ring, line, n1)

In a kernel over one dimension a row is a run of `columns` elements, and the last one may be shorter. Where a
row is stored while another one is computed, the innermost loop does both:

                for i1 in independent(0, n1):
                    ...
                    target[at + i1] = ring[line + i1]      # row i0 - up, to its place or to the edges
                    ring[line + i1] = v7
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from tracejit.codegen.spec import Access, Section
from tracejit.codegen.text import SourceText

MODULE = "tracejit.kernels.streams.sweep"

LaneLoop = Callable[[Section, str, str], None]
"""Writes the innermost loop over a section, between two bounds."""


def emit_sweep(kernel: SourceText, lane_loop: LaneLoop) -> None:
    """Write the loops over bands and rows."""
    spec = kernel.spec
    (section,) = spec.sections
    (store,) = (step for step in section.steps if step.kind == "ring")
    assert store.access is not None
    kernel.pointer("ring", "scratch + ring_at", store.dtype)
    kernel.pointer("edges", "edges_at", store.dtype)
    in_runs = spec.kept == 1
    if in_runs:
        kernel.line("runs = (n0 + columns - 1) // columns")
    step, count = ("run", "runs") if in_runs else ("i0", "n0")
    compute_row, store_row = (_compute_run, _store_run) if in_runs else (_compute_row, _store_row)
    with kernel.block("for unit in range(lo, hi):"):
        kernel.line("a0 = unit * band")
        kernel.line(f"b0 = a0 + band if unit < bands - 1 else {count}")
        with kernel.block(f"for {step} in range(a0, b0 + up):"):
            if spec.along:
                _store_along(kernel, section, store.access, lane_loop)
                return
            with kernel.block(f"if {step} < b0:"):
                compute_row(kernel, section, lane_loop)
            kernel.line(f"row = {step} - up")
            with kernel.block("if row >= a0:"):
                _find_edge(kernel)
                store_row(kernel, store.access, kernel.use("move", MODULE))


def _find_edge(kernel: SourceText) -> None:
    edge_row = kernel.use("edge_row", MODULE)
    kernel.line(f"edge = {edge_row}(row, a0, b0, unit, bands, up, down)")


def store_in_ring(kernel: SourceText, value: str, dtype: str) -> None:
    """Write an element of a new row into the ring; `along`: store the old one in the array first."""
    lane = kernel.spec.lane
    if kernel.spec.along:
        kernel.line(f"target[at + i{lane}] = ring[line + i{lane}]")
    kernel.write(f"ring[line + i{lane}]", value, dtype)


def _store_along(kernel: SourceText, section: Section, access: Access, lane_loop: LaneLoop) -> None:
    """Compute a row and store the one that it replaces in the ring. The first rows of a band replace none,
    and write the old elements back to the ring itself.
    """
    lane = kernel.spec.lane
    kernel.line("row = i0 - up")
    _find_edge(kernel)
    with _inner_loops(kernel):
        kernel.line(f"line = {_line(kernel, 'i0 % up')}")
        kernel.line(f"target = x{access.pointer}")
        kernel.line(f"at = {_place(kernel, access.layout)}")
        with kernel.block("if edge >= 0:"):
            kernel.line("target = edges")
            kernel.line(f"at = {_line(kernel, 'edge')}")
        with kernel.block("if row < a0:"):
            kernel.line("target = ring")
            kernel.line("at = line")
        with kernel.block("if i0 < b0:"):
            kernel.set_bases([section], range(lane))
            lane_loop(section, "0", f"n{lane}")
        with kernel.block("else:"):
            kernel.line(f"{kernel.use('move', MODULE)}(target, at, ring, line, n{lane})")


def _compute_row(kernel: SourceText, section: Section, lane_loop: LaneLoop) -> None:
    with _inner_loops(kernel):
        kernel.set_bases([section], range(kernel.spec.lane))
        kernel.line(f"line = {_line(kernel, 'i0 % (up + 1)')}")
        lane_loop(section, "0", f"n{kernel.spec.lane}")


def _store_row(kernel: SourceText, access: Access, move: str) -> None:
    """Move a row from the ring to its place, or to the edges."""
    lane = kernel.spec.lane
    with _inner_loops(kernel):
        kernel.line(f"line = {_line(kernel, 'row % (up + 1)')}")
        with kernel.block("if edge < 0:"):
            kernel.line(f"{move}(x{access.pointer}, {_place(kernel, access.layout)}, ring, line, n{lane})")
        with kernel.block("else:"):
            kernel.line(f"{move}(edges, {_line(kernel, 'edge')}, ring, line, n{lane})")


@contextmanager
def _inner_loops(kernel: SourceText) -> Iterator[None]:
    """Loops over the dimensions between that of the rows and the innermost one."""
    with ExitStack() as loops:
        for d in range(1, kernel.spec.lane):
            loops.enter_context(kernel.block(f"for i{d} in range(n{d}):"))
        yield


def _place(kernel: SourceText, layout: int) -> str:
    """The start of the innermost dimension of row `row` in the array, at the current index."""
    return " + ".join([f"row * s{layout}_0", *(f"i{d} * s{layout}_{d}" for d in range(1, kernel.spec.lane))])


def _line(kernel: SourceText, row: str) -> str:
    """The start of the innermost dimension in contiguous memory: in row `row`, at the current index."""
    place = f"{row} * n1"
    for d in range(1, kernel.spec.lane):
        place = f"({place} + i{d}) * n{d + 1}"
    return place


def _compute_run(kernel: SourceText, section: Section, lane_loop: LaneLoop) -> None:
    kernel.set_bases([section], range(0))
    kernel.line("begin = run * columns")
    kernel.line("line = run % (up + 1) * columns - begin")
    lane_loop(section, "begin", "min(begin + columns, n0)")


def _store_run(kernel: SourceText, access: Access, move: str) -> None:
    """Move a run from the ring to its place, or to the edges, which have complete runs only."""
    kernel.line("line = row % (up + 1) * columns")
    with kernel.block("if edge < 0:"):
        count = "min(columns, n0 - row * columns)"
        kernel.line(f"{move}(x{access.pointer}, row * columns, ring, line, {count})")
    with kernel.block("else:"):
        kernel.line(f"{move}(edges, edge * columns, ring, line, columns)")
