"""Patches: regions of images in which the channels of an element are contiguous, for arithmetic in vectors of
channels.

    load_patch(x, ...)       # rows of LANES channels, transposed, with zeros around them
    ...                      # arithmetic in vectors of channels
    store_run(y, ...)        # transposed back

Both sides stay in the L1 and L2 caches. The rows of an image that is read or written are contiguous, so that
even narrow images are transposed in squares of 8 x 8 elements.
"""

from tracejit.kernels.compiler.memory import copy_bytes, pointer
from tracejit.kernels.compiler.target import subroutine
from tracejit.kernels.images.common import clear
from tracejit.kernels.images.windows import LANES
from tracejit.kernels.streams.transpose import SIDE as SQUARE
from tracejit.kernels.streams.transpose import transpose_block


def make_runs(dtype, itemsize):
    """Return ``(load_run, store_run)``, which transpose runs of neighbouring elements of several channels."""

    @subroutine
    def load_run(x, area, channels, count, out):
        """Store ``out[p * LANES + c] = x[c * area + p]`` for `count` elements, with zeros for the lanes
        beyond `channels`.
        """
        source, target = pointer(x, dtype), pointer(out, dtype)
        square_count = count // SQUARE * SQUARE
        for c in range(0, LANES, SQUARE):
            in_squares = square_count if c + SQUARE <= channels else 0
            for p in range(0, in_squares, SQUARE):
                transpose_block(source, c * area + p, area, target, p * LANES + c, LANES)
            for q in range(c, c + SQUARE):
                for p in range(in_squares, count):
                    target[p * LANES + q] = source[q * area + p] if q < channels else dtype(0)

    @subroutine
    def store_run(x, area, channels, count, out):
        """Store ``x[c * area + p] = out[p * LANES + c]``, the inverse of `load_run`."""
        source, target = pointer(out, dtype), pointer(x, dtype)
        square_count = count // SQUARE * SQUARE
        for c in range(0, channels, SQUARE):
            in_squares = square_count if c + SQUARE <= channels else 0
            for p in range(0, in_squares, SQUARE):
                transpose_block(source, p * LANES + c, LANES, target, c * area + p, area)
            for q in range(c, min(c + SQUARE, channels)):
                for p in range(in_squares, count):
                    target[q * area + p] = source[p * LANES + q]

    return load_run, store_run


def make_patches(dtype, itemsize):
    """Return ``load_patch``."""
    load_run, _ = make_runs(dtype, itemsize)

    @subroutine
    def load_patch(x, extents, channels, corner, patch, shape, workspace):
        """Copy a region of an image to a patch, with zeros beyond the image.

        x: address of the first channel; extents: height and width of the image
        corner: row and column of the image at the start of the patch, neither beyond the image
        patch: address, of `shape` rows and columns; workspace: address of as much scratch memory
        """
        (height, width), (top, left), (rows, columns) = extents, corner, shape
        line, element = columns * LANES * itemsize, LANES * itemsize
        first, last = max(top, 0), max(min(top + rows, height), 0)
        load_run(x + first * width * itemsize, height * width, channels, (last - first) * width, workspace)
        left_margin = -left
        copied = min(width, columns - left_margin)
        for r in range(rows):
            out, row = patch + r * line, top + r
            if first <= row < last:
                clear(pointer(out, dtype), left_margin * LANES, dtype(0))
                copy_bytes(
                    out + left_margin * element, workspace + (row - first) * width * element, copied * element
                )
                end = left_margin + copied
                clear(pointer(out + end * element, dtype), (columns - end) * LANES, dtype(0))
            else:
                clear(pointer(out, dtype), columns * LANES, dtype(0))

    return load_patch
