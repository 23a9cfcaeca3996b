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
So `prefetch` calls functions that it knows by their declarations only: they touch no memory, cannot be left
out (nobody promises that they return), and have variants for vectors, one call of which stands for a line of
the caches. The variants ask for the line; the functions themselves do nothing, as in a loop that has not
become vectors. `DEFINITIONS` say so, and are linked in when loops are vectors already, by
`tracejit.codegen.build`. Other loops ask for one line after the other (`prefetch_line`).
"""

from __future__ import annotations

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from tracejit.kernels.memory import I64

SIZES = (1, 2, 4, 8)
"""Bytes of an element."""

VECTORS = (2, 4, 8, 16, 32, 64)
"""Elements of a vector."""

READ, SECOND_CACHE, DATA = 0, 2, 1  # in the words of `llvm.prefetch`

BYTES = ir.IntType(8).as_pointer()

KIND = ir.FunctionType(ir.VoidType(), [I64, I64])
"""The address of a row, which does not change along a loop, and the index of an element in it."""


def _element(size):
    return f"prefetch_element_{size}"


def _line(size):
    return f"prefetch_line_{size}"


def _definitions(size):
    return f"""
define void @{_element(size)}(i64 %row, i64 %index) alwaysinline {{
  ret void
}}
define void @{_line(size)}(i64 %row, i64 %index) alwaysinline {{
  %offset = mul i64 %index, {size}
  %address = add i64 %row, %offset
  %place = inttoptr i64 %address to ptr
  call void @llvm.prefetch.p0(ptr %place, i32 {READ}, i32 {SECOND_CACHE}, i32 {DATA})
  ret void
}}
"""


FUNCTIONS = frozenset(name(size) for size in SIZES for name in (_element, _line))
"""The names of all functions that `DEFINITIONS` define."""

DEFINITIONS = "declare void @llvm.prefetch.p0(ptr, i32, i32, i32)\n" + "".join(map(_definitions, SIZES))


def _declare(module, size):
    """The function for elements of `size` bytes."""
    found = module.globals.get(_element(size))
    if found is None:
        _declare_lines(module)
        found = _function(module, _element(size))
        variants = ",".join(f"_ZGV_LLVM_N{n}ul_{found.name}({_line(size)})" for n in VECTORS)
        set.add(found.attributes, f'"vector-function-abi-variant"="{variants}"')
    return found


def _declare_lines(module):
    """The variants, which LLVM is not to forget before somebody calls them."""
    if "llvm.compiler.used" not in module.globals:
        lines = [_function(module, _line(size)).bitcast(BYTES) for size in SIZES]
        kind = ir.ArrayType(BYTES, len(lines))
        kept = ir.GlobalVariable(module, kind, "llvm.compiler.used")
        kept.linkage, kept.section, kept.initializer = "appending", "llvm.metadata", kind(lines)


def _function(module, name):
    function = ir.Function(module, KIND, name)
    set.update(function.attributes, ("nounwind", "memory(none)"))  # llvmlite knows the first one only
    return function


@intrinsic
def prefetch(typingctx, pointer, row, index):
    """The element ``pointer[row + index]`` will be read or written soon; it need not exist. `row` must not
    change along the loop over `index`.
    """

    def codegen(context, builder, signature, args):
        size = context.get_abi_sizeof(args[0].type.pointee)
        place = builder.add(builder.ptrtoint(args[0], I64), builder.mul(args[1], I64(size)))
        builder.call(_declare(builder.module, size), [place, args[2]])
        return context.get_dummy_value()

    return types.void(pointer, types.int64, types.int64), codegen


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
