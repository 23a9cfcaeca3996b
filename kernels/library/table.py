"""The table of library kernels: hand-written kernels with the interface of generated ones.

`LIBRARY` maps (name, dtype) to a Python function for Numba to compile. Names and dtypes are stable, because
they are part of the keys of the kernel store. `tracejit.kernels.gemm.plan.Gemm` and
`tracejit.kernels.library.blocks` document the argument blocks.

    block = np.zeros(len(Copy), np.int64)
    block[Copy.SOURCE], block[Copy.TARGET] = source.ctypes.data, target.ctypes.data
    block[Copy.BYTES], block[Copy.UNIT_BYTES] = source.nbytes, 1 << 18
    kernel(block.ctypes.data, 0, units, 0)       # `kernel`: LIBRARY["copy", "uint8"], compiled
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numba import boolean, float32, float64, from_dtype, int64, uint8

from tracejit.kernels.compiler.memory import copy_bytes, pointer, slot
from tracejit.kernels.compiler.target import subroutine
from tracejit.kernels.gemm.products import (
    make_dot,
    make_float_product,
    make_gemm,
    make_gram,
    make_loop_product,
)
from tracejit.kernels.library.blocks import Copy, Scatter, ScatterAdd
from tracejit.kernels.library.integers import make_gcd
from tracejit.kernels.library.plan import LETTERS, ORDERED, QR_ROUTINES
from tracejit.kernels.library.sorting import make_argsort, make_search_sorted, make_sort
from tracejit.kernels.library.systems import make_cholesky, make_eigh, make_qr, make_system
from tracejit.kernels.library.transforms import make_transform


def make_scatter_add(dtype, itemsize, add):
    """Build the kernel ``scatter_add``; ``add(x, y)`` returns the sum in `dtype`."""

    def scatter_add(block, lo, hi, scratch):
        count, inner = slot(block, ScatterAdd.COUNT), slot(block, ScatterAdd.INNER)
        extent = slot(block, ScatterAdd.EXTENT)
        rows, columns = slot(block, ScatterAdd.ROWS), slot(block, ScatterAdd.COLUMNS)
        row_blocks, column_blocks = slot(block, ScatterAdd.ROW_BLOCKS), slot(block, ScatterAdd.COLUMN_BLOCKS)
        index = pointer(slot(block, ScatterAdd.INDEX), int64)
        for unit in range(lo, hi):
            r0 = unit // column_blocks % row_blocks * rows
            r1 = min(r0 + rows, extent)
            c0 = unit % column_blocks * columns
            width = min(c0 + columns, inner) - c0
            outer = unit // (row_blocks * column_blocks)
            target = slot(block, ScatterAdd.OUT) + itemsize * (outer * extent * inner + c0)
            source = slot(block, ScatterAdd.X) + itemsize * (outer * count * inner + c0)
            for r in range(r0, r1):
                out = pointer(target + itemsize * r * inner, dtype)
                for c in range(width):
                    out[c] = dtype(0)
            for p in range(count):
                r = index[p]
                if r0 <= r < r1:
                    out = pointer(target + itemsize * r * inner, dtype)
                    x = pointer(source + itemsize * p * inner, dtype)
                    for c in range(width):
                        out[c] = add(out[c], x[c])
        return int64(0)

    return scatter_add


def make_scatter(dtype, itemsize):
    """Build the kernel ``scatter``, which moves `itemsize` bytes at a time."""

    def scatter(block, lo, hi, scratch):
        count, extent = slot(block, Scatter.COUNT), slot(block, Scatter.EXTENT)
        n_bytes = slot(block, Scatter.BYTES)
        index = pointer(slot(block, Scatter.INDEX), int64)
        for unit in range(lo, hi):
            target = slot(block, Scatter.OUT) + unit * extent * n_bytes
            source = slot(block, Scatter.X) + unit * count * n_bytes
            for p in range(count):
                out = pointer(target + index[p] * n_bytes, dtype)
                x = pointer(source + p * n_bytes, dtype)
                for c in range(n_bytes // itemsize):
                    out[c] = x[c]
        return int64(0)

    return scatter


def copy(block, lo, hi, scratch):
    """Copy the bytes of units `lo` to `hi`."""
    unit = slot(block, Copy.UNIT_BYTES)
    start, end = lo * unit, min(hi * unit, slot(block, Copy.BYTES))
    if start < end:
        copy_bytes(slot(block, Copy.TARGET) + start, slot(block, Copy.SOURCE) + start, end - start)
    return int64(0)


def arithmetic(dtype):
    """Return (add, multiply_add) for `dtype`: integers wrap; booleans (bytes 0 or 1) use `or` and `and`."""
    if dtype == boolean:

        @subroutine
        def add(x, y):
            return uint8(x | y)

        @subroutine
        def multiply_add(z, x, y):
            return uint8(z | (x & y))

    else:

        @subroutine
        def add(x, y):
            return dtype(x + y)

        @subroutine
        def multiply_add(z, x, y):
            return dtype(z + x * y)

    return add, multiply_add


def make(kernel: str, dtype: str) -> Callable[[int, int, int, int], int]:
    """Build the kernel named `kernel` for a NumPy `dtype`: a Python function that Numba can compile."""
    if kernel == "copy":
        return copy
    itemsize = np.dtype(dtype).itemsize
    if kernel in ("solve", "inv"):
        return make_system(dtype, itemsize, inverts=kernel == "inv")
    if kernel in ("eigh", "eigenvalues_hermitian"):
        return make_eigh(dtype, itemsize, has_vectors=kernel == "eigh")
    if kernel == "qr":
        return make_qr(itemsize)
    if kernel == "cholesky":
        return make_cholesky(itemsize)
    scalar = from_dtype(np.dtype(dtype))
    add, multiply_add = arithmetic(scalar)
    stored = uint8 if scalar == boolean else scalar
    if kernel == "scatter_add":
        return make_scatter_add(stored, itemsize, add)
    if kernel in ORDERING:
        return ORDERING[kernel](stored, itemsize)
    if kernel in ("fft", "rfft", "irfft"):
        part_bytes = 4 if dtype in ("float32", "complex64") else 8
        return make_transform(part_bytes, 1 if kernel == "rfft" else 2, 1 if kernel == "irfft" else 2)
    if kernel == "gcd":
        return make_gcd(stored)
    if kernel == "scatter":
        return make_scatter(scalar, itemsize)
    if kernel == "dot":
        return make_dot(stored, itemsize)
    if kernel == "gram":
        return make_gram(make_float_product(stored, itemsize), stored, itemsize)
    if scalar in (float32, float64):
        return make_gemm(make_float_product(stored, itemsize), itemsize)
    return make_gemm(make_loop_product(stored, itemsize, multiply_add), itemsize)


ORDERING = {"sort": make_sort, "argsort": make_argsort, "search_sorted": make_search_sorted}
"""Factories of kernels that compare elements of all dtypes: ``make(dtype, itemsize)``."""

SYSTEMS = ("solve", "inv", "cholesky", "eigh", "eigenvalues_hermitian")
"""Kernels of small matrices in all dtypes that LAPACK has."""

INTEGERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
NUMBERS = ["bool", *INTEGERS, "float32", "float64"]

WORDS = ["uint8", "uint16", "uint32", "uint64"]
"""The dtypes as which ``scatter`` moves elements of all dtypes."""

LIBRARY: dict[tuple[str, str], Callable[[int, int, int, int], int]] = {
    ("copy", "uint8"): make("copy", "uint8"),
    **{("scatter", dtype): make("scatter", dtype) for dtype in WORDS},
    **{(name, dtype): make(name, dtype) for name in ("gemm", "scatter_add") for dtype in NUMBERS},
    **{(name, dtype): make(name, dtype) for name in ("dot", "gram") for dtype in ("float32", "float64")},
    **{(name, dtype): make(name, dtype) for name in SYSTEMS for dtype in LETTERS},
    **{(name, dtype): make(name, dtype) for name in ORDERING for dtype in ORDERED},
    **{
        (name, dtype): make(name, dtype) for name in ("fft", "irfft") for dtype in ("complex64", "complex128")
    },
    **{("qr", dtype): make("qr", dtype) for dtype in QR_ROUTINES},
    **{("rfft", dtype): make("rfft", dtype) for dtype in ("float32", "float64")},
    **{("gcd", dtype): make("gcd", dtype) for dtype in INTEGERS},
}
"""All library kernels by name and dtype; ``copy`` moves bytes and has one entry. ``dot`` is ``gemm`` for
products with one row and one column; ``gram`` is ``gemm`` for products of a matrix and its own transpose.
"""
