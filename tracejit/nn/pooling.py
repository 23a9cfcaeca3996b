"""Pooling: the maximum or the mean of windows, under PyTorch's names.

Lines are (batch, channels, length), images (batch, channels, height, width), volumes (batch, channels, depth,
height, width). Windows, strides and paddings are an integer for all dimensions or one for each; a padding may
also be a pair for each: ((top, bottom), (left, right)).
"""

from __future__ import annotations

from typing import Any

from tracejit import ops
from tracejit.errors import ArgumentError, ShapeError, locate
from tracejit.frontend.arrays import dispatch
from tracejit.frontend.arrays.functions import reductions
from tracejit.frontend.arrays.functions.linear import matmul
from tracejit.frontend.arrays.functions.manipulation import moveaxis, reshape
from tracejit.frontend.arrays.functions.movement import stack
from tracejit.frontend.arrays.functions.ranges import arange
from tracejit.frontend.arrays.ndarray import NDArray
from tracejit.frontend.arrays.views import dropped, expanded
from tracejit.frontend.recording.location import user_location
from tracejit.nn.common import floating, floats
from tracejit.nn.windows import check_batch, padding_pairs, per_dimension


def _pool(op: Any, name: str, x: Any, window: Any, stride: Any, padding: Any) -> Any:
    extents = per_dimension(f"{name}: window", window, 2)
    return dispatch.emit(
        op,
        *floats(name, x),
        window=extents,
        stride=extents if stride is None else per_dimension(f"{name}: stride", stride, 2),
        padding=padding_pairs(f"{name}: padding", padding, 2),
    )


def _pool_lines(op: Any, name: str, x: Any, window: Any, stride: Any, padding: Any) -> Any:
    lines = floating(name, x)
    check_batch(name, lines, 1)
    extents = per_dimension(f"{name}: window", window, 1)
    strides = extents if stride is None else per_dimension(f"{name}: stride", stride, 1)
    sides = padding_pairs(f"{name}: padding", padding, 1)
    return dropped(_pool(op, name, expanded(lines, 2), (1, *extents), (1, *strides), ((0, 0), *sides)), 2)


def _pool_volumes(op: Any, name: str, x: Any, window: Any, stride: Any, padding: Any) -> Any:
    """Pool the image at each depth, and then along the depth: the window is the product of the two."""
    volumes = floating(name, x)
    check_batch(name, volumes, 3)
    extents = per_dimension(f"{name}: window", window, 3)
    strides = extents if stride is None else per_dimension(f"{name}: stride", stride, 3)
    depth, *sides = padding_pairs(f"{name}: padding", padding, 3)
    batch, channels, deep, *image = volumes.shape
    images = reshape(volumes, (batch, channels * deep, *image))
    images = _pool(op, name, images, extents[1:], strides[1:], tuple(sides))
    height, width = images.shape[2:]
    lines = reshape(images, (batch, channels, deep, height * width))
    lines = _pool(op, name, lines, (extents[0], 1), (strides[0], 1), (depth, (0, 0)))
    return reshape(lines, (batch, channels, lines.shape[2], height, width))


def max_pool2d(x: Any, window: Any, /, *, stride: Any = None, padding: Any = 0) -> NDArray:
    """Return the maximum of every window of images; by default `stride` is the window, so that windows tile.

    x: (batch, channels, height, width). Padding must be smaller than the window, and is never the maximum;
    nan is propagated. The gradient goes to the first of equal elements, in row-major order, as in PyTorch.
    Returns (batch, channels, height, width), with extents of ``(extent + padding - window) // stride + 1``.
    Raises ShapeError for other dimensions or a window larger than the padded image, ArgumentError for an
    argument that is not an integer or a pair.

    >>> import tracejit as tj
    >>> tj.nn.max_pool2d(tj.reshape(tj.arange(16, dtype=tj.float32), (1, 1, 4, 4)), 2)
    NDArray([[[[ 5.,  7.],
               [13., 15.]]]], dtype=float32)
    """
    return _pool(ops.max_pool, "nn.max_pool2d", x, window, stride, padding)


