"""The intrinsics in which scalar functions are written, beside Python's operators: see `lane`.

Each intrinsic has two meanings, which must agree: the instructions it emits for a `Lane`, and its result
for NumPy values.

`fma` is always rounded once. `convert` from float to integer, and `quotient`, require operands in range.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from llvmlite import ir

from tracejit.kernels.compiler.code import features
from tracejit.kernels.compiler.half import HALVES, rounded, widened
from tracejit.kernels.compiler.lane import LLVM_TYPE, PARTS, WIDTH, Half, Lane, Pair, dtype_of, lane_of, word
from tracejit.kernels.compiler.remainder import remainder


def _lifted(*operands: Any) -> list[Lane]:
    """Lanes and Python numbers as lanes of one dtype."""
    lane = next((o for o in operands if isinstance(o, Lane)), None)
    if lane is None:
        raise TypeError(f"one of {operands} must be a lane, to determine the dtype; use fill")
    return [lane.lift(o) for o in operands]


def _exact_fma(a: float, b: float, c: float) -> float:
    product = a * b
    twice = product + c
    if not np.isfinite(twice) or not np.isfinite(product):
        return twice
    return float(Fraction(a) * Fraction(b) + Fraction(c)) or twice  # a zero keeps its sign


def _numpy_fma(*operands: Any) -> Any:
    dtype = next(x.dtype for x in operands if isinstance(x, np.generic | np.ndarray))
    doubles = (np.asarray(x, dtype).astype(np.float64) for x in operands)
    return np.asarray(np.frompyfunc(_exact_fma, 3, 1)(*doubles)).astype(dtype)[()]


@word(_numpy_fma)
def fma(a: Any, b: Any, c: Any) -> Any:
    """``a * b + c`` rounded once."""
    a, b, c = _lifted(a, b, c)
    return a.call("fma", b, c)


@word(lambda x, value: np.full_like(x, value)[()])
def fill(x: Any, value: Any) -> Any:
    """The number `value` as a lane of the dtype of `x`."""
    return x.lift(value)


@word(lambda condition, a, b: np.where(condition, a, b)[()])
def select(condition: Any, a: Any, b: Any) -> Any:
    """`a` where the bool lane `condition` is true, else `b`. Both are computed."""
    if condition.dtype != "bool":
        raise TypeError(f"a condition must be bool, not {condition.dtype}")
    if pair := next((x for x in (a, b) if isinstance(x, Pair)), None):
        a, b = pair.lift(a), pair.lift(b)
        return Pair(select(condition, a.real, b.real), select(condition, a.imag, b.imag))
    if isinstance(a, Half):
        return Half(a.builder, a.builder.select(condition.value, a.value, a.lift(b).value), a.dtype)
    a, b = _lifted(a, b)
    return a.like(a.builder.select(condition.value, a.value, b.value))


def _rounded_to_odd(x: Lane) -> Lane:
    """A float64 as float32, rounded so that rounding the result again is as good as rounding `x`: towards
    zero, and then the last bit is set unless the result is exact.
    """
    single = convert(x, "float32")
    back = convert(single, "float64")
    toward = bits(single) - convert(magnitude(back) > magnitude(x), "int32")
    return floating(select(back == x, toward, toward | 1))


@word(lambda x, dtype: np.asarray(x).astype(dtype)[()])
def convert(x: Any, dtype: str) -> Any:
    """`x` in another dtype: integers wrap or extend, floats round to nearest, bools are 0 and 1.

    From float to integer it truncates, and the result is undefined where it does not fit. Integers and, to
    bfloat16, float64 become half numbers by way of float32, as in NumPy and ml_dtypes.
    """
    if dtype == x.dtype:
        return x
    if isinstance(x, Pair):
        return Pair(convert(x.real, PARTS[dtype]), convert(x.imag, PARTS[dtype]))
    if dtype in PARTS:
        real = convert(x, PARTS[dtype])
        return Pair(real, real.lift(0.0))
    if isinstance(x, Half):
        return convert(Lane(x.builder, widened(x.builder, x.value, x.dtype), "float32"), dtype)
    if dtype in HALVES:
        single = _rounded_to_odd(x) if (x.dtype, dtype) == ("float64", "float16") else convert(x, "float32")
        return Half(x.builder, rounded(x.builder, single.value, dtype), dtype)
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
    parts = np.stack((real, imag), axis=-1)
    return parts.view(np.result_type(parts.dtype, np.complex64))[..., 0][()]


@word(_numpy_pair)
def pair(real: Any, imag: Any) -> Any:
    """The complex value with these parts."""
    real, imag = _lifted(real, imag)
    return Pair(real, imag)


@word(lambda x, dtype: np.asarray(x).view(dtype)[()])
def bitcast(x: Any, dtype: str) -> Any:
    """The bits of `x` read as another dtype of the same width."""
    value = x.value if x.value.type == LLVM_TYPE[dtype] else x.builder.bitcast(x.value, LLVM_TYPE[dtype])
    return lane_of(x.builder, value, dtype)


def bits(x: Any) -> Any:
    """The bits of a float as a signed integer."""
    return bitcast(x, f"int{WIDTH[dtype_of(x)]}")


def floating(i: Any) -> Any:
    """The float whose bits are the integer `i`."""
    return bitcast(i, f"float{WIDTH[dtype_of(i)]}")


@word(np.sqrt)
def sqrt(x: Any) -> Any:
    """Square root, correctly rounded."""
    return x.call("sqrt")


@word(np.floor)
def floor(x: Any) -> Any:
    """Round down to an integer; the sign of zero is kept."""
    return x.call("floor")


@word(np.ceil)
def ceil(x: Any) -> Any:
    """Round up to an integer; the sign of zero is kept."""
    return x.call("ceil")


@word(np.trunc)
def trunc(x: Any) -> Any:
    """Round towards zero; the sign of zero is kept."""
    return x.call("trunc")


@word(np.rint)
def rint(x: Any) -> Any:
    """Round to the nearest integer, ties to even; the sign of zero is kept."""
    return x.call("roundeven")


@word(np.copysign)
def copysign(x: Any, y: Any) -> Any:
    """The magnitude of `x` with the sign of `y`."""
    x, y = _lifted(x, y)
    return x.call("copysign", y)


def magnitude(x: Any) -> Any:
    """A float without its sign."""
    return floating(bits(x) & (2 ** (WIDTH[dtype_of(x)] - 1) - 1))


@word(np.maximum)
def larger(x: Any, y: Any) -> Any:
    """The larger of two floats: NaN if one is NaN, +0 is larger than -0."""
    x, y = _lifted(x, y)
    return x.call("maximum", y)


@word(np.minimum)
def smaller(x: Any, y: Any) -> Any:
    """The smaller of two floats: NaN if one is NaN, -0 is smaller than +0."""
    x, y = _lifted(x, y)
    return x.call("minimum", y)


def can_scale(x: Any) -> bool:
    """Whether `ldexp` of `x` is an instruction; otherwise it is a call of the C library."""
    return isinstance(x, Lane) and not x.on_gpu and bool(features().get("avx512dq"))


@word(np.ldexp)
def ldexp(x: Any, n: Any) -> Any:
    """``x * 2**n`` rounded once, for an integer lane `n` of the width of `x`; see `can_scale`."""
    name, module = f"llvm.ldexp.f{WIDTH[x.dtype]}.i{WIDTH[n.dtype]}", x.builder.module
    function = module.globals.get(name)
    if function is None:
        kind = ir.FunctionType(LLVM_TYPE[x.dtype], [LLVM_TYPE[x.dtype], LLVM_TYPE[n.dtype]])
        function = ir.Function(module, kind, name)
    return x.like(x.builder.call(function, [x.value, n.value]))


@word(np.fmod)
def fmod(x: Any, y: Any) -> Any:
    """C's remainder of floats: exact, with the sign of `x`. Not vectorised: on CPUs the C library computes
    it.
    """
    if x.on_gpu:
        return remainder(x, x.lift(y))
    return x.like(x.builder.frem(x.value, x.lift(y).value))


def _numpy_quotient(a: Any, b: Any) -> Any:
    down = a // b
    return (down + ((a % b != 0) & ((a < 0) != (b < 0)))).astype(a.dtype)[()]


@word(_numpy_quotient)
def quotient(a: Any, b: Any) -> Any:
    """Integer division towards zero; `b` must not be 0, nor -1 under the most negative `a`."""
    return a._binary(b, None, "sdiv", "udiv")


@word(lambda a, b: np.uint64(int(a) * int(b) >> 64))
def product_high(a: Any, b: Any) -> Any:
    """The upper half of the 128-bit product of two uint64."""
    builder, wide = a.builder, ir.IntType(128)
    product = builder.mul(builder.zext(a.value, wide), builder.zext(a.lift(b).value, wide))
    return a.like(builder.trunc(builder.lshr(product, ir.Constant(wide, 64)), LLVM_TYPE["uint64"]))


@word(lambda table, index: np.array(table, np.uint64)[index])
def lookup(table: Sequence[int], index: Any) -> Any:
    """Element `index` (an int64 lane, in range) of a constant table of uint64."""
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
