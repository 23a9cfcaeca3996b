"""Subroutines shared by all kernels over images: the window, the output positions whose input is inside the
image, clearing.
"""

from __future__ import annotations

from tracejit.kernels.compiler.memory import slot
from tracejit.kernels.compiler.target import subroutine
from tracejit.kernels.images.window_blocks import Convolution


@subroutine
def window_of(block):
    """The window of a convolution: (height, width, number of elements)."""
    height, width = slot(block, Convolution.WINDOW_HEIGHT), slot(block, Convolution.WINDOW_WIDTH)
    return height, width, height * width


@subroutine
def inside(first, stride, positions, extent):
    """The range of output positions whose input element, ``first + position * stride``, is inside an image of
    `extent` elements.
    """
    start = min(max(-(first // stride), 0), positions)
    return start, max(min((extent - 1 - first) // stride + 1, positions), start)


@subroutine
def clear(out, count, value):
    """Write `value` to `count` elements."""
    for p in range(count):
        out[p] = value
