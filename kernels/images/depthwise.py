"""Convolution where every group is one channel and one filter: loops along rows, without columns or BLAS.

A matrix product of a single row has nothing to reuse, and gathering columns for it would take longer than the
arithmetic. The blocks are `tracejit.kernels.images.window_blocks.Convolution`; a plane is a channel of an
image.

    depthwise_conv2d, depthwise_conv2d_input_gradient     unit = PART planes
    depthwise_conv2d_weight_gradient                      unit = group: its planes of all images in order
"""

from numba import int64

from tracejit.kernels.compiler.memory import pointer, slot
from tracejit.kernels.compiler.ranges import independent
from tracejit.kernels.compiler.target import subroutine
from tracejit.kernels.images.places import clear, inside
from tracejit.kernels.images.window_blocks import Convolution as C


@subroutine
def seen(block, k):
    """The part of a plane that position `k` of the window sees: (element of the place (0, 0), rows
    of places, places of a row); the first and last of these are in the image.
    """
    i, j = k // slot(block, C.WINDOW_WIDTH), k % slot(block, C.WINDOW_WIDTH)
    above = i * slot(block, C.DILATION_DOWN) - slot(block, C.TOP)
    left = j * slot(block, C.DILATION_ACROSS) - slot(block, C.LEFT)
    rows, places = slot(block, C.OUT_HEIGHT), slot(block, C.OUT_WIDTH)
    top, bottom = inside(above, slot(block, C.STRIDE_DOWN), rows, slot(block, C.HEIGHT))
    start, stop = inside(left, slot(block, C.STRIDE_ACROSS), places, slot(block, C.WIDTH))
    return above * slot(block, C.WIDTH) + left, top, bottom, start, stop


@subroutine
def sizes(block):
    """(elements of a plane, places of a plane, elements of a window)."""
    return (
        slot(block, C.HEIGHT) * slot(block, C.WIDTH),
        slot(block, C.OUT_HEIGHT) * slot(block, C.OUT_WIDTH),
        slot(block, C.WINDOW_HEIGHT) * slot(block, C.WINDOW_WIDTH),
    )


@subroutine
def planes(block, lo, hi):
    """First and last plane of units `lo` to `hi`."""
    part, total = slot(block, C.PART), slot(block, C.IMAGES) * slot(block, C.GROUPS)
    return lo * part, min(hi * part, total)


@subroutine
def add_to_places(places, line, factor, across, start, stop):
    """Add the elements of a row of an image, times `factor`, to the places that see them."""
    for q in independent(start, stop):
        places[q] = places[q] + factor * line[q * across]


@subroutine
def add_to_image(places, line, factor, across, start, stop):
    """The adjoint: add the places, times `factor`, to the elements of the row that they see."""
    for q in independent(start, stop):
        line[q * across] = line[q * across] + factor * places[q]


def make_linear(add, dtype, itemsize):
    """Make a kernel that adds, for each position of the window, rows of places and of images to one another:
    the convolution or the gradient with respect to the images. `add` decides the direction.
    """
    to_places = add is add_to_places
    x_slot, y_slot = (C.FIRST, C.THIRD) if to_places else (C.THIRD, C.FIRST)

    def linear(block, lo, hi, scratch):
        groups, places, across = slot(block, C.GROUPS), slot(block, C.OUT_WIDTH), slot(block, C.STRIDE_ACROSS)
        down = slot(block, C.STRIDE_DOWN) * slot(block, C.WIDTH)
        area, out_area, window = sizes(block)
        size = out_area if to_places else area
        first, last = planes(block, lo, hi)
        for n in range(first, last):
            w = pointer(slot(block, C.SECOND) + itemsize * (n % groups * window), dtype)
            clear(pointer(slot(block, C.THIRD) + itemsize * n * size, dtype), size, dtype(0))
            for k in range(window):
                offset, top, bottom, start, stop = seen(block, k)
                factor = w[k]
                for r in range(top, bottom):
                    y = pointer(slot(block, y_slot) + itemsize * (n * out_area + r * places), dtype)
                    row = n * area + offset + r * down
                    line = pointer(slot(block, x_slot) + itemsize * row, dtype)
                    add(y, line, factor, across, start, stop)
        return int64(0)

    return linear


def make_weight_gradient(dtype, itemsize):
    """The gradient with respect to the weights."""

    def depthwise_conv2d_weight_gradient(block, lo, hi, scratch):
        """Accumulate products by columns of places in the scratch memory, so that loops vectorise."""
        groups, places, across = slot(block, C.GROUPS), slot(block, C.OUT_WIDTH), slot(block, C.STRIDE_ACROSS)
        down = slot(block, C.STRIDE_DOWN) * slot(block, C.WIDTH)
        area, out_area, window = sizes(block)
        sums = pointer(scratch, dtype)
        for group in range(lo, hi):
            clear(sums, window * places, dtype(0))
            for step in range(slot(block, C.IMAGES) * window):
                n, k = step // window * groups + group, step % window
                offset, top, bottom, start, stop = seen(block, k)
                total = pointer(scratch + itemsize * k * places, dtype)
                for r in range(top, bottom):
                    y = pointer(slot(block, C.SECOND) + itemsize * (n * out_area + r * places), dtype)
                    row = n * area + offset + r * down
                    line = pointer(slot(block, C.FIRST) + itemsize * row, dtype)
                    for q in independent(start, stop):
                        total[q] = total[q] + y[q] * line[q * across]
            w = pointer(slot(block, C.THIRD) + itemsize * group * window, dtype)
            for k in range(window):
                w[k] = dtype(0)
                for q in range(places):
                    w[k] = w[k] + sums[k * places + q]
        return int64(0)

    return depthwise_conv2d_weight_gradient


def make_depthwise(dtype, itemsize):
    """The three kernels by name."""
    return {
        "depthwise_conv2d": make_linear(add_to_places, dtype, itemsize),
        "depthwise_conv2d_input_gradient": make_linear(add_to_image, dtype, itemsize),
        "depthwise_conv2d_weight_gradient": make_weight_gradient(dtype, itemsize),
    }
