"""Helpers for operator declarations: groups of dtypes, checks whose errors name the cause, and factories.

The factories `unary`, `binary` and `comparison` declare an elementwise operator in one line:

    sin = unary("sin", np.sin, FLOATING, "Sine, in radians.", lambda ct, x, y: ct * cos(x), EXPENSIVE)

A gradient function takes the cotangent of the output, the inputs and the output; binary operators have a pair
of such functions, one for each input. They are called for floating-point array inputs only, because host
numbers and integers have no cotangent.

Elementwise typing is strict, because the frontend has already promoted and broadcast the operands: all arrays
have the same shape and device, and all operands have the same dtype, which the operator admits. Host numbers
combine with arrays of any shape and device.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tracejit.errors import ArgumentError, AxisError, DeviceError, DTypeError, ShapeError
from tracejit.ir.op import Trait, UsageExample, register
from tracejit.ir.types import DTYPES, HALVES, HOST, ArrayType, Device, is_floating
from tracejit.ops.symbolic import Operator, Sym, SymNode

ALL = frozenset(DTYPES)
BOOL = frozenset({np.dtype("bool")})
INTEGERS = frozenset(d for d in DTYPES if d.kind in "iu")
FLOATING = frozenset(d for d in DTYPES if is_floating(d))
COMPLEX = frozenset(d for d in DTYPES if d.kind == "c")
INEXACT = FLOATING | COMPLEX
FULL_PRECISION = FLOATING - HALVES
"""The floating dtypes of at least 32 bits: the dtypes of real and imaginary parts of complex numbers."""
FACTORABLE = FULL_PRECISION | COMPLEX
"""The dtypes that LAPACK and the Fourier transforms support."""
NUMERIC = INTEGERS | INEXACT
REAL = ALL - COMPLEX
REAL_NUMBERS = INTEGERS | FLOATING

INT64 = np.dtype("int64")
UINT64 = np.dtype("uint64")

GradientRule = Callable[..., Sym | None]
ResultDtype = np.dtype | Callable[[np.dtype], np.dtype] | None


def describe_types(types: Sequence[ArrayType]) -> str:
    """Format operand types for error messages."""
    return ", ".join(map(str, types)) or "nothing"


def check_count(name: str, types: Sequence[ArrayType], count: int) -> None:
    """Check that there are exactly `count` operands; raises ArgumentError."""
    if len(types) != count:
        raise ArgumentError(
            f"{name} takes {count} operand{'s' * (count != 1)}, got {len(types)}: {describe_types(types)}"
        )


def check_array(name: str, x: ArrayType) -> None:
    """Check that `x` is an array, not a host number; raises DeviceError."""
    if x.on_host:
        raise DeviceError(f"{name} needs an array, got the number {x}; make it an array with full")


def check_dtype(name: str, dtype: np.dtype, admits: frozenset[np.dtype]) -> None:
    """Check that `admits` contains `dtype`; raises DTypeError."""
    if dtype not in admits:
        expected = ", ".join(str(d) for d in DTYPES if d in admits)
        raise DTypeError(
            f"{name} is not defined for {dtype}, only for {expected}; cast the operand with astype"
        )


def check_axis(name: str, x: ArrayType, axis: int) -> None:
    """Check that `axis` is an axis of `x`; raises AxisError."""
    if not 0 <= axis < x.ndim:
        raise AxisError(f"{name} along axis {axis} of {x}: expected an axis from 0 to {x.ndim - 1}")


def check_along(name: str, types: Sequence[ArrayType], axis: int, admits: frozenset[np.dtype]) -> ArrayType:
    """Check the single operand of an operator along one axis, and return its type."""
    check_count(name, types, 1)
    (x,) = types
    check_array(name, x)
    check_dtype(name, x.dtype, admits)
    check_axis(name, x, axis)
    return x


def check_axes(name: str, x: ArrayType, axes: Sequence[int]) -> None:
    """Check that `axes` are sorted, distinct axes of `x`; raises AxisError."""
    if list(axes) != sorted(set(axes)) or any(not 0 <= axis < x.ndim for axis in axes):
        raise AxisError(
            f"{name} over axes {tuple(axes)} of {x}: expected sorted, distinct axes from 0 to {x.ndim - 1}"
        )


def shape_and_device(name: str, types: Sequence[ArrayType]) -> tuple[tuple[int, ...], Device]:
    """The shape and device of an elementwise result: those of the array operands, or of a host number.

    Raises ShapeError or DeviceError if array operands differ.
    """
    arrays = [t for t in types if not t.on_host]
    if not arrays:
        return (), HOST
    first = arrays[0]
    for other in arrays[1:]:
        if other.shape != first.shape:
            raise ShapeError(
                f"{name} got arrays of different shapes: {describe_types(types)}; "
                "broadcast them to one shape first"
            )
    check_one_device(name, arrays)
    return first.shape, first.device


def check_one_device(name: str, types: Sequence[ArrayType]) -> None:
    """Check that all arrays are on one device; raises DeviceError."""
    first = types[0].device
    for other in types[1:]:
        if other.device is not first and other.device != first:
            raise DeviceError(
                f"{name} got arrays on {first} and {other.device}: {describe_types(types)}; "
                f'move one of them, as in x.to("{first}")'
            )


def check_one_dtype(name: str, types: Sequence[ArrayType]) -> None:
    """Check that all operands have the same dtype; raises DTypeError."""
    if any(t.dtype != types[0].dtype for t in types):
        raise DTypeError(
            f"{name} needs operands of one dtype, got {describe_types(types)}; cast them with astype"
        )


def elementwise_rule(
    name: str, arity: int, admits: frozenset[np.dtype], result: ResultDtype = None
) -> Callable[..., ArrayType]:
    """Return the typing rule of an elementwise operator.

    result: the dtype of the result, a function from the dtype of the operands to it, or None if both are
    equal.
    """

    def result_of(dtype: np.dtype) -> np.dtype:
        return result(dtype) if callable(result) else result or dtype

    def infer(*types: ArrayType) -> ArrayType:
        if 0 < len(types) == arity < 3:  # fast path: runs for every eager operation
            first, last = types[0], types[-1]
            one_on_host = first.device is HOST or last.device is HOST  # a number and an array
            if (
                first is last or (one_on_host and first.dtype == last.dtype) or first == last
            ) and first.dtype in admits:
                type = last if first.device is HOST else first
                return type if result is None else ArrayType(type.shape, result_of(type.dtype), type.device)
        check_count(name, types, arity)
        check_one_dtype(name, types)
        check_dtype(name, types[0].dtype, admits)
        shape, device = shape_and_device(name, types)
        return ArrayType(shape, result_of(types[0].dtype), device)

    return infer


def elementwise_gradient(*rules: GradientRule | None) -> Callable[..., list[Sym | None]]:
    """Return an `Op.gradient` that applies one rule ``(ct, *inputs, output) -> Sym`` for each input.

    A rule of None means that the result does not depend on the input.
    """

    def gradient(node: SymNode, cotangents: Sequence[Sym]) -> list[Sym | None]:
        (ct,) = cotangents
        return [
            None if rule is None or x.on_host or not x.is_floating else rule(ct, *node.inputs, node.output)
            for x, rule in zip(node.inputs, rules, strict=True)
        ]

    return gradient


def elementwise(
    name: str,
    arity: int,
    evaluate: Callable[..., Any],
    admits: frozenset[np.dtype],
    doc: str,
    rules: Sequence[GradientRule | None],
    *traits: Trait,
    result: ResultDtype = None,
    kernel: str | None = None,
    example: UsageExample | None = None,
) -> Operator:
    """Declare and register a public elementwise operator. Its promotion follows from the admitted dtypes.

    rules: the gradient rule of each operand, as for `elementwise_gradient`.
    result: the dtype of the result, as for `elementwise_rule`.
    kernel: the name of its scalar function, if it is not `name`.
    """
    promotion = (
        "float" if admits in (FLOATING, FULL_PRECISION, INEXACT) else "bool" if admits == BOOL else "same"
    )
    op = Operator(
        name,
        elementwise_rule(name, arity, admits, result),
        evaluate,
        elementwise_gradient(*rules) if any(rules) else None,
        kernel or name,
        frozenset({Trait.ELEMENTWISE, *traits}),
        doc,
        arity=arity,
        admits=admits,
        promotion=promotion,
        example=example,
    )
    register(op)
    return op


def unary(
    name: str,
    evaluate: Callable[..., Any],
    admits: frozenset[np.dtype],
    doc: str,
    gradient: GradientRule | None,
    *traits: Trait,
    **options: Any,
) -> Operator:
    """Declare an elementwise function of one operand; its gradient rule is ``gradient(ct, x, y)``."""
    return elementwise(name, 1, evaluate, admits, doc, (gradient,), *traits, **options)


def binary(
    name: str,
    evaluate: Callable[..., Any],
    admits: frozenset[np.dtype],
    doc: str,
    gradient: tuple[GradientRule | None, GradientRule | None],
    *traits: Trait,
    **options: Any,
) -> Operator:
    """Declare an elementwise function of two operands; `gradient` is a pair of rules ``(ct, x1, x2, y)``."""
    return elementwise(name, 2, evaluate, admits, doc, gradient, *traits, **options)


def comparison(
    name: str,
    evaluate: Callable[..., Any],
    doc: str,
    *traits: Trait,
    admits: frozenset[np.dtype] = REAL,
    example: UsageExample | None = None,
) -> Operator:
    """Declare an elementwise comparison of two operands, whose result is bool."""
    bool_dtype = np.dtype("bool")
    return binary(
        name, evaluate, admits, doc, (None, None), Trait.EXACT, *traits, result=bool_dtype, example=example
    )
