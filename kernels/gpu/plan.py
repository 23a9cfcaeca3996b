"""Calls of handwritten GPU kernels: their argument blocks and launches. This module does not need Numba.

A call depends on shapes only. Its words are first in the kernel's block, followed by the addresses of the
operands (inputs first) and the number of units. The kernels are in `tracejit.kernels.gpu.table`.

    max_pool, search_sorted, ...    each thread computes elements of the result, one after the other
    scatter                         each thread writes a column, in index order
    scatter_add                     each thread computes some rows of a column, and reads the complete index
    sort, argsort                   each block of threads sorts a line
    conv2d_weight_gradient          each block of threads computes an element of the result
    solve, cholesky, ...            each block of threads processes a matrix
    fft, rfft, irfft                each block of threads transforms a line

The distribution of work depends on shapes only. Every element of a result is computed by one thread or summed
in a fixed tree, so results are bitwise reproducible.

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
from tracejit.kernels.library.plan import SIZES, search_words, word_of
from tracejit.kernels.split import ceil_div

THREADS = 256
"""The number of threads per block of a kernel whose threads do not cooperate."""

WARP = 32

BUSY_THREADS = 1 << 16
"""The number of threads that keep any GPU busy."""

BLOCKS = 1 << 14
"""The maximal number of blocks of a launch; with more units, each block processes several."""

MAX_SCRATCH = 1 << 28
"""The limit in bytes for the scratch memory of all blocks of a launch, unless a single block needs more."""

MAX_SHARED = 48 << 10
"""The number of bytes of shared memory that a block may have on every GPU."""

MAX_TRANSFORM_BLOCKS = 1 << 11
"""The maximal number of blocks of a Fourier transform: each block computes the roots of unity before its
first line.
"""

Shape = Sequence[int]


class GpuCall(NamedTuple):
    """The call of a kernel of the table: the words of its block before the operands' addresses, the number
    of units that threads or blocks share, and its launch (blocks and threads along x, bytes of shared
    memory per block). For a kernel with `scratch` bytes of GPU memory per block, the number of units is
    followed by the address of that memory and the address of the word for failures.
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
    ``conv2d_input_gradient``; x, y, w of ``conv2d_weight_gradient``. CHANNELS and FILTERS are those of one
    group.
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


class BlockLines(enum.IntEnum):
    """Slots of ``sort`` and ``argsort`` of X (OUTER, COUNT, INNER) along the second dimension."""

    OUTER = 0
    COUNT = 1
    INNER = 2
    X = 3
    OUT = 4


class GpuSystem(enum.IntEnum):
    """Slots of ``solve`` and ``inv``: systems of ROWS equations with COLUMNS right-hand sides. FIRST is
    the matrices; the result is THIRD, or SECOND for ``inv``.
    """

    ROWS = 0
    COLUMNS = 1
    FIRST = 2
    SECOND = 3
    THIRD = 4


class Factor(enum.IntEnum):
    """Slots of functions of matrices X (ROWS, COLUMNS) with one or two results."""

    ROWS = 0
    COLUMNS = 1
    X = 2
    FIRST = 3
    SECOND = 4


