"""Convolution by 3 x 3 windows with fewer multiplications; plans: `tracejit.kernels.images.winograd_plan`.

for unit in range(lo, hi):
    for each LANES channels:
        load_patch(...)           # images, transposed: the channels of an element follow one another
        image_points(...)         # B' x B of each tile, to scratch memory
    for each sliver of filters, and each point:
        product(...)              # (tiles, channels) by (channels, filters)
    ...                           # A' ... A, and transposed back
"""

from functools import cache, partial

from numba import int64

from tracejit.kernels.compiler.memory import pointer, slot
from tracejit.kernels.compiler.ranges import independent
from tracejit.kernels.compiler.target import subroutine
from tracejit.kernels.gemm.calls import NOT_TRANSPOSED, ROW_MAJOR, TRANSPOSED, add_gemm, call_gemm
from tracejit.kernels.gemm.packed import make_sliver_copy, make_tiles, part_of
from tracejit.kernels.gemm.plan import DEPTH, PADDING, TILE_BYTES
from tracejit.kernels.gemm.tiles import are_worth_it
from tracejit.kernels.images.patches import make_patches, make_runs
from tracejit.kernels.images.places import clear
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
    """Make ``product(entry, left, b, c, extents, add)``: C = A @ B, or C += A @ B, for one point.

    left: address of A, leading stride, whether it is transposed; b, c: addresses in slivers
    extents: rows, depth, columns, which are a multiple of the lanes
    """
    if not are_worth_it():
        wide = sliver(itemsize)

        @subroutine
        def by_blas(entry, left, b, c, extents, add):
            (a, across, transposed), (rows, depth, columns) = left, extents
            flag = TRANSPOSED if transposed else NOT_TRANSPOSED
            call = (ROW_MAJOR, flag, NOT_TRANSPOSED, rows, columns, depth, a, across, b, wide, c, wide)
            if add:
                add_gemm(entry, call, dtype)
            else:
                call_gemm(entry, call, dtype)

        return by_blas

    tiles = make_tiles(dtype, itemsize)

    @subroutine
    def by_tiles(entry, left, b, c, extents, add):
        (a, stride, transposed), (rows, depth, columns) = left, extents
        down, across = stride * itemsize, itemsize
        if transposed:
            down, across = itemsize, stride * itemsize
        step = part_of(depth, DEPTH, 1)
        for k in range(0, depth, step):
            some, start = min(step, depth - k), b + k * TILE_BYTES
            tiles(
                (a + k * across, down, across),
                (start, TILE_BYTES, start),
                (start + step * TILE_BYTES, TILE_BYTES),
                (c, TILE_BYTES),
                (rows, some, columns * itemsize),
                (add | (k > 0), k == 0),
            )

    return by_tiles


@cache
def make_counts(side):
    """(counts, run_of), for tiles of `side` places along a side."""

    @subroutine
    def counts(block):
        """(rows, columns) of tiles of an image."""
        return (slot(block, W.OUT_HEIGHT) + side - 1) // side, (slot(block, W.OUT_WIDTH) + side - 1) // side

    @subroutine
    def run_of(block, row, last):
        """The rows of tiles from `row` on that are in one image: (image, first row of it, how many)."""
        height, _ = counts(block)
        return row // height, row % height, min(last - row, height - row % height)

    return counts, run_of


def make_points(dtype, itemsize, scheme, of_image):
    """Make ``points(block, address, first, last, c0, channels, out, plane, line, room)``, which transforms
    images, or places.

    Rows `first` to `last` of tiles, the channels from `c0` on, at most LANES, of the images at `address` with
    `channels` in all: tile t goes to the elements ``out + p * plane + t * line`` of the points p. `room`:
    address of scratch memory.
    """
    load_patch, (counts, run_of) = make_patches(dtype, itemsize), make_counts(scheme.tile)
    tile, side = transform(scheme.image if of_image else scheme.places), scheme.side
    step, margin = (scheme.step, scheme.seen - scheme.step) if of_image else (scheme.tile, 0)
    height_slot, width_slot = (W.HEIGHT, W.WIDTH) if of_image else (W.OUT_HEIGHT, W.OUT_WIDTH)

    @subroutine
    def points(block, address, first, last, c0, channels, out, plane, line, room):
        height, width = slot(block, height_slot), slot(block, width_slot)
        top, left = (slot(block, W.TOP), slot(block, W.LEFT)) if of_image else (0, 0)
        _, across = counts(block)
        columns, row, number = step * across + margin, first, 0
        patch, target = pointer(room, dtype), pointer(out, dtype)
        while row < last:
            image, start, count = run_of(block, row, last)
            x, rows = address + (image * channels + c0) * height * width * itemsize, step * count + margin
            after = room + rows * columns * LANES * itemsize
            corner = (step * start - top, -left)
            load_patch(x, (height, width), channels - c0, corner, room, (rows, columns), after)
            for i in range(count):
                for j in range(across):
                    place, to = (i * columns + j) * step * LANES, (number + i * across + j) * line
                    tile(patch, place, columns * LANES, LANES, target, to, side * plane, plane)
            row, number = row + count, number + count * across

    return points


