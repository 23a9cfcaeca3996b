"""The kernel of matrix products, built on products of a panel: by BLAS, in register tiles, or by loops.

    gemm = make_gemm(make_float_product(float32, 4), 4)    # status = gemm(block, lo, hi, scratch)

The slots of its block are `tracejit.kernels.gemm.plan.Gemm`.
"""

from __future__ import annotations

from numba import int64

from tracejit.kernels.compiler.memory import call_kernel, pointer, slot
from tracejit.kernels.compiler.target import noinline_subroutine, subroutine
from tracejit.kernels.gemm.calls import NOT_TRANSPOSED, ROW_MAJOR, TRANSPOSED, add_gemm, call_gemm, call_gemv
from tracejit.kernels.gemm.packed import ONE, make_packed_product
from tracejit.kernels.gemm.plan import Gemm
from tracejit.kernels.gemm.tiles import tiles_are_profitable
from tracejit.kernels.scalar.accumulate import multiply_add_reassoc
from tracejit.kernels.streams.transpose import SIDE, transpose_block

DEPTH, WIDTH = 64, 1024  # extents of a block of B that stays in the cache during an integer product


@subroutine
def operand(block, matrix, address, outer, inner, itemsize):
    """The address of one operand of product number `matrix`; the last arguments are the operand's slots."""
    extent = slot(block, Gemm.INNER)
    element = matrix // extent * slot(block, outer) + matrix % extent * slot(block, inner)
    return slot(block, address) + itemsize * element


def make_gemm(product, itemsize):
    """Return the ``gemm`` kernel; ``product(block, a, b, c, r0, r1, c0, c1, scratch)`` computes a panel."""

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
            if slot(block, Gemm.IN_SCRATCH) != 0:  # so that this panel begins at C
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


def make_gram(product, dtype, itemsize):
    """Return the ``gram`` kernel, for products of matrices and their own transposes, without epilogue: a unit
    computes the rows of a panel from the diagonal on, and copies them to the columns below the diagonal. So
    each element is written by one unit, and a result is symmetric to the last bit.
    """

    @subroutine
    def mirror(c, n, r0, r1):
        x = pointer(c, dtype)
        blocked = r1 + (n - r1) // SIDE * SIDE  # a panel above others consists of full blocks of rows
        for j in range(r1, blocked, SIDE):
            for i in range(r0, r1, SIDE):
                transpose_block(x, i * n + j, n, x, j * n + i, n)
        for j in range(r0, r1):
            for i in range(r0, j):
                x[j * n + i] = x[i * n + j]
        for j in range(blocked, n):
            for i in range(r0, r1):
                x[j * n + i] = x[i * n + j]

    def gram(block, lo, hi, scratch):
        n, rows, panels = slot(block, Gemm.N), slot(block, Gemm.PANEL_ROWS), slot(block, Gemm.ROW_PANELS)
        for unit in range(lo, hi):
            matrix, r0 = unit // panels, unit % panels * rows
            r1 = min(r0 + rows, n)
            a = operand(block, matrix, Gemm.A, Gemm.A_OUTER, Gemm.A_INNER, itemsize)
            b = operand(block, matrix, Gemm.B, Gemm.B_OUTER, Gemm.B_INNER, itemsize)
            c = slot(block, Gemm.C) + itemsize * matrix * n * n
            product(block, a, b, c, r0, r1, r0, n, scratch)
            mirror(c, n, r0, r1)
        return int64(0)

    return gram


