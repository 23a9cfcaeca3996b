"""Winograd kernels for convolution by 3 x 3 windows; `tracejit.kernels.images.winograd_plan` describes the
algorithm and plans the calls.

    for unit in range(lo, hi):
        for each LANES channels:
            load_patch(...)           # the image, transposed: the channels of an element are contiguous
            image_points(...)         # B' x B of each tile, stored in scratch memory
        for each sliver of filters, and each point:
            product(...)              # (tiles, channels) by (channels, filters)
        ...                           # A' ... A, transposed back
"""

from functools import cache, partial

from numba import int64

from tracejit.kernels.compiler.memory import pointer, slot
from tracejit.kernels.compiler.ranges import independent
from tracejit.kernels.compiler.target import subroutine
from tracejit.kernels.gemm.calls import NOT_TRANSPOSED, ROW_MAJOR, TRANSPOSED, add_gemm, call_gemm
from tracejit.kernels.gemm.packed import block_size, make_sliver_copy, make_tiles
from tracejit.kernels.gemm.plan import DEPTH, PADDING, TILE_BYTES
from tracejit.kernels.gemm.tiles import tiles_are_profitable
from tracejit.kernels.images.common import clear
from tracejit.kernels.images.patches import make_patches, make_runs
from tracejit.kernels.images.transforms import transform, transposed
from tracejit.kernels.images.winograd_plan import (
    LANES,
    SCHEMES,
    SPREAD,
    WINDOW_SIDE,
    kernel_name,
    sliver,
)
from tracejit.kernels.images.winograd_plan import Winograd as W


def make_point_product(dtype, itemsize):
    """Return ``product(entry, left, b, c, extents, add)``, the matrix product of one point: C = A @ B, or C
    += A @ B.

    left: address of A, leading stride, whether A is transposed; b, c: addresses of slivers
    extents: rows, depth, columns; the columns are a multiple of LANES
    """
    if not tiles_are_profitable():
        sliver_width = sliver(itemsize)

        @subroutine
        def by_blas(entry, left, b, c, extents, add):
            (a, stride, transposed), (rows, depth, columns) = left, extents
            flag = TRANSPOSED if transposed else NOT_TRANSPOSED
            call = (
                ROW_MAJOR,
                flag,
                NOT_TRANSPOSED,
                rows,
                columns,
                depth,
                a,
                stride,
                b,
                sliver_width,
                c,
                sliver_width,
            )
            if add:
                add_gemm(entry, call, dtype)
            else:
                call_gemm(entry, call, dtype)

        return by_blas

    tiles = make_tiles(dtype, itemsize)

    @subroutine
    def by_tiles(entry, left, b, c, extents, add):
        (a, stride, transposed), (rows, depth, columns) = left, extents
        row_bytes, column_bytes = stride * itemsize, itemsize
        if transposed:
            row_bytes, column_bytes = itemsize, stride * itemsize
        block_depth = block_size(depth, DEPTH, 1)
        for k in range(0, depth, block_depth):
            size, start = min(block_depth, depth - k), b + k * TILE_BYTES
            tiles(
                (a + k * column_bytes, row_bytes, column_bytes),
                (start, TILE_BYTES, start),
                (start + block_depth * TILE_BYTES, TILE_BYTES),
                (c, TILE_BYTES),
                (rows, size, columns * itemsize),
                (add | (k > 0), k == 0),
            )

    return by_tiles


@cache
def make_tile_grid(side):
    """Return ``(tile_grid, run_of)`` for tiles of `side` x `side` output positions."""

    @subroutine
    def tile_grid(block):
        """The numbers of tile rows and tile columns of an image."""
        return (slot(block, W.OUT_HEIGHT) + side - 1) // side, (slot(block, W.OUT_WIDTH) + side - 1) // side

    @subroutine
    def run_of(block, row, last):
        """The longest run of tile rows from `row` to `last` within one image: (image, its first tile row,
        number of rows).
        """
        height, _ = tile_grid(block)
        return row // height, row % height, min(last - row, height - row % height)

    return tile_grid, run_of