def make_places(dtype, itemsize, scheme):
    """Make ``store_places(block, address, first, last, k0, points, plane, line, room)``: the places of rows
    `first` to `last` of tiles for the filters from `k0` on, at most LANES; `points` is their address.
    """
    (_, store_run), (counts, run_of) = make_runs(dtype, itemsize), make_counts(scheme.tile)
    result_tile, tile_side, side = transform(transposed(scheme.places)), scheme.tile, scheme.side

    @subroutine
    def store_places(block, address, first, last, k0, points, plane, line, room):
        height, width, filters = slot(block, W.OUT_HEIGHT), slot(block, W.OUT_WIDTH), slot(block, W.FILTERS)
        _, across = counts(block)
        source, patch, row, tile, down = pointer(points, dtype), pointer(room, dtype), first, 0, width * LANES
        while row < last:
            image, start, count = run_of(block, row, last)
            for i in range(count):
                # From right to left: the last tile may write columns too many, the start of the next row.
                for n in range(1, across + 1):
                    j = across - n
                    place, target = (tile + i * across + j) * line, (i * width + j) * tile_side * LANES
                    result_tile(source, place, side * plane, plane, patch, target, down, LANES)
            rows = min(tile_side * count, height - tile_side * start)
            y = address + ((image * filters + k0) * height + tile_side * start) * width * itemsize
            store_run(y, height * width, min(filters - k0, LANES), rows * width, room)
            row, tile = row + count, tile + count * across

    return store_places