class Decomposition(enum.IntEnum):
    """Slots of decompositions of matrices X (ROWS, COLUMNS) with one to three results. OPTION: whether the
    square factors have all columns, or whether the upper triangle is read. SPACE: bytes of scratch memory
    per block.
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
    """Slots of Fourier transforms of COUNT elements along the second dimension of X (outer, IN_COUNT,
    INNER); the result is (outer, OUT_COUNT, INNER). SIGN: the sign of the exponent.
    """

    COUNT = 0
    INNER = 1
    IN_COUNT = 2
    OUT_COUNT = 3
    SIGN = 4
    X = 5
    OUT = 6


def per_thread_call(kernel: str, dtype: str, words: tuple[int, ...], n_elements: int) -> GpuCall:
    """Return a call in which the threads share `n_elements` elements."""
    return GpuCall(
        kernel, dtype, words, n_elements, max(1, min(BLOCKS, ceil_div(n_elements, THREADS))), THREADS
    )


def per_block_call(kernel: str, dtype: str, words: tuple[int, ...], n_units: int, busy: int) -> GpuCall:
    """Return a call in which the blocks of threads share `n_units` units. About `busy` threads of a block
    have work.
    """
    threads = WARP
    while threads < min(THREADS, busy):
        threads *= 2
    return GpuCall(kernel, dtype, words, n_units, max(1, min(BLOCKS, n_units)), threads)


def scatter_add_call(name: str, shapes: Sequence[Shape], attrs: Mapping[str, Any], dtype: str) -> GpuCall:
    """Return the call of ``scatter_add``, whose block is `tracejit.kernels.library.blocks.ScatterAdd`. A
    thread computes some rows of one column.
    """
    x, index, _ = shapes
    axis, extent, index_size = attrs["axis"], attrs["extent"], math.prod(index)
    outer, inner = math.prod(x[:axis]), math.prod(x[axis + len(index) :])
    n_tiles = max(1, min(extent, BUSY_THREADS // max(1, outer * inner)))
    rows = max(1, ceil_div(extent, n_tiles))
    n_tiles = ceil_div(extent, rows)
    words = (index_size, inner, extent, rows, max(n_tiles, 1), 1, max(inner, 1))
    return per_thread_call(name, dtype, words, outer * n_tiles * inner)


def scatter_call(name: str, shapes: Sequence[Shape], attrs: Mapping[str, Any], dtype: str) -> GpuCall:
    """Return the call of ``scatter``, whose block is `tracejit.kernels.library.blocks.Scatter` with the
    number of units at its end. A thread writes one column, in index order.
    """
    base, _, index, _ = shapes
    axis, count = attrs["axis"], math.prod(index)
    n_columns = math.prod(base[axis + 1 :]) * max(1, SIZES[dtype] // 8)
    n_bytes = math.prod(base[axis + 1 :]) * SIZES[dtype]
    units = math.prod(base[:axis]) * n_columns if count else 0
    return per_thread_call(name, word_of(dtype), (count, base[axis], n_bytes), units)


def sort_call(name: str, shapes: Sequence[Shape], attrs: Mapping[str, Any], dtype: str) -> GpuCall:
    """Return the call of ``sort`` or ``argsort``. `dtype`: the dtype of the keys."""
    shape, axis = shapes[0], attrs["axis"]
    outer, length, inner = math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :])
    return per_block_call(name, dtype, (outer, length, inner), outer * inner, ceil_div(length, 4))


def search_call(name: str, shapes: Sequence[Shape], attrs: Mapping[str, Any], dtype: str) -> GpuCall:
    """Return the call of ``search_sorted``, whose block is `tracejit.kernels.library.blocks.Search`."""
    return per_thread_call(name, dtype, search_words(shapes, attrs), math.prod(shapes[1]))


def pairs_call(name: str, shapes: Sequence[Shape], attrs: Mapping[str, Any], dtype: str) -> GpuCall:
    """Return the call of a function of two elements, whose block is
    `tracejit.kernels.library.blocks.Pairs`.
    """
    size = math.prod(shapes[0])
    return per_thread_call(name, dtype, (size,), size)


def pooling_call(name: str, shapes: Sequence[Shape], attrs: Mapping[str, Any], dtype: str) -> GpuCall:
    """Return the call of a pooling operator, whose block is
    `tracejit.kernels.images.window_blocks.Pooling`.
    """
    shape_of = dict(zip(WINDOWS[name].roles, shapes, strict=True))
    low = [before for before, _ in attrs["padding"]]
    words = pool_call(name, shape_of["x"], shape_of["y"], attrs["window"], attrs["stride"], low, dtype).words
    return per_thread_call(name, dtype, words, math.prod(shapes[-1]))


def convolution_call(name: str, shapes: Sequence[Shape], attrs: Mapping[str, Any], dtype: str) -> GpuCall:
    """Return the call of a convolution or of one of its gradients."""
    shape_of = dict(zip(WINDOWS[name].roles, shapes, strict=True))
    x, w, y = shape_of["x"], shape_of["w"], shape_of["y"]
    groups = attrs["groups"]
    low = [before for before, _ in attrs["padding"]]
    words = (
        *(x[0], groups, w[1], w[0] // groups, *x[2:], *w[2:]),
        *(*attrs["stride"], *low, *attrs["dilation"], *y[2:]),
    )
    if name != "conv2d_weight_gradient":
        return per_thread_call(name, dtype, words, math.prod(shapes[-1]))
    call = per_block_call(name, dtype, words, math.prod(w), ceil_div(y[0] * y[2] * y[3], 4))
    return call._replace(shared=call.threads * SIZES[dtype])


def matrices_call(name: str, shapes: Sequence[Shape], attrs: Mapping[str, Any], dtype: str) -> GpuCall:
    """Return the call of a function of matrices, which are eliminated or factored in place or in scratch
    memory.
    """
    *batch, rows, columns = shapes[0]
    words = (rows, shapes[-1][-1]) if name in ("solve", "inv") else (rows, columns)
    call = per_block_call(name, dtype, words, math.prod(batch), ceil_div(rows * columns, 4))
    shared = call.threads * (SIZES["int64"] + SIZES["float64"])  # each thread's row and its element
    scratch = 0 if name == "cholesky" else rows * columns * SIZES[dtype]
    blocks = max(1, min(call.blocks, MAX_SCRATCH // max(1, scratch)))
    return call._replace(shared=shared, scratch=scratch, blocks=blocks)


def decomposition_call(name: str, shapes: Sequence[Shape], attrs: Mapping[str, Any], dtype: str) -> GpuCall:
    """Return the call of a decomposition by reflections or rotations of columns."""
    *batch, rows, columns = shapes[0]
    most, least, size = max(rows, columns), min(rows, columns), SIZES[dtype]
    if name == "qr":
        space, busy, words_per_thread = size * (rows * columns + least), columns, 2
    elif name in (
        "svd",
        "singular_values",
    ):  # the columns twice, the other vectors, lengths, positions, factors
        space = size * least * (2 * most + least + 2) + 8 * (least + least % 2)
        busy, words_per_thread = ceil_div(rows * columns, 8), 4
    else:  # the matrix and the vectors, the rotations, and the eigenvalues
        space = size * (2 * rows * rows + 3 * (rows + 1))
        busy, words_per_thread = ceil_div(rows * rows, 4), 2
    option = attrs.get("complete", False) or attrs.get("full", False) or attrs.get("upper", False)
    space = ceil_div(space, 16) * 16
    call = per_block_call(name, dtype, (rows, columns, int(option), space), math.prod(batch), busy)
    blocks = max(1, min(call.blocks, MAX_SCRATCH // max(1, space)))
    return call._replace(shared=8 * words_per_thread * call.threads, scratch=space, blocks=blocks)


def transform_call(name: str, shapes: Sequence[Shape], attrs: Mapping[str, Any], dtype: str) -> GpuCall:
    """Return the call of a Fourier transform along one axis."""
    (axis,) = attrs["axes"] if name == "fft" else (attrs["axis"],)
    x, result = shapes
    length = result[axis] if name == "irfft" else x[axis]
    inverse = name == "irfft" or attrs.get("inverse", False)
    outer, inner = math.prod(x[:axis]), math.prod(x[axis + 1 :])
    words = (length, inner, x[axis], result[axis], 1 if inverse else -1)
    nbytes = 6 * length * SIZES[dtype] // (1 if name == "rfft" else 2)  # roots and two buffers, as pairs
    near = nbytes <= MAX_SHARED
    call = per_block_call(
        f"{name}_{'near' if near else 'far'}", dtype, words, outer * inner, ceil_div(length, 2)
    )
    if near:
        return call._replace(blocks=min(call.blocks, MAX_TRANSFORM_BLOCKS), shared=nbytes)
    return call._replace(
        blocks=max(1, min(call.blocks, MAX_TRANSFORM_BLOCKS, MAX_SCRATCH // nbytes)), scratch=nbytes
    )


CALLS: dict[str, Callable[[str, Sequence[Shape], Mapping[str, Any], str], GpuCall]] = {
    "scatter": scatter_call,
    "scatter_add": scatter_add_call,
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
"""The functions that build the calls of operators: ``call(name, shapes, attrs, dtype)``. `shapes`: those
of the operands, then of the result; `dtype`: that of the first operand.
"""

COMPLEX_OPERATORS = frozenset(
    {
        *("sort", "argsort", "search_sorted", "solve", "inv", "slogdet", "cholesky", "fft", "irfft"),
        *("qr", "svd", "singular_values", "eigh", "eigenvalues_hermitian"),
        "scatter",
    }
)
"""The operators that also accept complex numbers."""


def gpu_call(name: str, shapes: Sequence[Shape], attrs: Mapping[str, Any], dtype: str) -> GpuCall:
    """Return the call of the operator `name` with these attributes."""
    return CALLS[name](name, shapes, attrs, dtype)
