"""Convolution and pooling on GPUs, one element of the result at a time.

A thread accumulates all products of one element of the result, in the order of channels and window. For the
gradient with respect to the weights, which involves all images, the threads of a block share the output
positions and combine their sums in a tree. No patches are materialised in memory, and apart from that tree no
thread waits for another. The argmax searches of pooling are those of `tracejit.kernels.images.pooling`.
"""

from __future__ import annotations

from tracejit.kernels.compiler.memory import pointer, slot
from tracejit.kernels.compiler.target import subroutine
from tracejit.kernels.gpu.plan import Windows as W
from tracejit.kernels.gpu.threads import blocks_for_each, for_each, total_of_block
from tracejit.kernels.gpu.words import shared, thread_x, threads_x
from tracejit.kernels.images.pooling import largest_position, quotient, window_range
from tracejit.kernels.images.window_blocks import Pooling as P
from tracejit.kernels.scalar.accumulate import multiply_add_reassoc as multiply_add


@subroutine
def input_index(block, position, step, stride, low, dilation):
    """Return the row (or column) of an image that the output position `position` reads at step `step` of
    its window.
    """
    return position * slot(block, stride) - slot(block, low) + step * slot(block, dilation)


@subroutine
def output_index(block, input_index, step, stride, low, dilation, n_positions):
    """Return the output position that reads a row (or column) at step `step` of its window, or -1 if there
    is none.
    """
    shifted = input_index + slot(block, low) - step * slot(block, dilation)
    distance = slot(block, stride)
    position = shifted // distance
    return (
        position
        if shifted >= 0 and position * distance == shifted and position < slot(block, n_positions)
        else -1
    )


@subroutine
def output_area(block):
    return slot(block, W.OUT_HEIGHT) * slot(block, W.OUT_WIDTH)


@subroutine
def image_area(block):
    return slot(block, W.HEIGHT) * slot(block, W.WIDTH)


@subroutine
def window_area(block):
    return slot(block, W.WINDOW_HEIGHT) * slot(block, W.WINDOW_WIDTH)


