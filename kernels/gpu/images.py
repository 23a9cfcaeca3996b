"""Convolution and pooling on GPUs, an element of the result at a time.

A thread adds up what an element of the result sees, in the order of channels and window; for the gradient to
weights, which sees all images, the threads of a block share the places and add up in a tree. Nothing is
gathered in memory, and no thread waits for another. The searches of pooling are those of
`tracejit.kernels.images.pooling`.
"""

from __future__ import annotations

from tracejit.kernels.compiler.memory import pointer, slot
from tracejit.kernels.compiler.target import subroutine
from tracejit.kernels.gpu.plan import Windows as W
from tracejit.kernels.gpu.threads import blocks_for_each, for_each, total_of_block
from tracejit.kernels.gpu.words import shared, thread_x, threads_x
from tracejit.kernels.images.pooling import quotient, under, winner
from tracejit.kernels.images.window_blocks import Pooling as P
from tracejit.kernels.scalar.accumulate import multiply_add_reassoc as multiply_add


@subroutine
def element(block, place, step, stride, low, dilation):
    """The row (or column) of an image that a place sees in step `step` of its window."""
    return place * slot(block, stride) - slot(block, low) + step * slot(block, dilation)


@subroutine
def seeing(block, element, step, stride, low, dilation, places):
    """The place that sees a row (or column) in step `step` of its window; -1 if there is none."""
    moved = element + slot(block, low) - step * slot(block, dilation)
    across = slot(block, stride)
    place = moved // across
    return place if moved >= 0 and place * across == moved and place < slot(block, places) else -1


@subroutine
def places_of(block):
    return slot(block, W.OUT_HEIGHT) * slot(block, W.OUT_WIDTH)


@subroutine
def area_of(block):
    return slot(block, W.HEIGHT) * slot(block, W.WIDTH)


@subroutine
def window_of(block):
    return slot(block, W.WINDOW_HEIGHT) * slot(block, W.WINDOW_WIDTH)


