"""Transposition of tiles, so that an operand that is not contiguous along the loop is read by its rows.

    transpose_tile(x, first, stride, tile, width, rows, columns, next_first)

copies ``tile[r * width + c] = x[first + r + c * stride]``. Full blocks of 8 x 8 elements are transposed in
registers.

Arrays larger than the last-level cache are traversed by groups of 8 x 8 tiles: every row of such an array is
in a page of its own, and a group touches about as many pages as the TLB holds. Groups are ordered in
*shells*: a group above the diagonal is next to its mirror image below it, and the tiles of the two alternate,
because one reads by columns the elements that the other reads by rows. Rows of a tile are too short for the
hardware prefetcher, so the rows of a later tile are prefetched (`next_first`).

    shells     0    1  2  3    4  5  6  7  8
    row        0    1  0  1    2  0  2  1  2
    column     0    0  1  1    0  2  1  2  2
"""

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from tracejit.kernels.compiler.intrinsics import convert, sqrt
from tracejit.kernels.compiler.memory import items_in_line, vector_type
from tracejit.kernels.compiler.target import subroutine
from tracejit.kernels.compiler.typed_values import compiled
from tracejit.kernels.streams.prefetch import prefetch_line

SIDE = 8
"""The number of rows and of columns of a block that is transposed in registers."""

GROUP = 8
"""The number of tiles along each side of a group."""

GROUP_TILES = GROUP * GROUP
"""The number of tiles in a group."""


@intrinsic
def transpose_block(typingctx, source, first, stride, target, start, width):
    """Transpose an 8 x 8 block: ``target[start + r * width + c] = source[first + r + c * stride]``."""
    signature = types.void(source, types.int64, types.int64, target, types.int64, types.int64)

    def codegen(context, builder, signature, args):
        source, first, stride, target, start, width = args
        element = source.type.pointee
        row = vector_type(context, element, SIDE).as_pointer()
        alignment = context.get_abi_sizeof(element)

        def row_pointer(pointer, base, step, n):
            index = builder.add(base, builder.mul(step, ir.Constant(step.type, n)))
            return builder.bitcast(builder.gep(pointer, [index]), row)

        rows = [builder.load(row_pointer(source, first, stride, n), align=alignment) for n in range(SIDE)]
        for size in (1, 2, 4):
            rows = _exchange(builder, rows, size)
        for n, value in enumerate(rows):
            builder.store(value, row_pointer(target, start, width, n), align=alignment)
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
    """Prefetch `rows` runs of `count` contiguous elements; the runs are `stride` elements apart."""
    for r in range(rows):
        prefetch_run(x, first + r * stride, count)


@subroutine
def transpose_tile(x, first, stride, tile, width, rows, columns, next_first):
    """Copy a tile of `rows` x `columns` elements: ``tile[r * width + c] = x[first + r + c * stride]``.

    Meanwhile prefetch the tile that begins at index `next_first` of `x`, unless `next_first` is negative.
    """
    full_rows = rows // SIDE * SIDE
    full_columns = columns // SIDE * SIDE
    for c in range(0, full_columns, SIDE):
        if next_first >= 0:
            for k in range(c, c + SIDE):
                prefetch_run(x, next_first + k * stride, rows)
        for r in range(0, full_rows, SIDE):
            transpose_block(x, first + r + c * stride, stride, tile, r * width + c, width)
    if full_rows < rows or full_columns < columns:
        for c in range(columns):
            done = full_rows if c < full_columns else 0
            for r in range(done, rows):
                tile[r * width + c] = x[first + r + c * stride]


def _integer_sqrt(n):
    """The integer part of the square root of an int64 below 2**52."""
    return convert(sqrt(convert(n, "float64")), "int64")


integer_sqrt = compiled(_integer_sqrt)


@subroutine
def pack_position(row, column):
    """Pack a row and a column into one int64, a *position*."""
    return row << 32 | column


@subroutine
def row_of(position):
    """The row of a position."""
    return position >> 32


@subroutine
def column_of(position):
    """The column of a position."""
    return position & 0xFFFFFFFF


@subroutine
def shell_position(number):
    """The position of element `number` in the order of shells."""
    shell = integer_sqrt(number)
    step = number - shell * shell
    return pack_position(shell, step // 2) if step % 2 == 0 else pack_position(step // 2, shell)


@subroutine
def tile_position(tile, rows, columns):
    """The position of tile number `tile` among `rows` x `columns` tiles.

    Tiles outside the square of full groups come last.
    """
    side = min(rows, columns) // GROUP * GROUP
    beyond, n_below = tile - side * side, (rows - side) * columns
    if beyond >= n_below:
        return pack_position(
            (beyond - n_below) // (columns - side), side + (beyond - n_below) % (columns - side)
        )
    if beyond >= 0:
        return pack_position(side + beyond // columns, beyond % columns)
    group, number = shell_position(tile // GROUP_TILES), tile % GROUP_TILES
    low, high = min(row_of(group), column_of(group)), max(row_of(group), column_of(group))
    if low == high:
        inside = shell_position(number)
        return pack_position(low * GROUP + row_of(inside), low * GROUP + column_of(inside))
    if row_of(group) == low:
        number += GROUP_TILES  # the number among the tiles of both groups, which alternate
    row, column = high * GROUP + number // 2 // GROUP, low * GROUP + number // 2 % GROUP
    return pack_position(row, column) if number % 2 == 0 else pack_position(column, row)
