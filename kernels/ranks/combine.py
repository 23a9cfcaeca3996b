"""Sums of the slices of an array, in a balanced tree over the ranks as in `ops.communicate.combined`."""

from __future__ import annotations

from numba.types import float32, float64

from tracejit.kernels.compiler.memory import copy_bytes, pointer
from tracejit.kernels.compiler.ranges import independent
from tracejit.kernels.compiler.target import subroutine
from tracejit.kernels.compiler.words import word_function as native
from tracejit.kernels.executor.threads import get, put
from tracejit.kernels.ranks.layout import (
    BOARD_SCRATCH,
    BOARD_SEATS,
    EXCHANGE_MEMBERS,
    EXCHANGE_SEATS,
    EXCHANGE_SUM,
    SEAT_BYTES,
    SEAT_OPERAND,
    STRIP,
    SUM_FLOAT32,
)


def _adding(dtype):
    @subroutine
    def add(out, a, b, count):
        x, y, z = pointer(a, dtype), pointer(b, dtype), pointer(out, dtype)
        for i in independent(0, count):
            z[i] = x[i] + y[i]
        return 0

    return add


_add32, _add64 = _adding(float32), _adding(float64)


@native
def add(kind, out, a, b, count):
    """Store ``a[i] + b[i]`` in ``out[i]``; the arguments are addresses, and `out` may equal one of the
    operands.
    """
    if kind == SUM_FLOAT32:
        return _add32(out, a, b, count)
    return _add64(out, a, b, count)


@native
def item_bytes(exchange):
    """The size of an element in bytes."""
    return 4 if get(exchange, EXCHANGE_SUM) == SUM_FLOAT32 else 8


@native
def member_record(exchange, member):
    """The address of a member's record."""
    return exchange + EXCHANGE_SEATS + member * SEAT_BYTES


@native
def combine_strip(board, exchange, out, offset, count):
    """Sum `count` elements of all operands, from the byte `offset` on, into the elements at the address
    `out`.
    """
    kind, width = get(exchange, EXCHANGE_SUM), get(exchange, EXCHANGE_MEMBERS)
    table = get(board, BOARD_SCRATCH)
    rows = table + 8 * get(board, BOARD_SEATS)
    for member in range(width):
        put(table, 8 * member, get(member_record(exchange, member), SEAT_OPERAND) + offset)
    while width > 2:
        for pair in range(width // 2):
            row, operands = rows + pair * STRIP, table + 16 * pair
            add(kind, row, get(operands, 0), get(operands, 8), count)
            put(table, 8 * pair, row)
        if width % 2 != 0:
            put(table, 8 * (width // 2), get(table, 8 * (width - 1)))
        width = (width + 1) // 2
    return add(kind, out, get(table, 0), get(table, 8), count)


@native
def combine(board, exchange, out, copy, count):
    """Sum the operands into the elements at `out`, and copy each strip of the result to `copy` unless it is
    0.
    """
    item = item_bytes(exchange)
    for start in range(0, count * item, STRIP):
        nbytes = min(STRIP, count * item - start)
        combine_strip(board, exchange, out + start, start, nbytes // item)
        if copy != 0:
            copy_bytes(copy + start, out + start, nbytes)
