"""Other extents: padding, enlarging, and channels that become places or places that become channels.

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
from tracejit.nn.windows import around, padded, steps, taken

MODES = {"constant": None, "reflect": "reflect", "replicate": "edge", "circular": "wrap"}


def pad(x: Any, widths: Any, /, *, mode: str = "constant", value: Any = 0) -> NDArray:
    """Elements added around the last dimensions, one pair (before, after) of `widths` for each of these.

    mode: "constant" (`value`), "reflect" (mirrored at the border, which is not repeated), "replicate" (the
    border again) or "circular" (from the other end), as in PyTorch. Dtype stays.
    Raises ShapeError for more pairs than dimensions or too few elements to reflect or to come from the other
    end, ArgumentError for another `mode` or negative widths.

    >>> import tracejit as tj
    >>> tj.nn.pad(tj.asarray([1, 2, 3]), ((1, 2),), mode="reflect")
    NDArray([2, 1, 2, 3, 2, 1], dtype=int64)
    """
    name = "nn.pad"
    check_choice(name, "mode", mode, tuple(MODES))
    array = dispatch.as_array(name, x)
    if not isinstance(widths, tuple | list):
        raise locate(ArgumentError(f"{name}: widths {widths!r} must be a tuple of pairs"), user_location())
    pairs = tuple(around(f"{name}: widths", (pair,), 1)[0] for pair in widths)
    if len(pairs) > array.ndim:
        message = f"{name}: {len(pairs)} pairs of widths for an array of shape {array.shape}"
        raise locate(ShapeError(message), user_location())
    if any(n < 0 for pair in pairs for n in pair):
        raise locate(ArgumentError(f"{name}: widths {pairs} must not be negative"), user_location())
    if mode == "constant":
        return padded(array, pairs, value)
    for axis, pair in enumerate(pairs, array.ndim - len(pairs)):
        if any(pair):
            array = taken(array, _positions(name, mode, array.shape[axis], pair), axis)
    return array


def _positions(name: str, mode: str, extent: int, pair: tuple[int, int]) -> np.ndarray:
    """The positions of the elements of a padded dimension."""
    most = {"reflect": extent - 1, "replicate": extent and max(pair), "circular": extent}[mode]
    if max(pair) > most:
        message = f'{name}: widths {pair} in mode "{mode}" around {extent} elements; at most {max(most, 0)}'
        raise locate(ShapeError(message), user_location())
    form: Any = MODES[mode]
    return np.pad(np.arange(extent), pair, form)


# ---- enlarging


def interpolate(
    x: Any,
    size: Any = None,
    /,
    *,
    scale: Any = None,
    mode: str = "nearest",
    align_corners: bool = False,
) -> NDArray:
    """Lines, images or volumes with other extents: `size`, or their own times `scale`.

    x: (batch, channels, ...); size, scale: a number for all dimensions after these, or a tuple with one for
    each. mode: "nearest" takes the element at ``place * extent // size``, "linear" (also written "bilinear")
    weighs the two nearest ones along each dimension. Elements are the centres of equal parts; with
    `align_corners` the first and last ones stay where they are. As in PyTorch.
    Floating dtypes stay, integers become floating.
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
    for axis, wanted in enumerate(sizes, 2):
        extent = array.shape[axis]
        if wanted == extent:
            continue
        if mode == "nearest":
            array = taken(array, np.arange(wanted) * extent // wanted, axis)
        else:
            array = _weighed(array, axis, _coordinates(extent, wanted, align_corners))
    return array


def _sizes(name: str, x: Any, size: Any, scale: Any) -> tuple[int, ...]:
    """The extents of an interpolated array."""
    if x.ndim < 3:
        raise locate(
            ShapeError(f"{name}: x needs three or more dimensions (batch, channels, ...), got {x.shape}"),
            user_location(),
        )
    if (size is None) == (scale is None):
        raise locate(ArgumentError(f"{name}: give either a size or scale="), user_location())
    extents = x.shape[2:]
    given = size if scale is None else scale
    many = tuple(given) if isinstance(given, tuple | list) else (given,) * len(extents)
    if scale is not None:
        many = tuple(int(n * factor) for n, factor in zip(extents, many, strict=False))
    if len(many) != len(extents) or min((*extents, *many), default=0) < 1:
        message = f"{name}: extents {many} for x of shape {x.shape}; expected {len(extents)} positive ones"
        raise locate(ArgumentError(message), user_location())
    return tuple(integer(f"{name}: size", n) for n in many)


def _coordinates(extent: int, size: int, align_corners: bool) -> np.ndarray:
    """The coordinates of the new elements among the old ones."""
    place = np.arange(size)
    if align_corners:
        return place * ((extent - 1) / max(size - 1, 1))
    return np.clip((place + 0.5) * (extent / size) - 0.5, 0, extent - 1)


def _weighed(x: Any, axis: int, coordinates: np.ndarray) -> Any:
    """The means of the elements before and after each coordinate along an axis."""
    before = np.minimum(coordinates.astype(np.int64), x.shape[axis] - 1)
    after = np.minimum(before + 1, x.shape[axis] - 1)
    share = (coordinates - before).astype(x.dtype).reshape((-1, *(1,) * (x.ndim - axis - 1)))
    first = taken(x, before, axis)
    return first + (taken(x, after, axis) - first) * share


# ---- channels and places


def pixel_shuffle(x: Any, factor: Any, /) -> NDArray:
    """Images enlarged `factor` times, every square of elements from as many neighbouring channels.

    x: (batch, channels * factor ** 2, height, width). Shi et al., Sub-pixel convolution, 2016.
    Returns (batch, channels, height * factor, width * factor); dtype stays.
    Raises ShapeError if the channels are no such multiple, ArgumentError for a factor that is no integer.

    >>> import tracejit as tj
    >>> tj.nn.pixel_shuffle(tj.reshape(tj.arange(4), (1, 4, 1, 1)), 2)
    NDArray([[[[0, 1],
               [2, 3]]]], dtype=int64)
    """
    name = "nn.pixel_shuffle"
    array, count = _images(name, x), integer(f"{name}: factor", factor)
    batch, channels, height, width = array.shape
    if count < 1 or channels % (count * count):
        message = f"{name}: {channels} channels are no multiple of {count} ** 2"
        raise locate(ShapeError(message), user_location())
    parts = reshape(array, (batch, channels // (count * count), count, count, height, width))
    mixed = permute_dims(parts, (0, 1, 4, 2, 5, 3))
    return reshape(mixed, (batch, parts.shape[1], height * count, width * count))


def pixel_unshuffle(x: Any, factor: Any, /) -> NDArray:
    """The inverse of `pixel_shuffle`: every square of elements becomes as many neighbouring channels.

    x: (batch, channels, height * factor, width * factor).
    Returns (batch, channels * factor ** 2, height, width); dtype stays.
    Raises ShapeError if the extents are no multiples, ArgumentError for a factor that is no integer.

    >>> import tracejit as tj
    >>> tj.nn.pixel_unshuffle(tj.reshape(tj.arange(4), (1, 1, 2, 2)), 2).shape
    (1, 4, 1, 1)
    """
    name = "nn.pixel_unshuffle"
    array, count = _images(name, x), integer(f"{name}: factor", factor)
    batch, channels, height, width = array.shape
    if count < 1 or height % count or width % count:
        message = f"{name}: height {height} and width {width} are no multiples of {count}"
        raise locate(ShapeError(message), user_location())
    parts = reshape(array, (batch, channels, height // count, count, width // count, count))
    mixed = permute_dims(parts, (0, 1, 3, 5, 2, 4))
    return reshape(mixed, (batch, channels * count * count, height // count, width // count))


def _images(name: str, x: Any) -> Any:
    array = dispatch.as_array(name, x)
    check_dimensions(name, "x", array, 4, "(batch, channels, height, width)")
    return array


def unfold(x: Any, window: Any, /, *, stride: Any = 1, padding: Any = 0, dilation: Any = 1) -> NDArray:
    """All windows of images as columns.

    x: (batch, channels, height, width); window, stride, padding, dilation: as in `conv2d`.
    Returns (batch, channels * window height * window width, windows), windows in the order of rows; dtype
    stays.
    Raises ShapeError for other dimensions or a window larger than the padded image, ArgumentError for what is
    no positive integer or pair.

    >>> import tracejit as tj
    >>> tj.nn.unfold(tj.reshape(tj.arange(6), (1, 1, 2, 3)), 2)
    NDArray([[[0, 1],
              [1, 2],
              [3, 4],
              [4, 5]]], dtype=int64)
    """
    name = "nn.unfold"
    images = padded(_images(name, x), around(f"{name}: padding", padding, 2))
    extents, step, gap = (
        steps(f"{name}: {what}", value, 2)
        for what, value in (("window", window), ("stride", stride), ("dilation", dilation))
    )
    if min((*extents, *step, *gap)) < 1:
        message = f"{name}: window {extents}, stride {step} and dilation {gap} must be positive"
        raise locate(ArgumentError(message), user_location())
    places = [
        (n - g * (w - 1) - 1) // s + 1
        for n, w, s, g in zip(images.shape[2:], extents, step, gap, strict=True)
    ]
    if min(places) < 1:
        message = (
            f"{name}: a window of {extents} with dilation {gap} is larger than the padded {images.shape[2:]}"
        )
        raise locate(ShapeError(message), user_location())
    parts = []
    for i in range(extents[0]):
        for j in range(extents[1]):
            rows, columns = (
                slice(k * g, k * g + (count - 1) * s + 1, s)
                for k, g, s, count in zip((i, j), gap, step, places, strict=True)
            )
            parts.append(images[:, :, rows, columns])
    batch, channels = images.shape[:2]
    return reshape(stack(parts, axis=2), (batch, channels * len(parts), places[0] * places[1]))


__all__ = ["interpolate", "pad", "pixel_shuffle", "pixel_unshuffle", "unfold"]
