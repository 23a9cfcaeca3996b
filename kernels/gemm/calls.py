"""Calls of CBLAS functions from kernels, by address."""

from __future__ import annotations

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

ROW_MAJOR, NOT_TRANSPOSED, TRANSPOSED = 101, 111, 112  # CBLAS_ORDER and CBLAS_TRANSPOSE


def cblas_call(parameters):
    """Return an intrinsic that calls a CBLAS function: ``call(function, values, real)``, with a tuple
    `values` of int64.

    `parameters` has one letter for each parameter: ``i`` for a C int, ``p`` for a pointer, ``0`` and ``1``
    for that number as a float of type `real`, which has no entry in `values`.
    """
    passed = [letter for letter in parameters if letter in "ip"]

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

        return types.void(types.int64, types.UniTuple(types.int64, len(passed)), real), codegen

    return call


# order, flags of A and B, m, n, k, alpha, A, leading, B, leading, beta, C, leading
call_gemm = cblas_call("iiiiii1pipi0pi")
add_gemm = cblas_call("iiiiii1pipi1pi")  # adds to C
# order, flag of A, rows, columns, alpha, A, leading, x, step, beta, y, step; adds to y
call_gemv = cblas_call("iiii1pipi1pi")
