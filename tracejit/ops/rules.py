"""Helpers of all declarations: groups of dtypes, checks with errors that name the cause, and factories.

The factories `unary`, `binary` and `comparison` make an elementwise operator one readable line:

    sin = unary("sin", np.sin, FLOATING, "Sine, in radians.", lambda ct, x, y: ct * cos(x), EXPENSIVE)

The gradient's lambdas take the cotangent of the output, the inputs and the output; binary operators have a
pair of them, one for each input. They are called for floating array inputs only: numbers and integers have
no cotangent.

Elementwise typing is strict, because the frontend has already promoted and broadcast: array operands have one
shape and one device, all operands one dtype among those the operator admits; numbers on the host mix in.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tracejit.errors import ArgumentError, AxisError, DeviceError, DTypeError, ShapeError
from tracejit.ir.op import Trait, register
from tracejit.ir.types import DTYPES, HALVES, HOST, ArrayType, Device, is_floating
from tracejit.ops.symbolic import Operator, Sym, SymNode

ALL = frozenset(DTYPES)
BOOL = frozenset({np.dtype("bool")})
INTEGERS = frozenset(d for d in DTYPES if d.kind in "iu")
FLOATING = frozenset(d for d in DTYPES if is_floating(d))
COMPLEX = frozenset(d for d in DTYPES if d.kind == "c")
INEXACT = FLOATING | COMPLEX
WHOLE = FLOATING - HALVES
"""The dtypes of the parts of complex numbers."""
FACTORABLE = WHOLE | COMPLEX
"""The dtypes of LAPACK and the Fourier transforms."""
NUMERIC = INTEGERS | INEXACT
REAL = ALL - COMPLEX
REAL_NUMBERS = INTEGERS | FLOATING

INT64 = np.dtype("int64")
UINT64 = np.dtype("uint64")

GradientRule = Callable[..., Sym | None]
Result = np.dtype | Callable[[np.dtype], np.dtype] | None


def text(types: Sequence[ArrayType]) -> str:
    """Operand types for error messages."""
    return ", ".join(map(str, types)) or "nothing"


def check_count(name: str, types: Sequence[ArrayType], count: int) -> None:
    """Check for exactly `count` operands."""
    if len(types) != count:
        raise ArgumentError(
            f"{name} takes {count} operand{'s' * (count != 1)}, got {len(types)}: {text(types)}"
        )


def check_array(name: str, x: ArrayType) -> None:
    """Check for an array, not a host number."""
    if x.on_host:
        raise DeviceError(f"{name} needs an array, got the number {x}; make it an array with full")


def check_dtype(name: str, dtype: np.dtype, admits: frozenset[np.dtype]) -> None:
    """Check for an admitted dtype."""
    if dtype not in admits:
        expected = ", ".join(str(d) for d in DTYPES if d in admits)
        raise DTypeError(
            f"{name} is not defined for {dtype}, only for {expected}; cast the operand with astype"
        )


def check_axis(name: str, x: ArrayType, axis: int) -> None:
    """Check that `axis` is one of the array's."""
    if not 0 <= axis < x.ndim:
        raise AxisError(f"{name} along axis {axis} of {x}: expected an axis from 0 to {x.ndim - 1}")


def check_along(name: str, types: Sequence[ArrayType], axis: int, admits: frozenset[np.dtype]) -> ArrayType:
    """Check the operand of an operator along one axis, and return it."""
    check_count(name, types, 1)
    (x,) = types
    check_array(name, x)
    check_dtype(name, x.dtype, admits)
    check_axis(name, x, axis)
    return x


def check_axes(name: str, x: ArrayType, axes: Sequence[int]) -> None:
    """Check for sorted, distinct, non-negative axes of `x`."""
    if list(axes) != sorted(set(axes)) or any(not 0 <= axis < x.ndim for axis in axes):
        raise AxisError(
            f"{name} over axes {tuple(axes)} of {x}: expected sorted, distinct axes from 0 to {x.ndim - 1}"
        )


def together(name: str, types: Sequence[ArrayType]) -> tuple[tuple[int, ...], Device]:
    """Shape and device of an elementwise result: those of the array operands, or a number's."""
    arrays = [t for t in types if not t.on_host]
    if not arrays:
        return (), HOST
    first = arrays[0]
    for other in arrays[1:]:
        if other.shape != first.shape:
            raise ShapeError(
                f"{name} got arrays of different shapes: {text(types)}; broadcast them to one shape first"
            )
    check_one_device(name, arrays)
    return first.shape, first.device


def check_one_device(name: str, types: Sequence[ArrayType]) -> None:
    """Check that all arrays lie on one device."""
    first = types[0].device
    for other in types[1:]:
        if other.device is not first and other.device != first:
            raise DeviceError(
                f"{name} got arrays on {first} and {other.device}: {text(types)}; "
                f'move one of them, as in x.to("{first}")'
            )


def check_one_dtype(name: str, types: Sequence[ArrayType]) -> None:
    """Check that all operands have one dtype."""
    if any(t.dtype != types[0].dtype for t in types):
        raise DTypeError(f"{name} needs operands of one dtype, got {text(types)}; cast them with astype")


def elementwise_rule(
    name: str, arity: int, admits: frozenset[np.dtype], result: Result = None
) -> Callable[..., ArrayType]:
    """The typing rule of an elementwise operator; `result` is its dtype if not that of the operands, or what
    it is for each dtype of these.
    """

    def result_of(dtype: np.dtype) -> np.dtype:
        return result(dtype) if callable(result) else result or dtype

    def infer(*types: ArrayType) -> ArrayType:
        if 0 < len(types) == arity < 3:  # the common case, on the path of every eager operation
            first, last = types[0], types[-1]
            mixed = first.device is HOST or last.device is HOST  # a number and an array
            if (
                first is last or (mixed and first.dtype == last.dtype) or first == last
            ) and first.dtype in admits:
                kind = last if first.device is HOST else first
                return kind if result is None else ArrayType(kind.shape, result_of(kind.dtype), kind.device)
        check_count(name, types, arity)
        check_one_dtype(name, types)
        check_dtype(name, types[0].dtype, admits)
        shape, device = together(name, types)
        return ArrayType(shape, result_of(types[0].dtype), device)

    return infer


def elementwise_gradient(*rules: GradientRule | None) -> Callable[..., list[Sym | None]]:
    """`Op.gradient` from one rule ``(ct, *inputs, output) -> Sym`` for each input; None: no dependence."""

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
    result: Result = None,
    kernel: str | None = None,
    example: str = "",
) -> Operator:
    """Declare and register a public elementwise operator. Promotion follows from the dtypes it admits."""
    promotion = "float" if admits in (FLOATING, WHOLE, INEXACT) else "bool" if admits == BOOL else "same"
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
    """Declare an elementwise function of one operand; ``gradient(ct, x, y)``."""
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
    """Declare an elementwise function of two operands; two rules ``(ct, x1, x2, y)``."""
    return elementwise(name, 2, evaluate, admits, doc, gradient, *traits, **options)


def comparison(
    name: str,
    evaluate: Callable[..., Any],
    doc: str,
    *traits: Trait,
    admits: frozenset[np.dtype] = REAL,
    example: str = "",
) -> Operator:
    """Declare an elementwise comparison of two operands, with a bool result."""
    truth = np.dtype("bool")
    return binary(
        name, evaluate, admits, doc, (None, None), Trait.EXACT, *traits, result=truth, example=example
    )