def make_conv2d(dtype, itemsize):
    """Return the kernel of ``conv2d``: for each output position, the sum of the products over its window."""

    @subroutine
    def body(block, unit):
        width, channels = slot(block, W.WIDTH), slot(block, W.CHANNELS)
        across, down = slot(block, W.WINDOW_WIDTH), slot(block, W.WINDOW_HEIGHT)
        q, r = unit % slot(block, W.OUT_WIDTH), unit // slot(block, W.OUT_WIDTH) % slot(block, W.OUT_HEIGHT)
        filters = slot(block, W.GROUPS) * slot(block, W.FILTERS)
        f, n = unit // output_area(block) % filters, unit // output_area(block) // filters
        first = (n * slot(block, W.GROUPS) + f // slot(block, W.FILTERS)) * channels
        x = pointer(slot(block, W.FIRST) + itemsize * first * image_area(block), dtype)
        w = pointer(slot(block, W.SECOND) + itemsize * f * channels * window_area(block), dtype)
        total = dtype(0)
        for c in range(channels):
            for i in range(down):
                row = input_index(block, r, i, W.STRIDE_DOWN, W.TOP, W.DILATION_DOWN)
                if 0 <= row < slot(block, W.HEIGHT):
                    for j in range(across):
                        column = input_index(block, q, j, W.STRIDE_ACROSS, W.LEFT, W.DILATION_ACROSS)
                        if 0 <= column < width:
                            value = x[c * image_area(block) + row * width + column]
                            total = multiply_add(value, w[(c * down + i) * across + j], total)
        pointer(slot(block, W.THIRD), dtype)[unit] = total

    return for_each(W.THIRD + 1, body)


def make_conv2d_input_gradient(dtype, itemsize):
    """Return the kernel of the gradient with respect to the input: the sums over all output positions that
    read an element.
    """

    @subroutine
    def body(block, unit):
        channels, filters = slot(block, W.CHANNELS), slot(block, W.FILTERS)
        across, down = slot(block, W.WINDOW_WIDTH), slot(block, W.WINDOW_HEIGHT)
        column, row = unit % slot(block, W.WIDTH), unit // slot(block, W.WIDTH) % slot(block, W.HEIGHT)
        plane = unit // image_area(block)
        c, group, n = (
            plane % channels,
            plane // channels % slot(block, W.GROUPS),
            plane // channels // slot(block, W.GROUPS),
        )
        first = n * slot(block, W.GROUPS) + group
        y = pointer(slot(block, W.FIRST) + itemsize * first * filters * output_area(block), dtype)
        w = pointer(slot(block, W.SECOND) + itemsize * group * filters * channels * window_area(block), dtype)
        total = dtype(0)
        for i in range(down):
            r = output_index(block, row, i, W.STRIDE_DOWN, W.TOP, W.DILATION_DOWN, W.OUT_HEIGHT)
            if r >= 0:
                for j in range(across):
                    q = output_index(
                        block, column, j, W.STRIDE_ACROSS, W.LEFT, W.DILATION_ACROSS, W.OUT_WIDTH
                    )
                    if q >= 0:
                        for f in range(filters):
                            gradient = y[f * output_area(block) + r * slot(block, W.OUT_WIDTH) + q]
                            weight = w[((f * channels + c) * down + i) * across + j]
                            total = multiply_add(gradient, weight, total)
        pointer(slot(block, W.THIRD), dtype)[unit] = total

    return for_each(W.THIRD + 1, body)


def make_conv2d_weight_gradient(dtype, itemsize):
    """Return the kernel of the gradient with respect to the weights: the sums over all output positions of
    all images, shared among the threads of a block.
    """

    @subroutine
    def body(block, unit):
        channels, width = slot(block, W.CHANNELS), slot(block, W.WIDTH)
        across, down = slot(block, W.WINDOW_WIDTH), slot(block, W.WINDOW_HEIGHT)
        j, i = unit % across, unit // across % down
        c, f = unit // window_area(block) % channels, unit // window_area(block) // channels
        group, filters = f // slot(block, W.FILTERS), slot(block, W.GROUPS) * slot(block, W.FILTERS)
        x, y = pointer(slot(block, W.FIRST), dtype), pointer(slot(block, W.SECOND), dtype)
        total, index = dtype(0), thread_x()
        while index < slot(block, W.IMAGES) * output_area(block):
            n, position = index // output_area(block), index % output_area(block)
            r, q = position // slot(block, W.OUT_WIDTH), position % slot(block, W.OUT_WIDTH)
            row = input_index(block, r, i, W.STRIDE_DOWN, W.TOP, W.DILATION_DOWN)
            column = input_index(block, q, j, W.STRIDE_ACROSS, W.LEFT, W.DILATION_ACROSS)
            if 0 <= row < slot(block, W.HEIGHT) and 0 <= column < width:
                plane = (n * slot(block, W.GROUPS) + group) * channels + c
                value = x[plane * image_area(block) + row * width + column]
                total = multiply_add(value, y[(n * filters + f) * output_area(block) + position], total)
            index += threads_x()
        total = total_of_block(shared(0, dtype), total)
        if thread_x() == 0:
            pointer(slot(block, W.THIRD), dtype)[unit] = total

    return blocks_for_each(W.THIRD + 1, body)


# ---------------------------------------------------------------------------------------------------- pooling


@subroutine
def window_position(block, unit):
    """Return (plane, row and column of the window) of a unit."""
    width, height = slot(block, P.OUT_WIDTH), slot(block, P.OUT_HEIGHT)
    return unit // (width * height), unit // width % height, unit % width


@subroutine
def windows_over(block, input_index, stride, low, window, n_windows):
    """Return the range of windows (along rows or columns) that contain an element."""
    distance, last = slot(block, stride), input_index + slot(block, low)
    first = last - slot(block, window) + 1
    return max(-(-first // distance), 0), min(last // distance + 1, slot(block, n_windows))


def windows_factory(result, last):
    """Return a factory of kernels that compute ``result(block, offset, r, q)`` for each window and write
    it to the operand in slot `last`. `offset`: the byte offset of the window's plane.
    """

    def make(dtype, itemsize):
        compute = result(dtype)

        @subroutine
        def body(block, unit):
            plane, r, q = window_position(block, unit)
            offset = itemsize * plane * slot(block, P.HEIGHT) * slot(block, P.WIDTH)
            pointer(slot(block, last), dtype)[unit] = compute(block, offset, r, q)

        return for_each(last + 1, body)

    return make


def largest_element(dtype):
    @subroutine
    def compute(block, offset, r, q):
        x = pointer(slot(block, P.FIRST) + offset, dtype)
        return x[largest_position(block, x, r, q)]

    return compute


def selected_element(dtype):
    @subroutine
    def compute(block, offset, r, q):
        x, z = pointer(slot(block, P.FIRST) + offset, dtype), pointer(slot(block, P.SECOND) + offset, dtype)
        return z[largest_position(block, x, r, q)]

    return compute


def mean(dtype):
    @subroutine
    def compute(block, offset, r, q):
        x = pointer(slot(block, P.FIRST) + offset, dtype)
        top, i0, i1 = window_range(block, r, P.STRIDE_DOWN, P.TOP, P.WINDOW_HEIGHT, P.HEIGHT)
        left, j0, j1 = window_range(block, q, P.STRIDE_ACROSS, P.LEFT, P.WINDOW_WIDTH, P.WIDTH)
        total = dtype(0)
        for i in range(i0, i1):
            for j in range(j0, j1):
                total = total + x[(top + i) * slot(block, P.WIDTH) + left + j]
        return quotient(total, dtype(slot(block, P.WINDOW_HEIGHT) * slot(block, P.WINDOW_WIDTH)))

    return compute


def elements_factory(result, last):
    """Return a factory of kernels that compute, for each element, the sum of ``result(block, n, r, q,
    element)`` over all windows that contain it, and write it to the operand in slot `last`.
    """

    def make(dtype, itemsize):
        contribution = result(dtype, itemsize)

        @subroutine
        def body(block, unit):
            width, height = slot(block, P.WIDTH), slot(block, P.HEIGHT)
            n, row, column = unit // (width * height), unit // width % height, unit % width
            r0, r1 = windows_over(block, row, P.STRIDE_DOWN, P.TOP, P.WINDOW_HEIGHT, P.OUT_HEIGHT)
            q0, q1 = windows_over(block, column, P.STRIDE_ACROSS, P.LEFT, P.WINDOW_WIDTH, P.OUT_WIDTH)
            total = dtype(0)
            for r in range(r0, r1):
                for q in range(q0, q1):
                    total = total + contribution(block, n, r, q, row * width + column)
            pointer(slot(block, last), dtype)[unit] = total

        return for_each(last + 1, body)

    return make


def gradient_of_largest(dtype, itemsize):
    @subroutine
    def contribution(block, n, r, q, input_index):
        x = pointer(slot(block, P.FIRST) + itemsize * n * slot(block, P.HEIGHT) * slot(block, P.WIDTH), dtype)
        y = pointer(slot(block, P.SECOND), dtype)
        if largest_position(block, x, r, q) == input_index:
            return y[(n * slot(block, P.OUT_HEIGHT) + r) * slot(block, P.OUT_WIDTH) + q]
        return dtype(0)

    return contribution


def gradient_of_mean(dtype, itemsize):
    @subroutine
    def contribution(block, n, r, q, input_index):
        y = pointer(slot(block, P.FIRST), dtype)
        gradient = y[(n * slot(block, P.OUT_HEIGHT) + r) * slot(block, P.OUT_WIDTH) + q]
        return quotient(gradient, dtype(slot(block, P.WINDOW_HEIGHT) * slot(block, P.WINDOW_WIDTH)))

    return contribution


MAKERS = {
    "conv2d": make_conv2d,
    "conv2d_input_gradient": make_conv2d_input_gradient,
    "conv2d_weight_gradient": make_conv2d_weight_gradient,
    "max_pool": windows_factory(largest_element, P.SECOND),
    "max_pool_select": windows_factory(selected_element, P.THIRD),
    "average_pool": windows_factory(mean, P.SECOND),
    "max_pool_gradient": elements_factory(gradient_of_largest, P.THIRD),
    "average_pool_gradient": elements_factory(gradient_of_mean, P.SECOND),
}
"""Factories of kernels, by operator: ``make(dtype, itemsize)``."""