def make_weights(dtype, itemsize, scheme):
    """The transformed weights, in slivers."""
    copy_sliver = make_sliver_copy(dtype, itemsize)
    window_tile, side, number = transform(scheme.window), scheme.side, scheme.points
    wide, window = sliver(itemsize), WINDOW_SIDE**2

    def winograd_weights(block, lo, hi, scratch):
        channels, filters, turned = slot(block, W.CHANNELS), slot(block, W.FILTERS), slot(block, W.TURNED)
        part, parts = slot(block, W.PART), slot(block, W.PARTS)
        by_filter, by_channel = channels * window * itemsize, window * itemsize
        first, across = int64(0), int64(wide)
        if turned:
            by_filter, by_channel = window * itemsize, filters * window * itemsize
            first, across = int64((window - 1) * wide), int64(-wide)
        lines = pointer(scratch, dtype)
        clear(lines, window * wide, dtype(0))
        for unit in range(lo, hi):
            k0, c0 = unit // parts * wide, unit % parts * part
            count = min(wide, filters - k0)
            out = pointer(slot(block, W.THIRD) + unit // parts * number * channels * TILE_BYTES, dtype)
            if count < wide:
                clear(lines, window * wide, dtype(0))
            for c in range(c0, min(c0 + part, channels)):
                w = slot(block, W.FIRST) + k0 * by_filter + c * by_channel
                copy_sliver(scratch, w, by_filter, count, window)
                for q in range(0, wide, LANES):
                    target, plane = c * wide + q, channels * wide
                    window_tile(
                        lines, first + q, WINDOW_SIDE * across, across, out, target, side * plane, plane
                    )
        return int64(0)

    return winograd_weights


def make_convolution(dtype, itemsize, scheme):
    """The convolution of images by transformed weights."""
    image_points = make_points(dtype, itemsize, scheme, True)
    store_places, (counts, _) = make_places(dtype, itemsize, scheme), make_counts(scheme.tile)
    product, number = make_point_product(dtype, itemsize), scheme.points
    wide = sliver(itemsize)

    def winograd_conv2d(block, lo, hi, scratch):
        channels, filters, rows = slot(block, W.CHANNELS), slot(block, W.FILTERS), slot(block, W.ROWS)
        part, parts, entry = slot(block, W.PART), slot(block, W.PARTS), slot(block, W.ENTRY)
        height, across = counts(block)
        line = (channels + LANES - 1) // LANES * LANES + PADDING // itemsize
        slivers = (filters + wide - 1) // wide
        plane, result = rows * across * line, rows * across * wide
        points = scratch + number * plane * itemsize
        room = points + number * result * itemsize
        for unit in range(lo, hi):
            first = unit // parts * rows
            last = min(first + rows, slot(block, W.IMAGES) * height)
            for c in range(0, channels, LANES):
                out = scratch + c * itemsize
                image_points(block, slot(block, W.FIRST), first, last, c, channels, out, plane, line, room)
            for j in range(unit % parts * part, min((unit % parts + 1) * part, slivers)):
                lanes = (min(wide, filters - j * wide) + LANES - 1) // LANES * LANES
                for p in range(number):
                    left = (scratch + p * plane * itemsize, line, False)
                    weights = slot(block, W.SECOND) + (j * number + p) * channels * TILE_BYTES
                    extents = ((last - first) * across, channels, lanes)
                    product(entry, left, weights, points + p * result * itemsize, extents, False)
                for k in range(0, lanes, LANES):
                    store_places(
                        block,
                        slot(block, W.THIRD),
                        first,
                        last,
                        j * wide + k,
                        points + k * itemsize,
                        result,
                        wide,
                        room,
                    )
        return int64(0)

    return winograd_conv2d


def make_sums(dtype, itemsize, scheme):
    """The sums of products of images and places over tiles, for the gradient to the weights."""
    image_points = make_points(dtype, itemsize, scheme, True)
    places_points = make_points(dtype, itemsize, scheme, False)
    product, (counts, _) = make_point_product(dtype, itemsize), make_counts(scheme.tile)
    wide, number = sliver(itemsize), scheme.points

    def winograd_weight_sums(block, lo, hi, scratch):
        channels, filters, rows = slot(block, W.CHANNELS), slot(block, W.FILTERS), slot(block, W.ROWS)
        part, parts, entry = slot(block, W.PART), slot(block, W.PARTS), slot(block, W.ENTRY)
        height, across = counts(block)
        line, slivers = part + PADDING // itemsize, (filters + wide - 1) // wide
        plane, seen = rows * across * line, rows * across * wide
        places = scratch + number * plane * itemsize
        room = places + number * seen * itemsize
        whole = slot(block, W.IMAGES) * height
        for unit in range(lo, hi):
            c0 = unit % parts * part
            count = min(part, channels - c0)
            start = unit // parts * slot(block, W.BLOCKS) * rows
            stop = min(start + slot(block, W.BLOCKS) * rows, whole)
            sums = slot(block, W.THIRD) + unit // parts * slivers * number * channels * TILE_BYTES
            for first in range(start, stop, rows):
                last = min(first + rows, stop)
                for c in range(0, count, LANES):
                    out = scratch + c * itemsize
                    image_points(
                        block, slot(block, W.FIRST), first, last, c0 + c, channels, out, plane, line, room
                    )
                for j in range(slivers):
                    lanes = (min(wide, filters - j * wide) + LANES - 1) // LANES * LANES
                    for k in range(0, lanes, LANES):
                        out = places + k * itemsize
                        places_points(
                            block,
                            slot(block, W.SECOND),
                            first,
                            last,
                            j * wide + k,
                            filters,
                            out,
                            seen,
                            wide,
                            room,
                        )
                    for p in range(number):
                        left = (scratch + p * plane * itemsize, line, True)
                        result = sums + ((j * number + p) * channels + c0) * TILE_BYTES
                        if lanes < wide and first == start:
                            clear(pointer(result, dtype), count * wide, dtype(0))
                        extents = (count, (last - first) * across, lanes)
                        product(entry, left, places + p * seen * itemsize, result, extents, first > start)
        return int64(0)

    return winograd_weight_sums


def make_weight_gradient(dtype, itemsize, scheme):
    """The gradient to the weights, from the sums of all parts of the tiles."""
    weight_tile, side, number = transform(transposed(scheme.window)), scheme.side, scheme.points
    wide, window = sliver(itemsize), WINDOW_SIDE**2

    def winograd_weight_gradient(block, lo, hi, scratch):
        sets, channels, filters = slot(block, W.IMAGES), slot(block, W.CHANNELS), slot(block, W.FILTERS)
        part, parts = slot(block, W.PART), slot(block, W.PARTS)
        sums, windows = pointer(scratch, dtype), pointer(scratch + number * TILE_BYTES, dtype)
        slivers, plane = (filters + wide - 1) // wide, channels * wide
        for unit in range(lo, hi):
            k0, c0 = unit // parts * wide, unit % parts * part
            for c in range(c0, min(c0 + part, channels)):
                for s in range(sets):
                    start = (s * slivers + unit // parts) * number * plane + c * wide
                    for p in range(number):
                        x = pointer(slot(block, W.FIRST) + (start + p * plane) * itemsize, dtype)
                        out = pointer(scratch + p * TILE_BYTES, dtype)
                        if s == 0:
                            for q in independent(0, wide):
                                out[q] = x[q]
                        else:
                            for q in independent(0, wide):
                                out[q] = out[q] + x[q]
                for q in range(0, wide, LANES):
                    weight_tile(sums, q, side * wide, wide, windows, q, WINDOW_SIDE * wide, wide)
                w = pointer(slot(block, W.SECOND) + (k0 * channels + c) * window * itemsize, dtype)
                for k in range(min(wide, filters - k0)):
                    for n in range(window):
                        w[k * channels * window + n] = windows[n * wide + k]
        return int64(0)

    return winograd_weight_gradient


_OF_A_SCHEME = {
    "winograd_weights": make_weights,
    "winograd_conv2d": make_convolution,
    "winograd_weight_sums": make_sums,
    "winograd_weight_gradient": make_weight_gradient,
}

MAKERS = {
    kernel_name(name, stride): partial(make, scheme=scheme)
    for stride, scheme in SCHEMES.items()
    for name, make in _OF_A_SCHEME.items()
} | {"winograd_input_gradient": partial(make_convolution, scheme=SPREAD)}
"""``make(dtype, itemsize)`` of the kernels by name; the gradient to images of a convolution with stride is a
convolution, too.
"""
