"""Kernels that slide windows over images: convolution by BLAS, and pooling.

The argument blocks and what a unit is are in `tracejit.kernels.windows`. `IMAGES` maps (operator, dtype) to a
Python function for Numba, with the interface of those of `tracejit.kernels.library`.

    for unit in range(lo, hi):                          # a convolution, much shortened
        gather(block, image, scratch, ...)              # columns of a panel
        call_gemm(w, scratch, y)
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numba import from_dtype, int64

from tracejit.kernels.intrinsics import select
from tracejit.kernels.lane import compiled
from tracejit.kernels.library import PLAIN, ROW_MAJOR, TRANSPOSED, add_gemm, call_gemm
from tracejit.kernels.memory import pointer, slot
from tracejit.kernels.target import subroutine
from tracejit.kernels.windows import Convolution as C
from tracejit.kernels.windows import Pool as P


def follows(best, x):
    """Whether `x` takes the place of `best`, the largest so far: a nan does, and none takes its place."""
    return (best == best) & ~(x <= best)


@compiled
def larger(best, x):
    """The larger of two floats; the first of equal ones, the first nan if there is one."""
    return select(follows(best, x), x, best)


exceeds = compiled(follows, "bool")


@compiled
def quotient(x, y):
    """x / y of floats."""
    return x / y


@subroutine
def inside(first, stride, places, extent):
    """The range of places whose element, ``first + place * stride``, lies in an image of `extent`."""
    start = min(max(-(first // stride), 0), places)
    return start, max(min((extent - 1 - first) // stride + 1, places), start)


def make_columns(dtype, itemsize):
    """(gather, scatter): columns from an image, and their adjoint, added to an image.

    Both take rows `k0` to `k1` of the columns of a panel, the rows `r0` to `r1` of places; `x` is the address
    of the first channel of the group.
    """

    @subroutine
    def gather(block, x, columns, k0, k1, r0, r1):
        height, width, places = slot(block, C.HEIGHT), slot(block, C.WIDTH), slot(block, C.OUT_WIDTH)
        window_height, window_width = slot(block, C.WINDOW_HEIGHT), slot(block, C.WINDOW_WIDTH)
        down, across = slot(block, C.STRIDE_DOWN), slot(block, C.STRIDE_ACROSS)
        zero = dtype(0)
        for k in range(k0, k1):
            i, j = k // window_width % window_height, k % window_width
            above = i * slot(block, C.DILATION_DOWN) - slot(block, C.TOP)
            first = j * slot(block, C.DILATION_ACROSS) - slot(block, C.LEFT)
            start, stop = inside(first, across, places, width)
            plane = x + itemsize * (k // (window_height * window_width) * height * width)
            for r in range(r0, r1):
                out = pointer(columns + itemsize * ((k - k0) * (r1 - r0) + r - r0) * places, dtype)
                row = r * down + above
                if 0 <= row < height:
                    line = pointer(plane + itemsize * (row * width + first), dtype)
                    for q in range(start):
                        out[q] = zero
                    if across == 1:
                        for q in range(start, stop):
                            out[q] = line[q]
                    else:
                        for q in range(start, stop):
                            out[q] = line[q * across]
                    for q in range(stop, places):
                        out[q] = zero
                else:
                    for q in range(places):
                        out[q] = zero

    @subroutine
    def scatter(block, x, columns, k0, k1, r0, r1):
        height, width, places = slot(block, C.HEIGHT), slot(block, C.WIDTH), slot(block, C.OUT_WIDTH)
        window_height, window_width = slot(block, C.WINDOW_HEIGHT), slot(block, C.WINDOW_WIDTH)
        down, across = slot(block, C.STRIDE_DOWN), slot(block, C.STRIDE_ACROSS)
        for k in range(k0, k1):
            i, j = k // window_width % window_height, k % window_width
            above = i * slot(block, C.DILATION_DOWN) - slot(block, C.TOP)
            first = j * slot(block, C.DILATION_ACROSS) - slot(block, C.LEFT)
            start, stop = inside(first, across, places, width)
            plane = x + itemsize * (k // (window_height * window_width) * height * width)
            for r in range(r0, r1):
                column = pointer(columns + itemsize * ((k - k0) * (r1 - r0) + r - r0) * places, dtype)
                row = r * down + above
                if 0 <= row < height:
                    line = pointer(plane + itemsize * (row * width + first), dtype)
                    if across == 1:
                        for q in range(start, stop):
                            line[q] = line[q] + column[q]
                    else:
                        for q in range(start, stop):
                            line[q * across] = line[q * across] + column[q]

    return gather, scatter


def make_convolutions(dtype, itemsize):
    """The three convolutions by name."""
    gather, scatter = make_columns(dtype, itemsize)

    @subroutine
    def clear(address, count):
        out = pointer(address, dtype)
        for p in range(count):
            out[p] = dtype(0)

    @subroutine
    def plane_sizes(block):
        """(elements of an image's channel, places, depth)."""
        window = slot(block, C.WINDOW_HEIGHT) * slot(block, C.WINDOW_WIDTH)
        return (
            slot(block, C.HEIGHT) * slot(block, C.WIDTH),
            slot(block, C.OUT_HEIGHT) * slot(block, C.OUT_WIDTH),
            slot(block, C.CHANNELS) * window,
        )

    def conv2d(block, lo, hi, scratch):
        groups, panels, rows = slot(block, C.GROUPS), slot(block, C.PANELS), slot(block, C.ROWS)
        channels, filters, places = slot(block, C.CHANNELS), slot(block, C.FILTERS), slot(block, C.OUT_WIDTH)
        area, out_area, depth = plane_sizes(block)
        for unit in range(lo, hi):
            image, r0 = unit // panels, unit % panels * rows
            r1 = min(r0 + rows, slot(block, C.OUT_HEIGHT))
            x = slot(block, C.FIRST) + itemsize * image * channels * area
            w = slot(block, C.SECOND) + itemsize * (image % groups * filters * depth)
            y = slot(block, C.THIRD) + itemsize * (image * filters * out_area + r0 * places)
            count = (r1 - r0) * places
            shape = (ROW_MAJOR, PLAIN, PLAIN, filters, count, depth)
            if slot(block, C.DIRECT) != 0:
                columns = x + itemsize * r0 * places
                call_gemm(slot(block, C.ENTRY), (*shape, w, depth, columns, area, y, out_area), dtype)
            else:
                gather(block, x, scratch, 0, depth, r0, r1)
                call_gemm(slot(block, C.ENTRY), (*shape, w, depth, scratch, count, y, out_area), dtype)
        return int64(0)

    def conv2d_input_gradient(block, lo, hi, scratch):
        groups, parts, part = slot(block, C.GROUPS), slot(block, C.PARTS), slot(block, C.PART)
        channels, filters, places = slot(block, C.CHANNELS), slot(block, C.FILTERS), slot(block, C.OUT_WIDTH)
        area, out_area, depth = plane_sizes(block)
        window = depth // channels
        for unit in range(lo, hi):
            image, c0 = unit // parts, unit % parts * part
            count = min(c0 + part, channels) - c0
            y = slot(block, C.FIRST) + itemsize * image * filters * out_area
            w = slot(block, C.SECOND) + itemsize * (image % groups * filters * depth + c0 * window)
            x = slot(block, C.THIRD) + itemsize * (image * channels + c0) * area
            if slot(block, C.DIRECT) != 0:
                shape = (ROW_MAJOR, TRANSPOSED, PLAIN, count, area, filters)
                call_gemm(slot(block, C.ENTRY), (*shape, w, depth, y, area, x, area), dtype)
            else:
                clear(x, count * area)
                for panel in range(slot(block, C.PANELS)):
                    r0 = panel * slot(block, C.ROWS)
                    r1 = min(r0 + slot(block, C.ROWS), slot(block, C.OUT_HEIGHT))
                    width = (r1 - r0) * places
                    shape = (ROW_MAJOR, TRANSPOSED, PLAIN, count * window, width, filters)
                    seen = y + itemsize * r0 * places
                    call_gemm(slot(block, C.ENTRY), (*shape, w, depth, seen, out_area, scratch, width), dtype)
                    scatter(block, x, scratch, 0, count * window, r0, r1)
        return int64(0)

    def conv2d_weight_gradient(block, lo, hi, scratch):
        groups, parts, part = slot(block, C.GROUPS), slot(block, C.PARTS), slot(block, C.PART)
        channels, filters, places = slot(block, C.CHANNELS), slot(block, C.FILTERS), slot(block, C.OUT_WIDTH)
        area, out_area, depth = plane_sizes(block)
        panels, rows = slot(block, C.PANELS), slot(block, C.ROWS)
        for unit in range(lo, hi):
            group, k0 = unit // parts, unit % parts * part
            k1 = min(k0 + part, depth)
            w = slot(block, C.THIRD) + itemsize * (group * filters * depth + k0)
            for f in range(filters):
                clear(w + itemsize * f * depth, k1 - k0)
            for step in range(slot(block, C.IMAGES) * panels):
                image, r0 = step // panels * groups + group, step % panels * rows
                r1 = min(r0 + rows, slot(block, C.OUT_HEIGHT))
                x = slot(block, C.FIRST) + itemsize * image * channels * area
                y = slot(block, C.SECOND) + itemsize * (image * filters * out_area + r0 * places)
                width = (r1 - r0) * places
                shape = (ROW_MAJOR, PLAIN, TRANSPOSED, filters, k1 - k0, width)
                if slot(block, C.DIRECT) != 0:
                    columns = x + itemsize * (k0 * area + r0 * places)
                    add_gemm(slot(block, C.ENTRY), (*shape, y, out_area, columns, area, w, depth), dtype)
                else:
                    gather(block, x, scratch, k0, k1, r0, r1)
                    add_gemm(slot(block, C.ENTRY), (*shape, y, out_area, scratch, width, w, depth), dtype)
        return int64(0)

    return {
        "conv2d": conv2d,
        "conv2d_input_gradient": conv2d_input_gradient,
        "conv2d_weight_gradient": conv2d_weight_gradient,
    }


def make_pools(dtype, itemsize):
    """The pooling kernels by name."""

    @subroutine
    def clear(out, count, value):
        for p in range(count):
            out[p] = value

    @subroutine
    def under(block, place, stride, low, window, extent):
        """(first element under a window, first and last position in the window that lie in the image)."""
        first = place * slot(block, stride) - slot(block, low)
        return first, max(-first, 0), min(slot(block, window), slot(block, extent) - first)

    @subroutine
    def winner(block, plane, r, q):
        """The position in a plane of the first largest element (or nan) under the window at (r, q)."""
        top, i0, i1 = under(block, r, P.STRIDE_DOWN, P.TOP, P.WINDOW_HEIGHT, P.HEIGHT)
        left, j0, j1 = under(block, q, P.STRIDE_ACROSS, P.LEFT, P.WINDOW_WIDTH, P.WIDTH)
        width = slot(block, P.WIDTH)
        best = (top + i0) * width + left + j0
        for i in range(i0, i1):
            for j in range(j0, j1):
                p = (top + i) * width + left + j
                best = p if exceeds(plane[best], plane[p]) else best
        return best

    @subroutine
    def planes(block, lo, hi):
        """The planes of units `lo` to `hi`, the elements of one, and its places."""
        together, total = slot(block, P.UNIT_PLANES), slot(block, P.PLANES)
        area = slot(block, P.HEIGHT) * slot(block, P.WIDTH)
        places = slot(block, P.OUT_HEIGHT) * slot(block, P.OUT_WIDTH)
        return lo * together, min(hi * together, total), area, places

    def max_pool(block, lo, hi, scratch):
        first, last, area, places = planes(block, lo, hi)
        out_width, across = slot(block, P.OUT_WIDTH), slot(block, P.STRIDE_ACROSS)
        lowest = -dtype(math.inf)
        for n in range(first, last):
            for r in range(slot(block, P.OUT_HEIGHT)):
                out = pointer(slot(block, P.SECOND) + itemsize * (n * places + r * out_width), dtype)
                clear(out, out_width, lowest)
                top, i0, i1 = under(block, r, P.STRIDE_DOWN, P.TOP, P.WINDOW_HEIGHT, P.HEIGHT)
                for i in range(i0, i1):
                    for j in range(slot(block, P.WINDOW_WIDTH)):
                        left = j - slot(block, P.LEFT)
                        start, stop = inside(left, across, out_width, slot(block, P.WIDTH))
                        row = n * area + (top + i) * slot(block, P.WIDTH) + left
                        line = pointer(slot(block, P.FIRST) + itemsize * row, dtype)
                        for q in range(start, stop):
                            out[q] = larger(out[q], line[q * across])
        return int64(0)

    def max_pool_gradient(block, lo, hi, scratch):
        first, last, area, places = planes(block, lo, hi)
        out_width = slot(block, P.OUT_WIDTH)
        for n in range(first, last):
            x = pointer(slot(block, P.FIRST) + itemsize * n * area, dtype)
            y = pointer(slot(block, P.SECOND) + itemsize * n * places, dtype)
            out = pointer(slot(block, P.THIRD) + itemsize * n * area, dtype)
            clear(out, area, dtype(0))
            for r in range(slot(block, P.OUT_HEIGHT)):
                for q in range(out_width):
                    p = winner(block, x, r, q)
                    out[p] = out[p] + y[r * out_width + q]
        return int64(0)

    def max_pool_select(block, lo, hi, scratch):
        first, last, area, places = planes(block, lo, hi)
        out_width = slot(block, P.OUT_WIDTH)
        for n in range(first, last):
            x = pointer(slot(block, P.FIRST) + itemsize * n * area, dtype)
            z = pointer(slot(block, P.SECOND) + itemsize * n * area, dtype)
            out = pointer(slot(block, P.THIRD) + itemsize * n * places, dtype)
            for r in range(slot(block, P.OUT_HEIGHT)):
                for q in range(out_width):
                    out[r * out_width + q] = z[winner(block, x, r, q)]
        return int64(0)

    def average_pool(block, lo, hi, scratch):
        first, last, area, places = planes(block, lo, hi)
        out_width, across = slot(block, P.OUT_WIDTH), slot(block, P.STRIDE_ACROSS)
        count = dtype(slot(block, P.WINDOW_HEIGHT) * slot(block, P.WINDOW_WIDTH))
        for n in range(first, last):
            for r in range(slot(block, P.OUT_HEIGHT)):
                out = pointer(slot(block, P.SECOND) + itemsize * (n * places + r * out_width), dtype)
                clear(out, out_width, dtype(0))
                top, i0, i1 = under(block, r, P.STRIDE_DOWN, P.TOP, P.WINDOW_HEIGHT, P.HEIGHT)
                for i in range(i0, i1):
                    for j in range(slot(block, P.WINDOW_WIDTH)):
                        left = j - slot(block, P.LEFT)
                        start, stop = inside(left, across, out_width, slot(block, P.WIDTH))
                        row = n * area + (top + i) * slot(block, P.WIDTH) + left
                        line = pointer(slot(block, P.FIRST) + itemsize * row, dtype)
                        for q in range(start, stop):
                            out[q] = out[q] + line[q * across]
                for q in range(out_width):
                    out[q] = quotient(out[q], count)
        return int64(0)

    def average_pool_gradient(block, lo, hi, scratch):
        first, last, area, places = planes(block, lo, hi)
        out_width, across = slot(block, P.OUT_WIDTH), slot(block, P.STRIDE_ACROSS)
        count = dtype(slot(block, P.WINDOW_HEIGHT) * slot(block, P.WINDOW_WIDTH))
        for n in range(first, last):
            clear(pointer(slot(block, P.SECOND) + itemsize * n * area, dtype), area, dtype(0))
            for r in range(slot(block, P.OUT_HEIGHT)):
                y = pointer(slot(block, P.FIRST) + itemsize * (n * places + r * out_width), dtype)
                top, i0, i1 = under(block, r, P.STRIDE_DOWN, P.TOP, P.WINDOW_HEIGHT, P.HEIGHT)
                for i in range(i0, i1):
                    for j in range(slot(block, P.WINDOW_WIDTH)):
                        left = j - slot(block, P.LEFT)
                        start, stop = inside(left, across, out_width, slot(block, P.WIDTH))
                        row = n * area + (top + i) * slot(block, P.WIDTH) + left
                        line = pointer(slot(block, P.SECOND) + itemsize * row, dtype)
                        for q in range(start, stop):
                            line[q * across] = line[q * across] + quotient(y[q], count)
        return int64(0)

    return {
        "max_pool": max_pool,
        "max_pool_gradient": max_pool_gradient,
        "max_pool_select": max_pool_select,
        "average_pool": average_pool,
        "average_pool_gradient": average_pool_gradient,
    }


def _make(dtype: str) -> dict[tuple[str, str], Callable[[int, int, int, int], int]]:
    """The kernels for `dtype`, a NumPy name."""
    scalar, itemsize = from_dtype(np.dtype(dtype)), np.dtype(dtype).itemsize
    kernels = make_convolutions(scalar, itemsize) | make_pools(scalar, itemsize)
    return {(name, dtype): kernel for name, kernel in kernels.items()}


IMAGES = _make("float32") | _make("float64")
"""All kernels over images by operator and dtype; these names stand in the keys of the kernel store."""