@subroutine
def strides(block, leading, transposed, itemsize):
    """The strides (between rows, between columns) of an operand in units of `itemsize`, from its slots."""
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
    """Return the product of a panel by BLAS.

    A single row or column is computed by ``gemv``, ten times faster than ``gemm`` there. It adds to zeros:
    versions of OpenBLAS have differed on whether ``beta = 0`` reads the result.
    """

    @noinline_subroutine
    def product(block, a, b, c, r0, r1, c0, c1, scratch):
        m, n, k = slot(block, Gemm.M), slot(block, Gemm.N), slot(block, Gemm.K)
        a_leading, b_leading = slot(block, Gemm.A_LEADING), slot(block, Gemm.B_LEADING)
        a_flag, b_flag = (
            NOT_TRANSPOSED + slot(block, Gemm.A_TRANSPOSED),
            NOT_TRANSPOSED + slot(block, Gemm.B_TRANSPOSED),
        )
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
            down, across = (rows, k) if a_flag == NOT_TRANSPOSED else (k, rows)
            call_gemv(vector_entry, (ROW_MAJOR, a_flag, down, across, a, a_leading, b, b_down, c, 1), dtype)
        elif m == 1:
            down, across = (k, columns) if b_flag == NOT_TRANSPOSED else (columns, k)
            flag = NOT_TRANSPOSED + TRANSPOSED - b_flag
            call_gemv(vector_entry, (ROW_MAJOR, flag, down, across, b, b_leading, a, a_across, c, 1), dtype)
        else:
            call = (ROW_MAJOR, a_flag, b_flag, rows, columns, k, a, a_leading, b, b_leading, c, n)
            if add:
                add_gemm(entry, call, dtype)
            else:
                call_gemm(entry, call, dtype)

    return product


def make_float_product(dtype, itemsize):
    """Return the product of a panel in register tiles if the block requests it and the processor's registers
    are large enough, otherwise by BLAS.
    """
    by_blas = make_blas_product(dtype, itemsize)
    if not tiles_are_profitable():
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
        packed(left, right, target, extents, add, copied, scratch + slot(block, Gemm.PACKED), ONE)

    return product


def make_dot(dtype, itemsize):
    """Return the ``dot`` kernel, for products of a row and a column, as in loops over the elements of a
    matrix: a call of BLAS, or the computation of a panel's position, would take most of the time.
    """

    @subroutine
    def dot(x, x_step, y, y_step, count):
        total = dtype(0)
        if x_step == 1 and y_step == 1:
            for p in range(count):
                total = multiply_add_reassoc(x[p], y[p], total)
        else:
            for p in range(count):
                total = multiply_add_reassoc(x[p * x_step], y[p * y_step], total)
        return total

    def dots(block, lo, hi, scratch):
        _, across = strides(block, Gemm.A_LEADING, Gemm.A_TRANSPOSED, 1)
        down, _ = strides(block, Gemm.B_LEADING, Gemm.B_TRANSPOSED, 1)
        k, add, epilogue = slot(block, Gemm.K), slot(block, Gemm.ADD), slot(block, Gemm.EPILOGUE)
        for unit in range(lo, hi):
            a, b, c = slot(block, Gemm.A), slot(block, Gemm.B), slot(block, Gemm.C) + itemsize * unit
            if unit != 0:
                a = operand(block, unit, Gemm.A, Gemm.A_OUTER, Gemm.A_INNER, itemsize)
                b = operand(block, unit, Gemm.B, Gemm.B_OUTER, Gemm.B_INNER, itemsize)
            if slot(block, Gemm.IN_SCRATCH) != 0:
                c = scratch + slot(block, Gemm.C)
            out = pointer(c, dtype)
            total = dot(pointer(a, dtype), across, pointer(b, dtype), down, k)
            out[0] = out[0] + total if add != 0 else total
            if epilogue != 0:
                status = call_kernel(
                    epilogue, block + slot(block, Gemm.EPILOGUE_BLOCK), unit, unit + 1, scratch
                )
                if status != 0:
                    return status
        return int64(0)

    return dots


def make_loop_product(dtype, itemsize, multiply_add):
    """Return the product of a panel of integers by loops, blocked so that a block of B stays in the cache.

    The inner loop adds a multiple of a row of B to a row of C; if B is transposed, it is a dot product of two
    contiguous vectors. Integers wrap, so the order of additions does not matter.
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
