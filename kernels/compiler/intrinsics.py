"""The intrinsics in which scalar functions are written, besides Python's operators: see `typed_values`.

Each intrinsic has two implementations, which must agree: the instructions that it emits for a `TypedValue`,
and its result for NumPy values.

`fma` always rounds once. `convert` from float to integer, and `quotient`, require operands in range.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from llvmlite import ir

from tracejit.kernels.compiler.code import features
from tracejit.kernels.compiler.half import HALVES, round_to_half, widen
from tracejit.kernels.compiler.remainder import remainder
from tracejit.kernels.compiler.typed_values import (
    LLVM_TYPE,
    PART_DTYPES,
    WIDTH,
    Half,
    Pair,
    TypedValue,
    dtype_of,
    typed_intrinsic,
    typed_value,
)


def _lift_all(*operands: Any) -> list[TypedValue]:
    """Convert typed values and Python numbers to the dtype of the first typed value."""
    typed = next((o for o in operands if isinstance(o, TypedValue)), None)
    if typed is None:
        raise TypeError(f"one of {operands} must be a typed value, to determine the dtype; use fill")
    return [typed.lift(o) for o in operands]


def _exact_fma(a: float, b: float, c: float) -> float:
    """``a * b + c`` rounded once, by rational arithmetic."""
    product = a * b
    rounded_twice = product + c
    if not np.isfinite(rounded_twice) or not np.isfinite(product):
        return rounded_twice
    return float(Fraction(a) * Fraction(b) + Fraction(c)) or rounded_twice  # a zero keeps its sign


def _numpy_fma(*operands: Any) -> Any:
    dtype = next(x.dtype for x in operands if isinstance(x, np.generic | np.ndarray))
    doubles = (np.asarray(x, dtype).astype(np.float64) for x in operands)
    return np.asarray(np.frompyfunc(_exact_fma, 3, 1)(*doubles)).astype(dtype)[()]


@typed_intrinsic(_numpy_fma)
def fma(a: Any, b: Any, c: Any) -> Any:
    """``a * b + c`` rounded once."""
    a, b, c = _lift_all(a, b, c)
    return a.call("fma", b, c)


@typed_intrinsic(lambda x, value: np.full_like(x, value)[()])
def fill(x: Any, value: Any) -> Any:
    """The number `value` as a typed value with the dtype of `x`."""
    return x.lift(value)


@typed_intrinsic(lambda condition, a, b: np.where(condition, a, b)[()])
def select(condition: Any, a: Any, b: Any) -> Any:
    """`a` where the bool `condition` is true, else `b`. Both are computed."""
    if condition.dtype != "bool":
        raise TypeError(f"a condition must be bool, not {condition.dtype}")
    if pair := next((x for x in (a, b) if isinstance(x, Pair)), None):
        a, b = pair.lift(a), pair.lift(b)
        return Pair(select(condition, a.real, b.real), select(condition, a.imag, b.imag))
    if isinstance(a, Half):
        return Half(a.builder, a.builder.select(condition.value, a.value, a.lift(b).value), a.dtype)
    a, b = _lift_all(a, b)
    return a.like(a.builder.select(condition.value, a.value, b.value))


def _round_to_odd(x: TypedValue) -> TypedValue:
    """Round a float64 to float32 such that rounding the result to float16 is the same as rounding `x`.

    It rounds towards zero and then sets the last bit unless the result is exact.
    """
    single = convert(x, "float32")
    widened = convert(single, "float64")
    truncated = bits(single) - convert(magnitude(widened) > magnitude(x), "int32")
    return floating(select(widened == x, truncated, truncated | 1))


@typed_intrinsic(lambda x, dtype: np.asarray(x).astype(dtype)[()])
def convert(x: Any, dtype: str) -> Any:
    """Convert `x` to another dtype: integers wrap or extend, floats round to nearest, bools become 0 and 1.

    Floats are truncated to integers; the result is undefined where it is out of range. Integers are converted
    to half-precision numbers through float32, and so is float64 to bfloat16, as in NumPy and ml_dtypes.
    """
    if dtype == x.dtype:
        return x
    if isinstance(x, Pair):
        return Pair(convert(x.real, PART_DTYPES[dtype]), convert(x.imag, PART_DTYPES[dtype]))
    if dtype in PART_DTYPES:
        real = convert(x, PART_DTYPES[dtype])
        return Pair(real, real.lift(0.0))
    if isinstance(x, Half):
        return convert(TypedValue(x.builder, widen(x.builder, x.value, x.dtype), "float32"), dtype)
    if dtype in HALVES:
        single = _round_to_odd(x) if (x.dtype, dtype) == ("float64", "float16") else convert(x, "float32")
        return Half(x.builder, round_to_half(x.builder, single.value, dtype), dtype)
    to_float, builder = dtype.startswith("float"), x.builder
    wider = WIDTH[dtype] > WIDTH[x.dtype]
    if x.is_float and to_float:
        emit = builder.fpext if wider else builder.fptrunc
    elif x.is_float:
        emit = builder.fptosi if dtype.startswith("int") else builder.fptoui
    elif to_float:
        emit = builder.sitofp if x.is_signed else builder.uitofp
    elif WIDTH[dtype] == WIDTH[x.dtype]:
        return x.like(x.value, dtype)
    else:
        emit = (builder.sext if x.is_signed else builder.zext) if wider else builder.trunc
    return x.like(emit(x.value, LLVM_TYPE[dtype]), dtype)


def _numpy_pair(real: Any, imag: Any) -> Any:
    real, imag = np.broadcast_arrays(real, imag)
    components = np.stack((real, imag), axis=-1)
    return components.view(np.result_type(components.dtype, np.complex64))[..., 0][()]


@typed_intrinsic(_numpy_pair)
def pair(real: Any, imag: Any) -> Any:
    """The complex number with this real and imaginary part."""
    real, imag = _lift_all(real, imag)
    return Pair(real, imag)


@typed_intrinsic(lambda x, dtype: np.asarray(x).view(dtype)[()])
def bitcast(x: Any, dtype: str) -> Any:
    """Reinterpret the bits of `x` as another dtype of the same width."""
    value = x.value if x.value.type == LLVM_TYPE[dtype] else x.builder.bitcast(x.value, LLVM_TYPE[dtype])
    return typed_value(x.builder, value, dtype)


def bits(x: Any) -> Any:
    """The bits of a float as a signed integer."""
    return bitcast(x, f"int{WIDTH[dtype_of(x)]}")


def floating(i: Any) -> Any:
    """The float whose bits are the integer `i`."""
    return bitcast(i, f"float{WIDTH[dtype_of(i)]}")


@typed_intrinsic(np.sqrt)
def sqrt(x: Any) -> Any:
    """Square root, correctly rounded."""
    return x.call("sqrt")


@typed_intrinsic(np.floor)
def floor(x: Any) -> Any:
    """Round down to an integer; the sign of zero is kept."""
    return x.call("floor")


@typed_intrinsic(np.ceil)
def ceil(x: Any) -> Any:
    """Round up to an integer; the sign of zero is kept."""
    return x.call("ceil")


@typed_intrinsic(np.trunc)
def trunc(x: Any) -> Any:
    """Round towards zero; the sign of zero is kept."""
    return x.call("trunc")


@typed_intrinsic(np.rint)
def rint(x: Any) -> Any:
    """Round to the nearest integer, ties to even; the sign of zero is kept."""
    return x.call("roundeven")


@typed_intrinsic(np.copysign)
def copysign(x: Any, y: Any) -> Any:
    """The magnitude of `x` with the sign of `y`."""
    x, y = _lift_all(x, y)
    return x.call("copysign", y)


def magnitude(x: Any) -> Any:
    """The absolute value of a float."""
    return floating(bits(x) & (2 ** (WIDTH[dtype_of(x)] - 1) - 1))


@typed_intrinsic(np.maximum)
def larger(x: Any, y: Any) -> Any:
    """The larger of two floats: NaN if either is NaN; +0 is larger than -0."""
    x, y = _lift_all(x, y)
    return x.call("maximum", y)


@typed_intrinsic(np.minimum)
def smaller(x: Any, y: Any) -> Any:
    """The smaller of two floats: NaN if either is NaN; -0 is smaller than +0."""
    x, y = _lift_all(x, y)
    return x.call("minimum", y)


def can_scale(x: Any) -> bool:
    """Whether `ldexp` of `x` compiles to an instruction; otherwise it is a call of the C library."""
    return isinstance(x, TypedValue) and not x.on_gpu and bool(features().get("avx512dq"))


@typed_intrinsic(np.ldexp)
def ldexp(x: Any, n: Any) -> Any:
    """``x * 2**n`` rounded once, for an integer `n` as wide as `x`; see `can_scale`."""
    name, module = f"llvm.ldexp.f{WIDTH[x.dtype]}.i{WIDTH[n.dtype]}", x.builder.module
    function = module.globals.get(name)
    if function is None:
        kind = ir.FunctionType(LLVM_TYPE[x.dtype], [LLVM_TYPE[x.dtype], LLVM_TYPE[n.dtype]])
        function = ir.Function(module, kind, name)
    return x.like(x.builder.call(function, [x.value, n.value]))


@typed_intrinsic(np.fmod)
def fmod(x: Any, y: Any) -> Any:
    """C's remainder of floats: exact, with the sign of `x`.

    It is not vectorised: on CPUs the C library computes it.
    """
    if x.on_gpu:
        return remainder(x, x.lift(y))
    return x.like(x.builder.frem(x.value, x.lift(y).value))


def _numpy_quotient(a: Any, b: Any) -> Any:
    rounded_down = a // b
    return (rounded_down + ((a % b != 0) & ((a < 0) != (b < 0)))).astype(a.dtype)[()]


@typed_intrinsic(_numpy_quotient)
def quotient(a: Any, b: Any) -> Any:
    """Integer division towards zero; `b` must not be 0, nor -1 if `a` is the most negative integer."""
    return a._binary(b, None, "sdiv", "udiv")


@typed_intrinsic(lambda a, b: np.uint64(int(a) * int(b) >> 64))
def product_high(a: Any, b: Any) -> Any:
    """The upper half of the 128-bit product of two uint64."""
    builder, wide = a.builder, ir.IntType(128)
    product = builder.mul(builder.zext(a.value, wide), builder.zext(a.lift(b).value, wide))
    return a.like(builder.trunc(builder.lshr(product, ir.Constant(wide, 64)), LLVM_TYPE["uint64"]))


@typed_intrinsic(lambda table, index: np.array(table, np.uint64)[index])
def lookup(table: Sequence[int], index: Any) -> Any:
    """Element `index` (an int64, in range) of a constant table of uint64."""
    builder, module = index.builder, index.builder.module
    kind = ir.ArrayType(LLVM_TYPE["uint64"], len(table))
    name = f"tracejit.table.{hash(tuple(table)):x}"
    constant = module.globals.get(name)
    if constant is None:
        constant = ir.GlobalVariable(module, kind, name, addrspace=1 if index.on_gpu else 0)
        constant.initializer = ir.Constant(kind, list(table))
        constant.global_constant, constant.linkage = True, "internal"
    element = builder.gep(constant, [ir.Constant(ir.IntType(64), 0), index.value], inbounds=True)
    return index.like(builder.load(element), "uint64")
