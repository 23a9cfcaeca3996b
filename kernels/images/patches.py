"""Patches: parts of images in which the channels of an element follow one another, for arithmetic in vectors.

    load_patch(x, ...)       # some rows of LANES channels, transposed, with zeros around them
    ...                      # work on vectors of channels
    store_run(y, ...)        # and transposed back

Both sides stay in the first caches. An image that is read or written has its rows one after the other, so
that also narrow ones are transposed in squares of 8 x 8 elements.
"""

from tracejit.kernels.compiler.memory import copy_bytes, pointer
from tracejit.kernels.compiler.target import subroutine
from tracejit.kernels.images.places import clear
from tracejit.kernels.images.windows import LANES
from tracejit.kernels.streams.transpose import SIDE as SQUARE
from tracejit.kernels.streams.transpose import transpose_block


def make_runs(dtype, itemsize):
    """Make ``(load_run, store_run)``, which transpose neighbouring elements of some channels."""

    @subroutine
    def load_run(x, area, channels, count, out):
        """``out[p * LANES + c] = x[c * area + p]`` for `count` elements; zeros beyond `channels`."""
        source, target = pointer(x, dtype), pointer(out, dtype)
        whole = count // SQUARE * SQUARE
        for c in range(0, LANES, SQUARE):
            squares = whole if c + SQUARE <= channels else 0
            for p in range(0, squares, SQUARE):
                transpose_block(source, c * area + p, area, target, p * LANES + c, LANES)
            for q in range(c, c + SQUARE):
                for p in range(squares, count):
                    target[p * LANES + q] = source[q * area + p] if q < channels else dtype(0)

    @subroutine
    def store_run(x, area, channels, count, out):
        """The reverse: ``x[c * area + p] = out[p * LANES + c]``."""
        source, target = pointer(out, dtype), pointer(x, dtype)
        whole = count // SQUARE * SQUARE
        for c in range(0, channels, SQUARE):
            squares = whole if c + SQUARE <= channels else 0
            for p in range(0, squares, SQUARE):
                transpose_block(source, p * LANES + c, LANES, target, c * area + p, area)
            for q in range(c, min(c + SQUARE, channels)):
                for p in range(squares, count):
                    target[q * area + p] = source[p * LANES + q]

    return load_run, store_run


def make_patches(dtype, itemsize):
    """Make ``load_patch``."""
    load_run, _ = make_runs(dtype, itemsize)

    @subroutine
    def load_patch(x, extents, channels, corner, patch, shape, room):
        """A part of an image, with zeros around it.

        x: address of the first channel; extents: height and width of the image
        corner: row and column of the image at the start of the patch, neither beyond the image
        patch: address, of `shape` rows and columns; room: address for as much memory
        """
        (height, width), (top, left), (rows, columns) = extents, corner, shape
        line, element = columns * LANES * itemsize, LANES * itemsize
        first, last = max(top, 0), max(min(top + rows, height), 0)
        load_run(x + first * width * itemsize, height * width, channels, (last - first) * width, room)
        before = -left
        seen = min(width, columns - before)
        for r in range(rows):
            out, row = patch + r * line, top + r
            if first <= row < last:
                clear(pointer(out, dtype), before * LANES, dtype(0))
                copy_bytes(out + before * element, room + (row - first) * width * element, seen * element)
                rest = before + seen
                clear(pointer(out + rest * element, dtype), (columns - rest) * LANES, dtype(0))
            else:
                clear(pointer(out, dtype), columns * LANES, dtype(0))

    return load_patch
