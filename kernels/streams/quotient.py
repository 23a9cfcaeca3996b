"""Quotients by a loop-invariant number: products with its reciprocal, corrected.

    r = 1 / y                       # once
    q = x * r
    q = fma(fma(-q, y, x), r, q)    # add the remainder times the reciprocal
    q = fma(fma(-q, y, x), r, q)    # float64 only

In float64 the first correction leaves an error below one unit in the last place; the second one then rounds
correctly, as 1 / y is (Markstein: Computation of elementary functions on the IBM RISC System/6000 processor,
IBM Journal of Research and Development 34, 1990). In float32 one correction is enough: its error before
rounding is at most 1.5 * 2**-23 of a unit, and for all 47 million pairs of numbers whose quotient is that
close to the midpoint of two numbers the result has been checked.

That takes half of the time of a division on some processors, and is identical to the last bit, provided that
no step over- or underflows. So a vector with an element beyond `BOUNDS`, such as 0, infinity or nan, is
divided. LLVM does not vectorise loops with such a branch, so it is linked in afterwards
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
"""The numbers of elements in a vector."""

NUMBERS = ("y", "r", "least")
"""The loop-invariant parameters: denominator, reciprocal, and the least numerator that is not divided."""

BITS = {"float": 32, "double": 64}
"""The widths of LLVM's float types."""

BOUNDS = {"float": ((-60, 60), (-40, 40)), "double": ((-500, 500), (-300, 300))}
"""Exponents of 2 between which numerators and denominators are not divided: quotients are normal numbers
then, and remainders are exact.
"""

CORRECTIONS = {"float": 1, "double": 2}
"""The number of corrections."""


def _one(scalar):
    """The name of the scalar function."""
    return f"quotient_{scalar}"


def _many(scalar, count):
    """The name of its variant for vectors of `count` elements."""
    return f"quotient_{scalar}_{count}"


FUNCTIONS = {scalar: frozenset([_one(scalar), *(_many(scalar, n) for n in LANES)]) for scalar in BITS}
"""The functions that `definitions` defines, by LLVM's float types."""


@intrinsic
def quotient(typingctx, x, y, reciprocal):
    """``x / y``, if `reciprocal` is ``1 / y``; these two must be loop-invariant."""
    if not isinstance(x, types.Float) or (y, reciprocal) != (x, x):
        return None

    def codegen(context, builder, signature, args):
        numerator, *others = args
        kind = numerator.type
        bits = ir.IntType(BITS[str(kind)])
        others.append(_least(builder, kind, args[1]))
        function = _declare(builder.module, kind, bits)
        return builder.call(function, [numerator, *(builder.bitcast(other, bits) for other in others)])

    return x(x, x, x), codegen


def _least(builder, kind, y):
    """The least numerator that need not be divided by `y`: infinity if `y` is beyond its bounds."""
    (least, _), (low, high) = BOUNDS[str(kind)]
    absolute = cgutils.get_or_insert_function(
        builder.module, ir.FunctionType(kind, [kind]), f"llvm.fabs.f{BITS[str(kind)]}"
    )
    size = builder.call(absolute, [y])
    above = builder.fcmp_ordered(">=", size, kind(2.0**low))
    below = builder.fcmp_ordered("<=", size, kind(2.0**high))
    return builder.select(builder.and_(above, below), kind(2.0**least), kind(math.inf))


def _declare(module, kind, bits):
    """Declare the scalar function. Only integer parameters can be linear or uniform in the vector function
    ABI, so the loop-invariant numbers are passed by their bits.
    """
    scalar = str(kind)
    found = module.globals.get(_one(scalar))
    if found is None:
        others = [bits] * len(NUMBERS)
        found = declare(module, _one(scalar), kind, [kind, *others], "willreturn")
        vectors = {n: ir.VectorType(kind, n) for n in LANES}
        variants = {
            f"N{n}v{'u' * len(others)}": declare(
                module, _many(scalar, n), vector, [vector, *others], "willreturn"
            )
            for n, vector in vectors.items()
        }
        declare_variants(found, variants)
    return found


@functools.cache
def definitions(scalar: str) -> str:
    """The functions for numbers of LLVM's type `scalar`, as LLVM assembly."""
    text = [*_head(scalar, scalar, _one(scalar)), f"  %q = fdiv {scalar} %x, %y", f"  ret {scalar} %q", "}"]
    for count in LANES:
        text += _variant(scalar, count)
    return "\n".join(text)


def _head(scalar: str, kind: str, name: str) -> Iterator[str]:
    """The beginning of a function of `kind`, with its parameters converted from their bits."""
    bits = f"i{BITS[scalar]}"
    parameters = ", ".join([f"{kind} %x", *(f"{bits} %{number}.bits" for number in NUMBERS)])
    yield f"define {kind} @{name}({parameters}) alwaysinline {{"
    for number in NUMBERS:
        yield f"  %{number} = bitcast {bits} %{number}.bits to {scalar}"


def _variant(scalar: str, count: int) -> Iterator[str]:
    """The variant for vectors of `count` elements; without fused multiply-add, it divides."""
    vector, suffix, mask = f"<{count} x {scalar}>", f"v{count}f{BITS[scalar]}", f"<{count} x i1>"
    (_, most), _ = BOUNDS[scalar]
    bound = f"0x{struct.pack('>d', 2.0**most).hex()}"  # LLVM writes every number as a double
    yield f"declare {vector} @llvm.fabs.{suffix}({vector})"
    yield f"declare {vector} @llvm.fma.{suffix}({vector}, {vector}, {vector})"
    yield f"declare i1 @llvm.vector.reduce.and.v{count}i1({mask})"
    yield from _head(scalar, vector, _many(scalar, count))
    for number in NUMBERS:
        places = f"{vector} poison, <{count} x i32> zeroinitializer"
        yield f"  %first.{number} = insertelement {vector} poison, {scalar} %{number}, i64 0"
        yield f"  %{number}s = shufflevector {vector} %first.{number}, {places}"
    if features().get("fma", True):  # processors other than x86 do not name it
        yield f"  %size = call {vector} @llvm.fabs.{suffix}({vector} %x)"
        yield f"  %above = fcmp oge {vector} %size, %leasts"
        yield f"  %below = fcmp ole {vector} %size, <{', '.join([f'{scalar} {bound}'] * count)}>"
        yield f"  %inside = and {mask} %above, %below"
        yield f"  %all = call i1 @llvm.vector.reduce.and.v{count}i1({mask} %inside)"
        yield "  br i1 %all, label %multiply, label %divide"
        yield "multiply:"
        yield f"  %q0 = fmul {vector} %x, %rs"
        for n in range(CORRECTIONS[scalar]):
            yield f"  %less{n} = fneg {vector} %q{n}"
            factors = f"{vector} %less{n}, {vector} %ys, {vector} %x"
            yield f"  %lacks{n} = call {vector} @llvm.fma.{suffix}({factors})"
            factors = f"{vector} %lacks{n}, {vector} %rs, {vector} %q{n}"
            yield f"  %q{n + 1} = call {vector} @llvm.fma.{suffix}({factors})"
        yield f"  ret {vector} %q{CORRECTIONS[scalar]}"
        yield "divide:"
    yield f"  %exact = fdiv {vector} %x, %ys"
    yield f"  ret {vector} %exact"
    yield "}"
