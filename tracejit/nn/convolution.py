"""Convolution of lines, images and volumes, and its transpose, under PyTorch's names.

Lines are (batch, channels, length), images (batch, channels, height, width), volumes (batch, channels, depth,
height, width). Strides, paddings and dilations are an integer for all dimensions or a tuple with one for
each; a padding may also be a tuple of pairs, ((top, bottom), (left, right)) for images.

The operator convolves images. A line is an image of height 1. A volume is converted to images in which the
depth of the window is a factor of the channels. The transpose is the gradient of a convolution with respect
to its input.
"""

from __future__ import annotations

from typing import Any

from tracejit import ops
from tracejit.errors import ArgumentError, ShapeError, locate
from tracejit.frontend.arrays import dispatch
from tracejit.frontend.arrays.axes import integer
from tracejit.frontend.arrays.functions.creation import zeros
from tracejit.frontend.arrays.functions.manipulation import moveaxis, reshape
from tracejit.frontend.arrays.functions.movement import stack
from tracejit.frontend.arrays.ndarray import NDArray
from tracejit.frontend.arrays.views import dropped, expanded
from tracejit.frontend.recording.location import user_location
from tracejit.nn.common import by_channel, check_dimensions, floats
from tracejit.nn.windows import PaddingPairs, check_batch, padded, padding_pairs, per_dimension


