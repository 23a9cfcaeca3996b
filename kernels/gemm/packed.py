"""Packed products of panels: blocks of the operands are copied so that tiles read them from the caches.

A panel of C is computed in blocks of rows and blocks of the depth. For each of these, B is processed one
*sliver* after another, each as wide as a tile. The first tile that uses a sliver copies it, so that its rows
are contiguous, and it stays in the L1 cache while the tiles below use it. The block of A stays in the L2
cache (Goto, van de Geijn: Anatomy of High-Performance Matrix Multiplication, ACM TOMS 34, 2008, with the
roles of the operands exchanged). Each tile prefetches a few rows of the next sliver.

    for i, k: a block of A, read in place, or copied
        for each product, j: a sliver of B
            for each tile: C[i, j] += A[i, k] @ B[k, j]

Each element of C is a chain of fused multiply-adds in the order of `k`, cut into segments of about equal
length (a multiple of the square that is transposed), in whichever tile or panel it is computed. So the result
does not depend on the split of C.
"""

from numba import int64, uint8

from tracejit.kernels.compiler.memory import LINE, copy_bytes, pointer
from tracejit.kernels.compiler.target import noinline_subroutine, subroutine
from tracejit.kernels.compiler.words import word_function
from tracejit.kernels.gemm.plan import (
    BLOCK_ROWS,
    DEPTH,
    PADDING,
    SPAN_BYTES,
    SQUARE,
    TILE_BYTES,
    TILE_ROWS,
    VECTOR_BYTES,
)
from tracejit.kernels.gemm.tiles import narrow_tile, tile, tile_and_copy
from tracejit.kernels.streams.prefetch import prefetch_line
from tracejit.kernels.streams.transpose import SIDE, transpose_block

ONE = (1, 0, 0)
"""The batch of a single product."""


