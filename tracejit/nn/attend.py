"""Attention: averages of values, weighted by how well their keys agree with a query.

Vaswani et al., Attention is all you need, 2017. Queries are taken in blocks of rows, one after the other, so
that the scores of a long sequence never stand in memory as a whole: a block's scores are used up before those
of the next need the same memory. With ``causal=True`` a block does not look at keys that none of its rows may
see, which saves nearly half of the products. A gradient keeps the weights of all blocks for the backward
pass.
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
from tracejit.frontend.arrays.functions.linear import matmul
from tracejit.frontend.arrays.functions.manipulation import matrix_transpose, moveaxis, reshape
from tracejit.frontend.arrays.functions.movement import concat
from tracejit.frontend.arrays.functions.ranges import arange
from tracejit.frontend.arrays.ndarray import NDArray
from tracejit.frontend.recording.location import user_location
from tracejit.ir.types import Device
from tracejit.nn.common import check_shape, floats, where
from tracejit.nn.functional import dropout, linear

BLOCK = 1 << 20
"""Scores of a block of rows: as many as a cache of a few megabytes holds."""

MOST_BLOCKS = 32
"""Blocks of rows at most: a traced function contains each of them."""


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
    """softmax(query @ key.T * scale) @ value, over the last two dimensions; leading ones broadcast.

    query: (..., queries, features); key: (..., keys, features); value: (..., keys, values).
    mask: what broadcasts to (..., queries, keys): bools, True where a query sees a key, or numbers that are
    added to the scores; a query that sees no key gives zeros. causal: query i sees the keys up to i. scale: 1
    / sqrt(features) by default. dropout_rate: see `dropout`; it acts on the weights.

    Vaswani et al., Attention is all you need, 2017.
    Returns (..., queries, values) in the common floating dtype.
    Raises ShapeError if shapes do not fit, DTypeError for a mask of integers.

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
    blocks: list[Any] = []
    for start, stop in _blocks(q, k):
        keys = min(stop, k.shape[-2]) if causal else k.shape[-2]
        rows = q[..., start:stop, :]
        if blocks:
            rows = _following(rows, blocks[-1])
        part = None if seen is None else _part(seen, start, stop, keys)
        if causal:
            part = _causal(part, start, stop, keys, q.device)
        scores = matmul(rows, matrix_transpose(k[..., :keys, :])) * factor
        blocks.append(matmul(_weights(scores, part, dropout_rate), v[..., :keys, :]))
    return blocks[0] if len(blocks) == 1 else concat(blocks, axis=-2)


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
    """A mask of two or more dimensions, checked; numbers in the dtype of the scores."""
    queries, keys = q.shape[-2], k.shape[-2]
    array = dispatch.as_array(name, mask)
    if array.dtype.kind not in "bf":
        raise locate(DTypeError(f"{name}: mask must be bool or floating, not {array.dtype}"), user_location())
    if array.ndim < 2:
        array = reshape(array, (1,) * (2 - array.ndim) + array.shape)
    if array.shape[-2] not in (1, queries) or array.shape[-1] not in (1, keys):
        raise locate(
            ShapeError(f"{name}: a mask of shape {array.shape} for {queries} queries and {keys} keys"),
            user_location(),
        )
    return array if array.dtype == bool else dispatch.cast(array, q.dtype)


def _blocks(q: Any, k: Any) -> list[tuple[int, int]]:
    """First and last row of each block of queries."""
    queries = q.shape[-2]
    batch = math.prod(dispatch.broadcast_shape("nn.attention", [q.shape[:-2], k.shape[:-2]]))
    fitting = BLOCK // max(batch * k.shape[-2], 1)
    rows = max(fitting // 16 * 16, -(-queries // MOST_BLOCKS), 1)
    return [(start, min(start + rows, queries)) for start in range(0, queries, rows)] or [(0, 0)]


def _part(mask: Any, start: int, stop: int, keys: int) -> Any:
    """The rows of a mask from `start` to `stop`, and its first keys."""
    rows = mask if mask.shape[-2] == 1 else mask[..., start:stop, :]
    return rows if mask.shape[-1] == 1 else rows[..., :keys]


def _causal(mask: Any, start: int, stop: int, keys: int, device: Device) -> Any:
    """A mask that also hides the keys after each query."""
    visible = arange(keys, device=device) <= arange(start, stop, device=device)[:, None]
    if mask is None:
        return visible
    return visible & mask if mask.dtype == bool else where(visible, mask, -np.inf)


def _following(rows: Any, before: Any) -> Any:
    """`rows`, computed after `before`: tasks that do not wait for one another get memory of their own each.

    What is added is a zero of either sign.
    """
    if not before.size:
        return rows
    first = before[(0,) * before.ndim]
    return rows + where(dispatch.apply(ops.isfinite, first), 0.0, -0.0)


def _weights(scores: Any, mask: Any, rate: Any) -> Any:
    """Softmax over keys, of those that a mask shows; zeros where it shows none."""
    if mask is not None:
        scores = where(mask, scores, -np.inf) if mask.dtype == bool else scores + mask
    highest = dispatch.emit(ops.stop_gradient, reductions.max(scores, -1, keepdims=True))
    if mask is not None:
        highest = where(dispatch.apply(ops.isfinite, highest), highest, 0)
    powers = dispatch.apply(ops.exp, scores - highest)
    total = reductions.sum(powers, -1, keepdims=True)
    weights = powers / (total if mask is None else where(total == 0, 1, total))
    return weights if type(rate) in (int, float) and rate == 0 else dropout(weights, rate)


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
    """`attention` in several subspaces at once: of products with weights, then a product with another weight.

    query: (batch, queries, features); key, value: (batch, keys, features). input_weight: (3 * features,
    features), for queries, keys and values, one below the other; input_bias: (3 * features,), or None;
    output_weight: (features, features); output_bias: (features,), or None. heads: how many subspaces, a
    divisor of the features. mask: what broadcasts to (batch, heads, queries, keys). Weights are PyTorch's.
    Returns (batch, queries, features).
    Raises ShapeError if shapes do not fit, ArgumentError if `heads` does not divide the features.

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
            ArgumentError(f"{name}: {features} features do not fall into {count} heads of equal size"),
            user_location(),
        )
    biases = None if input_bias is None else dispatch.as_array(name, input_bias)
    projected = []
    for i, x in enumerate((q, k, v)):
        part = slice(i * features, (i + 1) * features)
        found = linear(x, matrix[part], None if biases is None else biases[part])
        projected.append(_heads(found, count))
    q, k, v = projected
    found = moveaxis(attention(q, k, v, mask, causal=causal, dropout_rate=dropout_rate), -3, -2)
    return linear(reshape(found, (*found.shape[:-2], features)), output_weight, output_bias)


def _heads(x: Any, count: int) -> Any:
    """(..., rows, features) as (..., heads, rows, features / heads)."""
    parts = reshape(x, (*x.shape[:-1], count, x.shape[-1] // count))
    return moveaxis(parts, -2, -3)


__all__ = ["attention", "multi_head_attention"]
