"""The loops of a MAP kernel: tiles of the last two dimensions, or one long loop.

    for unit in range(lo, hi):
        a1 = ...                                           # a tile
        transpose_tile(...)                                # operands contiguous along dimension 0
        for i0 in range(a0, b0):
            p0 = i0 * s0_0
            for i1 in independent(a1, b1):
                ...

A kernel over one dimension runs all its units in a single loop. The loops of a sweep are in
`tracejit.codegen.cpu.sweep`.
"""

from __future__ import annotations

from tracejit.codegen.cpu.loops import LoopText
from tracejit.codegen.cpu.sweep import emit_sweep
from tracejit.codegen.spec import Section

MANY_ARRAYS = 8
"""The number of arrays from which on strength reduction takes a large part of LLVM's time."""

BAND = 16
"""The number of rows whose results are streamed together, in a tile of arrays that are larger than the
caches.
"""

TILES_AHEAD = 2
"""The prefetch distance in tiles. The next tile is the mirror image of the current one and is already in
the cache.
"""


def emit_map(kernel: LoopText) -> None:
    """Emit a MAP kernel: a loop over tiles of the last two dimensions, or a single loop over all units of
    one dimension.
    """
    spec = kernel.spec
    if spec.sweep:
        emit_sweep(kernel, kernel.innermost_loop)
        return
    (section,) = spec.sections
    last = spec.innermost
    if spec.kept == 1:
        kernel.set_bases([section], range(0))
        kernel.innermost_loop(section, "lo * tile", f"min(hi * tile, n{last})")
        return
    with kernel.block("for unit in range(lo, hi):"):
        tile_bounds(kernel)
        kernel.unravel("unit // (column_tiles * row_tiles)", range(last - 1))
        transpose_tiles(kernel)
        if is_beyond_caches(kernel):
            emit_streamed_tile(kernel, section)
            return
        has_many = len(spec.pointers) >= MANY_ARRAYS
        opaque = kernel.use("opaque", "tracejit.kernels.compiler.memory") if has_many else ""
        with kernel.block(f"for i{last - 1} in range(a{last - 1}, b{last - 1}):"):
            kernel.set_bases([section], range(last), function=opaque)
            if spec.tiles:
                kernel.line(f"line = (i{last - 1} - a{last - 1}) * columns - a{last}")
            kernel.innermost_loop(section, f"a{last}", f"b{last}")


def emit_streamed_tile(kernel: LoopText, section: Section) -> None:
    """Emit the rows of a tile whose results are streamed. Several rows are streamed together, because the
    rows are short and the code between their loops takes as long as the loops.
    """
    down, last = kernel.spec.innermost - 1, kernel.spec.innermost
    with kernel.block(f"for band in range(a{down}, b{down}, {BAND}):"):
        kernel.line(f"stop = min(band + {BAND}, b{down})")
        prefetch_rows(kernel, section)
        with kernel.block(f"for i{down} in range(band, stop):"):
            kernel.set_bases([section], range(last))
            kernel.line(f"line = (i{down} - a{down}) * columns - a{last}")
            kernel.line(f"start = a{last} - (i{down} - band) * columns")
            inner = kernel.hoist([(kernel.bases, step) for step in section.steps])
            kernel.bare_loop(inner, f"a{last}", f"b{last}")
        stream = kernel.use("stream_rows", "tracejit.kernels.streams.stream")
        for step in section.steps:
            if step.kind == "stream" and step.access is not None:
                first, stride = tile_offset(kernel, step.access.layout, "band", f"a{last}")
                target = f"x{step.access.pointer}, {first}, {stride}, stage{step.position}"
                kernel.line(f"{stream}({target}, columns, stop - band, b{last} - a{last})")


def tile_offset(kernel: LoopText, layout: int, row: str, column: str) -> tuple[str, str]:
    """Return the offset of an element in a layout that moves along the innermost dimension, and the stride
    between its rows.
    """
    down = kernel.spec.innermost - 1
    outer = [f"i{d} * s{layout}_{d}" for d in range(down)]
    stride = f"s{layout}_{down}"
    return " + ".join([*outer, f"{row} * {stride}", column]), stride


def is_beyond_caches(kernel: LoopText) -> bool:
    """Return whether the operands and results of the tiles exceed the caches, in which case results are
    streamed.
    """
    return bool(kernel.spec.tiles and kernel.spec.stages)


def tile_bounds(kernel: LoopText) -> None:
    """Emit the bounds of a unit's tile along the last two dimensions, and the start of the tile to
    prefetch.
    """
    last = kernel.spec.innermost
    row, column = "unit // column_tiles % row_tiles", "unit % column_tiles"
    if is_beyond_caches(kernel):
        row, column = streamed_tile(kernel, "unit")
    for d, position, size in ((last, column, "columns"), (last - 1, row, "rows")):
        kernel.line(f"a{d} = {position} * {size}")
        kernel.line(f"b{d} = min(a{d} + {size}, n{d})")
    if is_beyond_caches(kernel):
        row, column = streamed_tile(kernel, f"(unit + {TILES_AHEAD})")
        kernel.line(f"next{last} = {column} * columns")
        kernel.line(f"next{last - 1} = {row} * rows")


def streamed_tile(kernel: LoopText, unit: str) -> tuple[str, str]:
    """Return the row and the column of a unit's tile, in a traversal order that lets the caches serve the
    transposed operands.
    """
    tile_position, row, column = (
        kernel.use(name, "tracejit.kernels.streams.transpose")
        for name in ("tile_position", "row_of", "column_of")
    )
    kernel.line(f"position = {tile_position}({unit} % (column_tiles * row_tiles), row_tiles, column_tiles)")
    return f"{row}(position)", f"{column}(position)"


def prefetch_rows(kernel: LoopText, section: Section) -> None:
    """Emit prefetches of some rows of a later tile."""
    down, last = kernel.spec.innermost - 1, kernel.spec.innermost
    loads = [s.access for s in section.steps if s.kind == "load" and s.access is not None]
    for access in dict.fromkeys(loads):
        if kernel.spec.layouts[access.layout].stride == "one":
            row = f"(next{down} + band - a{down})"
            first, stride = tile_offset(kernel, access.layout, row, f"next{last}")
            prefetch = kernel.use("prefetch_rows", "tracejit.kernels.streams.transpose")
            kernel.line(f"{prefetch}(x{access.pointer}, {first}, {stride}, stop - band, b{last} - a{last})")


def transpose_tiles(kernel: LoopText) -> None:
    """Emit the transposition, for one tile, of the operands that are not contiguous along the innermost
    dimension.
    """
    last = kernel.spec.innermost
    for n, access in enumerate(kernel.spec.tiles):
        outer = [f"i{d} * s{access.layout}_{d}" for d in range(last - 1)]
        first, ahead = (
            " + ".join([*outer, f"{start}{last - 1}", f"{start}{last} * s{access.layout}_{last}"])
            for start in ("a", "next")
        )
        size = f"columns, b{last - 1} - a{last - 1}, b{last} - a{last}"
        transpose = kernel.use("transpose_tile", "tracejit.kernels.streams.transpose")
        source = f"x{access.pointer}, {first}, s{access.layout}_{last}"
        kernel.line(f"{transpose}({source}, tile{n}, {size}, {ahead if is_beyond_caches(kernel) else -1})")
