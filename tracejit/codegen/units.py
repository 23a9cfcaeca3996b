"""Division of a kernel's domain into units. It depends on the shape only, so results are the same for any
number of workers.
"""

from __future__ import annotations

import math

from tracejit.kernels.split import ceil_div
from tracejit.loopnest.program import GATHER, LOAD, REDUCE, SCAN, LoopProgram, elements_per_unit, row_tile
from tracejit.loopnest.schedule import COLUMNS, MAP, ROWS, Orientation
from tracejit.loopnest.sweep import Sweep
from tracejit.tuning import Tuning

UnitSplit = tuple[int, int, dict[str, int]]
"""The number of units, the number of units per chunk, and the values of the kernel's slots that describe
the division.
"""


def chunk_size(tuning: Tuning, units: int, target: int) -> int:
    """Return the number of units per chunk. `target` units are worth a call. A chunk has down to a quarter
    of that if there would otherwise be too few chunks for all threads, and more if there are plenty.
    """
    sizes = tuning.units
    short_chunk = max(units // sizes.min_chunks, target // 4)
    return max(
        1, min(target, short_chunk), min(sizes.long_chunk_factor * target, units // sizes.long_chunk_count)
    )


def split_map(program: LoopProgram, side: int) -> UnitSplit:
    """Split into tiles over the last two dimensions. Their side is `side` unless it is 0. In the epilogue
    of a product, a tile is one row.
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
        return units, chunk_size(program.tuning, units, 1), {"tile": tile}
    rows, columns = max(1, min(rows, kept[-2])), max(1, columns)
    row_tiles, column_tiles = ceil_div(kept[-2], rows), ceil_div(kept[-1], columns)
    slots = {"rows": rows, "row_tiles": row_tiles, "columns": columns, "column_tiles": column_tiles}
    units = math.prod(kept[:-2]) * row_tiles * column_tiles
    return units, chunk_size(program.tuning, units, budget // (rows * columns)), slots


def split_sweep(sweep: Sweep) -> UnitSplit:
    """Split into bands of rows, one per unit."""
    slots = {"bands": sweep.bands, "band": sweep.band, "up": sweep.up, "down": sweep.down}
    slots |= {"columns": sweep.run} if sweep.run else {}
    return sweep.bands, 1, slots


def split_rows(program: LoopProgram, side: int) -> UnitSplit:
    """Split into kept indices and pieces, one per unit."""
    domain = program.domain
    units = math.prod(domain.kept) * max(1, domain.pieces)
    length = ceil_div(math.prod(domain.reduced), max(1, domain.pieces))
    return units, chunk_size(program.tuning, units, elements_per_unit(program) // max(1, length)), {}


def column_tile(program: LoopProgram) -> int:
    """Return the number of columns in a unit of a COLUMNS kernel, at least 1."""
    if not program.domain.kept:
        return 1
    reads = [t for t in program.terms if t.kind in (LOAD, GATHER) and t.view is not None]
    caches, units = program.tuning.caches, program.tuning.units
    read_bytes = sum(t.view.size * t.dtype.itemsize for t in reads if t.view)
    accumulators = sum(t.kind in (REDUCE, SCAN) for t in program.terms)
    is_uncached = program.domain.pieces and read_bytes > caches.last
    most = units.uncached_columns // max(accumulators, 1) if is_uncached else units.columns
    return max(1, min(program.domain.kept[-1], max(most, units.columns)))


def split_columns(program: LoopProgram, side: int) -> UnitSplit:
    """Split into tiles of the last kept dimension, one per unit, for each outer kept index and piece."""
    domain = program.domain
    columns = column_tile(program)
    tiles = ceil_div(domain.kept[-1], columns)
    units = math.prod(domain.kept[:-1]) * tiles * max(1, domain.pieces)
    elements = ceil_div(math.prod(domain.reduced), max(1, domain.pieces)) * columns
    slots = {"columns": columns, "column_tiles": tiles}
    return units, chunk_size(program.tuning, units, elements_per_unit(program) // max(1, elements)), slots


_SPLITS = {
    MAP: split_map,
    ROWS: split_rows,
    COLUMNS: split_columns,
}


def split(program: LoopProgram, orientation: Orientation, side: int, sweep: Sweep | None) -> UnitSplit:
    """Split a kernel's domain into units. `side`: the side of its transposed tiles, or 0 if there are
    none.
    """
    return _SPLITS[orientation](program, side) if sweep is None else split_sweep(sweep)
