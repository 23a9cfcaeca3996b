"""Matrix products: argument block, operands as BLAS reads them, and the split into panels. Needs no Numba.

The results of a product depend on its split (packing changes the order of additions), so `gemm_plan` depends
on the shape only. On processors with large registers, `tracejit.kernels.gemm.packed` computes most products
instead of BLAS, with the same split.

`gemm_layout` describes how BLAS can read two strided operands in place, `gemm_plan` the split of the product
into units; `gemm_slots` stores both in the argument block of the kernel ``gemm`` of
`tracejit.kernels.library.table`, which also contains the addresses of the matrices.

>>> layout = gemm_layout((128, 784), (784, 1), (784, 512), (1, 784))    # x @ w.T, w is 512 by 784
>>> layout.b
GemmOperand(leading=784, transposed=True, outer=0, inner=0)
>>> gemm_plan(1, 128, 512, 784)
GemmPlan(panel_rows=64, row_panels=2, panel_columns=512, column_panels=1, units=2, chunk=1)
"""

# No `from __future__ import annotations`: a named tuple compiles every annotation that is a string.

import enum
from collections.abc import Sequence
from typing import NamedTuple

from tracejit.kernels.gemm.blas import entry_points
from tracejit.kernels.split import ceil_div

MAX_BLAS_EXTENT = 2**31 - 1
"""Extents and leading strides are C ints."""

PANEL_BYTES = 1 << 19  # half of a common L2 cache: the panel of C that an epilogue reads again
PANEL_EXTENT = 512  # packing the other operand again costs BLAS about 24 rows' worth of arithmetic: below 5 %
MAX_EPILOGUE_ROWS = 256  # of a panel that an epilogue reads again: they should still be in the L2 cache
SPLIT_WORK = 1 << 20  # floating-point operations below which a product is one unit (about 10 us)
UNFUSED_WORK = 1 << 22  # operations from which on a single unit justifies an unfused task (about 40 us)
CHUNK_WORK = 1 << 18  # operations of a chunk of units, for batches of tiny products
STEP = 16  # panels end on multiples of the register tile, in rows
TILE_BYTES = 256  # bytes of a row of a register tile, see `tracejit.kernels.gemm.tiles`
TILE_ROWS = 6  # the most rows of a tile
VECTOR_BYTES = 64
GRAM_EXTENT, GRAM_DEPTH = 256, 256  # least rows and depth of products of which half is mirrored
GRAM_PANELS, GRAM_ROWS = 8, 64  # panels of such a product, the first with most columns; their least rows
TILE_FEATURE = "avx512f"  # of processors whose registers are large enough for tiles
TILED = 5  # with fewer rows or columns most of a tile is wasted, and BLAS is faster
DEPTH = 128  # rows of a sliver of B, see `tracejit.kernels.gemm.packed`: 32 KB
SQUARE = 8  # the rows of slivers are a multiple of this: they are copied in squares
BLOCK_ROWS = 44 * TILE_ROWS  # rows of a block of A
SPAN_BYTES = 2048  # bytes of a row of a block of A, so of 560 KB: a quarter to half of common L2 caches
PADDING = 64  # bytes between the lines of a copied block, which otherwise share few sets of the L1 cache
NEAR_BYTES = 1 << 15  # most bytes of an A that is read in place: an L1 cache
WIDE_BYTES = 3 * TILE_BYTES  # bytes of a row of B from which on blocks of a larger A are copied


