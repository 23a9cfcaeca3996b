"""Factorizations, determinants and linear systems, computed by LAPACK.

LAPACK is called through NumPy (trait HOST), or from a kernel if the matrices are small (see
`tracejit.kernels.library.plan.ROUTINES`).

cholesky(x)              the lower triangular L with x = L L^H; reads the lower triangle
solve(a, b)              the x with a x = b, for matrices b
inv(x)                   the inverse
slogdet(x)               sign and logarithm of the magnitude of the determinant
qr(x; complete)          q with orthonormal columns, upper triangular r
svd(x; full)             u, s in descending order, v^H; u and v^H are square if full, else reduced
singular_values(x)       s of svd
eigh(x; upper)           eigenvalues in ascending order and eigenvectors; reads one triangle
eigenvalues_hermitian(x; upper)        the eigenvalues of eigh
eig(x)                   complex eigenvalues and eigenvectors of any square matrix

Leading dimensions are batch dimensions. All gradients are written in the convention of their sources, in
which the gradient of a complex value is dL/dx + i dL/dy; `_conjugated` converts cotangents and results.
Sources: Giles, Collected matrix derivative results (2008); Murray, Differentiation of the Cholesky
decomposition (2016); Walter and Lehmann, Algorithmic differentiation of linear algebra functions (2010).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tracejit.errors import LinAlgError, ShapeError
from tracejit.ir.op import Trait, register
from tracejit.ir.types import ArrayType
from tracejit.ops.arithmetic import equal
from tracejit.ops.batching import leading
from tracejit.ops.complex_numbers import complex as complex_op
from tracejit.ops.complex_numbers import complex_dtype, conj, imag, part_dtype, real
from tracejit.ops.creation import iota
from tracejit.ops.movement import update
from tracejit.ops.rules import (
    FACTORABLE,
    check_array,
    check_count,
    check_dtype,
    check_one_dtype,
    describe_types,
)
from tracejit.ops.select import where
from tracejit.ops.symbolic import Operator, Sym, SymNode, full_like

FactorizationGradient = Callable[[SymNode, Sequence[Any]], list[Sym | None]]

# ---- typing rules, reference evaluation with NumPy


def _check(name: str, x: ArrayType) -> None:
    check_array(name, x)
    check_dtype(name, x.dtype, FACTORABLE)
    if x.ndim < 2:
        raise ShapeError(f"{name} needs a matrix, or a batch of them, got {x}; reshape it")


def _check_square(name: str, types: Sequence[ArrayType]) -> ArrayType:
    check_count(name, types, 1)
    (x,) = types
    _check(name, x)
    if x.shape[-1] != x.shape[-2]:
        raise ShapeError(f"{name} needs square matrices, got {x}; the last two extents must be equal")
    return x


def _check_any(name: str, types: Sequence[ArrayType]) -> ArrayType:
    check_count(name, types, 1)
    _check(name, types[0])
    return types[0]


def _with_matrix_shape(x: ArrayType, shape: Sequence[int], dtype: np.dtype | None = None) -> ArrayType:
    return ArrayType((*x.shape[:-2], *shape), dtype or x.dtype, x.device)


def _infer_solve(*types: ArrayType) -> ArrayType:
    check_count("solve", types, 2)
    check_one_dtype("solve", types)
    a = _check_square("solve", types[:1])
    b = types[1]
    _check("solve", b)
    if a.shape[:-1] != b.shape[:-1]:
        raise ShapeError(
            f"solve got {describe_types(types)}: matrices and right sides need equal rows and batch shapes"
        )
    return b


def _infer_slogdet(*types: ArrayType) -> tuple[ArrayType, ...]:
    x = _check_square("slogdet", types)
    return _with_matrix_shape(x, ()), _with_matrix_shape(x, (), _real_dtype(x.dtype))


def _infer_qr(*types: ArrayType, complete: bool) -> tuple[ArrayType, ...]:
    x = _check_any("qr", types)
    m, n = x.shape[-2:]
    k = m if complete else min(m, n)
    return _with_matrix_shape(x, (m, k)), _with_matrix_shape(x, (k, n))


def _real_dtype(dtype: np.dtype) -> np.dtype:
    return part_dtype(dtype) if dtype.kind == "c" else dtype


def _infer_singular_values(*types: ArrayType) -> ArrayType:
    x = _check_any("svd", types)
    return _with_matrix_shape(x, (min(x.shape[-2:]),), _real_dtype(x.dtype))


def _infer_svd(*types: ArrayType, full: bool) -> tuple[ArrayType, ...]:
    s = _infer_singular_values(*types)
    x, (k,) = types[0], s.shape[-1:]
    m, n = x.shape[-2:]
    return _with_matrix_shape(x, (m, m if full else k)), s, _with_matrix_shape(x, (n if full else k, n))


def _infer_eigenvalues(*types: ArrayType, upper: bool) -> ArrayType:
    x = _check_square("eigh", types)
    return _with_matrix_shape(x, x.shape[-1:], _real_dtype(x.dtype))


def _infer_eigh(*types: ArrayType, upper: bool) -> tuple[ArrayType, ...]:
    return _infer_eigenvalues(*types, upper=upper), types[0]


def _infer_eig(*types: ArrayType) -> tuple[ArrayType, ...]:
    x = _check_square("eig", types)
    dtype = x.dtype if x.dtype.kind == "c" else complex_dtype(x.dtype)
    return _with_matrix_shape(x, x.shape[-1:], dtype), _with_matrix_shape(x, x.shape[-2:], dtype)


def _eig(x: np.ndarray) -> tuple[np.ndarray, ...]:
    values, vectors = np.linalg.eig(x)
    dtype = x.dtype if x.dtype.kind == "c" else complex_dtype(x.dtype)
    return values.astype(dtype), vectors.astype(dtype)


def _raising(name: str, evaluate: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap `evaluate`: convert NumPy's `LinAlgError` to that of `tracejit.errors`, named tuples to tuples."""

    def evaluated(*arrays: np.ndarray, **attrs: Any) -> Any:
        try:
            result = evaluate(*arrays, **attrs)
        except np.linalg.LinAlgError as error:
            raise LinAlgError(f"{name}: {str(error).lower()}") from None
        return tuple(result) if isinstance(result, tuple) else result

    return evaluated