@word_function
def block_size(extent, most, step):
    """The size of blocks of about equal size, at most `most`: a multiple of `step`."""
    blocks = (extent + most - 1) // most
    return ((extent + blocks - 1) // blocks + step - 1) // step * step


@subroutine
def sliver_width(rest):
    """The width of the next sliver, if `rest` bytes of a row remain. A tile with a single vector per row is
    bound by the latency of its own sums and of A, so five vectors are split into three and two.
    """
    if TILE_BYTES < rest <= TILE_BYTES + VECTOR_BYTES:
        return TILE_BYTES - VECTOR_BYTES
    return min(rest, TILE_BYTES)


def make_slivers(dtype, itemsize):
    """Return ``slivers(right, at, extents, memory)``, which computes the sliver of an array and the address
    to prefetch, as `make_tiles` expects them.

    right: address, stride between rows and between columns
    at: byte within a row, row, first row of the block of A, distance of the matrix from the first one
    extents: rows, bytes of a row; bytes of an entire row of B, row after the last one of the block
    memory: address of scratch memory for a copy
    """
    copy_sliver = make_sliver_copy(dtype, itemsize)

    @subroutine
    def slivers(right, at, extents, memory):
        (b, b_down, b_across), (j, k, s, distance), (rows, row_bytes, width, last) = right, at, extents
        b += distance
        begin = b + k * b_down + j // itemsize * b_across
        if b_across != itemsize:
            copy_sliver(memory, begin, b_across, row_bytes // itemsize, rows)
            return (memory, TILE_BYTES, memory), 0
        ahead = 0
        if k + rows < last:
            ahead = begin + rows * b_down
        elif j + row_bytes < width:
            ahead = b + s * b_down + j + row_bytes
        return (begin, b_down, memory), ahead

    return slivers


def make_packed_product(dtype, itemsize, slivers=None):
    """Return ``packed(left, right, target, extents, add, copied, memory, batch)``, which computes a panel of
    one product, or of several products that share A.

    left, right: address of the operand, stride between rows and between columns; a custom `slivers` may
    define
        `right` differently
    target: address of the panel, stride between rows
    extents: rows, bytes of a row, depth
    add: whether to add to C
    copied: whether blocks of A are copied as well
    memory: address of scratch memory for the copies, see `tracejit.kernels.gemm.plan.packing`
    batch: the number of products, the distances of their right operands and of their panels; see `ONE`

    Strides and distances are in bytes. A block of A serves all products before the next one is copied.
    """
    slivers, tiles = slivers or make_slivers(dtype, itemsize), make_tiles(dtype, itemsize)

    @noinline_subroutine
    def packed(left, right, target, extents, add, copied, memory, batch):
        (a, a_down, a_across), (c, c_down), (products, b_step, c_step) = left, target, batch
        rows, width, depth = extents
        height, step = block_size(rows, BLOCK_ROWS, TILE_ROWS), block_size(depth, DEPTH, SQUARE)
        span, block_memory = step * (SPAN_BYTES // (DEPTH * itemsize)), memory + step * TILE_BYTES
        for i in range(0, rows, height):
            count = min(height, rows - i)
            for s in range(0, depth, span):
                last, start = min(s + span, depth), a + i * a_down + s * a_across
                down, across = a_down, a_across
                if copied & (a_across == itemsize):
                    down = copy_lines(block_memory, start, a_down, count, (last - s) * itemsize)
                elif copied:
                    across = copy_lines(block_memory, start, a_across, last - s, count * itemsize)
                if copied:
                    start = block_memory
                for n in range(products):
                    j, top = int64(0), c + n * c_step + i * c_down  # a literal 0 has a type of its own
                    while j < width:
                        sliver_bytes = sliver_width(width - j)
                        for k in range(s, last, step):
                            block_depth = min(step, last - k)
                            position, sliver_extents = (
                                (j, k, s, n * b_step),
                                (block_depth, sliver_bytes, width, last),
                            )
                            (b, b_down, copy), ahead = slivers(right, position, sliver_extents, memory)
                            tiles(
                                (start + (k - s) * across, down, across),
                                (b, b_down, copy),
                                (ahead, b_down),
                                (top + j, c_down),
                                (count, block_depth, sliver_bytes),
                                (add | (k > 0), k == s),
                            )
                        j += sliver_bytes

    return packed


@subroutine
def prefetch_sliver(sliver, first, last):
    """Prefetch rows `first` to `last` of a sliver, or of a tile of C."""
    start, down = sliver
    if start != 0:
        for k in range(first, last):
            row = pointer(start + k * down, uint8)
            for offset in range(0, TILE_BYTES, LINE):
                prefetch_line(row, offset)


def make_tiles(dtype, itemsize):
    """Return ``tiles(block, sliver, ahead, target, extents, state)``, which computes the column of tiles for
    one sliver.

    block: address in A, stride between rows and between columns
    sliver: address in B, stride between rows, and the address to which the first of several tiles copies it,
    if
        it has the full width and is not stored there already
    ahead: address of the sliver to prefetch (0: none), stride between rows
    target: address in C, stride between rows
    extents: rows, depth, bytes of a row
    state: whether to add to C, and whether to prefetch C
    """

    @subroutine
    def tiles(block, sliver, ahead, target, extents, state):
        (a, a_down, a_across), (b, b_down, copy) = block, sliver
        (c, c_down), (rows, depth, width), (add, prefetches) = target, extents, state
        count, first = (rows + TILE_ROWS - 1) // TILE_ROWS, 0
        tile_down, target_down = TILE_ROWS * a_down, TILE_ROWS * c_down
        if width != TILE_BYTES:
            for i in range(count):
                left, tile_extents = (
                    (a + i * tile_down, a_down, a_across),
                    (rows - i * TILE_ROWS, depth, width // itemsize),
                )
                narrow_tile(left, (b, b_down, 0), (c + i * target_down, c_down), tile_extents, add, dtype)
            return
        if (count > 1) & (b != copy):
            tile_and_copy(block, sliver, target, extents, add, dtype)
            b, b_down, first = copy, TILE_BYTES, 1
        share = (depth + count - 1) // count
        for i in range(first, count):
            prefetch_sliver(ahead, i * share, min((i + 1) * share, depth))
            if prefetches:
                prefetch_sliver(
                    (c + (i + 1) * target_down, c_down), 0, min(TILE_ROWS, rows - (i + 1) * TILE_ROWS)
                )
            left, tile_extents = (a + i * tile_down, a_down, a_across), (rows - i * TILE_ROWS, depth, 0)
            tile(left, (b, b_down, 0), (c + i * target_down, c_down), tile_extents, add, dtype)

    return tiles


@subroutine
def copy_lines(target, source, stride, lines, length):
    """Copy a block of A line by line. Returns the distance of the copied lines in bytes."""
    distance = length + PADDING
    for line in range(lines):
        copy_bytes(target + line * distance, source + line * stride, length)
    return distance


def make_sliver_copy(dtype, itemsize):
    """Return ``copy_sliver(target, b, across, columns, depth)``, which packs columns of B, each contiguous
    and `across` bytes from the next. Full squares are transposed in registers.
    """
    down = TILE_BYTES // itemsize

    @noinline_subroutine
    def copy_sliver(target, b, across, columns, depth):
        out, x, stride, blocked = pointer(target, dtype), pointer(b, dtype), across // itemsize, 0
        for j in range(0, columns, SIDE):
            blocked = depth - depth % SIDE if columns - j >= SIDE else 0
            for k in range(0, blocked, SIDE):
                transpose_block(x, j * stride + k, stride, out, k * down + j, down)
            for q in range(j, min(j + SIDE, columns)):
                for k in range(blocked, depth):
                    out[k * down + q] = x[k + q * stride]

    return copy_sliver
