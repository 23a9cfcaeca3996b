"""Layouts of the argument blocks of the library kernels other than ``gemm``: arrays of 8-byte slots.

The addresses of the operands come last, inputs first; `tracejit.kernels.library.plan` computes all others.
"""

from __future__ import annotations

import enum


class Copy(enum.IntEnum):
    """Slots of ``copy``: it copies BYTES bytes from SOURCE to TARGET, which do not overlap.

    A unit is UNIT_BYTES bytes.
    """

    BYTES = 0
    UNIT_BYTES = 1
    SOURCE = 2
    TARGET = 3


class Scatter(enum.IntEnum):
    """Slots of ``scatter``: for p in order ``OUT[o, INDEX[p], :] = X[o, p, :]``, in bytes.

    X has the shape (outer, COUNT, BYTES), INDEX is int64 of the shape (COUNT,) with indices in range, and OUT
    has the shape (outer, EXTENT, BYTES); all are C-contiguous. A unit is an index o. BASE is OUT.
    """

    COUNT = 0
    EXTENT = 1
    BYTES = 2
    BASE = 3
    X = 4
    INDEX = 5
    OUT = 6


class ScatterAdd(enum.IntEnum):
    """Slots of ``scatter_add``: OUT = 0, then for p in order ``OUT[o, INDEX[p], :] += X[o, p, :]``.

    X has the shape (outer, COUNT, INNER), INDEX is int64 of the shape (COUNT,) with indices in range, and OUT
    has the shape (outer, EXTENT, INNER); all are C-contiguous. A unit is (o, block of target rows, block of
    columns). Every element of OUT belongs to one unit, which adds to it in the order of INDEX, so the result
    does not depend on the split.
    """

    COUNT = 0
    INNER = 1
    EXTENT = 2
    ROWS = 3  # target rows in a block
    ROW_BLOCKS = 4
    COLUMNS = 5  # columns in a block
    COLUMN_BLOCKS = 6
    X = 7
    INDEX = 8
    OUT = 9


class Lines(enum.IntEnum):
    """Slots of ``sort`` and ``argsort`` of X (outer, COUNT, INNER) along the second dimension.

    A unit is one line. The scratch memory contains the elements of the line, from ITEMS on two arrays of
    ITEMS_BYTES of what is sorted: elements, or their positions.
    """

    COUNT = 0
    INNER = 1
    ITEMS = 2  # an offset in bytes
    ITEMS_BYTES = 3
    X = 4
    OUT = 5


class Search(enum.IntEnum):
    """Slots of ``search_sorted`` of X (BATCH, COUNT) for VALUES (BATCH, EACH). RIGHT: whether the position
    is after equal elements. A unit is one value.
    """

    BATCH = 0
    COUNT = 1
    EACH = 2
    RIGHT = 3
    X = 4
    VALUES = 5
    OUT = 6


class Pairs(enum.IntEnum):
    """Slots of functions of two operands with COUNT elements each. A unit is one pair of elements."""

    COUNT = 0
    FIRST = 1
    SECOND = 2
    OUT = 3


class TransformPasses(enum.IntEnum):
    """Slots of ``fft``, ``rfft`` and ``irfft``, which call an inner loop of NumPy's at LOOP with DATA.

    From PASS on come, for each of PASSES axes, three integers: the extents of a line before and after, and
    the number of elements between two of a line. Then follow the addresses of the operand and the result. A
    unit of a transform along one axis is one line, otherwise the whole array of LENGTH elements.
    """

    LOOP = 0
    DATA = 1
    LENGTH = 2
    GROUP = 3  # lines in single precision that are widened at a time
    PASSES = 4
    PASS = 5


class Cholesky(enum.IntEnum):
    """Slots of ``cholesky`` of matrices X of ROWS rows. A unit is one matrix."""

    ROWS = 0
    ENTRY = 1  # address of LAPACK's ``?potrf``
    X = 2
    OUT = 3


class Orthogonal(enum.IntEnum):
    """Slots of ``qr`` of matrices X of ROWS rows and COLUMNS columns.

    BASIS is the number of columns of Q, and of rows of R. A unit is one matrix. The scratch memory contains
    seven integers, then the factors of the reflections, the matrix and the workspace of LAPACK.
    """

    ROWS = 0
    COLUMNS = 1
    BASIS = 2
    FACTORIZE = 3  # address of LAPACK's ``?geqrf``
    GENERATE = 4  # address of LAPACK's ``?orgqr`` or ``?ungqr``
    TAU = 5  # an offset in bytes from the start of the scratch memory, as are the next two
    MATRIX = 6
    WORKSPACE = 7
    WORKSPACE_LENGTH = 8  # elements
    X = 9
    Q = 10
    R = 11


class Hermitian(enum.IntEnum):
    """Slots of ``eigh`` and ``eigenvalues_hermitian`` of matrices X of ROWS rows.

    A unit is one matrix. The scratch memory contains what LAPACK takes by reference, then the matrix and
    three workspaces, each at an offset in bytes and with a length in elements.
    """

    ROWS = 0
    ENTRY = 1  # address of LAPACK's ``?syevd`` or ``?heevd``
    TRIANGLE = 2  # the letter U or L
    MATRIX = 3
    WORKSPACE = 4
    WORKSPACE_LENGTH = 5
    REALS = 6  # a workspace for complex matrices only
    REALS_LENGTH = 7
    INTEGERS = 8
    INTEGERS_LENGTH = 9
    X = 10
    VALUES = 11
    VECTORS = 12  # of ``eigh``


class System(enum.IntEnum):
    """Slots of ``solve`` and ``inv``: systems of ROWS equations with COLUMNS right-hand sides.

    A unit is one system. The scratch memory contains three integers, then the pivots, the matrix and the
    right-hand sides, which the solutions overwrite. FIRST is the address of the matrices; the result is THIRD
    of ``solve`` and SECOND of ``inv``.
    """

    ROWS = 0
    COLUMNS = 1
    ENTRY = 2  # address of LAPACK's ``?gesv``
    PIVOTS = 3  # an offset in bytes from the start of the scratch memory, as are the next two
    MATRIX = 4
    RIGHT = 5
    FIRST = 6
    SECOND = 7
    THIRD = 8
