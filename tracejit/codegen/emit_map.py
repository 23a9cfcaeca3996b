"""The loops of a MAP kernel: tiles of the last two dimensions, or one long loop.

    for unit in range(lo, hi):
        a1 = ...                                           # a tile
        transpose_tile(...)                                # what lies across the loop
        for i0 in range(a0, b0):
            p0 = i0 * s0_0
            for i1 in independent(a1, b1):
                ...

A kernel over one dimension takes all its units in one loop; a sweep has loops of its own
(`tracejit.codegen.emit_sweep`).
"""

from __future__ import annotations

from tracejit.codegen.cpu_loops import Loops
from tracejit.codegen.emit_sweep import emit_sweep
from tracejit.codegen.spec import Section

TILES_AHEAD = 2
"""Which of the next far tiles is asked for: not the mirror image, which comes next and is there already."""


def emit_map(kernel: Loops) -> None:
    """Tiles of the last two dimensions; a kernel over one dimension takes all its units in one loop."""
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
        with kernel.block(f"for i{last - 1} in range(a{last - 1}, b{last - 1}):"):
            kernel.set_bases([section], range(last))
            if spec.tiles:
                kernel.line(f"line = (i{last - 1} - a{last - 1}) * columns - a{last}")
            prefetch_rows(kernel, section)
            kernel.lane_loop(section, f"a{last}", f"b{last}")


def is_far(kernel: Loops) -> bool:
    """Whether tiles are transposed of what no cache holds."""
    return bool(kernel.spec.tiles and kernel.spec.stages)


def place_tile(kernel: Loops) -> None:
    """The bounds of the tile of a unit, along the last two dimensions; where a far one to come begins."""
    last = kernel.spec.lane
    row, column = "unit // column_tiles % row_tiles", "unit % column_tiles"
    if is_far(kernel):
        row, column = far_tile(kernel, "unit")
    for d, place, size in ((last, column, "columns"), (last - 1, row, "rows")):
        kernel.line(f"a{d} = {place} * {size}")
        kernel.line(f"b{d} = min(a{d} + {size}, n{d})")
    if is_far(kernel):
        row, column = far_tile(kernel, f"(unit + {TILES_AHEAD})")
        kernel.line(f"next{last} = {column} * columns")
        kernel.line(f"next{last - 1} = {row} * rows")


def far_tile(kernel: Loops, unit: str) -> tuple[str, str]:
    """Row and column of the tile of a unit where no cache holds what is transposed."""
    place, row, column = (
        kernel.use(name, "tracejit.kernels.tiles") for name in ("tile_place", "row_of", "column_of")
    )
    kernel.line(f"place = {place}({unit} % (column_tiles * row_tiles), row_tiles, column_tiles)")
    return f"{row}(place)", f"{column}(place)"


def prefetch_rows(kernel: Loops, section: Section) -> None:
    """Ask for a row of a far tile to come."""
    last = kernel.spec.lane
    loads = [s.access for s in section.steps if s.kind == "load" and s.access is not None]
    for access in dict.fromkeys(loads) if is_far(kernel) else ():
        if kernel.spec.layouts[access.layout].lane == "one":
            down = f"(next{last - 1} - a{last - 1}) * s{access.layout}_{last - 1}"
            place = f"{kernel.bases[access.layout]} + {down} + next{last}"
            prefetch = kernel.use("prefetch_run", "tracejit.kernels.tiles")
            kernel.line(f"{prefetch}(x{access.pointer}, {place}, b{last} - a{last})")


def transpose_tiles(kernel: Loops) -> None:
    """Copy what lies across the loop, for one tile, so that it lies along it."""
    last = kernel.spec.lane
    for n, access in enumerate(kernel.spec.tiles):
        outer = [f"i{d} * s{access.layout}_{d}" for d in range(last - 1)]
        first, further = (
            " + ".join([*outer, f"{start}{last - 1}", f"{start}{last} * s{access.layout}_{last}"])
            for start in ("a", "next")
        )
        size = f"columns, b{last - 1} - a{last - 1}, b{last} - a{last}"
        transpose = kernel.use("transpose_tile", "tracejit.kernels.tiles")
        source = f"x{access.pointer}, {first}, s{access.layout}_{last}"
        kernel.line(f"{transpose}({source}, tile{n}, {size}, {further if is_far(kernel) else -1})")
