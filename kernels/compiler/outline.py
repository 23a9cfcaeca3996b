"""Out-of-line code for rare cases, in loops that LLVM still vectorises.

A branch prevents LLVM from vectorising a loop, and computing a costly rare case for every element would make
the loop slow. `except_beyond` calls a function instead, and declares to LLVM (through its vector function
ABI) variants of it for vectors of operands. A variant tests all elements of the vector together; only if one
of them is a rare case, it calls the scalar function for each element.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir

from tracejit.kernels.compiler.intrinsics import magnitude, select
from tracejit.kernels.compiler.typed_values import LLVM_TYPE, WIDTH, TypedValue, typed_intrinsic

VECTOR_BITS = (128, 256, 512)
"""The widths of the vectors for which there are variants."""


class _Attributes(ir.values.FunctionAttributes):
    """Attributes of a function, including attributes unknown to llvmlite."""

    def add(self, name: str) -> None:
        set.add(self, name)


def _numpy_except_beyond(x: Any, bound: float, usual: Any, rare: Callable[[Any], Any]) -> Any:
    beyond = ~(magnitude(x) < bound)
    return select(beyond, rare(select(beyond, x, x.dtype.type(np.inf))), usual)


@typed_intrinsic(_numpy_except_beyond)
def except_beyond(x: Any, bound: float, usual: Any, rare: Callable[[Any], Any]) -> Any:
    """Return `usual`, but ``rare(x)`` where ``|x| >= bound`` or `x` is NaN."""
    if x.on_gpu:
        return _branch(x, bound, usual, rare)
    module, name = x.builder.module, f"tracejit.{rare.__name__}.{x.dtype}"
    function = module.globals.get(name)
    if function is None:
        function = _declare(module, name, LLVM_TYPE[x.dtype])
        _define_scalar(function, x.dtype, bound, rare)
        variants = [_vector_variant(function, x.dtype, bound, n // WIDTH[x.dtype]) for n in VECTOR_BITS]
        function.attributes.add(f'"vector-function-abi-variant"="{",".join(variants)}"')
    return x.like(x.builder.call(function, [x.value, usual.value]))


def _branch(x: TypedValue, bound: float, usual: TypedValue, rare: Callable[[Any], Any]) -> TypedValue:
    """Emit a branch instead of a call; for GPUs, where loops are not vectorised."""
    builder = x.builder
    beyond, before = ~(magnitude(x) < bound), builder.block
    with builder.if_then(beyond.value, likely=False):
        value, after = rare(x).value, builder.block
    phi = builder.phi(LLVM_TYPE[x.dtype])
    phi.add_incoming(usual.value, before)
    phi.add_incoming(value, after)
    return x.like(phi)


def _declare(module: ir.Module, name: str, kind: Any) -> ir.Function:
    """Declare a function (x, usual) without side effects.

    Its linkage is weak, so that LLVM keeps it although it sees no call of it.
    """
    function = ir.Function(module, ir.FunctionType(kind, [kind, kind]), name)
    function.linkage = "weak_odr"
    function.attributes = _Attributes(["noinline", "nounwind", "willreturn", "memory(none)"])
    return function


def _define_scalar(function: ir.Function, dtype: str, bound: float, rare: Callable[[Any], Any]) -> None:
    """Define the scalar function (x, usual), which may branch."""
    builder = ir.IRBuilder(function.append_basic_block())
    x, usual = (TypedValue(builder, argument, dtype) for argument in function.args)
    with builder.if_then((magnitude(x) < bound).value):
        builder.ret(usual.value)
    builder.ret(rare(x).value)


def _vector_variant(scalar: ir.Function, dtype: str, bound: float, count: int) -> str:
    """Define the variant for vectors of `count` elements; return its name in the vector function ABI."""
    width = WIDTH[dtype]
    vector, integers = ir.VectorType(LLVM_TYPE[dtype], count), ir.VectorType(ir.IntType(width), count)
    name = f"{scalar.name}.{count}"
    function = _declare(scalar.module, name, vector)
    builder = ir.IRBuilder(function.append_basic_block())
    x, result = function.args
    limit = int(np.array(bound, dtype).view(f"i{width // 8}"))  # magnitudes compare like their bits
    magnitude_mask = ir.Constant(integers, [2 ** (width - 1) - 1] * count)
    magnitude_bits = builder.and_(builder.bitcast(x, integers), magnitude_mask)
    beyond = builder.icmp_signed(">=", magnitude_bits, ir.Constant(integers, [limit] * count))
    bits = ir.IntType(count)
    none_is_rare = builder.icmp_unsigned("==", builder.bitcast(beyond, bits), ir.Constant(bits, 0))
    with builder.if_then(none_is_rare, likely=True):
        builder.ret(result)
    for position in (ir.Constant(ir.IntType(32), n) for n in range(count)):
        operands = [builder.extract_element(argument, position) for argument in function.args]
        result = builder.insert_element(result, builder.call(scalar, operands), position)
    builder.ret(result)
    return f"_ZGV_LLVM_N{count}vv_{scalar.name}({name})"
