"""Multiplication of a grid of vectors by a small matrix on both sides: the transforms of Winograd's
convolution.

    image_tile = transform(IMAGE)              # T -> IMAGE T IMAGE', for each lane of 4 x 4 vectors
    image_tile(x, first, down, across, out, start, out_down, out_across)

reads the vectors ``x[first + i * down + j * across]``, of `LANES` elements each, and writes
``out[start + i * out_down + j * out_across]``. All intermediate values are in registers. Matrix entries are
applied one by one, in the order of the columns; entries of 0 and 1 cost nothing.
"""

from __future__ import annotations

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from tracejit.kernels.compiler.memory import vector_type
from tracejit.kernels.images.winograd_plan import LANES, Matrix


def transposed(matrix: Matrix) -> Matrix:
    """The transpose of a matrix."""
    return tuple(zip(*matrix, strict=True))


def transform(matrix: Matrix):
    """Return the intrinsic that computes ``matrix @ grid @ matrix.T``; see the module docstring."""
    side = len(matrix[0])

    @intrinsic
    def transform(typingctx, x, first, down, across, out, start, out_down, out_across):
        def codegen(context, builder, signature, args):
            x, first, down, across, out, start, out_down, out_across = args
            vector = vector_type(context, x.type.pointee, LANES)
            alignment = context.get_abi_sizeof(x.type.pointee)

            def vector_address(pointer, base, step, i, column_step, j):
                offset = builder.add(builder.mul(step, step.type(i)), builder.mul(column_step, step.type(j)))
                address = builder.gep(pointer, [builder.add(base, offset)])
                return builder.bitcast(address, vector.as_pointer())

            grid = [
                [
                    builder.load(vector_address(x, first, down, i, across, j), align=alignment)
                    for j in range(side)
                ]
                for i in range(side)
            ]
            row_products = [_apply(builder, matrix, row) for row in grid]
            columns = [_apply(builder, matrix, column) for column in zip(*row_products, strict=True)]
            for j, column in enumerate(columns):
                for i, value in enumerate(column):
                    builder.store(
                        value, vector_address(out, start, out_down, i, out_across, j), align=alignment
                    )
            return context.get_dummy_value()

        step = types.int64
        return types.void(x, step, step, step, out, step, step, step), codegen

    return transform


def _apply(builder, matrix, values):
    """The products of the rows of a matrix with `values`."""
    return [_combine(builder, row, values) for row in matrix]


def _combine(builder, factors, values):
    """The sum of `values` times `factors`, from left to right."""
    total = None
    for factor, value in zip(factors, values, strict=True):
        if factor == 0:
            continue
        if abs(factor) != 1:
            scale = ir.Constant(value.type, [abs(factor)] * value.type.count)
            value = builder.fmul(value, scale)
        if total is None:
            total = value if factor > 0 else builder.fneg(value)
        else:
            total = builder.fadd(total, value) if factor > 0 else builder.fsub(total, value)
    return total
