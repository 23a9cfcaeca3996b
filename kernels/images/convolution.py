"""Convolution and its gradients by matrix products, over columns gathered by panels.

`tracejit.kernels.images.windows` describes the argument block and the units. `MAKERS` maps operator names to
the makers of the kernels, which are Python functions for Numba. In outline:

    for unit in range(lo, hi):
        gather(block, image, scratch, ...)              # columns of a panel
        product(weights, scratch, result)
"""

from functools import cache

from numba import int64

from tracejit.kernels.compiler.memory import pointer, slot
from tracejit.kernels.compiler.ranges import independent
from tracejit.kernels.compiler.target import subroutine
from tracejit.kernels.gemm.packed import ONE, make_packed_product
from tracejit.kernels.gemm.plan import NEAR_BYTES, WIDE_BYTES
from tracejit.kernels.gemm.tiles import tiles_are_profitable
from tracejit.kernels.images.common import clear, inside, window_of
from tracejit.kernels.images.products import make_products
from tracejit.kernels.images.slivers import are_gathered, make_gathered_slivers
from tracejit.kernels.images.window_blocks import Convolution as C


@subroutine
def plane_sizes(block):
    """The sizes (elements of an image's channel, output positions, depth)."""
    _, _, window = window_of(block)
    return (
        slot(block, C.HEIGHT) * slot(block, C.WIDTH),
        slot(block, C.OUT_HEIGHT) * slot(block, C.OUT_WIDTH),
        slot(block, C.CHANNELS) * window,
    )


@subroutine
def images_of(block, unit):
    """The range of images of a unit: (group, first image, last image). `unit` does not include the panel or
    the range of channels.
    """
    groups, unit_images = slot(block, C.GROUPS), slot(block, C.TOGETHER)
    first = unit // groups * unit_images
    return unit % groups, first, min(first + unit_images, slot(block, C.IMAGES))


@subroutine
def rows_of(block, panel):
    """The first and the last row of output positions of a panel."""
    first = panel * slot(block, C.ROWS)
    return first, min(first + slot(block, C.ROWS), slot(block, C.OUT_HEIGHT))


@subroutine
def line_of_columns(block, k):
    """The elements of an image in row `k` of the columns: (the element of the first position of a row, if the
    image's row were 0; the image's row for the first row of positions; the first and the last position of a
    row that are inside the image).
    """
    height, width, positions = slot(block, C.HEIGHT), slot(block, C.WIDTH), slot(block, C.OUT_WIDTH)
    window_height, window_width, window = window_of(block)
    i, j = k // window_width % window_height, k % window_width
    top = i * slot(block, C.DILATION_DOWN) - slot(block, C.TOP)
    left = j * slot(block, C.DILATION_ACROSS) - slot(block, C.LEFT)
    start, stop = inside(left, slot(block, C.STRIDE_ACROSS), positions, width)
    plane = k // window * height * width
    return plane + left, top, start, stop


@cache
def make_columns(dtype, itemsize):
    """Return ``(gather, scatter)``: columns from an image, and the adjoint, which adds columns to an image.

    Both process rows `k0` to `k1` of the columns of a panel, for the rows `r0` to `r1` of output positions;
    `x` is the address of the first channel of the group. Rows of columns are `leading` elements apart.
    """

    @subroutine
    def gather(block, x, columns, leading, k0, k1, r0, r1):
        zero = dtype(0)
        height, width, positions = slot(block, C.HEIGHT), slot(block, C.WIDTH), slot(block, C.OUT_WIDTH)
        down, across = slot(block, C.STRIDE_DOWN), slot(block, C.STRIDE_ACROSS)
        for k in range(k0, k1):
            first, top, start, stop = line_of_columns(block, k)
            for r in range(r0, r1):
                out = pointer(columns + itemsize * ((k - k0) * leading + (r - r0) * positions), dtype)
                row = r * down + top
                if 0 <= row < height:
                    line = pointer(x + itemsize * (first + row * width), dtype)
                    for q in range(start):
                        out[q] = zero
                    if across == 1:
                        for q in independent(start, stop):
                            out[q] = line[q]
                    else:
                        for q in independent(start, stop):
                            out[q] = line[q * across]
                    for q in range(stop, positions):
                        out[q] = zero
                else:
                    for q in range(positions):
                        out[q] = zero

    @subroutine
    def scatter(block, x, columns, leading, k0, k1, r0, r1):
        height, width, positions = slot(block, C.HEIGHT), slot(block, C.WIDTH), slot(block, C.OUT_WIDTH)
        down, across = slot(block, C.STRIDE_DOWN), slot(block, C.STRIDE_ACROSS)
        for k in range(k0, k1):
            first, top, start, stop = line_of_columns(block, k)
            for r in range(r0, r1):
                column = pointer(columns + itemsize * ((k - k0) * leading + (r - r0) * positions), dtype)
                row = r * down + top
                if 0 <= row < height:
                    line = pointer(x + itemsize * (first + row * width), dtype)
                    if across == 1:
                        for q in independent(start, stop):
                            line[q] = line[q] + column[q]
                    else:
                        for q in independent(start, stop):
                            line[q * across] = line[q * across] + column[q]

    return gather, scatter