# ---- gradients


def _conjugated(rule: FactorizationGradient) -> FactorizationGradient:
    """Return an `Op.gradient` from a rule in the convention of the sources, dL/dx + i dL/dy."""

    def gradient(node: SymNode, cotangents: Sequence[Sym | None]) -> list[Sym | None]:
        dense_cotangents = [
            full_like(y, 0) if ct is None else _conj(ct)
            for y, ct in zip(node.outputs, cotangents, strict=True)
        ]
        return [None if g is None else _conj(g) for g in rule(node, dense_cotangents)]

    return gradient


def _conj(x: Sym) -> Sym:
    return conj(x) if x.dtype.kind == "c" else x


def _adjoint(x: Sym) -> Sym:
    return _conj(x.mT)


def _product(*factors: Sym) -> Sym:
    """Multiply matrices from left to right; a complex product consists of four real products."""
    result = factors[0]
    for factor in factors[1:]:
        if factor.dtype.kind == "c":
            a, b, c, d = real(result), imag(result), real(factor), imag(factor)
            result = complex_op(a @ c - b @ d, a @ d + b @ c)
        else:
            result = result @ factor
    return result


def _cast_like(x: Sym, like: Sym) -> Sym:
    return x.astype(like.dtype)


def _rows(x: Sym, shape: Sequence[int]) -> Sym:
    """``x[..., :, None]``, broadcast to `shape`."""
    return x.spread((len(shape) - 1,), shape)


def _columns(x: Sym, shape: Sequence[int]) -> Sym:
    """``x[..., None, :]``, broadcast to `shape`."""
    return x.spread((len(shape) - 2,), shape)


def _positions(like: Sym) -> tuple[Sym, Sym]:
    """The row and column indices of every element of a batch of matrices."""
    batch = len(like.shape) - 2
    rows, columns = (iota(size=n, device=like.device) for n in like.shape[-2:])
    return rows.spread((*range(batch), batch + 1), like.shape), columns.spread(
        tuple(range(batch + 1)), like.shape
    )


def _diagonal_matrix(x: Sym) -> Sym:
    """Matrices with the vectors `x` on their diagonals and 0 elsewhere."""
    broadcast = _rows(x, (*x.shape, x.shape[-1]))
    row, column = _positions(broadcast)
    return where(equal(row, column), broadcast, 0 * broadcast)


def _below(x: Sym, diagonal: float) -> Sym:
    """The strictly lower triangle of `x`, plus its diagonal multiplied by `diagonal`."""
    row, column = _positions(x)
    lower = where(column < row, x, full_like(x, 0))
    return where(equal(row, column), diagonal * x, lower)


