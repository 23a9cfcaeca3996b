"""Attention without its matrix of scores: averages of values, weighted by how well keys agree with queries.

    result, log_sums = attention(q, k, v, mask)      # softmax(scale * q @ k.T + mask) @ v
    attention_gradient(q, k, v, log_sums, along, ct, mask)

q is (batch, queries, features), k (batch / heads, keys, features), v (batch / heads, keys, values): as many
matrices of queries, one after the other, share one of keys and values. With ``causal`` query i sees the keys
up to i. ``log_sums`` are the logarithms of the sums of exponentials of scores, from which a weight is
``exp(score - log_sum)``: the gradient computes weights again, block by block, and needs no more than these
(Dao et al., FlashAttention, 2022). `along`, the sums of ``ct * result`` over values, stands for what a change
of weights does to their sums.

The mask may be left out. It is (masks, queries or 1, keys), and matrix m of the queries has the mask ``m //
spread % masks``: one for all, one for each, or repeated in either order. A query all of whose scores are
minus infinity sees nothing: its result is 0, its log_sum infinite; with ``nan`` both are nan, as softmax has
it. With ``cut`` scores of minus infinity pass no cotangent, as if `where` had made them, even where weights
are nan. The gradient of a mask is written by the matrix of scores.

The gradient has three results, of which the first adds up to that of the queries: it has a leading
dimension, ``parts``, for parts of the keys that are computed side by side. Only their sum is specified.

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
from tracejit.kernels.attention.plan import MASKS, gradient_parts
from tracejit.ops.batching import BatchNode, first_axis, merged, parted
from tracejit.ops.creation import iota
from tracejit.ops.rules import (
    FLOATING,
    check_array,
    check_count,
    check_dtype,
    check_one_device,
    check_one_dtype,
    text,
)
from tracejit.ops.select import where
from tracejit.ops.symbolic import Operator, Sym, SymNode, full_like
from tracejit.ops.transcendental import exp


def _check(name: str, types: Sequence[ArrayType], spread: int) -> None:
    """Check the operands, of which a mask may be the last."""
    number = MASKS[name][0]
    if len(types) != number + 1:
        check_count(name, types, number)
    for x in types:
        check_array(name, x)
        check_dtype(name, x.dtype, FLOATING)
    check_one_dtype(name, types)
    check_one_device(name, types)
    q, k, v = types[:3]
    if any(x.ndim != 3 or 0 in x.shape for x in (q, k, v)):
        raise ShapeError(
            f"{name} needs queries, keys and values of three dimensions, none empty; got {text(types)}"
        )
    if q.shape[0] % k.shape[0] or k.shape[:2] != v.shape[:2] or q.shape[2] != k.shape[2]:
        raise ShapeError(
            f"{name} got {text(types)}: queries need a multiple of the matrices of keys, as many features, "
            "and values as many rows as keys"
        )
    if len(types) > number:
        mask, several = types[number], q.shape[0] // max(spread, 1)
        if (
            mask.ndim != 3
            or mask.shape[1:] not in ((q.shape[1], k.shape[1]), (1, k.shape[1]))
            or not mask.shape[0]
            or several * spread != q.shape[0]
            or several % mask.shape[0]
        ):
            raise ShapeError(f"{name} got the mask {mask}, each for {spread} in turn, for {text(types[:3])}")


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
            f"{name} got {text(types)}: the last three need the shapes of results for {rows} rows"
        )
    if not 1 <= parts <= k.shape[1]:
        raise ShapeError(f"{name} got {parts} parts of {k.shape[1]} keys")
    return ArrayType((parts, *q.shape), q.dtype, q.device), k, v


# ---- NumPy's meaning


def _scores(
    q: np.ndarray, k: np.ndarray, masks: Sequence[np.ndarray], scale: float, causal: bool, spread: int
) -> np.ndarray:
    """(matrices of keys, heads, queries, keys); minus infinity where a query does not see a key."""
    scores = _heads(q, k) @ k[:, None].swapaxes(-1, -2) * q.dtype.type(scale)
    for mask in masks:
        scores = scores + _heads(mask[np.arange(len(q)) // spread % len(mask)], k)
    return (
        np.where(np.tri(*scores.shape[-2:], dtype=np.bool_), scores, q.dtype.type(-np.inf))
        if causal
        else scores
    )


def _heads(x: np.ndarray, k: np.ndarray) -> np.ndarray:
    """Rows of `x`, one for each matrix of queries, as (matrices of keys, heads, ...)."""
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
    nothing = (highest == -np.inf) & (bool(masks) and not nan)
    powers = np.exp(scores - np.where(nothing, 0, highest))
    total = np.where(nothing, 1, powers.sum(-1, keepdims=True))
    result = powers @ v[:, None] / total
    log_sums = np.where(nothing, np.inf, highest + np.log(total)).astype(q.dtype)
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
    of_rows = [_heads(x, k) for x in (q, log_sums[..., None], along[..., None], ct)]
    queries, log_sums, along, ct = of_rows
    scores = _scores(q, k, operands[6:], scale, causal, spread)
    weights = np.exp(scores - log_sums)
    slopes = weights * (ct @ v[:, None].swapaxes(-1, -2) - along) * q.dtype.type(scale)
    if cut:
        slopes = np.where(np.isneginf(scores), q.dtype.type(0), slopes)
    to_q = np.zeros((parts, *q.shape), q.dtype)
    to_q[0] = (slopes @ k[:, None]).reshape(q.shape)
    to_k = (slopes.swapaxes(-1, -2) @ queries).sum(1)
    return to_q, to_k, (weights.swapaxes(-1, -2) @ ct).sum(1)


# ---- gradients


def _options(node: SymNode) -> dict[str, Any]:
    return {
        name: node.attrs[name] for name in ("scale", "causal", "spread", "nan", "cut") if name in node.attrs
    }


def _gradient(node: SymNode, cotangents: Sequence[Sym | None]) -> list[Sym | None]:
    (q, k, v, *masks), (result, log_sums), (ct, of_sums) = node.inputs, node.outputs, cotangents
    if ct is None:
        ct = full_like(result, 0)
    along = (ct * result).sum((2,))
    if of_sums is not None:
        along = along - of_sums
    parts, operands = gradient_parts(k.shape), (q, k, v, log_sums, along, ct, *masks)
    to_q, to_k, to_v = attention_gradient(*operands, parts=parts, **_options(node))
    found: list[Sym | None] = [to_q.reshape(q.shape) if parts == 1 else to_q.sum((0,)), to_k, to_v]
    if masks:
        weights, errors = _matrices(operands, node)
        found.append(_of_mask(weights * errors, masks[0], node))
    return found


def _matrices(operands: Sequence[Sym], node: SymNode) -> tuple[Sym, Sym]:
    """The weights P and ``ct @ v.T - along`` of all queries and keys, from the operands of the gradient."""
    q, k, v, log_sums, along, ct, *masks = operands
    shape, spread = (*q.shape[:2], k.shape[1]), node.attrs.get("spread", 1)
    scores = node.attrs["scale"] * (q @ _for_heads(k, q.shape[0]).mT)
    for mask in masks:
        scores = scores + _for_matrices(mask, shape, spread)
    weights = _weights(scores - log_sums.spread((2,), shape), node.attrs["causal"])
    return weights, ct @ _for_heads(v, q.shape[0]).mT - along.spread((2,), shape)


def _for_matrices(mask: Sym, shape: tuple[int, ...], spread: int) -> Sym:
    """A mask for each matrix of queries; `shape`: of all scores."""
    masks, rows, keys = mask.shape
    several = (shape[0] // spread // masks, masks, spread, *shape[1:])
    if rows == 1:
        return mask.reshape((masks, keys)).spread((0, 2, 3), several).reshape(shape)
    return mask.spread((0, 2), several).reshape(shape)


def _of_mask(x: Sym, mask: Sym, node: SymNode) -> Sym:
    """The reverse: the sums over all that share an element of the mask."""
    masks, rows, _ = mask.shape
    spread = node.attrs.get("spread", 1)
    x = x.reshape((x.shape[0] // spread // masks, masks, spread, *x.shape[1:]))
    return x.sum((0, 2, 3) if rows == 1 else (0, 2)).reshape(mask.shape)


def _gradient_gradient(node: SymNode, cotangents: Sequence[Sym | None]) -> list[Sym | None]:
    """Second derivatives, by the matrix of scores. With P the weights, E = ct @ v.T - along, S = P * E, the
    gradients are ``scale * S @ k``, ``scale * S.T @ q`` and ``P.T @ ct``; as the parts of the first count
    together only, they have one cotangent.
    """
    (q, k, v, _, _, ct, *masks), scale = node.inputs, node.attrs["scale"]
    x, y, z = (full_like(out, 0) if g is None else g for out, g in zip(node.outputs, cotangents, strict=True))
    x = x.view(x.whole().slice_axis(0, 0, 1)).reshape(q.shape)
    weights, errors = _matrices(node.inputs, node)
    k, v, y, z = (_for_heads(each, q.shape[0]) for each in (k, v, y, z))
    slopes, turned = weights * errors, scale * (x @ k.mT + q @ y.mT)
    of_errors = weights * turned
    of_scores = weights * (turned * errors + ct @ z.mT)
    return [
        scale * (of_scores @ k + slopes @ y),
        _of_heads(scale * (of_scores.mT @ q + slopes.mT @ x), node.inputs[1]),
        _of_heads(of_errors.mT @ ct, node.inputs[2]),
        -of_scores.sum((2,)),
        -of_errors.sum((2,)),
        of_errors @ v + weights @ z,
        *(_of_mask(of_scores, mask, node) for mask in masks),
    ]


def _weights(powers: Sym, causal: bool) -> Sym:
    """Exponentials, 0 where a query does not see a key."""
    weights = exp(powers)
    if not causal:
        return weights
    queries, keys = (iota(size=n, device=powers.device) for n in powers.shape[1:])
    visible = keys.spread((0, 1), powers.shape) <= queries.spread((0, 2), powers.shape)
    return where(visible, weights, full_like(weights, 0))


def _for_heads(x: Sym, matrices: int) -> Sym:
    """Matrices of keys for each of queries."""
    heads = matrices // x.shape[0]
    if heads == 1:
        return x
    return x.spread((1,), (x.shape[0], heads, *x.shape[1:])).reshape((matrices, *x.shape[1:]))


def _of_heads(x: Sym, like: Sym) -> Sym:
    """The reverse: the sums over queries that share keys."""
    heads = x.shape[0] // like.shape[0]
    return x if heads == 1 else x.reshape((like.shape[0], heads, *x.shape[1:])).sum((1,))


# ---- batches of examples


def _batch(node: BatchNode) -> tuple[Sym, ...]:
    results = node.apply(*_all_examples(node))
    return tuple([parted(x, node.size) for x in results])


def _gradient_batch(node: BatchNode) -> tuple[Sym, ...]:
    to_q, to_k, to_v = node.apply(*_all_examples(node))
    parts = to_q.reshape((to_q.shape[0], node.size, to_q.shape[1] // node.size, *to_q.shape[2:]))
    return first_axis(parts, 1), parted(to_k, node.size), parted(to_v, node.size)


def _all_examples(node: BatchNode) -> list[Sym]:
    """The operands of all examples, one after the other; masks as often as an example uses them."""
    operands, number = node.spread(), MASKS[node.op.name][0]
    found = [merged(x) for x in operands[:number]]
    for mask in operands[number:]:
        times = operands[0].shape[1] // node.attrs.get("spread", 1) // mask.shape[1]
        found.append(merged(merged(mask.spread((1,), (node.size, times, *mask.shape[1:])))))
    return found


def _work(factor: int) -> Any:
    """The multiplications, from the shapes of queries and values, as many times as there are products."""

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
    doc="Averages of values, weighted by how well keys agree with queries; logarithms of sums of weights.",
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
    doc="Gradients of attention with respect to queries (in parts, to be added), keys and values.",
    admits=FLOATING,
    batch=_gradient_batch,
    work=_work(5),
)
register(attention_gradient)