class Gemm(enum.IntEnum):
    """Slots of the block of ``gemm``: C = A @ B for a batch; unit = (matrix, row panel, column panel).

    Matrix ``i`` of the batch reads A at ``A + itemsize * (i // INNER * A_OUTER + i % INNER * A_INNER)``, B
    likewise, and writes C, which is C-contiguous, at ``C + itemsize * i * M * N``. Strides count elements.
    After a panel the kernel at address EPILOGUE (0: none) is called as ``epilogue(block, r0, r1, scratch)``,
    with rows counted over all matrices of the batch; it requires complete rows, COLUMN_PANELS = 1. Its block
    is located EPILOGUE_BLOCK bytes after this one, so that blocks can be copied together. If only the
    epilogue reads the product, C may be stored in scratch memory, which the panels then reuse (IN_SCRATCH =
    1).
    """

    A = 0
    B = 1
    C = 2
    ENTRY = 3  # address of the BLAS function `?gemm`, see `blas`; unused by integer products
    VECTOR_ENTRY = 4  # address of `?gemv`, for M = 1 or N = 1
    M = 5
    N = 6
    K = 7
    A_LEADING = 8
    B_LEADING = 9
    A_TRANSPOSED = 10  # 1: stored as (K, M)
    B_TRANSPOSED = 11  # 1: stored as (N, K)
    INNER = 12  # extent of the inner batch dimension
    A_OUTER = 13
    A_INNER = 14
    B_OUTER = 15
    B_INNER = 16
    PANEL_ROWS = 17
    ROW_PANELS = 18  # in each matrix
    PANEL_COLUMNS = 19
    COLUMN_PANELS = 20
    EPILOGUE = 21
    EPILOGUE_BLOCK = 22
    IN_SCRATCH = 23  # 1: C is an offset from the start of the scratch memory, in bytes
    ADD = 24  # 1: C += A @ B
    TILED = 25  # 1: use `tracejit.kernels.gemm.packed` instead of BLAS, if the processor supports it
    A_COPIED = 26  # 1: the packed product copies blocks of A
    PACKED = 27  # offset of the copies in scratch memory, see `packing`


class GemmOperand(NamedTuple):
    """The memory layout of one operand, in elements; `transposed` if its columns are contiguous."""

    leading: int
    transposed: bool
    outer: int
    inner: int


class GemmLayout(NamedTuple):
    """A batched product as BLAS reads it: `outer` x `inner` products of (m, k) @ (k, n)."""

    outer: int
    inner: int
    m: int
    n: int
    k: int
    a: GemmOperand
    b: GemmOperand

    @property
    def batch(self) -> int:
        """The number of products."""
        return self.outer * self.inner


class GemmPlan(NamedTuple):
    """The split of a batched product; `chunk` is the number of units that a worker takes at a time."""

    panel_rows: int
    row_panels: int
    panel_columns: int
    column_panels: int
    units: int
    chunk: int


def matrix_layout(shape: Sequence[int], strides: Sequence[int]) -> tuple[int, bool] | None:
    """The layout (leading stride, transposed) of a matrix, strides in elements; None if BLAS cannot read it
    in place.

    >>> matrix_layout((3, 4), (4, 1)), matrix_layout((3, 4), (1, 3)), matrix_layout((3, 4), (8, 2))
    ((4, False), (3, True), None)
    """
    (rows, columns), (down, across) = shape, strides
    if rows == 0 or columns == 0:
        return max(1, columns), False
    if rows == 1:  # the stride of a dimension of extent 1 is irrelevant
        down = max(down, columns) if across == 1 or columns == 1 else 1
    if columns == 1:
        across = 1 if rows == 1 or down >= 1 else rows
    if across == 1 and max(1, columns) <= down <= MAX_BLAS_EXTENT:
        return down, False
    if down == 1 and max(1, rows) <= across <= MAX_BLAS_EXTENT:
        return across, True
    return None


def gemm_layout(
    a_shape: Sequence[int], a_strides: Sequence[int], b_shape: Sequence[int], b_strides: Sequence[int]
) -> GemmLayout | None:
    """The layout for a[..., m, k] @ b[..., k, n] in place, or None if an operand must be copied first.

    Strides count elements; batch dimensions are equal and at most two remain after merging. A batch with a
    single B and contiguous rows of A becomes a single product.
    """
    (*batch, m, k), n = a_shape, b_shape[-1]
    a, b = matrix_layout((m, k), a_strides[-2:]), matrix_layout((k, n), b_strides[-2:])
    strides = zip(a_strides[:-2], b_strides[:-2], strict=True) if m * n * k else [(0, 0)] * len(batch)
    levels = _merge([(extent, *pair) for extent, pair in zip(batch, strides, strict=True)])
    if a is None or b is None or len(levels) > 2 or max(m, n, k) > MAX_BLAS_EXTENT:
        return None
    if len(levels) == 1 and levels[0][2] == 0 and not a[1] and levels[0][1] == m * a[0]:
        m, levels = m * levels[0][0], []
    (outer, a_outer, b_outer), (inner, a_inner, b_inner) = [(1, 0, 0)] * (2 - len(levels)) + levels
    if m > MAX_BLAS_EXTENT:
        return None
    return GemmLayout(
        outer, inner, m, n, k, GemmOperand(*a, a_outer, a_inner), GemmOperand(*b, b_outer, b_inner)
    )