@cache
def make_copy(dtype, itemsize):
    """Return ``copy``, which copies rows of `count` elements from one address to another."""

    @subroutine
    def copy(target, target_leading, source, source_leading, rows, count):
        for r in range(rows):
            out = pointer(target + itemsize * r * target_leading, dtype)
            line = pointer(source + itemsize * r * source_leading, dtype)
            for p in independent(0, count):
                out[p] = line[p]

    return copy


def make_conv2d(dtype, itemsize):
    """Return the kernel of the convolution; tiles read columns in slivers if that is profitable."""
    gather, _ = make_columns(dtype, itemsize)
    copy = make_copy(dtype, itemsize)
    multiply, gathers = make_products(dtype, itemsize), tiles_are_profitable()
    by_slivers = make_packed_product(dtype, itemsize, make_gathered_slivers(dtype, itemsize))

    def conv2d(block, lo, hi, scratch):
        groups, panels, ranges = slot(block, C.GROUPS), slot(block, C.PANELS), slot(block, C.RANGES)
        channels, filters, row_positions = (
            slot(block, C.CHANNELS),
            slot(block, C.FILTERS),
            slot(block, C.OUT_WIDTH),
        )
        area, out_area, depth = plane_sizes(block)
        entry, workspace = slot(block, C.ENTRY), scratch + slot(block, C.PACKED)
        for unit in range(lo, hi):
            group, first, last = images_of(block, unit // panels // ranges)
            r0, r1 = rows_of(block, unit % panels)
            x = slot(block, C.FIRST) + itemsize * (first * groups + group) * channels * area
            w = slot(block, C.SECOND) + itemsize * group * filters * depth
            y = slot(block, C.THIRD) + itemsize * (
                (first * groups + group) * filters * out_area + r0 * row_positions
            )
            count = (r1 - r0) * row_positions
            width = (last - first) * count
            weights, extents = (w, depth, False), (filters, width, depth)
            if slot(block, C.DIRECT) != 0:
                f0 = unit // panels % ranges * slot(block, C.RANGE_SIZE)
                range_filters = min(slot(block, C.RANGE_SIZE), filters - f0)
                multiply(
                    entry,
                    (w + itemsize * f0 * depth, depth, False),
                    (x + itemsize * r0 * row_positions, area, False),
                    (y + itemsize * f0 * out_area, out_area),
                    (range_filters, count, depth),
                    (last - first, groups * channels * area, groups * filters * out_area),
                    False,
                    workspace,
                )
                continue
            if gathers and slot(block, C.TOGETHER) == 1 and are_gathered(block):
                copied = (filters * depth * itemsize > NEAR_BYTES) & (width * itemsize >= WIDE_BYTES)
                by_slivers(
                    (w, itemsize * depth, itemsize),
                    (block, x, r0 * row_positions),
                    (y, itemsize * out_area),
                    (filters, itemsize * width, depth),
                    False,
                    copied,
                    workspace,
                    ONE,
                )
                continue
            for n in range(last - first):
                image = x + itemsize * n * groups * channels * area
                gather(block, image, scratch + itemsize * n * count, width, 0, depth, r0, r1)
            if slot(block, C.TOGETHER) == 1:
                multiply(
                    entry, weights, (scratch, width, False), (y, out_area), extents, ONE, False, workspace
                )
                continue
            product = scratch + itemsize * depth * width
            multiply(
                entry, weights, (scratch, width, False), (product, width), extents, ONE, False, workspace
            )
            for n in range(last - first):
                image = y + itemsize * n * groups * filters * out_area
                copy(image, out_area, product + itemsize * n * count, width, filters, count)
        return int64(0)

    return conv2d


def make_input_gradient(dtype, itemsize):
    """Return the kernel of the gradient with respect to the images."""
    _, scatter = make_columns(dtype, itemsize)
    copy = make_copy(dtype, itemsize)
    multiply = make_products(dtype, itemsize)

    def conv2d_input_gradient(block, lo, hi, scratch):
        groups, ranges, range_size = slot(block, C.GROUPS), slot(block, C.RANGES), slot(block, C.RANGE_SIZE)
        channels, filters, row_positions = (
            slot(block, C.CHANNELS),
            slot(block, C.FILTERS),
            slot(block, C.OUT_WIDTH),
        )
        area, out_area, depth = plane_sizes(block)
        window, entry, workspace = depth // channels, slot(block, C.ENTRY), scratch + slot(block, C.PACKED)
        for unit in range(lo, hi):
            group, first, last = images_of(block, unit // ranges)
            c0 = unit % ranges * range_size
            size = min(c0 + range_size, channels) - c0
            y = slot(block, C.FIRST) + itemsize * (first * groups + group) * filters * out_area
            w = slot(block, C.SECOND) + itemsize * (group * filters * depth + c0 * window)
            x = slot(block, C.THIRD) + itemsize * ((first * groups + group) * channels + c0) * area
            if slot(block, C.DIRECT) != 0:
                left, batch = (
                    (w, depth, True),
                    (last - first, groups * filters * area, groups * channels * area),
                )
                extents = (size, area, filters)
                multiply(entry, left, (y, area, False), (x, area), extents, batch, False, workspace)
                continue
            for n in range(last - first):
                clear(pointer(x + itemsize * n * groups * channels * area, dtype), size * area, dtype(0))
            for panel in range(slot(block, C.PANELS)):
                r0, r1 = rows_of(block, panel)
                count = (r1 - r0) * row_positions
                width = (last - first) * count
                extents = (size * window, width, filters)
                y_columns, leading = y + itemsize * r0 * row_positions, out_area
                if slot(block, C.TOGETHER) != 1:
                    y_columns, leading = scratch + itemsize * size * window * width, width
                    for n in range(last - first):
                        image = y + itemsize * n * groups * filters * out_area
                        copy(y_columns + itemsize * n * count, width, image, out_area, filters, count)
                right = (y_columns, leading, False)
                multiply(entry, (w, depth, True), right, (scratch, width), extents, ONE, False, workspace)
                for n in range(last - first):
                    image = x + itemsize * n * groups * channels * area
                    columns = scratch + itemsize * n * count
                    scatter(block, image, columns, width, 0, size * window, r0, r1)
        return int64(0)

    return conv2d_input_gradient


def make_weight_gradient(dtype, itemsize):
    """Return the kernel of the gradient with respect to the weights."""
    gather, _ = make_columns(dtype, itemsize)
    multiply = make_products(dtype, itemsize)

    def conv2d_weight_gradient(block, lo, hi, scratch):
        groups, ranges, range_size = slot(block, C.GROUPS), slot(block, C.RANGES), slot(block, C.RANGE_SIZE)
        channels, filters, row_positions = (
            slot(block, C.CHANNELS),
            slot(block, C.FILTERS),
            slot(block, C.OUT_WIDTH),
        )
        area, out_area, depth = plane_sizes(block)
        height, entry, workspace = (
            slot(block, C.OUT_HEIGHT),
            slot(block, C.ENTRY),
            scratch + slot(block, C.PACKED),
        )
        for unit in range(lo, hi):
            group, k0 = unit // ranges % groups, unit % ranges * range_size
            k1, row = min(k0 + range_size, depth), unit // ranges // groups * slot(block, C.TOGETHER)
            last = min(row + slot(block, C.TOGETHER), slot(block, C.IMAGES) * height)
            w = slot(block, C.THIRD) + itemsize * (unit // ranges * filters * depth + k0)
            for f in range(filters):
                clear(pointer(w + itemsize * f * depth, dtype), k1 - k0, dtype(0))
            while row < last:
                image, r0 = row // height * groups + group, row % height
                r1 = min(r0 + min(slot(block, C.ROWS), last - row), height)
                row += r1 - r0
                x = slot(block, C.FIRST) + itemsize * image * channels * area
                y = slot(block, C.SECOND) + itemsize * (image * filters * out_area + r0 * row_positions)
                width = (r1 - r0) * row_positions
                columns, leading = x + itemsize * (k0 * area + r0 * row_positions), area
                if slot(block, C.DIRECT) == 0:
                    gather(block, x, scratch, width, k0, k1, r0, r1)
                    columns, leading = scratch, width
                right, extents = (columns, leading, True), (filters, k1 - k0, width)
                multiply(entry, (y, out_area, False), right, (w, depth), extents, ONE, True, workspace)
        return int64(0)

    return conv2d_weight_gradient


MAKERS = {
    "conv2d": make_conv2d,
    "conv2d_input_gradient": make_input_gradient,
    "conv2d_weight_gradient": make_weight_gradient,
}
"""``make(dtype, itemsize)`` of each kernel."""
