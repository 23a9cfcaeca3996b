"""Columns of images in slivers, gathered right where a product reads them.

    packed = make_packed_product(dtype, itemsize, make_gathered_slivers(dtype, itemsize))
    packed(weights, (block, x, place), target, ...)       # columns of the image x from the place on

The right operand of a convolution's product has a column for each place and a row for each element of the
window in each channel. A sliver is as many neighbouring places as a tile is wide; it is put together from
*chunks*: some places of one row, at most a vector of them. What a chunk sees in one channel, it sees in all,
a plane further; so addresses and masks are worked out once for each chunk and element of the window, and a
loop over channels is a few instructions. Places beyond the image are zeros by the mask.

Rows of some length are worth that (`are_gathered`); other columns are gathered as whole panels.
"""

from numba import int64

from tracejit.kernels.compiler.memory import slot
from tracejit.kernels.compiler.target import subroutine
from tracejit.kernels.gemm.plan import TILE_BYTES, VECTOR_BYTES
from tracejit.kernels.images.vectors import copy_every_second, copy_neighbours
from tracejit.kernels.images.window_blocks import Convolution as C

LEAST_CHANNELS = 3
"""Channels below which masks and addresses take longer than what they save (one: 1.3 of the time)."""

LEAST_PLACES = 14
"""Places in a row below which too many lanes of a chunk are idle (7: 1.15 of the time)."""


@subroutine
def are_gathered(block):
    """Whether slivers are worth it; see the module."""
    strides = slot(block, C.STRIDE_ACROSS) <= 2
    return strides & (slot(block, C.CHANNELS) >= LEAST_CHANNELS) & (slot(block, C.OUT_WIDTH) >= LEAST_PLACES)


@subroutine
def seen_of(left, across, count, width):
    """`inside` for a stride of 1 or 2, without a division."""
    more = across - 1
    start = min(max((-left + more) >> more, 0), count)
    return start, max(min(((width - 1 - left) >> more) + 1, count), start)


def make_gathered_slivers(dtype, itemsize):
    """Make the ``slivers`` of `tracejit.kernels.gemm.packed.make_packed_product`; see the module."""
    lanes = VECTOR_BYTES // itemsize

    @subroutine
    def gather(block, x, place, count, k0, k1, out):
        """Rows `k0` to `k1` of the columns of some places of a row."""
        height, width, places = slot(block, C.HEIGHT), slot(block, C.WIDTH), slot(block, C.OUT_WIDTH)
        across, area = slot(block, C.STRIDE_ACROSS), height * width
        window_width = slot(block, C.WINDOW_WIDTH)
        window = slot(block, C.WINDOW_HEIGHT) * window_width
        top = place // places * slot(block, C.STRIDE_DOWN) - slot(block, C.TOP)
        before = place % places * across - slot(block, C.LEFT)
        begin, end, n = k0 // window, k1 // window, 0
        begin_rest, end_rest = k0 - begin * window, k1 - end * window
        for i in range(slot(block, C.WINDOW_HEIGHT)):
            row = top + i * slot(block, C.DILATION_DOWN)
            for j in range(window_width):
                first = begin + (n < begin_rest)
                channels = end + (n < end_rest) - first
                left = before + j * slot(block, C.DILATION_ACROSS)
                start, stop = seen_of(left, across, count, width)
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
        (block, x, place), (j, k, _, _), (some, wide, _, _) = right, at, extents
        places, done, count = slot(block, C.OUT_WIDTH), 0, wide // itemsize
        while done < count:
            p = place + j // itemsize + done
            size = min(lanes, min(places - p % places, count - done))
            gather(block, x, p, size, k, k + some, memory + done * itemsize)
            done += size
        return (memory, int64(TILE_BYTES), memory), int64(0)

    return slivers