def _padding(
    name: str, padding: Any, weight: Any, stride: tuple[int, ...], dilation: tuple[int, ...]
) -> PaddingPairs:
    """Return the padding as pairs; "same" preserves the extents, with the extra element of an odd total at
    the end.
    """
    count = len(stride)
    if padding != "same":
        return padding_pairs(f"{name}: padding", padding, count)
    if any(s != 1 for s in stride) or weight.ndim != count + 2:
        dimensions = {3: "three", 4: "four", 5: "five"}[count + 2]
        raise locate(
            ArgumentError(f'{name}: padding="same" needs stride 1 and a weight of {dimensions} dimensions'),
            user_location(),
        )
    spans = [d * (n - 1) for n, d in zip(weight.shape[2:], dilation, strict=True)]
    return tuple((span // 2, span - span // 2) for span in spans)


def _biased(name: str, result: Any, bias: Any) -> Any:
    return result if bias is None else result + by_channel(name, "bias", bias, result)


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
    """Convolve images with `weight`: sum the products with every window (strictly, a cross-correlation).

    x:      (batch, channels, height, width), of any real dtype; float32 and float64 are preserved.
    weight: (out channels, channels / groups, window height, window width).
    bias:   (out channels,), or None.
    Returns (batch, out channels, height, width), with extents of
    ``(extent + padding - dilation * (window - 1) - 1) // stride + 1``; ``padding="same"`` preserves those of
    x (stride 1 only; the extra element of an odd total is added at the end).
    Raises ShapeError if channels do not match or a window is larger than the padded image.

    >>> import tracejit as tj
    >>> x = tj.reshape(tj.arange(9, dtype=tj.float32), (1, 1, 3, 3))
    >>> tj.nn.conv2d(x, tj.ones((1, 1, 2, 2)), tj.ones(1))
    NDArray([[[[ 9., 13.],
               [21., 25.]]]], dtype=float32)
    """
    name = "nn.conv2d"
    images, kernel, shift = floats(name, x, weight, bias)
    strides, dilations = (
        per_dimension(f"{name}: stride", stride, 2),
        per_dimension(f"{name}: dilation", dilation, 2),
    )
    result = dispatch.emit(
        ops.conv2d,
        images,
        kernel,
        stride=strides,
        padding=_padding(name, padding, kernel, strides, dilations),
        dilation=dilations,
        groups=integer(f"{name}: groups", groups),
    )
    return _biased(name, result, shift)


def conv1d(
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
    """Convolve lines with `weight`, as `conv2d` convolves images.

    x: (batch, channels, length); weight: (out channels, channels / groups, window); bias: (out channels,), or
    None. An asymmetric padding is ``((before, after),)``.
    Returns (batch, out channels, length).
    Raises ShapeError if channels do not match or a window is larger than the padded line.

    >>> import tracejit as tj
    >>> tj.nn.conv1d(tj.asarray([[[1.0, 2.0, 4.0]]]), tj.ones((1, 1, 2)))
    NDArray([[[3., 6.]]], dtype=float32)
    """
    name = "nn.conv1d"
    lines, kernel, shift = floats(name, x, weight, bias)
    check_batch(name, lines, 1)
    check_dimensions(name, "weight", kernel, 3, "(out channels, channels / groups, window)")
    strides, dilations = (
        per_dimension(f"{name}: stride", stride, 1),
        per_dimension(f"{name}: dilation", dilation, 1),
    )
    result = conv2d(
        expanded(lines, 2),
        expanded(kernel, 2),
        stride=(1, *strides),
        padding=((0, 0), *_padding(name, padding, kernel, strides, dilations)),
        dilation=(1, *dilations),
        groups=groups,
    )
    return _biased(name, dropped(result, 2), shift)


def conv3d(
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
    """Convolve volumes with `weight`, as `conv2d` convolves images.

    x: (batch, channels, depth, height, width); weight: (out channels, channels / groups, window depth, window
    height, window width); bias: (out channels,), or None. The intermediate copy of x contains every element
    once for each window along the depth that covers it.
    Returns (batch, out channels, depth, height, width).
    Raises ShapeError if channels do not match or a window is larger than the padded volume.

    >>> import tracejit as tj
    >>> tj.nn.conv3d(tj.ones((1, 1, 3, 4, 5)), tj.ones((2, 1, 2, 2, 2))).shape
    (1, 2, 2, 3, 4)
    """
    name = "nn.conv3d"
    volumes, kernel, shift = floats(name, x, weight, bias)
    check_batch(name, volumes, 3)
    check_dimensions(name, "weight", kernel, 5, "(out channels, channels / groups, depth, height, width)")
    strides, dilations = (
        per_dimension(f"{name}: stride", stride, 3),
        per_dimension(f"{name}: dilation", dilation, 3),
    )
    depth, *sides = _padding(name, padding, kernel, strides, dilations)
    windows = _along_depth(name, padded(volumes, (depth, (0, 0), (0, 0))), kernel, strides[0], dilations[0])
    batch, positions, channels, _, *extents = windows.shape
    result = conv2d(
        reshape(windows, (batch * positions, channels * kernel.shape[2], *extents)),
        reshape(kernel, (kernel.shape[0], kernel.shape[1] * kernel.shape[2], *kernel.shape[3:])),
        stride=strides[1:],
        padding=tuple(sides),
        dilation=dilations[1:],
        groups=groups,
    )
    volume = moveaxis(reshape(result, (batch, positions, *result.shape[1:])), 1, 2)
    return _biased(name, volume, shift)


def _along_depth(name: str, x: Any, weight: Any, stride: int, dilation: int) -> Any:
    """Return all windows along the depth: (batch, positions, channels, window, height, width)."""
    if stride < 1 or dilation < 1:
        message = f"{name}: stride {stride} and dilation {dilation} of the depth must be positive integers"
        raise locate(ArgumentError(message), user_location())
    window = weight.shape[2]
    positions = (x.shape[2] - dilation * (window - 1) - 1) // stride + 1
    if positions < 1 or not window:
        raise locate(
            ShapeError(
                f"{name}: a window of shape {weight.shape[2:]} with dilation {dilation} does not fit into a "
                f"padded depth of {x.shape[2]}"
            ),
            user_location(),
        )
    last = stride * (positions - 1) + 1
    slices = [x[:, :, k * dilation : k * dilation + last : stride] for k in range(window)]
    return moveaxis(stack(slices, axis=3), 2, 1)


# ---- transposed


def conv_transpose2d(
    x: Any,
    weight: Any,
    bias: Any = None,
    /,
    *,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    dilation: Any = 1,
    groups: Any = 1,
) -> NDArray:
    """Compute the transpose of `conv2d`: each element's product with the weight is added to the elements that
    the window covers.

    x: (batch, channels, height, width); weight: (channels, out channels / groups, window height, window
    width); bias: (out channels,), or None. `padding` is removed around the result; `output_padding`, which is
    less than the stride, is added at its ends.
    Returns (batch, out channels, height, width), with extents of
    ``(extent - 1) * stride - padding + dilation * (window - 1) + output_padding + 1``.
    Zeiler et al., Deconvolutional networks, 2010; arguments as in PyTorch.
    Raises ShapeError if channels do not match or the result is empty, ArgumentError for an argument that is
    not an integer or a pair.

    >>> import tracejit as tj
    >>> tj.nn.conv_transpose2d(tj.ones((1, 1, 2, 2)), tj.ones((1, 1, 2, 2)))
    NDArray([[[[1., 2., 1.],
               [2., 4., 2.],
               [1., 2., 1.]]]], dtype=float32)
    """
    name = "nn.conv_transpose2d"
    images, kernel, shift = floats(name, x, weight, bias)
    check_batch(name, images, 2)
    check_dimensions(name, "weight", kernel, 4, "(channels, out channels / groups, height, width)")
    strides, dilations = (
        per_dimension(f"{name}: stride", stride, 2),
        per_dimension(f"{name}: dilation", dilation, 2),
    )
    ends = per_dimension(f"{name}: output_padding", output_padding, 2)
    removed = padding_pairs(f"{name}: padding", padding, 2)
    if any(not 0 <= end < step for end, step in zip(ends, strides, strict=True)):
        message = f"{name}: output_padding {ends} must be at least 0 and less than the stride, {strides}"
        raise locate(ArgumentError(message), user_location())
    if kernel.shape[0] != images.shape[1]:
        raise locate(
            ShapeError(f"{name}: {images.shape[1]} channels of x, {kernel.shape[0]} of the weight"),
            user_location(),
        )
    extents = tuple(
        (n - 1) * step - sum(sides) + gap * (window - 1) + end + 1
        for n, step, sides, gap, window, end in zip(
            images.shape[2:], strides, removed, dilations, kernel.shape[2:], ends, strict=True
        )
    )
    if min(extents) < 1:
        message = f"{name}: padding {removed} leaves nothing: the result would have the extents {extents}"
        raise locate(ShapeError(message), user_location())
    result = dispatch.emit(
        ops.conv2d_input_gradient,
        images,
        kernel,
        extents=extents,
        stride=strides,
        padding=removed,
        dilation=dilations,
        groups=integer(f"{name}: groups", groups),
    )
    return _biased(name, result, shift)


def conv_transpose1d(
    x: Any,
    weight: Any,
    bias: Any = None,
    /,
    *,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    dilation: Any = 1,
    groups: Any = 1,
) -> NDArray:
    """Compute the transpose of `conv1d`; see `conv_transpose2d`.

    x: (batch, channels, length); weight: (channels, out channels / groups, window); bias: (out channels,), or
    None.
    Returns (batch, out channels, length).
    Raises ShapeError if channels do not match or the result is empty, ArgumentError for an argument that is
    not an integer.

    >>> import tracejit as tj
    >>> tj.nn.conv_transpose1d(tj.ones((1, 1, 2)), tj.asarray([[[1.0, 2.0]]]), stride=2)
    NDArray([[[1., 2., 1., 2.]]], dtype=float32)
    """
    name = "nn.conv_transpose1d"
    lines, kernel, shift = floats(name, x, weight, bias)
    check_batch(name, lines, 1)
    check_dimensions(name, "weight", kernel, 3, "(channels, out channels / groups, window)")
    result = conv_transpose2d(
        expanded(lines, 2),
        expanded(kernel, 2),
        stride=(1, *per_dimension(f"{name}: stride", stride, 1)),
        padding=((0, 0), *padding_pairs(f"{name}: padding", padding, 1)),
        output_padding=(0, *per_dimension(f"{name}: output_padding", output_padding, 1)),
        dilation=(1, *per_dimension(f"{name}: dilation", dilation, 1)),
        groups=groups,
    )
    return _biased(name, dropped(result, 2), shift)


def conv_transpose3d(
    x: Any,
    weight: Any,
    bias: Any = None,
    /,
    *,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    dilation: Any = 1,
    groups: Any = 1,
) -> NDArray:
    """Compute the transpose of `conv3d`; see `conv_transpose2d`.

    x: (batch, channels, depth, height, width); weight: (channels, out channels / groups, window depth, window
    height, window width); bias: (out channels,), or None. The intermediate result has a separate volume for
    each depth of the window.
    Returns (batch, out channels, depth, height, width).
    Raises ShapeError if channels do not match or the result is empty, ArgumentError for an argument that is
    not an integer or three integers.

    >>> import tracejit as tj
    >>> tj.nn.conv_transpose3d(tj.ones((1, 1, 2, 1, 1)), tj.ones((1, 1, 2, 1, 1))).ravel()
    NDArray([1., 2., 1.], dtype=float32)
    """
    name = "nn.conv_transpose3d"
    volumes, kernel, shift = floats(name, x, weight, bias)
    check_batch(name, volumes, 3)
    check_dimensions(name, "weight", kernel, 5, "(channels, out channels / groups, depth, height, width)")
    step, *strides = per_dimension(f"{name}: stride", stride, 3)
    dilation_of_depth, *dilations = per_dimension(f"{name}: dilation", dilation, 3)
    end, *ends = per_dimension(f"{name}: output_padding", output_padding, 3)
    (first, last), *sides = padding_pairs(f"{name}: padding", padding, 3)
    if step < 1 or dilation_of_depth < 1 or not 0 <= end < step:
        message = f"{name}: stride {step}, dilation {dilation_of_depth} and output_padding {end} do not fit"
        raise locate(ArgumentError(message), user_location())
    batch, channels, deep, *image = volumes.shape
    window = kernel.shape[2]
    images = conv_transpose2d(
        reshape(moveaxis(volumes, 2, 1), (batch * deep, channels, *image)),
        reshape(kernel, (kernel.shape[0], kernel.shape[1] * window, *kernel.shape[3:])),
        stride=tuple(strides),
        padding=tuple(sides),
        output_padding=tuple(ends),
        dilation=tuple(dilations),
        groups=groups,
    )
    out, extents = images.shape[1] // max(window, 1), images.shape[2:]
    products: Any = moveaxis(reshape(images, (batch, deep, out, window, *extents)), 1, 2)
    depth = (deep - 1) * step + dilation_of_depth * (window - 1) + 1 + end
    if depth - first - last < 1:
        message = f"{name}: padding {(first, last)} leaves nothing: the depth is {depth}"
        raise locate(ShapeError(message), user_location())
    result: Any = zeros((batch, out, depth, *extents), images.dtype, device=images.device)
    for k in range(window):
        result[:, :, k * dilation_of_depth : k * dilation_of_depth + (deep - 1) * step + 1 : step] += (
            products[:, :, :, k]
        )
    return _biased(name, result[:, :, first : depth - last], shift)


__all__ = ["conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d"]
