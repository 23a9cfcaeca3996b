"""The typed values on which scalar functions operate.

A scalar function such as `exp` is a Python function of *typed values*. When a kernel is compiled, each is
a `TypedValue`, an LLVM value under construction, and running the function emits its instructions directly
into the kernel. When Python calls the function, it is a NumPy scalar (or array). So each function is written
once for CPUs, GPUs and NumPy, with Python's operators and `tracejit.kernels.compiler.intrinsics`:

    def softsign(x):
        return x / (1.0 + magnitude(x))

    FUNCTION = compiled(softsign)               # a Numba kernel can call this

Invariants:

- There is no promotion and no implicit conversion: both operands of an operator have the same dtype; a Python
  number adopts the dtype of the other operand. Integers wrap; `>>` is arithmetic for signed integers.
- Half-precision numbers have no operators: functions compute in float32 (`tracejit.kernels.compiler.half`).
- There are no exceptions and no fast-math flags: each operator is exactly the IEEE operation.
- There are no branches, so that LLVM can vectorise loops with any function
  (`tracejit.kernels.compiler.outline` moves a rare and costly case out of line).

Numba's front end does not process the body, so compiling a function into a kernel takes about a millisecond.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from tracejit.kernels.compiler.code import on_gpu
from tracejit.kernels.compiler.half import HALVES

WIDTH = {
    "bool": 1,
    **{f"int{n}": n for n in (8, 16, 32, 64)},
    **{f"uint{n}": n for n in (8, 16, 32, 64)},
    **dict.fromkeys(HALVES, 16),
    "float32": 32,
    "float64": 64,
}
"""The width in bits of each dtype of a typed value (a bool is one bit)."""

PART_DTYPES = {"complex64": "float32", "complex128": "float64"}
"""The dtype of the real and the imaginary part of each complex dtype."""

DTYPES = (*WIDTH, *PART_DTYPES)
"""The dtypes of typed values."""

LLVM_TYPE = {
    "float32": ir.FloatType(),
    "float64": ir.DoubleType(),
    **{name: ir.IntType(bits) for name, bits in WIDTH.items() if name not in ("float32", "float64")},
}


class TypedValue:
    """One typed LLVM value under construction, with Python's operators."""

    __slots__ = ("builder", "dtype", "value")

    def __init__(self, builder: ir.IRBuilder, value: Any, dtype: str):
        self.builder, self.value, self.dtype = builder, value, dtype

    def __repr__(self) -> str:
        return f"<TypedValue {self.dtype}>"

    @property
    def is_float(self) -> bool:
        return self.dtype.startswith("float")

    @property
    def is_signed(self) -> bool:
        return self.dtype.startswith("int")

    @property
    def on_gpu(self) -> bool:
        return on_gpu(self.builder)

    def like(self, value: Any, dtype: str | None = None) -> TypedValue:
        """Return another value in the same kernel."""
        return TypedValue(self.builder, value, dtype or self.dtype)

    def lift(self, other: Any) -> TypedValue:
        """Convert `other`, a Python number or a value of this dtype, to a value of this dtype."""
        if isinstance(other, TypedValue | Pair):
            if other.dtype != self.dtype:
                raise TypeError(f"operands of different dtypes: {self.dtype} and {other.dtype}")
            return other
        return self.like(ir.Constant(LLVM_TYPE[self.dtype], other))

    def call(self, name: str, *others: Any) -> TypedValue:
        """Call LLVM's intrinsic ``llvm.<name>`` on values of this dtype; the result has this dtype."""
        return self.external(f"llvm.{name}.{'f' if self.is_float else 'i'}{WIDTH[self.dtype]}", *others)

    def external(self, name: str, *others: Any) -> TypedValue:
        """Call an external function on values of this dtype; the result has this dtype."""
        arguments = [self.value, *(self.lift(o).value for o in others)]
        kind, module = LLVM_TYPE[self.dtype], self.builder.module
        function = module.globals.get(name)
        if function is None:
            function = ir.Function(module, ir.FunctionType(kind, [kind] * len(arguments)), name)
        return self.like(self.builder.call(function, arguments))

    def _binary(
        self, other: Any, floating: str | None, signed: str, unsigned: str | None = None
    ) -> TypedValue:
        name = floating if self.is_float else signed if self.is_signed else unsigned or signed
        if name is None:
            raise TypeError(f"not defined for {self.dtype}")
        return self.like(getattr(self.builder, name)(self.value, self.lift(other).value))

    def _compare(self, other: Any, sign: str) -> TypedValue:
        right = self.lift(other).value
        if self.is_float:
            compare = self.builder.fcmp_unordered if sign == "!=" else self.builder.fcmp_ordered
        else:
            compare = self.builder.icmp_signed if self.is_signed else self.builder.icmp_unsigned
        return self.like(compare(sign, self.value, right), "bool")

    def __add__(self, other: Any) -> TypedValue:
        return self._binary(other, "fadd", "add")

    def __sub__(self, other: Any) -> TypedValue:
        return self._binary(other, "fsub", "sub")

    def __mul__(self, other: Any) -> TypedValue:
        return self._binary(other, "fmul", "mul")

    def __truediv__(self, other: Any) -> TypedValue:
        if not self.is_float:
            raise TypeError(f"/ is not defined for {self.dtype}")
        return self._binary(other, "fdiv", "fdiv")

    def __radd__(self, other: Any) -> TypedValue:
        return self.lift(other) + self

    def __rsub__(self, other: Any) -> TypedValue:
        return self.lift(other) - self

    def __rmul__(self, other: Any) -> TypedValue:
        return self.lift(other) * self

    def __rtruediv__(self, other: Any) -> TypedValue:
        return self.lift(other) / self

    def __neg__(self) -> TypedValue:
        if not self.is_float:
            return self.lift(0) - self
        return self.like(self.builder.fneg(self.value))

    def __and__(self, other: Any) -> TypedValue:
        return self._binary(other, None, "and_")

    def __or__(self, other: Any) -> TypedValue:
        return self._binary(other, None, "or_")

    def __xor__(self, other: Any) -> TypedValue:
        return self._binary(other, None, "xor")

    def __invert__(self) -> TypedValue:
        return self ^ (1 if self.dtype == "bool" else -1)

    def __lshift__(self, other: Any) -> TypedValue:
        return self._binary(other, None, "shl")

    def __rshift__(self, other: Any) -> TypedValue:
        return self._binary(other, None, "ashr", "lshr")

    def __lt__(self, other: Any) -> TypedValue:
        return self._compare(other, "<")

    def __le__(self, other: Any) -> TypedValue:
        return self._compare(other, "<=")

    def __gt__(self, other: Any) -> TypedValue:
        return self._compare(other, ">")

    def __ge__(self, other: Any) -> TypedValue:
        return self._compare(other, ">=")

    def __eq__(self, other):
        return self._compare(other, "==")

    def __ne__(self, other):
        return self._compare(other, "!=")


