"""Software prefetching, also in loops that LLVM vectorises.

The hardware prefetcher follows sequential reads up to the end of a page. A kernel with several loops over
each row reads memory only in its first loop and writes it only in its last one; in between, memory is idle.
The other loops can prefetch the next row and the cache lines of this row's results:

    for i in range(n):
        prefetch(x, next_row, i)           # x[next_row + i] will be needed
        prefetch(y, row, i)
        total = total + exp(x[row + i] - most)

Lines are prefetched into the L2 cache: the L1 cache is too small for several rows and their successors.

LLVM does not vectorise a loop that calls `llvm.prefetch`, and one call per element would be too many. So
`prefetch` calls functions of which LLVM sees only the declarations
(`tracejit.kernels.compiler.vector_variants`): they access no memory, cannot be removed (they are not
``willreturn``), and have vector variants. A vector variant prefetches one cache line; the scalar functions,
for loops that are not vectorised, do nothing. `definitions` defines both. Loops outside the vectoriser
prefetch line by line (`prefetch_line`).
"""

from __future__ import annotations

import functools

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from tracejit.kernels.compiler.code import features, processor
from tracejit.kernels.compiler.memory import I64
from tracejit.kernels.compiler.vector_variants import BYTES, declare, declare_variants

SIZES = (1, 2, 4, 8, 16)
"""The possible sizes of an element in bytes."""

VECTORS = (2, 4, 8, 16, 32, 64)
"""The possible numbers of elements in a vector."""

READ, L2, DATA = 0, 2, 1  # operands of `llvm.prefetch`

KINDS = ("any", "written")
"""The kinds of rows. "written" is the only row that a kernel writes, if it also reads only one; "any" covers
all others.
"""


def _scalar_name(kind, size):
    """Return the name of the scalar function.

    Its parameters are the address of a row, which is loop-invariant, and the index of an element in the row.
    """
    return f"prefetch_{kind}_element_{size}"


def _variant_name(kind, size):
    """Return the name of the function that is the vector variant, for vectors of any number of elements."""
    return f"prefetch_{kind}_line_{size}"


FUNCTIONS = frozenset(
    name(kind, size) for kind in KINDS for size in SIZES for name in (_scalar_name, _variant_name)
)
"""The names of all functions that `definitions` defines."""


@functools.cache
def definitions() -> str:
    """Return the definitions of `FUNCTIONS`, as LLVM assembly."""
    texts = [_definition(kind, size) for kind in KINDS for size in SIZES]
    return "declare void @llvm.prefetch.p0(ptr, i32, i32, i32)\n" + "".join(texts)


def prefetches_written() -> bool:
    """Decide whether to prefetch the only row that a kernel writes if it also reads only one row.

    This prefetch gains 5 to 20 % on AMD's processors; on Intel's it costs 10 % (layer norm) to 14 %
    (softmax). Kernels that read more rows gain on both: the gradient of layer norm gains 20 %.
    """
    return processor().startswith("znver") or not features().get("avx512vbmi2", False)


def _definition(kind, size):
    prefetch = f"call void @llvm.prefetch.p0(ptr %pointer, i32 {READ}, i32 {L2}, i32 {DATA})"
    return f"""
define void @{_scalar_name(kind, size)}(i64 %row, i64 %index) alwaysinline {{
  ret void
}}
define void @{_variant_name(kind, size)}(i64 %row, i64 %index) alwaysinline {{
  %offset = mul i64 %index, {size}
  %address = add i64 %row, %offset
  %pointer = inttoptr i64 %address to ptr
  {prefetch if kind == "any" or prefetches_written() else ""}
  ret void
}}
"""


def _declare(module, kind, size):
    """Declare the function for elements of `size` bytes, with its vector variants."""
    function = module.globals.get(_scalar_name(kind, size))
    if function is None:
        function = declare(module, _scalar_name(kind, size), ir.VoidType(), [I64, I64])
        line = declare(module, _variant_name(kind, size), ir.VoidType(), [I64, I64])
        declare_variants(function, {f"N{n}ul": line for n in VECTORS})
    return function


def _intrinsic(kind):
    """Create the intrinsic ``prefetch(pointer, row, index)`` for rows of a kind.

    It prefetches the element ``pointer[row + index]``, which need not exist. `row` must be loop-invariant.
    """

    @intrinsic
    def prefetch(typingctx, pointer, row, index):
        def codegen(context, builder, signature, args):
            size = context.get_abi_sizeof(args[0].type.pointee)
            row_address = builder.add(builder.ptrtoint(args[0], I64), builder.mul(args[1], I64(size)))
            builder.call(_declare(builder.module, kind, size), [row_address, args[2]])
            return context.get_dummy_value()

        return types.void(pointer, types.int64, types.int64), codegen

    return prefetch


prefetch, prefetch_written = map(_intrinsic, KINDS)


@intrinsic
def prefetch_line(typingctx, pointer, index):
    """Prefetch the cache line of the element ``pointer[index]``, which need not exist."""

    def codegen(context, builder, signature, args):
        i32 = ir.IntType(32)
        kind, name = ir.FunctionType(ir.VoidType(), [BYTES, i32, i32, i32]), "llvm.prefetch.p0"
        function = builder.module.globals.get(name) or ir.Function(builder.module, kind, name)
        address = builder.bitcast(builder.gep(args[0], [args[1]]), BYTES)
        builder.call(function, [address, *(ir.Constant(i32, n) for n in (READ, L2, DATA))])
        return context.get_dummy_value()

    return types.void(pointer, types.int64), codegen
