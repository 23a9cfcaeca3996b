"""Division by a loop-invariant number: multiplication by its reciprocal, followed by corrections.

    r = 1 / y                       # once, before the loop
    q = x * r
    q = fma(fma(-q, y, x), r, q)    # add the remainder times the reciprocal
    q = fma(fma(-q, y, x), r, q)    # float64 only

In float64 the first correction leaves an error below one unit in the last place. The second one then rounds
correctly, because 1 / y is correctly rounded (Markstein: Computation of elementary functions on the IBM RISC
System/6000 processor, IBM Journal of Research and Development 34, 1990). In float32 one correction is enough:
its error before rounding is at most 1.5 * 2**-23 of a unit, and the result has been checked for all 47
million pairs of numbers whose quotient is that close to the midpoint of two numbers.

This takes half of the time of a division on some processors and is identical to it to the last bit, provided
that no step overflows or underflows. So a vector with an element outside `BOUNDS`, such as 0, infinity or
NaN, is divided. LLVM does not vectorise a loop with such a branch, so the branch is linked in afterwards
(`tracejit.kernels.compiler.vector_variants`).
"""

from __future__ import annotations

import functools
import math
import struct
from collections.abc import Iterator

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from tracejit.kernels.compiler.code import features
from tracejit.kernels.compiler.vector_variants import declare, declare_variants

LANES = (2, 4, 8, 16, 32)
"""The possible numbers of elements in a vector."""

INVARIANTS = ("y", "r", "least")
"""The loop-invariant parameters: the denominator, its reciprocal, and the least magnitude of a numerator that
takes the fast path.
"""

BITS = {"float": 32, "double": 64}
"""The width in bits of each LLVM float type."""

BOUNDS = {"float": ((-60, 60), (-40, 40)), "double": ((-500, 500), (-300, 300))}
"""Bounds of the fast path, as exponents of 2: of the numerators, then of the denominators. Between them,
quotients are normal numbers and remainders are exact.
"""

CORRECTIONS = {"float": 1, "double": 2}
"""The number of corrections for each LLVM float type."""


def _scalar_name(scalar):
    """The name of the scalar function."""
    return f"quotient_{scalar}"


def _variant_name(scalar, count):
    """The name of the scalar function's variant for vectors of `count` elements."""
    return f"quotient_{scalar}_{count}"


FUNCTIONS = {
    scalar: frozenset([_scalar_name(scalar), *(_variant_name(scalar, n) for n in LANES)]) for scalar in BITS
}
"""The names of the functions that `definitions` defines, for each LLVM float type."""


@intrinsic
def quotient(typingctx, x, y, reciprocal):
    """``x / y``, where `reciprocal` is ``1 / y``; both `y` and `reciprocal` must be loop-invariant."""
    if not isinstance(x, types.Float) or (y, reciprocal) != (x, x):
        return None

    def codegen(context, builder, signature, args):
        numerator, *invariants = args
        kind = numerator.type
        bits = ir.IntType(BITS[str(kind)])
        invariants.append(_least(builder, kind, args[1]))
        function = _declare(builder.module, kind, bits)
        return builder.call(function, [numerator, *(builder.bitcast(value, bits) for value in invariants)])

    return x(x, x, x), codegen


def _least(builder, kind, y):
    """The least magnitude of a numerator that takes the fast path; infinity if `y` is outside its bounds."""
    (least, _), (low, high) = BOUNDS[str(kind)]
    absolute = cgutils.get_or_insert_function(
        builder.module, ir.FunctionType(kind, [kind]), f"llvm.fabs.f{BITS[str(kind)]}"
    )
    magnitude = builder.call(absolute, [y])
    above = builder.fcmp_ordered(">=", magnitude, kind(2.0**low))
    below = builder.fcmp_ordered("<=", magnitude, kind(2.0**high))
    return builder.select(builder.and_(above, below), kind(2.0**least), kind(math.inf))


