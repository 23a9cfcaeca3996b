"""Convolution by 3 x 3 windows with fewer multiplications: plans, argument blocks, shapes. Needs no Numba.

Winograd's F(2 x 2, 3 x 3) computes tiles of 2 x 2 places, from 4 x 4 elements of an image, with 16
multiplications instead of 36 (Lavin and Gray, Fast algorithms for convolutional neural networks, 2016). With
the matrices `IMAGE` (B'), `WINDOW` (G) and `PLACES` (A), for one channel and one filter:

    y = A' ((G w G') * (B' x B)) A

Over channels, each of the 16 elements of the transformed tiles, its *points*, is a matrix product: (tiles,
channels) by (channels, filters). The gradients are of the same kind:

    winograd_weights           U = G w G'                        unit = (sliver, part of the channels)
    winograd_conv2d            y = A' (U * (B' x B)) A           unit = (block of tiles, part of the filters)
    winograd_weight_sums       S = sums of (B' x B) * (A y A')   unit = (part of the tiles, of the channels)
    winograd_weight_gradient   w = G' S G                        unit = (sliver, part of the channels)

The gradient to the images is a convolution of y by the windows turned by half a turn, with filters and
channels exchanged (the weights are then ``transposed``).

Transformed weights and sums lie as the tiles of `tracejit.kernels.gemm.tiles` read them: in *slivers* of
filters, (slivers, points, channels, filters of a sliver); those that fill up the last one are zeros.
Transformed images stay in a worker's scratch memory: a *block* is some rows of tiles, over all images in
order. Images come in as rows of a channel, and are transposed in the cache, `LANES` channels at a time, so
that all arithmetic is in vectors of channels, whatever the extents.

Units write different elements and add in a fixed order.
"""

# No `from __future__ import annotations`: a named tuple compiles every annotation that is a string.

import enum
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tracejit.kernels.gemm.blas import entry_points
from tracejit.kernels.gemm.plan import PADDING, TILE_BYTES
from tracejit.kernels.images.windows import ENTRIES, LANES
from tracejit.kernels.split import Call, ceil_div

Shape = Sequence[int]
Matrix = tuple[tuple[float, ...], ...]

IMAGE: Matrix = ((1, 0, -1, 0), (0, 1, 1, 0), (0, -1, 1, 0), (0, 1, 0, -1))
WINDOW: Matrix = ((1, 0, 0), (0.5, 0.5, 0.5), (0.5, -0.5, 0.5), (0, 0, 1))
PLACES: Matrix = ((1, 0), (1, 1), (1, -1), (0, -1))

TILE = 2  # places along a side of a tile
SIDE = 4  # elements along a side of what a tile sees
POINTS = SIDE * SIDE
WINDOW_SIDE = 3
BLOCK_TILES = 96  # of a block: a sliver is read once for it, and 64 channels of it are 400 KB
SUM_TILES = 96  # the same of sums, whose blocks are the depth of the products
UNITS = 16  # the target for a call with enough work
LEAST_SLIVERS = 2  # in a unit: images are transformed again for each part of the filters
SUM_CHANNELS = 64  # of a unit: y is transformed again for each part of the channels
SUMS_BYTES = 1 << 23  # of partial sums of all parts of the tiles
WEIGHTS = 1 << 12  # of a unit that transforms weights


class Winograd(enum.IntEnum):
    """Slots of all four kernels; FIRST, SECOND and, where there is one, THIRD are the operands."""

    ENTRY = 0  # address of `?gemm`, for processors without tiles
    IMAGES = 1
    CHANNELS = 2
    FILTERS = 3
    HEIGHT = 4
    WIDTH = 5
    TOP = 6  # padding
    LEFT = 7
    OUT_HEIGHT = 8
    OUT_WIDTH = 9
    ROWS = 10  # of tiles, in a block
    BLOCKS = 11  # in a unit of sums
    PART = 12  # slivers in a unit of the convolution, channels in one of the others
    PARTS = 13
    TURNED = 14  # 1: weights for the gradient to the images
    FIRST = 15
    SECOND = 16
    THIRD = 17


def sliver(itemsize: int) -> int:
    """The number of filters in a sliver."""
    return TILE_BYTES // itemsize


def leading(channels: int, itemsize: int) -> int:
    """Elements from a transformed tile to the next: whole lines, and one more, as in `gemm.plan.PADDING`."""
    return ceil_div(channels, LANES) * LANES + PADDING // itemsize


def tile_rows(images: int, height: int) -> int:
    """Rows of tiles of all images."""
    return images * ceil_div(height, TILE)


def weights_shape(channels: int, filters: int, itemsize: int) -> tuple[int, int, int, int]:
    """The shape of transformed weights.

    >>> weights_shape(128, 100, 4)
    (2, 16, 128, 64)
    """
    return ceil_div(filters, sliver(itemsize)), POINTS, channels, sliver(itemsize)


def sums_shape(x: Shape, y: Shape, itemsize: int) -> tuple[int, int, int, int, int]:
    """The shape of the sums of a gradient to weights: those of each part of the tiles.

    >>> sums_shape((32, 64, 32, 32), (32, 64, 32, 32), 4)
    (15, 1, 16, 64, 64)
    """
    _, _, parts = sums_split(x, y, itemsize)
    return parts, *weights_shape(x[1], y[1], itemsize)


