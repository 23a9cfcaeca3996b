"""Library kernels: fixed sources with the interface of generated ones.

`LIBRARY` maps (name, dtype) to a Python function for Numba to compile; name and dtype are stable and stand in
the keys of the kernel store. The blocks are documented where their slots are named:
`tracejit.kernels.gemm.plan.Gemm`, `tracejit.kernels.library.plan.ScatterAdd`,
`tracejit.kernels.library.plan.Copy`.

    block = np.zeros(len(Copy), np.int64)
    block[Copy.SOURCE], block[Copy.TARGET] = source.ctypes.data, target.ctypes.data
    block[Copy.BYTES], block[Copy.UNIT_BYTES] = source.nbytes, 1 << 18
    kernel(block.ctypes.data, 0, units, 0)       # `kernel`: LIBRARY["copy", "uint8"], compiled
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from llvmlite import ir
from numba import boolean, float32, float64, from_dtype, int64, types, uint8
from numba.core import cgutils
from numba.extending import intrinsic

from tracejit.kernels.compiler.memory import call_kernel, copy_bytes, pointer, slot
from tracejit.kernels.compiler.target import subroutine
from tracejit.kernels.gemm.packed import make_packed_product
from tracejit.kernels.gemm.plan import Gemm
from tracejit.kernels.gemm.tiles import are_worth_it
from tracejit.kernels.library.plan import Copy, ScatterAdd

ROW_MAJOR, PLAIN, TRANSPOSED = 101, 111, 112  # CBLAS_ORDER and CBLAS_TRANSPOSE
DEPTH, WIDTH = 64, 1024  # block of B that an integer product keeps in the cache


def cblas_call(parameters):
    """An intrinsic that calls a CBLAS function: ``call(function, values, real)``, `values` a tuple of int64.

    `parameters` has one letter for each parameter: ``i`` a C int, ``p`` a pointer, ``0`` and ``1`` that
    number as a float of type `real`, for which no value is given.
    """
    given = [letter for letter in parameters if letter in "ip"]

    @intrinsic
    def call(typingctx, function, values, real):
        def codegen(context, builder, signature, args):
            scalar = context.get_data_type(real.dtype)
            kinds = {"i": ir.IntType(32), "p": ir.IntType(8).as_pointer(), "0": scalar, "1": scalar}
            kind = ir.FunctionType(ir.VoidType(), [kinds[letter] for letter in parameters])
            numbers = iter(cgutils.unpack_tuple(builder, args[1]))
            convert = {
                "i": lambda: builder.trunc(next(numbers), kinds["i"]),
                "p": lambda: builder.inttoptr(next(numbers), kinds["p"]),
                "0": lambda: scalar(0.0),
                "1": lambda: scalar(1.0),
            }
            target = builder.inttoptr(args[0], kind.as_pointer())
            builder.call(target, [convert[letter]() for letter in parameters])
            return context.get_dummy_value()

        return types.void(types.int64, types.UniTuple(types.int64, len(given)), real), codegen

    return call


# order, flags of A and B, m, n, k, alpha, A, leading, B, leading, beta, C, leading
call_gemm = cblas_call("iiiiii1pipi0pi")
add_gemm = cblas_call("iiiiii1pipi1pi")  # added to what C holds
# order, flag of A, rows, columns, alpha, A, leading, x, step, beta, y, step: added to y
call_gemv = cblas_call("iiii1pipi1pi")


@subroutine
def operand(block, matrix, address, outer, inner, itemsize):
    """Address of one operand of product number `matrix`; the last arguments are its slots."""
    extent = slot(block, Gemm.INNER)
    element = matrix // extent * slot(block, outer) + matrix % extent * slot(block, inner)
    return slot(block, address) + itemsize * element


def make_gemm(product, itemsize):
    """The ``gemm`` kernel; ``product(block, a, b, c, r0, r1, c0, c1, scratch)`` computes a panel."""

    def gemm(block, lo, hi, scratch):
        m, n = slot(block, Gemm.M), slot(block, Gemm.N)
        rows, columns = slot(block, Gemm.PANEL_ROWS), slot(block, Gemm.PANEL_COLUMNS)
        row_panels, column_panels = slot(block, Gemm.ROW_PANELS), slot(block, Gemm.COLUMN_PANELS)
        epilogue = slot(block, Gemm.EPILOGUE)
        for unit in range(lo, hi):
            matrix = unit // (row_panels * column_panels)
            r0 = unit // column_panels % row_panels * rows
            r1 = min(r0 + rows, m)
            c0 = unit % column_panels * columns
            a = operand(block, matrix, Gemm.A, Gemm.A_OUTER, Gemm.A_INNER, itemsize)
            b = operand(block, matrix, Gemm.B, Gemm.B_OUTER, Gemm.B_INNER, itemsize)
            c = slot(block, Gemm.C) + itemsize * matrix * m * n
            if slot(block, Gemm.IN_SCRATCH) != 0:  # so that this panel begins at that place
                c = scratch + slot(block, Gemm.C) - itemsize * r0 * n
            product(block, a, b, c, r0, r1, c0, min(c0 + columns, n), scratch)
            if epilogue != 0:
                first = matrix * m
                block_of = block + slot(block, Gemm.EPILOGUE_BLOCK)
                status = call_kernel(epilogue, block_of, first + r0, first + r1, scratch)
                if status != 0:
                    return status
        return int64(0)

    return gemm


@subroutine
def strides(block, leading, transposed, itemsize):
    """(down, across) of an operand in units of `itemsize`, from its slots."""
    if slot(block, transposed) != 0:
        return itemsize, slot(block, leading) * itemsize
    return slot(block, leading) * itemsize, itemsize


@subroutine
def clear(c, n, r0, r1, c0, c1, dtype):
    """Zero a panel of the matrix at `c`."""
    out = pointer(c, dtype)
    for i in range(r0, r1):
        for j in range(c0, c1):
            out[i * n + j] = dtype(0)


def make_blas_product(dtype, itemsize):
    """A panel of one product by BLAS.

    A single row or column goes to ``gemv``, ten times faster than ``gemm`` there. It adds to zeros: versions
    of OpenBLAS have differed on whether ``beta = 0`` reads the result.
    """

    @subroutine
    def product(block, a, b, c, r0, r1, c0, c1, scratch):
        m, n, k = slot(block, Gemm.M), slot(block, Gemm.N), slot(block, Gemm.K)
        a_leading, b_leading = slot(block, Gemm.A_LEADING), slot(block, Gemm.B_LEADING)
        a_flag, b_flag = PLAIN + slot(block, Gemm.A_TRANSPOSED), PLAIN + slot(block, Gemm.B_TRANSPOSED)
        a_down, a_across = strides(block, Gemm.A_LEADING, Gemm.A_TRANSPOSED, 1)
        b_down, b_across = strides(block, Gemm.B_LEADING, Gemm.B_TRANSPOSED, 1)
        a, b, c = a + itemsize * r0 * a_down, b + itemsize * c0 * b_across, c + itemsize * (r0 * n + c0)
        rows, columns = r1 - r0, c1 - c0
        add = slot(block, Gemm.ADD) != 0
        if (k == 0 or m == 1 or n == 1) and not add:
            clear(c, n, 0, rows, 0, columns, dtype)
        if k == 0:
            return
        entry, vector_entry = slot(block, Gemm.ENTRY), slot(block, Gemm.VECTOR_ENTRY)
        if n == 1:
            down, across = (rows, k) if a_flag == PLAIN else (k, rows)
            call_gemv(vector_entry, (ROW_MAJOR, a_flag, down, across, a, a_leading, b, b_down, c, 1), dtype)
        elif m == 1:
            down, across = (k, columns) if b_flag == PLAIN else (columns, k)
            flag = PLAIN + TRANSPOSED - b_flag
            call_gemv(vector_entry, (ROW_MAJOR, flag, down, across, b, b_leading, a, a_across, c, 1), dtype)
        else:
            call = (ROW_MAJOR, a_flag, b_flag, rows, columns, k, a, a_leading, b, b_leading, c, n)
            if add:
                add_gemm(entry, call, dtype)
            else:
                call_gemm(entry, call, dtype)

    return product


def make_float_product(dtype, itemsize):
    """A panel of one product in register tiles if the block says so, else by BLAS, as on all machines whose
    registers are too small for tiles that pay.
    """
    by_blas = make_blas_product(dtype, itemsize)
    if not are_worth_it():
        return by_blas
    packed = make_packed_product(dtype, itemsize)

    @subroutine
    def product(block, a, b, c, r0, r1, c0, c1, scratch):
        if slot(block, Gemm.TILED) == 0:
            by_blas(block, a, b, c, r0, r1, c0, c1, scratch)
            return
        n, k, add = slot(block, Gemm.N) * itemsize, slot(block, Gemm.K), slot(block, Gemm.ADD) != 0
        a_down, a_across = strides(block, Gemm.A_LEADING, Gemm.A_TRANSPOSED, itemsize)
        b_down, b_across = strides(block, Gemm.B_LEADING, Gemm.B_TRANSPOSED, itemsize)
        left, right = (a + r0 * a_down, a_down, a_across), (b + c0 * b_across, b_down, b_across)
        target = (c + r0 * n + c0 * itemsize, n)
        extents = (r1 - r0, (c1 - c0) * itemsize, k)
        copied = slot(block, Gemm.A_COPIED) != 0
        packed(left, right, target, extents, add, copied, scratch + slot(block, Gemm.PACKED))

    return product


def make_loop_product(dtype, itemsize, multiply_add):
    """A panel of one product of integers by loops, blocked so that a part of B stays in the cache.

    Along rows of B the inner loop adds a multiple of a row to a row of C; where B is transposed it is a dot
    product of two contiguous pieces. Integers wrap, so that any order of additions gives the same bits.
    """

    @subroutine
    def axpy(out, x, row, width):
        for j in range(width):
            out[j] = multiply_add(out[j], x, row[j])

    @subroutine
    def dot(start, x, step, y, depth):
        total = start
        for p in range(depth):
            total = multiply_add(total, x[p * step], y[p])
        return total

    @subroutine
    def product(block, a, b, c, r0, r1, c0, c1, scratch):
        n, k = slot(block, Gemm.N), slot(block, Gemm.K)
        a_down, a_across = strides(block, Gemm.A_LEADING, Gemm.A_TRANSPOSED, 1)
        b_down, b_across = strides(block, Gemm.B_LEADING, Gemm.B_TRANSPOSED, 1)
        if slot(block, Gemm.ADD) == 0:
            clear(c, n, r0, r1, c0, c1, dtype)
        for p0 in range(0, k, DEPTH):
            depth = min(p0 + DEPTH, k) - p0
            for j0 in range(c0, c1, WIDTH):
                width = min(j0 + WIDTH, c1) - j0
                for i in range(r0, r1):
                    out = pointer(c + itemsize * (i * n + j0), dtype)
                    left = pointer(a + itemsize * (i * a_down + p0 * a_across), dtype)
                    if b_down == 1:
                        for j in range(width):
                            column = pointer(b + itemsize * (p0 + (j0 + j) * b_across), dtype)
                            out[j] = dot(out[j], left, a_across, column, depth)
                    else:
                        for p in range(depth):
                            row = pointer(b + itemsize * ((p0 + p) * b_down + j0), dtype)
                            axpy(out, left[p * a_across], row, width)

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
        return make_gemm(make_float_product(stored, itemsize), itemsize)
    return make_gemm(make_loop_product(stored, itemsize, multiply_add), itemsize)


INTEGERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
NUMBERS = ["bool", *INTEGERS, "float32", "float64"]

LIBRARY: dict[tuple[str, str], Callable[[int, int, int, int], int]] = {
    ("copy", "uint8"): make("copy", "uint8"),
    **{(name, dtype): make(name, dtype) for name in ("gemm", "scatter_add") for dtype in NUMBERS},
}
"""All library kernels by name and dtype; ``copy`` moves bytes and has one entry."""
