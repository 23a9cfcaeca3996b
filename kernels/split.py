"""Splitting work into units: arithmetic that all plans share. Needs no Numba."""

from __future__ import annotations


def ceil_div(total: int, size: int) -> int:
    """The number of pieces of `size` that cover `total`.

    >>> ceil_div(10, 4), ceil_div(8, 4), ceil_div(0, 4)
    (3, 2, 0)
    """
    return -(-total // size)
