"""Splitting work into units: what all plans share. Needs no Numba."""

# No `from __future__ import annotations`: a named tuple compiles every annotation that is a string.

from typing import NamedTuple


class KernelCall(NamedTuple):
    """A call of a kernel that computes an operator by itself.

    kernel, dtype: its name in its table. words: the slots of its block before the addresses of the operands,
    which follow, inputs first. units: of the work; chunk: how many to take at once. scratch: bytes.
    """

    kernel: str
    dtype: str
    words: tuple[int, ...]
    units: int
    chunk: int
    scratch: int = 0


def ceil_div(total: int, size: int) -> int:
    """The number of pieces of `size` that cover `total`.

    >>> ceil_div(10, 4), ceil_div(8, 4), ceil_div(0, 4)
    (3, 2, 0)
    """
    return -(-total // size)