def _inverse_differences(x: Sym) -> Sym:
    """``1 / (x[j] - x[i])`` in row i, column j; 0 on the diagonal."""
    shape = (*x.shape, x.shape[-1])
    difference = _columns(x, shape) - _rows(x, shape)
    row, column = _positions(difference)
    on_diagonal = equal(row, column)
    safe = where(on_diagonal, full_like(difference, 1), difference)
    return where(on_diagonal, full_like(difference, 0), 1 / safe)


def _hermitian(x: Sym) -> Sym:
    return (x + _adjoint(x)) * 0.5


def _cholesky_gradient(node: SymNode, cotangents: Sequence[Sym]) -> list[Sym | None]:
    (ct,), factor = cotangents, _adjoint(node.output)
    inner = _below(_product(factor, ct), 0.5)
    half = solve(factor, inner)  # L^-H inner L^-1
    return [_hermitian(_adjoint(solve(factor, _adjoint(half))))]


def _solve_gradient(node: SymNode, cotangents: Sequence[Sym]) -> list[Sym | None]:
    (a, _), (ct,) = node.inputs, cotangents
    right = solve(_adjoint(a), ct)
    return [-_product(right, _adjoint(node.output)), right]


def _inv_gradient(node: SymNode, cotangents: Sequence[Sym]) -> list[Sym | None]:
    (ct,), adjoint = cotangents, _adjoint(node.output)
    return [-_product(adjoint, ct, adjoint)]


def _slogdet_gradient(node: SymNode, cotangents: Sequence[Sym]) -> list[Sym | None]:
    (x,), (sign, _), (ct_sign, ct_log) = node.inputs, node.outputs, cotangents
    if x.dtype.kind == "c":
        ct_phase = -imag(conj(ct_sign) * sign)
        ct_log = complex_op(ct_log, ct_phase)
    ndim = len(x.shape)
    return [ct_log.spread((ndim - 2, ndim - 1), x.shape) * _adjoint(inv(x))]


def _qr_gradient(node: SymNode, cotangents: Sequence[Sym]) -> list[Sym | None]:
    (x,), (q, r), (ct_q, ct_r) = node.inputs, node.outputs, cotangents
    m, n = x.shape[-2:]
    if q.shape[-1] > n:
        raise ShapeError(f"qr: mode complete of tall matrices {x.type} has no gradient; use mode reduced")
    if m >= n:
        return [_tall_qr_gradient(q, r, ct_q, ct_r)]
    axis = len(x.shape) - 1
    halves = [
        (y.view(y.identity_view().slice_axis(axis, 0, m)), y.view(y.identity_view().slice_axis(axis, m, n)))
        for y in (x, r, ct_r)
    ]
    (_, x_right), (r_left, _), (ct_left, ct_right) = halves
    left = _tall_qr_gradient(q, r_left, ct_q + _product(x_right, _adjoint(ct_right)), ct_left)
    result = full_like(x, 0)
    for columns, start in ((left, 0), (_product(q, ct_right), m)):
        result = update(
            result, columns, view=result.identity_view().slice_axis(axis, start, start + columns.shape[-1])
        )
    return [result]


def _tall_qr_gradient(q: Sym, r: Sym, ct_q: Sym, ct_r: Sym) -> Sym:
    inner = _product(r, _adjoint(ct_r)) - _product(_adjoint(ct_q), q)
    lower = _below(inner, 0.5)
    symmetric = lower + _adjoint(lower)
    return _adjoint(solve(r, _adjoint(ct_q + _product(q, symmetric))))


def _svd_gradient(node: SymNode, cotangents: Sequence[Sym]) -> list[Sym | None]:
    (x,), (u, s, vh), (ct_u, ct_s, ct_vh) = node.inputs, node.outputs, cotangents
    m, n = x.shape[-2:]
    k = s.shape[-1]
    if u.shape[-1] > k or vh.shape[-2] > k:
        raise ShapeError(f"svd: full_matrices of {x.type} has no gradient; use full_matrices=False")
    square = (*s.shape, k)
    uh, v, ct_v = _adjoint(u), _adjoint(vh), _adjoint(ct_vh)
    inverse = _cast_like(_inverse_differences(s * s), x)
    left, right = _product(uh, ct_u), _product(vh, ct_v)
    rows, columns = _cast_like(_rows(s, square), x), _cast_like(_columns(s, square), x)
    inner = (left - _adjoint(left)) * inverse * columns + rows * ((right - _adjoint(right)) * inverse)
    inner = inner + _cast_like(_diagonal_matrix(ct_s), x)
    if x.dtype.kind == "c":
        phase = imag(left) / _rows(s, square)
        row, column = _positions(phase)
        zero = full_like(phase, 0)
        inner = inner + complex_op(zero, where(equal(row, column), phase, zero))
    result = _product(u, inner, vh)
    if m > k:
        scaled = ct_u / _cast_like(_columns(s, u.shape), x)
        result = result + _product(scaled - _product(u, _product(uh, scaled)), vh)
    if n > k:
        scaled = _adjoint(ct_v / _cast_like(_columns(s, v.shape), x))
        result = result + _product(u, scaled - _product(_product(scaled, v), vh))
    return [result]


