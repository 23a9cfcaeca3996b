"""Elementwise operators that select, convert or copy elements: `where`, `astype`, `copy`, `after`, ..."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from tracejit.errors import ArgumentError, DTypeError
from tracejit.ir.op import OPS, Trait, register
from tracejit.ir.types import ArrayType, is_floating
from tracejit.ir.view import View
from tracejit.ops.batching import BatchNode
from tracejit.ops.rules import (
    ALL,
    REAL_NUMBERS,
    check_array,
    check_count,
    check_dtype,
    check_one_dtype,
    elementwise_gradient,
    shape_and_device,
)
from tracejit.ops.symbolic import Operator, Sym, SymNode, emit

ELEMENTWISE = frozenset({Trait.ELEMENTWISE, Trait.EXACT})


def _infer_where(*types: ArrayType) -> ArrayType:
    check_count("where", types, 3)
    condition, *choices = types
    if condition.dtype != bool:
        raise DTypeError(f"where needs a bool condition, got {condition}; compare it, e.g. with not_equal")
    check_one_dtype("where", choices)
    shape, device = shape_and_device("where", types)
    return ArrayType(shape, choices[0].dtype, device)


def _infer_astype(*types: ArrayType, dtype: np.dtype) -> ArrayType:
    check_count("astype", types, 1)
    check_dtype("astype", dtype, ALL)
    if types[0].dtype.kind == "c" and dtype.kind not in "cb":
        raise DTypeError(
            f"astype of {types[0]} to {dtype}: imaginary parts would be lost; take real(x), imag(x) or abs(x)"
        )
    return ArrayType(types[0].shape, dtype, types[0].device)


def _convert(x: np.ndarray, *, dtype: np.dtype) -> np.ndarray:
    """Convert `x` to another dtype. Floats outside the range of an integer dtype saturate and nan becomes 0;
    NumPy's result would depend on the processor.
    """
    x = np.asarray(x)
    if is_floating(x.dtype) and dtype.kind in "iu":
        limits = np.iinfo(dtype)
        fits = (x >= float(limits.min)) & (x < 2.0 ** (limits.bits - (dtype.kind == "i")))
        if not fits.all():
            converted = np.where(fits, x, 0).astype(dtype)
            least, zero, greatest = (dtype.type(n) for n in (limits.min, 0, limits.max))
            nearest = np.where(x > 0, greatest, np.where(x < 0, least, zero))
            return np.where(fits, converted, nearest)
    return x.astype(dtype)


def _astype_gradient(node: SymNode, cotangents: Sequence[Sym]) -> list[Sym | None]:
    (x,), (ct,) = node.inputs, cotangents
    if x.on_host or not x.is_floating:
        return [None]
    if ct.dtype.kind == "c" and is_floating(x.dtype):
        ct = emit(OPS["real"], ct)
    return [ct.astype(x.dtype)]


def _infer_bitcast(*types: ArrayType, dtype: np.dtype) -> ArrayType:
    check_count("bitcast", types, 1)
    check_dtype("bitcast", dtype, REAL_NUMBERS)
    check_dtype("bitcast", types[0].dtype, REAL_NUMBERS)
    if dtype.itemsize != types[0].dtype.itemsize:
        raise DTypeError(f"bitcast of {types[0]} to {dtype}, which has another size")
    return ArrayType(types[0].shape, dtype, types[0].device)


def _refuse_bits(node: SymNode, cotangents: Sequence[Sym]) -> list[Sym | None]:
    raise ArgumentError("the bits of numbers have no gradient (view); put tj.stop_gradient around them")


def _infer_copy(*types: ArrayType) -> ArrayType:
    check_count("copy", types, 1)
    check_array("copy", types[0])
    return types[0]


def _infer_operand(name: str, *types: ArrayType) -> ArrayType:
    check_count(name, types, 1)
    return types[0]


def _infer_without_gradient(*types: ArrayType, reason: str) -> ArrayType:
    check_count("without_gradient", types, 1)
    return types[0]


def _refuse(node: SymNode, cotangents: Sequence[Sym]) -> list[Sym | None]:
    raise ArgumentError(f"{node.attrs['reason']}; put tj.stop_gradient around what has no gradient")


def _infer_after(*types: ArrayType) -> ArrayType:
    check_count("after", types, 2)
    mark, x = types
    if mark.dtype != bool:
        raise DTypeError(f"after needs a bool mark, got {mark}; compare it, e.g. with equal")
    shape, device = shape_and_device("after", types)
    return ArrayType(shape, x.dtype, device)


def _after_batch(node: BatchNode) -> Sym:
    """Batching of `after`: an unmapped value stays unmapped, and waits for the first example's mark."""
    (mark, x), (mark_mapped, x_mapped) = node.inputs, node.mapped
    if x_mapped:
        return after(*node.mapped_operands())
    return after(
        mark.view(View(0, mark.shape[1:], mark.identity_view().strides[1:])) if mark_mapped else mark, x
    )


