"""Convolution by 3 x 3 windows with fewer multiplications: plans, argument blocks, shapes. Needs no Numba.

Winograd's F(2 x 2, 3 x 3) computes tiles of 2 x 2 output positions from 4 x 4 elements of an image, with 16
multiplications instead of 36 (Lavin and Gray, Fast algorithms for convolutional neural networks, 2016). With
the matrices of a `Scheme`, B' for images, G for windows and A for outputs, for one channel and one filter:

    y = A' ((G w G') * (B' x B)) A

Over channels, each of the 16 elements of the transformed tiles, its *points*, is a matrix product: (tiles,
channels) by (channels, filters). The gradients have the same form:

    winograd_weights           U = G w G'                        unit = (sliver, range of channels)
    winograd_conv2d            y = A' (U * (B' x B)) A           unit = (block of tiles, range of filters)
    winograd_input_gradient    x = A' (U * (B' y B)) A           unit = (block of tiles, range of channels)
    winograd_weight_sums       S = sums of (B' x B) * (A y A')   unit = (range of tiles, range of channels)
    winograd_weight_gradient   w = G' S G                        unit = (sliver, range of channels)

The gradient with respect to the images is a convolution of y by the windows rotated by 180 degrees, with
filters and channels exchanged (the weights are then ``transposed``).

A stride of 2 splits the elements of an image: the outer two elements of a window are applied to the even
ones, the middle one to the odd ones. Along a dimension, two output positions take three multiplications for
the former, F(2, 2), and two for the latter, so that a tile takes 25 multiplications instead of 36
(`STRIDED`). In the gradient with respect to the images, even and odd elements depend on the outer two and on
the middle one (`SPREAD`, tiles of 4 x 4 elements; a separate operator, for one element of padding).

Transformed weights and sums are stored in the layout that `tracejit.kernels.gemm.tiles` reads: in *slivers*
of filters, (slivers, points, channels, filters of a sliver); the last sliver is padded with zeros.
Transformed images stay in a worker's scratch memory: a *block* is a number of tile rows, counted over all
images in order. Images are read as rows of a channel and transposed in the cache, `LANES` channels at a time,
so that all arithmetic is in vectors of channels for any extents.

Units write disjoint elements and add in a fixed order.
"""

# No `from __future__ import annotations`: a named tuple compiles every annotation that is a string.

import enum
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from tracejit.kernels.gemm.blas import entry_points
from tracejit.kernels.gemm.plan import PADDING, TILE_BYTES
from tracejit.kernels.images.windows import ENTRIES, LANES
from tracejit.kernels.split import KernelCall, ceil_div

Shape = Sequence[int]
Matrix = tuple[tuple[float, ...], ...]


class Scheme(NamedTuple):
    """The matrices B', G and A of a kind of convolution; the inputs of neighbouring tiles begin `step`
    elements apart.
    """

    image: Matrix
    window: Matrix
    output: Matrix
    step: int

    @property
    def side(self) -> int:
        """The number of points along a side of a transformed tile."""
        return len(self.image)

    @property
    def points(self) -> int:
        """The number of points of a transformed tile."""
        return self.side**2

    @property
    def input_side(self) -> int:
        """The number of input elements along a side of a tile."""
        return len(self.image[0])

    @property
    def tile(self) -> int:
        """The number of output positions along a side of a tile."""
        return len(self.output[0])


DENSE = Scheme(
    image=((1, 0, -1, 0), (0, 1, 1, 0), (0, -1, 1, 0), (0, 1, 0, -1)),
    window=((1, 0, 0), (0.5, 0.5, 0.5), (0.5, -0.5, 0.5), (0, 0, 1)),
    output=((1, 0), (1, 1), (1, -1), (0, -1)),
    step=2,
)
STRIDED = Scheme(
    image=((1, 0, -1, 0, 0), (0, 0, 1, 0, 0), (0, 0, 1, 0, -1), (0, 1, 0, 0, 0), (0, 0, 0, 1, 0)),
    window=((1, 0, 0), (1, 0, 1), (0, 0, 1), (0, 1, 0), (0, 1, 0)),
    output=((1, 0), (1, 1), (0, -1), (1, 0), (0, 1)),
    step=4,
)
SPREAD = Scheme(
    image=((1, -1, 0), (0, 1, 0), (0, 1, -1), (1, 0, 0), (0, 1, 0)),
    window=STRIDED.window,
    output=((0, 1, 0, 0), (0, 1, 0, 1), (0, 0, 0, -1), (1, 0, 0, 0), (0, 0, 1, 0)),
    step=2,
)
SCHEMES = {1: DENSE, 2: STRIDED}
"""Schemes of convolutions and of gradients with respect to the weights, by stride."""

