"""The slots of the argument blocks of the library kernels other than ``gemm``: rows of 8 bytes each.

The addresses of the operands come last, inputs first; `tracejit.kernels.library.plan` fills in the rest.
"""

from __future__ import annotations

import enum


class Copy(enum.IntEnum):
    """Slots of ``copy``: BYTES bytes from SOURCE to TARGET, which do not overlap; unit = UNIT_BYTES."""

    BYTES = 0
    UNIT_BYTES = 1
    SOURCE = 2
    TARGET = 3


class ScatterAdd(enum.IntEnum):
    """Slots of ``scatter_add``: OUT = 0, then for p in order ``OUT[o, INDEX[p], :] += X[o, p, :]``.

    X is (outer, COUNT, INNER), INDEX is int64 (COUNT,) and in range, OUT is (outer, EXTENT, INNER), all
    C-contiguous. Unit = (o, part of the target rows, part of the columns). Every element of OUT belongs to
    one unit and takes its additions in the order of INDEX, so the split does not show in the result.
    """

    COUNT = 0
    INNER = 1
    EXTENT = 2
    ROWS = 3  # target rows in a part
    ROW_PARTS = 4
    COLUMNS = 5  # columns in a part
    COLUMN_PARTS = 6
    X = 7
    INDEX = 8
    OUT = 9


class System(enum.IntEnum):
    """Slots of ``solve`` and ``inv``: systems of ROWS equations with COLUMNS right sides; unit = a system.

    In scratch memory lie three numbers, then the pivots, the matrix and the right sides, which the solutions
    take the place of. FIRST is the matrices; the result is THIRD, or SECOND of ``inv``.
    """

    ROWS = 0
    COLUMNS = 1
    ENTRY = 2  # address of LAPACK's ``?gesv``
    PIVOTS = 3  # bytes from the start of the scratch memory
    MATRIX = 4
    RIGHT = 5
    FIRST = 6
    SECOND = 7
    THIRD = 8