where: Operator = Operator(
    "where",
    _infer_where,
    np.where,
    elementwise_gradient(
        None,
        lambda ct, condition, x1, x2, y: where(condition, ct, 0),
        lambda ct, condition, x1, x2, y: where(condition, 0, ct),
    ),
    "where",
    ELEMENTWISE,
    "The second operand where the condition is true, else the third.",
    admits=ALL,
    promotion="choice",
)
register(where)

astype = Operator(
    "astype",
    _infer_astype,
    _convert,
    _astype_gradient,
    "astype",
    ELEMENTWISE | {Trait.TYPED},
    "The operand converted to another dtype, as by NumPy. A float outside the range of an integer dtype "
    "becomes the nearest representable integer, nan becomes 0.",
    admits=ALL,
)
register(astype)

bitcast = Operator(
    "bitcast",
    _infer_bitcast,
    lambda x, *, dtype: np.asarray(x).view(dtype),
    _refuse_bits,
    "bitcast",
    ELEMENTWISE | {Trait.TYPED},
    "The bits of the operand, reinterpreted as another real dtype of the same size.",
    admits=REAL_NUMBERS,
)
register(bitcast)

copy = Operator(
    "copy",
    _infer_copy,
    np.copy,
    lambda node, cotangents: list(cotangents),
    "copy",
    ELEMENTWISE,
    "The same elements in a new buffer.",
    admits=ALL,
)
register(copy)

rounded = Operator(
    "rounded",
    partial(_infer_operand, "rounded"),
    np.copy,
    lambda node, cotangents: list(cotangents),
    "copy",
    ELEMENTWISE,
    "The operand, rounded to its dtype: no pass combines the operations before it with those after it.",
    admits=ALL,
)
register(rounded)

stop_gradient = Operator(
    "stop_gradient",
    partial(_infer_operand, "stop_gradient"),
    np.copy,
    None,
    "copy",
    ELEMENTWISE,
    "The operand, through which no cotangent is propagated.",
    admits=ALL,
)
register(stop_gradient)

without_gradient = Operator(
    "without_gradient",
    _infer_without_gradient,
    lambda x, *, reason: np.copy(x),
    _refuse,
    "copy",
    ELEMENTWISE,
    "The operand; differentiating it raises an error that states the given reason.",
    admits=ALL,
)
register(without_gradient)

after: Operator = Operator(
    "after",
    _infer_after,
    lambda mark, x: np.broadcast_to(x, np.broadcast_shapes(np.shape(mark), np.shape(x))).copy(),
    elementwise_gradient(None, lambda ct, mark, x, y: ct),
    "after",
    ELEMENTWISE,
    "The second operand, as a new value that is not computed before the first operand, a bool.",
    admits=ALL,
    batch=_after_batch,
    maps=lambda mapped: mapped[1],
)
register(after)
