"""The calls of kernels for GPUs that no fused group makes: their blocks and launches. Needs no Numba.

A call is made of shapes alone. Its words come first in the kernel's block, then the addresses of the
operands, inputs first, then the number of units. `tracejit.kernels.gpu.table` has the kernels.

    max_pool, search_sorted, ...    a thread has one element of the result after the other
    scatter_add                     a thread has some rows of a column, and reads the whole index
    sort, argsort                   a block of threads has a line
    conv2d_weight_gradient          a block of threads has an element of the result
    solve, cholesky, ...            a block of threads has a matrix
    fft, rfft, irfft                a block of threads has a line

How work is shared out depends on shapes only, and every element of a result is computed by one thread, or
added up in a fixed tree: the same bits in every run.

>>> shapes, attrs = [(2, 5, 3), (2, 5, 3)], {"axis": 1}
>>> gpu_call("sort", shapes, attrs, "float32")
GpuCall(kernel='sort', dtype='float32', words=(2, 5, 3), units=6, blocks=6, threads=32, shared=0, scratch=0)
"""

# No `from __future__ import annotations`: a named tuple compiles every annotation that is a string.

import enum
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from tracejit.kernels.images.windows import WINDOWS, pool_call
from tracejit.kernels.library.plan import SIZES
from tracejit.kernels.split import ceil_div

THREADS = 256
"""Threads in a block of a kernel whose threads do not work together."""

WARP = 32

WANTED = 1 << 16
"""Threads that keep any GPU busy."""

BLOCKS = 1 << 14
"""Most blocks of a launch: each then takes several units."""

MOST_SCRATCH = 1 << 28
"""Bytes of scratch memory of all blocks of a launch that are not exceeded to have more blocks."""

MOST_SHARED = 48 << 10
"""Bytes of shared memory that a block of every GPU may have."""

LINES = 1 << 11
"""Most blocks of a Fourier transform: each computes roots of unity before its first line."""

Shape = Sequence[int]


class GpuCall(NamedTuple):
    """A kernel of the table, the words of its block before the operands' addresses, the units that
    threads or blocks share, and its launch: blocks and threads along x, bytes of shared memory of a block.
    A kernel that has bytes of `scratch`, in the GPU's memory, for each block finds their address, and that of
    the word for failures, behind the number of units.
    """

    kernel: str
    dtype: str
    words: tuple[int, ...]
    units: int
    blocks: int
    threads: int
    shared: int = 0
    scratch: int = 0


class Windows(enum.IntEnum):
    """Slots of the three convolutions. FIRST, SECOND, THIRD are x, w, y of ``conv2d``; y, w, x of
    ``conv2d_input_gradient``; x, y, w of ``conv2d_weight_gradient``. Channels and filters: of one group.
    """

    IMAGES = 0
    GROUPS = 1
    CHANNELS = 2
    FILTERS = 3
    HEIGHT = 4
    WIDTH = 5
    WINDOW_HEIGHT = 6
    WINDOW_WIDTH = 7
    STRIDE_DOWN = 8
    STRIDE_ACROSS = 9
    TOP = 10  # padding
    LEFT = 11
    DILATION_DOWN = 12
    DILATION_ACROSS = 13
    OUT_HEIGHT = 14
    OUT_WIDTH = 15
    FIRST = 16
    SECOND = 17
    THIRD = 18


class Lines(enum.IntEnum):
    """Slots of ``sort`` and ``argsort`` of X (OUTER, COUNT, INNER) along the second dimension."""

    OUTER = 0
    COUNT = 1
    INNER = 2
    X = 3
    OUT = 4


class Search(enum.IntEnum):
    """Slots of ``search_sorted``: BATCH rows X (BATCH, COUNT), VALUES (BATCH, EACH); RIGHT: of equal ones."""

    BATCH = 0
    COUNT = 1
    EACH = 2
    RIGHT = 3
    X = 4
    VALUES = 5
    OUT = 6


class Pairs(enum.IntEnum):
    """Slots of functions of two elements, of which there are COUNT."""

    COUNT = 0
    FIRST = 1
    SECOND = 2
    OUT = 3


class GpuSystem(enum.IntEnum):
    """Slots of ``solve`` and ``inv``: systems of ROWS equations with COLUMNS right sides. FIRST is the
    matrices; the result is THIRD, or SECOND of ``inv``.
    """

    ROWS = 0
    COLUMNS = 1
    FIRST = 2
    SECOND = 3
    THIRD = 4


class Factor(enum.IntEnum):
    """Slots of functions of matrices X of ROWS and COLUMNS, with one or two results."""

    ROWS = 0
    COLUMNS = 1
    X = 2
    FIRST = 3
    SECOND = 4


