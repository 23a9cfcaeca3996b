"""Plans of the kernels that slide windows over images: kernel name, argument block and split into units.
Needs no Numba.

`window_call` computes, from shapes only, the contents of a block (see
`tracejit.kernels.images.window_blocks`) up to the addresses of the operands, which follow, inputs first.

A convolution is a matrix product per image: weights (filters, depth) by *columns* (depth, positions), where
depth is channels * window and a column contains the elements under the window at one output position. Columns
are gathered for a panel of rows of positions in the worker's scratch memory, immediately before a product
reads them (Chellapilla, Puri and Simard, 2006, by panels), or a sliver at a time
(`tracejit.kernels.images.slivers`). If the window has one element and the stride is 1, an image is its own
matrix of columns (DIRECT = 1). Several small images form one product, or share the weights that a unit reads
(TOGETHER). The products are those of `tracejit.kernels.images.products`. Groups of one channel and one filter
have separate kernels (see `tracejit.kernels.images.depthwise`, and for many narrow images
`tracejit.kernels.images.channelwise`). For windows of 3 x 3, an algorithm with fewer multiplications is used
if it is profitable (see `tracejit.kernels.images.winograd_plan`).

    conv2d                  unit = (images, group, range of filters, panel): gather columns, multiply
    conv2d_input_gradient   unit = (images, group, range of channels): multiply, add columns to image elements
    conv2d_weight_gradient  unit = (group, range of depth): all images in order, gather, multiply, add
    conv2d_weight_sums      unit = (sum, group, range of depth): the same for some rows of positions

Units write disjoint elements and add in a fixed order, so results are the same for any number of workers.

>>> attrs = {"stride": (1, 1), "padding": ((1, 1), (1, 1)), "dilation": (1, 1), "groups": 1}
>>> call = window_call("conv2d", [(8, 3, 32, 32), (16, 3, 3, 3), (8, 16, 32, 32)], attrs, "float32")
>>> call.units, call.chunk, call.words[-1] == 27 * 4 * 16 * 32    # two panels of 16 rows for each image
(16, 2, True)
"""

# No `from __future__ import annotations`: a named tuple compiles every annotation that is a string.

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from tracejit.kernels.gemm.blas import entry_points
from tracejit.kernels.gemm.plan import BLOCK_ROWS, DEPTH, PADDING, SPAN_BYTES, TILE_BYTES, TILE_ROWS
from tracejit.kernels.split import KernelCall, ceil_div

Shape = Sequence[int]

WindowSplit = tuple[tuple[int, int, int, int, int], int, int]
"""Slots from ROWS to TOGETHER: rows of positions in a panel, panels, channels (or rows of columns) in a
range, ranges, images in a unit (or rows of positions of a sum); then the number of units, and the bytes of
scratch memory.
"""

COLUMNS = 256  # positions in a panel: packing the other operand again then costs below 10 %
COLUMN_BYTES = 1 << 19  # bytes of columns that fit in half of a common L2 cache
UNITS = 16  # target number of units of a call with enough work, for load balance
SPLIT_COLUMNS = 64  # positions below which a panel is not split for load balance
MIN_UNITS = 4  # units of a weight gradient, if its depth allows it
MAX_RANGE_DEPTH = 256  # rows of columns in a range of a weight gradient
MIN_SUM_POSITIONS = 1024  # positions in a sum: adding the sums then costs below 5 %
SUMS_BYTES = 1 << 23  # bytes of all sums
SHARED_WEIGHTS = 1 << 16  # elements of weights from which on several small images share them in a unit
MIN_SHARED_ROWS = 64  # rows of weights in a unit: the reuse of a sliver of an image
MIN_CHANNELS = 16  # channels in a range of an input gradient
CHUNK_WORK = 1 << 19  # multiply-adds in a chunk of units
LANES = 16  # channels in a vector: a cache line of float32
MIN_GROUPS = 6  # groups of one channel below which most lanes of channels would be idle
MIN_POSITIONS = 20  # positions in a row below which most lanes of rows would be idle
PATCH_BYTES = 1 << 17  # bytes of a panel of an image in lanes, or of a plane
PLANE_WORK = 1 << 15  # elements of windows in a unit of planes: about 10 us


