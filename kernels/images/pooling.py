"""Pooling: the largest element or the mean of windows, row by row of results, and their gradients.

`tracejit.kernels.images.windows` describes the argument block and the units. `MAKERS` maps operator names to
the makers of the kernels, which are Python functions for Numba. A position in the window is processed for an
entire row of windows, so that loops vectorise:

    for i, j in window:
        for q in row:
            out[q] = larger(out[q], line[q * stride + j])
"""

import math
from functools import cache

from numba import int64

from tracejit.kernels.compiler.intrinsics import select
from tracejit.kernels.compiler.memory import pointer, slot
from tracejit.kernels.compiler.ranges import independent
from tracejit.kernels.compiler.target import subroutine
from tracejit.kernels.compiler.typed_values import compiled
from tracejit.kernels.images.common import clear, inside
from tracejit.kernels.images.window_blocks import Pooling as P


def replaces_best(best, x):
    """Whether `x` replaces `best`, the largest element so far: a nan replaces any number, and nothing
    replaces a nan.
    """
    return (best == best) & ~(x <= best)


@compiled
def larger(best, x):
    """The larger of two floats; the first of equal ones, the first nan if there is one."""
    return select(replaces_best(best, x), x, best)


exceeds = compiled(replaces_best, "bool")


def is_best(x, best):
    """Whether `x` equals `best`, the largest element of its window; two nans count as equal."""
    return (x == best) | (x != x)


@compiled
def received_gradient(x, best, remaining):
    """The portion of the gradient `remaining` that an element of a window receives: all of it if the element
    is the largest.
    """
    return select(is_best(x, best), remaining, 0.0)


@compiled
def remaining_gradient(x, best, remaining):
    """The portion of the gradient `remaining` that is left for the following elements of the window."""
    return select(is_best(x, best), 0.0, remaining)


@compiled
def quotient(x, y):
    """The quotient ``x / y`` of floats."""
    return x / y


@subroutine
def window_range(block, index, stride, low, window, extent):
    """The input under a window along one dimension: (its first element, the first and the last window
    position inside the image).
    """
    first = index * slot(block, stride) - slot(block, low)
    return first, max(-first, 0), min(slot(block, window), slot(block, extent) - first)


@subroutine
def largest_position(block, plane, r, q):
    """The position in a plane of the first largest element (or nan) under the window at (r, q)."""
    top, i0, i1 = window_range(block, r, P.STRIDE_DOWN, P.TOP, P.WINDOW_HEIGHT, P.HEIGHT)
    left, j0, j1 = window_range(block, q, P.STRIDE_ACROSS, P.LEFT, P.WINDOW_WIDTH, P.WIDTH)
    width = slot(block, P.WIDTH)
    best = (top + i0) * width + left + j0
    for i in range(i0, i1):
        for j in range(j0, j1):
            p = (top + i) * width + left + j
            best = p if exceeds(plane[best], plane[p]) else best
    return best


@subroutine
def planes(block, lo, hi):
    """The planes of units `lo` to `hi`: (first, last, elements of a plane, outputs of a plane)."""
    unit_planes, total = slot(block, P.UNIT_PLANES), slot(block, P.PLANES)
    area = slot(block, P.HEIGHT) * slot(block, P.WIDTH)
    out_area = slot(block, P.OUT_HEIGHT) * slot(block, P.OUT_WIDTH)
    return lo * unit_planes, min(hi * unit_planes, total), area, out_area


def make_row_of_windows(add, image_slot, dtype, itemsize):
    """Return ``add_row(block, n, r, outputs, count)``, which calls `add` for each window position of row `r`
    of plane `n`.
    """

    @subroutine
    def add_row(block, n, r, outputs, count):
        out_width, across = slot(block, P.OUT_WIDTH), slot(block, P.STRIDE_ACROSS)
        area, width = slot(block, P.HEIGHT) * slot(block, P.WIDTH), slot(block, P.WIDTH)
        top, i0, i1 = window_range(block, r, P.STRIDE_DOWN, P.TOP, P.WINDOW_HEIGHT, P.HEIGHT)
        for i in range(i0, i1):
            for j in range(slot(block, P.WINDOW_WIDTH)):
                left = j - slot(block, P.LEFT)
                start, stop = inside(left, across, out_width, width)
                row = n * area + (top + i) * width + left
                line = pointer(slot(block, image_slot) + itemsize * row, dtype)
                add(outputs, line, count, across, start, stop)

    return add_row


@subroutine
def raise_outputs(outputs, line, count, across, start, stop):
    """Replace each output by the element of an image row under its window, if that is larger."""
    for q in independent(start, stop):
        outputs[q] = larger(outputs[q], line[q * across])


@cache
def make_largest(dtype, itemsize):
    """Return ``largest(block, n, r, out)``, which stores the largest elements of all windows of row `r` of
    plane `n`.
    """
    raise_row = make_row_of_windows(raise_outputs, P.FIRST, dtype, itemsize)

    @subroutine
    def largest(block, n, r, out):
        clear(out, slot(block, P.OUT_WIDTH), -dtype(math.inf))
        raise_row(block, n, r, out, dtype(0))

    return largest


def make_max_pool(dtype, itemsize):
    """Return the kernel of the largest element of each window."""
    largest = make_largest(dtype, itemsize)

    def max_pool(block, lo, hi, scratch):
        first, last, _, out_area = planes(block, lo, hi)
        out_width = slot(block, P.OUT_WIDTH)
        for n in range(first, last):
            for r in range(slot(block, P.OUT_HEIGHT)):
                row = n * out_area + r * out_width
                largest(block, n, r, pointer(slot(block, P.SECOND) + itemsize * row, dtype))
        return int64(0)

    return max_pool


