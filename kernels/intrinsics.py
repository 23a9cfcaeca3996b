"""The small language in which scalar functions are written, and how it becomes machine code.

A scalar function such as `exp` is a plain Python function over *lanes*. A lane is one typed value: when
a kernel is compiled it is a `Lane`, an LLVM value under construction, and running the function emits its
instructions straight into the kernel; on CUDA's simulator, and wherever else plain Python calls the
function, it is a NumPy scalar (or array). So every function is written once, for CPU, CUDA and the
simulator:

    def sigmoid_like(x):
        e = exp(-x)
        return select(x < 0.0, e, 1.0) / (1.0 + e)

What always holds:

- No promotion and no implicit conversion: both operands of an operator have one dtype; a Python number
  takes the dtype of the lane beside it. Integers wrap, `>>` repeats the sign of signed integers.
- No branches (`select` computes both sides), no calls, no exceptions, no fast-math flags: each operator
  is exactly the IEEE operation, and LLVM's loop vectoriser can take any function whole. `fma` is rounded
  once, always.
- Raw words are as defined as LLVM's: `convert` from float to integer and `quotient` want operands in
  range.

`compiled(function)` makes a Numba intrinsic of such a function; nothing else here imports or needs
Numba. Since Numba's front end never sees the inside, a function costs about a millisecond to compile
into a kernel.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from llvmlite import ir
from numba import config, types
from numba.extending import intrinsic

WIDTH = {
    "bool": 1,
    **{f"int{n}": n for n in (8, 16, 32, 64)},
    **{f"uint{n}": n for n in (8, 16, 32, 64)},
    "float32": 32,
    "float64": 64,
}
"""Bits of each dtype, as lanes hold them (a bool is one bit)."""

_LLVM = {
    "float32": ir.FloatType(),
    "float64": ir.DoubleType(),
    **{name: ir.IntType(bits) for name, bits in WIDTH.items() if not name.startswith("float")},
}


class Lane:
    """One typed LLVM value under construction, with Python's operators."""

    __slots__ = ("builder", "dtype", "value")

    def __init__(self, builder: ir.IRBuilder, value: Any, dtype: str):
        self.builder, self.value, self.dtype = builder, value, dtype

    def __repr__(self) -> str:
        return f"<Lane {self.dtype}>"

    @property
    def is_float(self) -> bool:
        return self.dtype.startswith("float")

    @property
    def is_signed(self) -> bool:
        return self.dtype.startswith("int")

    @property
    def on_gpu(self) -> bool:
        return self.builder.module.triple.startswith("nvptx")

    def like(self, value: Any, dtype: str | None = None) -> Lane:
        """Another lane of the same kernel."""
        return Lane(self.builder, value, dtype or self.dtype)

    def lift(self, other: Any) -> Lane:
        """`other` as a lane of this one's dtype; only Python numbers adapt."""
        if isinstance(other, Lane):
            if other.dtype != self.dtype:
                raise TypeError(f"operands of different dtypes: {self.dtype} and {other.dtype}")
            return other
        return self.like(ir.Constant(_LLVM[self.dtype], other))

    def call(self, name: str, *others: Any) -> Lane:
        """LLVM's intrinsic ``llvm.<name>`` on lanes of this dtype, with a result of this dtype."""
        return self.external(f"llvm.{name}.{'f' if self.is_float else 'i'}{WIDTH[self.dtype]}", *others)

    def external(self, name: str, *others: Any) -> Lane:
        """A function from outside the kernel, on lanes of this dtype, with a result of this dtype."""
        arguments = [self.value, *(self.lift(o).value for o in others)]
        kind, module = _LLVM[self.dtype], self.builder.module
        function = module.globals.get(name)
        if function is None:
            function = ir.Function(module, ir.FunctionType(kind, [kind] * len(arguments)), name)
        return self.like(self.builder.call(function, arguments))

    def _binary(self, other: Any, floating: str | None, signed: str, unsigned: str | None = None) -> Lane:
        name = floating if self.is_float else signed if self.is_signed else unsigned or signed
        if name is None:
            raise TypeError(f"not defined for {self.dtype}")
        return self.like(getattr(self.builder, name)(self.value, self.lift(other).value))

    def _compare(self, other: Any, sign: str) -> Lane:
        right = self.lift(other).value
        if self.is_float:
            compare = self.builder.fcmp_unordered if sign == "!=" else self.builder.fcmp_ordered
        else:
            compare = self.builder.icmp_signed if self.is_signed else self.builder.icmp_unsigned
        return self.like(compare(sign, self.value, right), "bool")

    def __add__(self, other: Any) -> Lane:
        return self._binary(other, "fadd", "add")

    def __sub__(self, other: Any) -> Lane:
        return self._binary(other, "fsub", "sub")

    def __mul__(self, other: Any) -> Lane:
        return self._binary(other, "fmul", "mul")

    def __truediv__(self, other: Any) -> Lane:
        if not self.is_float:
            raise TypeError(f"/ is not defined for {self.dtype}")
        return self._binary(other, "fdiv", "fdiv")

    def __radd__(self, other: Any) -> Lane:
        return self.lift(other) + self

    def __rsub__(self, other: Any) -> Lane:
        return self.lift(other) - self

    def __rmul__(self, other: Any) -> Lane:
        return self.lift(other) * self

    def __rtruediv__(self, other: Any) -> Lane:
        return self.lift(other) / self

    def __neg__(self) -> Lane:
        if not self.is_float:
            return self.lift(0) - self
        if self.on_gpu:  # NVVM's dialect has no fneg
            return self.lift(-0.0) - self
        return self.like(self.builder.fneg(self.value))

    def __and__(self, other: Any) -> Lane:
        return self._binary(other, None, "and_")

    def __or__(self, other: Any) -> Lane:
        return self._binary(other, None, "or_")

    def __xor__(self, other: Any) -> Lane:
        return self._binary(other, None, "xor")

    def __invert__(self) -> Lane:
        return self ^ (1 if self.dtype == "bool" else -1)

    def __lshift__(self, other: Any) -> Lane:
        return self._binary(other, None, "shl")

    def __rshift__(self, other: Any) -> Lane:
        return self._binary(other, None, "ashr", "lshr")

    def __lt__(self, other: Any) -> Lane:
        return self._compare(other, "<")

    def __le__(self, other: Any) -> Lane:
        return self._compare(other, "<=")

    def __gt__(self, other: Any) -> Lane:
        return self._compare(other, ">")

    def __ge__(self, other: Any) -> Lane:
        return self._compare(other, ">=")

    def __eq__(self, other):
        return self._compare(other, "==")

    def __ne__(self, other):
        return self._compare(other, "!=")


