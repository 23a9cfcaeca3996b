"""Attention: averages of values, weighted by the similarity of their keys to a query.

Vaswani et al., Attention is all you need, 2017. On a CPU, without dropout or broadcast operands, attention
is one operator with its own kernel (`tracejit.ops.attend`).

Otherwise queries are processed sequentially in blocks of rows, so that the scores of a long sequence are
never in memory simultaneously: the scores of a block are consumed before the next block reuses their memory.
With ``causal=True`` a block skips the keys that are hidden from all of its rows, which saves nearly half of
the products. The backward pass recomputes the weights of several blocks, one block at a time, as in Dao et
al., FlashAttention, 2022.

Several query heads may share one head of keys and values (Ainslie et al., GQA, 2023): the heads are then
split into groups, (..., heads, rows, features) into (..., groups, heads per group, rows, features).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tracejit import ops
from tracejit.errors import ArgumentError, DTypeError, ShapeError, locate
from tracejit.frontend.arrays import dispatch
from tracejit.frontend.arrays.axes import integer
from tracejit.frontend.arrays.functions import reductions
from tracejit.frontend.arrays.functions.creation import zeros_like
from tracejit.frontend.arrays.functions.linear import matmul
from tracejit.frontend.arrays.functions.manipulation import (
    broadcast_to,
    matrix_transpose,
    moveaxis,
    reshape,
)
from tracejit.frontend.arrays.functions.movement import concat
from tracejit.frontend.arrays.functions.ranges import arange
from tracejit.frontend.arrays.ndarray import NDArray
from tracejit.frontend.arrays.promotion import is_zero
from tracejit.frontend.recording.location import user_location
from tracejit.frontend.transforms.checkpoint import RecomputationOrder, checkpoint_in_order
from tracejit.frontend.transforms.custom import with_rule
from tracejit.ir.types import Device, is_floating
from tracejit.nn.common import check_shape, floats, where
from tracejit.nn.functional import dropout, linear
from tracejit.tuning import tuning_of

BLOCK = 1 << 20
"""Maximum number of scores in a block of rows, which then fit into a cache of a few megabytes."""

MAX_BLOCKS = 32
"""Maximum number of blocks of rows. A traced function contains every block."""


def attention(
    query: Any,
    key: Any,
    value: Any,
    mask: Any = None,
    /,
    *,
    causal: bool = False,
    scale: Any = None,
    dropout_rate: Any = 0.0,
) -> NDArray:
    """Return softmax(query @ key.T * scale) @ value, over the last two dimensions; leading dimensions
    broadcast.

    query: (..., queries, features); key: (..., keys, features); value: (..., keys, values). The third last
    extent of the query (heads) may be a multiple of that of key and value: each head of keys and values is
    then shared by that many consecutive query heads (grouped-query attention).
    mask: an array that broadcasts to (..., queries, keys): bools, True where a query attends to a key, or
    numbers that are added to the scores. The result is zero for a query without visible keys. causal: query i
    attends to the keys up to i. scale: 1 / sqrt(features) by default. dropout_rate: see `dropout`; it is
    applied to the weights.

    Vaswani et al., Attention is all you need, 2017; Ainslie et al., GQA, 2023.
    Returns (..., queries, values) in the common floating dtype.
    Raises ShapeError if shapes do not match, DTypeError for a mask of integers.

    >>> import tracejit as tj
    >>> x = tj.asarray([[1.0], [2.0], [6.0]])
    >>> tj.nn.attention(tj.zeros((3, 1)), x, x, causal=True).numpy().reshape(-1)
    array([1. , 1.5, 3. ], dtype=float32)
    """
    name = "nn.attention"
    q, k, v = floats(name, query, key, value)
    _check(name, q, k, v)
    seen = None if mask is None else _mask(name, mask, q, k)
    factor = 1 / math.sqrt(max(q.shape[-1], 1)) if scale is None else scale
    groups = _groups(q, k, v)
    if is_zero(dropout_rate) and _has_kernel(q, k, v, seen, groups):
        return _by_kernel(q, k, v, seen, factor, causal)
    if groups:
        result = _attention(*_grouped(groups, q, k, v, seen), factor, dropout_rate, causal)
        return reshape(result, (*result.shape[:-4], q.shape[-3], *result.shape[-2:]))
    return _attention(q, k, v, seen, factor, dropout_rate, causal)


def _has_kernel(q: Any, k: Any, v: Any, mask: Any, groups: int) -> bool:
    """Return whether the kernel supports these operands: their device has the kernel, no operand is empty,
    and only a mask is broadcast.
    """
    batch = -3 if groups else -2
    if mask is not None:
        leading = mask.shape[:-2]
        extents = q.shape[len(q.shape) - 2 - len(leading) : -2]
        if len(leading) > q.ndim - 2 or any(n not in (1, m) for n, m in zip(leading, extents, strict=True)):
            return False
    return (
        "attend" in tuning_of(q.device).passes
        and 0 not in (*q.shape, *k.shape, *v.shape)
        and q.shape[:batch] == k.shape[:batch] == v.shape[:batch]
    )


def _by_kernel(q: Any, k: Any, v: Any, mask: Any, factor: Any, causal: bool) -> Any:
    """Compute attention by the kernel over blocks of rows, see `tracejit.kernels.attention.blockwise`."""
    if type(factor) not in (int, float):
        q, factor = q * factor, 1
    matrices = [reshape(x, (math.prod(x.shape[:-2]), *x.shape[-2:])) for x in (q, k, v)]
    options = {"scale": float(factor), "causal": bool(causal)}
    if mask is not None:
        masks, options["spread"] = _masks(mask, q, k)
        matrices.append(masks)
    result, _ = dispatch.emit(ops.attention, *matrices, **options)
    return reshape(result, (*q.shape[:-1], v.shape[-1]))


def _masks(mask: Any, q: Any, k: Any) -> tuple[Any, int]:
    """Return a mask as numbers (masks, rows, keys), and the number of consecutive query matrices that share
    one.
    """
    if mask.dtype == bool:
        mask = where(mask, 0.0, -np.inf)
    mask = broadcast_to(mask, (*mask.shape[:-1], k.shape[-2]))
    leading = (1,) * (q.ndim - mask.ndim) + mask.shape[:-2]
    varying = [axis for axis, n in enumerate(leading) if n > 1]
    first, last = (varying[0], varying[-1] + 1) if varying else (0, 0)
    if leading[first:last] != q.shape[first:last]:  # an extent of 1 between others
        leading = (*leading[:first], *q.shape[first:last], *leading[last:])
        mask = broadcast_to(mask, (*leading, *mask.shape[-2:]))
    masks = reshape(mask, (math.prod(leading), *mask.shape[-2:]))
    return dispatch.cast(masks, q.dtype), math.prod(q.shape[last:-2]) if varying else 1


def _groups(q: Any, k: Any, v: Any) -> int:
    """Return the number of key heads if each is shared by several query heads, else 0."""
    if min(q.ndim, k.ndim, v.ndim) < 3 or k.shape[-3] != v.shape[-3] or k.shape[-3] < 2:
        return 0
    heads, groups = q.shape[-3], k.shape[-3]
    return groups if heads > groups and heads % groups == 0 else 0


def _grouped(groups: int, q: Any, k: Any, v: Any, mask: Any) -> tuple[Any, Any, Any, Any]:
    """Return the operands with their heads split into groups."""
    heads = q.shape[-3]
    q = reshape(q, (*q.shape[:-3], groups, heads // groups, *q.shape[-2:]))
    k, v = (reshape(x, (*x.shape[:-2], 1, *x.shape[-2:])) for x in (k, v))
    if mask is not None and mask.ndim > 2:
        split = (1, 1) if mask.shape[-3] == 1 else (groups, heads // groups)
        mask = reshape(mask, (*mask.shape[:-3], *split, *mask.shape[-2:]))
    return q, k, v, mask


def _attention(q: Any, k: Any, v: Any, seen: Any, factor: Any, dropout_rate: Any, causal: bool) -> Any:
    """Compute attention in blocks of query rows, sequentially."""
    ranges = _blocks(q, k)
    block = checkpoint_in_order(_block, RecomputationOrder()) if len(ranges) > 1 else _block
    blocks: list[Any] = []
    for start, stop in ranges:
        keys = min(stop, k.shape[-2]) if causal else k.shape[-2]
        rows = q[..., start:stop, :]
        if blocks:
            rows = _following(rows, blocks[-1])
        visible = None if seen is None else _mask_block(seen, start, stop, keys)
        blocks.append(block(rows, k, v, visible, factor, dropout_rate, start if causal else None))
    return blocks[0] if len(blocks) == 1 else concat(blocks, axis=-2)


@with_rule
def _first_rows(x: Any, count: int) -> Any:
    """Return the first rows of matrices. The gradient is allocated only after its cotangent is available."""

    def backward(ct: Any) -> tuple[Any, None]:
        gradient = _following(zeros_like(x), ct)
        gradient[..., :count, :] = ct
        return gradient, None

    return x[..., :count, :], backward


def _block(rows: Any, k: Any, v: Any, mask: Any, factor: Any, dropout_rate: Any, first: int | None) -> Any:
    """Compute attention for a block of query rows; `first` is the index of its first row if causal, else
    None.
    """
    if first is not None:
        stop = first + rows.shape[-2]
        k, v = (_first_rows(x, stop) if stop < x.shape[-2] else x for x in (k, v))
        mask = _causal(mask, first, stop, k.shape[-2], k.device)
    scores = matmul(rows, matrix_transpose(k)) * factor
    return matmul(_weights(scores, mask, dropout_rate), v)


def _check(name: str, q: Any, k: Any, v: Any) -> None:
    shapes = f"query {q.shape}, key {k.shape}, value {v.shape}"
    if min(q.ndim, k.ndim, v.ndim) < 2:
        raise locate(ShapeError(f"{name}: {shapes} need two or more dimensions"), user_location())
    if q.shape[-1] != k.shape[-1] or k.shape[-2] != v.shape[-2] or not k.shape[-2]:
        raise locate(
            ShapeError(
                f"{name}: {shapes} do not fit; query and key need equal last extents, key and value as many "
                "rows, at least one"
            ),
            user_location(),
        )


def _mask(name: str, mask: Any, q: Any, k: Any) -> Any:
    """Return a checked mask of two or more dimensions, bool or in the dtype of the scores."""
    queries, keys = q.shape[-2], k.shape[-2]
    array = dispatch.as_array(name, mask)
    if array.dtype.kind != "b" and not is_floating(array.dtype):
        raise locate(DTypeError(f"{name}: mask must be bool or floating, not {array.dtype}"), user_location())
    if array.ndim < 2:
        array = reshape(array, (1,) * (2 - array.ndim) + array.shape)
    heads = q.shape[-3] if q.ndim > 2 and k.ndim > 2 and k.shape[-3] not in (1, q.shape[-3]) else None
    fits = array.shape[-2] in (1, queries) and array.shape[-1] in (1, keys)
    if not fits or (heads is not None and array.ndim > 2 and array.shape[-3] not in (1, heads)):
        raise locate(
            ShapeError(f"{name}: a mask of shape {array.shape} for {queries} queries and {keys} keys"),
            user_location(),
        )
    return array if array.dtype == bool else dispatch.cast(array, q.dtype)


def _blocks(q: Any, k: Any) -> list[tuple[int, int]]:
    """Return the bounds of the row range of each block of queries."""
    queries = q.shape[-2]
    batch = math.prod(dispatch.broadcast_shape("nn.attention", [q.shape[:-2], k.shape[:-2]]))
    fitting = BLOCK // max(batch * k.shape[-2], 1)
    rows = max(fitting // 16 * 16, -(-queries // MAX_BLOCKS), 1)
    return [(start, min(start + rows, queries)) for start in range(0, queries, rows)] or [(0, 0)]


def _mask_block(mask: Any, start: int, stop: int, keys: int) -> Any:
    """Return the rows of a mask from `start` to `stop`, and its first `keys` columns."""
    rows = mask if mask.shape[-2] == 1 else mask[..., start:stop, :]
    return rows if mask.shape[-1] == 1 else rows[..., :keys]


def _causal(mask: Any, start: int, stop: int, keys: int, device: Device) -> Any:
    """Return a mask that also hides the keys after each query."""
    visible = arange(keys, device=device) <= arange(start, stop, device=device)[:, None]
    if mask is None:
        return visible
    return visible & mask if mask.dtype == bool else where(visible, mask, -np.inf)


def _following(rows: Any, before: Any) -> Any:
    """Return `rows` with a dependency on `before`, so that both tasks can share memory: independent tasks
    cannot.

    The dependency is the addition of a zero, which is positive if the first element of `before` is finite.
    """
    if not before.size:
        return rows
    first = before[(0,) * before.ndim]
    return rows + where(dispatch.apply(ops.isfinite, first), 0.0, -0.0)


def _weights(scores: Any, mask: Any, rate: Any) -> Any:
    """Return the softmax over the visible keys; zeros for a query without visible keys."""
    if mask is not None:
        scores = where(mask, scores, -np.inf) if mask.dtype == bool else scores + mask
    highest = dispatch.emit(ops.stop_gradient, reductions.max(scores, -1, keepdims=True))
    if mask is not None:
        highest = where(dispatch.apply(ops.isfinite, highest), highest, 0)
    exponentials = dispatch.apply(ops.exp, scores - highest)
    total = reductions.sum(exponentials, -1, keepdims=True)
    weights = exponentials / (total if mask is None else where(total == 0, 1, total))
    return weights if is_zero(rate) else dropout(weights, rate)


def multi_head_attention(
    query: Any,
    key: Any,
    value: Any,
    input_weight: Any,
    input_bias: Any,
    output_weight: Any,
    output_bias: Any,
    /,
    *,
    heads: Any,
    mask: Any = None,
    causal: bool = False,
    dropout_rate: Any = 0.0,
) -> NDArray:
    """Project queries, keys and values, apply `attention` in several heads, and project the result.

    query: (batch, queries, features); key, value: (batch, keys, features). input_weight: (3 * features,
    features), the weights for queries, keys and values stacked in this order; input_bias: (3 * features,), or
    None; output_weight: (features, features); output_bias: (features,), or None. heads: the number of heads,
    a divisor of the features. mask: broadcasts to (batch, heads, queries, keys). The layout of weights is
    that of PyTorch.
    Returns (batch, queries, features).
    Raises ShapeError if shapes do not match, ArgumentError if `heads` does not divide the features.

    >>> import tracejit as tj
    >>> x, w = tj.ones((2, 5, 4)), tj.ones((12, 4))
    >>> tj.nn.multi_head_attention(x, x, x, w, None, w[:4], None, heads=2).shape
    (2, 5, 4)
    """
    name = "nn.multi_head_attention"
    q, k, v, matrix = floats(name, query, key, value, input_weight)
    features = q.shape[-1]
    check_shape(name, "input_weight", matrix, (3 * features, features), "for queries, keys and values")
    count = integer(f"{name}: heads", heads)
    if count < 1 or features % count:
        raise locate(
            ArgumentError(f"{name}: {features} features cannot be split into {count} heads of equal size"),
            user_location(),
        )
    biases = None if input_bias is None else dispatch.as_array(name, input_bias)
    projected = []
    for i, x in enumerate((q, k, v)):
        block = slice(i * features, (i + 1) * features)
        projection = linear(x, matrix[block], None if biases is None else biases[block])
        projected.append(_heads(projection, count))
    q, k, v = projected
    result = moveaxis(attention(q, k, v, mask, causal=causal, dropout_rate=dropout_rate), -3, -2)
    return linear(reshape(result, (*result.shape[:-2], features)), output_weight, output_bias)


def _heads(x: Any, count: int) -> Any:
    """Reshape (..., rows, features) to (..., heads, rows, features / heads)."""
    heads = reshape(x, (*x.shape[:-1], count, x.shape[-1] // count))
    return moveaxis(heads, -2, -3)


__all__ = ["attention", "multi_head_attention"]
