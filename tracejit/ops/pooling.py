"""Maximum and average pooling over windows of images, and the operators of their gradients.

    max_pool(x)                 y[n, c, i] = the largest element of window i of x
    max_pool_gradient(x, y)     y[n, c, i] added at the position of that element, the first of equal ones
    max_pool_select(x, z)       the element of z at the position of the largest element of each window of x
    average_pool(x)             the mean of each window; positions beyond the borders count as zeros
    average_pool_gradient(y)    y[n, c, i] / (elements of a window) added to every element of window i

Padding is never the largest element of a window, and is smaller than the window, so every window contains an
element of the image. A nan is larger than all numbers, as in PyTorch. Gradients search x again instead of
storing positions: x is retained anyway for the gradient of the operator that produced it, and positions would
need another array.

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
from tracejit.ops.convolution import IntPair, Padding, check_images, check_steps, padded, windows_along
from tracejit.ops.rules import FLOATING, check_count, describe_types
from tracejit.ops.symbolic import Operator, Sym, SymNode


def _pooled(
    name: str, x: Sequence[int], window: IntPair, stride: IntPair, padding: Padding
) -> tuple[int, ...]:
    """The shape of the result of pooling an array of shape `x`; raises ShapeError if no window fits."""
    check_steps(name, padding, window=window, stride=stride)
    if any(max(pair) >= n for pair, n in zip(padding, window, strict=True)):
        raise ArgumentError(f"{name}: padding {padding} must be smaller than the window {window}")
    extents = [windows_along(*geometry) for geometry in zip(x[2:], window, stride, padding, strict=True)]
    if min(extents) < 1:
        raise ShapeError(
            f"{name} of an array {tuple(x)}: the window {window} is larger than the padded array"
        )
    return (*x[:2], *extents)


def _infer_pool(name: str) -> Any:
    def infer(*types: ArrayType, window: IntPair, stride: IntPair, padding: Padding) -> ArrayType:
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
        raise ShapeError(f"max_pool_select got arrays of different shapes: {describe_types(types)}")
    return ArrayType(_pooled("max_pool_select", x.shape, **attrs), x.dtype, x.device)


def _infer_average_pool_gradient(*types: ArrayType, extents: IntPair, **attrs: Any) -> ArrayType:
    check_count("average_pool_gradient", types, 1)
    check_images("average_pool_gradient", types)
    (y,) = types
    shape = (*y.shape[:2], *extents)
    expected = _pooled("average_pool_gradient", shape, **attrs)
    if y.shape != expected:
        raise ShapeError(f"average_pool_gradient got {y} for windows of shape {expected}")
    return ArrayType(shape, y.dtype, y.device)


# ---- reference evaluation with NumPy


def _windows(x: np.ndarray, window: IntPair, stride: IntPair) -> np.ndarray:
    """All windows of `x`, each flattened: (batch, channels, out height, out width, elements)."""
    windows = np.lib.stride_tricks.sliding_window_view(x, window, axis=(2, 3))[
        :, :, :: stride[0], :: stride[1]
    ]
    return windows.reshape(*windows.shape[:4], window[0] * window[1])


def _first_largest(x: np.ndarray, window: IntPair, stride: IntPair, padding: Padding) -> np.ndarray:
    """The index, into the flattened `x`, of the first largest element of each window."""
    values = _windows(padded(x, padding, -np.inf), window, stride)
    indices = np.arange(x.size).reshape(x.shape)
    positions = _windows(padded(indices, padding, -1), window, stride)
    is_largest = (positions >= 0) & ((values == values.max(axis=-1, keepdims=True)) | np.isnan(values))
    return np.take_along_axis(positions, is_largest.argmax(axis=-1)[..., None], -1)[..., 0]


def _evaluate_max_pool(x: np.ndarray, **attrs: Any) -> np.ndarray:
    return x.reshape(-1)[_first_largest(x, **attrs)]


def _evaluate_max_pool_gradient(x: np.ndarray, y: np.ndarray, **attrs: Any) -> np.ndarray:
    result = np.zeros(x.shape, x.dtype)
    np.add.at(result.reshape(-1), _first_largest(x, **attrs), y)
    return result


def _evaluate_average_pool(
    x: np.ndarray, *, window: IntPair, stride: IntPair, padding: Padding
) -> np.ndarray:
    return _windows(padded(x, padding), window, stride).mean(axis=-1, dtype=x.dtype)


def _evaluate_average_pool_gradient(
    y: np.ndarray, *, extents: IntPair, window: IntPair, stride: IntPair, padding: Padding
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
    """The attributes that all pooling operators share."""
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
    """Return an `Op.work` function that counts the elements of all windows.

    `y` is the position, among the shapes of operands and result, of the array with one element per window.
    """
    return lambda shapes, attrs: math.prod(shapes[y]) * math.prod(attrs["window"])


def _batch(node: BatchNode) -> Sym:
    """Batching of all pooling operators: the images of all examples form one batch."""
    size, images = (
        node.size,
        [x.reshape((x.shape[0] * x.shape[1], *x.shape[2:])) for x in node.mapped_operands()],
    )
    result = node.apply(*images)
    return result.reshape((size, result.shape[0] // size, *result.shape[1:]))


LIBRARY = frozenset({Trait.LIBRARY})

max_pool = Operator(
    "max_pool",
    _infer_pool("max_pool"),
    _evaluate_max_pool,
    _max_pool_rule,
    traits=LIBRARY | {Trait.EXACT},
    doc="The largest element of each window of images; nan if any is nan.",
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
    doc="The second operand, added at the first largest element of each window of the first operand.",
    admits=FLOATING,
    work=_work(y=1),
    batch=_batch,
)
register(max_pool_gradient)

max_pool_select = Operator(
    "max_pool_select",
    _infer_max_pool_select,
    lambda x, z, **attrs: z.reshape(-1)[_first_largest(x, **attrs)],
    _max_pool_select_rule,
    traits=LIBRARY | {Trait.EXACT},
    doc="Elements of the second operand at the first largest element of each window of the first operand.",
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
    doc="Gradient of the mean of each window: each element is distributed evenly over its window.",
    admits=FLOATING,
    work=_work(y=0),
    batch=_batch,
)
register(average_pool_gradient)