def _declare(module, kind, bits):
    """Declare the scalar function with its vector variants.

    Only integer parameters can be linear or uniform in the vector function ABI, so the loop-invariant numbers
    are passed as their bits.
    """
    scalar = str(kind)
    function = module.globals.get(_scalar_name(scalar))
    if function is None:
        invariants = [bits] * len(INVARIANTS)
        function = declare(module, _scalar_name(scalar), kind, [kind, *invariants], "willreturn")
        vectors = {n: ir.VectorType(kind, n) for n in LANES}
        variants = {
            f"N{n}v{'u' * len(invariants)}": declare(
                module, _variant_name(scalar, n), vector, [vector, *invariants], "willreturn"
            )
            for n, vector in vectors.items()
        }
        declare_variants(function, variants)
    return function


@functools.cache
def definitions(scalar: str) -> str:
    """Return the functions for the LLVM float type `scalar`, as LLVM assembly."""
    text = [
        *_head(scalar, scalar, _scalar_name(scalar)),
        f"  %q = fdiv {scalar} %x, %y",
        f"  ret {scalar} %q",
        "}",
    ]
    for count in LANES:
        text += _variant(scalar, count)
    return "\n".join(text)


def _head(scalar: str, kind: str, name: str) -> Iterator[str]:
    """Yield the head of a function with the result type `kind`, which converts its parameters from bits."""
    bits = f"i{BITS[scalar]}"
    parameters = ", ".join([f"{kind} %x", *(f"{bits} %{number}.bits" for number in INVARIANTS)])
    yield f"define {kind} @{name}({parameters}) alwaysinline {{"
    for number in INVARIANTS:
        yield f"  %{number} = bitcast {bits} %{number}.bits to {scalar}"


def _variant(scalar: str, count: int) -> Iterator[str]:
    """Yield the variant for vectors of `count` elements; without fused multiply-add, it only divides."""
    vector, suffix, mask = f"<{count} x {scalar}>", f"v{count}f{BITS[scalar]}", f"<{count} x i1>"
    (_, most), _ = BOUNDS[scalar]
    bound = f"0x{struct.pack('>d', 2.0**most).hex()}"  # LLVM writes every number as a double
    yield f"declare {vector} @llvm.fabs.{suffix}({vector})"
    yield f"declare {vector} @llvm.fma.{suffix}({vector}, {vector}, {vector})"
    yield f"declare i1 @llvm.vector.reduce.and.v{count}i1({mask})"
    yield from _head(scalar, vector, _variant_name(scalar, count))
    for number in INVARIANTS:
        lane_zero = f"{vector} poison, <{count} x i32> zeroinitializer"
        yield f"  %first.{number} = insertelement {vector} poison, {scalar} %{number}, i64 0"
        yield f"  %{number}s = shufflevector {vector} %first.{number}, {lane_zero}"
    if features().get("fma", True):  # only x86 lists the feature; other processors always have it
        yield f"  %magnitude = call {vector} @llvm.fabs.{suffix}({vector} %x)"
        yield f"  %above = fcmp oge {vector} %magnitude, %leasts"
        yield f"  %below = fcmp ole {vector} %magnitude, <{', '.join([f'{scalar} {bound}'] * count)}>"
        yield f"  %inside = and {mask} %above, %below"
        yield f"  %all = call i1 @llvm.vector.reduce.and.v{count}i1({mask} %inside)"
        yield "  br i1 %all, label %multiply, label %divide"
        yield "multiply:"
        yield f"  %q0 = fmul {vector} %x, %rs"
        for n in range(CORRECTIONS[scalar]):
            yield f"  %negated{n} = fneg {vector} %q{n}"
            factors = f"{vector} %negated{n}, {vector} %ys, {vector} %x"
            yield f"  %residual{n} = call {vector} @llvm.fma.{suffix}({factors})"
            factors = f"{vector} %residual{n}, {vector} %rs, {vector} %q{n}"
            yield f"  %q{n + 1} = call {vector} @llvm.fma.{suffix}({factors})"
        yield f"  ret {vector} %q{CORRECTIONS[scalar]}"
        yield "divide:"
    yield f"  %exact = fdiv {vector} %x, %ys"
    yield f"  ret {vector} %exact"
    yield "}"