def _singular_values_gradient(node: SymNode, cotangents: Sequence[Sym]) -> list[Sym | None]:
    (x,), (ct,) = node.inputs, cotangents
    u, _, vh = svd(x, full=False)
    return [_product(u * _cast_like(_columns(ct, u.shape), x), vh)]


def _eigh_gradient(node: SymNode, cotangents: Sequence[Sym]) -> list[Sym | None]:
    (x,), (w, v), (ct_w, ct_v) = node.inputs, node.outputs, cotangents
    inner = _cast_like(_diagonal_matrix(ct_w), x)
    inner = inner + _product(_adjoint(v), ct_v) * _cast_like(_inverse_differences(w), x)
    return [_hermitian(_product(v, inner, _adjoint(v)))]


def _eigenvalues_gradient(node: SymNode, cotangents: Sequence[Sym]) -> list[Sym | None]:
    (x,), (ct,) = node.inputs, cotangents
    _, v = eigh(x, upper=node.attrs["upper"])
    return [_product(v * _cast_like(_columns(ct, v.shape), x), _adjoint(v))]


# ---- declarations


def _routine(
    name: str,
    infer: Callable[..., Any],
    evaluate: Callable[..., Any],
    rule: FactorizationGradient | None,
    doc: str,
) -> Operator:
    cannot_fail = name in ("slogdet", "qr")  # LAPACK has a result for every matrix
    op = Operator(
        name,
        infer,
        _raising(name, evaluate),
        rule and _conjugated(rule),
        traits=frozenset({Trait.HOST} if cannot_fail else {Trait.HOST, Trait.CAN_FAIL}),
        doc=doc,
        admits=FACTORABLE,
        batch=leading,
    )
    register(op)
    return op


cholesky = _routine(
    "cholesky",
    lambda *types: _check_square("cholesky", types),
    np.linalg.cholesky,
    _cholesky_gradient,
    "Lower triangular factors of positive definite matrices.",
)
solve = _routine("solve", _infer_solve, np.linalg.solve, _solve_gradient, "Solutions of linear systems.")
inv = _routine(
    "inv",
    lambda *types: _check_square("inv", types),
    np.linalg.inv,
    _inv_gradient,
    "Inverses of square matrices.",
)
slogdet = _routine(
    "slogdet",
    _infer_slogdet,
    np.linalg.slogdet,
    _slogdet_gradient,
    "Signs and logarithms of the magnitudes of determinants.",
)
qr = _routine(
    "qr",
    _infer_qr,
    lambda x, *, complete: np.linalg.qr(x, "complete" if complete else "reduced"),
    _qr_gradient,
    "Orthonormal and upper triangular factors.",
)
svd = _routine(
    "svd",
    _infer_svd,
    lambda x, *, full: np.linalg.svd(x, full_matrices=full),
    _svd_gradient,
    "Singular value decomposition.",
)
singular_values = _routine(
    "singular_values",
    _infer_singular_values,
    lambda x: np.linalg.svd(x, compute_uv=False),
    _singular_values_gradient,
    "Singular values, in descending order.",
)
eigh = _routine(
    "eigh",
    _infer_eigh,
    lambda x, *, upper: np.linalg.eigh(x, "U" if upper else "L"),
    _eigh_gradient,
    "Eigenvalues and eigenvectors of Hermitian matrices.",
)
eigenvalues_hermitian = _routine(
    "eigenvalues_hermitian",
    _infer_eigenvalues,
    lambda x, *, upper: np.linalg.eigvalsh(x, "U" if upper else "L"),
    _eigenvalues_gradient,
    "Eigenvalues of Hermitian matrices, in ascending order.",
)
eig = _routine("eig", _infer_eig, _eig, None, "Complex eigenvalues and eigenvectors of square matrices.")