WINDOW_SIDE = 3
BLOCK_TILES = 96  # tiles of a block, for which a sliver is read once; 64 channels of a block are 400 KB
SUM_TILES = 96  # tiles of a block of sums, whose tiles are the depth of the products
UNITS = 16  # target number of units of a call with enough work
MIN_SLIVERS = 2  # slivers of a unit: images are transformed again for each range of filters
SUM_CHANNELS = 64  # channels of a unit of sums: y is transformed again for each range of channels
SUMS_BYTES = 1 << 23  # bytes of the partial sums of all ranges of tiles
WEIGHTS = 1 << 12  # windows of a unit that transforms weights


class Winograd(enum.IntEnum):
    """Slots of all kernels; FIRST, SECOND and, if there is one, THIRD are the operands. The kernel of the
    weights does not read SECOND.
    """

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
    ROWS = 10  # rows of tiles in a block
    BLOCKS = 11  # in a unit of sums
    RANGE_SIZE = 12  # slivers in a unit of the convolution, channels in a unit of the other kernels
    RANGES = 13
    TURNED = 14  # 1: weights for the gradient with respect to the images
    FIRST = 15
    SECOND = 16
    THIRD = 17


def sliver(itemsize: int) -> int:
    """The number of filters in a sliver."""
    return TILE_BYTES // itemsize


def leading(channels: int, itemsize: int) -> int:
    """The distance of consecutive transformed tiles in elements: entire cache lines, plus the padding of
    `gemm.plan.PADDING`.
    """
    return ceil_div(channels, LANES) * LANES + PADDING // itemsize


def tile_rows(scheme: Scheme, images: int, height: int) -> int:
    """The number of tile rows of all images."""
    return images * ceil_div(height, scheme.tile)


def weights_shape(scheme: Scheme, channels: int, filters: int, itemsize: int) -> tuple[int, int, int, int]:
    """The shape of transformed weights.

    >>> weights_shape(DENSE, 128, 100, 4)
    (2, 16, 128, 64)
    """
    return ceil_div(filters, sliver(itemsize)), scheme.points, channels, sliver(itemsize)


def sums_shape(scheme: Scheme, x: Shape, y: Shape, itemsize: int) -> tuple[int, int, int, int, int]:
    """The shape of the partial sums of a weight gradient, one set for each range of tiles.

    >>> sums_shape(DENSE, (32, 64, 32, 32), (32, 64, 32, 32), 4)
    (15, 1, 16, 64, 64)
    """
    _, _, ranges = sums_split(scheme, x, y, itemsize)
    return ranges, *weights_shape(scheme, x[1], y[1], itemsize)


