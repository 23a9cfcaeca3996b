"""Subroutines that all kernels over images share: which places of a window see the image; clearing."""

from __future__ import annotations

from tracejit.kernels.compiler.target import subroutine


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