class Pair:
    """A complex value under construction: its real and imaginary part, with Python's operators."""

    __slots__ = ("imag", "real")

    def __init__(self, real: TypedValue, imag: TypedValue):
        self.real, self.imag = real, imag

    def __repr__(self) -> str:
        return f"<Pair {self.dtype}>"

    @property
    def dtype(self) -> str:
        return next(name for name, part in PART_DTYPES.items() if part == self.real.dtype)

    @property
    def value(self) -> Any:
        """The real and imaginary part as one LLVM struct."""
        builder, kind = self.real.builder, self.real.value.type
        struct = ir.Constant(ir.LiteralStructType([kind, kind]), ir.Undefined)
        return builder.insert_value(builder.insert_value(struct, self.real.value, 0), self.imag.value, 1)

    def lift(self, other: Any) -> Pair:
        """Convert `other`, a Python number or a pair of this dtype, to a pair of this dtype."""
        if isinstance(other, Pair):
            if other.dtype != self.dtype:
                raise TypeError(f"operands of different dtypes: {self.dtype} and {other.dtype}")
            return other
        number = complex(other)
        return Pair(self.real.lift(number.real), self.real.lift(number.imag))

    def __add__(self, other: Any) -> Pair:
        y = self.lift(other)
        return Pair(self.real + y.real, self.imag + y.imag)

    def __sub__(self, other: Any) -> Pair:
        y = self.lift(other)
        return Pair(self.real - y.real, self.imag - y.imag)

    def __mul__(self, other: Any) -> Pair:
        y = self.lift(other)
        return Pair(
            self.real * y.real - self.imag * y.imag,
            self.real * y.imag + self.imag * y.real,
        )

    def __neg__(self) -> Pair:
        return Pair(-self.real, -self.imag)

    def __eq__(self, other):
        y = self.lift(other)
        return (self.real == y.real) & (self.imag == y.imag)

    def __ne__(self, other):
        y = self.lift(other)
        return (self.real != y.real) | (self.imag != y.imag)