class Decomposition(enum.IntEnum):
    """Slots of decompositions of matrices X of ROWS and COLUMNS, with one to three results. OPTION: whether
    all columns of square factors are wanted, or the upper triangle is read; SPACE: bytes of scratch, of a
    block.
    """

    ROWS = 0
    COLUMNS = 1
    OPTION = 2
    SPACE = 3
    X = 4
    FIRST = 5
    SECOND = 6
    THIRD = 7


class Transform(enum.IntEnum):
    """Slots of Fourier transforms of COUNT elements along the second dimension of X (outer, TAKEN, INNER);
    SIGN: of the exponent; the result is (outer, MADE, INNER).
    """

    COUNT = 0
    INNER = 1
    TAKEN = 2
    MADE = 3
    SIGN = 4
    X = 5
    OUT = 6


def each(kernel: str, dtype: str, words: tuple[int, ...], count: int) -> GpuCall:
    """A call in which a thread has one of `count` elements after the other."""
    return GpuCall(kernel, dtype, words, count, max(1, min(BLOCKS, ceil_div(count, THREADS))), THREADS)


def together(kernel: str, dtype: str, words: tuple[int, ...], count: int, busy: int) -> GpuCall:
    """A call in which a block of threads, of which about `busy` have something to do, has one of `count`
    units after the other.
    """
    threads = WARP
    while threads < min(THREADS, busy):
        threads *= 2
    return GpuCall(kernel, dtype, words, count, max(1, min(BLOCKS, count)), threads)


def scatter_call(name: str, shapes: Sequence[Shape], attrs: Mapping[str, Any], dtype: str) -> GpuCall:
    """The call of ``scatter_add``, whose block is `tracejit.kernels.library.blocks.ScatterAdd`: a thread has
    some rows of one column.
    """
    x, index, _ = shapes
    axis, extent, count = attrs["axis"], attrs["extent"], math.prod(index)
    outer, inner = math.prod(x[:axis]), math.prod(x[axis + len(index) :])
    parts = max(1, min(extent, WANTED // max(1, outer * inner)))
    rows = max(1, ceil_div(extent, parts))
    parts = ceil_div(extent, rows)
    words = (count, inner, extent, rows, max(parts, 1), 1, max(inner, 1))
    return each(name, dtype, words, outer * parts * inner)


def sort_call(name: str, shapes: Sequence[Shape], attrs: Mapping[str, Any], dtype: str) -> GpuCall:
    """The call of ``sort`` or ``argsort``; `dtype`: of what is sorted."""
    shape, axis = shapes[0], attrs["axis"]
    outer, count, inner = math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :])
    return together(name, dtype, (outer, count, inner), outer * inner, ceil_div(count, 4))


