"""The loops of a sweep (see `tracejit.loopnest.sweep`): rows in order, with results buffered in a ring.

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
            if row >= a0:                                  # store the row that no later row reads
                edge = edge_row(row, a0, b0, unit, bands, up, down)
                line = row % (up + 1) * n1
                if edge < 0:
                    move(x4, row * s0_0, ring, line, n1)
                else:
                    move(edges, edge * n1, ring, line, n1)

In a kernel over one dimension a row is a run of `columns` elements; the last run may be shorter. If a row is
stored while another one is computed (`KernelSpec.along`), the innermost loop does both:

                for i1 in independent(0, n1):
                    ...
                    target[at + i1] = ring[line + i1]      # row i0 - up, to the array or to the edges
                    ring[line + i1] = v7
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from tracejit.codegen.spec import Access, Section
from tracejit.codegen.text import SourceText

MODULE = "tracejit.kernels.streams.sweep"

InnermostLoop = Callable[[Section, str, str], None]
"""Emits the innermost loop over a section, between two bounds."""


def emit_sweep(kernel: SourceText, innermost_loop: InnermostLoop) -> None:
    """Emit the loops over bands and rows."""
    spec = kernel.spec
    (section,) = spec.sections
    (store,) = (index for index in section.steps if index.kind == "ring")
    assert store.access is not None
    kernel.pointer("ring", "scratch + ring_at", store.dtype)
    kernel.pointer("edges", "edges_at", store.dtype)
    in_runs = spec.kept == 1
    if in_runs:
        kernel.line("runs = (n0 + columns - 1) // columns")
    index, extent = ("run", "runs") if in_runs else ("i0", "n0")
    compute_row, store_row = (_compute_run, _store_run) if in_runs else (_compute_row, _store_row)
    with kernel.block("for unit in range(lo, hi):"):
        kernel.line("a0 = unit * band")
        kernel.line(f"b0 = a0 + band if unit < bands - 1 else {extent}")
        with kernel.block(f"for {index} in range(a0, b0 + up):"):
            if spec.along:
                _store_along(kernel, section, store.access, innermost_loop)
                return
            with kernel.block(f"if {index} < b0:"):
                compute_row(kernel, section, innermost_loop)
            kernel.line(f"row = {index} - up")
            with kernel.block("if row >= a0:"):
                _emit_edge(kernel)
                store_row(kernel, store.access, kernel.use("move", MODULE))


def _emit_edge(kernel: SourceText) -> None:
    edge_row = kernel.use("edge_row", MODULE)
    kernel.line(f"edge = {edge_row}(row, a0, b0, unit, bands, up, down)")


def store_in_ring(kernel: SourceText, value: str, dtype: str) -> None:
    """Emit the store of an element of a new row into the ring. If the spec is `along`, the old element
    moves to the array first.
    """
    innermost = kernel.spec.innermost
    if kernel.spec.along:
        kernel.line(f"target[at + i{innermost}] = ring[line + i{innermost}]")
    kernel.write(f"ring[line + i{innermost}]", value, dtype)


def _store_along(kernel: SourceText, section: Section, access: Access, innermost_loop: InnermostLoop) -> None:
    """Emit the computation of a row fused with the store of the row it replaces in the ring. The first
    rows of a band replace none: they write the old elements back to the ring itself.
    """
    innermost = kernel.spec.innermost
    kernel.line("row = i0 - up")
    _emit_edge(kernel)
    with _inner_loops(kernel):
        kernel.line(f"line = {_line_offset(kernel, 'i0 % up')}")
        kernel.line(f"target = x{access.pointer}")
        kernel.line(f"at = {_array_offset(kernel, access.layout)}")
        with kernel.block("if edge >= 0:"):
            kernel.line("target = edges")
            kernel.line(f"at = {_line_offset(kernel, 'edge')}")
        with kernel.block("if row < a0:"):
            kernel.line("target = ring")
            kernel.line("at = line")
        with kernel.block("if i0 < b0:"):
            kernel.set_bases([section], range(innermost))
            innermost_loop(section, "0", f"n{innermost}")
        with kernel.block("else:"):
            kernel.line(f"{kernel.use('move', MODULE)}(target, at, ring, line, n{innermost})")


def _compute_row(kernel: SourceText, section: Section, innermost_loop: InnermostLoop) -> None:
    with _inner_loops(kernel):
        kernel.set_bases([section], range(kernel.spec.innermost))
        kernel.line(f"line = {_line_offset(kernel, 'i0 % (up + 1)')}")
        innermost_loop(section, "0", f"n{kernel.spec.innermost}")


def _store_row(kernel: SourceText, access: Access, move: str) -> None:
    """Emit the move of a row from the ring to the array, or to the edges."""
    innermost = kernel.spec.innermost
    with _inner_loops(kernel):
        kernel.line(f"line = {_line_offset(kernel, 'row % (up + 1)')}")
        with kernel.block("if edge < 0:"):
            kernel.line(
                f"{move}(x{access.pointer}, {_array_offset(kernel, access.layout)}, ring, line, n{innermost})"
            )
        with kernel.block("else:"):
            kernel.line(f"{move}(edges, {_line_offset(kernel, 'edge')}, ring, line, n{innermost})")


@contextmanager
def _inner_loops(kernel: SourceText) -> Iterator[None]:
    """Emit the loops over the dimensions between the row dimension and the innermost one."""
    with ExitStack() as loops:
        for d in range(1, kernel.spec.innermost):
            loops.enter_context(kernel.block(f"for i{d} in range(n{d}):"))
        yield


def _array_offset(kernel: SourceText, layout: int) -> str:
    """Return the offset in the array at which the innermost dimension starts, for the row `row` and the
    current indices.
    """
    return " + ".join(
        [f"row * s{layout}_0", *(f"i{d} * s{layout}_{d}" for d in range(1, kernel.spec.innermost))]
    )


def _line_offset(kernel: SourceText, row: str) -> str:
    """Return the offset in contiguous memory at which the innermost dimension starts, for the row `row`
    and the current indices.
    """
    offset = f"{row} * n1"
    for d in range(1, kernel.spec.innermost):
        offset = f"({offset} + i{d}) * n{d + 1}"
    return offset


def _compute_run(kernel: SourceText, section: Section, innermost_loop: InnermostLoop) -> None:
    kernel.set_bases([section], range(0))
    kernel.line("begin = run * columns")
    kernel.line("line = run % (up + 1) * columns - begin")
    innermost_loop(section, "begin", "min(begin + columns, n0)")


def _store_run(kernel: SourceText, access: Access, move: str) -> None:
    """Emit the move of a run from the ring to the array, or to the edges, which contain complete runs
    only.
    """
    kernel.line("line = row % (up + 1) * columns")
    with kernel.block("if edge < 0:"):
        length = "min(columns, n0 - row * columns)"
        kernel.line(f"{move}(x{access.pointer}, row * columns, ring, line, {length})")
    with kernel.block("else:"):
        kernel.line(f"{move}(edges, edge * columns, ring, line, columns)")
