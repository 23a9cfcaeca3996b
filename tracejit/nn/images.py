"""Functions of batches of images: convolution, pooling and normalisation, under PyTorch's names.

Images are (batch, channels, height, width). Strides, paddings, dilations and windows are an integer for both
dimensions or a pair (vertical, horizontal); a padding may also be ((top, bottom), (left, right)).

Convolution and pooling are operators; the norms are composed, and fuse with neighbouring operations. A
mean over all places, `x.mean(axis=(2, 3))`, is what other libraries call global average pooling.
"""

from __future__ import annotations

from typing import Any

from tracejit import ops
from tracejit.errors import ArgumentError, ShapeError, locate
from tracejit.frontend.arrays import dispatch, promotion
from tracejit.frontend.arrays.axes import integer
from tracejit.frontend.arrays.core import ArrayCore
from tracejit.frontend.arrays.functions import reductions
from tracejit.frontend.arrays.functions.manipulation import reshape
from tracejit.frontend.arrays.ndarray import NDArray
from tracejit.frontend.recording.location import user_location

Pair = tuple[int, int]


def _pair(name: str, value: Any) -> Pair:
    """An integer, twice, or a pair of integers."""
    if not isinstance(value, tuple | list):
        value = (value, value)
    if len(value) != 2:
        raise locate(ArgumentError(f"{name}: expected an integer or a pair, got {value}"), user_location())
    return integer(name, value[0]), integer(name, value[1])


def _padding(name: str, value: Any) -> tuple[Pair, Pair]:
    """Elements around an image: ((top, bottom), (left, right))."""
    if isinstance(value, tuple | list) and any(isinstance(side, tuple | list) for side in value):
        if len(value) != 2:
            raise locate(
                ArgumentError(f"{name}: expected ((top, bottom), (left, right)), got {value}"),
                user_location(),
            )
        return _pair(name, value[0]), _pair(name, value[1])
    down, across = _pair(name, value)
    return (down, down), (across, across)


def _floats(name: str, *arrays: Any) -> list[Any]:
    """`arrays` in their common floating dtype; None stays."""
    found = [None if x is None else dispatch.as_array(name, x) for x in arrays]
    dtype = promotion.floating(promotion.common_dtype(name, tuple(x for x in found if x is not None)))
    return [None if x is None else dispatch.cast(x, dtype) for x in found]


def _by_channel(name: str, what: str, x: Any, images: Any) -> Any:
    """`x`, one number for each channel of `images`, shaped to broadcast against them."""
    channels = images.shape[1]
    if x.shape != (channels,):
        raise locate(
            ShapeError(
                f"{name}: {what} has shape {x.shape}; expected ({channels},), one number for each channel"
            ),
            user_location(),
        )
    view = x._view
    for _ in range(images.ndim - 2):
        view = view.expand(len(view.shape))
    return ArrayCore.new(x._storage, view)


def conv2d(
    x: Any,
    weight: Any,
    bias: Any = None,
    /,
    *,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: Any = 1,
) -> NDArray:
    """Convolve images with `weight`: sums of products with all windows (cross-correlation, strictly).

    x:      (batch, channels, height, width), of any real dtype; float32 and float64 stay.
    weight: (out channels, channels / groups, window height, window width).
    bias:   (out channels,), or None.
    Returns (batch, out channels, height, width), with extents of
    ``(extent + padding - dilation * (window - 1) - 1) // stride + 1``; ``padding="same"`` keeps those of x
    (stride 1 only; of an odd number, the larger part goes to the end).
    Raises ShapeError if channels do not match or a window is larger than the padded image.

    >>> import tracejit as tj
    >>> x = tj.reshape(tj.arange(9, dtype=tj.float32), (1, 1, 3, 3))
    >>> tj.nn.conv2d(x, tj.ones((1, 1, 2, 2)), tj.ones(1))
    NDArray([[[[ 9., 13.],
               [21., 25.]]]], dtype=float32)
    """
    images, kernel, shift = _floats("nn.conv2d", x, weight, bias)
    steps, spread = _pair("nn.conv2d: stride", stride), _pair("nn.conv2d: dilation", dilation)
    around = _same(kernel, steps, spread) if padding == "same" else _padding("nn.conv2d: padding", padding)
    result = dispatch.emit(
        ops.conv2d,
        images,
        kernel,
        stride=steps,
        padding=around,
        dilation=spread,
        groups=integer("nn.conv2d: groups", groups),
    )
    return result if shift is None else result + _by_channel("nn.conv2d", "bias", shift, result)


