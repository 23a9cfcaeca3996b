"""Matrix products through BLAS: entry points, argument block and the split into panels. Needs no Numba.

OpenBLAS comes as the package `scipy-openblas32`, a private copy that is set to one thread: parallelism is the
engine's, by row panels, and the OpenBLAS inside the user's NumPy is left alone. It is built for at most 64
concurrent callers, so the engine must not run more than 64 workers that call it. The results of a product
depend on how its rows are split (packing changes the order of additions), so `gemm_plan` sees the shape
alone.

`gemm_layout` says how BLAS can read two strided operands where they lie; the kernel ``gemm`` of
`tracejit.kernels.library` takes the answer in a block with the slots of `Gemm`. C is C-contiguous.

>>> layout = gemm_layout((128, 784), (784, 1), (784, 512), (1, 784))    # x @ w.T, w is 512 by 784
>>> layout.b
Operand(leading=784, transposed=True, outer=0, inner=0)
>>> gemm_plan(1, 128, 512, 784)
GemmPlan(panel_rows=64, panels=2, units=2, chunk=1)
"""

from __future__ import annotations

import ctypes
import enum
import functools
import importlib.util
import pathlib
from collections.abc import Sequence
from typing import NamedTuple

from tracejit.kernels.blocks import ceil_div

CALLERS = 64
"""How many threads may be inside OpenBLAS at once: the size of its table of buffers."""

LARGEST = 2**31 - 1
"""Extents and leading strides are C ints."""

PANEL_BYTES = 1 << 19  # half of a common L2 cache: the panel of C that an epilogue reads again
PANEL_ROWS = 512  # packing B again costs about 24 rows' worth of arithmetic per panel: below 5 %
SPLIT_WORK = 1 << 20  # multiply-adds times 2 below which a product is one unit (about 10 us)
CHUNK_WORK = 1 << 18  # what one grab of units should be worth, for batches of tiny products
ROW_STEP = 8  # panels end on multiples of the register tile


class Gemm(enum.IntEnum):
    """Slots of the block of ``gemm``: for each matrix of the batch C = A @ B; unit = (matrix, row panel).

    Matrix ``i`` of the batch reads A at ``A + itemsize * (i // INNER * A_OUTER + i % INNER * A_INNER)``, B
    likewise, and writes C at ``C + itemsize * i * M * N``. Strides count elements. After a panel the kernel
    at address EPILOGUE (0: none) is called as ``epilogue(EPILOGUE_BLOCK, r0, r1, scratch)``, rows counted
    over the whole batch.
    """

    ENTRY = 0  # address of the BLAS function, see `entry_points`; unused by integer products
    A = 1
    B = 2
    C = 3
    M = 4
    N = 5
    K = 6
    A_LEADING = 7
    B_LEADING = 8
    A_TRANSPOSED = 9  # 1: stored as (K, M)
    B_TRANSPOSED = 10  # 1: stored as (N, K)
    INNER = 11  # extent of the inner batch dimension
    A_OUTER = 12
    A_INNER = 13
    B_OUTER = 14
    B_INNER = 15
    PANEL_ROWS = 16
    PANELS = 17  # row panels in each matrix
    EPILOGUE = 18
    EPILOGUE_BLOCK = 19


class Operand(NamedTuple):
    """How one operand lies in memory, in elements; `transposed` if its columns are the contiguous ones."""

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
    a: Operand
    b: Operand

    @property
    def batch(self) -> int:
        """How many products there are."""
        return self.outer * self.inner


class GemmPlan(NamedTuple):
    """The split of a batched product; `chunk` is how many units to take at once."""

    panel_rows: int
    panels: int  # in each matrix
    units: int
    chunk: int


@functools.cache
def entry_points() -> dict[str, int]:
    """Addresses of the matrix product for ``float32`` and ``float64``.

    The library is opened by path, not through its package, whose import would make its symbols global and so
    capture the calls of a SciPy loaded later.
    """
    package = importlib.util.find_spec("scipy_openblas32")
    if package is None or package.origin is None:
        raise ImportError("tracejit needs the package scipy-openblas32 for matrix products: pip install it")
    (path,) = (pathlib.Path(package.origin).parent / "lib").glob("libscipy_openblas.*")
    library = ctypes.CDLL(str(path))
    library.scipy_openblas_set_num_threads(1)
    return {
        dtype: ctypes.cast(getattr(library, f"scipy_cblas_{letter}gemm"), ctypes.c_void_p).value or 0
        for dtype, letter in (("float32", "s"), ("float64", "d"))
    }