LINE = 64
PACKING = DEPTH * TILE_BYTES + BLOCK_ROWS * (SPAN_BYTES + PADDING) + (SPAN_BYTES // 4) * PADDING
"""Bytes of scratch memory in which a packed product copies operands: a sliver, and a block of either
orientation.
"""

ENTRIES = {"float32": ("sgemm", 4), "float64": ("dgemm", 8)}
"""The BLAS function for a dtype, and the size of an element in bytes."""


class Sizes(NamedTuple):
    """The sizes that determine the split of a convolution; `row_bytes`: bytes of one row of columns for one
    row of positions.
    """

    images: int
    groups: int
    channels: int
    filters: int
    window: int
    out_height: int
    out_width: int
    row_bytes: int
    direct: bool


def convolution_call(
    split: Callable[[Sizes], WindowSplit],
    name: str,
    x: Shape,
    w: Shape,
    y: Shape,
    stride: Shape,
    low: Shape,
    dilation: Shape,
    groups: int,
    dtype: str,
) -> KernelCall:
    """The call of a convolution, or of a gradient, between shapes `x`, `w` and `y`; `low`: padding before the
    first row and column.
    """
    entry, itemsize = ENTRIES[dtype]
    sizes = _sizes(x, w, y, stride, low, groups, itemsize)
    sums = name == "conv2d_weight_sums"
    depthwise = sizes.channels == sizes.filters == 1 and not sums
    in_lanes = depthwise and _is_in_lanes(name, sizes, stride)
    if in_lanes:
        slots, units, scratch = _channelwise(name, sizes, x, (w[2], w[3]), stride, dilation)
    elif depthwise:
        slots, units, scratch = _depthwise(name, sizes, x, (w[2], w[3]), stride, dilation, low)
    else:
        slots, units, scratch = split(sizes)
    work = ceil_div(x[0] * w[0] * w[1] * w[2] * w[3] * y[2] * y[3], max(units, 1))
    workspace_offset = ceil_div(scratch, LINE) * LINE
    workspace = 0 if depthwise else PACKING
    words = (
        *(entry_points()[entry], x[0], groups, sizes.channels, sizes.filters),
        *(*x[2:], *w[2:], *stride, *low, *dilation),
        *(*y[2:], int(sizes.direct), *slots, workspace_offset),
    )
    name = "conv2d_weight_gradient" if sums else name
    kernel = f"channelwise_{name}" if in_lanes else f"depthwise_{name}" if depthwise else name
    return KernelCall(
        kernel, dtype, words, units, max(1, CHUNK_WORK // max(work, 1)), workspace_offset + workspace
    )


def _sizes(x: Shape, w: Shape, y: Shape, stride: Shape, low: Shape, groups: int, itemsize: int) -> Sizes:
    direct = w[2] * w[3] == 1 and tuple(stride) == (1, 1) and x[2:] == y[2:] and not any(low)
    return Sizes(x[0], groups, w[1], w[0] // groups, w[2] * w[3], y[2], y[3], y[3] * itemsize, direct)


def _panels(sizes: Sizes, depth: int, tasks: int) -> tuple[int, int]:
    """The number of rows of positions in a panel whose columns have `depth` rows, and the number of panels.

    `tasks` is the number of units for each panel; panels are smaller if there are few units.
    """
    least = ceil_div(COLUMNS, sizes.out_width)
    rows = sizes.out_height if sizes.direct else max(least, COLUMN_BYTES // (depth * sizes.row_bytes))
    if tasks:
        fewer = ceil_div(sizes.out_height * tasks, UNITS)
        rows = min(rows, max(fewer, ceil_div(SPLIT_COLUMNS, sizes.out_width)))
    panels = ceil_div(sizes.out_height, min(rows, sizes.out_height))
    rows = ceil_div(sizes.out_height, panels)
    return rows, ceil_div(sizes.out_height, rows)


def _images_per_product(sizes: Sizes, panels: int, ranges: int) -> int:
    """The number of small images in one product: enough columns for the product, while enough units remain.

    BLAS packs the weights again for each product; for 49 positions (7 x 7) that takes a quarter of the time.
    """
    if panels > 1:
        return 1
    least_images = ceil_div(COLUMNS, sizes.out_height * sizes.out_width)
    return max(1, min(least_images, sizes.images * sizes.groups * ranges // UNITS))


def _forward(sizes: Sizes) -> WindowSplit:
    depth = sizes.channels * sizes.window
    if _are_shared(sizes):
        return _sharing(sizes, sizes.filters)
    rows, panels = _panels(sizes, depth, max(sizes.images * sizes.groups, 1))
    together = 1 if sizes.direct else _images_per_product(sizes, panels, 1)
    line_count = depth + sizes.filters if together > 1 else 0 if sizes.direct else depth
    units = ceil_div(sizes.images, together) * sizes.groups * panels
    return (rows, panels, sizes.filters, 1, together), units, line_count * together * rows * sizes.row_bytes


def _are_shared(sizes: Sizes) -> bool:
    """Whether several images share the weights that a unit reads: images that are their own columns and have
    fewer elements than the weights.
    """
    small = sizes.out_height * sizes.out_width <= COLUMNS
    return sizes.direct and small and sizes.channels * sizes.filters > SHARED_WEIGHTS


def _sharing(sizes: Sizes, extent: int) -> WindowSplit:
    """A split into units of a range of the `extent` rows of the weights, and of as many images as leave
    enough units.
    """
    tasks, most = sizes.images * sizes.groups, max(extent // MIN_SHARED_ROWS, 1)
    together = max(1, min(sizes.images, tasks * most // UNITS))
    sets = ceil_div(sizes.images, together) * sizes.groups
    ranges = min(most, ceil_div(UNITS, max(sets, 1)))
    range_size = ceil_div(ceil_div(extent, ranges), TILE_ROWS) * TILE_ROWS
    ranges = ceil_div(extent, range_size)
    return (sizes.out_height, 1, range_size, ranges, together), sets * ranges, 0


def _input_gradient(sizes: Sizes) -> WindowSplit:
    """A split of the channels; a unit processes its panels one after another, as positions share elements of
    x.
    """
    if _are_shared(sizes):
        return _sharing(sizes, sizes.channels)
    least_parts = ceil_div(UNITS, max(sizes.images * sizes.groups, 1))
    least = ceil_div(COLUMNS, sizes.out_width) * sizes.row_bytes * sizes.window
    most = sizes.channels if sizes.direct else max(MIN_CHANNELS, 2 * COLUMN_BYTES // least)
    range_size = min(sizes.channels, most, max(MIN_CHANNELS, ceil_div(sizes.channels, least_parts)))
    ranges = ceil_div(sizes.channels, range_size)
    rows, panels = _panels(sizes, range_size * sizes.window, 0)
    together = 1 if sizes.direct else _images_per_product(sizes, panels, ranges)
    lines = range_size * sizes.window + (sizes.filters if together > 1 else 0)
    scratch = 0 if sizes.direct else lines * together * rows * sizes.row_bytes
    units = ceil_div(sizes.images, together) * sizes.groups * ranges
    return (rows, panels, range_size, ranges, together), units, scratch


def _weight_gradient(sizes: Sizes, sum_rows: int = 0) -> WindowSplit:
    """A split of the depth, so that no two units gather the same columns; each sum is over `sum_rows` rows of
    positions.
    """
    total_rows = sizes.images * sizes.out_height
    range_size, ranges = _depths(sizes, _most_sums(sizes) if sum_rows else 1)
    rows, panels = _panels(sizes, range_size, 0)
    scratch = 0 if sizes.direct else range_size * rows * sizes.row_bytes
    sums = ceil_div(total_rows, sum_rows) if sum_rows else 1
    return (rows, panels, range_size, ranges, sum_rows or total_rows), sums * sizes.groups * ranges, scratch


def _depths(sizes: Sizes, sums: int) -> tuple[int, int]:
    """The number of rows of columns in a range of a weight gradient, and the number of ranges, for `sums`
    sums. Ranges are as wide as possible, because one operand is read again for each range, and consist of
    entire tiles, or of half tiles if there are too few.
    """
    depth, range_width = sizes.channels * sizes.window, TILE_BYTES * sizes.out_width // sizes.row_bytes
    if sizes.groups * sums * ceil_div(depth, range_width) < MIN_UNITS:
        range_width //= 2
    ranges = min(ceil_div(UNITS, sizes.groups * sums), ceil_div(depth, range_width))
    ranges = max(ranges, ceil_div(depth, MAX_RANGE_DEPTH))
    range_size = min(ceil_div(ceil_div(depth, ranges), range_width) * range_width, depth)
    return range_size, ceil_div(depth, range_size)


def _most_sums(sizes: Sizes) -> int:
    """The largest number of sums of a weight gradient, limited by their memory and the time to add them."""
    row_bytes = sizes.row_bytes // sizes.out_width * sizes.channels * sizes.window
    nbytes = sizes.groups * sizes.filters * row_bytes
    positions = sizes.images * sizes.out_height * sizes.out_width
    return max(1, min(positions // MIN_SUM_POSITIONS, SUMS_BYTES // nbytes))


def weight_sum_rows(x: Shape, w: Shape, y: Shape, attrs: Mapping[str, Any], dtype: str) -> int:
    """The number of rows of positions in each of the sums of a weight gradient that provide enough units: all
    rows if its depth has enough ranges, or if every group has one channel.

    >>> attrs = {"stride": (1, 1), "padding": ((0, 0), (0, 0)), "dilation": (1, 1), "groups": 1}
    >>> weight_sum_rows((8, 64, 56, 56), (256, 64, 1, 1), (8, 256, 56, 56), attrs, "float32")
    28
    """
    sizes = _sizes(x, w, y, attrs["stride"], _low(attrs), attrs["groups"], ENTRIES[dtype][1])
    total_rows = y[0] * y[2]
    if sizes.channels == sizes.filters == 1 or not total_rows:
        return total_rows
    most = _most_sums(sizes)
    _, ranges = _depths(sizes, most)
    return ceil_div(total_rows, min(most, ceil_div(UNITS, sizes.groups * ranges)))


def _is_in_lanes(name: str, sizes: Sizes, stride: Shape) -> bool:
    """Whether groups of one channel are vectorised over channels rather than over the positions of a row."""
    narrow = sizes.out_width < MIN_POSITIONS
    to_weight = name == "conv2d_weight_gradient" and tuple(stride) != (1, 1)
    return (narrow or to_weight) and sizes.groups >= MIN_GROUPS


def _depthwise(
    name: str, sizes: Sizes, x: Shape, window: Shape, stride: Shape, dilation: Shape, low: Shape
) -> WindowSplit:
    """The split for groups of one channel and one filter: planes, by panels of rows; for a weight gradient:
    groups.

    Scratch memory contains tables, a panel of a plane (in a phase for each stride) and the lines of its
    result.
    """
    itemsize, (down, across) = sizes.row_bytes // sizes.out_width, stride
    extra_rows, margin = ((n - 1) * d // s for n, d, s in zip(window, dilation, stride, strict=True))
    table_bytes = _round_to_lines(8 * (2 * sizes.window + down * across + 1))
    to_image = name == "conv2d_input_gradient"
    columns = (x[3] - 1 + low[1]) // across + 1 if to_image else sizes.out_width
    line = (columns + margin) * itemsize
    phases, step = (1, down) if to_image else (down * across, 1)
    most = max(1, PATCH_BYTES // (phases * line) - extra_rows) * step
    extent = x[2] if to_image else sizes.out_height
    panels = ceil_div(extent, min(most, extent))
    rows = ceil_div(extent, panels)
    panels = ceil_div(extent, rows)
    if to_image:
        phase_rows = ceil_div(rows - 1, down) + 1
        patch = _round_to_lines((phase_rows + extra_rows) * line) + _round_to_lines(margin * itemsize) + LINE
        scratch = table_bytes + patch + across * (_round_to_lines(phase_rows * line) + LINE)
    else:
        patch = _round_to_lines(phases * (rows + extra_rows) * line) + LINE
        scratch = table_bytes + patch + max(_round_to_lines(rows * line) + LINE, sizes.window * LINE)
    if name == "conv2d_weight_gradient":
        return (rows, panels, 1, 1, 1), sizes.groups, scratch
    planes, work = sizes.images * sizes.groups, sizes.window * sizes.out_height * sizes.out_width
    range_size = max(1, PLANE_WORK // work) if panels == 1 else 1
    return (rows, panels, range_size, 1, 1), ceil_div(planes, range_size) * panels, scratch


def _channelwise(
    name: str, sizes: Sizes, x: Shape, window: Shape, stride: Shape, dilation: Shape
) -> WindowSplit:
    """The split for groups of one channel in lanes, by panels of rows of the result; for a weight gradient,
    of y.

    Scratch memory contains the weights, the input of a panel with a workspace of the same size, and the
    panel.
    """
    itemsize = sizes.row_bytes // sizes.out_width
    spans = [(n - 1) * d + 1 for n, d in zip(window, dilation, strict=True)]
    to_image = name == "conv2d_input_gradient"
    rows, step = (x[2], 1) if to_image else (sizes.out_height, stride[0])
    columns = max(x[3], sizes.out_width * stride[1]) + 2 * spans[1]  # an upper bound for patches and rows
    line = columns * LANES * itemsize
    most = max(1, (PATCH_BYTES // line - spans[0]) // step)
    panels = ceil_div(rows, min(most, rows))
    rows = ceil_div(rows, panels)
    patch_rows = (rows - 1) * step + spans[0]
    scratch = sizes.window * LANES * itemsize + (2 * patch_rows + max(rows, patch_rows)) * line
    panels = ceil_div(x[2] if to_image else sizes.out_height, rows)
    units = ceil_div(sizes.groups, LANES)
    if name != "conv2d_weight_gradient":
        units *= sizes.images * panels
    return (rows, panels, 1, 1, 1), units, scratch


def _round_to_lines(nbytes: int) -> int:
    """The number of bytes rounded up to entire cache lines."""
    return ceil_div(nbytes, LINE) * LINE


def pool_call(
    name: str, x: Shape, y: Shape, window: Shape, stride: Shape, low: Shape, dtype: str
) -> KernelCall:
    """The call of a pooling operator between images `x` and outputs `y`; scratch memory contains two rows of
    y.

    >>> pool_call("max_pool", (2, 64, 8, 8), (2, 64, 4, 4), (2, 2), (2, 2), (0, 0), "float32").units
    1
    """
    planes = x[0] * x[1]
    work = max(y[2] * y[3] * window[0] * window[1], x[2] * x[3])
    together = max(1, PLANE_WORK // work)
    words = (planes, together, *x[2:], *window, *stride, *low, *y[2:])
    return KernelCall(name, dtype, words, ceil_div(planes, together), 1, 2 * y[3] * ENTRIES[dtype][1])


# ----------------------------------------------------------------------------------------------- the table


class WindowOperator(NamedTuple):
    """An operator over images.

    roles:  the kind of shape of each operand: images (x), a weight (w), several weights (s), outputs (y); the
            result is last.
    call:   ``call(name, shapes, attrs, dtype)``, shapes by role.
    module: the module in `tracejit.kernels.images` whose ``make(dtype, itemsize)`` returns the kernel.
    """

    roles: str
    call: Callable[[str, Mapping[str, Shape], Mapping[str, Any], str], KernelCall]
    module: str


def convolution(roles: str, split: Callable[[Sizes], WindowSplit]) -> WindowOperator:
    """The table entry of a convolution, or of a gradient of one."""

    def call(name: str, by_role: Mapping[str, Shape], attrs: Mapping[str, Any], dtype: str) -> KernelCall:
        steps = (attrs["stride"], _low(attrs), attrs["dilation"], attrs["groups"])
        return convolution_call(split, name, by_role["x"], by_role["w"], by_role["y"], *steps, dtype)

    return WindowOperator(roles, call, "convolution")


def _weight_sums_call(
    name: str, by_role: Mapping[str, Shape], attrs: Mapping[str, Any], dtype: str
) -> KernelCall:
    """The call of several sums of a weight gradient, by the kernel of a single one."""
    split = functools.partial(_weight_gradient, sum_rows=attrs["rows"])
    return convolution("xyw", split).call(name, {**by_role, "w": by_role["s"][1:]}, attrs, dtype)


def pooling(roles: str) -> WindowOperator:
    """The table entry of an operator whose block is `tracejit.kernels.images.window_blocks.Pooling`."""

    def call(name: str, by_role: Mapping[str, Shape], attrs: Mapping[str, Any], dtype: str) -> KernelCall:
        return pool_call(
            name, by_role["x"], by_role["y"], attrs["window"], attrs["stride"], _low(attrs), dtype
        )

    return WindowOperator(roles, call, "pooling")


def _low(attrs: Mapping[str, Any]) -> list[int]:
    """The padding before the first row and column."""
    return [before for before, _ in attrs["padding"]]


WINDOWS = {
    "conv2d": convolution("xwy", _forward),
    "conv2d_input_gradient": convolution("ywx", _input_gradient),
    "conv2d_weight_gradient": convolution("xyw", _weight_gradient),
    "conv2d_weight_sums": WindowOperator("xys", _weight_sums_call, "convolution"),
    "max_pool": pooling("xy"),
    "max_pool_gradient": pooling("xyx"),
    "max_pool_select": pooling("xxy"),
    "average_pool": pooling("xy"),
    "average_pool_gradient": pooling("yx"),
}
"""All operators over images that have kernels."""


def window_call(name: str, shapes: Sequence[Shape], attrs: Mapping[str, Any], dtype: str) -> KernelCall:
    """The call of the operator `name` with these attributes; `shapes`: operands, then the result."""
    window = WINDOWS[name]
    return window.call(name, dict(zip(window.roles, shapes, strict=True)), attrs, dtype)
