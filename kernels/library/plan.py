"""Plans and calls of the library kernels other than ``gemm`` (see `gemm.plan`). Needs no Numba.

A plan splits a task into units according to its shapes. A call adds the slots of the argument block (see
`tracejit.kernels.library.blocks`).

>>> copy_plan(1 << 20)
CopyPlan(unit_bytes=262144, units=4, chunk=1)
>>> scatter_plan(1, 4096, 768, 30000)         # gradient of an embedding: split by columns
ScatterPlan(rows=30000, row_blocks=1, columns=96, column_blocks=8, units=8, chunk=1)
"""

# No `from __future__ import annotations`: a named tuple compiles every annotation that is a string.

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from tracejit.kernels.gemm.blas import entry_points
from tracejit.kernels.library.inner_loops import TRANSFORM_HEAD, inner_loop
from tracejit.kernels.split import KernelCall, ceil_div

COPY_BYTES = 1 << 18  # bytes in a unit of a copy, about 10 us
SCATTER_WORK = 1 << 15  # additions below which a scatter is not split
SCATTER_BLOCKS = 8
SYSTEM_WORK = 1 << 22  # multiplications above which NumPy's multithreaded LAPACK solves a system
SORT_WORK = 1 << 16  # comparisons above which NumPy's vectorized sort is faster
SORTED_BYTES = 1 << 17  # scratch memory for a line that a kernel sorts: some 5,000 positions
CHUNK_WORK = 1 << 13  # comparisons, or divisions, in a chunk of lines, values or pairs
TRANSFORM_LINE = 1 << 16  # elements
TRANSFORM_WORK = 1 << 15  # in a chunk: elements of lines, times the logarithm of their number
TRANSFORM_GROUP = 1 << 12  # elements of lines that are widened at a time
SYSTEM_CHUNK = 1 << 15  # multiplications in a chunk of systems
ALIGNED = 64
LINE = 16  # elements: blocks of a row end on cache lines for items of 4 bytes or more


class CopyPlan(NamedTuple):
    """The split of a copy."""

    unit_bytes: int
    units: int
    chunk: int


class ScatterPlan(NamedTuple):
    """The split of a scatter by rows and columns; `chunk` is the number of units claimed at a time."""

    rows: int
    row_blocks: int
    columns: int
    column_blocks: int
    units: int
    chunk: int


def copy_plan(nbytes: int) -> CopyPlan:
    """Split a copy of `nbytes` bytes."""
    return CopyPlan(COPY_BYTES, ceil_div(nbytes, COPY_BYTES), 1)