def avg_pool2d(x: Any, window: Any, /, *, stride: Any = None, padding: Any = 0) -> NDArray:
    """Return the mean of every window of images; by default `stride` is the window, so that windows tile.

    x: (batch, channels, height, width). Padding must be smaller than the window, and counts as zeros.
    Returns (batch, channels, height, width), with extents of ``(extent + padding - window) // stride + 1``.
    Raises ShapeError for other dimensions or a window larger than the padded image, ArgumentError for an
    argument that is not an integer or a pair.

    >>> import tracejit as tj
    >>> tj.nn.avg_pool2d(tj.reshape(tj.arange(16, dtype=tj.float32), (1, 1, 4, 4)), 2)
    NDArray([[[[ 2.5,  4.5],
               [10.5, 12.5]]]], dtype=float32)
    """
    return _pool(ops.average_pool, "nn.avg_pool2d", x, window, stride, padding)


def max_pool1d(x: Any, window: Any, /, *, stride: Any = None, padding: Any = 0) -> NDArray:
    """Return the maximum of every window of lines, (batch, channels, length); see `max_pool2d`.

    Returns (batch, channels, length).
    Raises ShapeError for other dimensions or a window larger than the padded line, ArgumentError for an
    argument that is not an integer.

    >>> import tracejit as tj
    >>> tj.nn.max_pool1d(tj.asarray([[[1.0, 3.0, 2.0, 0.0]]]), 2)
    NDArray([[[3., 2.]]], dtype=float32)
    """
    return _pool_lines(ops.max_pool, "nn.max_pool1d", x, window, stride, padding)


def avg_pool1d(x: Any, window: Any, /, *, stride: Any = None, padding: Any = 0) -> NDArray:
    """Return the mean of every window of lines, (batch, channels, length); see `avg_pool2d`.

    Returns (batch, channels, length).
    Raises ShapeError for other dimensions or a window larger than the padded line, ArgumentError for an
    argument that is not an integer.

    >>> import tracejit as tj
    >>> tj.nn.avg_pool1d(tj.asarray([[[1.0, 3.0, 2.0, 0.0]]]), 2)
    NDArray([[[2., 1.]]], dtype=float32)
    """
    return _pool_lines(ops.average_pool, "nn.avg_pool1d", x, window, stride, padding)


def max_pool3d(x: Any, window: Any, /, *, stride: Any = None, padding: Any = 0) -> NDArray:
    """Return the maximum of every window of volumes, (batch, channels, depth, height, width); see
    `max_pool2d`.

    The gradient goes to one of equal elements, at the first depth that has one.
    Returns (batch, channels, depth, height, width).
    Raises ShapeError for other dimensions or a window larger than the padded volume, ArgumentError for an
    argument that is not an integer or three integers.

    >>> import tracejit as tj
    >>> tj.nn.max_pool3d(tj.reshape(tj.arange(8, dtype=tj.float32), (1, 1, 2, 2, 2)), (1, 2, 2)).ravel()
    NDArray([3., 7.], dtype=float32)
    """
    return _pool_volumes(ops.max_pool, "nn.max_pool3d", x, window, stride, padding)


def avg_pool3d(x: Any, window: Any, /, *, stride: Any = None, padding: Any = 0) -> NDArray:
    """Return the mean of every window of volumes, (batch, channels, depth, height, width); see `avg_pool2d`.

    Returns (batch, channels, depth, height, width).
    Raises ShapeError for other dimensions or a window larger than the padded volume, ArgumentError for an
    argument that is not an integer or three integers.

    >>> import tracejit as tj
    >>> tj.nn.avg_pool3d(tj.reshape(tj.arange(8, dtype=tj.float32), (1, 1, 2, 2, 2)), 2)
    NDArray([[[[[3.5]]]]], dtype=float32)
    """
    return _pool_volumes(ops.average_pool, "nn.avg_pool3d", x, window, stride, padding)


# ---- to a given extent


