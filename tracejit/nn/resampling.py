"""Resampling: padding, interpolation, exchange of channels and spatial positions, and unfolding of windows.

All are composed of assignments to slices, gathers along one dimension, and views.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tracejit.errors import ArgumentError, ShapeError, locate
from tracejit.frontend.arrays import dispatch
from tracejit.frontend.arrays.axes import integer
from tracejit.frontend.arrays.functions.manipulation import permute_dims, reshape
from tracejit.frontend.arrays.functions.movement import stack
from tracejit.frontend.arrays.ndarray import NDArray
from tracejit.frontend.recording.location import user_location
from tracejit.nn.common import check_choice, check_dimensions, floating
from tracejit.nn.windows import gathered, padded, padding_pairs, per_dimension

MODES = {"constant": None, "reflect": "reflect", "replicate": "edge", "circular": "wrap"}


def pad(x: Any, widths: Any, /, *, mode: str = "constant", value: Any = 0) -> NDArray:
    """Pad the last dimensions, with one pair (before, after) of `widths` for each of them.

    mode: "constant" (`value`), "reflect" (mirrored at the border, which is not repeated), "replicate" (the
    border element repeated) or "circular" (from the other end), as in PyTorch. Preserves the dtype.
    Raises ShapeError for more pairs than dimensions or too few elements to reflect or wrap, ArgumentError for
    another `mode` or negative widths.

    >>> import tracejit as tj
    >>> tj.nn.pad(tj.asarray([1, 2, 3]), ((1, 2),), mode="reflect")
    NDArray([2, 1, 2, 3, 2, 1], dtype=int64)
    """
    name = "nn.pad"
    check_choice(name, "mode", mode, tuple(MODES))
    array = dispatch.as_array(name, x)
    if not isinstance(widths, tuple | list):
        raise locate(ArgumentError(f"{name}: widths {widths!r} must be a tuple of pairs"), user_location())
    pairs = tuple(padding_pairs(f"{name}: widths", (pair,), 1)[0] for pair in widths)
    if len(pairs) > array.ndim:
        message = f"{name}: {len(pairs)} pairs of widths for an array of shape {array.shape}"
        raise locate(ShapeError(message), user_location())
    if any(n < 0 for pair in pairs for n in pair):
        raise locate(ArgumentError(f"{name}: widths {pairs} must not be negative"), user_location())
    if mode == "constant":
        return padded(array, pairs, value)
    for axis, pair in enumerate(pairs, array.ndim - len(pairs)):
        if any(pair):
            array = gathered(array, _positions(name, mode, array.shape[axis], pair), axis)
    return array


def _positions(name: str, mode: str, extent: int, pair: tuple[int, int]) -> np.ndarray:
    """Return the source positions of the elements of a padded dimension."""
    limit = {"reflect": extent - 1, "replicate": extent and max(pair), "circular": extent}[mode]
    if max(pair) > limit:
        message = f'{name}: widths {pair} in mode "{mode}" around {extent} elements; at most {max(limit, 0)}'
        raise locate(ShapeError(message), user_location())
    form: Any = MODES[mode]
    return np.pad(np.arange(extent), pair, form)


# ---- interpolation


def interpolate(
    x: Any,
    size: Any = None,
    /,
    *,
    scale: Any = None,
    mode: str = "nearest",
    align_corners: bool = False,
) -> NDArray:
    """Resize lines, images or volumes to the extents `size`, or to their extents times `scale`.

    x: (batch, channels, ...); size, scale: a number for all dimensions after the channels, or a tuple with
    one for each. mode: "nearest" selects the element at ``position * extent // size``, "linear" (or
    "bilinear") interpolates between the two nearest elements along each dimension. Elements are located at
    the centres of equal intervals; with `align_corners` the first and last elements are preserved. As in
    PyTorch.
    Floating dtypes are preserved, integers become floating.
    Raises ShapeError for fewer than three dimensions, ArgumentError for another `mode`, both or neither of
    size and scale, or extents that are not positive.

    >>> import tracejit as tj
    >>> tj.nn.interpolate(tj.asarray([[[0.0, 4.0]]]), 4, mode="linear")
    NDArray([[[0., 1., 3., 4.]]], dtype=float32)
    """
    name = "nn.interpolate"
    check_choice(name, "mode", mode, ("nearest", "linear", "bilinear"))
    array = floating(name, x)
    sizes = _sizes(name, array, size, scale)
    for axis, new_extent in enumerate(sizes, 2):
        extent = array.shape[axis]
        if new_extent == extent:
            continue
        if mode == "nearest":
            array = gathered(array, np.arange(new_extent) * extent // new_extent, axis)
        else:
            array = _interpolated(array, axis, _coordinates(extent, new_extent, align_corners))
    return array


def _sizes(name: str, x: Any, size: Any, scale: Any) -> tuple[int, ...]:
    """Return the extents of the interpolated dimensions."""
    if x.ndim < 3:
        raise locate(
            ShapeError(f"{name}: x needs three or more dimensions (batch, channels, ...), got {x.shape}"),
            user_location(),
        )
    if (size is None) == (scale is None):
        raise locate(ArgumentError(f"{name}: pass either size or scale="), user_location())
    extents = x.shape[2:]
    requested = size if scale is None else scale
    sizes = tuple(requested) if isinstance(requested, tuple | list) else (requested,) * len(extents)
    if scale is not None:
        sizes = tuple(int(n * factor) for n, factor in zip(extents, sizes, strict=False))
    if len(sizes) != len(extents) or min((*extents, *sizes), default=0) < 1:
        message = f"{name}: extents {sizes} for x of shape {x.shape}; expected {len(extents)} positive ones"
        raise locate(ArgumentError(message), user_location())
    return tuple(integer(f"{name}: size", n) for n in sizes)


def _coordinates(extent: int, size: int, align_corners: bool) -> np.ndarray:
    """Return the coordinates of the new elements in units of the old elements."""
    position = np.arange(size)
    if align_corners:
        return position * ((extent - 1) / max(size - 1, 1))
    return np.clip((position + 0.5) * (extent / size) - 0.5, 0, extent - 1)


def _interpolated(x: Any, axis: int, coordinates: np.ndarray) -> Any:
    """Interpolate linearly between the elements before and after each coordinate along an axis."""
    before = np.minimum(coordinates.astype(np.int64), x.shape[axis] - 1)
    after = np.minimum(before + 1, x.shape[axis] - 1)
    fraction = (coordinates - before).astype(x.dtype).reshape((-1, *(1,) * (x.ndim - axis - 1)))
    first = gathered(x, before, axis)
    return first + (gathered(x, after, axis) - first) * fraction


# ---- channels and positions


def pixel_shuffle(x: Any, factor: Any, /) -> NDArray:
    """Enlarge images `factor` times: each ``factor * factor`` square comes from consecutive channels.

    x: (batch, channels * factor ** 2, height, width). Shi et al., Sub-pixel convolution, 2016.
    Returns (batch, channels, height * factor, width * factor) with the same dtype.
    Raises ShapeError if the channels are not such a multiple, ArgumentError for a factor that is not an
    integer.

    >>> import tracejit as tj
    >>> tj.nn.pixel_shuffle(tj.reshape(tj.arange(4), (1, 4, 1, 1)), 2)
    NDArray([[[[0, 1],
               [2, 3]]]], dtype=int64)
    """
    name = "nn.pixel_shuffle"
    array, count = _images(name, x), integer(f"{name}: factor", factor)
    batch, channels, height, width = array.shape
    if count < 1 or channels % (count * count):
        message = f"{name}: {channels} channels are not a multiple of {count} ** 2"
        raise locate(ShapeError(message), user_location())
    split = reshape(array, (batch, channels // (count * count), count, count, height, width))
    permuted = permute_dims(split, (0, 1, 4, 2, 5, 3))
    return reshape(permuted, (batch, split.shape[1], height * count, width * count))


def pixel_unshuffle(x: Any, factor: Any, /) -> NDArray:
    """Compute the inverse of `pixel_shuffle`: each square of elements becomes consecutive channels.

    x: (batch, channels, height * factor, width * factor).
    Returns (batch, channels * factor ** 2, height, width) with the same dtype.
    Raises ShapeError if the extents are not multiples of `factor`, ArgumentError for a factor that is not an
    integer.

    >>> import tracejit as tj
    >>> tj.nn.pixel_unshuffle(tj.reshape(tj.arange(4), (1, 1, 2, 2)), 2).shape
    (1, 4, 1, 1)
    """
    name = "nn.pixel_unshuffle"
    array, count = _images(name, x), integer(f"{name}: factor", factor)
    batch, channels, height, width = array.shape
    if count < 1 or height % count or width % count:
        message = f"{name}: height {height} and width {width} are not multiples of {count}"
        raise locate(ShapeError(message), user_location())
    split = reshape(array, (batch, channels, height // count, count, width // count, count))
    permuted = permute_dims(split, (0, 1, 3, 5, 2, 4))
    return reshape(permuted, (batch, channels * count * count, height // count, width // count))


def _images(name: str, x: Any) -> Any:
    array = dispatch.as_array(name, x)
    check_dimensions(name, "x", array, 4, "(batch, channels, height, width)")
    return array


def unfold(x: Any, window: Any, /, *, stride: Any = 1, padding: Any = 0, dilation: Any = 1) -> NDArray:
    """Return all windows of images as columns.

    x: (batch, channels, height, width); window, stride, padding, dilation: as in `conv2d`.
    Returns (batch, channels * window height * window width, windows) with the same dtype; windows are in
    row-major order.
    Raises ShapeError for other dimensions or a window larger than the padded image, ArgumentError for an
    argument that is not a positive integer or a pair.

    >>> import tracejit as tj
    >>> tj.nn.unfold(tj.reshape(tj.arange(6), (1, 1, 2, 3)), 2)
    NDArray([[[0, 1],
              [1, 2],
              [3, 4],
              [4, 5]]], dtype=int64)
    """
    name = "nn.unfold"
    images = padded(_images(name, x), padding_pairs(f"{name}: padding", padding, 2))
    extents, step, gap = (
        per_dimension(f"{name}: {what}", value, 2)
        for what, value in (("window", window), ("stride", stride), ("dilation", dilation))
    )
    if min((*extents, *step, *gap)) < 1:
        message = f"{name}: window {extents}, stride {step} and dilation {gap} must be positive"
        raise locate(ArgumentError(message), user_location())
    positions = [
        (n - g * (w - 1) - 1) // s + 1
        for n, w, s, g in zip(images.shape[2:], extents, step, gap, strict=True)
    ]
    if min(positions) < 1:
        message = (
            f"{name}: a window of {extents} with dilation {gap} is larger than the padded {images.shape[2:]}"
        )
        raise locate(ShapeError(message), user_location())
    windows = []
    for i in range(extents[0]):
        for j in range(extents[1]):
            rows, columns = (
                slice(k * g, k * g + (count - 1) * s + 1, s)
                for k, g, s, count in zip((i, j), gap, step, positions, strict=True)
            )
            windows.append(images[:, :, rows, columns])
    batch, channels = images.shape[:2]
    return reshape(stack(windows, axis=2), (batch, channels * len(windows), positions[0] * positions[1]))


__all__ = ["interpolate", "pad", "pixel_shuffle", "pixel_unshuffle", "unfold"]