def sums_split(x: Shape, y: Shape, itemsize: int) -> tuple[int, int, int]:
    """(rows of tiles in a block, blocks in a part, parts) of sums."""
    rows = _rows(y, SUM_TILES)
    blocks = ceil_div(tile_rows(y[0], y[2]), rows)
    slivers, points, channels, filters = weights_shape(x[1], y[1], itemsize)
    nbytes = slivers * points * channels * filters * itemsize
    parts = min(ceil_div(UNITS, ceil_div(channels, SUM_CHANNELS)), max(1, SUMS_BYTES // nbytes), blocks)
    each = ceil_div(blocks, parts)
    return rows, each, ceil_div(blocks, each)


def _rows(y: Shape, tiles: int) -> int:
    """Rows of tiles in a block of about so many tiles."""
    return min(max(1, tiles // ceil_div(y[3], TILE)), tile_rows(y[0], y[2]))


def _words(images: Shape, filters: int, low: Shape, y: Shape, split: Shape, dtype: str) -> tuple[int, ...]:
    """The slots up to the operands; `images`: batch, channels, height, width; `split`: from ROWS on."""
    return (entry_points()[ENTRIES[dtype][0]], *images[:2], filters, *images[2:], *low, *y[2:], *split)


def _low(attrs: Mapping[str, Any]) -> list[int]:
    """The padding before the first row and column."""
    return [before for before, _ in attrs["padding"]]


def _weights_call(shapes: Sequence[Shape], attrs: Mapping[str, Any], dtype: str) -> Call:
    w, (slivers, _, channels, _) = shapes
    filters = w[1] if attrs["transposed"] else w[0]
    return _over_weights("winograd_weights", (1, channels), filters, slivers, int(attrs["transposed"]), dtype)


def _gradient_call(shapes: Sequence[Shape], attrs: Mapping[str, Any], dtype: str) -> Call:
    (parts, slivers, _, channels, _), w = shapes
    return _over_weights("winograd_weight_gradient", (parts, channels), w[0], slivers, 0, dtype)


def _over_weights(
    name: str, operands: tuple[int, int], filters: int, slivers: int, turned: int, dtype: str
) -> Call:
    """A call whose units are some channels of a sliver; `operands`: how many sets of weights, channels."""
    itemsize = ENTRIES[dtype][1]
    part = min(operands[1], ceil_div(WEIGHTS, sliver(itemsize)))
    parts = ceil_div(operands[1], part)
    words = _words((*operands, 0, 0), filters, (0, 0), (0, 0, 0, 0), (0, 0, part, parts, turned), dtype)
    return Call(name, dtype, words, slivers * parts, 1, (POINTS + WINDOW_SIDE**2) * TILE_BYTES)


def _convolution_call(shapes: Sequence[Shape], attrs: Mapping[str, Any], dtype: str) -> Call:
    x, (slivers, _, channels, _), y = shapes
    itemsize = ENTRIES[dtype][1]
    rows = _rows(y, BLOCK_TILES)
    blocks = ceil_div(tile_rows(y[0], y[2]), rows)
    parts = max(1, min(ceil_div(UNITS, blocks), slivers // LEAST_SLIVERS))
    part = ceil_div(slivers, parts)
    parts = ceil_div(slivers, part)
    words = _words(x, y[1], _low(attrs), y, (rows, blocks, part, parts, 0), dtype)
    tiles = rows * ceil_div(y[3], TILE)
    room = POINTS * tiles * (leading(channels, itemsize) * itemsize + TILE_BYTES)
    return Call("winograd_conv2d", dtype, words, blocks * parts, 1, room + _patch_bytes(y, rows, itemsize))


def _sums_call(shapes: Sequence[Shape], attrs: Mapping[str, Any], dtype: str) -> Call:
    x, y, _ = shapes
    itemsize = ENTRIES[dtype][1]
    rows, blocks, tile_parts = sums_split(x, y, itemsize)
    part = min(ceil_div(x[1], LANES) * LANES, SUM_CHANNELS)
    parts = ceil_div(x[1], part)
    words = _words(x, y[1], _low(attrs), y, (rows, blocks, part, parts, 0), dtype)
    tiles = rows * ceil_div(y[3], TILE)
    room = POINTS * tiles * (leading(part, itemsize) * itemsize + TILE_BYTES)
    scratch = room + _patch_bytes(y, rows, itemsize)
    return Call("winograd_weight_sums", dtype, words, tile_parts * parts, 1, scratch)


def _patch_bytes(y: Shape, rows: int, itemsize: int) -> int:
    """Bytes of scratch memory for two patches: what a block sees of one image, in LANES channels."""
    height = min(rows, ceil_div(y[2], TILE)) * TILE + SIDE
    width = ceil_div(y[3], TILE) * TILE + SIDE
    return 2 * height * width * LANES * itemsize


CALLS: dict[str, Callable[[Sequence[Shape], Mapping[str, Any], str], Call]] = {
    "winograd_weights": _weights_call,
    "winograd_conv2d": _convolution_call,
    "winograd_weight_sums": _sums_call,
    "winograd_weight_gradient": _gradient_call,
}


def winograd_call(name: str, shapes: Sequence[Shape], attrs: Mapping[str, Any], dtype: str) -> Call:
    """The call of the operator `name` with these attributes; `shapes`: operands, then the result."""
    return CALLS[name](shapes, attrs, dtype)
