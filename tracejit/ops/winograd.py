"""Convolution by 3 x 3 windows with fewer multiplications: what `tracejit.passes.winograd` makes of it.

A convolution, and each of its gradients, falls into transforms of small tiles and products between them
(Winograd's F(2 x 2, 3 x 3), see `tracejit.kernels.images.winograd_plan`):

    conv2d(x, w)                   winograd_conv2d(x, winograd_weights(w))
    conv2d_input_gradient(y, w)    winograd_conv2d(y, winograd_weights(w, transposed))
    conv2d_weight_gradient(x, y)   winograd_weight_gradient(winograd_weight_sums(x, y))

They are separate operators, as the second part of each needs all of the first. Transformed weights are
(slivers, points, channels, filters of a sliver), sums the same for each part of the tiles.

>>> w = np.ones((2, 1, 3, 3))
>>> winograd_weights.evaluate(w, transposed=False).shape
(1, 16, 1, 32)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tracejit.errors import ShapeError
from tracejit.ir.op import Trait, register
from tracejit.ir.types import ArrayType
from tracejit.kernels.images.winograd_plan import (
    IMAGE,
    PLACES,
    POINTS,
    SIDE,
    TILE,
    WINDOW,
    WINDOW_SIDE,
    sums_shape,
    sums_split,
    weights_shape,
)
from tracejit.kernels.split import ceil_div
from tracejit.ops.batching import refusing
from tracejit.ops.convolution import Padding, check_images, check_steps
from tracejit.ops.rules import WHOLE, check_array, check_count, check_dtype, check_one_dtype
from tracejit.ops.symbolic import Operator

B, G, A = (np.array(matrix) for matrix in (IMAGE, WINDOW, PLACES))


def _places(name: str, x: ArrayType, padding: Padding) -> tuple[int, int]:
    """The extents of the result of a convolution."""
    check_steps(name, padding)
    height, width = (n + sum(p) - WINDOW_SIDE + 1 for n, p in zip(x.shape[2:], padding, strict=True))
    if min(height, width) < 1:
        raise ShapeError(f"{name} of {x} with padding {padding}: the window is larger than the padded input")
    return height, width


def _check_transformed(name: str, u: ArrayType, slots: int) -> None:
    check_array(name, u)
    check_dtype(name, u.dtype, WHOLE)
    if u.ndim != slots or u.shape[-3] != POINTS:
        raise ShapeError(f"{name} needs transformed weights of {slots} dimensions, got {u}")


def _infer_weights(*types: ArrayType, transposed: bool) -> ArrayType:
    name = "winograd_weights"
    check_count(name, types, 1)
    check_images(name, types)
    (w,) = types
    check_dtype(name, w.dtype, WHOLE)
    if w.shape[2:] != (WINDOW_SIDE, WINDOW_SIDE):
        raise ShapeError(f"{name} needs windows of 3 x 3, got {w}")
    filters, channels = w.shape[1::-1] if transposed else w.shape[:2]
    return ArrayType(weights_shape(channels, filters, w.dtype.itemsize), w.dtype, w.device)


def _infer_convolution(*types: ArrayType, padding: Padding, filters: int) -> ArrayType:
    name = "winograd_conv2d"
    check_count(name, types, 2)
    x, u = types
    check_images(name, [x])
    _check_transformed(name, u, 4)
    check_one_dtype(name, types)
    if u.shape != weights_shape(x.shape[1], filters, x.dtype.itemsize):
        raise ShapeError(f"{name} of {x} got {u} as the weights of {filters} filters")
    return ArrayType((x.shape[0], filters, *_places(name, x, padding)), x.dtype, x.device)


def _infer_sums(*types: ArrayType, padding: Padding) -> ArrayType:
    name = "winograd_weight_sums"
    check_count(name, types, 2)
    check_images(name, types)
    x, y = types
    check_dtype(name, x.dtype, WHOLE)
    expected = (x.shape[0], y.shape[1], *_places(name, x, padding))
    if y.shape != expected:
        raise ShapeError(f"{name} got {y} for the result of a convolution of shape {expected}")
    return ArrayType(sums_shape(x.shape, y.shape, x.dtype.itemsize), x.dtype, x.device)


def _infer_gradient(*types: ArrayType, filters: int) -> ArrayType:
    name = "winograd_weight_gradient"
    check_count(name, types, 1)
    (s,) = types
    _check_transformed(name, s, 5)
    channels = s.shape[3]
    if s.shape[1:] != weights_shape(channels, filters, s.dtype.itemsize):
        raise ShapeError(f"{name} got {s} as the sums of {filters} filters")
    return ArrayType((filters, channels, WINDOW_SIDE, WINDOW_SIDE), s.dtype, s.device)


# ---- NumPy's meaning


def _tiles(x: np.ndarray, padding: Padding, places: Sequence[int]) -> np.ndarray:
    """What the tiles see: (images, rows of tiles, tiles, channels, 4, 4)."""
    rows, columns = (ceil_div(n, TILE) for n in places)
    ends = [TILE * n + SIDE - TILE for n in (rows, columns)]
    around = [
        (before, max(0, end - before - n))
        for n, (before, _), end in zip(x.shape[2:], padding, ends, strict=True)
    ]
    wide = np.pad(x, ((0, 0), (0, 0), *around))[:, :, : ends[0], : ends[1]]
    seen = np.lib.stride_tricks.sliding_window_view(wide, (SIDE, SIDE), axis=(2, 3))
    return seen[:, :, ::TILE, ::TILE].transpose(0, 2, 3, 1, 4, 5)


def _transformed(matrix: np.ndarray, tiles: np.ndarray) -> np.ndarray:
    """Tiles in the last two dimensions, with the matrix on both sides; in the dtype of the tiles."""
    matrix = matrix.astype(tiles.dtype)
    return matrix @ tiles @ matrix.T


def _in_slivers(points: np.ndarray, channels: int, filters: int) -> np.ndarray:
    """Weights (filters, channels, 4, 4) in slivers."""
    slivers, _, _, wide = weights_shape(channels, filters, points.itemsize)
    full = np.zeros((slivers * wide, channels, POINTS), points.dtype)
    full[:filters] = points.reshape(filters, channels, POINTS)
    return np.ascontiguousarray(full.reshape(slivers, wide, channels, POINTS).transpose(0, 3, 2, 1))


def _from_slivers(u: np.ndarray, filters: int) -> np.ndarray:
    """The reverse."""
    slivers, _, channels, wide = u.shape
    full = u.transpose(0, 3, 2, 1).reshape(slivers * wide, channels, SIDE, SIDE)
    return full[:filters]


def _evaluate_weights(w: np.ndarray, *, transposed: bool) -> np.ndarray:
    if transposed:
        w = w.transpose(1, 0, 2, 3)[:, :, ::-1, ::-1]
    return _in_slivers(_transformed(G, w), w.shape[1], w.shape[0])


def _evaluate_convolution(x: np.ndarray, u: np.ndarray, *, padding: Padding, filters: int) -> np.ndarray:
    height, width = (n + sum(p) - 2 for n, p in zip(x.shape[2:], padding, strict=True))
    seen = _transformed(B, _tiles(x, padding, (height, width)))
    products = np.einsum("nijcab,kcab->nkijab", seen, _from_slivers(u, filters), optimize=True)
    tiles = _transformed(A.T, products)
    n, k, rows, columns = tiles.shape[:4]
    full = tiles.transpose(0, 1, 2, 4, 3, 5).reshape(n, k, rows * TILE, columns * TILE)
    return np.ascontiguousarray(full[:, :, :height, :width])


def _evaluate_sums(x: np.ndarray, y: np.ndarray, *, padding: Padding) -> np.ndarray:
    rows, blocks, parts = sums_split(x.shape, y.shape, x.itemsize)
    seen = _transformed(B, _tiles(x, padding, y.shape[2:]))
    ends = [(0, n % TILE) for n in y.shape[2:]]
    wide = np.pad(y, ((0, 0), (0, 0), *ends))
    n, k, height, width = wide.shape
    places = wide.reshape(n, k, height // TILE, TILE, width // TILE, TILE).transpose(0, 2, 4, 1, 3, 5)
    found = np.zeros((parts, *weights_shape(x.shape[1], k, x.itemsize)), x.dtype)
    along, across = (t.reshape(-1, *t.shape[2:]) for t in (seen, _transformed(A, places)))
    for part, out in enumerate(found):
        mine = slice(part * blocks * rows, (part + 1) * blocks * rows)
        sums = np.einsum("rjcab,rjkab->kcab", along[mine], across[mine], optimize=True)
        out[:] = _in_slivers(sums, x.shape[1], k)
    return found


def _evaluate_gradient(s: np.ndarray, *, filters: int) -> np.ndarray:
    return np.ascontiguousarray(_transformed(G.T, _from_slivers(s.sum(0), filters)))


# ---- declarations


def _products(y: int, u: int) -> Any:
    """The multiplications, from the operands (or the result) with places and transformed weights."""

    def work(shapes: Sequence[tuple[int, ...]], attrs: Any) -> int:
        images, _, height, width = shapes[y]
        return images * ceil_div(height, TILE) * ceil_div(width, TILE) * math.prod(shapes[u][-4:])

    return work


LIBRARY = frozenset({Trait.LIBRARY})
BATCH = refusing("a convolution that was compiled is no longer an operator; map the function before it is")

winograd_weights = register(
    Operator(
        "winograd_weights",
        _infer_weights,
        _evaluate_weights,
        doc="Windows of 3 x 3, transformed for products with transformed tiles of images.",
        admits=WHOLE,
        batch=BATCH,
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
        batch=BATCH,
        work=_products(y=2, u=1),
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
        batch=BATCH,
        work=_products(y=1, u=2),
    )
)
winograd_weight_gradient = register(
    Operator(
        "winograd_weight_gradient",
        _infer_gradient,
        _evaluate_gradient,
        doc="The gradient of a convolution with respect to its weight, from sums of products of tiles.",
        admits=WHOLE,
        batch=BATCH,
    )
)
