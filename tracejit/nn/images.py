"""Functions of batches of images: convolution and pooling, under PyTorch's names.

Images are (batch, channels, height, width). Strides, paddings, dilations and windows are an integer for both
dimensions or a pair (vertical, horizontal); a padding may also be ((top, bottom), (left, right)).

Convolution and pooling are operators. A mean over all places, `x.mean(axis=(2, 3))`, is what other libraries
call global average pooling.
"""

from __future__ import annotations

from typing import Any

from tracejit import ops
from tracejit.errors import ArgumentError, locate
from tracejit.frontend.arrays import dispatch
from tracejit.frontend.arrays.axes import integer
from tracejit.frontend.arrays.ndarray import NDArray
from tracejit.frontend.recording.location import user_location
from tracejit.nn.common import by_channel, floats

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
    images, kernel, shift = floats("nn.conv2d", x, weight, bias)
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
    return result if shift is None else result + by_channel("nn.conv2d", "bias", shift, result)


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
        *floats(name, x),
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


__all__ = ["avg_pool2d", "conv2d", "max_pool2d"]
