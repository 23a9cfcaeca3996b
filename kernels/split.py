"""Definitions shared by the plans of all kernels, which split work into units. Needs no Numba."""

# No `from __future__ import annotations`: a named tuple compiles every annotation that is a string.

from typing import NamedTuple


class KernelCall(NamedTuple):
    """A call of a kernel that computes a single operator.

    kernel, dtype: the kernel's key in its table.
    words:         the argument slots before the operand addresses; those follow, inputs first.
    units:         the number of units of work.
    chunk:         the number of units that a thread claims at a time.
    scratch:       the size of a thread's scratch memory in bytes.
    """

    kernel: str
    dtype: str
    words: tuple[int, ...]
    units: int
    chunk: int
    scratch: int = 0


def ceil_div(total: int, size: int) -> int:
    """Divide `total` by `size`, rounding up: the number of blocks of `size` that cover `total`.

    >>> ceil_div(10, 4), ceil_div(8, 4), ceil_div(0, 4)
    (3, 2, 0)
    """
    return -(-total // size)