def search_call(name: str, shapes: Sequence[Shape], attrs: Mapping[str, Any], dtype: str) -> GpuCall:
    """The call of ``search_sorted``."""
    x, values, _ = shapes
    batch, total = math.prod(x[:-1]), math.prod(values)
    words = (batch, x[-1], total // max(batch, 1), int(attrs["side"] == "right"))
    return each(name, dtype, words, total)


def pairs_call(name: str, shapes: Sequence[Shape], attrs: Mapping[str, Any], dtype: str) -> GpuCall:
    """The call of a function of two elements."""
    count = math.prod(shapes[0])
    return each(name, dtype, (count,), count)


def pooling_call(name: str, shapes: Sequence[Shape], attrs: Mapping[str, Any], dtype: str) -> GpuCall:
    """The call of pooling, whose block is `tracejit.kernels.images.window_blocks.Pooling`."""
    of = dict(zip(WINDOWS[name].roles, shapes, strict=True))
    low = [before for before, _ in attrs["padding"]]
    words = pool_call(name, of["x"], of["y"], attrs["window"], attrs["stride"], low, dtype).words
    return each(name, dtype, words, math.prod(shapes[-1]))


def convolution_call(name: str, shapes: Sequence[Shape], attrs: Mapping[str, Any], dtype: str) -> GpuCall:
    """The call of a convolution, or of a gradient of one."""
    of = dict(zip(WINDOWS[name].roles, shapes, strict=True))
    x, w, y = of["x"], of["w"], of["y"]
    groups = attrs["groups"]
    low = [before for before, _ in attrs["padding"]]
    words = (
        *(x[0], groups, w[1], w[0] // groups, *x[2:], *w[2:]),
        *(*attrs["stride"], *low, *attrs["dilation"], *y[2:]),
    )
    if name != "conv2d_weight_gradient":
        return each(name, dtype, words, math.prod(shapes[-1]))
    made = together(name, dtype, words, math.prod(w), ceil_div(y[0] * y[2] * y[3], 4))
    return made._replace(shared=made.threads * SIZES[dtype])


def matrices_call(name: str, shapes: Sequence[Shape], attrs: Mapping[str, Any], dtype: str) -> GpuCall:
    """The call of a function of matrices, which are eliminated or factored in place or in scratch memory."""
    *batch, rows, columns = shapes[0]
    words = (rows, shapes[-1][-1]) if name in ("solve", "inv") else (rows, columns)
    made = together(name, dtype, words, math.prod(batch), ceil_div(rows * columns, 4))
    places = made.threads * (SIZES["int64"] + SIZES["float64"])  # a row and its element of each thread
    scratch = 0 if name == "cholesky" else rows * columns * SIZES[dtype]
    blocks = max(1, min(made.blocks, MOST_SCRATCH // max(1, scratch)))
    return made._replace(shared=places, scratch=scratch, blocks=blocks)


def decomposition_call(name: str, shapes: Sequence[Shape], attrs: Mapping[str, Any], dtype: str) -> GpuCall:
    """The call of a decomposition by reflections or rotations of columns."""
    *batch, rows, columns = shapes[0]
    most, least, size = max(rows, columns), min(rows, columns), SIZES[dtype]
    if name == "qr":
        space, busy, boxes = size * (rows * columns + least), columns, 2
    elif name in ("svd", "singular_values"):  # twice the columns, the other vectors; lengths, places, factors
        space = size * least * (2 * most + least + 2) + 8 * (least + least % 2)
        busy, boxes = ceil_div(rows * columns, 8), 4
    else:  # the matrix and the vectors; rotations and the values found
        space = size * (2 * rows * rows + 3 * (rows + 1))
        busy, boxes = ceil_div(rows * rows, 4), 2
    option = attrs.get("complete", False) or attrs.get("full", False) or attrs.get("upper", False)
    space = ceil_div(space, 16) * 16
    made = together(name, dtype, (rows, columns, int(option), space), math.prod(batch), busy)
    blocks = max(1, min(made.blocks, MOST_SCRATCH // max(1, space)))
    return made._replace(shared=8 * boxes * made.threads, scratch=space, blocks=blocks)


def transform_call(name: str, shapes: Sequence[Shape], attrs: Mapping[str, Any], dtype: str) -> GpuCall:
    """The call of a Fourier transform along one axis."""
    (axis,) = attrs["axes"] if name == "fft" else (attrs["axis"],)
    taken, made = shapes
    count = made[axis] if name == "irfft" else taken[axis]
    inverse = name == "irfft" or attrs.get("inverse", False)
    outer, inner = math.prod(taken[:axis]), math.prod(taken[axis + 1 :])
    words = (count, inner, taken[axis], made[axis], 1 if inverse else -1)
    nbytes = 6 * count * SIZES[dtype] // (1 if name == "rfft" else 2)  # roots and two buffers, of pairs
    near = nbytes <= MOST_SHARED
    call = together(f"{name}_{'near' if near else 'far'}", dtype, words, outer * inner, ceil_div(count, 2))
    if near:
        return call._replace(blocks=min(call.blocks, LINES), shared=nbytes)
    return call._replace(blocks=max(1, min(call.blocks, LINES, MOST_SCRATCH // nbytes)), scratch=nbytes)


CALLS: dict[str, Callable[[str, Sequence[Shape], Mapping[str, Any], str], GpuCall]] = {
    "scatter_add": scatter_call,
    "sort": sort_call,
    "argsort": sort_call,
    "search_sorted": search_call,
    "gcd": pairs_call,
    **dict.fromkeys(("solve", "inv", "slogdet", "cholesky"), matrices_call),
    **dict.fromkeys(("qr", "svd", "singular_values", "eigh", "eigenvalues_hermitian"), decomposition_call),
    **dict.fromkeys(("fft", "rfft", "irfft"), transform_call),
    "conv2d": convolution_call,
    "conv2d_input_gradient": convolution_call,
    "conv2d_weight_gradient": convolution_call,
    "max_pool": pooling_call,
    "max_pool_gradient": pooling_call,
    "max_pool_select": pooling_call,
    "average_pool": pooling_call,
    "average_pool_gradient": pooling_call,
}
"""Calls of operators: ``call(name, shapes, attrs, dtype)``; shapes of operands, then the result; dtype of
the first operand.
"""

OF_COMPLEX = frozenset(
    {
        *("sort", "argsort", "search_sorted", "solve", "inv", "slogdet", "cholesky", "fft", "irfft"),
        *("qr", "svd", "singular_values", "eigh", "eigenvalues_hermitian"),
    }
)
"""Operators that take complex numbers, too."""


def gpu_call(name: str, shapes: Sequence[Shape], attrs: Mapping[str, Any], dtype: str) -> GpuCall:
    """The call of the operator `name` with these attributes."""
    return CALLS[name](name, shapes, attrs, dtype)
