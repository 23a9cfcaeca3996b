"""Reductions, index reductions (`argmax`, `argmin`) and scans (`cumulative_sum`, ...).

The attributes of a reduction are `axes` (sorted; the reduced dimensions are removed; without axes the result
is the operand) and `pieces`. With pieces = n > 0 the R reduced elements, in C order over the reduced axes,
are divided into n chunks of length ceil(R / n), of which the last may be shorter or empty, and the output has
the shape kept + (n,): partial results, which a second reduction combines. A pass introduces them after
differentiation to split long reductions. The kernel of a reduction is the scalar function that combines two
elements.

>>> sum.evaluate(np.arange(7), axes=(0,), pieces=3)
array([ 3, 12,  6])
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tracejit.errors import ArgumentError, ShapeError
from tracejit.ir.op import ANY_ORDER, COMPENSATED, HIGHEST, IN_ORDER, LOWEST, Accumulation, Trait, register
from tracejit.ir.types import ArrayType, is_floating
from tracejit.ops.arithmetic import equal, not_equal
from tracejit.ops.batching import shifting
from tracejit.ops.creation import iota
from tracejit.ops.movement import scatter_add, update
from tracejit.ops.rules import (
    BOOL,
    INT64,
    NUMERIC,
    REAL,
    REAL_NUMBERS,
    check_along,
    check_array,
    check_axes,
    check_count,
    check_dtype,
)
from tracejit.ops.select import where
from tracejit.ops.symbolic import Operator, Sym, SymNode, full_like

ReductionGradient = Callable[[Sym, Sym, Sym, tuple[int, ...]], Sym]
IdentityRule = Callable[[np.dtype], Any]


def _lowest(dtype: np.dtype) -> Any:
    return -np.inf if is_floating(dtype) else np.iinfo(dtype).min if dtype.kind in "iu" else False


def _highest(dtype: np.dtype) -> Any:
    return np.inf if is_floating(dtype) else np.iinfo(dtype).max if dtype.kind in "iu" else True


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


def _evaluation(ufunc: np.ufunc, identity: IdentityRule) -> Callable[..., np.ndarray]:
    def evaluate(x: np.ndarray, *, axes: tuple[int, ...], pieces: int = 0) -> np.ndarray:
        if not pieces:
            return ufunc.reduce(x, axis=axes, dtype=x.dtype) if axes else np.copy(x)
        kept = [a for a in range(x.ndim) if a not in axes]
        n_reduced = math.prod(x.shape[a] for a in axes)
        rows = x.transpose(*kept, *axes).reshape(*(x.shape[a] for a in kept), n_reduced)
        length = -(-n_reduced // pieces)
        result = np.full((*rows.shape[:-1], pieces), identity(x.dtype), x.dtype)
        for piece in range(pieces):
            chunk = rows[..., piece * length : (piece + 1) * length]
            if chunk.shape[-1]:
                result[..., piece] = ufunc.reduce(chunk, axis=-1, dtype=x.dtype)
        return result

    return evaluate


def _gradient(name: str, rule: ReductionGradient) -> Callable[..., list[Sym | None]]:
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
    identity: IdentityRule,
    admits: frozenset[np.dtype],
    kernel: str,
    doc: str,
    gradient: ReductionGradient | None,
    *traits: Trait,
    needs_elements: bool = False,
    accumulation: Accumulation = IN_ORDER,
) -> Operator:
    """Declare and register a reduction; its gradient rule is ``gradient(ct, x, y, axes)``."""
    op = Operator(
        name,
        _rule(name, admits, needs_elements),
        _evaluation(ufunc, identity),
        None if gradient is None else _gradient(name, gradient),
        kernel,
        frozenset({Trait.REDUCTION, *traits}),
        doc,
        admits=admits,
        identity=identity,
        accumulation=accumulation,
    )
    register(op)
    return op


# ---- gradients


def _extremum_gradient(ct: Sym, x: Sym, y: Sym, axes: tuple[int, ...]) -> Sym:
    """Distribute the cotangent evenly over the elements that equal the extremum."""
    is_extremum = equal(x, y.spread(axes, x.shape))
    shares = ct / is_extremum.astype(x.dtype).sum(axes)
    return where(is_extremum, shares.spread(axes, x.shape), 0)


def _prod_gradient(ct: Sym, x: Sym, y: Sym, axes: tuple[int, ...]) -> Sym:
    """ct times the product of all other elements, computed without division: exact for zeros at any order."""
    kept = [a for a in range(len(x.shape)) if a not in axes]
    order = (*kept, *axes)
    rows = x.permute(order)
    flat = rows.reshape((*(x.shape[a] for a in kept), math.prod(x.shape[a] for a in axes)))
    last = len(kept)
    others = _exclusive_products(flat) * _exclusive_products(flat.flip(last)).flip(last)
    restored = others.reshape(rows.shape).permute([order.index(a) for a in range(len(order))])
    return ct.spread(axes, x.shape) * restored


def _exclusive_products(x: Sym) -> Sym:
    """The exclusive cumulative product along the last axis."""
    last = len(x.shape) - 1
    return cumulative_prod(_shift(x, 1, last, 1), axis=last)


def _shift(x: Sym, step: int, axis: int, fill: int) -> Sym:
    """Shift `x` by `step` elements towards higher indices along an axis; `fill` enters at the start."""
    target = x.identity_view().slice_axis(axis, step, None)
    source = x.view(x.identity_view().slice_axis(axis, None, -step))
    return update(full_like(x, fill), source, view=target)


# ---- reductions

sum = reduction(
    "sum",
    np.add,
    lambda dtype: 0,
    REAL_NUMBERS,
    "add",
    "Sum over axes.",
    lambda ct, x, y, axes: ct.spread(axes, x.shape),
    accumulation=COMPENSATED,
)
prod = reduction(
    "prod",
    np.multiply,
    lambda dtype: 1,
    NUMERIC,
    "multiply",
    "Product over axes.",
    _prod_gradient,
    accumulation=ANY_ORDER,
)
max = reduction(
    "max",
    np.maximum,
    _lowest,
    REAL,
    "maximum",
    "Largest element over axes.",
    _extremum_gradient,
    needs_elements=True,
    accumulation=HIGHEST,
)
min = reduction(
    "min",
    np.minimum,
    _highest,
    REAL,
    "minimum",
    "Smallest element over axes.",
    _extremum_gradient,
    needs_elements=True,
    accumulation=LOWEST,
)
any = reduction(
    "any",
    np.logical_or,
    lambda dtype: False,
    BOOL,
    "logical_or",
    "Whether any element is true.",
    None,
    Trait.EXACT,
)
all = reduction(
    "all",
    np.logical_and,
    lambda dtype: True,
    BOOL,
    "logical_and",
    "Whether all elements are true.",
    None,
    Trait.EXACT,
)

# ---- along one axis


def _index_reduction(name: str, evaluate: Callable[..., Any], along: str, which: str) -> Operator:
    def infer(*types: ArrayType, axis: int) -> ArrayType:
        x = check_along(name, types, axis, REAL)
        if x.shape[axis] == 0:
            raise ShapeError(f"{name} along axis {axis} of {x}: there are no elements")
        return ArrayType((*x.shape[:axis], *x.shape[axis + 1 :]), INT64, x.device)

    op = Operator(
        name,
        infer,
        lambda x, *, axis: evaluate(x, axis).astype(INT64),
        traits=frozenset({Trait.EXACT}),
        doc=f"Index of the first {which} element (or nan) along an axis.",
        admits=REAL,
        along=along,
        batch=shifting("axis"),
    )
    register(op)
    return op


argmax = _index_reduction("argmax", np.argmax, "max", "largest")
argmin = _index_reduction("argmin", np.argmin, "min", "smallest")

# ---- scans


def scan(
    along: Operator,
    ufunc: np.ufunc,
    doc: str,
    gradient: Callable[[Sym, Sym, Sym, int], Sym],
    identity: IdentityRule | None = None,
) -> Operator:
    """Declare and register the inclusive scan of a reduction; the gradient is ``gradient(ct, x, y, axis)``.

    identity: the initial value, if it differs from the identity of the reduction.
    """
    name, admits = f"cumulative_{along.name}", along.admits - BOOL
    op = Operator(
        name,
        lambda *types, axis: check_along(name, types, axis, admits),
        lambda x, *, axis: ufunc.accumulate(x, axis, dtype=x.dtype),
        lambda node, cotangents: [gradient(cotangents[0], node.inputs[0], node.output, node.attrs["axis"])],
        kernel=along.kernel,
        traits=frozenset({Trait.SCAN}),
        doc=doc,
        admits=admits,
        along=along.name,
        identity=identity or along.identity,
        batch=shifting("axis"),
    )
    register(op)
    return op


def _running_sum_gradient(ct: Sym, x: Sym, y: Sym, axis: int) -> Sym:
    return cumulative_sum(ct.flip(axis), axis=axis).flip(axis)


def _running_product_gradient(ct: Sym, x: Sym, y: Sym, axis: int) -> Sym:
    """The exclusive product up to j, times s[j] = ct[j] + x[j + 1] * s[j + 1], computed without division.

    The recurrence is solved on reversed arrays by recursive doubling: each of the log2(n) steps doubles the
    number of terms in the sums s.
    """
    before = cumulative_prod(_shift(x, 1, axis, 1), axis=axis)
    factor, total, step = _shift(x.flip(axis), 1, axis, 0), ct.flip(axis), 1
    while step < x.shape[axis]:
        total = total + factor * _shift(total, step, axis, 0)
        factor, step = factor * _shift(factor, step, axis, 0), 2 * step
    return before * total.flip(axis)


def _running_extremum_gradient(ct: Sym, x: Sym, y: Sym, axis: int) -> Sym:
    """Add each cotangent to the element at which the running extremum was first attained."""
    if 0 in x.shape:
        return ct
    size = math.prod(x.shape)
    position = iota(size=size, device=x.device).reshape(x.shape)
    later = y.view(y.identity_view().slice_axis(axis, 1, None))
    is_new = not_equal(later, y.view(y.identity_view().slice_axis(axis, None, -1)))
    later_position = position.view(position.identity_view().slice_axis(axis, 1, None))
    first = position.view(position.identity_view().slice_axis(axis, 0, 1))
    first = first.view(first.identity_view().broadcast(later_position.shape))
    start = update(
        position,
        where(is_new, later_position, first),
        view=position.identity_view().slice_axis(axis, 1, None),
    )
    attained_at = cumulative_max(start, axis=axis).reshape((size,))
    return scatter_add(ct.reshape((size,)), attained_at, axis=0, extent=size).reshape(x.shape)


cumulative_sum = scan(
    sum,
    np.add,
    "Sums of the elements up to and including each element along an axis.",
    _running_sum_gradient,
    lambda dtype: -0.0 if is_floating(dtype) else 0,  # preserves a leading -0.0
)
cumulative_prod = scan(
    prod,
    np.multiply,
    "Products of the elements up to and including each element along an axis.",
    _running_product_gradient,
)
cumulative_max = scan(
    max,
    np.maximum,
    "The largest of the elements up to and including each element along an axis.",
    _running_extremum_gradient,
)
cumulative_min = scan(
    min,
    np.minimum,
    "The smallest of the elements up to and including each element along an axis.",
    _running_extremum_gradient,
)
