"""The loops of a MAP kernel: tiles of the last two dimensions, or one long loop.

    for unit in range(lo, hi):
        a1 = ...                                           # a tile
        transpose_tile(...)                                # operands that lie across the loop
        for i0 in range(a0, b0):
            p0 = i0 * s0_0
            for i1 in independent(a1, b1):
                ...

A kernel over one dimension takes all its units in one loop; a sweep has loops of its own
(`tracejit.codegen.cpu.sweep`).
"""

from __future__ import annotations

from tracejit.codegen.cpu.loops import LoopText
from tracejit.codegen.cpu.sweep import emit_sweep
from tracejit.codegen.spec import Section

BAND = 16
"""Rows whose results are streamed at a time, in a tile of arrays larger than the caches."""

TILES_AHEAD = 2
"""The distance of the tile to prefetch: the next one, the mirror image of this one, is in the cache already.
"""


def emit_map(kernel: LoopText) -> None:
    """Write a MAP kernel: tiles of the last two dimensions, or all units of one dimension in one loop."""
    spec = kernel.spec
    if spec.sweep:
        emit_sweep(kernel, kernel.lane_loop)
        return
    (section,) = spec.sections
    last = spec.lane
    if spec.kept == 1:
        kernel.set_bases([section], range(0))
        kernel.lane_loop(section, "lo * tile", f"min(hi * tile, n{last})")
        return
    with kernel.block("for unit in range(lo, hi):"):
        place_tile(kernel)
        kernel.unravel("unit // (column_tiles * row_tiles)", range(last - 1))
        transpose_tiles(kernel)
        if is_beyond_caches(kernel):
            emit_streamed_tile(kernel, section)
            return
        with kernel.block(f"for i{last - 1} in range(a{last - 1}, b{last - 1}):"):
            kernel.set_bases([section], range(last))
            if spec.tiles:
                kernel.line(f"line = (i{last - 1} - a{last - 1}) * columns - a{last}")
            kernel.lane_loop(section, f"a{last}", f"b{last}")


def emit_streamed_tile(kernel: LoopText, section: Section) -> None:
    """The rows of a tile, whose results are streamed several rows at a time: the rows are short, and the code
    between their loops takes as long as the loops.
    """
    down, last = kernel.spec.lane - 1, kernel.spec.lane
    with kernel.block(f"for band in range(a{down}, b{down}, {BAND}):"):
        kernel.line(f"stop = min(band + {BAND}, b{down})")
        prefetch_rows(kernel, section)
        with kernel.block(f"for i{down} in range(band, stop):"):
            kernel.set_bases([section], range(last))
            kernel.line(f"line = (i{down} - a{down}) * columns - a{last}")
            kernel.line(f"start = a{last} - (i{down} - band) * columns")
            inside = kernel.hoist([(kernel.bases, step) for step in section.steps])
            kernel.bare_loop(inside, f"a{last}", f"b{last}")
        stream = kernel.use("stream_rows", "tracejit.kernels.streams.stream")
        for step in section.steps:
            if step.kind == "stream" and step.access is not None:
                first, stride = place_in_tile(kernel, step.access.layout, "band", f"a{last}")
                target = f"x{step.access.pointer}, {first}, {stride}, stage{step.position}"
                kernel.line(f"{stream}({target}, columns, stop - band, b{last} - a{last})")


def place_in_tile(kernel: LoopText, layout: int, row: str, column: str) -> tuple[str, str]:
    """The place of an element of a layout that moves along the lane, and the stride of its rows."""
    down = kernel.spec.lane - 1
    outer = [f"i{d} * s{layout}_{d}" for d in range(down)]
    stride = f"s{layout}_{down}"
    return " + ".join([*outer, f"{row} * {stride}", column]), stride


def is_beyond_caches(kernel: LoopText) -> bool:
    """Whether operands and results of tiles are larger than the caches: results are streamed then."""
    return bool(kernel.spec.tiles and kernel.spec.stages)


def place_tile(kernel: LoopText) -> None:
    """The bounds of a unit's tile along the last two dimensions, and the start of the tile to prefetch."""
    last = kernel.spec.lane
    row, column = "unit // column_tiles % row_tiles", "unit % column_tiles"
    if is_beyond_caches(kernel):
        row, column = streamed_tile(kernel, "unit")
    for d, place, size in ((last, column, "columns"), (last - 1, row, "rows")):
        kernel.line(f"a{d} = {place} * {size}")
        kernel.line(f"b{d} = min(a{d} + {size}, n{d})")
    if is_beyond_caches(kernel):
        row, column = streamed_tile(kernel, f"(unit + {TILES_AHEAD})")
        kernel.line(f"next{last} = {column} * columns")
        kernel.line(f"next{last - 1} = {row} * rows")


def streamed_tile(kernel: LoopText, unit: str) -> tuple[str, str]:
    """Row and column of the tile of a unit, in an order in which the caches serve the transposed operands."""
    place, row, column = (
        kernel.use(name, "tracejit.kernels.streams.transpose")
        for name in ("tile_place", "row_of", "column_of")
    )
    kernel.line(f"place = {place}({unit} % (column_tiles * row_tiles), row_tiles, column_tiles)")
    return f"{row}(place)", f"{column}(place)"


def prefetch_rows(kernel: LoopText, section: Section) -> None:
    """Prefetch some rows of a later tile."""
    down, last = kernel.spec.lane - 1, kernel.spec.lane
    loads = [s.access for s in section.steps if s.kind == "load" and s.access is not None]
    for access in dict.fromkeys(loads):
        if kernel.spec.layouts[access.layout].lane == "one":
            row = f"(next{down} + band - a{down})"
            first, stride = place_in_tile(kernel, access.layout, row, f"next{last}")
            prefetch = kernel.use("prefetch_rows", "tracejit.kernels.streams.transpose")
            kernel.line(f"{prefetch}(x{access.pointer}, {first}, {stride}, stop - band, b{last} - a{last})")


def transpose_tiles(kernel: LoopText) -> None:
    """Transpose the operands that lie across the loop, for one tile."""
    last = kernel.spec.lane
    for n, access in enumerate(kernel.spec.tiles):
        outer = [f"i{d} * s{access.layout}_{d}" for d in range(last - 1)]
        first, further = (
            " + ".join([*outer, f"{start}{last - 1}", f"{start}{last} * s{access.layout}_{last}"])
            for start in ("a", "next")
        )
        size = f"columns, b{last - 1} - a{last - 1}, b{last} - a{last}"
        transpose = kernel.use("transpose_tile", "tracejit.kernels.streams.transpose")
        source = f"x{access.pointer}, {first}, s{access.layout}_{last}"
        kernel.line(f"{transpose}({source}, tile{n}, {size}, {further if is_beyond_caches(kernel) else -1})")