def _same(weight: Any, stride: Pair, dilation: Pair) -> tuple[Pair, Pair]:
    """The padding that keeps the extents."""
    if stride != (1, 1) or weight.ndim != 4:
        raise locate(
            ArgumentError('nn.conv2d: padding="same" needs stride 1 and a weight of four dimensions'),
            user_location(),
        )
    (top, bottom), (left, right) = (
        (d * (n - 1) // 2, -(-d * (n - 1) // 2)) for n, d in zip(weight.shape[2:], dilation, strict=True)
    )
    return (top, bottom), (left, right)


def _pool(op: Any, name: str, x: Any, window: Any, stride: Any, padding: Any) -> Any:
    extents = _pair(f"{name}: window", window)
    return dispatch.emit(
        op,
        *_floats(name, x),
        window=extents,
        stride=extents if stride is None else _pair(f"{name}: stride", stride),
        padding=_padding(f"{name}: padding", padding),
    )


def max_pool2d(x: Any, window: Any, /, *, stride: Any = None, padding: Any = 0) -> NDArray:
    """The largest element of every window of images; `stride` is the window by default, so that they tile.

    x: (batch, channels, height, width). Padding, smaller than the window, is never the largest. A nan is. The
    gradient goes to the first of equal elements, in the order of rows, as in PyTorch.
    Returns (batch, channels, height, width), with extents of ``(extent + padding - window) // stride + 1``.
    Raises ShapeError for other dimensions or a window larger than the padded image, ArgumentError for what is
    no integer or pair.

    >>> import tracejit as tj
    >>> tj.nn.max_pool2d(tj.reshape(tj.arange(16, dtype=tj.float32), (1, 1, 4, 4)), 2)
    NDArray([[[[ 5.,  7.],
               [13., 15.]]]], dtype=float32)
    """
    return _pool(ops.max_pool, "nn.max_pool2d", x, window, stride, padding)


def avg_pool2d(x: Any, window: Any, /, *, stride: Any = None, padding: Any = 0) -> NDArray:
    """The mean of every window of images; `stride` is the window by default, so that they tile.

    x: (batch, channels, height, width). Padding, smaller than the window, counts as zeros.
    Returns (batch, channels, height, width), with extents of ``(extent + padding - window) // stride + 1``.
    Raises ShapeError for other dimensions or a window larger than the padded image, ArgumentError for what is
    no integer or pair.

    >>> import tracejit as tj
    >>> tj.nn.avg_pool2d(tj.reshape(tj.arange(16, dtype=tj.float32), (1, 1, 4, 4)), 2)
    NDArray([[[[ 2.5,  4.5],
               [10.5, 12.5]]]], dtype=float32)
    """
    return _pool(ops.average_pool, "nn.avg_pool2d", x, window, stride, padding)


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
    """x with mean 0 and variance 1 in each channel (the second dimension), times `weight` plus `bias`.

    x: two or more dimensions; all others have the shape (channels,). With ``training=True`` mean and variance
    are those of x, and the running ones, if passed, move towards them in place: ``r += momentum * (now -
    r)``, with the unbiased variance. Otherwise mean and variance are the running ones, which must be passed.

    Ioffe and Szegedy, Batch normalization, 2015; arguments as in PyTorch.
    Returns an array of x's shape.
    Raises ShapeError if a shape does not fit, ArgumentError without running statistics where they are needed.

    >>> import tracejit as tj
    >>> x, mean, var = tj.asarray([[1.0], [3.0]]), tj.zeros(1), tj.ones(1)
    >>> tj.nn.batch_norm(x, mean, var, training=True, epsilon=0.0), mean, var
    (NDArray([[-1.],
             [ 1.]], dtype=float32), NDArray([0.2], dtype=float32), NDArray([1.1], dtype=float32))
    """
    name = "nn.batch_norm"
    images, scale, shift = _floats(name, x, weight, bias)
    if images.ndim < 2 or not images.size:
        raise locate(
            ShapeError(f"{name}: x needs two or more dimensions and elements, got {images.shape}"),
            user_location(),
        )
    if training:
        axes = (0, *range(2, images.ndim))
        mean = reductions.mean(images, axes, keepdims=True)
        deviation = images - mean
        variance = reductions.mean(deviation * deviation, axes, keepdims=True)
        count = images.size // images.shape[1]
        _move(f"{name}: running_mean", running_mean, mean, momentum)
        _move(f"{name}: running_var", running_var, variance * (count / max(count - 1, 1)), momentum)
    else:
        if running_mean is None or running_var is None:
            raise locate(
                ArgumentError(f"{name}: without training=True it needs running_mean and running_var"),
                user_location(),
            )
        mean, variance = (
            _by_channel(name, what, _floats(name, r)[0], images)
            for what, r in (("running_mean", running_mean), ("running_var", running_var))
        )
        deviation = images - mean
    factor = 1 / dispatch.apply(ops.sqrt, variance + epsilon)
    if scale is not None:
        factor = factor * _by_channel(name, "weight", scale, images)
    result = deviation * factor
    return result if shift is None else result + _by_channel(name, "bias", shift, images)


def _move(name: str, running: Any, now: Any, momentum: Any) -> None:
    """Move a running statistic towards the one of this batch, in place."""
    if running is None:
        return
    if not isinstance(running, ArrayCore) or running.size != now.size or running.ndim != 1:
        raise locate(
            ShapeError(f"{name} must be an NDArray of shape ({now.size},), which is written in place"),
            user_location(),
        )
    running += (dispatch.emit(ops.stop_gradient, reshape(now, (now.size,))) - running) * momentum


def local_response_norm(
    x: Any, size: Any, /, *, alpha: Any = 1e-4, beta: Any = 0.75, k: Any = 1.0
) -> NDArray:
    """x / (k + alpha * m) ** beta, where m is the mean square of `size` neighbouring channels.

    x: (batch, channels, height, width). Channels beyond the first and last count as zeros. Krizhevsky,
    Sutskever and Hinton, ImageNet classification with deep convolutional neural networks, 2012; they have a
    sum instead of the mean, so alpha is `size` times theirs, as in PyTorch.
    Returns an array of x's shape.
    Raises ShapeError for other dimensions, ArgumentError for a size that is no integer.

    >>> import tracejit as tj
    >>> tj.nn.local_response_norm(tj.ones((1, 2, 1, 1)), 2, alpha=2.0, beta=1.0).numpy().reshape(-1)
    array([0.5       , 0.33333334], dtype=float32)
    """
    name = "nn.local_response_norm"
    (images,) = _floats(name, x)
    if images.ndim != 4:
        raise locate(ShapeError(f"{name}: x needs four dimensions, got {images.shape}"), user_location())
    batch, channels, height, width = images.shape
    count = integer(f"{name}: size", size)
    lines = reshape(images * images, (batch, 1, channels, height * width))
    around = ((count // 2, (count - 1) // 2), (0, 0))
    mean = _pool(ops.average_pool, name, lines, (count, 1), 1, around)
    return images / (reshape(mean, images.shape) * alpha + k) ** beta


__all__ = ["avg_pool2d", "batch_norm", "conv2d", "local_response_norm", "max_pool2d"]