def make_points(dtype, itemsize, scheme, of_image):
    """Return ``points(block, address, first, last, c0, channels, out, plane, leading, workspace)``, which
    transforms tiles of images, or of gradients if `of_image` is false.

    The tiles are those of tile rows `first` to `last`, of up to LANES channels from `c0` on. `address` is the
    address of the images, which have `channels` channels. Point p of tile t is stored in the elements from
    ``out + p * plane + t * leading`` on. `workspace` is the address of scratch memory.
    """
    load_patch, (tile_grid, run_of) = make_patches(dtype, itemsize), make_tile_grid(scheme.tile)
    tile, side = transform(scheme.image if of_image else scheme.output), scheme.side
    step, margin = (scheme.step, scheme.input_side - scheme.step) if of_image else (scheme.tile, 0)
    height_slot, width_slot = (W.HEIGHT, W.WIDTH) if of_image else (W.OUT_HEIGHT, W.OUT_WIDTH)

    @subroutine
    def points(block, address, first, last, c0, channels, out, plane, leading, workspace):
        height, width = slot(block, height_slot), slot(block, width_slot)
        top, left = (slot(block, W.TOP), slot(block, W.LEFT)) if of_image else (0, 0)
        _, tile_columns = tile_grid(block)
        columns, row, number = step * tile_columns + margin, first, 0
        patch, target = pointer(workspace, dtype), pointer(out, dtype)
        while row < last:
            image, start, count = run_of(block, row, last)
            x, rows = address + (image * channels + c0) * height * width * itemsize, step * count + margin
            patch_workspace = workspace + rows * columns * LANES * itemsize
            corner = (step * start - top, -left)
            load_patch(x, (height, width), channels - c0, corner, workspace, (rows, columns), patch_workspace)
            for i in range(count):
                for j in range(tile_columns):
                    source, destination = (
                        (i * columns + j) * step * LANES,
                        (number + i * tile_columns + j) * leading,
                    )
                    tile(patch, source, columns * LANES, LANES, target, destination, side * plane, plane)
            row, number = row + count, number + count * tile_columns

    return points


def make_outputs(dtype, itemsize, scheme):
    """Return ``store_outputs(block, address, first, last, k0, points, plane, leading, workspace)``, which
    transforms points back and stores the output positions of tile rows `first` to `last`, of up to LANES
    filters from `k0` on. `points` is the address of the points, `workspace` that of scratch memory.
    """
    (_, store_run), (tile_grid, run_of) = make_runs(dtype, itemsize), make_tile_grid(scheme.tile)
    result_tile, tile_side, side = transform(transposed(scheme.output)), scheme.tile, scheme.side

    @subroutine
    def store_outputs(block, address, first, last, k0, points, plane, leading, workspace):
        height, width, filters = slot(block, W.OUT_HEIGHT), slot(block, W.OUT_WIDTH), slot(block, W.FILTERS)
        _, tile_columns = tile_grid(block)
        source, patch, row, tile, row_step = (
            pointer(points, dtype),
            pointer(workspace, dtype),
            first,
            0,
            width * LANES,
        )
        while row < last:
            image, start, count = run_of(block, row, last)
            for i in range(count):
                # From right to left: the last tile may write excess columns, which start the next row.
                for n in range(1, tile_columns + 1):
                    j = tile_columns - n
                    source_index, target = (
                        (tile + i * tile_columns + j) * leading,
                        (i * width + j) * tile_side * LANES,
                    )
                    result_tile(source, source_index, side * plane, plane, patch, target, row_step, LANES)
            rows = min(tile_side * count, height - tile_side * start)
            y = address + ((image * filters + k0) * height + tile_side * start) * width * itemsize
            store_run(y, height * width, min(filters - k0, LANES), rows * width, workspace)
            row, tile = row + count, tile + count * tile_columns

    return store_outputs


