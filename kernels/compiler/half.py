"""float16 and bfloat16: their representation in kernels, and conversions from and to float32.

Kernels represent a half-precision number by the 16 bits that it has in memory, and compute in float32:
`scalar` converts the operands of a function and rounds its result (to nearest, ties to even), so each
operator rounds once, as in NumPy and in ml_dtypes.

float16 is converted by instructions if the processor has them (F16C of x86, every aarch64). Elsewhere, and
for bfloat16, integer instructions convert: LLVM would call functions of a run-time library, with which
kernels are not linked, and which vectorised loops cannot call.

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
    """The Numba type of a half-precision number."""


@register_default(HalfType)
class HalfModel(models.PrimitiveModel):
    """The representation of a half-precision number: a 16-bit integer."""

    def __init__(self, manager: Any, kind: HalfType):
        super().__init__(manager, kind, ir.IntType(16))


float16, bfloat16 = HalfType("float16"), HalfType("bfloat16")

HALVES = {"float16": float16, "bfloat16": bfloat16}
"""The half-precision types by name."""

SINGLE, BITS = ir.FloatType(), ir.IntType(32)


def widen(builder: ir.IRBuilder, value: Any, dtype: str) -> Any:
    """Convert a half-precision number to float32, exactly."""
    if dtype == "float16" and _has_conversions(builder):
        return builder.fpext(builder.bitcast(value, ir.HalfType()), SINGLE)
    wide = builder.zext(value, BITS)
    bits = builder.shl(wide, BITS(16)) if dtype == "bfloat16" else _bits_of_float16(builder, wide)
    return builder.bitcast(bits, SINGLE)


def round_to_half(builder: ir.IRBuilder, value: Any, dtype: str) -> Any:
    """Round a float32 to the nearest half-precision number, ties to even."""
    if dtype == "float16" and _has_conversions(builder):
        return builder.bitcast(builder.fptrunc(value, ir.HalfType()), ir.IntType(16))
    bits = builder.bitcast(value, BITS)
    is_nan = builder.fcmp_unordered("uno", value, value)
    half = _round_to_bfloat16 if dtype == "bfloat16" else _round_to_float16
    return builder.trunc(half(builder, bits, is_nan), ir.IntType(16))


def _has_conversions(builder: ir.IRBuilder) -> bool:
    """Whether the processor has instructions that convert float16."""
    return not builder.module.triple.startswith(("x86", "i")) or bool(features().get("f16c"))


def _round_off(builder: ir.IRBuilder, bits: Any, dropped: int) -> Any:
    """Drop the lowest `dropped` bits of `bits`, rounding to nearest, ties to even.

    A carry propagates into the exponent.
    """
    odd = builder.and_(builder.lshr(bits, BITS(dropped)), BITS(1))
    bias = builder.add(odd, BITS((1 << (dropped - 1)) - 1))
    return builder.lshr(builder.add(bits, bias), BITS(dropped))


def _round_to_bfloat16(builder: ir.IRBuilder, bits: Any, is_nan: Any) -> Any:
    """Round the bits of a float32 to the bits of a bfloat16; a NaN becomes quiet."""
    quiet = builder.or_(builder.lshr(bits, BITS(16)), BITS(0x40))
    return builder.select(is_nan, quiet, _round_off(builder, bits, 16))


def _round_to_float16(builder: ir.IRBuilder, bits: Any, is_nan: Any) -> Any:
    """Round the bits of a float32 to the bits of a float16.

    Normal numbers lose 13 bits. Subnormal numbers are rounded by adding 0.5, a float32 number whose last
    place has the weight of a subnormal float16's last place.
    """
    sign = builder.and_(builder.lshr(bits, BITS(16)), BITS(0x8000))
    magnitude = builder.and_(bits, BITS(0x7FFFFFFF))
    normal = builder.sub(_round_off(builder, magnitude, 13), BITS((127 - 15) << 10))
    one_half = builder.bitcast(BITS((127 - 24 + 23) << 23), SINGLE)  # the last place of 0.5 is 2**-24
    rounded_sum = builder.fadd(builder.bitcast(magnitude, SINGLE), one_half)
    subnormal = builder.sub(builder.bitcast(rounded_sum, BITS), BITS((127 - 24 + 23) << 23))
    half = builder.select(builder.icmp_unsigned("<", magnitude, BITS((127 - 14) << 23)), subnormal, normal)
    half = builder.select(builder.icmp_unsigned(">=", magnitude, BITS((127 + 16) << 23)), BITS(0x7C00), half)
    return builder.or_(sign, builder.select(is_nan, BITS(0x7E00), half))


def _bits_of_float16(builder: ir.IRBuilder, wide: Any) -> Any:
    """Convert the bits of a float16, extended to 32 bits, to the bits of a float32.

    A subtraction normalises subnormal numbers.
    """
    sign = builder.shl(builder.and_(wide, BITS(0x8000)), BITS(16))
    magnitude = builder.shl(builder.and_(wide, BITS(0x7FFF)), BITS(13))
    normal = builder.add(magnitude, BITS((127 - 15) << 23))
    least_normal = builder.bitcast(BITS((127 - 14) << 23), SINGLE)
    with_leading_one = builder.bitcast(builder.add(magnitude, BITS((127 - 14) << 23)), SINGLE)
    subnormal = builder.bitcast(builder.fsub(with_leading_one, least_normal), BITS)
    result = builder.select(builder.icmp_unsigned("<", magnitude, BITS(1 << 23)), subnormal, normal)
    special = builder.add(normal, BITS((127 - 15) << 23))  # infinity and NaN
    result = builder.select(builder.icmp_unsigned(">=", magnitude, BITS(31 << 23)), special, result)
    return builder.or_(sign, result)
