"""Kernels for small matrices, by LAPACK on one thread: ``solve`` and ``inv`` by ``gesv``, ``cholesky`` by
``potrf``, ``qr`` by ``geqrf`` and ``orgqr``, eigenvalues of Hermitian matrices by ``syevd`` and ``heevd``.

LAPACK expects matrices in column-major order and overwrites them. So a unit, one system, is copied to the
scratch memory of its thread and transposed by the copy, as NumPy does. The integers that LAPACK takes by
reference precede the copies, whose offsets `tracejit.kernels.library.plan.system_call` computes.
"""

from __future__ import annotations

from numba import int32, int64

from tracejit.kernels.compiler.memory import call_c, copy_bytes, load, pointer, slot, store
from tracejit.kernels.compiler.target import subroutine
from tracejit.kernels.library.blocks import Cholesky, Hermitian, Orthogonal, System

UPPER = ord("U")
ONE_BITS = {"float32": 0x3F800000, "float64": 0x3FF0000000000000}
"""The bits of the number 1 for each dtype of a real part; the real part of a complex number comes first."""


def words_of(itemsize: int):
    """Return the integer as which parts of an element are moved, and the number of parts."""
    return (int32, 1) if itemsize == 4 else (int64, itemsize // 8)


def make_transpose(itemsize: int):
    """Return transpose(target, source, rows, columns, stride), which copies the transpose of a matrix whose
    rows are `stride` elements apart.
    """
    word, words = words_of(itemsize)

    @subroutine
    def transpose(target, source, rows, columns, stride):
        to_words, from_words = pointer(target, word), pointer(source, word)
        for i in range(rows):
            for j in range(columns):
                for w in range(words):
                    to_words[(j * rows + i) * words + w] = from_words[(i * stride + j) * words + w]

    return transpose


def make_system(dtype: str, itemsize: int, *, inverts: bool):
    """Build the kernel ``solve``, or ``inv``, which solves with the identity matrix as the right-hand side.

    The kernel's status is 1 plus the index of the first singular matrix, or 0.
    """
    word, words = words_of(itemsize)
    transpose = make_transpose(itemsize)
    one = ONE_BITS[{"complex64": "float32", "complex128": "float64"}.get(dtype, dtype)]
    result = System.SECOND if inverts else System.THIRD

    @subroutine
    def store_identity(target, n):
        to_words = pointer(target, word)
        for i in range(n * n * words):
            to_words[i] = word(0)
        for i in range(n):
            to_words[(n + 1) * i * words] = word(one)

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
            transpose(a, slot(block, System.FIRST) + unit * n * n * itemsize, n, n, n)
            if inverts:
                store_identity(b, n)
            else:
                transpose(b, slot(block, System.SECOND) + unit * n * m * itemsize, n, m, m)
            call_c(slot(block, System.ENTRY), (rows, columns, a, rows, pivots, b, rows, info))
            if load(info, int32) != 0:
                return unit + 1
            transpose(slot(block, result) + unit * n * m * itemsize, b, m, n, n)
        return int64(0)

    return system


def make_cholesky(itemsize: int):
    """Build the kernel ``cholesky``: lower triangular factors, computed in the memory of the result.

    In column-major order that memory contains the transpose, whose upper factor is the transpose of the lower
    one, also of complex matrices. The status is 1 plus the index of the first matrix that is not positive
    definite, or 0.
    """
    word, words = words_of(itemsize)

    def cholesky(block, lo, hi, scratch):
        n = slot(block, Cholesky.ROWS)
        rows, info, triangle = scratch, scratch + 4, scratch + 8
        for unit in range(lo, hi):
            source = slot(block, Cholesky.X) + unit * n * n * itemsize
            target = slot(block, Cholesky.OUT) + unit * n * n * itemsize
            copy_bytes(target, source, n * n * itemsize)
            store(rows, int32(n))
            store(triangle, int64(UPPER))
            call_c(slot(block, Cholesky.ENTRY), (triangle, rows, target, rows, info))
            if load(info, int32) != 0:
                return unit + 1
            to_words = pointer(target, word)
            for i in range(n):
                for j in range((i * n + i + 1) * words, (i + 1) * n * words):
                    to_words[j] = word(0)
        return int64(0)

    return cholesky


def make_qr(itemsize: int):
    """Build the kernel ``qr`` of numbers in double precision, as NumPy computes it."""
    (word, words), transpose = words_of(itemsize), make_transpose(itemsize)

    def qr(block, lo, hi, scratch):
        m, n = slot(block, Orthogonal.ROWS), slot(block, Orthogonal.COLUMNS)
        basis = slot(block, Orthogonal.BASIS)
        rows, columns, rank = scratch, scratch + 4, scratch + 8
        wide, length, info = scratch + 12, scratch + 16, scratch + 20
        tau, a = scratch + slot(block, Orthogonal.TAU), scratch + slot(block, Orthogonal.MATRIX)
        work = scratch + slot(block, Orthogonal.WORKSPACE)
        for unit in range(lo, hi):
            x = slot(block, Orthogonal.X) + unit * m * n * itemsize
            q = slot(block, Orthogonal.Q) + unit * m * basis * itemsize
            r = slot(block, Orthogonal.R) + unit * basis * n * itemsize
            transpose(a, x, m, n, n)
            store(rows, int32(m))
            store(columns, int32(n))
            store(rank, int32(min(m, n)))
            store(wide, int32(basis))
            store(length, int32(slot(block, Orthogonal.WORKSPACE_LENGTH)))
            call_c(slot(block, Orthogonal.FACTORIZE), (rows, columns, a, rows, tau, work, length, info))
            transpose(r, a, n, basis, m)
            below = pointer(r, word)
            for i in range(basis):
                for j in range(i * n * words, (i * n + min(i, n)) * words):
                    below[j] = word(0)
            call_c(slot(block, Orthogonal.GENERATE), (rows, wide, rank, a, rows, tau, work, length, info))
            transpose(q, a, basis, m, m)
        return int64(0)

    return qr


def make_eigh(dtype: str, itemsize: int, *, has_vectors: bool):
    """Build the kernel ``eigh``, or ``eigenvalues_hermitian``, which computes no vectors.

    The status is 1 plus the index of the first matrix for which the iteration does not converge, or 0.
    """
    transpose, is_complex = make_transpose(itemsize), dtype.startswith("complex")
    real_bytes = itemsize // 2 if is_complex else itemsize
    letter = ord("V" if has_vectors else "N")

    def eigh(block, lo, hi, scratch):
        n = slot(block, Hermitian.ROWS)
        job, triangle, rows, info = scratch, scratch + 8, scratch + 16, scratch + 20
        length, n_reals, n_ints = scratch + 24, scratch + 28, scratch + 32
        a, work = scratch + slot(block, Hermitian.MATRIX), scratch + slot(block, Hermitian.WORKSPACE)
        reals, ints = scratch + slot(block, Hermitian.REALS), scratch + slot(block, Hermitian.INTEGERS)
        for unit in range(lo, hi):
            values = slot(block, Hermitian.VALUES) + unit * n * real_bytes
            transpose(a, slot(block, Hermitian.X) + unit * n * n * itemsize, n, n, n)
            store(job, int64(letter))
            store(triangle, slot(block, Hermitian.TRIANGLE))
            store(rows, int32(n))
            store(length, int32(slot(block, Hermitian.WORKSPACE_LENGTH)))
            store(n_reals, int32(slot(block, Hermitian.REALS_LENGTH)))
            store(n_ints, int32(slot(block, Hermitian.INTEGERS_LENGTH)))
            entry = slot(block, Hermitian.ENTRY)
            if is_complex:
                operands = (
                    job,
                    triangle,
                    rows,
                    a,
                    rows,
                    values,
                    work,
                    length,
                    reals,
                    n_reals,
                    ints,
                    n_ints,
                    info,
                )
                call_c(entry, operands)
            else:
                call_c(entry, (job, triangle, rows, a, rows, values, work, length, ints, n_ints, info))
            if load(info, int32) != 0:
                return unit + 1
            if has_vectors:
                transpose(slot(block, Hermitian.VECTORS) + unit * n * n * itemsize, a, n, n, n)
        return int64(0)

    return eigh