def matrix_layout(shape: Sequence[int], strides: Sequence[int]) -> tuple[int, bool] | None:
    """(leading stride, transposed) of a matrix, strides in elements; None if BLAS cannot read it in place.

    >>> matrix_layout((3, 4), (4, 1)), matrix_layout((3, 4), (1, 3)), matrix_layout((3, 4), (8, 2))
    ((4, False), (3, True), None)
    """
    (rows, columns), (down, across) = shape, strides
    if rows == 0 or columns == 0:
        return max(1, columns), False
    if rows == 1:  # a dimension of extent 1 has no stride that matters
        down = max(down, columns) if across == 1 or columns == 1 else 1
    if columns == 1:
        across = 1 if rows == 1 or down >= 1 else rows
    if across == 1 and max(1, columns) <= down <= LARGEST:
        return down, False
    if down == 1 and max(1, rows) <= across <= LARGEST:
        return across, True
    return None


def gemm_layout(
    a_shape: Sequence[int], a_strides: Sequence[int], b_shape: Sequence[int], b_strides: Sequence[int]
) -> GemmLayout | None:
    """How to multiply a[..., m, k] by b[..., k, n] in place, or None if an operand must be copied first.

    Strides count elements; batch dimensions are equal and at most two are left after merging. A batch that
    shares one B and whose rows of A follow one another becomes a single product.
    """
    (*batch, m, k), n = a_shape, b_shape[-1]
    a, b = matrix_layout((m, k), a_strides[-2:]), matrix_layout((k, n), b_strides[-2:])
    strides = zip(a_strides[:-2], b_strides[:-2], strict=True) if m * n * k else [(0, 0)] * len(batch)
    levels = _merge([(extent, *pair) for extent, pair in zip(batch, strides, strict=True)])
    if a is None or b is None or len(levels) > 2 or max(m, n, k) > LARGEST:
        return None
    if len(levels) == 1 and levels[0][2] == 0 and not a[1] and levels[0][1] == m * a[0]:
        m, levels = m * levels[0][0], []
    (outer, a_outer, b_outer), (inner, a_inner, b_inner) = [(1, 0, 0)] * (2 - len(levels)) + levels
    if m > LARGEST:
        return None
    return GemmLayout(outer, inner, m, n, k, Operand(*a, a_outer, a_inner), Operand(*b, b_outer, b_inner))


def _merge(levels: list[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    """Batch dimensions (extent, stride in A, stride in B), neighbours merged where both operands allow it."""
    merged: list[tuple[int, int, int]] = []
    for extent, a, b in levels:
        if extent == 1:
            continue
        if merged and merged[-1][1:] == (extent * a, extent * b):
            merged[-1] = (merged[-1][0] * extent, a, b)
        else:
            merged.append((extent, a, b))
    return merged


def gemm_plan(batch: int, m: int, n: int, k: int, itemsize: int = 4) -> GemmPlan:
    """The split of `batch` products (m, k) @ (k, n) into row panels: a function of the shape alone.

    A tiny product is one panel. Others get panels whose part of C stays in the cache for the epilogue, but
    not fewer rows than make packing B worth it, and an even number of units where there are few, so that two
    workers balance.
    """
    if batch == 0 or m == 0 or n == 0:
        return GemmPlan(max(m, 1), 0, 0, 1)
    panels = 1
    if 2 * m * n * max(k, 1) >= SPLIT_WORK:
        panels = ceil_div(m, max(PANEL_ROWS, PANEL_BYTES // (n * itemsize)))
        if batch * panels % 2 and batch * panels < 8:
            panels += 1
    rows = min(m, ceil_div(ceil_div(m, panels), ROW_STEP) * ROW_STEP)
    panels = ceil_div(m, rows)
    return GemmPlan(rows, panels, batch * panels, max(1, CHUNK_WORK // (2 * rows * n * max(k, 1))))
