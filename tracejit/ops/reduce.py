"""Reductions, their positions (`argmax`, `argmin`) and `cumulative_sum`.

Reductions take `axes` (sorted; the reduced dimensions vanish; without axes the result is the operand) and
`pieces`. With pieces = n > 0 the reduced elements, in C order over the reduced axes, are cut into n runs of
equal length ceil(R / n), the last ones shorter or empty, and the output has the shape kept + (n,): partial
results, which a second reduction combines. A rewrite introduces them to split long reductions, after
differentiation. The kernel of a reduction is the scalar function that combines two elements.

>>> sum.evaluate(np.arange(7), axes=(0,), pieces=3)
array([ 3, 12,  6])
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tracejit.errors import ArgumentError, AxisError, ShapeError
from tracejit.ir.op import Trait, register
from tracejit.ir.types import ArrayType
from tracejit.ops.arithmetic import equal
from tracejit.ops.batching import shifting
from tracejit.ops.movement import update
from tracejit.ops.rules import (
    BOOL,
    INT64,
    NUMERIC,
    REAL,
    REAL_NUMBERS,
    check_array,
    check_axes,
    check_count,
    check_dtype,
)
from tracejit.ops.select import where
from tracejit.ops.symbolic import Operator, Sym, SymNode, full_like

Gradient = Callable[[Sym, Sym, Sym, tuple[int, ...]], Sym]
Identity = Callable[[np.dtype], Any]


def _lowest(dtype: np.dtype) -> Any:
    return -np.inf if dtype.kind == "f" else np.iinfo(dtype).min if dtype.kind in "iu" else False


def _highest(dtype: np.dtype) -> Any:
    return np.inf if dtype.kind == "f" else np.iinfo(dtype).max if dtype.kind in "iu" else True


def _rule(name: str, admits: frozenset[np.dtype], needs_elements: bool) -> Callable[..., ArrayType]:
    def infer(*types: ArrayType, axes: tuple[int, ...], pieces: int = 0) -> ArrayType:
        check_count(name, types, 1)
        (x,) = types
        check_array(name, x)
        check_dtype(name, x.dtype, admits)
        check_axes(name, x, axes)
        if pieces < 0:
            raise ArgumentError(f"{name} into {pieces} pieces: expected 0 or a positive number")
        if needs_elements and not pieces and math.prod(x.shape[a] for a in axes) == 0:
            raise ShapeError(
                f"{name} over axes {axes} of {x}: there are no elements, and {name} of nothing is undefined"
            )
        kept = tuple(n for a, n in enumerate(x.shape) if a not in axes)
        return ArrayType((*kept, pieces) if pieces else kept, x.dtype, x.device)

    return infer


def _evaluation(ufunc: np.ufunc, identity: Identity) -> Callable[..., np.ndarray]:
    def evaluate(x: np.ndarray, *, axes: tuple[int, ...], pieces: int = 0) -> np.ndarray:
        if not pieces:
            return ufunc.reduce(x, axis=axes, dtype=x.dtype) if axes else np.copy(x)
        kept = [a for a in range(x.ndim) if a not in axes]
        count = math.prod(x.shape[a] for a in axes)
        rows = x.transpose(*kept, *axes).reshape(*(x.shape[a] for a in kept), count)
        length = -(-count // pieces)
        result = np.full((*rows.shape[:-1], pieces), identity(x.dtype), x.dtype)
        for piece in range(pieces):
            run = rows[..., piece * length : (piece + 1) * length]
            if run.shape[-1]:
                result[..., piece] = ufunc.reduce(run, axis=-1, dtype=x.dtype)
        return result

    return evaluate


def _gradient(name: str, rule: Gradient) -> Callable[..., list[Sym | None]]:
    def gradient(node: SymNode, cotangents: Sequence[Sym]) -> list[Sym | None]:
        (x,), (ct,) = node.inputs, cotangents
        if node.attrs.get("pieces"):
            raise ArgumentError(
                f"{name} in pieces has no gradient: differentiate before reductions are split"
            )
        return [rule(ct, x, node.output, node.attrs["axes"])]

    return gradient


def reduction(
    name: str,
    ufunc: np.ufunc,
    identity: Identity,
    admits: frozenset[np.dtype],
    kernel: str,
    doc: str,
    gradient: Gradient | None,
    *traits: Trait,
    needs_elements: bool = False,
) -> Operator:
    """Declare and register a reduction; ``gradient(ct, x, y, axes)``."""
    op = Operator(
        name,
        _rule(name, admits, needs_elements),
        _evaluation(ufunc, identity),
        None if gradient is None else _gradient(name, gradient),
        kernel,
        frozenset({Trait.REDUCTION, *traits}),
        doc,
        admits=admits,
    )
    register(op)
    return op


# ---- gradients


def _extreme_gradient(ct: Sym, x: Sym, y: Sym, axes: tuple[int, ...]) -> Sym:
    """Share the cotangent evenly among the elements that equal the extreme."""
    hits = equal(x, y.spread(axes, x.shape))
    shares = ct / hits.astype(x.dtype).sum(axes)
    return where(hits, shares.spread(axes, x.shape), 0)


def _prod_gradient(ct: Sym, x: Sym, y: Sym, axes: tuple[int, ...]) -> Sym:
    """The product of all other elements, without dividing, so that zeros are allowed at any order."""
    kept = [a for a in range(len(x.shape)) if a not in axes]
    order = (*kept, *axes)
    rows = x.permute(order)
    flat = rows.reshape((*(x.shape[a] for a in kept), math.prod(x.shape[a] for a in axes)))
    last = len(kept)
    others = _products_before(flat) * _products_before(flat.flip(last)).flip(last)
    restored = others.reshape(rows.shape).permute([order.index(a) for a in range(len(order))])
    return ct.spread(axes, x.shape) * restored


def _products_before(x: Sym) -> Sym:
    """Exclusive cumulative product along the last axis, by doubling: log2(n) products of shifted arrays."""
    result, step = _shift(x, 1), 1
    while step < x.shape[-1]:
        result, step = result * _shift(result, step), 2 * step
    return result


def _shift(x: Sym, step: int) -> Sym:
    """x moved up by `step` along the last axis, ones moving in."""
    last = len(x.shape) - 1
    target = x.whole().slice_axis(last, step, None)
    source = x.view(x.whole().slice_axis(last, None, -step))
    return update(full_like(x, 1), source, view=target)


# ---- reductions

sum = reduction(
    "sum",
    np.add,
    lambda dtype: 0,
    REAL_NUMBERS,
    "add",
    "Sum over axes.",
    lambda ct, x, y, axes: ct.spread(axes, x.shape),
)
prod = reduction(
    "prod", np.multiply, lambda dtype: 1, NUMERIC, "multiply", "Product over axes.", _prod_gradient
)
max = reduction(
    "max",
    np.maximum,
    _lowest,
    REAL,
    "maximum",
    "Largest element over axes.",
    _extreme_gradient,
    needs_elements=True,
)
min = reduction(
    "min",
    np.minimum,
    _highest,
    REAL,
    "minimum",
    "Smallest element over axes.",
    _extreme_gradient,
    needs_elements=True,
)
any = reduction(
    "any", np.logical_or, lambda dtype: False, BOOL, "logical_or", "Whether one is true.", None, Trait.EXACT
)
all = reduction(
    "all", np.logical_and, lambda dtype: True, BOOL, "logical_and", "Whether all are true.", None, Trait.EXACT
)

# ---- along one axis


def _check_axis(name: str, types: Sequence[ArrayType], axis: int, admits: frozenset[np.dtype]) -> ArrayType:
    check_count(name, types, 1)
    (x,) = types
    check_array(name, x)
    check_dtype(name, x.dtype, admits)
    if not 0 <= axis < x.ndim:
        raise AxisError(f"{name} along axis {axis} of {x}: expected an axis from 0 to {x.ndim - 1}")
    return x


def _position(name: str, evaluate: Callable[..., Any], along: str, which: str) -> Operator:
    def infer(*types: ArrayType, axis: int) -> ArrayType:
        x = _check_axis(name, types, axis, REAL)
        if x.shape[axis] == 0:
            raise ShapeError(f"{name} along axis {axis} of {x}: there are no elements")
        return ArrayType((*x.shape[:axis], *x.shape[axis + 1 :]), INT64, x.device)

    op = Operator(
        name,
        infer,
        lambda x, *, axis: evaluate(x, axis).astype(INT64),
        traits=frozenset({Trait.EXACT}),
        doc=f"Position of the first {which} element (or nan) along an axis.",
        admits=REAL,
        along=along,
        batch=shifting("axis"),
    )
    register(op)
    return op


def _infer_cumulative_sum(*types: ArrayType, axis: int) -> ArrayType:
    return _check_axis("cumulative_sum", types, axis, REAL_NUMBERS)


def _cumulative_sum_gradient(node: SymNode, cotangents: Sequence[Sym]) -> list[Sym | None]:
    (ct,), axis = cotangents, node.attrs["axis"]
    return [cumulative_sum(ct.flip(axis), axis=axis).flip(axis)]


argmax = _position("argmax", np.argmax, "max", "largest")
argmin = _position("argmin", np.argmin, "min", "smallest")

cumulative_sum = Operator(
    "cumulative_sum",
    _infer_cumulative_sum,
    lambda x, *, axis: np.cumsum(x, axis, dtype=x.dtype),
    _cumulative_sum_gradient,
    traits=frozenset({Trait.SCAN}),
    doc="Sums of all elements up to each one along an axis.",
    admits=REAL_NUMBERS,
    along="sum",
    batch=shifting("axis"),
)
register(cumulative_sum)
