"""Attention operators, which do not materialise the matrix of scores.

    result, log_sums = attention(q, k, v, mask)      # softmax(scale * q @ k.T + mask) @ v
    attention_gradient(q, k, v, log_sums, along, ct, mask)

q has the shape (batch, queries, features), k (batch / heads, keys, features), v (batch / heads, keys,
values): each group of `heads` consecutive matrices of queries shares one matrix of keys and one of values.
With ``causal``, query i attends to the keys 0 to i. ``log_sums`` are the logarithms of the sums of
exponentials of scores, from which a weight is ``exp(score - log_sum)``: the gradient recomputes weights block
by block, and needs only these sums (Dao et al., FlashAttention, 2022). `along`, the sums of ``ct * result``
over values, accounts for the normalisation of weights in the gradient.

The mask is optional. It has the shape (masks, queries or 1, keys), and matrix m of the queries uses the mask
``m // spread % masks``: one for all, one for each, or repeated in either order. A query all of whose scores
are minus infinity attends to no key: its result is 0 and its log_sum infinite, or, with ``nan``, both are nan
as for softmax. With ``cut``, scores of minus infinity propagate no cotangent, as if `where` had produced
them, even where weights are nan. The gradient of a mask materialises the matrix of scores.

The gradient has three results: those of queries, keys and values. The first has a leading dimension of extent
``parts``, for partitions of the keys that are computed in parallel; only the sum over it is specified.

>>> x = np.array([[[1.0], [2.0], [6.0]]])
>>> attention.evaluate(0 * x, x, x, scale=1.0, causal=True)[0].ravel().tolist()
[1.0, 1.5, 3.0]
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tracejit.errors import ShapeError
from tracejit.ir.op import Trait, register
from tracejit.ir.types import ArrayType
from tracejit.kernels.attention.plan import MASKS, gradient_ranges
from tracejit.ops.batching import BatchNode, first_axis, merged, unmerged
from tracejit.ops.creation import iota
from tracejit.ops.rules import (
    FLOATING,
    check_array,
    check_count,
    check_dtype,
    check_one_device,
    check_one_dtype,
    describe_types,
)
from tracejit.ops.select import where
from tracejit.ops.symbolic import Operator, Sym, SymNode, full_like
from tracejit.ops.transcendental import exp


def _check(name: str, types: Sequence[ArrayType], spread: int) -> None:
    """Check the operands, the last of which may be a mask."""
    n_required = MASKS[name][0]
    if len(types) != n_required + 1:
        check_count(name, types, n_required)
    for x in types:
        check_array(name, x)
        check_dtype(name, x.dtype, FLOATING)
    check_one_dtype(name, types)
    check_one_device(name, types)
    q, k, v = types[:3]
    if any(x.ndim != 3 or 0 in x.shape for x in (q, k, v)):
        raise ShapeError(
            f"{name} needs queries, keys and values of three dimensions, none empty; "
            f"got {describe_types(types)}"
        )
    if q.shape[0] % k.shape[0] or k.shape[:2] != v.shape[:2] or q.shape[2] != k.shape[2]:
        raise ShapeError(
            f"{name} got {describe_types(types)}: queries need a multiple of the matrices of keys, "
            "as many features, and values as many rows as keys"
        )
    if len(types) > n_required:
        mask, n_groups = types[n_required], q.shape[0] // max(spread, 1)
        if (
            mask.ndim != 3
            or mask.shape[1:] not in ((q.shape[1], k.shape[1]), (1, k.shape[1]))
            or not mask.shape[0]
            or n_groups * spread != q.shape[0]
            or n_groups % mask.shape[0]
        ):
            raise ShapeError(
                f"{name} got the mask {mask} with spread {spread} for {describe_types(types[:3])}"
            )


def _infer(
    *types: ArrayType, scale: float, causal: bool, spread: int = 1, nan: bool = False, cut: bool = False
) -> tuple[ArrayType, ArrayType]:
    _check("attention", types, spread)
    q, _, v = types[:3]
    rows = q.shape[:2]
    return ArrayType((*rows, v.shape[2]), q.dtype, q.device), ArrayType(rows, q.dtype, q.device)


def _infer_gradient(
    *types: ArrayType,
    scale: float,
    causal: bool,
    parts: int,
    spread: int = 1,
    nan: bool = False,
    cut: bool = False,
) -> tuple[ArrayType, ...]:
    name = "attention_gradient"
    _check(name, types, spread)
    q, k, v, log_sums, along, ct = types[:6]
    rows = q.shape[:2]
    if (log_sums.shape, along.shape, ct.shape) != (rows, rows, (*rows, v.shape[2])):
        raise ShapeError(
            f"{name} got {describe_types(types)}: the last three need the shapes of results for {rows} rows"
        )
    if not 1 <= parts <= k.shape[1]:
        raise ShapeError(f"{name} got {parts} parts of {k.shape[1]} keys")
    return ArrayType((parts, *q.shape), q.dtype, q.device), k, v


# ---- reference evaluation with NumPy


def _scores(
    q: np.ndarray, k: np.ndarray, masks: Sequence[np.ndarray], scale: float, causal: bool, spread: int
) -> np.ndarray:
    """Scores (matrices of keys, heads, queries, keys); minus infinity where a causal query excludes a key."""
    scores = _split_heads(q, k) @ k[:, None].swapaxes(-1, -2) * q.dtype.type(scale)
    for mask in masks:
        scores = scores + _split_heads(mask[np.arange(len(q)) // spread % len(mask)], k)
    return (
        np.where(np.tri(*scores.shape[-2:], dtype=np.bool_), scores, q.dtype.type(-np.inf))
        if causal
        else scores
    )


def _split_heads(x: np.ndarray, k: np.ndarray) -> np.ndarray:
    """Reshape `x`, one row for each matrix of queries, to (matrices of keys, heads, ...)."""
    return x.reshape(k.shape[0], x.shape[0] // k.shape[0], *x.shape[1:])


def _evaluate(
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    *masks: np.ndarray,
    scale: float,
    causal: bool,
    spread: int = 1,
    nan: bool = False,
    cut: bool = False,
) -> tuple[np.ndarray, np.ndarray]:
    scores = _scores(q, k, masks, scale, causal, spread)
    highest = scores.max(-1, keepdims=True)
    no_keys = (highest == -np.inf) & (bool(masks) and not nan)
    powers = np.exp(scores - np.where(no_keys, 0, highest))
    total = np.where(no_keys, 1, powers.sum(-1, keepdims=True))
    result = powers @ v[:, None] / total
    log_sums = np.where(no_keys, np.inf, highest + np.log(total)).astype(q.dtype)
    return result.reshape(*q.shape[:2], v.shape[2]), log_sums.reshape(q.shape[:2])


def _evaluate_gradient(
    *operands: np.ndarray,
    scale: float,
    causal: bool,
    parts: int,
    spread: int = 1,
    nan: bool = False,
    cut: bool = False,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    q, k, v, log_sums, along, ct = operands[:6]
    by_heads = [_split_heads(x, k) for x in (q, log_sums[..., None], along[..., None], ct)]
    queries, log_sums, along, ct = by_heads
    scores = _scores(q, k, operands[6:], scale, causal, spread)
    weights = np.exp(scores - log_sums)
    slopes = weights * (ct @ v[:, None].swapaxes(-1, -2) - along) * q.dtype.type(scale)
    if cut:
        slopes = np.where(np.isneginf(scores), q.dtype.type(0), slopes)
    q_gradient = np.zeros((parts, *q.shape), q.dtype)
    q_gradient[0] = (slopes @ k[:, None]).reshape(q.shape)
    k_gradient = (slopes.swapaxes(-1, -2) @ queries).sum(1)
    return q_gradient, k_gradient, (weights.swapaxes(-1, -2) @ ct).sum(1)


# ---- gradients


def _options(node: SymNode) -> dict[str, Any]:
    return {
        name: node.attrs[name] for name in ("scale", "causal", "spread", "nan", "cut") if name in node.attrs
    }


def _gradient(node: SymNode, cotangents: Sequence[Sym | None]) -> list[Sym | None]:
    (q, k, v, *masks), (result, log_sums), (ct, ct_sums) = node.inputs, node.outputs, cotangents
    if ct is None:
        ct = full_like(result, 0)
    along = (ct * result).sum((2,))
    if ct_sums is not None:
        along = along - ct_sums
    parts, operands = gradient_ranges(k.shape), (q, k, v, log_sums, along, ct, *masks)
    q_gradient, k_gradient, v_gradient = attention_gradient(*operands, parts=parts, **_options(node))
    gradients: list[Sym | None] = [
        q_gradient.reshape(q.shape) if parts == 1 else q_gradient.sum((0,)),
        k_gradient,
        v_gradient,
    ]
    if masks:
        weights, errors = _matrices(operands, node)
        gradients.append(_sum_to_mask(weights * errors, masks[0], node))
    return gradients


def _matrices(operands: Sequence[Sym], node: SymNode) -> tuple[Sym, Sym]:
    """Return the weights P and ``ct @ v.T - along``, both materialised, from the operands of the gradient."""
    q, k, v, log_sums, along, ct, *masks = operands
    shape, spread = (*q.shape[:2], k.shape[1]), node.attrs.get("spread", 1)
    scores = node.attrs["scale"] * (q @ _repeat_for_heads(k, q.shape[0]).mT)
    for mask in masks:
        scores = scores + _broadcast_mask(mask, shape, spread)
    weights = _weights(scores - log_sums.spread((2,), shape), node.attrs["causal"])
    return weights, ct @ _repeat_for_heads(v, q.shape[0]).mT - along.spread((2,), shape)


def _broadcast_mask(mask: Sym, shape: tuple[int, ...], spread: int) -> Sym:
    """Broadcast `mask` to `shape`, the shape of all scores: a mask for each matrix of queries."""
    masks, rows, keys = mask.shape
    repeated = (shape[0] // spread // masks, masks, spread, *shape[1:])
    if rows == 1:
        return mask.reshape((masks, keys)).spread((0, 2, 3), repeated).reshape(shape)
    return mask.spread((0, 2), repeated).reshape(shape)


def _sum_to_mask(x: Sym, mask: Sym, node: SymNode) -> Sym:
    """Sum `x` over all scores that share an element of the mask: the adjoint of `_broadcast_mask`."""
    masks, rows, _ = mask.shape
    spread = node.attrs.get("spread", 1)
    x = x.reshape((x.shape[0] // spread // masks, masks, spread, *x.shape[1:]))
    return x.sum((0, 2, 3) if rows == 1 else (0, 2)).reshape(mask.shape)


def _gradient_gradient(node: SymNode, cotangents: Sequence[Sym | None]) -> list[Sym | None]:
    """Second derivatives, which materialise the matrix of scores.

    With P the weights, E = ct @ v.T - along and S = P * E, the gradients are ``scale * S @ k``, ``scale * S.T
    @ q`` and ``P.T @ ct``. Only the sum of the parts of the first is specified, so all have the same
    cotangent, of which the first is used.
    """
    (q, k, v, _, _, ct, *masks), scale = node.inputs, node.attrs["scale"]
    x, y, z = (full_like(out, 0) if g is None else g for out, g in zip(node.outputs, cotangents, strict=True))
    x = x.view(x.identity_view().slice_axis(0, 0, 1)).reshape(q.shape)
    weights, errors = _matrices(node.inputs, node)
    k, v, y, z = (_repeat_for_heads(each, q.shape[0]) for each in (k, v, y, z))
    score_gradients, score_tangents = weights * errors, scale * (x @ k.mT + q @ y.mT)
    error_cotangents = weights * score_tangents
    score_cotangents = weights * (score_tangents * errors + ct @ z.mT)
    return [
        scale * (score_cotangents @ k + score_gradients @ y),
        _sum_over_heads(scale * (score_cotangents.mT @ q + score_gradients.mT @ x), node.inputs[1]),
        _sum_over_heads(error_cotangents.mT @ ct, node.inputs[2]),
        -score_cotangents.sum((2,)),
        -error_cotangents.sum((2,)),
        error_cotangents @ v + weights @ z,
        *(_sum_to_mask(score_cotangents, mask, node) for mask in masks),
    ]


def _weights(powers: Sym, causal: bool) -> Sym:
    """The exponentials of `powers`, and 0 where a causal query excludes a key."""
    weights = exp(powers)
    if not causal:
        return weights
    queries, keys = (iota(size=n, device=powers.device) for n in powers.shape[1:])
    visible = keys.spread((0, 1), powers.shape) <= queries.spread((0, 2), powers.shape)
    return where(visible, weights, full_like(weights, 0))


def _repeat_for_heads(x: Sym, matrices: int) -> Sym:
    """Repeat matrices of keys (or values) for each of the `matrices` of queries."""
    heads = matrices // x.shape[0]
    if heads == 1:
        return x
    return x.spread((1,), (x.shape[0], heads, *x.shape[1:])).reshape((matrices, *x.shape[1:]))


def _sum_over_heads(x: Sym, like: Sym) -> Sym:
    """Sum over the heads that share keys: the adjoint of `_repeat_for_heads`."""
    heads = x.shape[0] // like.shape[0]
    return x if heads == 1 else x.reshape((like.shape[0], heads, *x.shape[1:])).sum((1,))


# ---- batching


def _batch(node: BatchNode) -> tuple[Sym, ...]:
    results = node.apply(*_concatenate_examples(node))
    return tuple([unmerged(x, node.size) for x in results])


def _gradient_batch(node: BatchNode) -> tuple[Sym, ...]:
    q_gradient, k_gradient, v_gradient = node.apply(*_concatenate_examples(node))
    split_gradient = q_gradient.reshape(
        (q_gradient.shape[0], node.size, q_gradient.shape[1] // node.size, *q_gradient.shape[2:])
    )
    return first_axis(split_gradient, 1), unmerged(k_gradient, node.size), unmerged(v_gradient, node.size)


def _concatenate_examples(node: BatchNode) -> list[Sym]:
    """Concatenate the operands of all examples; masks are repeated as often as one example uses them."""
    operands, n_required = node.mapped_operands(), MASKS[node.op.name][0]
    operands_of_all = [merged(x) for x in operands[:n_required]]
    for mask in operands[n_required:]:
        times = operands[0].shape[1] // node.attrs.get("spread", 1) // mask.shape[1]
        operands_of_all.append(merged(merged(mask.spread((1,), (node.size, times, *mask.shape[1:])))))
    return operands_of_all


def _work(factor: int) -> Any:
    """Return an `Op.work` function that counts the multiplications of `factor` matrix products."""

    def work(shapes: Sequence[tuple[int, ...]], attrs: Any) -> int:
        (batch, queries, features), (_, keys, _), (_, _, values) = shapes[:3]
        return batch * queries * keys * (features + values) * factor // (4 if attrs["causal"] else 2)

    return work


attention = Operator(
    "attention",
    _infer,
    _evaluate,
    _gradient,
    traits=frozenset({Trait.LIBRARY}),
    doc="Averages of values, weighted by the softmax of scores; logarithms of sums of exponentials.",
    admits=FLOATING,
    batch=_batch,
    work=_work(2),
)
register(attention)

attention_gradient = Operator(
    "attention_gradient",
    _infer_gradient,
    _evaluate_gradient,
    _gradient_gradient,
    traits=frozenset({Trait.LIBRARY}),
    doc="Gradients of attention with respect to queries (as partial sums), keys and values.",
    admits=FLOATING,
    batch=_gradient_batch,
    work=_work(5),
)
register(attention_gradient)
