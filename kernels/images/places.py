"""Subroutines that all kernels over images share: the window, which places of it see the image; clearing."""

from __future__ import annotations

from tracejit.kernels.compiler.memory import slot
from tracejit.kernels.compiler.target import subroutine
from tracejit.kernels.images.window_blocks import Convolution


@subroutine
def window_of(block):
    """(height, width, elements) of the window of a convolution."""
    height, width = slot(block, Convolution.WINDOW_HEIGHT), slot(block, Convolution.WINDOW_WIDTH)
    return height, width, height * width


@subroutine
def inside(first, stride, places, extent):
    """The range of places whose element, ``first + place * stride``, lies in an image of `extent`."""
    start = min(max(-(first // stride), 0), places)
    return start, max(min((extent - 1 - first) // stride + 1, places), start)


@subroutine
def clear(out, count, value):
    """Write `value` to `count` elements."""
    for p in range(count):
        out[p] = value
