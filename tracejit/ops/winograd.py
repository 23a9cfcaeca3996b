"""Winograd convolution: operators to which `tracejit.passes.winograd` lowers convolutions by 3 x 3 windows.

A convolution, and each of its gradients, is decomposed into transforms of small tiles and products of the
transformed tiles (Winograd's F(2 x 2, 3 x 3), see `tracejit.kernels.images.winograd_plan`), which needs fewer
multiplications:

    conv2d(x, w)                   winograd_conv2d(x, winograd_weights(w, x))
    conv2d_input_gradient(y, w)    winograd_conv2d(y, winograd_weights(w, y, transposed))
      with a stride of 2           winograd_input_gradient(y, winograd_weights(w, y, transposed))
    conv2d_weight_gradient(x, y)   winograd_weight_gradient(winograd_weight_sums(x, y))

Each stage is an operator of its own, because the second stage needs the entire result of the first. The
second operand of `winograd_weights` is not read: it delays the transform until the images are available.
Without that dependence the weights of all layers would be transformed at the start, and their results would
occupy memory until used. Transformed weights have the shape (slivers, points, channels, filters of a sliver);
sums have one such array for each partition of the tiles.

>>> w = np.ones((2, 1, 3, 3))
>>> winograd_weights.evaluate(w, w, transposed=False, stride=1).shape
(1, 16, 1, 32)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tracejit.errors import ArgumentError, ShapeError
from tracejit.ir.op import Trait, register
from tracejit.ir.types import ArrayType
from tracejit.kernels.images.winograd_plan import (
    SCHEMES,
    SPREAD,
    WINDOW_SIDE,
    Scheme,
    sums_shape,
    sums_split,
    weights_shape,
)
from tracejit.kernels.split import ceil_div
from tracejit.ops.convolution import IntPair, Padding, check_images, check_result, check_steps, windows_along
from tracejit.ops.rules import FULL_PRECISION, check_array, check_count, check_dtype, check_one_dtype
from tracejit.ops.symbolic import Operator


def _scheme(name: str, stride: int) -> Scheme:
    if stride not in SCHEMES:
        raise ArgumentError(f"{name}: the stride must be {' or '.join(map(str, SCHEMES))}, got {stride}")
    return SCHEMES[stride]


def _output_extents(name: str, x: ArrayType, padding: Padding, stride: int) -> tuple[int, int]:
    """The height and width of the result of a convolution; raises ShapeError if no window fits."""
    check_steps(name, padding)
    height, width = (
        windows_along(n, WINDOW_SIDE, stride, p) for n, p in zip(x.shape[2:], padding, strict=True)
    )
    if min(height, width) < 1:
        raise ShapeError(f"{name} of {x} with padding {padding}: the window is larger than the padded input")
    return height, width


def _check_transformed(name: str, scheme: Scheme, u: ArrayType, ndim: int) -> None:
    check_array(name, u)
    check_dtype(name, u.dtype, FULL_PRECISION)
    if u.ndim != ndim or u.shape[-3] != scheme.points:
        raise ShapeError(f"{name} needs transformed weights of {ndim} dimensions, got {u}")


def _infer_weights(*types: ArrayType, transposed: bool, stride: int) -> ArrayType:
    name = "winograd_weights"
    check_count(name, types, 2)
    check_images(name, types)
    w, _ = types
    check_dtype(name, w.dtype, FULL_PRECISION)
    if w.shape[2:] != (WINDOW_SIDE, WINDOW_SIDE):
        raise ShapeError(f"{name} needs windows of 3 x 3, got {w}")
    filters, channels = w.shape[1::-1] if transposed else w.shape[:2]
    shape = weights_shape(_scheme(name, stride), channels, filters, w.dtype.itemsize)
    return ArrayType(shape, w.dtype, w.device)


def _check_operands(name: str, scheme: Scheme, types: Sequence[ArrayType], filters: int) -> None:
    """Check the images and the transformed weights of `filters` filters."""
    check_count(name, types, 2)
    x, u = types
    check_images(name, [x])
    _check_transformed(name, scheme, u, 4)
    check_one_dtype(name, types)
    if u.shape != weights_shape(scheme, x.shape[1], filters, x.dtype.itemsize):
        raise ShapeError(f"{name} of {x} got {u} as the weights of {filters} filters")


def _infer_convolution(*types: ArrayType, padding: Padding, filters: int, stride: int) -> ArrayType:
    name = "winograd_conv2d"
    _check_operands(name, _scheme(name, stride), types, filters)
    x = types[0]
    return ArrayType((x.shape[0], filters, *_output_extents(name, x, padding, stride)), x.dtype, x.device)


def _infer_input_gradient(*types: ArrayType, padding: Padding, extents: IntPair, filters: int) -> ArrayType:
    name = "winograd_input_gradient"
    _check_operands(name, SPREAD, types, filters)
    y = types[0]
    x = ArrayType((y.shape[0], filters, *extents), y.dtype, y.device)
    check_result(name, y, (*y.shape[:2], *_output_extents(name, x, padding, 2)))
    if any(before != 1 for before, _ in padding):
        raise ArgumentError(f"{name}: padding before the images must be 1, got {padding}")
    return x


def _infer_sums(*types: ArrayType, padding: Padding, stride: int) -> ArrayType:
    name = "winograd_weight_sums"
    check_count(name, types, 2)
    check_images(name, types)
    x, y = types
    check_dtype(name, x.dtype, FULL_PRECISION)
    check_result(name, y, (x.shape[0], y.shape[1], *_output_extents(name, x, padding, stride)))
    shape = sums_shape(_scheme(name, stride), x.shape, y.shape, x.dtype.itemsize)
    return ArrayType(shape, x.dtype, x.device)


def _infer_gradient(*types: ArrayType, filters: int, stride: int) -> ArrayType:
    name = "winograd_weight_gradient"
    check_count(name, types, 1)
    (s,) = types
    scheme = _scheme(name, stride)
    _check_transformed(name, scheme, s, 5)
    channels = s.shape[3]
    if s.shape[1:] != weights_shape(scheme, channels, filters, s.dtype.itemsize):
        raise ShapeError(f"{name} got {s} as the sums of {filters} filters")
    return ArrayType((filters, channels, WINDOW_SIDE, WINDOW_SIDE), s.dtype, s.device)


# ---- reference evaluation with NumPy


def _patches(scheme: Scheme, x: np.ndarray, before: Sequence[int], extents: Sequence[int]) -> np.ndarray:
    """The input patches of the tiles: (images, rows of tiles, tiles, channels, side, side), where side
    is `scheme.input_side`.

    `before` is the padding before the images along each dimension, `extents` are the extents of the result.
    """
    ends = [scheme.step * (ceil_div(n, scheme.tile) - 1) + scheme.input_side for n in extents]
    padding = [
        (first, max(0, end - first - n)) for n, first, end in zip(x.shape[2:], before, ends, strict=True)
    ]
    padded_images = np.pad(x, ((0, 0), (0, 0), *padding))[:, :, : ends[0], : ends[1]]
    patches = np.lib.stride_tricks.sliding_window_view(
        padded_images, (scheme.input_side, scheme.input_side), axis=(2, 3)
    )
    return patches[:, :, :: scheme.step, :: scheme.step].transpose(0, 2, 3, 1, 4, 5)


def _transform(matrix: Sequence[Sequence[float]], tiles: np.ndarray) -> np.ndarray:
    """Compute ``matrix @ tile @ matrix.T`` for the tiles in the last two dimensions, in their dtype."""
    factor = np.array(matrix, tiles.dtype)
    return factor @ tiles @ factor.T


def _pack_slivers(scheme: Scheme, points: np.ndarray, channels: int, filters: int) -> np.ndarray:
    """Pack transformed weights (filters, channels, side, side) into slivers; the last one is zero-padded."""
    slivers, _, _, width = weights_shape(scheme, channels, filters, points.itemsize)
    padded = np.zeros((slivers * width, channels, scheme.points), points.dtype)
    padded[:filters] = points.reshape(filters, channels, scheme.points)
    return np.ascontiguousarray(padded.reshape(slivers, width, channels, scheme.points).transpose(0, 3, 2, 1))


def _unpack_slivers(scheme: Scheme, u: np.ndarray, filters: int) -> np.ndarray:
    """Unpack transformed weights from slivers: the inverse of `_pack_slivers`."""
    slivers, _, channels, width = u.shape
    padded = u.transpose(0, 3, 2, 1).reshape(slivers * width, channels, scheme.side, scheme.side)
    return padded[:filters]


def _evaluate_weights(w: np.ndarray, images: np.ndarray, *, transposed: bool, stride: int) -> np.ndarray:
    if transposed:
        w = w.transpose(1, 0, 2, 3)[:, :, ::-1, ::-1]
    scheme = SCHEMES[stride]
    return _pack_slivers(scheme, _transform(scheme.window, w), w.shape[1], w.shape[0])


def _evaluate_tiles(
    scheme: Scheme, x: np.ndarray, u: np.ndarray, before: Sequence[int], extents: Sequence[int], filters: int
) -> np.ndarray:
    """Convolve images with transformed weights; `before` and `extents` as for `_patches`."""
    patches = _transform(scheme.image, _patches(scheme, x, before, extents))
    products = np.einsum("nijcab,kcab->nkijab", patches, _unpack_slivers(scheme, u, filters), optimize=True)
    tiles = _transform(np.transpose(scheme.output).tolist(), products)
    n, k, rows, columns = tiles.shape[:4]
    image = tiles.transpose(0, 1, 2, 4, 3, 5).reshape(n, k, rows * scheme.tile, columns * scheme.tile)
    return np.ascontiguousarray(image[:, :, : extents[0], : extents[1]])


def _evaluate_convolution(
    x: np.ndarray, u: np.ndarray, *, padding: Padding, filters: int, stride: int
) -> np.ndarray:
    extents = [windows_along(n, WINDOW_SIDE, stride, p) for n, p in zip(x.shape[2:], padding, strict=True)]
    return _evaluate_tiles(SCHEMES[stride], x, u, [first for first, _ in padding], extents, filters)


def _evaluate_input_gradient(
    y: np.ndarray, u: np.ndarray, *, padding: Padding, extents: IntPair, filters: int
) -> np.ndarray:
    return _evaluate_tiles(SPREAD, y, u, (0, 0), extents, filters)


def _evaluate_sums(x: np.ndarray, y: np.ndarray, *, padding: Padding, stride: int) -> np.ndarray:
    scheme = SCHEMES[stride]
    rows, blocks, partitions = sums_split(scheme, x.shape, y.shape, x.itemsize)
    x_tiles = _transform(scheme.image, _patches(scheme, x, [before for before, _ in padding], y.shape[2:]))
    side = scheme.tile
    padded_y = np.pad(y, ((0, 0), (0, 0), *((0, -n % side) for n in y.shape[2:])))
    n, k, height, width = padded_y.shape
    y_tiles = padded_y.reshape(n, k, height // side, side, width // side, side).transpose(0, 2, 4, 1, 3, 5)
    sums = np.zeros((partitions, *weights_shape(scheme, x.shape[1], k, x.itemsize)), x.dtype)
    x_rows, y_rows = (t.reshape(-1, *t.shape[2:]) for t in (x_tiles, _transform(scheme.output, y_tiles)))
    for partition, out in enumerate(sums):
        rows_of_part = slice(partition * blocks * rows, (partition + 1) * blocks * rows)
        products = np.einsum("rjcab,rjkab->kcab", x_rows[rows_of_part], y_rows[rows_of_part], optimize=True)
        out[:] = _pack_slivers(scheme, products, x.shape[1], k)
    return sums


def _evaluate_gradient(s: np.ndarray, *, filters: int, stride: int) -> np.ndarray:
    scheme = SCHEMES[stride]
    transposed = np.transpose(scheme.window).tolist()
    return np.ascontiguousarray(_transform(transposed, _unpack_slivers(scheme, s.sum(0), filters)))


# ---- declarations


def _multiplications(y: int, u: int, side: int = 2) -> Any:
    """Return an `Op.work` function that counts multiplications.

    `y` and `u` are the positions, among the shapes of operands and result, of the array that is divided into
    tiles of `side` x `side` elements and of the transformed weights.
    """

    def work(shapes: Sequence[tuple[int, ...]], attrs: Any) -> int:
        images, _, height, width = shapes[y]
        return images * ceil_div(height, side) * ceil_div(width, side) * math.prod(shapes[u][-4:])

    return work


COMPILED = frozenset({Trait.COMPILED})
LIBRARY = COMPILED | {Trait.LIBRARY}

winograd_weights = register(
    Operator(
        "winograd_weights",
        _infer_weights,
        _evaluate_weights,
        traits=COMPILED,
        doc="Windows of 3 x 3, transformed for products with tiles of images; the images are not read.",
        admits=FULL_PRECISION,
    )
)
winograd_conv2d = register(
    Operator(
        "winograd_conv2d",
        _infer_convolution,
        _evaluate_convolution,
        traits=LIBRARY,
        doc="Convolution of images by transformed weights.",
        admits=FULL_PRECISION,
        work=_multiplications(y=2, u=1),
    )
)
winograd_input_gradient = register(
    Operator(
        "winograd_input_gradient",
        _infer_input_gradient,
        _evaluate_input_gradient,
        traits=LIBRARY,
        doc="Gradient of a convolution of stride 2 with respect to its input, from transformed weights.",
        admits=FULL_PRECISION,
        work=_multiplications(y=2, u=1, side=SPREAD.tile),
    )
)
winograd_weight_sums = register(
    Operator(
        "winograd_weight_sums",
        _infer_sums,
        _evaluate_sums,
        traits=LIBRARY,
        doc="Sums of products of transformed tiles, for the weight gradient of a convolution.",
        admits=FULL_PRECISION,
        work=_multiplications(y=1, u=2),
    )
)
winograd_weight_gradient = register(
    Operator(
        "winograd_weight_gradient",
        _infer_gradient,
        _evaluate_gradient,
        traits=COMPILED,
        doc="Weight gradient of a convolution, from sums of products of transformed tiles.",
        admits=FULL_PRECISION,
    )
)