def adaptive_avg_pool1d(x: Any, size: Any, /) -> NDArray:
    """Return the means of `size` windows that cover lines as evenly as possible; see `adaptive_avg_pool2d`.

    x: (batch, channels, length). Returns (batch, channels, size).
    Raises ShapeError for other dimensions, ArgumentError for a size that is not a positive integer.

    >>> import tracejit as tj
    >>> tj.nn.adaptive_avg_pool1d(tj.asarray([[[1.0, 2.0, 3.0]]]), 2)
    NDArray([[[1.5, 2.5]]], dtype=float32)
    """
    return _adaptive("nn.adaptive_avg_pool1d", x, size, 1)


def adaptive_avg_pool2d(x: Any, size: Any, /) -> NDArray:
    """Return the means of `size` windows (an integer or a pair) that cover images as evenly as possible.

    Window i of n extends from ``i * extent // n`` to ``ceil((i + 1) * extent / n)``, as in PyTorch.
    x: (batch, channels, height, width). Returns (batch, channels, *size).
    Raises ShapeError for other dimensions, ArgumentError for sizes that are not positive integers.

    >>> import tracejit as tj
    >>> tj.nn.adaptive_avg_pool2d(tj.reshape(tj.arange(16, dtype=tj.float32), (1, 1, 4, 4)), 1)
    NDArray([[[[7.5]]]], dtype=float32)
    """
    return _adaptive("nn.adaptive_avg_pool2d", x, size, 2)


def adaptive_avg_pool3d(x: Any, size: Any, /) -> NDArray:
    """Return the means of `size` windows (one or three integers) that cover volumes; see
    `adaptive_avg_pool2d`.

    x: (batch, channels, depth, height, width). Returns (batch, channels, *size).
    Raises ShapeError for other dimensions, ArgumentError for sizes that are not positive integers.

    >>> import tracejit as tj
    >>> tj.nn.adaptive_avg_pool3d(tj.reshape(tj.arange(8, dtype=tj.float32), (1, 1, 2, 2, 2)), 1)
    NDArray([[[[[3.5]]]]], dtype=float32)
    """
    return _adaptive("nn.adaptive_avg_pool3d", x, size, 3)


def adaptive_max_pool1d(x: Any, size: Any, /) -> NDArray:
    """Return the maxima of `size` windows that cover lines; see `adaptive_avg_pool2d`.

    x: (batch, channels, length). Returns (batch, channels, size).
    Raises ShapeError for other dimensions, ArgumentError for a size that is not a positive integer.

    >>> import tracejit as tj
    >>> tj.nn.adaptive_max_pool1d(tj.asarray([[[1.0, 2.0, 3.0]]]), 2)
    NDArray([[[2., 3.]]], dtype=float32)
    """
    return _adaptive_max("nn.adaptive_max_pool1d", x, size, 1)


def adaptive_max_pool2d(x: Any, size: Any, /) -> NDArray:
    """Return the maxima of `size` windows (an integer or a pair) that cover images; see
    `adaptive_avg_pool2d`.

    x: (batch, channels, height, width). Returns (batch, channels, *size).
    Raises ShapeError for other dimensions, ArgumentError for sizes that are not positive integers.

    >>> import tracejit as tj
    >>> tj.nn.adaptive_max_pool2d(tj.reshape(tj.arange(16, dtype=tj.float32), (1, 1, 4, 4)), (1, 2))
    NDArray([[[[13., 15.]]]], dtype=float32)
    """
    return _adaptive_max("nn.adaptive_max_pool2d", x, size, 2)


def adaptive_max_pool3d(x: Any, size: Any, /) -> NDArray:
    """Return the maxima of `size` windows (one or three integers) that cover volumes; see
    `adaptive_avg_pool2d`.

    x: (batch, channels, depth, height, width). Returns (batch, channels, *size).
    Raises ShapeError for other dimensions, ArgumentError for sizes that are not positive integers.

    >>> import tracejit as tj
    >>> tj.nn.adaptive_max_pool3d(tj.reshape(tj.arange(8, dtype=tj.float32), (1, 1, 2, 2, 2)), 1)
    NDArray([[[[[7.]]]]], dtype=float32)
    """
    return _adaptive_max("nn.adaptive_max_pool3d", x, size, 3)