def dtype_of(x: Any) -> str:
    """The name of a lane's dtype."""
    return x.dtype if isinstance(x, Lane) else np.dtype(x.dtype).name


def is_float(x: Any) -> bool:
    """Whether `x` is float32 or float64."""
    return dtype_of(x).startswith("float")


def _word(meaning: Callable[..., Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Declare a word of the language: `meaning` on NumPy values, what the decorated function emits on lanes.

    The first lane among the arguments lends its dtype to Python numbers beside it.
    """

    def declare(emit: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(emit)
        def word(*arguments: Any) -> Any:
            lane = next((a for a in arguments if isinstance(a, Lane)), None)
            return meaning(*arguments) if lane is None else emit(*arguments)

        return word

    return declare


def _lifted(*operands: Any) -> list[Lane]:
    """Lanes and Python numbers as lanes of one dtype."""
    lane = next((o for o in operands if isinstance(o, Lane)), None)
    if lane is None:
        raise TypeError(f"one of {operands} must be a lane, to give the dtype; use fill")
    return [lane.lift(o) for o in operands]


def _exact_fma(a: float, b: float, c: float) -> float:
    product = a * b
    plain = product + c
    if not np.isfinite(plain) or not np.isfinite(product):
        return plain
    return float(Fraction(a) * Fraction(b) + Fraction(c)) or plain


def _numpy_fma(*operands: Any) -> Any:
    dtype = next(x.dtype for x in operands if isinstance(x, np.generic | np.ndarray))
    doubles = (np.asarray(x, dtype).astype(np.float64) for x in operands)
    return np.asarray(np.frompyfunc(_exact_fma, 3, 1)(*doubles)).astype(dtype)[()]


@_word(_numpy_fma)
def fma(a: Any, b: Any, c: Any) -> Any:
    """``a * b + c`` rounded once."""
    a, b, c = _lifted(a, b, c)
    return a.call("fma", b, c)


@_word(lambda x, value: np.full_like(x, value)[()])
def fill(x: Any, value: Any) -> Any:
    """The number `value` as a lane of the dtype of `x`."""
    return x.lift(value)


@_word(lambda condition, a, b: np.where(condition, a, b)[()])
def select(condition: Any, a: Any, b: Any) -> Any:
    """`a` where the bool lane `condition` is true, else `b`. Both are computed."""
    if condition.dtype != "bool":
        raise TypeError(f"a condition must be bool, not {condition.dtype}")
    a, b = _lifted(a, b)
    return a.like(a.builder.select(condition.value, a.value, b.value))


@_word(lambda x, dtype: np.asarray(x).astype(dtype)[()])
def convert(x: Any, dtype: str) -> Any:
    """`x` in another dtype: integers wrap or extend, floats round to nearest, bools are 0 and 1.

    From float to integer it truncates, and the result is undefined where it does not fit.
    """
    if dtype == x.dtype:
        return x
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
    return x.like(emit(x.value, _LLVM[dtype]), dtype)


@_word(lambda x, dtype: np.asarray(x).view(dtype)[()])
def bitcast(x: Any, dtype: str) -> Any:
    """The bits of `x` read as another dtype of the same width."""
    if x.is_float == dtype.startswith("float"):
        return x.like(x.value, dtype)
    return x.like(x.builder.bitcast(x.value, _LLVM[dtype]), dtype)


def bits(x: Any) -> Any:
    """The bits of a float as a signed integer."""
    return bitcast(x, f"int{WIDTH[dtype_of(x)]}")


def floating(i: Any) -> Any:
    """The float whose bits are the integer `i`."""
    return bitcast(i, f"float{WIDTH[dtype_of(i)]}")


@_word(np.sqrt)
def sqrt(x: Any) -> Any:
    """Square root, correctly rounded."""
    return x.call("sqrt")


@_word(np.floor)
def floor(x: Any) -> Any:
    """Rounded down to an integer; the sign of zero is kept."""
    return x.call("floor")


@_word(np.ceil)
def ceil(x: Any) -> Any:
    """Rounded up to an integer; the sign of zero is kept."""
    return x.call("ceil")


@_word(np.trunc)
def trunc(x: Any) -> Any:
    """Rounded towards zero; the sign of zero is kept."""
    return x.call("trunc")


@_word(np.rint)
def rint(x: Any) -> Any:
    """Rounded to the nearest integer, ties to even; the sign of zero is kept."""
    if not x.on_gpu:
        return x.call("roundeven")
    integral = float(2 ** (23 if x.dtype == "float32" else 52))  # NVVM has no such intrinsic
    shift = copysign(x.lift(integral), x)
    return select(magnitude(x) < integral, copysign(x + shift - shift, x), x)


@_word(np.copysign)
def copysign(x: Any, y: Any) -> Any:
    """The magnitude of `x` with the sign of `y`."""
    x, y = _lifted(x, y)
    return x.call("copysign", y)


def magnitude(x: Any) -> Any:
    """A float without its sign."""
    return floating(bits(x) & (2 ** (WIDTH[dtype_of(x)] - 1) - 1))


@_word(np.maximum)
def larger(x: Any, y: Any) -> Any:
    """The larger of two floats: NaN if one is NaN, +0 is larger than -0."""
    x, y = _lifted(x, y)
    if not x.on_gpu:
        return x.call("maximum", y)
    zeros = floating(bits(x) & bits(y))
    number = select(x == y, zeros, select(x > y, x, y))
    return select(x != x, x, number)


@_word(np.minimum)
def smaller(x: Any, y: Any) -> Any:
    """The smaller of two floats: NaN if one is NaN, -0 is smaller than +0."""
    x, y = _lifted(x, y)
    if not x.on_gpu:
        return x.call("minimum", y)
    zeros = floating(bits(x) | bits(y))
    number = select(x == y, zeros, select(x < y, x, y))
    return select(x != x, x, number)


@_word(np.fmod)
def fmod(x: Any, y: Any) -> Any:
    """C's remainder of floats: exact, with the sign of `x`. Not vectorised: the C library computes it."""
    if not x.on_gpu:
        return x.like(x.builder.frem(x.value, x.lift(y).value))
    return x.external("__nv_fmodf" if x.dtype == "float32" else "__nv_fmod", y)  # NVVM's frem is not exact


def _numpy_quotient(a: Any, b: Any) -> Any:
    down = a // b
    return (down + ((a % b != 0) & ((a < 0) != (b < 0)))).astype(a.dtype)[()]


@_word(_numpy_quotient)
def quotient(a: Any, b: Any) -> Any:
    """Integer division towards zero; `b` must not be 0, nor -1 under the most negative `a`."""
    return a._binary(b, None, "sdiv", "udiv")


@_word(lambda table, index: np.asarray(table)[index])
def lookup(table: Sequence[float], index: Any) -> Any:
    """Element `index` (an int64 lane, in range) of a constant table of float64."""
    builder, module = index.builder, index.builder.module
    kind = ir.ArrayType(_LLVM["float64"], len(table))
    name = f"tracejit.table.{abs(hash(tuple(table))):x}"
    constant = module.globals.get(name)
    if constant is None:
        constant = ir.GlobalVariable(module, kind, name, addrspace=1 if index.on_gpu else 0)
        constant.initializer = ir.Constant(kind, list(table))
        constant.global_constant, constant.linkage = True, "internal"
    element = builder.gep(constant, [ir.Constant(ir.IntType(64), 0), index.value], inbounds=True)
    value = builder.load(element)
    value.set_metadata("invariant.load", module.add_metadata([]))
    return index.like(value, "float64")


def _type_named(name: str, arguments: Sequence[Any]) -> Any:
    return next(
        (a for a in arguments if str(a) == name), getattr(types, "boolean" if name == "bool" else name)
    )


def compiled(function: Callable[..., Any], returns: str | None = None) -> Callable[..., Any]:
    """`function`, over lanes, as something a Numba kernel can call (on CUDA's simulator: plain Python can).

    The result has the dtype `returns`, or that of the last argument.
    """

    @functools.wraps(function)
    def meaning(*arguments: Any) -> Any:
        with np.errstate(all="ignore"):
            return function(*arguments)

    if config.ENABLE_CUDASIM:
        return meaning

    def signature_of(arguments: Sequence[Any]) -> Any:
        names = [str(a) for a in arguments]
        if unknown := [name for name in names if name not in WIDTH]:
            raise TypeError(f"{function.__name__}: {unknown[0]} is not a dtype of lanes")
        result = returns or names[-1]

        def emit(context: Any, builder: ir.IRBuilder, signature: Any, values: Sequence[Any]) -> Any:
            lanes = [Lane(builder, value, name) for value, name in zip(values, names, strict=True)]
            lane = function(*lanes)
            if lane.dtype != result:
                raise TypeError(f"{function.__name__}{tuple(names)} gives {lane.dtype}, not {result}")
            return lane.value

        return _type_named(result, arguments)(*arguments), emit

    arity = len(inspect.signature(function).parameters)
    typed: Callable[..., Any] = {
        1: lambda typingctx, a: signature_of((a,)),
        2: lambda typingctx, a, b: signature_of((a, b)),
        3: lambda typingctx, a, b, c: signature_of((a, b, c)),
    }[arity]
    typed.__name__ = typed.__qualname__ = function.__name__
    typed.__doc__ = function.__doc__
    return intrinsic(typed)
