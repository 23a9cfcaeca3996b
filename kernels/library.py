"""Library kernels: fixed sources with the interface of generated ones.

`LIBRARY` maps (name, dtype) to a Python function for Numba to compile; name and dtype are stable and stand in
the keys of the kernel store. The blocks are documented where their slots are named:
`tracejit.kernels.blas.Gemm`, `tracejit.kernels.blocks.ScatterAdd`, `tracejit.kernels.blocks.Copy`.

    block = np.zeros(len(Copy), np.int64)
    block[Copy.SOURCE], block[Copy.TARGET] = source.ctypes.data, target.ctypes.data
    block[Copy.BYTES], block[Copy.UNIT_BYTES] = source.nbytes, 1 << 18
    kernel(block.ctypes.data, 0, units, 0)       # `kernel`: LIBRARY["copy", "uint8"], compiled
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from llvmlite import ir
from numba import boolean, float32, float64, from_dtype, int64, njit, types, uint8
from numba.core import cgutils
from numba.extending import intrinsic

from tracejit.kernels.blas import Gemm
from tracejit.kernels.blocks import Copy, ScatterAdd
from tracejit.kernels.memory import call_kernel, load, pointer

ROW_MAJOR, PLAIN, TRANSPOSED = 101, 111, 112  # CBLAS_ORDER and CBLAS_TRANSPOSE
DEPTH, WIDTH = 64, 1024  # block of B that an integer product keeps in the cache


@intrinsic
def call_blas(typingctx, function, a_flag, b_flag, m, n, k, a, a_leading, b, b_leading, c, scalar):
    """Call the ``cblas_?gemm`` at `function`: C = A @ B, row-major, C contiguous, floats of type `scalar`."""
    element = scalar.dtype
    integers = [types.int64] * 11

    def codegen(context, builder, signature, args):
        function, a_flag, b_flag, m, n, k, a, a_leading, b, b_leading, c, _ = args
        real = context.get_data_type(element)
        int32, address = ir.IntType(32), ir.IntType(8).as_pointer()
        kind = ir.FunctionType(
            ir.VoidType(), [int32] * 6 + [real, address, int32, address, int32, real, address, int32]
        )

        def c_int(value):
            return builder.trunc(value, int32)

        def c_pointer(value):
            return builder.inttoptr(value, address)

        builder.call(
            builder.inttoptr(function, kind.as_pointer()),
            [
                *(int32(ROW_MAJOR), c_int(a_flag), c_int(b_flag), c_int(m), c_int(n), c_int(k)),
                *(real(1.0), c_pointer(a), c_int(a_leading), c_pointer(b), c_int(b_leading)),
                *(real(0.0), c_pointer(c), c_int(n)),
            ],
        )
        return context.get_dummy_value()

    return types.void(*integers, scalar), codegen


@intrinsic
def copy_bytes(typingctx, target, source, count):
    """Copy `count` bytes between addresses that do not overlap."""

    def codegen(context, builder, signature, args):
        target, source = (builder.inttoptr(args[i], cgutils.voidptr_t) for i in (0, 1))
        cgutils.raw_memcpy(builder, target, source, args[2], 1)
        return context.get_dummy_value()

    return types.void(int64, int64, int64), codegen


@njit(error_model="numpy")
def slot(block, index):
    """The integer or address in slot `index`."""
    return load(block + 8 * int64(index), int64)


@njit(error_model="numpy")
def operand(block, matrix, address, outer, inner, itemsize):
    """Address of one operand of product number `matrix`; the last arguments are its slots."""
    extent = slot(block, Gemm.INNER)
    element = matrix // extent * slot(block, outer) + matrix % extent * slot(block, inner)
    return slot(block, address) + itemsize * element


def make_gemm(product, itemsize):
    """The ``gemm`` kernel; ``product(block, a, b, c, r0, r1)`` computes rows r0 to r1 of one matrix."""

    def gemm(block, lo, hi, scratch):
        m, n = slot(block, Gemm.M), slot(block, Gemm.N)
        panels, rows = slot(block, Gemm.PANELS), slot(block, Gemm.PANEL_ROWS)
        epilogue = slot(block, Gemm.EPILOGUE)
        for unit in range(lo, hi):
            matrix = unit // panels
            r0 = unit % panels * rows
            r1 = min(r0 + rows, m)
            a = operand(block, matrix, Gemm.A, Gemm.A_OUTER, Gemm.A_INNER, itemsize)
            b = operand(block, matrix, Gemm.B, Gemm.B_OUTER, Gemm.B_INNER, itemsize)
            product(block, a, b, slot(block, Gemm.C) + itemsize * matrix * m * n, r0, r1)
            if epilogue != 0:
                first = matrix * m
                block_of = slot(block, Gemm.EPILOGUE_BLOCK)
                status = call_kernel(epilogue, block_of, first + r0, first + r1, scratch)
                if status != 0:
                    return status
        return int64(0)

    return gemm


def make_blas_product(dtype, itemsize):
    """Rows of one product by BLAS."""

    @njit(error_model="numpy")
    def product(block, a, b, c, r0, r1):
        n, k = slot(block, Gemm.N), slot(block, Gemm.K)
        if k == 0:
            out = pointer(c, dtype)
            for i in range(r0 * n, r1 * n):
                out[i] = dtype(0)
            return
        leading = slot(block, Gemm.A_LEADING)
        transposed = slot(block, Gemm.A_TRANSPOSED)
        call_blas(
            slot(block, Gemm.ENTRY),
            PLAIN + transposed,
            PLAIN + slot(block, Gemm.B_TRANSPOSED),
            r1 - r0,
            n,
            k,
            a + itemsize * r0 * (1 if transposed else leading),
            leading,
            b,
            slot(block, Gemm.B_LEADING),
            c + itemsize * r0 * n,
            dtype,
        )

    return product


def make_loop_product(dtype, itemsize, multiply_add):
    """Rows of one product of integers by loops, blocked so that a part of B stays in the cache."""

    @njit(error_model="numpy")
    def product(block, a, b, c, r0, r1):
        n, k = slot(block, Gemm.N), slot(block, Gemm.K)
        a_leading, b_leading = slot(block, Gemm.A_LEADING), slot(block, Gemm.B_LEADING)
        down, across = (1, a_leading) if slot(block, Gemm.A_TRANSPOSED) else (a_leading, 1)
        b_transposed = slot(block, Gemm.B_TRANSPOSED) != 0
        left, whole = pointer(a, dtype), pointer(c, dtype)
        for i in range(r0 * n, r1 * n):
            whole[i] = dtype(0)
        for p0 in range(0, k, DEPTH):
            p1 = min(p0 + DEPTH, k)
            for j0 in range(0, n, WIDTH):
                width = min(j0 + WIDTH, n) - j0
                for i in range(r0, r1):
                    out = pointer(c + itemsize * (i * n + j0), dtype)
                    for p in range(p0, p1):
                        x = left[i * down + p * across]
                        if b_transposed:
                            column = pointer(b + itemsize * (j0 * b_leading + p), dtype)
                            for j in range(width):
                                out[j] = multiply_add(out[j], x, column[j * b_leading])
                        else:
                            row = pointer(b + itemsize * (p * b_leading + j0), dtype)
                            for j in range(width):
                                out[j] = multiply_add(out[j], x, row[j])

    return product


def make_scatter_add(dtype, itemsize, add):
    """The ``scatter_add`` kernel; ``add(x, y)`` gives the sum in `dtype`."""

    def scatter_add(block, lo, hi, scratch):
        count, inner = slot(block, ScatterAdd.COUNT), slot(block, ScatterAdd.INNER)
        extent = slot(block, ScatterAdd.EXTENT)
        rows, columns = slot(block, ScatterAdd.ROWS), slot(block, ScatterAdd.COLUMNS)
        row_parts, column_parts = slot(block, ScatterAdd.ROW_PARTS), slot(block, ScatterAdd.COLUMN_PARTS)
        index = pointer(slot(block, ScatterAdd.INDEX), int64)
        for unit in range(lo, hi):
            r0 = unit // column_parts % row_parts * rows
            r1 = min(r0 + rows, extent)
            c0 = unit % column_parts * columns
            width = min(c0 + columns, inner) - c0
            outer = unit // (row_parts * column_parts)
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


def copy(block, lo, hi, scratch):
    """Copy the bytes of units `lo` to `hi`."""
    unit = slot(block, Copy.UNIT_BYTES)
    start, end = lo * unit, min(hi * unit, slot(block, Copy.BYTES))
    if start < end:
        copy_bytes(slot(block, Copy.TARGET) + start, slot(block, Copy.SOURCE) + start, end - start)
    return int64(0)


def arithmetic(dtype):
    """(add, multiply_add) of `dtype`: integers wrap; booleans (bytes 0 or 1) have `or` and `and`."""
    if dtype == boolean:

        @njit
        def add(x, y):
            return uint8(x | y)

        @njit
        def multiply_add(z, x, y):
            return uint8(z | (x & y))

    else:

        @njit(error_model="numpy")
        def add(x, y):
            return dtype(x + y)

        @njit(error_model="numpy")
        def multiply_add(z, x, y):
            return dtype(z + x * y)

    return add, multiply_add


def make(kernel: str, dtype: str) -> Callable[[int, int, int, int], int]:
    """The kernel named `kernel` for `dtype`, a NumPy name, as a Python function that Numba can compile."""
    if kernel == "copy":
        return copy
    scalar = from_dtype(np.dtype(dtype))
    itemsize = np.dtype(dtype).itemsize
    add, multiply_add = arithmetic(scalar)
    stored = uint8 if scalar == boolean else scalar
    if kernel == "scatter_add":
        return make_scatter_add(stored, itemsize, add)
    if scalar in (float32, float64):
        return make_gemm(make_blas_product(stored, itemsize), itemsize)
    return make_gemm(make_loop_product(stored, itemsize, multiply_add), itemsize)


INTEGERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
NUMBERS = ["bool", *INTEGERS, "float32", "float64"]

LIBRARY: dict[tuple[str, str], Callable[[int, int, int, int], int]] = {
    ("copy", "uint8"): make("copy", "uint8"),
    **{(name, dtype): make(name, dtype) for name in ("gemm", "scatter_add") for dtype in NUMBERS},
}
"""All library kernels by name and dtype; ``copy`` moves bytes and has one entry."""
