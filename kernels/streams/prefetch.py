"""Prefetching: memory asked for ahead of its use, also in loops that become vectors.

A processor fetches ahead by itself what is read in order, up to the end of a page. A kernel that goes over
each row several times reads memory in its first loop only and writes it in its last one: meanwhile memory has
nothing to do. In its other loops it can ask for the next row, and for the lines that this row will be written
to:

    for i in range(n):
        prefetch(x, next_row, i)           # x[next_row + i] will be needed
        prefetch(y, row, i)
        total = total + exp(x[row + i] - most)

Lines come as far as the second cache: the first one is too small for several rows and those to come.

LLVM makes no vectors of a loop that calls `llvm.prefetch`, and one call for each element would be too many.
So `prefetch` calls functions that it knows by their declarations only
(`tracejit.kernels.compiler.vector_variants`): they touch no memory, cannot be left out (nobody promises that
they return), and have variants for vectors, one call of which stands for a line of the caches. The variants
ask for the line; the functions themselves do nothing, as in a loop that has not become vectors. `definitions`
say so. Other loops ask for one line after the other (`prefetch_line`).
"""

from __future__ import annotations

import functools

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from tracejit.kernels.compiler.code import features, processor
from tracejit.kernels.compiler.memory import I64
from tracejit.kernels.compiler.vector_variants import BYTES, declare, give_variants

SIZES = (1, 2, 4, 8)
"""Bytes of an element."""

VECTORS = (2, 4, 8, 16, 32, 64)
"""Elements of a vector."""

READ, SECOND_CACHE, DATA = 0, 2, 1  # in the words of `llvm.prefetch`


KINDS = ("any", "written")
"""Of rows: any; and the one row that a kernel writes, if there is also just one that it reads."""


def _element(kind, size):
    """The function. Its parameters are the address of a row, which does not change along a loop, and the
    index of an element in it.
    """
    return f"prefetch_{kind}_element_{size}"


def _line(kind, size):
    return f"prefetch_{kind}_line_{size}"


FUNCTIONS = frozenset(name(kind, size) for kind in KINDS for size in SIZES for name in (_element, _line))
"""The names of all functions that `definitions` gives."""


@functools.cache
def definitions() -> str:
    """The functions, as LLVM assembly."""
    texts = [_definition(kind, size) for kind in KINDS for size in SIZES]
    return "declare void @llvm.prefetch.p0(ptr, i32, i32, i32)\n" + "".join(texts)


def asks_for_written() -> bool:
    """Whether to ask for the one row that a kernel writes when it also reads just one. On AMD's processors
    that gains 5 to 20 %; Intel's lose 10 (layer norm) to 14 (softmax). Kernels that read more gain on both,
    such as the gradient of layer norm, 20 %.
    """
    return processor().startswith("znver") or not features().get("avx512vbmi2", False)


def _definition(kind, size):
    ask = f"call void @llvm.prefetch.p0(ptr %place, i32 {READ}, i32 {SECOND_CACHE}, i32 {DATA})"
    return f"""
define void @{_element(kind, size)}(i64 %row, i64 %index) alwaysinline {{
  ret void
}}
define void @{_line(kind, size)}(i64 %row, i64 %index) alwaysinline {{
  %offset = mul i64 %index, {size}
  %address = add i64 %row, %offset
  %place = inttoptr i64 %address to ptr
  {ask if kind == "any" or asks_for_written() else ""}
  ret void
}}
"""


def _declare(module, kind, size):
    """The function for elements of `size` bytes."""
    found = module.globals.get(_element(kind, size))
    if found is None:
        found = declare(module, _element(kind, size), ir.VoidType(), [I64, I64])
        line = declare(module, _line(kind, size), ir.VoidType(), [I64, I64])
        give_variants(found, {f"N{n}ul": line for n in VECTORS})
    return found


def _intrinsic(kind):
    """An intrinsic ``prefetch(pointer, row, index)``: the element ``pointer[row + index]`` will be read or
    written soon; it need not exist. `row` must not change along the loop over `index`.
    """

    @intrinsic
    def prefetch(typingctx, pointer, row, index):
        def codegen(context, builder, signature, args):
            size = context.get_abi_sizeof(args[0].type.pointee)
            place = builder.add(builder.ptrtoint(args[0], I64), builder.mul(args[1], I64(size)))
            builder.call(_declare(builder.module, kind, size), [place, args[2]])
            return context.get_dummy_value()

        return types.void(pointer, types.int64, types.int64), codegen

    return prefetch


prefetch, prefetch_written = map(_intrinsic, KINDS)


@intrinsic
def prefetch_line(typingctx, pointer, index):
    """The line of the element ``pointer[index]`` will be needed soon; it need not exist."""

    def codegen(context, builder, signature, args):
        flag = ir.IntType(32)
        kind, name = ir.FunctionType(ir.VoidType(), [BYTES, flag, flag, flag]), "llvm.prefetch.p0"
        function = builder.module.globals.get(name) or ir.Function(builder.module, kind, name)
        place = builder.bitcast(builder.gep(args[0], [args[1]]), BYTES)
        builder.call(function, [place, *(ir.Constant(flag, n) for n in (READ, SECOND_CACHE, DATA))])
        return context.get_dummy_value()

    return types.void(pointer, types.int64), codegen
