"""Pooling over windows of images: the largest element, the mean, and the operators of their gradients.

    max_pool(x)                 y[n, c, i] = the largest element of window i of x
    max_pool_gradient(x, y)     y[n, c, i] added where that element is: at the first of several equal ones
    max_pool_select(x, z)       the element of z that lies where the largest of the window of x is
    average_pool(x)             the mean of a window, in which positions beyond the borders count as zeros
    average_pool_gradient(y)    y[n, c, i] / (elements of a window) added to all of window i

Padding is never the largest element of a window; a nan is larger than all numbers, as in PyTorch. Padding is
smaller than the window, so every window has an element of the image. Gradients search
x again instead of keeping positions: x is kept anyway for the operator that made it, and positions would be
another array.

>>> x = np.array([[[[1.0, 5.0, 2.0, 2.0]]]])
>>> pairs = {"window": (1, 2), "stride": (1, 2), "padding": ((0, 0), (0, 0))}
>>> max_pool.evaluate(x, **pairs)
array([[[[5., 2.]]]])
>>> max_pool_gradient.evaluate(x, np.array([[[[10.0, 20.0]]]]), **pairs)
array([[[[ 0., 10., 20.,  0.]]]])
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tracejit.errors import ArgumentError, ShapeError
from tracejit.ir.op import Trait, register
from tracejit.ir.types import ArrayType
from tracejit.ops.batching import BatchNode
from tracejit.ops.convolution import Padding, Pair, check_images, check_steps, padded, windows_along
from tracejit.ops.rules import FLOATING, check_count, text
from tracejit.ops.symbolic import Operator, Sym, SymNode


def _pooled(name: str, x: Sequence[int], window: Pair, stride: Pair, padding: Padding) -> tuple[int, ...]:
    """The shape of the windows of an array of shape `x`; raises if there are none."""
    check_steps(name, padding, window=window, stride=stride)
    if any(max(pair) >= n for pair, n in zip(padding, window, strict=True)):
        raise ArgumentError(f"{name}: padding {padding} must be smaller than the window {window}")
    places = [windows_along(*of) for of in zip(x[2:], window, stride, padding, strict=True)]
    if min(places) < 1:
        raise ShapeError(
            f"{name} of an array {tuple(x)}: the window {window} is larger than the padded array"
        )
    return (*x[:2], *places)


def _infer_pool(name: str) -> Any:
    def infer(*types: ArrayType, window: Pair, stride: Pair, padding: Padding) -> ArrayType:
        check_count(name, types, 1)
        check_images(name, types)
        (x,) = types
        return ArrayType(_pooled(name, x.shape, window, stride, padding), x.dtype, x.device)

    return infer


def _infer_max_pool_gradient(*types: ArrayType, **attrs: Any) -> ArrayType:
    check_count("max_pool_gradient", types, 2)
    check_images("max_pool_gradient", types)
    x, y = types
    expected = _pooled("max_pool_gradient", x.shape, **attrs)
    if y.shape != expected:
        raise ShapeError(f"max_pool_gradient got {y} for windows of shape {expected}")
    return x


def _infer_max_pool_select(*types: ArrayType, **attrs: Any) -> ArrayType:
    check_count("max_pool_select", types, 2)
    check_images("max_pool_select", types)
    x, z = types
    if x.shape != z.shape:
        raise ShapeError(f"max_pool_select got arrays of different shapes: {text(types)}")
    return ArrayType(_pooled("max_pool_select", x.shape, **attrs), x.dtype, x.device)


def _infer_average_pool_gradient(*types: ArrayType, extents: Pair, **attrs: Any) -> ArrayType:
    check_count("average_pool_gradient", types, 1)
    check_images("average_pool_gradient", types)
    (y,) = types
    shape = (*y.shape[:2], *extents)
    expected = _pooled("average_pool_gradient", shape, **attrs)
    if y.shape != expected:
        raise ShapeError(f"average_pool_gradient got {y} for windows of shape {expected}")
    return ArrayType(shape, y.dtype, y.device)


# ---- NumPy's meaning


def _windows(x: np.ndarray, window: Pair, stride: Pair) -> np.ndarray:
    """All windows of `x`, each in one row: (batch, channels, out height, out width, elements)."""
    seen = np.lib.stride_tricks.sliding_window_view(x, window, axis=(2, 3))[:, :, :: stride[0], :: stride[1]]
    return seen.reshape(*seen.shape[:4], window[0] * window[1])


def _winners(x: np.ndarray, window: Pair, stride: Pair, padding: Padding) -> np.ndarray:
    """The position of the first largest element of each window in the flattened `x`."""
    values = _windows(padded(x, padding, -np.inf), window, stride)
    numbers = np.arange(x.size).reshape(x.shape)
    positions = _windows(padded(numbers, padding, -1), window, stride)
    hits = (positions >= 0) & ((values == values.max(axis=-1, keepdims=True)) | np.isnan(values))
    return np.take_along_axis(positions, hits.argmax(axis=-1)[..., None], -1)[..., 0]


def _evaluate_max_pool(x: np.ndarray, **attrs: Any) -> np.ndarray:
    return x.reshape(-1)[_winners(x, **attrs)]


def _evaluate_max_pool_gradient(x: np.ndarray, y: np.ndarray, **attrs: Any) -> np.ndarray:
    result = np.zeros(x.shape, x.dtype)
    np.add.at(result.reshape(-1), _winners(x, **attrs), y)
    return result


def _evaluate_average_pool(x: np.ndarray, *, window: Pair, stride: Pair, padding: Padding) -> np.ndarray:
    return _windows(padded(x, padding), window, stride).mean(axis=-1, dtype=x.dtype)


def _evaluate_average_pool_gradient(
    y: np.ndarray, *, extents: Pair, window: Pair, stride: Pair, padding: Padding
) -> np.ndarray:
    (top, bottom), (left, right) = padding
    x = np.zeros((*y.shape[:2], extents[0] + top + bottom, extents[1] + left + right), y.dtype)
    share = y / y.dtype.type(window[0] * window[1])
    rows, columns = (slice(0, (n - 1) * s + 1, s) for n, s in zip(y.shape[2:], stride, strict=True))
    for i, j in np.ndindex(*window):
        x[:, :, i:, j:][:, :, rows, columns] += share
    return x[:, :, top : top + extents[0], left : left + extents[1]]


# ---- gradients


def _geometry(node: SymNode) -> dict[str, Any]:
    """The attributes that all of them share."""
    return {name: node.attrs[name] for name in ("window", "stride", "padding")}


def _max_pool_rule(node: SymNode, cotangents: Sequence[Sym]) -> list[Sym | None]:
    (x,), (ct,) = node.inputs, cotangents
    return [max_pool_gradient(x, ct, **node.attrs)]


def _max_pool_gradient_rule(node: SymNode, cotangents: Sequence[Sym]) -> list[Sym | None]:
    (x, _), (ct,) = node.inputs, cotangents
    return [None, max_pool_select(x, ct, **node.attrs)]


def _max_pool_select_rule(node: SymNode, cotangents: Sequence[Sym]) -> list[Sym | None]:
    (x, _), (ct,) = node.inputs, cotangents
    return [None, max_pool_gradient(x, ct, **node.attrs)]


def _average_pool_rule(node: SymNode, cotangents: Sequence[Sym]) -> list[Sym | None]:
    (x,), (ct,) = node.inputs, cotangents
    return [average_pool_gradient(ct, extents=x.shape[2:], **node.attrs)]


def _average_pool_gradient_rule(node: SymNode, cotangents: Sequence[Sym]) -> list[Sym | None]:
    (ct,) = cotangents
    return [average_pool(ct, **_geometry(node))]


def _work(y: int) -> Any:
    """The elements of windows that are looked at; `y`: which of operands and result has one for each."""
    return lambda shapes, attrs: math.prod(shapes[y]) * math.prod(attrs["window"])


def _batch(node: BatchNode) -> Sym:
    """The images of all examples as one batch."""
    size, images = node.size, [x.reshape((x.shape[0] * x.shape[1], *x.shape[2:])) for x in node.spread()]
    found = node.apply(*images)
    return found.reshape((size, found.shape[0] // size, *found.shape[1:]))


LIBRARY = frozenset({Trait.LIBRARY})

max_pool = Operator(
    "max_pool",
    _infer_pool("max_pool"),
    _evaluate_max_pool,
    _max_pool_rule,
    traits=LIBRARY | {Trait.EXACT},
    doc="The largest element of each window of images; nan if one is nan.",
    admits=FLOATING,
    work=_work(y=1),
    batch=_batch,
)
register(max_pool)

max_pool_gradient = Operator(
    "max_pool_gradient",
    _infer_max_pool_gradient,
    _evaluate_max_pool_gradient,
    _max_pool_gradient_rule,
    traits=LIBRARY,
    doc="The second operand, added up where the first largest elements of the windows of the first are.",
    admits=FLOATING,
    work=_work(y=1),
    batch=_batch,
)
register(max_pool_gradient)

max_pool_select = Operator(
    "max_pool_select",
    _infer_max_pool_select,
    lambda x, z, **attrs: z.reshape(-1)[_winners(x, **attrs)],
    _max_pool_select_rule,
    traits=LIBRARY | {Trait.EXACT},
    doc="Elements of the second operand where the first largest elements of the windows of the first are.",
    admits=FLOATING,
    work=_work(y=2),
    batch=_batch,
)
register(max_pool_select)

average_pool = Operator(
    "average_pool",
    _infer_pool("average_pool"),
    _evaluate_average_pool,
    _average_pool_rule,
    traits=LIBRARY,
    doc="The mean of each window of images; positions beyond the borders count as zeros.",
    admits=FLOATING,
    work=_work(y=1),
    batch=_batch,
)
register(average_pool)

average_pool_gradient = Operator(
    "average_pool_gradient",
    _infer_average_pool_gradient,
    _evaluate_average_pool_gradient,
    _average_pool_gradient_rule,
    traits=LIBRARY,
    doc="Gradient of the mean of each window: the operand shared out evenly over its window, and added up.",
    admits=FLOATING,
    work=_work(y=0),
    batch=_batch,
)
register(average_pool_gradient)
