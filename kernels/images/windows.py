"""The plan of a kernel that slides windows over images: its name, argument block and split into units. Needs
no Numba.

`window_call` returns, from shapes only, the content of a block (see `tracejit.kernels.images.window_blocks`)
up to the addresses of the operands; these, inputs first, follow.

A convolution is a matrix product per image: weights (filters, depth) by *columns* (depth, places), where
depth is channels * window and a column holds the elements under the window at one place. Columns are gathered
for a panel of rows of places in the worker's scratch memory, right before a product reads them (Chellapilla,
Puri and Simard, 2006, by panels), or a sliver at a time (`tracejit.kernels.images.slivers`). Where the window
is one element and the stride 1, an image is its own columns (DIRECT = 1). Where images are small, several are
one product, or share the weights that a unit reads (TOGETHER). Products are those of
`tracejit.kernels.images.products`. Groups of one channel and one filter have kernels of their own (see
`tracejit.kernels.images.depthwise`, and for many narrow images `tracejit.kernels.images.channelwise`).
Windows of 3 x 3 take fewer multiplications (see `tracejit.kernels.images.winograd_plan`) where that is worth
it.

    conv2d                  unit = (images, group, part of the filters, panel): gather columns, multiply
    conv2d_input_gradient   unit = (images, group, part of the channels): multiply, add columns to places
    conv2d_weight_gradient  unit = (group, part of the depth): all images in order, gather, multiply, add
    conv2d_weight_sums      unit = (sum, group, part of the depth): the same for some rows of places

Units write different elements, and add in a fixed order, so results are the same for any
number of workers.

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

Split = tuple[tuple[int, int, int, int, int], int, int]
"""Slots from ROWS to TOGETHER: rows of places in a panel, panels, channels (or rows of columns) in a part,
parts, images in a unit (or rows of places of a sum); then units, and bytes of scratch memory.
"""

COLUMNS = 256  # places in a panel: packing the other operand again costs then below 10 %
COLUMN_BYTES = 1 << 19  # columns that fit half of a common L2 cache
UNITS = 16  # the target for a call with enough work, so that workers balance
SPLIT_COLUMNS = 64  # places below which a panel is not split for that
LEAST_UNITS = 4  # of a gradient to weights, if its depth allows it
DEPTHS = 256  # most rows of columns in a part of a weight's gradient
SUM_PLACES = 1024  # least in a sum: adding the sums then costs below 5 %
SUMS_BYTES = 1 << 23  # of all sums
SHARED_WEIGHTS = 1 << 16  # elements from which on units of several small images share them
SHARED_ROWS = 64  # of weights, least in a unit: so many use a sliver of an image
LEAST_CHANNELS = 16  # in a part of an input's gradient
CHUNK_WORK = 1 << 19  # multiply-adds in a chunk of units
LANES = 16  # channels that are computed side by side: a cache line of float32
LEAST_GROUPS = 6  # of one channel, below which most lanes of channels would be idle
LEAST_PLACES = 20  # in a row, below which most lanes of rows would be
PATCH_BYTES = 1 << 17  # of a panel of an image in lanes, or of a plane
PLANE_WORK = 1 << 15  # elements of windows in a unit of planes: some 10 us


LINE = 64
PACKING = DEPTH * TILE_BYTES + BLOCK_ROWS * (SPAN_BYTES + PADDING) + (SPAN_BYTES // 4) * PADDING
"""Bytes of scratch memory for what a packed product copies: a sliver, and a block of either orientation."""

ENTRIES = {"float32": ("sgemm", 4), "float64": ("dgemm", 8)}
"""The BLAS function for a dtype, and the bytes of an element."""


class Sizes(NamedTuple):
    """The sizes that decide the split of a convolution; `row_bytes`: of one column element for a row of
    places.
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
    split: Callable[[Sizes], Split],
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
    """The call of a convolution, or of a gradient, between shapes `x`, `w` and `y`; `low`: padding before."""
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
    start = ceil_div(scratch, LINE) * LINE
    room = 0 if depthwise else PACKING
    words = (
        *(entry_points()[entry], x[0], groups, sizes.channels, sizes.filters),
        *(*x[2:], *w[2:], *stride, *low, *dilation),
        *(*y[2:], int(sizes.direct), *slots, start),
    )
    name = "conv2d_weight_gradient" if sums else name
    kernel = f"channelwise_{name}" if in_lanes else f"depthwise_{name}" if depthwise else name
    return KernelCall(kernel, dtype, words, units, max(1, CHUNK_WORK // max(work, 1)), start + room)


def _sizes(x: Shape, w: Shape, y: Shape, stride: Shape, low: Shape, groups: int, itemsize: int) -> Sizes:
    direct = w[2] * w[3] == 1 and tuple(stride) == (1, 1) and x[2:] == y[2:] and not any(low)
    return Sizes(x[0], groups, w[1], w[0] // groups, w[2] * w[3], y[2], y[3], y[3] * itemsize, direct)


def _panels(sizes: Sizes, depth: int, tasks: int) -> tuple[int, int]:
    """Rows of places in a panel whose columns have `depth` rows, and how many panels there are.

    `tasks` is the number of units for each panel; with few of them panels are smaller.
    """
    least = ceil_div(COLUMNS, sizes.out_width)
    rows = sizes.out_height if sizes.direct else max(least, COLUMN_BYTES // (depth * sizes.row_bytes))
    if tasks:
        fewer = ceil_div(sizes.out_height * tasks, UNITS)
        rows = min(rows, max(fewer, ceil_div(SPLIT_COLUMNS, sizes.out_width)))
    panels = ceil_div(sizes.out_height, min(rows, sizes.out_height))
    rows = ceil_div(sizes.out_height, panels)
    return rows, ceil_div(sizes.out_height, rows)


def _together(sizes: Sizes, panels: int, parts: int) -> int:
    """The number of small images in one product: enough columns for it, and enough units left.

    BLAS packs the weights again for each product; for 49 places (7 x 7) that takes a quarter of the time.
    """
    if panels > 1:
        return 1
    wanted = ceil_div(COLUMNS, sizes.out_height * sizes.out_width)
    return max(1, min(wanted, sizes.images * sizes.groups * parts // UNITS))


def _forward(sizes: Sizes) -> Split:
    depth = sizes.channels * sizes.window
    if _are_shared(sizes):
        return _sharing(sizes, sizes.filters)
    rows, panels = _panels(sizes, depth, max(sizes.images * sizes.groups, 1))
    together = 1 if sizes.direct else _together(sizes, panels, 1)
    lines = depth + sizes.filters if together > 1 else 0 if sizes.direct else depth
    units = ceil_div(sizes.images, together) * sizes.groups * panels
    return (rows, panels, sizes.filters, 1, together), units, lines * together * rows * sizes.row_bytes


def _are_shared(sizes: Sizes) -> bool:
    """Whether several images use the weights that a unit reads: images that are their own columns, and have
    fewer elements than the weights.
    """
    small = sizes.out_height * sizes.out_width <= COLUMNS
    return sizes.direct and small and sizes.channels * sizes.filters > SHARED_WEIGHTS


def _sharing(sizes: Sizes, extent: int) -> Split:
    """Units of some rows of the weights, of which there are `extent`, and as many images as leave enough
    units.
    """
    tasks, most = sizes.images * sizes.groups, max(extent // SHARED_ROWS, 1)
    together = max(1, min(sizes.images, tasks * most // UNITS))
    sets = ceil_div(sizes.images, together) * sizes.groups
    parts = min(most, ceil_div(UNITS, max(sets, 1)))
    part = ceil_div(ceil_div(extent, parts), TILE_ROWS) * TILE_ROWS
    parts = ceil_div(extent, part)
    return (sizes.out_height, 1, part, parts, together), sets * parts, 0


def _input_gradient(sizes: Sizes) -> Split:
    """Parts of the channels; their panels come one after the other, as places share elements of x."""
    if _are_shared(sizes):
        return _sharing(sizes, sizes.channels)
    wanted = ceil_div(UNITS, max(sizes.images * sizes.groups, 1))
    least = ceil_div(COLUMNS, sizes.out_width) * sizes.row_bytes * sizes.window
    most = sizes.channels if sizes.direct else max(LEAST_CHANNELS, 2 * COLUMN_BYTES // least)
    part = min(sizes.channels, most, max(LEAST_CHANNELS, ceil_div(sizes.channels, wanted)))
    parts = ceil_div(sizes.channels, part)
    rows, panels = _panels(sizes, part * sizes.window, 0)
    together = 1 if sizes.direct else _together(sizes, panels, parts)
    lines = part * sizes.window + (sizes.filters if together > 1 else 0)
    scratch = 0 if sizes.direct else lines * together * rows * sizes.row_bytes
    units = ceil_div(sizes.images, together) * sizes.groups * parts
    return (rows, panels, part, parts, together), units, scratch


def _weight_gradient(sizes: Sizes, sum_rows: int = 0) -> Split:
    """Parts of the depth, so that no two units gather the same columns; sums of `sum_rows` rows of places."""
    every = sizes.images * sizes.out_height
    part, parts = _depths(sizes, _most_sums(sizes) if sum_rows else 1)
    rows, panels = _panels(sizes, part, 0)
    scratch = 0 if sizes.direct else part * rows * sizes.row_bytes
    sums = ceil_div(every, sum_rows) if sum_rows else 1
    return (rows, panels, part, parts, sum_rows or every), sums * sizes.groups * parts, scratch


def _depths(sizes: Sizes, sums: int) -> tuple[int, int]:
    """Rows of columns in a part of a weight's gradient, and parts, if there are so many sums: as wide as
    possible, as one operand is read again for each part, and whole tiles, or halves where tiles are too few.
    """
    depth, wide = sizes.channels * sizes.window, TILE_BYTES * sizes.out_width // sizes.row_bytes
    if sizes.groups * sums * ceil_div(depth, wide) < LEAST_UNITS:
        wide //= 2
    parts = min(ceil_div(UNITS, sizes.groups * sums), ceil_div(depth, wide))
    parts = max(parts, ceil_div(depth, DEPTHS))
    part = min(ceil_div(ceil_div(depth, parts), wide) * wide, depth)
    return part, ceil_div(depth, part)


def _most_sums(sizes: Sizes) -> int:
    """The most sums that a weight's gradient may fall into, for their memory and the time to add them."""
    row_bytes = sizes.row_bytes // sizes.out_width * sizes.channels * sizes.window
    nbytes = sizes.groups * sizes.filters * row_bytes
    places = sizes.images * sizes.out_height * sizes.out_width
    return max(1, min(places // SUM_PLACES, SUMS_BYTES // nbytes))


def weight_sum_rows(x: Shape, w: Shape, y: Shape, attrs: Mapping[str, Any], dtype: str) -> int:
    """Rows of places in each of the sums into which a weight's gradient should fall, so that there are enough
    units: all rows if its depth has enough parts, or if every group is one channel.

    >>> attrs = {"stride": (1, 1), "padding": ((0, 0), (0, 0)), "dilation": (1, 1), "groups": 1}
    >>> weight_sum_rows((8, 64, 56, 56), (256, 64, 1, 1), (8, 256, 56, 56), attrs, "float32")
    28
    """
    sizes = _sizes(x, w, y, attrs["stride"], _low(attrs), attrs["groups"], ENTRIES[dtype][1])
    every = y[0] * y[2]
    if sizes.channels == sizes.filters == 1 or not every:
        return every
    most = _most_sums(sizes)
    _, parts = _depths(sizes, most)
    return ceil_div(every, min(most, ceil_div(UNITS, sizes.groups * parts)))


def _is_in_lanes(name: str, sizes: Sizes, stride: Shape) -> bool:
    """Whether groups of one channel are computed side by side, and not the places of a row."""
    narrow = sizes.out_width < LEAST_PLACES
    to_weight = name == "conv2d_weight_gradient" and tuple(stride) != (1, 1)
    return (narrow or to_weight) and sizes.groups >= LEAST_GROUPS


def _depthwise(
    name: str, sizes: Sizes, x: Shape, window: Shape, stride: Shape, dilation: Shape, low: Shape
) -> Split:
    """Groups of one channel and one filter: some planes, by panels of rows; a weight's gradient: one group.

    Scratch memory holds tables, a panel of a plane (in a phase for each stride) and the lines of its result.
    """
    itemsize, (down, across) = sizes.row_bytes // sizes.out_width, stride
    more, margin = ((n - 1) * d // s for n, d, s in zip(window, dilation, stride, strict=True))
    head = _lines(8 * (2 * sizes.window + down * across + 1))
    to_image = name == "conv2d_input_gradient"
    columns = (x[3] - 1 + low[1]) // across + 1 if to_image else sizes.out_width
    line = (columns + margin) * itemsize
    phases, step = (1, down) if to_image else (down * across, 1)
    most = max(1, PATCH_BYTES // (phases * line) - more) * step
    extent = x[2] if to_image else sizes.out_height
    panels = ceil_div(extent, min(most, extent))
    rows = ceil_div(extent, panels)
    panels = ceil_div(extent, rows)
    if to_image:
        seen = ceil_div(rows - 1, down) + 1
        patch = _lines((seen + more) * line) + _lines(margin * itemsize) + LINE
        scratch = head + patch + across * (_lines(seen * line) + LINE)
    else:
        patch = _lines(phases * (rows + more) * line) + LINE
        scratch = head + patch + max(_lines(rows * line) + LINE, sizes.window * LINE)
    if name == "conv2d_weight_gradient":
        return (rows, panels, 1, 1, 1), sizes.groups, scratch
    planes, work = sizes.images * sizes.groups, sizes.window * sizes.out_height * sizes.out_width
    part = max(1, PLANE_WORK // work) if panels == 1 else 1
    return (rows, panels, part, 1, 1), ceil_div(planes, part) * panels, scratch


def _channelwise(name: str, sizes: Sizes, x: Shape, window: Shape, stride: Shape, dilation: Shape) -> Split:
    """Groups of one channel in lanes, by panels of rows of the result; a weight's gradient: of y.

    Scratch memory holds the weights, what a panel sees with as much room, and the panel.
    """
    itemsize = sizes.row_bytes // sizes.out_width
    spans = [(n - 1) * d + 1 for n, d in zip(window, dilation, strict=True)]
    to_image = name == "conv2d_input_gradient"
    rows, step = (x[2], 1) if to_image else (sizes.out_height, stride[0])
    wide = max(x[3], sizes.out_width * stride[1]) + 2 * spans[1]  # more than any patch or row
    line = wide * LANES * itemsize
    most = max(1, (PATCH_BYTES // line - spans[0]) // step)
    panels = ceil_div(rows, min(most, rows))
    rows = ceil_div(rows, panels)
    seen = (rows - 1) * step + spans[0]
    scratch = sizes.window * LANES * itemsize + (2 * seen + max(rows, seen)) * line
    panels = ceil_div(x[2] if to_image else sizes.out_height, rows)
    units = ceil_div(sizes.groups, LANES)
    if name != "conv2d_weight_gradient":
        units *= sizes.images * panels
    return (rows, panels, 1, 1, 1), units, scratch


def _lines(nbytes: int) -> int:
    """Bytes of whole cache lines."""
    return ceil_div(nbytes, LINE) * LINE


def pool_call(
    name: str, x: Shape, y: Shape, window: Shape, stride: Shape, low: Shape, dtype: str
) -> KernelCall:
    """The call of a pooling operator between images `x` and their windows `y`; scratch holds two rows of y.

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

    roles:  by operand, what has the shape of images (x), of a weight (w), of several (s), of windows (y); the
            result is last.
    call:   ``call(name, shapes, attrs, dtype)``, shapes by role.
    module: the one in `tracejit.kernels.images` whose ``make(dtype, itemsize)`` has the kernel.
    """

    roles: str
    call: Callable[[str, Mapping[str, Shape], Mapping[str, Any], str], KernelCall]
    module: str


def convolution(roles: str, split: Callable[[Sizes], Split]) -> WindowOperator:
    """The line of a convolution, or of a gradient of one."""

    def call(name: str, of: Mapping[str, Shape], attrs: Mapping[str, Any], dtype: str) -> KernelCall:
        steps = (attrs["stride"], _low(attrs), attrs["dilation"], attrs["groups"])
        return convolution_call(split, name, of["x"], of["w"], of["y"], *steps, dtype)

    return WindowOperator(roles, call, "convolution")


def _weight_sums_call(name: str, of: Mapping[str, Shape], attrs: Mapping[str, Any], dtype: str) -> KernelCall:
    """The call of several sums of a weight's gradient, by the kernel of a single one."""
    split = functools.partial(_weight_gradient, sum_rows=attrs["rows"])
    return convolution("xyw", split).call(name, {**of, "w": of["s"][1:]}, attrs, dtype)


def pooling(roles: str) -> WindowOperator:
    """The line of an operator whose block is `tracejit.kernels.images.window_blocks.Pooling`."""

    def call(name: str, of: Mapping[str, Shape], attrs: Mapping[str, Any], dtype: str) -> KernelCall:
        return pool_call(name, of["x"], of["y"], attrs["window"], attrs["stride"], _low(attrs), dtype)

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
