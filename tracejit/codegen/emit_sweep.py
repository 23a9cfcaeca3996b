"""The loops of a sweep (see `tracejit.passes.sweep`): rows in order, their results through a ring.

for unit in range(lo, hi):                             # a band of rows
    a0 = unit * band
    b0 = a0 + band if unit < bands - 1 else n0
    for i0 in range(a0, b0 + up):
        if i0 < b0:                                    # compute a row
            ...
            line = i0 % (up + 1) * n1
            for i1 in independent(0, n1):
                ...
                ring[line + i1] = v7
        row = i0 - up
        if row >= a0:                                  # store the row that nobody reads any more
            line = row % (up + 1) * n1
            edge = edge_row(row, a0, b0, unit, bands, up, down)
            if edge < 0:
                move(x4, row * s0_0, ring, line, n1)
            else:
                move(edges, edge * n1, ring, line, n1)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from tracejit.codegen.spec import Section
from tracejit.codegen.text import Source

MODULE = "tracejit.kernels.sweep"


def emit_sweep(kernel: Source, lane_loop: Callable[[Section, str, str], None]) -> None:
    """Write the loops over bands and rows; `lane_loop` writes the innermost one."""
    spec = kernel.spec
    (section,) = spec.sections
    (store,) = (step for step in section.steps if step.kind == "ring")
    kernel.pointer("ring", "scratch + ring_at", store.dtype)
    kernel.pointer("edges", "edges_at", store.dtype)
    with kernel.block("for unit in range(lo, hi):"):
        kernel.line("a0 = unit * band")
        kernel.line("b0 = a0 + band if unit < bands - 1 else n0")
        with kernel.block("for i0 in range(a0, b0 + up):"):
            with kernel.block("if i0 < b0:"), _inner_loops(kernel):
                kernel.set_bases([section], range(spec.lane))
                kernel.line(f"line = {_line(kernel, 'i0 % (up + 1)')}")
                lane_loop(section, "0", f"n{spec.lane}")
            kernel.line("row = i0 - up")
            with kernel.block("if row >= a0:"):
                assert store.access is not None
                _store_row(kernel, store.access.pointer, store.access.layout)


def _store_row(kernel: Source, pointer: int, layout: int) -> None:
    """Move a row from the ring to its place, or to the edges."""
    spec = kernel.spec
    move = kernel.use("move", MODULE)
    kernel.line(f"edge = {kernel.use('edge_row', MODULE)}(row, a0, b0, unit, bands, up, down)")
    with _inner_loops(kernel):
        moves = [f"row * s{layout}_0", *(f"i{d} * s{layout}_{d}" for d in range(1, spec.lane))]
        kernel.line(f"line = {_line(kernel, 'row % (up + 1)')}")
        with kernel.block("if edge < 0:"):
            kernel.line(f"{move}(x{pointer}, {' + '.join(moves)}, ring, line, n{spec.lane})")
        with kernel.block("else:"):
            kernel.line(f"{move}(edges, {_line(kernel, 'edge')}, ring, line, n{spec.lane})")


@contextmanager
def _inner_loops(kernel: Source) -> Iterator[None]:
    """Loops over the dimensions between that of the rows and the innermost one."""
    with ExitStack() as loops:
        for d in range(1, kernel.spec.lane):
            loops.enter_context(kernel.block(f"for i{d} in range(n{d}):"))
        yield


def _line(kernel: Source, row: str) -> str:
    """Where the innermost dimension begins in contiguous memory: in row `row`, at the current index."""
    place = f"{row} * n1"
    for d in range(1, kernel.spec.lane):
        place = f"({place} + i{d}) * n{d + 1}"
    return place
