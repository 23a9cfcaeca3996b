"""Columns of images in slivers, gathered immediately before a product reads them.

    packed = make_packed_product(dtype, itemsize, make_gathered_slivers(dtype, itemsize))
    packed(weights, (block, x, position), target, ...)    # columns of the image x from that position on

The right operand of a convolution's product has a column for each output position and a row for each window
element of each channel. A sliver contains as many neighbouring positions as a tile is wide. It is assembled
from *chunks*: neighbouring positions in one row, at most a vector of them. The input elements of a chunk have
the same offsets in every channel, one plane apart. So addresses and masks are computed once for each chunk
and window element, and a loop over channels takes a few instructions. The masks replace positions beyond the
image by zeros.

This is profitable for rows of some length (`are_gathered`); otherwise columns are gathered as entire panels.
"""

from numba import int64

from tracejit.kernels.compiler.memory import slot
from tracejit.kernels.compiler.target import subroutine
from tracejit.kernels.gemm.plan import TILE_BYTES, VECTOR_BYTES
from tracejit.kernels.images.vectors import copy_every_second, copy_neighbours
from tracejit.kernels.images.window_blocks import Convolution as C

MIN_CHANNELS = 3
"""Channels below which masks and addresses cost more time than they save (one channel: 1.3 times the
time).
"""

MIN_POSITIONS = 14
"""Positions in a row below which too many lanes of a chunk are idle (7: 1.15 times the time)."""


@subroutine
def are_gathered(block):
    """Whether gathering slivers is profitable; see the module docstring."""
    strides = slot(block, C.STRIDE_ACROSS) <= 2
    return strides & (slot(block, C.CHANNELS) >= MIN_CHANNELS) & (slot(block, C.OUT_WIDTH) >= MIN_POSITIONS)


@subroutine
def inside_image(left, across, count, width):
    """The result of `inside` for a stride of 1 or 2, without a division."""
    shift = across - 1
    start = min(max((-left + shift) >> shift, 0), count)
    return start, max(min(((width - 1 - left) >> shift) + 1, count), start)


def make_gathered_slivers(dtype, itemsize):
    """Return the ``slivers`` of `tracejit.kernels.gemm.packed.make_packed_product`; see the module
    docstring.
    """
    lanes = VECTOR_BYTES // itemsize

    @subroutine
    def gather(block, x, position, count, k0, k1, out):
        """Gather rows `k0` to `k1` of the columns of `count` neighbouring positions in a row."""
        height, width, row_positions = slot(block, C.HEIGHT), slot(block, C.WIDTH), slot(block, C.OUT_WIDTH)
        across, area = slot(block, C.STRIDE_ACROSS), height * width
        window_width = slot(block, C.WINDOW_WIDTH)
        window = slot(block, C.WINDOW_HEIGHT) * window_width
        top = position // row_positions * slot(block, C.STRIDE_DOWN) - slot(block, C.TOP)
        before = position % row_positions * across - slot(block, C.LEFT)
        begin, end, n = k0 // window, k1 // window, 0
        begin_rest, end_rest = k0 - begin * window, k1 - end * window
        for i in range(slot(block, C.WINDOW_HEIGHT)):
            row = top + i * slot(block, C.DILATION_DOWN)
            for j in range(window_width):
                first = begin + (n < begin_rest)
                channels = end + (n < end_rest) - first
                left = before + j * slot(block, C.DILATION_ACROSS)
                start, stop = inside_image(left, across, count, width)
                if (row < 0) | (row >= height):
                    start, stop = 0, 0
                source = (x + (first * area + row * width + left) * itemsize, area * itemsize)
                target = (out + (first * window + n - k0) * TILE_BYTES, window * TILE_BYTES)
                if across == 1:
                    copy_neighbours(source, target, (start, stop, count), channels, dtype)
                else:
                    copy_every_second(source, target, (start, stop, count), channels, dtype)
                n += 1

    @subroutine
    def slivers(right, at, extents, memory):
        (block, x, position), (j, k, _, _), (rows, nbytes, _, _) = right, at, extents
        row_positions, done, count = slot(block, C.OUT_WIDTH), 0, nbytes // itemsize
        while done < count:
            p = position + j // itemsize + done
            size = min(lanes, min(row_positions - p % row_positions, count - done))
            gather(block, x, p, size, k, k + rows, memory + done * itemsize)
            done += size
        return (memory, int64(TILE_BYTES), memory), int64(0)

    return slivers
