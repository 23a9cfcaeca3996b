"""Packed products of panels: parts of the operands are copied so that tiles find them in the caches.

A panel of C is computed in blocks of rows and pieces of the depth. For each of these, B is taken one *sliver*
after the other, as wide as a tile. The first tile that uses it copies it, so that its rows follow one
another, and it stays in the first cache while the tiles below use it. The block of A stays in the second
cache (Goto, van de Geijn: Anatomy of High-Performance Matrix Multiplication, ACM TOMS 34, 2008, with the
parts of the operands exchanged). Each tile prefetches a few rows of the next sliver.

    for i, k: a block of A, read where it lies, or copied
        for each product, j: a sliver of B
            for each tile: C[i, j] += A[i, k] @ B[k, j]

Each element of C is a chain of fused multiply-adds in the order of `k`, cut into pieces of about equal
length (whole squares of what is transposed), whatever tile or panel it lies in. So the result does not depend
on how C is split.
"""

from numba import uint8

from tracejit.kernels.compiler.memory import LINE, copy_bytes, pointer
from tracejit.kernels.compiler.target import subroutine
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


@subroutine
def part_of(extent, most, step):
    """The length of parts of about equal length, at most `most`: a multiple of `step`."""
    parts = (extent + most - 1) // most
    return ((extent + parts - 1) // parts + step - 1) // step * step


@subroutine
def sliver_width(rest):
    """The width of the next sliver, if so many bytes of a row are left. A tile of a single vector waits for
    its own sums and for A: five vectors are three and two.
    """
    if TILE_BYTES < rest <= TILE_BYTES + VECTOR_BYTES:
        return TILE_BYTES - VECTOR_BYTES
    return min(rest, TILE_BYTES)


def make_slivers(dtype, itemsize):
    """Make ``slivers(right, at, extents, memory)``: a sliver of an array, and the address to prefetch,
    as `make_tiles` takes them.

    right: address, strides down and across
    at: byte of a row, row, first row of the block of A, distance of the matrix from the first one
    extents: rows, bytes of a row; bytes of a whole row of B, row after the last of the block
    memory: address of room for a copy
    """
    copy_sliver = make_sliver_copy(dtype, itemsize)

    @subroutine
    def slivers(right, at, extents, memory):
        (b, b_down, b_across), (j, k, s, further), (some, wide, width, last) = right, at, extents
        b += further
        begin = b + k * b_down + j // itemsize * b_across
        if b_across != itemsize:
            copy_sliver(memory, begin, b_across, wide // itemsize, some)
            return (memory, TILE_BYTES, memory), 0
        ahead = 0
        if k + some < last:
            ahead = begin + some * b_down
        elif j + wide < width:
            ahead = b + s * b_down + j + wide
        return (begin, b_down, memory), ahead

    return slivers


def make_packed_product(dtype, itemsize, slivers=None):
    """Make ``packed(left, right, target, extents, add, copied, memory, batch)``, which computes a panel of
    one product, or of several that share A.

    left, right: address of the operand, strides down and across; `slivers` may take another `right`
    target: address of the panel, stride down
    extents: rows, bytes of a row, depth
    add: whether to add to C
    copied: whether blocks of A are copied, too
    memory: address of room for the copies, see `tracejit.kernels.gemm.plan.packing`
    batch: the number of products, the distances of their right operands and of their panels; see `ONE`

    Strides and distances are bytes. A block of A serves all products before the next one is copied.
    """
    slivers, tiles = slivers or make_slivers(dtype, itemsize), make_tiles(dtype, itemsize)

    @subroutine
    def packed(left, right, target, extents, add, copied, memory, batch):
        (a, a_down, a_across), (c, c_down), (products, b_apart, c_apart) = left, target, batch
        rows, width, depth = extents
        height, step = part_of(rows, BLOCK_ROWS, TILE_ROWS), part_of(depth, DEPTH, SQUARE)
        span, room = step * (SPAN_BYTES // (DEPTH * itemsize)), memory + step * TILE_BYTES
        for i in range(0, rows, height):
            count = min(height, rows - i)
            for s in range(0, depth, span):
                last, start = min(s + span, depth), a + i * a_down + s * a_across
                down, across = a_down, a_across
                if copied & (a_across == itemsize):
                    down = copy_lines(room, start, a_down, count, (last - s) * itemsize)
                elif copied:
                    across = copy_lines(room, start, a_across, last - s, count * itemsize)
                if copied:
                    start = room
                for n in range(products):
                    j, top = 0, c + n * c_apart + i * c_down
                    while j < width:
                        wide = sliver_width(width - j)
                        for k in range(s, last, step):
                            some = min(step, last - k)
                            at, whole = (j, k, s, n * b_apart), (some, wide, width, last)
                            (b, b_down, copy), ahead = slivers(right, at, whole, memory)
                            tiles(
                                (start + (k - s) * across, down, across),
                                (b, b_down, copy),
                                (ahead, b_down),
                                (top + j, c_down),
                                (count, some, wide),
                                (add | (k > 0), k == s),
                            )
                        j += wide

    return packed


@subroutine
def prefetch_sliver(sliver, first, last):
    """Prefetch some rows of a sliver, or of a tile of C."""
    start, down = sliver
    if start != 0:
        for k in range(first, last):
            row = pointer(start + k * down, uint8)
            for offset in range(0, TILE_BYTES, LINE):
                prefetch_line(row, offset)


def make_tiles(dtype, itemsize):
    """Make ``tiles(block, sliver, ahead, target, extents, state)``: the tiles below each other for one
    sliver.

    block: address in A, strides down and across
    sliver: address in B, stride down, and where the first of several tiles copies it to, if it has full width
        and is not there already
    ahead: address of the sliver to prefetch (0: none), stride down
    target: address in C, stride down
    extents: rows, depth, bytes of a row
    state: whether to add to C, and whether to prefetch C
    """

    @subroutine
    def tiles(block, sliver, ahead, target, extents, state):
        (a, a_down, a_across), (b, b_down, copy) = block, sliver
        (c, c_down), (rows, depth, width), (add, prefetches) = target, extents, state
        count, first = (rows + TILE_ROWS - 1) // TILE_ROWS, 0
        tile_down, below = TILE_ROWS * a_down, TILE_ROWS * c_down
        if width != TILE_BYTES:
            for i in range(count):
                left, some = (
                    (a + i * tile_down, a_down, a_across),
                    (rows - i * TILE_ROWS, depth, width // itemsize),
                )
                narrow_tile(left, (b, b_down, 0), (c + i * below, c_down), some, add, dtype)
            return
        if (count > 1) & (b != copy):
            tile_and_copy(block, sliver, target, extents, add, dtype)
            b, b_down, first = copy, TILE_BYTES, 1
        share = (depth + count - 1) // count
        for i in range(first, count):
            prefetch_sliver(ahead, i * share, min((i + 1) * share, depth))
            if prefetches:
                prefetch_sliver((c + (i + 1) * below, c_down), 0, min(TILE_ROWS, rows - (i + 1) * TILE_ROWS))
            left, some = (a + i * tile_down, a_down, a_across), (rows - i * TILE_ROWS, depth, 0)
            tile(left, (b, b_down, 0), (c + i * below, c_down), some, add, dtype)

    return tiles


@subroutine
def copy_lines(target, source, stride, lines, length):
    """Copy a block of A line by line; returns the distance of the copied lines in bytes."""
    apart = length + PADDING
    for line in range(lines):
        copy_bytes(target + line * apart, source + line * stride, length)
    return apart


def make_sliver_copy(dtype, itemsize):
    """Make ``copy_sliver(target, b, across, columns, depth)``: copy columns of B, each contiguous, `across`
    bytes from the next, side by side. Full squares go through registers.
    """
    down = TILE_BYTES // itemsize

    @subroutine
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
