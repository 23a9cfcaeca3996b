"""The kernels of small linear systems: ``solve`` and ``inv``, by LAPACK's ``gesv`` on one thread.

LAPACK reads matrices column by column, and overwrites them: so a unit, one system, is copied to the scratch
memory of its thread and turned on the way, as NumPy does. What LAPACK calls by reference lies in front of
the copies, whose places follow from the extents (`tracejit.kernels.library.plan.system_call`).
"""

from __future__ import annotations

from numba import int32, int64

from tracejit.kernels.compiler.memory import call_c, load, pointer, slot, store
from tracejit.kernels.compiler.target import subroutine
from tracejit.kernels.library.blocks import System

ONES = {"float32": 0x3F800000, "float64": 0x3FF0000000000000}
"""The bits of 1, by dtype; those of a complex number begin with its real part."""


def make_system(dtype: str, itemsize: int, *, inverts: bool):
    """Make ``solve``, or ``inv``: the same with the unit matrix on the right side. The status is 1 plus the
    number of the first singular matrix.
    """
    word, size = (int32, 4) if itemsize == 4 else (int64, 8)
    words = itemsize // size
    one = ONES[{"complex64": "float32", "complex128": "float64"}.get(dtype, dtype)]
    result = System.SECOND if inverts else System.THIRD

    @subroutine
    def turn(target, source, rows, columns):
        """Copy a matrix, and turn it."""
        to, of = pointer(target, word), pointer(source, word)
        for i in range(rows):
            for j in range(columns):
                for w in range(words):
                    to[(j * rows + i) * words + w] = of[(i * columns + j) * words + w]

    @subroutine
    def put_unit_matrix(target, n):
        to = pointer(target, word)
        for i in range(n * n * words):
            to[i] = word(0)
        for i in range(n):
            to[(n + 1) * i * words] = word(one)

    def system(block, lo, hi, scratch):
        n, m = slot(block, System.ROWS), slot(block, System.COLUMNS)
        rows, columns, info = scratch, scratch + 4, scratch + 8
        pivots, a, b = (
            scratch + slot(block, System.PIVOTS),
            scratch + slot(block, System.MATRIX),
            scratch + slot(block, System.RIGHT),
        )
        for unit in range(lo, hi):
            store(rows, int32(n))
            store(columns, int32(m))
            turn(a, slot(block, System.FIRST) + unit * n * n * itemsize, n, n)
            if inverts:
                put_unit_matrix(b, n)
            else:
                turn(b, slot(block, System.SECOND) + unit * n * m * itemsize, n, m)
            call_c(slot(block, System.ENTRY), (rows, columns, a, rows, pivots, b, rows, info))
            if load(info, int32) != 0:
                return unit + 1
            turn(slot(block, result) + unit * n * m * itemsize, b, m, n)
        return int64(0)

    return system
