"""Normalization: over a batch, over the features of an example, over groups of channels, across channels.

The functions are composed of means and elementwise functions, which fuse with neighbouring operations; a norm
over the last axis is one kernel over rows. Variances are means of squared deviations from the mean, in two
passes, which avoids cancellation. For half dtypes they are computed in float32, which can represent the
squares.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tracejit import ops
from tracejit.errors import ArgumentError, ShapeError, locate
from tracejit.frontend.arrays import dispatch
from tracejit.frontend.arrays.axes import integer, normalize_axes
from tracejit.frontend.arrays.core import ArrayCore
from tracejit.frontend.arrays.functions import reductions
from tracejit.frontend.arrays.functions.manipulation import reshape
from tracejit.frontend.arrays.ndarray import NDArray
from tracejit.frontend.recording.location import user_location
from tracejit.nn.common import by_channel, check_shape, floats, singles
from tracejit.nn.pooling import avg_pool2d


def _moments(x: Any, axes: Sequence[int]) -> tuple[Any, Any, Any]:
    """Return the deviations from the mean over axes, the mean, and the variance; both retain the axes."""
    mean = reductions.mean(x, axes, keepdims=True)
    deviation = x - mean
    return deviation, mean, reductions.mean(deviation * deviation, axes, keepdims=True)


def _scaled(name: str, x: Any, deviation: Any, factor: Any, weight: Any, bias: Any) -> Any:
    """Return ``deviation * factor``, times a weight and plus a bias for each channel of `x`."""
    if weight is not None:
        factor = factor * by_channel(name, "weight", weight, x)
    result = deviation * factor
    return result if bias is None else result + by_channel(name, "bias", bias, x)


def batch_norm(
    x: Any,
    running_mean: Any = None,
    running_var: Any = None,
    weight: Any = None,
    bias: Any = None,
    /,
    *,
    training: bool = False,
    momentum: Any = 0.1,
    epsilon: Any = 1e-5,
) -> NDArray:
    """Normalize each channel (the second dimension) to mean 0 and variance 1, times `weight` plus `bias`.

    x: two or more dimensions; the other operands have the shape (channels,). With ``training=True`` the mean
    and variance are those of x, and the running statistics, if passed, are updated in place:
    ``r += momentum * (new - r)``, with the unbiased variance. Otherwise the mean and variance are the running
    statistics, which must be passed.

    Ioffe and Szegedy, Batch normalization, 2015; arguments as in PyTorch.
    Returns an array of x's shape.
    Raises ShapeError if a shape does not match, ArgumentError if running statistics are needed but missing.

    >>> import tracejit as tj
    >>> x, mean, var = tj.asarray([[1.0], [3.0]]), tj.zeros(1), tj.ones(1)
    >>> tj.nn.batch_norm(x, mean, var, training=True, epsilon=0.0), mean, var
    (NDArray([[-1.],
             [ 1.]], dtype=float32), NDArray([0.2], dtype=float32), NDArray([1.1], dtype=float32))
    """
    name = "nn.batch_norm"
    dtype, (images, scale, shift) = singles(name, x, weight, bias)
    if images.ndim < 2 or not images.size:
        raise locate(
            ShapeError(f"{name}: x needs two or more dimensions and elements, got {images.shape}"),
            user_location(),
        )
    if training:
        deviation, mean, variance = _moments(images, (0, *range(2, images.ndim)))
        count = images.size // images.shape[1]
        _update_running(f"{name}: running_mean", running_mean, mean, momentum)
        _update_running(f"{name}: running_var", running_var, variance * (count / max(count - 1, 1)), momentum)
    else:
        if running_mean is None or running_var is None:
            raise locate(
                ArgumentError(f"{name}: without training=True it needs running_mean and running_var"),
                user_location(),
            )
        mean, variance = (
            by_channel(name, what, floats(name, r)[0], images)
            for what, r in (("running_mean", running_mean), ("running_var", running_var))
        )
        deviation = images - mean
    factor = 1 / dispatch.apply(ops.sqrt, variance + epsilon)
    return dispatch.cast(_scaled(name, images, deviation, factor, scale, shift), dtype)


def _update_running(name: str, running: Any, new: Any, momentum: Any) -> None:
    """Update a running statistic by that of this batch, in place."""
    if running is None:
        return
    if not isinstance(running, ArrayCore) or running.size != new.size or running.ndim != 1:
        raise locate(
            ShapeError(f"{name} must be an NDArray of shape ({new.size},), which is written in place"),
            user_location(),
        )
    running += (dispatch.emit(ops.stop_gradient, reshape(new, (new.size,))) - running) * momentum


def local_response_norm(
    x: Any, size: Any, /, *, alpha: Any = 1e-4, beta: Any = 0.75, k: Any = 1.0
) -> NDArray:
    """Return x / (k + alpha * m) ** beta, where m is the mean square of `size` neighbouring channels.

    x: (batch, channels, height, width). Channels beyond the first and last count as zeros. Krizhevsky,
    Sutskever and Hinton, ImageNet classification with deep convolutional neural networks, 2012; they use a
    sum instead of the mean, so this alpha is `size` times theirs, as in PyTorch.
    Returns an array of x's shape.
    Raises ShapeError for other dimensions, ArgumentError for a size that is not an integer.

    >>> import tracejit as tj
    >>> tj.nn.local_response_norm(tj.ones((1, 2, 1, 1)), 2, alpha=2.0, beta=1.0).numpy().reshape(-1)
    array([0.5       , 0.33333334], dtype=float32)
    """
    name = "nn.local_response_norm"
    dtype, (images,) = singles(name, x)
    if images.ndim != 4:
        raise locate(ShapeError(f"{name}: x needs four dimensions, got {images.shape}"), user_location())
    batch, channels, height, width = images.shape
    count = integer(f"{name}: size", size)
    lines = reshape(images * images, (batch, 1, channels, height * width))
    padding = ((count // 2, (count - 1) // 2), (0, 0))
    mean = avg_pool2d(lines, (count, 1), stride=1, padding=padding)
    return dispatch.cast(images / (reshape(mean, images.shape) * alpha + k) ** beta, dtype)


def _along(name: str, what: str, x: Any, array: Any, axes: tuple[int, ...]) -> Any:
    """Reshape `x`, with the extents of `array` along axes, to broadcast against `array`."""
    extents = tuple(array.shape[a] for a in axes)
    check_shape(name, what, x, extents, f"the extents of x along axes {axes}")
    return reshape(x, tuple(n if a in axes else 1 for a, n in enumerate(array.shape)))


def layer_norm(
    x: Any,
    weight: Any = None,
    bias: Any = None,
    /,
    *,
    axis: int | Sequence[int] = -1,
    epsilon: Any = 1e-5,
) -> NDArray:
    """Normalize x to mean 0 and variance 1 over `axis` (one or several), times `weight` plus `bias`.

    weight, bias: arrays of x's extents along the axes, in their order, or None.
    Ba, Kiros and Hinton, Layer normalization, 2016. Returns an array of x's shape in the common floating
    dtype.
    Raises ShapeError if a shape does not match, AxisError for an axis out of range or repeated.

    >>> import tracejit as tj
    >>> tj.nn.layer_norm(tj.asarray([[1.0, 3.0]]), epsilon=0.0)
    NDArray([[-1.,  1.]], dtype=float32)
    """
    name = "nn.layer_norm"
    dtype, (array, scale, shift) = singles(name, x, weight, bias)
    axes = normalize_axes(name, axis, array.ndim)
    deviation, _, variance = _moments(array, axes)
    result = deviation / dispatch.apply(ops.sqrt, variance + epsilon)
    if scale is not None:
        result = result * _along(name, "weight", scale, array, axes)
    if shift is not None:
        result = result + _along(name, "bias", shift, array, axes)
    return dispatch.cast(result, dtype)


def rms_norm(
    x: Any, weight: Any = None, /, *, axis: int | Sequence[int] = -1, epsilon: Any = 1e-6
) -> NDArray:
    """Divide x by the square root of its mean square over `axis` (one or several), times `weight`.

    weight: an array of x's extents along the axes, in their order, or None.
    Zhang and Sennrich, Root mean square layer normalization, 2019. Returns an array of x's shape in the
    common floating dtype.
    Raises ShapeError if a shape does not match, AxisError for an axis out of range or repeated.

    >>> import tracejit as tj
    >>> tj.nn.rms_norm(tj.asarray([3.0, 3.0]), epsilon=0.0)
    NDArray([1., 1.], dtype=float32)
    """
    name = "nn.rms_norm"
    dtype, (array, scale) = singles(name, x, weight)
    axes = normalize_axes(name, axis, array.ndim)
    mean_square = reductions.mean(array * array, axes, keepdims=True)
    result = array / dispatch.apply(ops.sqrt, mean_square + epsilon)
    if scale is not None:
        result = result * _along(name, "weight", scale, array, axes)
    return dispatch.cast(result, dtype)


def group_norm(
    x: Any, groups: Any, weight: Any = None, bias: Any = None, /, *, epsilon: Any = 1e-5
) -> NDArray:
    """Normalize each group of neighbouring channels of each example to mean 0 and variance 1.

    x: (batch, channels, ...), where `groups` divides the channels; weight, bias: (channels,), or None.
    Wu and He, Group normalization, 2018. Returns an array of x's shape in the common floating dtype.
    Raises ShapeError if a shape does not match, ArgumentError if `groups` is not an integer.

    >>> import tracejit as tj
    >>> tj.nn.group_norm(tj.asarray([[1.0, 3.0, 5.0, 5.0]]), 2, epsilon=0.0)[:, :2]
    NDArray([[-1.,  1.]], dtype=float32)
    """
    return _grouped("nn.group_norm", x, groups, weight, bias, epsilon)


def _grouped(name: str, x: Any, groups: Any, weight: Any, bias: Any, epsilon: Any) -> Any:
    """Compute `group_norm`; if `groups` is None, every channel is a group."""
    dtype, (array, scale, shift) = singles(name, x, weight, bias)
    if array.ndim < 2:
        raise locate(
            ShapeError(f"{name}: x needs two or more dimensions, got {array.shape}"), user_location()
        )
    channels = array.shape[1]
    count = channels if groups is None else integer(f"{name}: groups", groups)
    if count < 1 or channels % count:
        raise locate(
            ShapeError(f"{name}: {channels} channels cannot be split into {count} groups of equal size"),
            user_location(),
        )
    grouped = reshape(array, (array.shape[0], count, channels // count, *array.shape[2:]))
    deviation, _, variance = _moments(grouped, tuple(range(2, grouped.ndim)))
    result = reshape(deviation / dispatch.apply(ops.sqrt, variance + epsilon), array.shape)
    if scale is not None:
        result = result * by_channel(name, "weight", scale, array)
    if shift is not None:
        result = result + by_channel(name, "bias", shift, array)
    return dispatch.cast(result, dtype)


def instance_norm(x: Any, weight: Any = None, bias: Any = None, /, *, epsilon: Any = 1e-5) -> NDArray:
    """Normalize each channel of each example to mean 0 and variance 1.

    x: (batch, channels, ...), of three or more dimensions; weight, bias: (channels,), or None.
    Ulyanov et al., Instance normalization, 2016. Returns an array of x's shape in the common floating dtype.
    Raises ShapeError if a shape does not match.

    >>> import tracejit as tj
    >>> tj.nn.instance_norm(tj.asarray([[[1.0, 3.0]]]), epsilon=0.0)
    NDArray([[[-1.,  1.]]], dtype=float32)
    """
    return _grouped("nn.instance_norm", x, None, weight, bias, epsilon)


__all__ = ["batch_norm", "group_norm", "instance_norm", "layer_norm", "local_response_norm", "rms_norm"]
