"""The exact remainder of a floating-point division (C's ``fmod``), for GPUs, where neither the LLVM target
nor a library provides it.

The algorithm is binary long division, as in common C libraries. One step subtracts the divisor's significand
from the dividend's, unless the result would be negative, and doubles it. The number of steps is the
difference of the exponents.

    5.5 % 1.5:  5.5 = 1.375 * 2**2, 1.5 = 1.5 * 2**0, so two steps:  1.375 -> 2.75 -> (2.75 - 1.5) * 2 -> 1.0
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from tracejit.kernels.compiler.typed_values import LLVM_TYPE, WIDTH, TypedValue

FRACTION_BITS = {"float32": 23, "float64": 52}
"""The number of explicit bits of a significand."""


def remainder(x: TypedValue, y: TypedValue) -> TypedValue:
    """Compute C's ``fmod``: exact, with the sign of `x`; NaN for an infinite `x` and for a `y` of 0."""
    width, fraction_bits = WIDTH[x.dtype], FRACTION_BITS[x.dtype]
    sign_mask, leading_bit, magnitude_mask = 1 << (width - 1), 1 << fraction_bits, (1 << (width - 1)) - 1
    infinity = magnitude_mask ^ (leading_bit - 1)
    a, b = _bits(x), _bits(y)
    sign, dividend, divisor = a & sign_mask, a & magnitude_mask, b & magnitude_mask
    dividend_exponent, significand = _decompose(dividend, fraction_bits)
    divisor_exponent, divisor_significand = _decompose(divisor, fraction_bits)
    significand = _reduce(significand, divisor_significand, dividend_exponent - divisor_exponent)
    significand = _select(significand >= divisor_significand, significand - divisor_significand, significand)
    shift = _leading_zeros(significand) - (width - 1 - fraction_bits)
    normalised = significand << _unsigned(shift)
    exponent = divisor_exponent - shift
    excess = _select(exponent < 1, 1 - exponent, exponent.lift(0))
    subnormal = normalised >> _unsigned(_select(excess > fraction_bits, excess.lift(fraction_bits), excess))
    bits = _select(
        exponent < 1, subnormal, (normalised & (leading_bit - 1)) | _unsigned(exponent << fraction_bits)
    )
    bits = _select(significand == 0, significand, bits)
    bits = _select(dividend < divisor, dividend, bits)
    is_nan = (dividend >= infinity) | (divisor > infinity) | (divisor == 0)
    bits = _select(is_nan, bits.lift(infinity | (leading_bit >> 1)), bits | sign)
    return x.like(x.builder.bitcast(_unsigned(bits).value, LLVM_TYPE[x.dtype]))


def _bits(x: TypedValue) -> TypedValue:
    """Reinterpret the bits of a float as an unsigned integer."""
    dtype = f"uint{WIDTH[x.dtype]}"
    return x.like(x.builder.bitcast(x.value, LLVM_TYPE[dtype]), dtype)


def _unsigned(x: TypedValue) -> TypedValue:
    return x.like(x.value, f"uint{WIDTH[x.dtype]}")


def _signed(x: TypedValue) -> TypedValue:
    return x.like(x.value, f"int{WIDTH[x.dtype]}")


def _select(condition: TypedValue, a: TypedValue, b: TypedValue) -> TypedValue:
    return a.like(a.builder.select(condition.value, a.value, b.value))


def _leading_zeros(x: TypedValue) -> TypedValue:
    """Count the leading zero bits, as a signed integer of the same width; the width for 0."""
    kind, module = LLVM_TYPE[x.dtype], x.builder.module
    name = f"llvm.ctlz.i{WIDTH[x.dtype]}"
    function = module.globals.get(name)
    if function is None:
        function = ir.Function(module, ir.FunctionType(kind, [kind, ir.IntType(1)]), name)
    return _signed(x.like(x.builder.call(function, [x.value, ir.IntType(1)(0)])))


def _decompose(magnitude: TypedValue, fraction_bits: int) -> tuple[TypedValue, TypedValue]:
    """Return the biased exponent (signed) and the significand (unsigned, its leading bit set) of a magnitude.

    Both are meaningless for 0.
    """
    width, leading_bit = WIDTH[magnitude.dtype], 1 << fraction_bits
    field, fraction = _signed(magnitude >> fraction_bits), magnitude & (leading_bit - 1)
    shift = _leading_zeros(fraction) - (width - 1 - fraction_bits)
    is_normal = field != 0
    return _select(is_normal, field, 1 - shift), _select(
        is_normal, fraction | leading_bit, fraction << _unsigned(shift)
    )


def _reduce(significand: TypedValue, divisor: TypedValue, count: TypedValue) -> TypedValue:
    """Return `significand` after `count` iterations: subtract `divisor` unless it is larger, then double."""
    builder: Any = significand.builder
    before = builder.block
    head, body, after = (
        builder.append_basic_block(f"remainder.{name}") for name in ("head", "body", "after")
    )
    builder.branch(head)
    builder.position_at_end(head)
    remaining, significand_phi = (builder.phi(x.value.type) for x in (count, significand))
    builder.cbranch((count.like(remaining) > 0).value, body, after)
    builder.position_at_end(body)
    current = significand.like(significand_phi)
    doubled = _select(current >= divisor, current - divisor, current) << 1
    for phi, start, following in (
        (remaining, count, count.like(remaining) - 1),
        (significand_phi, significand, doubled),
    ):
        phi.add_incoming(start.value, before)
        phi.add_incoming(following.value, body)
    builder.branch(head)
    builder.position_at_end(after)
    return current