def make_conv2d(dtype, itemsize):
    """The sums of products of what each place sees."""

    @subroutine
    def one(block, unit):
        width, channels = slot(block, W.WIDTH), slot(block, W.CHANNELS)
        across, down = slot(block, W.WINDOW_WIDTH), slot(block, W.WINDOW_HEIGHT)
        q, r = unit % slot(block, W.OUT_WIDTH), unit // slot(block, W.OUT_WIDTH) % slot(block, W.OUT_HEIGHT)
        filters = slot(block, W.GROUPS) * slot(block, W.FILTERS)
        f, n = unit // places_of(block) % filters, unit // places_of(block) // filters
        first = (n * slot(block, W.GROUPS) + f // slot(block, W.FILTERS)) * channels
        x = pointer(slot(block, W.FIRST) + itemsize * first * area_of(block), dtype)
        w = pointer(slot(block, W.SECOND) + itemsize * f * channels * window_of(block), dtype)
        total = dtype(0)
        for c in range(channels):
            for i in range(down):
                row = element(block, r, i, W.STRIDE_DOWN, W.TOP, W.DILATION_DOWN)
                if 0 <= row < slot(block, W.HEIGHT):
                    for j in range(across):
                        column = element(block, q, j, W.STRIDE_ACROSS, W.LEFT, W.DILATION_ACROSS)
                        if 0 <= column < width:
                            seen = x[c * area_of(block) + row * width + column]
                            total = multiply_add(seen, w[(c * down + i) * across + j], total)
        pointer(slot(block, W.THIRD), dtype)[unit] = total

    return for_each(W.THIRD + 1, one)


def make_conv2d_input_gradient(dtype, itemsize):
    """The sums over all places that see an element."""

    @subroutine
    def one(block, unit):
        channels, filters = slot(block, W.CHANNELS), slot(block, W.FILTERS)
        across, down = slot(block, W.WINDOW_WIDTH), slot(block, W.WINDOW_HEIGHT)
        column, row = unit % slot(block, W.WIDTH), unit // slot(block, W.WIDTH) % slot(block, W.HEIGHT)
        plane = unit // area_of(block)
        c, group, n = (
            plane % channels,
            plane // channels % slot(block, W.GROUPS),
            plane // channels // slot(block, W.GROUPS),
        )
        first = n * slot(block, W.GROUPS) + group
        y = pointer(slot(block, W.FIRST) + itemsize * first * filters * places_of(block), dtype)
        w = pointer(slot(block, W.SECOND) + itemsize * group * filters * channels * window_of(block), dtype)
        total = dtype(0)
        for i in range(down):
            r = seeing(block, row, i, W.STRIDE_DOWN, W.TOP, W.DILATION_DOWN, W.OUT_HEIGHT)
            if r >= 0:
                for j in range(across):
                    q = seeing(block, column, j, W.STRIDE_ACROSS, W.LEFT, W.DILATION_ACROSS, W.OUT_WIDTH)
                    if q >= 0:
                        for f in range(filters):
                            given = y[f * places_of(block) + r * slot(block, W.OUT_WIDTH) + q]
                            weight = w[((f * channels + c) * down + i) * across + j]
                            total = multiply_add(given, weight, total)
        pointer(slot(block, W.THIRD), dtype)[unit] = total

    return for_each(W.THIRD + 1, one)


def make_conv2d_weight_gradient(dtype, itemsize):
    """The sums over all places of all images, shared out to the threads of a block."""

    @subroutine
    def one(block, unit):
        channels, width = slot(block, W.CHANNELS), slot(block, W.WIDTH)
        across, down = slot(block, W.WINDOW_WIDTH), slot(block, W.WINDOW_HEIGHT)
        j, i = unit % across, unit // across % down
        c, f = unit // window_of(block) % channels, unit // window_of(block) // channels
        group, filters = f // slot(block, W.FILTERS), slot(block, W.GROUPS) * slot(block, W.FILTERS)
        x, y = pointer(slot(block, W.FIRST), dtype), pointer(slot(block, W.SECOND), dtype)
        total, at = dtype(0), thread_x()
        while at < slot(block, W.IMAGES) * places_of(block):
            n, place = at // places_of(block), at % places_of(block)
            r, q = place // slot(block, W.OUT_WIDTH), place % slot(block, W.OUT_WIDTH)
            row = element(block, r, i, W.STRIDE_DOWN, W.TOP, W.DILATION_DOWN)
            column = element(block, q, j, W.STRIDE_ACROSS, W.LEFT, W.DILATION_ACROSS)
            if 0 <= row < slot(block, W.HEIGHT) and 0 <= column < width:
                plane = (n * slot(block, W.GROUPS) + group) * channels + c
                seen = x[plane * area_of(block) + row * width + column]
                total = multiply_add(seen, y[(n * filters + f) * places_of(block) + place], total)
            at += threads_x()
        total = total_of_block(shared(0, dtype), total)
        if thread_x() == 0:
            pointer(slot(block, W.THIRD), dtype)[unit] = total

    return blocks_for_each(W.THIRD + 1, one)


# ---------------------------------------------------------------------------------------------------- pooling


@subroutine
def place_of(block, unit):
    """(plane, row and column of the window) of a unit."""
    width, height = slot(block, P.OUT_WIDTH), slot(block, P.OUT_HEIGHT)
    return unit // (width * height), unit // width % height, unit % width


@subroutine
def windows_over(block, element, stride, low, window, places):
    """The range of windows (of rows, or of columns) that see an element."""
    across, last = slot(block, stride), element + slot(block, low)
    first = last - slot(block, window) + 1
    return max(-(-first // across), 0), min(last // across + 1, slot(block, places))


def make_of_windows(result, last):
    """Make a maker of a kernel: of ``result(block, offset, r, q)`` for each window, written to slot `last`;
    `offset`: of its plane, in bytes.
    """

    def make(dtype, itemsize):
        compute = result(dtype)

        @subroutine
        def one(block, unit):
            plane, r, q = place_of(block, unit)
            offset = itemsize * plane * slot(block, P.HEIGHT) * slot(block, P.WIDTH)
            pointer(slot(block, last), dtype)[unit] = compute(block, offset, r, q)

        return for_each(last + 1, one)

    return make


def largest(dtype):
    @subroutine
    def compute(block, offset, r, q):
        x = pointer(slot(block, P.FIRST) + offset, dtype)
        return x[winner(block, x, r, q)]

    return compute


def selected(dtype):
    @subroutine
    def compute(block, offset, r, q):
        x, z = pointer(slot(block, P.FIRST) + offset, dtype), pointer(slot(block, P.SECOND) + offset, dtype)
        return z[winner(block, x, r, q)]

    return compute


def averaged(dtype):
    @subroutine
    def compute(block, offset, r, q):
        x = pointer(slot(block, P.FIRST) + offset, dtype)
        top, i0, i1 = under(block, r, P.STRIDE_DOWN, P.TOP, P.WINDOW_HEIGHT, P.HEIGHT)
        left, j0, j1 = under(block, q, P.STRIDE_ACROSS, P.LEFT, P.WINDOW_WIDTH, P.WIDTH)
        total = dtype(0)
        for i in range(i0, i1):
            for j in range(j0, j1):
                total = total + x[(top + i) * slot(block, P.WIDTH) + left + j]
        return quotient(total, dtype(slot(block, P.WINDOW_HEIGHT) * slot(block, P.WINDOW_WIDTH)))

    return compute


def make_of_elements(result, last):
    """Make a maker of a kernel: of the sum of ``result(block, n, r, q, element)`` over all windows that see
    an element, written to slot `last`.
    """

    def make(dtype, itemsize):
        share = result(dtype, itemsize)

        @subroutine
        def one(block, unit):
            width, height = slot(block, P.WIDTH), slot(block, P.HEIGHT)
            n, row, column = unit // (width * height), unit // width % height, unit % width
            r0, r1 = windows_over(block, row, P.STRIDE_DOWN, P.TOP, P.WINDOW_HEIGHT, P.OUT_HEIGHT)
            q0, q1 = windows_over(block, column, P.STRIDE_ACROSS, P.LEFT, P.WINDOW_WIDTH, P.OUT_WIDTH)
            total = dtype(0)
            for r in range(r0, r1):
                for q in range(q0, q1):
                    total = total + share(block, n, r, q, row * width + column)
            pointer(slot(block, last), dtype)[unit] = total

        return for_each(last + 1, one)

    return make


def share_of_largest(dtype, itemsize):
    @subroutine
    def share(block, n, r, q, element):
        x = pointer(slot(block, P.FIRST) + itemsize * n * slot(block, P.HEIGHT) * slot(block, P.WIDTH), dtype)
        y = pointer(slot(block, P.SECOND), dtype)
        if winner(block, x, r, q) == element:
            return y[(n * slot(block, P.OUT_HEIGHT) + r) * slot(block, P.OUT_WIDTH) + q]
        return dtype(0)

    return share


def share_of_mean(dtype, itemsize):
    @subroutine
    def share(block, n, r, q, element):
        y = pointer(slot(block, P.FIRST), dtype)
        given = y[(n * slot(block, P.OUT_HEIGHT) + r) * slot(block, P.OUT_WIDTH) + q]
        return quotient(given, dtype(slot(block, P.WINDOW_HEIGHT) * slot(block, P.WINDOW_WIDTH)))

    return share


MAKERS = {
    "conv2d": make_conv2d,
    "conv2d_input_gradient": make_conv2d_input_gradient,
    "conv2d_weight_gradient": make_conv2d_weight_gradient,
    "max_pool": make_of_windows(largest, P.SECOND),
    "max_pool_select": make_of_windows(selected, P.THIRD),
    "average_pool": make_of_windows(averaged, P.SECOND),
    "max_pool_gradient": make_of_elements(share_of_largest, P.THIRD),
    "average_pool_gradient": make_of_elements(share_of_mean, P.SECOND),
}
"""Makers of kernels, by operator: ``make(dtype, itemsize)``."""
