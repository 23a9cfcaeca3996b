"""float16 and bfloat16: how kernels hold them, and their conversions from and to float32.

Kernels hold a half number as the 16 bits it has in memory and compute in float32: `scalar` converts the
operands of a function and rounds its result (to nearest, ties to even), so each operator rounds once, as in
NumPy and in ml_dtypes.

float16 is converted by instructions where the processor has them (F16C of x86, all of aarch64). Elsewhere,
and for bfloat16, it is done with integers: LLVM would call functions of a run-time library, which kernels are
not linked with, and which no loop of vectors can call.

    bfloat16  s eeeeeeee mmmmmmm            the upper half of a float32
    float16   s eeeee mmmmmmmmmm            the exponent has another bias: 15, not 127
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core.datamodel import models, register_default

from tracejit.kernels.compiler.code import features


class HalfType(types.Number):
    """The type of a half number in Numba's eyes."""


@register_default(HalfType)
class HalfModel(models.PrimitiveModel):
    """16 bits."""

    def __init__(self, manager: Any, kind: HalfType):
        super().__init__(manager, kind, ir.IntType(16))


float16, bfloat16 = HalfType("float16"), HalfType("bfloat16")

HALVES = {"float16": float16, "bfloat16": bfloat16}
"""The half types by name."""

SINGLE, BITS = ir.FloatType(), ir.IntType(32)


def widened(builder: ir.IRBuilder, value: Any, dtype: str) -> Any:
    """The float32 of a half number, exactly."""
    if dtype == "float16" and _converts(builder):
        return builder.fpext(builder.bitcast(value, ir.HalfType()), SINGLE)
    wide = builder.zext(value, BITS)
    bits = builder.shl(wide, BITS(16)) if dtype == "bfloat16" else _bits_of_float16(builder, wide)
    return builder.bitcast(bits, SINGLE)


def rounded(builder: ir.IRBuilder, value: Any, dtype: str) -> Any:
    """The half number nearest to a float32."""
    if dtype == "float16" and _converts(builder):
        return builder.bitcast(builder.fptrunc(value, ir.HalfType()), ir.IntType(16))
    bits = builder.bitcast(value, BITS)
    is_nan = builder.fcmp_unordered("uno", value, value)
    half = _rounded_to_bfloat16 if dtype == "bfloat16" else _rounded_to_float16
    return builder.trunc(half(builder, bits, is_nan), ir.IntType(16))


def _converts(builder: ir.IRBuilder) -> bool:
    """Whether the processor has instructions that convert float16."""
    return not builder.module.triple.startswith(("x86", "i")) or bool(features().get("f16c"))


def _half_up(builder: ir.IRBuilder, bits: Any, dropped: int) -> Any:
    """`bits` without the `dropped` lowest ones, rounded to nearest, ties to even; a carry goes on upwards."""
    odd = builder.and_(builder.lshr(bits, BITS(dropped)), BITS(1))
    bias = builder.add(odd, BITS((1 << (dropped - 1)) - 1))
    return builder.lshr(builder.add(bits, bias), BITS(dropped))


def _rounded_to_bfloat16(builder: ir.IRBuilder, bits: Any, is_nan: Any) -> Any:
    quiet = builder.or_(builder.lshr(bits, BITS(16)), BITS(0x40))
    return builder.select(is_nan, quiet, _half_up(builder, bits, 16))


def _rounded_to_float16(builder: ir.IRBuilder, bits: Any, is_nan: Any) -> Any:
    """Normal numbers lose 13 bits; subnormal ones are rounded by an addition whose last place is theirs."""
    sign = builder.and_(builder.lshr(bits, BITS(16)), BITS(0x8000))
    size = builder.and_(bits, BITS(0x7FFFFFFF))
    normal = builder.sub(_half_up(builder, size, 13), BITS((127 - 15) << 10))
    place = builder.bitcast(BITS((127 - 24 + 23) << 23), SINGLE)  # the last place of 0.5 is 2**-24
    raised = builder.fadd(builder.bitcast(size, SINGLE), place)
    small = builder.sub(builder.bitcast(raised, BITS), BITS((127 - 24 + 23) << 23))
    half = builder.select(builder.icmp_unsigned("<", size, BITS((127 - 14) << 23)), small, normal)
    half = builder.select(builder.icmp_unsigned(">=", size, BITS((127 + 16) << 23)), BITS(0x7C00), half)
    return builder.or_(sign, builder.select(is_nan, BITS(0x7E00), half))


def _bits_of_float16(builder: ir.IRBuilder, wide: Any) -> Any:
    """The bits of the float32; subnormal numbers become normal by a subtraction."""
    sign = builder.shl(builder.and_(wide, BITS(0x8000)), BITS(16))
    size = builder.shl(builder.and_(wide, BITS(0x7FFF)), BITS(13))
    normal = builder.add(size, BITS((127 - 15) << 23))
    least = builder.bitcast(BITS((127 - 14) << 23), SINGLE)
    raised = builder.bitcast(builder.add(size, BITS((127 - 14) << 23)), SINGLE)
    small = builder.bitcast(builder.fsub(raised, least), BITS)
    found = builder.select(builder.icmp_unsigned("<", size, BITS(1 << 23)), small, normal)
    beyond = builder.add(normal, BITS((127 - 15) << 23))  # infinity and nan
    found = builder.select(builder.icmp_unsigned(">=", size, BITS(31 << 23)), beyond, found)
    return builder.or_(sign, found)