def make_max_pool_gradient(dtype, itemsize):
    """Return the kernel of the gradient of `max_pool`: the largest element of each window receives the
    window's gradient.
    """
    largest = make_largest(dtype, itemsize)

    def max_pool_gradient(block, lo, hi, scratch):
        first, last, area, out_area = planes(block, lo, hi)
        out_width, across = slot(block, P.OUT_WIDTH), slot(block, P.STRIDE_ACROSS)
        best, remaining = pointer(scratch, dtype), pointer(scratch + itemsize * out_width, dtype)
        for n in range(first, last):
            clear(pointer(slot(block, P.THIRD) + itemsize * n * area, dtype), area, dtype(0))
            for r in range(slot(block, P.OUT_HEIGHT)):
                largest(block, n, r, best)
                y = pointer(slot(block, P.SECOND) + itemsize * (n * out_area + r * out_width), dtype)
                # the gradient that no element of the window has received yet
                for q in independent(0, out_width):
                    remaining[q] = y[q]
                top, i0, i1 = window_range(block, r, P.STRIDE_DOWN, P.TOP, P.WINDOW_HEIGHT, P.HEIGHT)
                for i in range(i0, i1):
                    for j in range(slot(block, P.WINDOW_WIDTH)):
                        left = j - slot(block, P.LEFT)
                        start, stop = inside(left, across, out_width, slot(block, P.WIDTH))
                        row = itemsize * (n * area + (top + i) * slot(block, P.WIDTH) + left)
                        x = pointer(slot(block, P.FIRST) + row, dtype)
                        out = pointer(slot(block, P.THIRD) + row, dtype)
                        for q in independent(start, stop):
                            p = q * across
                            out[p] = out[p] + received_gradient(x[p], best[q], remaining[q])
                            remaining[q] = remaining_gradient(x[p], best[q], remaining[q])
        return int64(0)

    return max_pool_gradient


def make_max_pool_select(dtype, itemsize):
    """Return the kernel that selects the elements of a second image at the positions of the largest elements
    of the first one.
    """

    def max_pool_select(block, lo, hi, scratch):
        first, last, area, out_area = planes(block, lo, hi)
        out_width = slot(block, P.OUT_WIDTH)
        for n in range(first, last):
            x = pointer(slot(block, P.FIRST) + itemsize * n * area, dtype)
            z = pointer(slot(block, P.SECOND) + itemsize * n * area, dtype)
            out = pointer(slot(block, P.THIRD) + itemsize * n * out_area, dtype)
            for r in range(slot(block, P.OUT_HEIGHT)):
                for q in range(out_width):
                    out[r * out_width + q] = z[largest_position(block, x, r, q)]
        return int64(0)

    return max_pool_select


@subroutine
def add_to_outputs(outputs, line, count, across, start, stop):
    """Add to each output the element of an image row under its window."""
    for q in independent(start, stop):
        outputs[q] = outputs[q] + line[q * across]


@subroutine
def add_to_image(outputs, line, count, across, start, stop):
    """The adjoint: add each output, divided by `count`, to the element of the row under its window."""
    for q in independent(start, stop):
        line[q * across] = line[q * across] + quotient(outputs[q], count)


def make_average_pool(dtype, itemsize):
    """Return the kernel of the mean of each window."""
    add_row = make_row_of_windows(add_to_outputs, P.FIRST, dtype, itemsize)

    def average_pool(block, lo, hi, scratch):
        first, last, _, out_area = planes(block, lo, hi)
        out_width = slot(block, P.OUT_WIDTH)
        count = dtype(slot(block, P.WINDOW_HEIGHT) * slot(block, P.WINDOW_WIDTH))
        for n in range(first, last):
            for r in range(slot(block, P.OUT_HEIGHT)):
                out = pointer(slot(block, P.SECOND) + itemsize * (n * out_area + r * out_width), dtype)
                clear(out, out_width, dtype(0))
                add_row(block, n, r, out, count)
                for q in range(out_width):
                    out[q] = quotient(out[q], count)
        return int64(0)

    return average_pool


def make_average_pool_gradient(dtype, itemsize):
    """Return the kernel of the gradient of the mean."""
    add_row = make_row_of_windows(add_to_image, P.SECOND, dtype, itemsize)

    def average_pool_gradient(block, lo, hi, scratch):
        first, last, area, out_area = planes(block, lo, hi)
        out_width = slot(block, P.OUT_WIDTH)
        count = dtype(slot(block, P.WINDOW_HEIGHT) * slot(block, P.WINDOW_WIDTH))
        for n in range(first, last):
            clear(pointer(slot(block, P.SECOND) + itemsize * n * area, dtype), area, dtype(0))
            for r in range(slot(block, P.OUT_HEIGHT)):
                y = pointer(slot(block, P.FIRST) + itemsize * (n * out_area + r * out_width), dtype)
                add_row(block, n, r, y, count)
        return int64(0)

    return average_pool_gradient


MAKERS = {
    "max_pool": make_max_pool,
    "max_pool_gradient": make_max_pool_gradient,
    "max_pool_select": make_max_pool_select,
    "average_pool": make_average_pool,
    "average_pool_gradient": make_average_pool_gradient,
}
"""``make(dtype, itemsize)`` of each kernel."""