def _sizes(name: str, x: Any, size: Any, count: int) -> tuple[Any, tuple[int, ...]]:
    """Return x as a floating array of (batch, channels) and `count` more dimensions, and their new
    extents.
    """
    array = floating(name, x)
    check_batch(name, array, count)
    sizes = per_dimension(f"{name}: size", size, count)
    if min(sizes) < 1 or 0 in array.shape[2:]:
        message = f"{name}: sizes {sizes} of an array of shape {array.shape} must be positive integers"
        raise locate(ArgumentError(message), user_location())
    return array, sizes


def _adaptive_max(name: str, x: Any, size: Any, count: int) -> Any:
    """Compute the maxima along each of the last dimensions."""
    array, sizes = _sizes(name, x, size, count)
    for axis, new_extent in enumerate(sizes, 2):
        extent = array.shape[axis]
        if extent != new_extent:
            ends = [(i * extent // new_extent, -(-(i + 1) * extent // new_extent)) for i in range(new_extent)]
            before = (slice(None),) * axis
            windows = [array[(*before, slice(first, last))] for first, last in ends]
            array = stack([reductions.max(window, axis=axis) for window in windows], axis=axis)
    return array


def _adaptive(name: str, x: Any, size: Any, count: int) -> Any:
    """Compute the means along each of the last dimensions, as products with weight matrices."""
    array, sizes = _sizes(name, x, size, count)
    for axis, new_extent in enumerate(sizes, 2):
        if array.shape[axis] != new_extent:
            weights = _mean_weights(array.shape[axis], new_extent, array)
            array = moveaxis(matmul(moveaxis(array, axis, -1), weights), -1, axis)
    return array


def _mean_weights(extent: int, size: int, like: Any) -> Any:
    """Return a matrix (extent, size) with the weight of each element in the mean of each window, in the dtype
    of `like`.
    """
    dtype, device = like.dtype, like.device
    window, position = arange(size, device=device), arange(extent, device=device)[:, None]
    first, last = window * extent // size, ((window + 1) * extent + size - 1) // size
    inside = dispatch.cast((position >= first) & (position < last), dtype)
    return inside / dispatch.cast(last - first, dtype)


def _with_spatial_axes(name: str, x: Any) -> tuple[Any, tuple[int, ...]]:
    """Return x as an array (batch, channels, ...), and its spatial axes."""
    array = dispatch.as_array(name, x)
    if array.ndim < 3:
        raise locate(
            ShapeError(f"{name}: x needs three or more dimensions (batch, channels, ...), got {array.shape}"),
            user_location(),
        )
    return array, tuple(range(2, array.ndim))


def global_avg_pool(x: Any, /) -> NDArray:
    """Return the mean of each channel over all positions.

    x: (batch, channels, ...), of three or more dimensions. Returns (batch, channels).
    Raises ShapeError for fewer dimensions.

    >>> import tracejit as tj
    >>> tj.nn.global_avg_pool(tj.ones((2, 3, 4, 4))).shape
    (2, 3)
    """
    return reductions.mean(*_with_spatial_axes("nn.global_avg_pool", x))


def global_max_pool(x: Any, /) -> NDArray:
    """Return the maximum of each channel over all positions.

    x: (batch, channels, ...), of three or more dimensions. Returns (batch, channels).
    Raises ShapeError for fewer dimensions, or if a channel has no elements.

    >>> import tracejit as tj
    >>> tj.nn.global_max_pool(tj.asarray([[[1.0, 5.0, 2.0]]]))
    NDArray([[5.]], dtype=float32)
    """
    return reductions.max(*_with_spatial_axes("nn.global_max_pool", x))


__all__ = [
    "adaptive_avg_pool1d",
    "adaptive_avg_pool2d",
    "adaptive_avg_pool3d",
    "adaptive_max_pool1d",
    "adaptive_max_pool2d",
    "adaptive_max_pool3d",
    "avg_pool1d",
    "avg_pool2d",
    "avg_pool3d",
    "global_avg_pool",
    "global_max_pool",
    "max_pool1d",
    "max_pool2d",
    "max_pool3d",
]