def make_weights(dtype, itemsize, scheme):
    """Return the kernel that transforms weights and stores them in slivers."""
    copy_sliver = make_sliver_copy(dtype, itemsize)
    window_tile, side, number = transform(scheme.window), scheme.side, scheme.points
    sliver_width, window = sliver(itemsize), WINDOW_SIDE**2

    def winograd_weights(block, lo, hi, scratch):
        channels, filters, flipped = slot(block, W.CHANNELS), slot(block, W.FILTERS), slot(block, W.TURNED)
        range_size, ranges = slot(block, W.RANGE_SIZE), slot(block, W.RANGES)
        by_filter, by_channel = channels * window * itemsize, window * itemsize
        first, column_step = int64(0), int64(sliver_width)
        if flipped:
            by_filter, by_channel = window * itemsize, filters * window * itemsize
            first, column_step = int64((window - 1) * sliver_width), int64(-sliver_width)
        windows = pointer(scratch, dtype)
        clear(windows, window * sliver_width, dtype(0))
        for unit in range(lo, hi):
            k0, c0 = unit // ranges * sliver_width, unit % ranges * range_size
            count = min(sliver_width, filters - k0)
            out = pointer(slot(block, W.THIRD) + unit // ranges * number * channels * TILE_BYTES, dtype)
            if count < sliver_width:
                clear(windows, window * sliver_width, dtype(0))
            for c in range(c0, min(c0 + range_size, channels)):
                w = slot(block, W.FIRST) + k0 * by_filter + c * by_channel
                copy_sliver(scratch, w, by_filter, count, window)
                for q in range(0, sliver_width, LANES):
                    target, plane = c * sliver_width + q, channels * sliver_width
                    window_tile(
                        windows,
                        first + q,
                        WINDOW_SIDE * column_step,
                        column_step,
                        out,
                        target,
                        side * plane,
                        plane,
                    )
        return int64(0)

    return winograd_weights


def make_convolution(dtype, itemsize, scheme):
    """Return the kernel that convolves images with transformed weights."""
    image_points = make_points(dtype, itemsize, scheme, True)
    store_outputs, (tile_grid, _) = make_outputs(dtype, itemsize, scheme), make_tile_grid(scheme.tile)
    product, number = make_point_product(dtype, itemsize), scheme.points
    sliver_width = sliver(itemsize)

    def winograd_conv2d(block, lo, hi, scratch):
        channels, filters, rows = slot(block, W.CHANNELS), slot(block, W.FILTERS), slot(block, W.ROWS)
        range_size, ranges, entry = slot(block, W.RANGE_SIZE), slot(block, W.RANGES), slot(block, W.ENTRY)
        height, tile_columns = tile_grid(block)
        leading = (channels + LANES - 1) // LANES * LANES + PADDING // itemsize
        slivers = (filters + sliver_width - 1) // sliver_width
        plane, result = rows * tile_columns * leading, rows * tile_columns * sliver_width
        points = scratch + number * plane * itemsize
        workspace = points + number * result * itemsize
        for unit in range(lo, hi):
            first = unit // ranges * rows
            last = min(first + rows, slot(block, W.IMAGES) * height)
            for c in range(0, channels, LANES):
                out = scratch + c * itemsize
                image_points(
                    block, slot(block, W.FIRST), first, last, c, channels, out, plane, leading, workspace
                )
            for j in range(unit % ranges * range_size, min((unit % ranges + 1) * range_size, slivers)):
                lanes = (min(sliver_width, filters - j * sliver_width) + LANES - 1) // LANES * LANES
                for p in range(number):
                    left = (scratch + p * plane * itemsize, leading, False)
                    weights = slot(block, W.SECOND) + (j * number + p) * channels * TILE_BYTES
                    extents = ((last - first) * tile_columns, channels, lanes)
                    product(entry, left, weights, points + p * result * itemsize, extents, False)
                for k in range(0, lanes, LANES):
                    store_outputs(
                        block,
                        slot(block, W.THIRD),
                        first,
                        last,
                        j * sliver_width + k,
                        points + k * itemsize,
                        result,
                        sliver_width,
                        workspace,
                    )
        return int64(0)

    return winograd_conv2d


def make_sums(dtype, itemsize, scheme):
    """Return the kernel that sums the products of transformed images and gradients over tiles, for the
    gradient with respect to the weights.
    """
    image_points = make_points(dtype, itemsize, scheme, True)
    gradient_points = make_points(dtype, itemsize, scheme, False)
    product, (tile_grid, _) = make_point_product(dtype, itemsize), make_tile_grid(scheme.tile)
    sliver_width, number = sliver(itemsize), scheme.points

    def winograd_weight_sums(block, lo, hi, scratch):
        channels, filters, rows = slot(block, W.CHANNELS), slot(block, W.FILTERS), slot(block, W.ROWS)
        range_size, ranges, entry = slot(block, W.RANGE_SIZE), slot(block, W.RANGES), slot(block, W.ENTRY)
        height, tile_columns = tile_grid(block)
        leading, slivers = range_size + PADDING // itemsize, (filters + sliver_width - 1) // sliver_width
        plane, gradient_plane = rows * tile_columns * leading, rows * tile_columns * sliver_width
        gradients = scratch + number * plane * itemsize
        workspace = gradients + number * gradient_plane * itemsize
        total_rows = slot(block, W.IMAGES) * height
        for unit in range(lo, hi):
            c0 = unit % ranges * range_size
            channel_count = min(range_size, channels - c0)
            start = unit // ranges * slot(block, W.BLOCKS) * rows
            stop = min(start + slot(block, W.BLOCKS) * rows, total_rows)
            sums = slot(block, W.THIRD) + unit // ranges * slivers * number * channels * TILE_BYTES
            for first in range(start, stop, rows):
                last = min(first + rows, stop)
                for c in range(0, channel_count, LANES):
                    out = scratch + c * itemsize
                    image_points(
                        block,
                        slot(block, W.FIRST),
                        first,
                        last,
                        c0 + c,
                        channels,
                        out,
                        plane,
                        leading,
                        workspace,
                    )
                for j in range(slivers):
                    lanes = (min(sliver_width, filters - j * sliver_width) + LANES - 1) // LANES * LANES
                    for k in range(0, lanes, LANES):
                        out = gradients + k * itemsize
                        gradient_points(
                            block,
                            slot(block, W.SECOND),
                            first,
                            last,
                            j * sliver_width + k,
                            filters,
                            out,
                            gradient_plane,
                            sliver_width,
                            workspace,
                        )
                    for p in range(number):
                        left = (scratch + p * plane * itemsize, leading, True)
                        result = sums + ((j * number + p) * channels + c0) * TILE_BYTES
                        if lanes < sliver_width and first == start:
                            clear(pointer(result, dtype), channel_count * sliver_width, dtype(0))
                        extents = (channel_count, (last - first) * tile_columns, lanes)
                        product(
                            entry,
                            left,
                            gradients + p * gradient_plane * itemsize,
                            result,
                            extents,
                            first > start,
                        )
        return int64(0)

    return winograd_weight_sums


def make_weight_gradient(dtype, itemsize, scheme):
    """Return the kernel of the gradient with respect to the weights: it adds the sums of all tile ranges and
    transforms the total.
    """
    weight_tile, side, number = transform(transposed(scheme.window)), scheme.side, scheme.points
    sliver_width, window = sliver(itemsize), WINDOW_SIDE**2

    def winograd_weight_gradient(block, lo, hi, scratch):
        sets, channels, filters = slot(block, W.IMAGES), slot(block, W.CHANNELS), slot(block, W.FILTERS)
        range_size, ranges = slot(block, W.RANGE_SIZE), slot(block, W.RANGES)
        sums, windows = pointer(scratch, dtype), pointer(scratch + number * TILE_BYTES, dtype)
        slivers, plane = (filters + sliver_width - 1) // sliver_width, channels * sliver_width
        for unit in range(lo, hi):
            k0, c0 = unit // ranges * sliver_width, unit % ranges * range_size
            for c in range(c0, min(c0 + range_size, channels)):
                for s in range(sets):
                    start = (s * slivers + unit // ranges) * number * plane + c * sliver_width
                    for p in range(number):
                        x = pointer(slot(block, W.FIRST) + (start + p * plane) * itemsize, dtype)
                        out = pointer(scratch + p * TILE_BYTES, dtype)
                        if s == 0:
                            for q in independent(0, sliver_width):
                                out[q] = x[q]
                        else:
                            for q in independent(0, sliver_width):
                                out[q] = out[q] + x[q]
                for q in range(0, sliver_width, LANES):
                    weight_tile(
                        sums,
                        q,
                        side * sliver_width,
                        sliver_width,
                        windows,
                        q,
                        WINDOW_SIDE * sliver_width,
                        sliver_width,
                    )
                w = pointer(slot(block, W.SECOND) + (k0 * channels + c) * window * itemsize, dtype)
                for k in range(min(sliver_width, filters - k0)):
                    for n in range(window):
                        w[k * channels * window + n] = windows[n * sliver_width + k]
        return int64(0)

    return winograd_weight_gradient


_SCHEME_MAKERS = {
    "winograd_weights": make_weights,
    "winograd_conv2d": make_convolution,
    "winograd_weight_sums": make_sums,
    "winograd_weight_gradient": make_weight_gradient,
}

MAKERS = {
    kernel_name(name, stride): partial(make, scheme=scheme)
    for stride, scheme in SCHEMES.items()
    for name, make in _SCHEME_MAKERS.items()
} | {"winograd_input_gradient": partial(make_convolution, scheme=SPREAD)}
"""``make(dtype, itemsize)`` of each kernel. The gradient with respect to the images of a strided convolution
is computed as a convolution as well.
"""
