"""Transposition of tiles, so that an operand that lies across the loop is read along its rows.

    transpose_tile(x, first, stride, tile, width, rows, columns, further)

copies ``tile[r * width + c] = x[first + r + c * stride]``. Full blocks of 8 x 8 elements go through
registers.

Arrays larger than the last-level cache are traversed by groups of 8 x 8 tiles: each of their rows is in
another page, and a group has about as many pages as the TLB. Groups come in *shells*: one above the diagonal
comes next to its mirror image below it, and their tiles alternate, as the one reads across what the other
reads along. Rows of a tile are too short for the hardware prefetcher, so those of a later tile are
prefetched (`further`, `prefetch_run`).

    shells     0    1  2  3    4  5  6  7  8
    row        0    1  0  1    2  0  2  1  2
    column     0    0  1  1    0  2  1  2  2
"""

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from tracejit.kernels.compiler.intrinsics import convert, sqrt
from tracejit.kernels.compiler.lane import compiled
from tracejit.kernels.compiler.memory import items_in_line, vector_type
from tracejit.kernels.compiler.target import subroutine
from tracejit.kernels.streams.prefetch import prefetch_line

SIDE = 8

GROUP = 8
"""The number of tiles along a side of a group."""

GROUP_TILES = GROUP * GROUP
"""The number of tiles in a group."""


@intrinsic
def transpose_block(typingctx, source, first, stride, target, start, width):
    """``target[start + r * width + c] = source[first + r + c * stride]`` for an 8 x 8 block."""
    signature = types.void(source, types.int64, types.int64, target, types.int64, types.int64)

    def codegen(context, builder, signature, args):
        source, first, stride, target, start, width = args
        element = source.type.pointee
        row = vector_type(context, element, SIDE).as_pointer()
        alignment = context.get_abi_sizeof(element)

        def place(pointer, base, step, n):
            index = builder.add(base, builder.mul(step, ir.Constant(step.type, n)))
            return builder.bitcast(builder.gep(pointer, [index]), row)

        rows = [builder.load(place(source, first, stride, n), align=alignment) for n in range(SIDE)]
        for size in (1, 2, 4):
            rows = _exchange(builder, rows, size)
        for n, value in enumerate(rows):
            builder.store(value, place(target, start, width, n), align=alignment)
        return context.get_dummy_value()

    return signature, codegen


def _exchange(builder, rows, size):
    """Swap the two blocks off the diagonal in every 2 x 2 arrangement of blocks of `size` x `size`."""
    result = list(rows)
    for upper in range(SIDE):
        if upper & size:
            continue
        lower = upper | size
        for target, lanes in (
            (upper, [SIDE + n - size if n & size else n for n in range(SIDE)]),
            (lower, [SIDE + n if n & size else n + size for n in range(SIDE)]),
        ):
            mask = ir.Constant(ir.VectorType(ir.IntType(32), SIDE), lanes)
            result[target] = builder.shuffle_vector(rows[upper], rows[lower], mask)
    return result


@subroutine
def prefetch_run(x, first, count):
    """Prefetch `count` contiguous elements."""
    for i in range(0, count, items_in_line(x)):
        prefetch_line(x, first + i)


@subroutine
def prefetch_rows(x, first, stride, rows, count):
    """Prefetch `rows` runs of `count` elements that are `stride` apart."""
    for r in range(rows):
        prefetch_run(x, first + r * stride, count)


@subroutine
def transpose_tile(x, first, stride, tile, width, rows, columns, further):
    """Copy a tile of `rows` x `columns` elements; see the module. Meanwhile prefetch the tile that begins at
    `further`, unless that is negative.
    """
    whole_rows = rows // SIDE * SIDE
    whole_columns = columns // SIDE * SIDE
    for c in range(0, whole_columns, SIDE):
        if further >= 0:
            for k in range(c, c + SIDE):
                prefetch_run(x, further + k * stride, rows)
        for r in range(0, whole_rows, SIDE):
            transpose_block(x, first + r + c * stride, stride, tile, r * width + c, width)
    if whole_rows < rows or whole_columns < columns:
        for c in range(columns):
            done = whole_rows if c < whole_columns else 0
            for r in range(done, rows):
                tile[r * width + c] = x[first + r + c * stride]


def _root(n):
    """The integer part of the square root of an int64 below 2**52."""
    return convert(sqrt(convert(n, "float64")), "int64")


root = compiled(_root)


@subroutine
def at(row, column):
    """A place: a row and a column in one number."""
    return row << 32 | column


@subroutine
def row_of(place):
    """The row of a place."""
    return place >> 32


@subroutine
def column_of(place):
    """The column of a place."""
    return place & 0xFFFFFFFF


@subroutine
def shell_place(number):
    """The place of a number in the order of shells."""
    shell = root(number)
    step = number - shell * shell
    return at(shell, step // 2) if step % 2 == 0 else at(step // 2, shell)


@subroutine
def tile_place(tile, rows, columns):
    """The place of a tile among `rows` x `columns`. Tiles outside the square of full groups come last."""
    side = min(rows, columns) // GROUP * GROUP
    rest, below = tile - side * side, (rows - side) * columns
    if rest >= below:
        return at((rest - below) // (columns - side), side + (rest - below) % (columns - side))
    if rest >= 0:
        return at(side + rest // columns, rest % columns)
    group, number = shell_place(tile // GROUP_TILES), tile % GROUP_TILES
    low, high = min(row_of(group), column_of(group)), max(row_of(group), column_of(group))
    if low == high:
        inside = shell_place(number)
        return at(low * GROUP + row_of(inside), low * GROUP + column_of(inside))
    if row_of(group) == low:
        number += GROUP_TILES  # of both groups, whose tiles take turns
    row, column = high * GROUP + number // 2 // GROUP, low * GROUP + number // 2 % GROUP
    return at(row, column) if number % 2 == 0 else at(column, row)
