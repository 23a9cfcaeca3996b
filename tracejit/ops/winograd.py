"""Convolution by 3 x 3 windows with fewer multiplications: what `tracejit.passes.winograd` makes of it.

A convolution, and each of its gradients, falls into transforms of small tiles and products between them
(Winograd's F(2 x 2, 3 x 3), see `tracejit.kernels.images.winograd_plan`):

    conv2d(x, w)                   winograd_conv2d(x, winograd_weights(w, x))
    conv2d_input_gradient(y, w)    winograd_conv2d(y, winograd_weights(w, y, transposed))
      with a stride of 2           winograd_input_gradient(y, winograd_weights(w, y, transposed))
    conv2d_weight_gradient(x, y)   winograd_weight_gradient(winograd_weight_sums(x, y))

They are separate operators, as the second part of each needs all of the first. Weights are transformed when
the images are there, which are not read: else those of all layers would be, and take memory, from the start.
Transformed weights are
(slivers, points, channels, filters of a sliver), sums the same for each part of the tiles.

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
from tracejit.ops.convolution import Padding, Pair, check_images, check_result, check_steps, windows_along
from tracejit.ops.rules import WHOLE, check_array, check_count, check_dtype, check_one_dtype
from tracejit.ops.symbolic import Operator


def _scheme(name: str, stride: int) -> Scheme:
    if stride not in SCHEMES:
        raise ArgumentError(f"{name}: the stride must be {' or '.join(map(str, SCHEMES))}, got {stride}")
    return SCHEMES[stride]


def _places(name: str, x: ArrayType, padding: Padding, stride: int) -> tuple[int, int]:
    """The extents of the result of a convolution."""
    check_steps(name, padding)
    height, width = (
        windows_along(n, WINDOW_SIDE, stride, p) for n, p in zip(x.shape[2:], padding, strict=True)
    )
    if min(height, width) < 1:
        raise ShapeError(f"{name} of {x} with padding {padding}: the window is larger than the padded input")
    return height, width


def _check_transformed(name: str, scheme: Scheme, u: ArrayType, slots: int) -> None:
    check_array(name, u)
    check_dtype(name, u.dtype, WHOLE)
    if u.ndim != slots or u.shape[-3] != scheme.points:
        raise ShapeError(f"{name} needs transformed weights of {slots} dimensions, got {u}")


def _infer_weights(*types: ArrayType, transposed: bool, stride: int) -> ArrayType:
    name = "winograd_weights"
    check_count(name, types, 2)
    check_images(name, types)
    w, _ = types
    check_dtype(name, w.dtype, WHOLE)
    if w.shape[2:] != (WINDOW_SIDE, WINDOW_SIDE):
        raise ShapeError(f"{name} needs windows of 3 x 3, got {w}")
    filters, channels = w.shape[1::-1] if transposed else w.shape[:2]
    shape = weights_shape(_scheme(name, stride), channels, filters, w.dtype.itemsize)
    return ArrayType(shape, w.dtype, w.device)


def _check_operands(name: str, scheme: Scheme, types: Sequence[ArrayType], filters: int) -> None:
    """Check images and the transformed weights of so many filters."""
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
    return ArrayType((x.shape[0], filters, *_places(name, x, padding, stride)), x.dtype, x.device)


def _infer_input_gradient(*types: ArrayType, padding: Padding, extents: Pair, filters: int) -> ArrayType:
    name = "winograd_input_gradient"
    _check_operands(name, SPREAD, types, filters)
    y = types[0]
    x = ArrayType((y.shape[0], filters, *extents), y.dtype, y.device)
    check_result(name, y, (*y.shape[:2], *_places(name, x, padding, 2)))
    if any(before != 1 for before, _ in padding):
        raise ArgumentError(f"{name}: padding before the images must be 1, got {padding}")
    return x


def _infer_sums(*types: ArrayType, padding: Padding, stride: int) -> ArrayType:
    name = "winograd_weight_sums"
    check_count(name, types, 2)
    check_images(name, types)
    x, y = types
    check_dtype(name, x.dtype, WHOLE)
    check_result(name, y, (x.shape[0], y.shape[1], *_places(name, x, padding, stride)))
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


# ---- NumPy's meaning


def _tiles(scheme: Scheme, x: np.ndarray, low: Sequence[int], places: Sequence[int]) -> np.ndarray:
    """The inputs of the tiles: (images, rows of tiles, tiles, channels, seen, seen)."""
    ends = [scheme.step * (ceil_div(n, scheme.tile) - 1) + scheme.seen for n in places]
    around = [
        (before, max(0, end - before - n)) for n, before, end in zip(x.shape[2:], low, ends, strict=True)
    ]
    wide = np.pad(x, ((0, 0), (0, 0), *around))[:, :, : ends[0], : ends[1]]
    seen = np.lib.stride_tricks.sliding_window_view(wide, (scheme.seen, scheme.seen), axis=(2, 3))
    return seen[:, :, :: scheme.step, :: scheme.step].transpose(0, 2, 3, 1, 4, 5)


def _transformed(matrix: Sequence[Sequence[float]], tiles: np.ndarray) -> np.ndarray:
    """Tiles in the last two dimensions, with the matrix on both sides; in the dtype of the tiles."""
    both = np.array(matrix, tiles.dtype)
    return both @ tiles @ both.T


def _in_slivers(scheme: Scheme, points: np.ndarray, channels: int, filters: int) -> np.ndarray:
    """Weights (filters, channels, side, side) in slivers."""
    slivers, _, _, wide = weights_shape(scheme, channels, filters, points.itemsize)
    full = np.zeros((slivers * wide, channels, scheme.points), points.dtype)
    full[:filters] = points.reshape(filters, channels, scheme.points)
    return np.ascontiguousarray(full.reshape(slivers, wide, channels, scheme.points).transpose(0, 3, 2, 1))


def _from_slivers(scheme: Scheme, u: np.ndarray, filters: int) -> np.ndarray:
    """The reverse."""
    slivers, _, channels, wide = u.shape
    full = u.transpose(0, 3, 2, 1).reshape(slivers * wide, channels, scheme.side, scheme.side)
    return full[:filters]


def _evaluate_weights(w: np.ndarray, images: np.ndarray, *, transposed: bool, stride: int) -> np.ndarray:
    if transposed:
        w = w.transpose(1, 0, 2, 3)[:, :, ::-1, ::-1]
    scheme = SCHEMES[stride]
    return _in_slivers(scheme, _transformed(scheme.window, w), w.shape[1], w.shape[0])


def _evaluate(
    scheme: Scheme, x: np.ndarray, u: np.ndarray, low: Sequence[int], places: Sequence[int], filters: int
) -> np.ndarray:
    """A convolution of images by transformed weights."""
    seen = _transformed(scheme.image, _tiles(scheme, x, low, places))
    products = np.einsum("nijcab,kcab->nkijab", seen, _from_slivers(scheme, u, filters), optimize=True)
    tiles = _transformed(np.transpose(scheme.places).tolist(), products)
    n, k, rows, columns = tiles.shape[:4]
    full = tiles.transpose(0, 1, 2, 4, 3, 5).reshape(n, k, rows * scheme.tile, columns * scheme.tile)
    return np.ascontiguousarray(full[:, :, : places[0], : places[1]])


def _evaluate_convolution(
    x: np.ndarray, u: np.ndarray, *, padding: Padding, filters: int, stride: int
) -> np.ndarray:
    places = [windows_along(n, WINDOW_SIDE, stride, p) for n, p in zip(x.shape[2:], padding, strict=True)]
    return _evaluate(SCHEMES[stride], x, u, [before for before, _ in padding], places, filters)


def _evaluate_input_gradient(
    y: np.ndarray, u: np.ndarray, *, padding: Padding, extents: Pair, filters: int
) -> np.ndarray:
    return _evaluate(SPREAD, y, u, (0, 0), extents, filters)


def _evaluate_sums(x: np.ndarray, y: np.ndarray, *, padding: Padding, stride: int) -> np.ndarray:
    scheme = SCHEMES[stride]
    rows, blocks, parts = sums_split(scheme, x.shape, y.shape, x.itemsize)
    seen = _transformed(scheme.image, _tiles(scheme, x, [before for before, _ in padding], y.shape[2:]))
    side = scheme.tile
    wide = np.pad(y, ((0, 0), (0, 0), *((0, -n % side) for n in y.shape[2:])))
    n, k, height, width = wide.shape
    places = wide.reshape(n, k, height // side, side, width // side, side).transpose(0, 2, 4, 1, 3, 5)
    found = np.zeros((parts, *weights_shape(scheme, x.shape[1], k, x.itemsize)), x.dtype)
    along, across = (t.reshape(-1, *t.shape[2:]) for t in (seen, _transformed(scheme.places, places)))
    for part, out in enumerate(found):
        mine = slice(part * blocks * rows, (part + 1) * blocks * rows)
        sums = np.einsum("rjcab,rjkab->kcab", along[mine], across[mine], optimize=True)
        out[:] = _in_slivers(scheme, sums, x.shape[1], k)
    return found


def _evaluate_gradient(s: np.ndarray, *, filters: int, stride: int) -> np.ndarray:
    scheme = SCHEMES[stride]
    turned = np.transpose(scheme.window).tolist()
    return np.ascontiguousarray(_transformed(turned, _from_slivers(scheme, s.sum(0), filters)))


# ---- declarations


def _products(y: int, u: int, side: int = 2) -> Any:
    """The multiplications, from the operands (or the result) with places, in tiles of `side`, and transformed
    weights.
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
        doc="Windows of 3 x 3, transformed for products with tiles of images, which are not read.",
        admits=WHOLE,
    )
)
winograd_conv2d = register(
    Operator(
        "winograd_conv2d",
        _infer_convolution,
        _evaluate_convolution,
        traits=LIBRARY,
        doc="A convolution of images by transformed weights.",
        admits=WHOLE,
        work=_products(y=2, u=1),
    )
)
winograd_input_gradient = register(
    Operator(
        "winograd_input_gradient",
        _infer_input_gradient,
        _evaluate_input_gradient,
        traits=LIBRARY,
        doc="The gradient to images of a convolution with a stride of 2, from transformed, turned weights.",
        admits=WHOLE,
        work=_products(y=2, u=1, side=SPREAD.tile),
    )
)
winograd_weight_sums = register(
    Operator(
        "winograd_weight_sums",
        _infer_sums,
        _evaluate_sums,
        traits=LIBRARY,
        doc="Sums of products of transformed tiles, for the gradient of a convolution to its weight.",
        admits=WHOLE,
        work=_products(y=1, u=2),
    )
)
winograd_weight_gradient = register(
    Operator(
        "winograd_weight_gradient",
        _infer_gradient,
        _evaluate_gradient,
        traits=COMPILED,
        doc="The gradient of a convolution with respect to its weight, from sums of products of tiles.",
        admits=WHOLE,
    )
)
