"""Argument blocks and splits of the library kernels other than ``gemm`` (see `gemm.plan`). Needs no Numba.

A block is a row of 8-byte slots; each class names the slots of one kernel of
`tracejit.kernels.library.table`. A plan splits a task into units by its shapes.

>>> copy_plan(1 << 20)
CopyPlan(unit_bytes=262144, units=4, chunk=1)
>>> scatter_plan(1, 4096, 768, 30000)         # gradient of an embedding: the columns are shared out
ScatterPlan(rows=30000, row_parts=1, columns=96, column_parts=8, units=8, chunk=1)
"""

# No `from __future__ import annotations`: a named tuple compiles every annotation that is a string.

import enum
from typing import NamedTuple

from tracejit.kernels.split import ceil_div

COPY_BYTES = 1 << 18  # one unit of a copy: about 10 us
SCATTER_WORK = 1 << 15  # elements added below which a scatter is not split
SCATTER_PARTS = 8
LINE = 16  # elements: parts of a row end on cache lines for items of 4 bytes or more


class Copy(enum.IntEnum):
    """Slots of ``copy``: BYTES bytes from SOURCE to TARGET, which do not overlap; unit = UNIT_BYTES."""

    SOURCE = 0
    TARGET = 1
    BYTES = 2
    UNIT_BYTES = 3


class ScatterAdd(enum.IntEnum):
    """Slots of ``scatter_add``: OUT = 0, then for p in order ``OUT[o, INDEX[p], :] += X[o, p, :]``.

    X is (outer, COUNT, INNER), INDEX is int64 (COUNT,) and in range, OUT is (outer, EXTENT, INNER), all
    C-contiguous. Unit = (o, part of the target rows, part of the columns). Every element of OUT belongs to
    one unit and takes its additions in the order of INDEX, so the split does not show in the result.
    """

    X = 0
    INDEX = 1
    OUT = 2
    COUNT = 3
    INNER = 4
    EXTENT = 5
    ROWS = 6  # target rows in a part
    ROW_PARTS = 7
    COLUMNS = 8  # columns in a part
    COLUMN_PARTS = 9


class CopyPlan(NamedTuple):
    """The split of a copy."""

    unit_bytes: int
    units: int
    chunk: int


class ScatterPlan(NamedTuple):
    """The split of a scatter by rows and columns; `chunk` is the number of units taken at once."""

    rows: int
    row_parts: int
    columns: int
    column_parts: int
    units: int
    chunk: int


def copy_plan(nbytes: int) -> CopyPlan:
    """The split of a copy of `nbytes` bytes."""
    return CopyPlan(COPY_BYTES, ceil_div(nbytes, COPY_BYTES), 1)


def scatter_plan(outer: int, count: int, inner: int, extent: int) -> ScatterPlan:
    """The split of a scatter of (outer, count, inner) into (outer, extent, inner).

    The outer dimension is split first; where it is short, the columns, which balances for any index; rows
    that are too narrow are split by target, where each part reads all of the index.
    """
    work = max(count, extent) * inner
    if outer * extent * inner == 0:
        return ScatterPlan(max(extent, 1), 1, max(inner, 1), 1, 0, 1)
    rows, columns = extent, inner
    if outer < SCATTER_PARTS and work >= SCATTER_WORK:
        parts = ceil_div(SCATTER_PARTS, outer)
        if inner >= 2 * LINE:
            columns = ceil_div(ceil_div(inner, parts), LINE) * LINE
        elif inner >= SCATTER_PARTS:
            rows = ceil_div(extent, parts)
    row_parts, column_parts = ceil_div(extent, rows), ceil_div(inner, columns)
    chunk = max(1, SCATTER_WORK // max(1, count * columns + rows * columns))
    return ScatterPlan(rows, row_parts, columns, column_parts, outer * row_parts * column_parts, chunk)