class Half:
    """A half-precision number, represented by its bits.

    It can be moved, selected and converted; it has no arithmetic.
    """

    __slots__ = ("builder", "dtype", "value")

    def __init__(self, builder: ir.IRBuilder, value: Any, dtype: str):
        self.builder, self.value, self.dtype = builder, value, dtype

    def __repr__(self) -> str:
        return f"<Half {self.dtype}>"

    def lift(self, other: Any) -> Half:
        """Return `other`, which must be a half-precision number of this dtype."""
        if not isinstance(other, Half) or other.dtype != self.dtype:
            raise TypeError(f"expected {self.dtype}, got {other!r}")
        return other


def typed_value(builder: ir.IRBuilder, value: Any, dtype: str) -> TypedValue | Pair | Half:
    """Wrap an LLVM value of a dtype as a typed value."""
    if dtype in HALVES:
        return Half(builder, value, dtype)
    if dtype not in PART_DTYPES:
        return TypedValue(builder, value, dtype)
    return Pair(*(TypedValue(builder, builder.extract_value(value, n), PART_DTYPES[dtype]) for n in (0, 1)))


TYPED_VALUES = (TypedValue, Pair, Half)


def dtype_of(x: Any) -> str:
    """The name of a typed value's dtype."""
    return x.dtype if isinstance(x, TYPED_VALUES) else np.dtype(x.dtype).name


def is_float(x: Any) -> bool:
    """Whether `x` is float32 or float64."""
    return dtype_of(x) in ("float32", "float64")


def is_half(x: Any) -> bool:
    """Whether `x` is float16 or bfloat16."""
    return dtype_of(x) in HALVES


def is_complex(x: Any) -> bool:
    """Whether `x` is complex64 or complex128."""
    return dtype_of(x) in PART_DTYPES


def typed_intrinsic(on_scalars: Callable[..., Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Declare an intrinsic: `on_scalars` computes NumPy values, the decorated function emits code for typed
    values.
    """

    def declare(emit: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(emit)
        def dispatch(*arguments: Any) -> Any:
            typed = next((a for a in arguments if isinstance(a, TYPED_VALUES)), None)
            return on_scalars(*arguments) if typed is None else emit(*arguments)

        return dispatch

    return declare


def _type_named(name: str, arguments: Sequence[Any]) -> Any:
    """Return the Numba type named `name`, preferably the type of an argument."""
    default_type = HALVES.get(name) or getattr(types, "boolean" if name == "bool" else name)
    return next((a for a in arguments if str(a) == name), default_type)


def result_dtype(returns: str | Callable[[str], str] | None, last: str) -> str:
    """The dtype of the result of a function whose last argument has the dtype `last`; see `compiled`."""
    return returns(last) if callable(returns) else returns or last


def compiled(
    function: Callable[..., Any], returns: str | Callable[[str], str] | None = None
) -> Callable[..., Any]:
    """Declare `function`, which operates on typed values, as a function that Numba kernels can call.

    The attribute `on_scalars` of the result computes the function on NumPy scalars. The function returns the
    dtype `returns`, or ``returns(dtype of the last argument)``, or by default the dtype of the last argument.
    """

    @functools.wraps(function)
    def on_scalars(*arguments: Any) -> Any:
        with np.errstate(all="ignore"):
            return function(*arguments)

    def signature_of(arguments: Sequence[Any]) -> Any:
        names = [str(a) for a in arguments]
        if unknown := [name for name in names if name not in DTYPES]:
            raise TypeError(f"{function.__name__}: {unknown[0]} is not a dtype of typed values")
        result = result_dtype(returns, names[-1])

        def emit(context: Any, builder: ir.IRBuilder, signature: Any, values: Sequence[Any]) -> Any:
            operands = [typed_value(builder, value, name) for value, name in zip(values, names, strict=True)]
            output = function(*operands)
            if output.dtype != result:
                raise TypeError(f"{function.__name__}{tuple(names)} returns {output.dtype}, not {result}")
            return output.value

        return _type_named(result, arguments)(*arguments), emit

    arity = len(inspect.signature(function).parameters)
    typed: Callable[..., Any] = {
        1: lambda typingctx, a: signature_of((a,)),
        2: lambda typingctx, a, b: signature_of((a, b)),
        3: lambda typingctx, a, b, c: signature_of((a, b, c)),
    }[arity]
    typed.__name__ = typed.__qualname__ = function.__name__
    typed.__doc__ = function.__doc__
    callable_in_kernels = intrinsic(typed)
    callable_in_kernels.on_scalars = on_scalars
    return callable_in_kernels