def scatter_plan(outer: int, count: int, inner: int, extent: int) -> ScatterPlan:
    """Split a scatter of (outer, count, inner) into (outer, extent, inner).

    The outer dimension is split first. If it is short, so are the columns, which balances the work for any
    index. If the rows are too narrow for that, the target rows are split, and each block reads all of the
    index.
    """
    work = max(count, extent) * inner
    if outer * extent * inner == 0:
        return ScatterPlan(max(extent, 1), 1, max(inner, 1), 1, 0, 1)
    rows, columns = extent, inner
    if outer < SCATTER_BLOCKS and work >= SCATTER_WORK:
        blocks = ceil_div(SCATTER_BLOCKS, outer)
        if inner >= 2 * LINE:
            columns = ceil_div(ceil_div(inner, blocks), LINE) * LINE
        elif inner >= SCATTER_BLOCKS:
            rows = ceil_div(extent, blocks)
    row_blocks, column_blocks = ceil_div(extent, rows), ceil_div(inner, columns)
    chunk = max(1, SCATTER_WORK // max(1, count * columns + rows * columns))
    return ScatterPlan(rows, row_blocks, columns, column_blocks, outer * row_blocks * column_blocks, chunk)


# ----------------------------------------------------------------------------------------------- the table

Shape = Sequence[int]
SIZES = {
    "bool": 1,
    "int8": 1,
    "int16": 2,
    "int32": 4,
    "int64": 8,
    "uint8": 1,
    "uint16": 2,
    "uint32": 4,
    "uint64": 8,
    "float16": 2,
    "bfloat16": 2,
    "float32": 4,
    "float64": 8,
    "complex64": 8,
    "complex128": 16,
}
"""The size in bytes of an element of each dtype."""


def copy_call(name: str, shapes: Sequence[Shape], attrs: Mapping[str, Any], dtype: str) -> KernelCall:
    """Return the call of a copy; the kernel moves bytes, whatever the dtype."""
    nbytes = math.prod(shapes[0]) * SIZES[dtype]
    split = copy_plan(nbytes)
    return KernelCall(name, "uint8", (nbytes, split.unit_bytes), split.units, split.chunk)


def scatter_add_call(name: str, shapes: Sequence[Shape], attrs: Mapping[str, Any], dtype: str) -> KernelCall:
    """Return the call of ``scatter_add`` of `x` at `index` along an axis."""
    x, index, _ = shapes
    axis, extent, count = attrs["axis"], attrs["extent"], math.prod(index)
    inner = math.prod(x[axis + len(index) :])
    split = scatter_plan(math.prod(x[:axis]), count, inner, extent)
    blocks = (split.rows, split.row_blocks, split.columns, split.column_blocks)
    return KernelCall(name, dtype, (count, inner, extent, *blocks), split.units, split.chunk)


def scatter_call(name: str, shapes: Sequence[Shape], attrs: Mapping[str, Any], dtype: str) -> KernelCall:
    """Return the call of ``scatter`` of `x` into an array along an axis; the kernel moves words, whatever the
    dtype.
    """
    base, _, index, _ = shapes
    axis, count = attrs["axis"], math.prod(index)
    n_bytes = math.prod(base[axis + 1 :]) * SIZES[dtype]
    units = math.prod(base[:axis]) if count * n_bytes else 0
    chunk = max(1, SCATTER_WORK // max(1, count * n_bytes))
    return KernelCall(name, word_of(dtype), (count, base[axis], n_bytes), units, chunk)


def word_of(dtype: str) -> str:
    """Return the unsigned integer as which elements of a dtype are moved.

    >>> word_of("bool"), word_of("float32"), word_of("complex128")
    ('uint8', 'uint32', 'uint64')
    """
    return f"uint{8 * min(SIZES[dtype], 8)}"


ORDERED = frozenset(SIZES) - {"float16", "bfloat16"}
"""The dtypes whose elements kernels compare."""


def sort_call(name: str, shapes: Sequence[Shape], attrs: Mapping[str, Any], dtype: str) -> KernelCall | None:
    """Return the call of ``sort`` or ``argsort`` for short lines, or None for others. `dtype`: that of the
    elements.

    >>> sort_call("argsort", [(2, 5, 3)], {"axis": 1}, "float32")
    KernelCall(kernel='argsort', dtype='float32', words=(5, 3, 64, 64), units=6, chunk=546, scratch=192)
    >>> sort_call("sort", [(1_000_000,)], {"axis": 0}, "float32") is None
    True
    """
    shape, axis = shapes[0], attrs["axis"]
    count, inner = shape[axis], math.prod(shape[axis + 1 :])
    n_lines = math.prod(shape[:axis]) * inner if count else 0
    work = count * count.bit_length()
    keys, items = (
        _aligned(count * size) for size in (SIZES[dtype], 8 if name == "argsort" else SIZES[dtype])
    )
    scratch = keys + 2 * items
    if dtype not in ORDERED or scratch > SORTED_BYTES or (name == "sort" and n_lines * work > SORT_WORK):
        return None
    return KernelCall(
        name, dtype, (count, inner, keys, items), n_lines, max(1, CHUNK_WORK // max(work, 1)), scratch
    )


def search_call(
    name: str, shapes: Sequence[Shape], attrs: Mapping[str, Any], dtype: str
) -> KernelCall | None:
    """Return the call of ``search_sorted``, or None if no kernel compares elements of a dtype."""
    if dtype not in ORDERED:
        return None
    x, values, _ = shapes
    chunk = CHUNK_WORK // (1 + x[-1].bit_length())
    return KernelCall(name, dtype, search_words(shapes, attrs), math.prod(values), chunk)


def search_words(shapes: Sequence[Shape], attrs: Mapping[str, Any]) -> tuple[int, ...]:
    """Return the first slots of the block of ``search_sorted``."""
    x, values, _ = shapes
    batch = math.prod(x[:-1])
    return batch, x[-1], math.prod(values) // max(batch, 1), int(attrs["side"] == "right")


def pairs_call(name: str, shapes: Sequence[Shape], attrs: Mapping[str, Any], dtype: str) -> KernelCall:
    """Return the call of a function of pairs of elements."""
    size = math.prod(shapes[0])
    return KernelCall(name, dtype, (size,), size, CHUNK_WORK // 16)


def _aligned(n_bytes: int) -> int:
    return ceil_div(n_bytes, ALIGNED) * ALIGNED


TYPES = {"fft": "Dd->D", "rfft": "dd->D", "irfft": "Dd->d"}
"""The dtypes of NumPy's inner loops that compute transforms, by NumPy's letters."""


def transform_call(
    name: str, shapes: Sequence[Shape], attrs: Mapping[str, Any], dtype: str
) -> KernelCall | None:
    """Return the call of ``fft``, ``rfft`` or ``irfft`` by NumPy's inner loop, or None if this NumPy has
    another layout, or for long lines, where a failure to allocate memory must be noticed.
    """
    x, y = shapes
    axes = attrs["axes"] if name == "fft" else (attrs["axis"],)
    longest = max(max(x[axis], y[axis]) for axis in axes)
    ufunc = "ifft" if attrs.get("inverse") else name
    if name == "rfft":
        ufunc = "rfft_n_odd" if x[axes[0]] % 2 else "rfft_n_even"
    loop = inner_loop(ufunc, TYPES[name])
    if loop is None or longest > TRANSFORM_LINE:
        return None
    group = max(1, TRANSFORM_GROUP // longest)
    passes = [(x[axis], y[axis], math.prod(x[axis + 1 :])) for axis in reversed(axes)]
    words = (*loop, math.prod(x), group, len(passes), *(n for one in passes for n in one))
    lines = math.prod(x) // x[axes[0]] if len(axes) == 1 else int(0 not in x)
    chunk = max(1, TRANSFORM_WORK // (longest * longest.bit_length()))
    wide = 2 * group * longest * SIZES["complex128"] if dtype in ("float32", "complex64") else 0
    return KernelCall(name, dtype, words, lines, chunk, TRANSFORM_HEAD + wide)


LETTERS = {"float32": "s", "float64": "d", "complex64": "c", "complex128": "z"}
"""The first letter of LAPACK's routines for each dtype."""


def system_call(
    name: str, shapes: Sequence[Shape], attrs: Mapping[str, Any], dtype: str
) -> KernelCall | None:
    """Return the call of ``solve`` or ``inv`` for small systems, or None for others.

    >>> system_call("solve", [(2, 9, 9), (2, 9, 4), (2, 9, 4)], {}, "float64").words[:2]
    (9, 4)
    >>> system_call("inv", [(900, 900), (900, 900)], {}, "float64") is None
    True
    """
    *batch, n, m = shapes[-1]
    work = n * n * (n // 3 + m) * (4 if dtype.startswith("complex") else 1)
    if 0 in (n, m) or work > SYSTEM_WORK:
        return None
    offsets = [ALIGNED]
    for size in (4 * n, n * n * SIZES[dtype], n * m * SIZES[dtype]):
        offsets.append(offsets[-1] + _aligned(size))
    words = (n, m, entry_points()[LETTERS[dtype] + "gesv"], *offsets[:3])
    chunk = max(1, SYSTEM_CHUNK // work)
    return KernelCall(name, dtype, words, math.prod(batch), chunk, offsets[3])


def cholesky_call(
    name: str, shapes: Sequence[Shape], attrs: Mapping[str, Any], dtype: str
) -> KernelCall | None:
    """Return the call of ``cholesky`` for small matrices, or None for others.

    >>> cholesky_call("cholesky", [(2, 9, 9), (2, 9, 9)], {}, "float64").units
    2
    """
    *batch, n, _ = shapes[0]
    work = n * n * (n // 3 + 1) * (4 if dtype.startswith("complex") else 1)
    if n == 0 or work > SYSTEM_WORK:
        return None
    words = (n, entry_points()[LETTERS[dtype] + "potrf"])
    return KernelCall(name, dtype, words, math.prod(batch), max(1, SYSTEM_CHUNK // work), ALIGNED)


QR_ROUTINES = {"float64": ("dgeqrf", "dorgqr"), "complex128": ("zgeqrf", "zungqr")}
"""LAPACK's routines for ``qr``, which NumPy computes in double precision for all dtypes."""
QR_BLOCK = 32  # columns in a block of LAPACK's


def qr_call(name: str, shapes: Sequence[Shape], attrs: Mapping[str, Any], dtype: str) -> KernelCall | None:
    """Return the call of ``qr`` for small matrices in double precision, or None for others.

    >>> qr_call("qr", [(2, 9, 4), (2, 9, 4), (2, 4, 4)], {}, "float64").words[:3]
    (9, 4, 4)
    """
    *batch, m, n = shapes[0]
    basis = shapes[1][-1]
    work = m * max(n, basis) * min(m, n) * (4 if dtype == "complex128" else 1)
    if dtype not in QR_ROUTINES or 0 in (m, n) or work > SYSTEM_WORK:
        return None
    size, length = SIZES[dtype], QR_BLOCK * max(n, basis)
    offsets = [ALIGNED]
    for count in (min(m, n), m * max(n, basis), length):
        offsets.append(offsets[-1] + _aligned(count * size))
    entries = [entry_points()[routine] for routine in QR_ROUTINES[dtype]]
    words = (m, n, basis, *entries, *offsets[:3], length)
    return KernelCall(name, dtype, words, math.prod(batch), max(1, SYSTEM_CHUNK // work), offsets[3])


EIGH_ROUTINES = {"float32": "ssyevd", "float64": "dsyevd", "complex64": "cheevd", "complex128": "zheevd"}
"""LAPACK's routines for eigenvalues of Hermitian matrices."""


def eigh_call(name: str, shapes: Sequence[Shape], attrs: Mapping[str, Any], dtype: str) -> KernelCall | None:
    """Return the call of ``eigh`` or ``eigenvalues_hermitian`` for small matrices, or None for others. The
    lengths of the workspaces are those that LAPACK documents.

    >>> eigh_call("eigh", [(2, 9, 9), (2, 9), (2, 9, 9)], {"upper": False}, "float64").words[0]
    9
    """
    *batch, n, _ = shapes[0]
    is_complex = dtype.startswith("complex")
    work = 4 * n**3 * (4 if is_complex else 1)
    if n == 0 or work > SYSTEM_WORK:
        return None
    size = SIZES[dtype]
    length, n_reals = (2 * n + n * n, 1 + 5 * n + 2 * n * n) if is_complex else (1 + 6 * n + 2 * n * n, 0)
    n_integers = 3 + 5 * n
    offsets = [ALIGNED]
    for n_bytes in (n * n * size, length * size, n_reals * size // 2, n_integers * 4):
        offsets.append(offsets[-1] + _aligned(n_bytes))
    matrix, workspace, reals, integers, scratch = offsets
    entry, triangle = entry_points()[EIGH_ROUTINES[dtype]], ord("U" if attrs["upper"] else "L")
    lengths = workspace, length, reals, n_reals, integers, n_integers
    words = (n, entry, triangle, matrix, *lengths)
    return KernelCall(name, dtype, words, math.prod(batch), max(1, SYSTEM_CHUNK // work), scratch)


ROUTINES: dict[str, Callable[[str, Sequence[Shape], Mapping[str, Any], str], KernelCall | None]] = {
    "solve": system_call,
    "inv": system_call,
    "cholesky": cholesky_call,
    "qr": qr_call,
    "eigh": eigh_call,
    "eigenvalues_hermitian": eigh_call,
    "sort": sort_call,
    "argsort": sort_call,
    "search_sorted": search_call,
    "gcd": pairs_call,
    **dict.fromkeys(("fft", "rfft", "irfft"), transform_call),
}
"""Calls of operators like `CALLS`, except that NumPy's routine runs where a function returns None, and that
`dtype` is that of the first operand.
"""


def routine_call(
    name: str, shapes: Sequence[Shape], attrs: Mapping[str, Any], dtype: str
) -> KernelCall | None:
    """Return the call of the kernel that computes an operator of NumPy's, or None if NumPy's routine runs."""
    return ROUTINES[name](name, shapes, attrs, dtype) if name in ROUTINES else None


CALLS: dict[str, Callable[[str, Sequence[Shape], Mapping[str, Any], str], KernelCall]] = {
    "copy": copy_call,
    "scatter": scatter_call,
    "scatter_add": scatter_add_call,
}
"""Functions that return the call of an operator: ``call(name, shapes, attrs, dtype)``. `shapes` lists the
shapes of the operands, then of the result.
"""