def _merge(levels: list[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    """The batch dimensions (extent, stride in A, stride in B), neighbours merged if both operands
    allow it.
    """
    merged: list[tuple[int, int, int]] = []
    for extent, a, b in levels:
        if extent == 1:
            continue
        if merged and merged[-1][1:] == (extent * a, extent * b):
            merged[-1] = (merged[-1][0] * extent, a, b)
        else:
            merged.append((extent, a, b))
    return merged


def gemm_plan(batch: int, m: int, n: int, k: int, itemsize: int = 4, *, epilogue: bool = True) -> GemmPlan:
    """The split of `batch` products (m, k) @ (k, n) into panels: a function of the shape.

    A tiny product is one panel. With an epilogue, which requires complete rows, panels are rows; otherwise
    the longer side of C is split, so that the smaller operand is the one that is packed again for each panel.
    That matters for few rows: 64 rows in two panels of rows cost 1.2 times the unsplit product, 16 rows 1.5
    times; below about 64 rows a separate task for the epilogue is better.
    """
    if batch == 0 or m == 0 or n == 0:
        return GemmPlan(max(m, 1), 0, max(n, 1), 0, 0, 1)
    rows, columns = m, n
    if 2 * m * n * max(k, 1) >= SPLIT_WORK:
        if epilogue or m >= n:
            rows = _panel(batch, m, n * itemsize, STEP, MAX_EPILOGUE_ROWS if epilogue else PANEL_EXTENT)
        else:
            columns = _panel(batch, n, m * itemsize, TILE_BYTES // itemsize, PANEL_EXTENT)
    row_panels, column_panels = ceil_div(m, rows), ceil_div(n, columns)
    chunk = max(1, CHUNK_WORK // (2 * rows * columns * max(k, 1)))
    return GemmPlan(rows, row_panels, columns, column_panels, batch * row_panels * column_panels, chunk)


def is_split_by_rows(batch: int, m: int, n: int, k: int, itemsize: int, *, tiles: bool) -> bool:
    """Whether a product of floats is split like one with an epilogue even if it has none, so that it has the
    same bits: BLAS adds in an order that depends on the panel. Register tiles, if the processor has `tiles`,
    add in the order of k. A product that never has an epilogue is split for speed.

    >>> [is_split_by_rows(1, 512, 512, 512, 4, tiles=tiles) for tiles in (True, False)]
    [False, True]
    """
    by_tiles = tiles and is_tiled(m, n, k)
    return not (by_tiles or (batch == 1 and is_better_unfused(m, n, k, itemsize)))


def is_better_unfused(m: int, n: int, k: int, itemsize: int) -> bool:
    """Whether a product (m, k) @ (k, n) should be a separate task rather than have an epilogue: because it
    has few rows, it would be a single unit with an epilogue, and it has much work.

    >>> is_better_unfused(16, 1024, 256, 4), is_better_unfused(64, 1024, 256, 4)
    (True, False)
    """
    if 2 * m * n * k < UNFUSED_WORK:
        return False
    fused_units, unfused_units = (
        gemm_plan(1, m, n, k, itemsize, epilogue=has).units for has in (True, False)
    )
    return fused_units == 1 < unfused_units


def is_gram(layout: GemmLayout) -> bool:
    """Whether a product whose operands begin at the same address multiplies matrices by their own transposes,
    so that its results are symmetric, and is large enough for the kernel ``gram``.
    """
    if layout.m < GRAM_EXTENT or layout.m != layout.n or layout.k < GRAM_DEPTH:
        return False
    return layout.a._replace(transposed=not layout.a.transposed) == layout.b


def gram_plan(batch: int, n: int) -> GemmPlan:
    """The split of `batch` products of (n, k) matrices and their own transposes into panels of rows, which
    begin at the diagonal: the first panels have most columns.
    """
    rows = ceil_div(ceil_div(n, GRAM_PANELS), STEP) * STEP
    rows = min(max(rows, GRAM_ROWS), MAX_EPILOGUE_ROWS)
    panels = ceil_div(n, rows)
    return GemmPlan(rows, panels, n, 1, batch * panels, 1)


def most_panel_bytes(line_bytes: int) -> int:
    """The largest size in bytes of a panel of a large product with an epilogue; `line_bytes`: bytes of
    a row.
    """
    return max(MAX_EPILOGUE_ROWS * line_bytes, PANEL_BYTES)


def _panel(batch: int, extent: int, line_bytes: int, step: int, enough: int) -> int:
    """The extent of one panel along the split side: its block of C fits in the cache, or the extent is
    `enough`.

    A small number of units is even, so that two workers have equal loads.
    """
    panels = ceil_div(extent, max(enough, PANEL_BYTES // line_bytes))
    if batch * panels % 2 and batch * panels < 8:
        panels += 1
    return min(extent, ceil_div(ceil_div(extent, panels), step) * step)


def gemm_slots(layout: GemmLayout, plan: GemmPlan, dtype: str) -> dict[Gemm, int]:
    """The values of the slots that are determined by layout, plan and dtype (a NumPy name)."""
    letter, itemsize = {"float32": ("s", 4), "float64": ("d", 8)}.get(dtype, ("", 0))
    a, b = layout.a, layout.b
    return {
        Gemm.ENTRY: entry_points()[letter + "gemm"] if letter else 0,
        Gemm.VECTOR_ENTRY: entry_points()[letter + "gemv"] if letter else 0,
        Gemm.M: layout.m,
        Gemm.N: layout.n,
        Gemm.K: layout.k,
        Gemm.A_LEADING: a.leading,
        Gemm.B_LEADING: b.leading,
        Gemm.A_TRANSPOSED: int(a.transposed),
        Gemm.B_TRANSPOSED: int(b.transposed),
        Gemm.INNER: layout.inner,
        Gemm.A_OUTER: a.outer,
        Gemm.A_INNER: a.inner,
        Gemm.B_OUTER: b.outer,
        Gemm.B_INNER: b.inner,
        Gemm.PANEL_ROWS: plan.panel_rows,
        Gemm.ROW_PANELS: plan.row_panels,
        Gemm.PANEL_COLUMNS: plan.panel_columns,
        Gemm.COLUMN_PANELS: plan.column_panels,
        Gemm.TILED: int(letter != "" and is_tiled(layout.m, layout.n, layout.k)),
        Gemm.A_COPIED: int(is_copied(layout, itemsize)),
    }


def is_tiled(m: int, n: int, k: int) -> bool:
    """Whether `tracejit.kernels.gemm.packed` computes a product (m, k) @ (k, n) of floats, on processors with
    large enough registers.
    """
    return min(m, n) >= TILED and k > 1


def is_copied(layout: GemmLayout, itemsize: int) -> bool:
    """Whether blocks of A are copied first: if A exceeds the L1 cache, and B has enough slivers. A copy
    streams long lines; tiles would read many short ones, which may conflict in the sets of a cache.
    """
    return layout.n * itemsize >= WIDE_BYTES and layout.m * layout.k * itemsize > NEAR_BYTES


def packing(layout: GemmLayout, plan: GemmPlan, itemsize: int) -> int:
    """The bytes of scratch memory that `tracejit.kernels.gemm.packed` needs for a sliver of B and a block of
    A.
    """
    if not is_tiled(layout.m, layout.n, layout.k):
        return 0
    depth, span = min(ceil_div(layout.k, SQUARE) * SQUARE, DEPTH), min(layout.k, SPAN_BYTES // itemsize)
    lines, length = min(BLOCK_ROWS, ceil_div(plan.panel_rows, TILE_ROWS) * TILE_ROWS), span
    if layout.a.transposed:
        lines, length = length, lines
    block = lines * (length * itemsize + PADDING) if is_copied(layout, itemsize) else 0
    return depth * TILE_BYTES + block