def sums_split(scheme: Scheme, x: Shape, y: Shape, itemsize: int) -> tuple[int, int, int]:
    """The split of the sums: (tile rows in a block, blocks in a range, ranges)."""
    rows = _rows(scheme, y, SUM_TILES)
    blocks = ceil_div(tile_rows(scheme, y[0], y[2]), rows)
    slivers, points, channels, filters = weights_shape(scheme, x[1], y[1], itemsize)
    nbytes = slivers * points * channels * filters * itemsize
    ranges = min(ceil_div(UNITS, ceil_div(channels, SUM_CHANNELS)), max(1, SUMS_BYTES // nbytes), blocks)
    blocks_per_range = ceil_div(blocks, ranges)
    return rows, blocks_per_range, ceil_div(blocks, blocks_per_range)


def _rows(scheme: Scheme, y: Shape, tiles: int) -> int:
    """The number of tile rows in a block of about `tiles` tiles at most; all blocks have about the
    same size.
    """
    rows, most = max(1, tile_rows(scheme, y[0], y[2])), max(1, tiles // ceil_div(y[3], scheme.tile))
    return ceil_div(rows, ceil_div(rows, most))


def _words(images: Shape, filters: int, low: Shape, y: Shape, split: Shape, dtype: str) -> tuple[int, ...]:
    """The slots up to the operands; `images`: batch, channels, height, width; `split`: the slots from ROWS
    on.
    """
    return (entry_points()[ENTRIES[dtype][0]], *images[:2], filters, *images[2:], *low, *y[2:], *split)


def _low(attrs: Mapping[str, Any]) -> list[int]:
    """The padding before the first row and column."""
    return [before for before, _ in attrs["padding"]]


def kernel_name(name: str, stride: int) -> str:
    """The name of the kernel of an operator for a stride.

    >>> kernel_name("winograd_conv2d", 2)
    'strided_winograd_conv2d'
    """
    return f"strided_{name}" if SCHEMES[stride] is STRIDED else name


def _weights_call(shapes: Sequence[Shape], attrs: Mapping[str, Any], dtype: str) -> KernelCall:
    w, _, u = shapes
    filters = w[1] if attrs["transposed"] else w[0]
    name = kernel_name("winograd_weights", attrs["stride"])
    return _weights_kernel_call(name, u, 1, filters, int(attrs["transposed"]), dtype)


def _gradient_call(shapes: Sequence[Shape], attrs: Mapping[str, Any], dtype: str) -> KernelCall:
    (ranges, *u), w = shapes
    name = kernel_name("winograd_weight_gradient", attrs["stride"])
    return _weights_kernel_call(name, u, ranges, w[0], 0, dtype)


def _weights_kernel_call(
    name: str, u: Shape, sets: int, filters: int, flipped: int, dtype: str
) -> KernelCall:
    """A call each of whose units processes a range of channels of a sliver; `sets`: number of sets of
    transformed weights of the shape `u`.
    """
    slivers, points, channels, _ = u
    range_size = min(channels, ceil_div(WEIGHTS, sliver(ENTRIES[dtype][1])))
    ranges = ceil_div(channels, range_size)
    words = _words(
        (sets, channels, 0, 0), filters, (0, 0), (0, 0, 0, 0), (0, 0, range_size, ranges, flipped), dtype
    )
    return KernelCall(name, dtype, words, slivers * ranges, 1, (points + WINDOW_SIDE**2) * TILE_BYTES)


def _convolution_call(shapes: Sequence[Shape], attrs: Mapping[str, Any], dtype: str) -> KernelCall:
    name = kernel_name("winograd_conv2d", attrs["stride"])
    return _blocks_call(name, SCHEMES[attrs["stride"]], shapes, _low(attrs), dtype)


def _input_gradient_call(shapes: Sequence[Shape], attrs: Mapping[str, Any], dtype: str) -> KernelCall:
    return _blocks_call("winograd_input_gradient", SPREAD, shapes, (0, 0), dtype)


def _blocks_call(name: str, scheme: Scheme, shapes: Sequence[Shape], low: Shape, dtype: str) -> KernelCall:
    """A call whose units are blocks of tiles of the result; `shapes`: images, transformed weights, result."""
    x, (slivers, points, channels, _), y = shapes
    itemsize = ENTRIES[dtype][1]
    rows = _rows(scheme, y, BLOCK_TILES)
    blocks = ceil_div(tile_rows(scheme, y[0], y[2]), rows)
    ranges = max(1, min(ceil_div(UNITS, blocks), slivers // MIN_SLIVERS))
    range_size = ceil_div(slivers, ranges)
    ranges = ceil_div(slivers, range_size)
    words = _words(x, y[1], low, y, (rows, blocks, range_size, ranges, 0), dtype)
    tiles = rows * ceil_div(y[3], scheme.tile)
    tiles_bytes = points * tiles * (leading(channels, itemsize) * itemsize + TILE_BYTES)
    return KernelCall(
        name, dtype, words, blocks * ranges, 1, tiles_bytes + _patch_bytes(scheme, y, rows, itemsize)
    )


def _sums_call(shapes: Sequence[Shape], attrs: Mapping[str, Any], dtype: str) -> KernelCall:
    x, y, _ = shapes
    itemsize, scheme = ENTRIES[dtype][1], SCHEMES[attrs["stride"]]
    rows, blocks, tile_parts = sums_split(scheme, x, y, itemsize)
    range_size = min(ceil_div(x[1], LANES) * LANES, SUM_CHANNELS)
    ranges = ceil_div(x[1], range_size)
    words = _words(x, y[1], _low(attrs), y, (rows, blocks, range_size, ranges, 0), dtype)
    tiles = rows * ceil_div(y[3], scheme.tile)
    tiles_bytes = scheme.points * tiles * (leading(range_size, itemsize) * itemsize + TILE_BYTES)
    scratch = tiles_bytes + _patch_bytes(scheme, y, rows, itemsize)
    name = kernel_name("winograd_weight_sums", attrs["stride"])
    return KernelCall(name, dtype, words, tile_parts * ranges, 1, scratch)


def _patch_bytes(scheme: Scheme, y: Shape, rows: int, itemsize: int) -> int:
    """Bytes of scratch memory for two patches: the elements of one image that a block reads, or its outputs,
    in LANES channels.
    """
    step = max(scheme.step, scheme.tile)
    height = min(rows, ceil_div(y[2], scheme.tile)) * step + step
    width = ceil_div(y[3], scheme.tile) * step + step
    return 2 * height * width * LANES * itemsize


CALLS: dict[str, Callable[[Sequence[Shape], Mapping[str, Any], str], KernelCall]] = {
    "winograd_weights": _weights_call,
    "winograd_conv2d": _convolution_call,
    "winograd_input_gradient": _input_gradient_call,
    "winograd_weight_sums": _sums_call,
    "winograd_weight_gradient": _gradient_call,
}

KERNELS = frozenset(
    name if name == "winograd_input_gradient" else kernel_name(name, stride)
    for name in CALLS
    for stride in SCHEMES
)
"""The names of all kernels; `winograd_input_gradient` is a single kernel for all strides."""


def winograd_call(name: str, shapes: Sequence[Shape], attrs: Mapping[str, Any], dtype: str) -> KernelCall:
    """The call of the operator `name` with these attributes; `shapes`: operands, then the result."""
    return CALLS[name](shapes, attrs, dtype)
