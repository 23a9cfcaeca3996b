"""Linear algebra: `tj.linalg`, NumPy's functions and the array API's.

LAPACK computes factorizations, through NumPy, as tasks of the engine, in the precision of the operand.
Integers become float64; half dtypes are computed in float32, and the results are rounded. The last two
dimensions form matrices, the leading dimensions a batch. Gradients follow published rules (see
`tracejit.ops.factorizations`). For functions that read one triangle of a Hermitian matrix the gradients are
Hermitian, as in JAX and PyTorch.

>>> import tracejit as tj
>>> tj.linalg.solve(tj.asarray([[2.0, 0.0], [0.0, 4.0]]), tj.asarray([2.0, 4.0]))
NDArray([1., 1.], dtype=float32)
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

import numpy as np

from tracejit import ops
from tracejit.errors import ArgumentError, ShapeError, locate
from tracejit.frontend.arrays import dispatch, trees
from tracejit.frontend.arrays.axes import integer, normalize_axes, normalize_axis
from tracejit.frontend.arrays.core import ArrayCore
from tracejit.frontend.arrays.functions import linear, placing, reductions
from tracejit.frontend.arrays.functions.creation import asarray
from tracejit.frontend.arrays.functions.dtypes import finfo, result_type
from tracejit.frontend.arrays.functions.elementwise import FUNCTIONS, conj, where
from tracejit.frontend.arrays.functions.linear import matmul, tensordot, vecdot
from tracejit.frontend.arrays.functions.manipulation import broadcast_to, matrix_transpose, moveaxis
from tracejit.frontend.arrays.functions.ranges import eye, tril, triu
from tracejit.frontend.arrays.public import declare, names_of, public
from tracejit.frontend.recording.location import user_location
from tracejit.ir.types import HALVES, is_floating, is_inexact

if TYPE_CHECKING:
    from tracejit.frontend.arrays.ndarray import NDArray

F = TypeVar("F", bound=Callable[..., Any])
FLOAT32, FLOAT64, INT64 = map(np.dtype, ("float32", "float64", "int64"))
absolute, sqrt = FUNCTIONS["abs"], FUNCTIONS["sqrt"]


class EighResult(NamedTuple):
    """Eigenvalues in ascending order, eigenvectors in columns."""

    eigenvalues: Any
    eigenvectors: Any


class EigResult(NamedTuple):
    """Complex eigenvalues, eigenvectors in columns."""

    eigenvalues: Any
    eigenvectors: Any


class QRResult(NamedTuple):
    """Orthonormal columns and an upper triangular matrix."""

    Q: Any
    R: Any


class SlogdetResult(NamedTuple):
    """The sign of a determinant and the logarithm of its magnitude."""

    sign: Any
    logabsdet: Any


class SVDResult(NamedTuple):
    """Left singular vectors in columns, singular values, right singular vectors in rows."""

    U: Any
    S: Any
    Vh: Any


def _floating(name: str, x: Any) -> Any:
    array = dispatch.as_array(name, x)
    return array if is_inexact(array.dtype) else dispatch.cast(array, FLOAT64)


def _matrices(name: str, x: Any) -> Any:
    """Return `x` as floating matrices. Raises ShapeError for fewer than 2 dimensions."""
    array = _floating(name, x)
    if array.ndim < 2:
        raise _shape(f"{name}: needs a matrix, or a batch of them, got shape {array.shape}; reshape it")
    return array


def _square(name: str, x: Any) -> Any:
    array = _matrices(name, x)
    if array.shape[-1] != array.shape[-2]:
        raise _shape(f"{name}: needs square matrices, got shape {array.shape}")
    return array


def _shape(what: str) -> Exception:
    return locate(ShapeError(what), user_location())


def _argument(what: str) -> Exception:
    return locate(ArgumentError(what), user_location())


def _adjoint(x: Any) -> Any:
    return conj(matrix_transpose(x))


def _eps(x: Any) -> float:
    return float(finfo(x.dtype).eps)


def _accepts_halves(function: F) -> F:
    """Wrap `function` to accept half dtypes: it computes in float32, and the results are rounded.

    Complex results of real matrices are complex64.
    """

    @functools.wraps(function)
    def wrapper(*args: Any, **options: Any) -> Any:
        halves = [x.dtype in HALVES if isinstance(x, ArrayCore | np.ndarray) else False for x in args]
        if not any(halves):
            return function(*args, **options)
        dtype = result_type(*(x for x in args if isinstance(x, ArrayCore | np.ndarray)))
        widened = (asarray(x, FLOAT32) if half else x for x, half in zip(args, halves, strict=True))
        results = function(*widened, **options)
        return results if dtype not in HALVES else trees.map(lambda x: _narrow(x, dtype), results)

    return cast(F, wrapper)


def _narrow(x: Any, dtype: np.dtype) -> Any:
    """Cast float32 results to `dtype`; others are complex or integers, and unchanged."""
    return dispatch.cast(x, dtype) if x.dtype == FLOAT32 else x


# -- factorizations ------------------------------------------------------------------------------------------


@public
@_accepts_halves
def cholesky(x: Any, /, *, upper: bool = False) -> NDArray:
    """The triangular factor L of positive definite matrices ``x = L L^H``; with `upper` its adjoint.

    x: (..., n, n); only the lower triangle is read. The result has the same shape.
    Floating dtypes are preserved, integers become floating.
    Raises ShapeError for matrices that are not square, LinAlgError for matrices that are not positive
    definite. The gradient is that of Murray, Differentiation of the Cholesky decomposition (2016).

    >>> import tracejit as tj
    >>> tj.linalg.cholesky(tj.asarray([[4.0, 2.0], [2.0, 5.0]]))
    NDArray([[2., 0.],
             [1., 2.]], dtype=float32)
    """
    lower = dispatch.emit(ops.cholesky, _square("linalg.cholesky", x))
    return _adjoint(lower) if upper else lower


@public
@_accepts_halves
def qr(x: Any, /, mode: str = "reduced") -> Any:
    """``x = Q R`` with orthonormal columns of Q and upper triangular R: a named pair.

    x: (..., m, n). Mode "reduced": Q (..., m, k) and R (..., k, n) with k = min(m, n); "complete": k = m;
    "r": only R. Floating dtypes are preserved, integers become floating. The gradient is that of Walter and
    Lehmann (2010); mode "complete" of tall matrices has none.
    Raises ShapeError for fewer than 2 dimensions, ArgumentError for another mode.

    >>> import tracejit as tj
    >>> q, r = tj.linalg.qr(tj.asarray([[0.0, 2.0], [3.0, 0.0]]))
    >>> bool(tj.allclose(q @ r, tj.asarray([[0.0, 2.0], [3.0, 0.0]])))
    True
    """
    if mode not in ("reduced", "complete", "r"):
        raise _argument(f'linalg.qr: mode is "reduced", "complete" or "r", not {mode!r}')
    q, r = dispatch.emit(ops.qr, _matrices("linalg.qr", x), complete=mode == "complete")
    return r if mode == "r" else QRResult(q, r)


@public
@_accepts_halves
def svd(x: Any, /, full_matrices: bool = True, compute_uv: bool = True, hermitian: bool = False) -> Any:
    """``x = U diag(S) Vh``: a named triple, or without `compute_uv` only S.

    x: (..., m, n); U (..., m, m), S (..., k) in descending order and Vh (..., n, n), or without
    `full_matrices` U (..., m, k) and Vh (..., k, n), with k = min(m, n).
    Floating dtypes are preserved, integers become floating.
    Raises ShapeError for fewer than 2 dimensions, LinAlgError if it does not converge, ArgumentError for
    `hermitian` (use eigh). The gradient needs distinct singular values and ``full_matrices=False``.

    >>> import tracejit as tj
    >>> tj.linalg.svd(tj.asarray([[0.0, 2.0], [3.0, 0.0]])).S
    NDArray([3., 2.], dtype=float32)
    """
    if hermitian:
        raise _argument("linalg.svd: hermitian=True is not there; use linalg.eigh")
    array = _matrices("linalg.svd", x)
    if not compute_uv:
        return svdvals(array)
    return SVDResult(*dispatch.emit(ops.svd, array, full=bool(full_matrices)))


@public
@_accepts_halves
def svdvals(x: Any, /) -> NDArray:
    """Singular values in descending order: (..., min(m, n)) of matrices (..., m, n).

    The dtype is real; of complex matrices it is that of their real part.
    Raises ShapeError for fewer than 2 dimensions, LinAlgError if it does not converge.

    >>> import tracejit as tj
    >>> tj.linalg.svdvals(tj.asarray([[0.0, 2.0], [3.0, 0.0]]))
    NDArray([3., 2.], dtype=float32)
    """
    return dispatch.emit(ops.singular_values, _matrices("linalg.svdvals", x))


def _upper(name: str, UPLO: Any) -> bool:
    if UPLO not in ("L", "U", "l", "u"):
        raise _argument(f'{name}: UPLO is "L" or "U", not {UPLO!r}')
    return bool(UPLO in "Uu")


@public
@_accepts_halves
def eigh(x: Any, /, UPLO: str = "L") -> EighResult:
    """Eigenvalues (..., n), ascending, and eigenvectors (..., n, n) of Hermitian matrices: a named pair.

    UPLO: the triangle that is read, "L" or "U". Eigenvalues are real. Floating dtypes are preserved, integers
    become floating. The gradient needs distinct eigenvalues.
    Raises ShapeError for matrices that are not square, LinAlgError if it does not converge, ArgumentError for
    another `UPLO`.

    >>> import tracejit as tj
    >>> tj.linalg.eigh(tj.asarray([[2.0, 0.0], [0.0, 1.0]])).eigenvalues
    NDArray([1., 2.], dtype=float32)
    """
    array = _square("linalg.eigh", x)
    return EighResult(*dispatch.emit(ops.eigh, array, upper=_upper("linalg.eigh", UPLO)))


@public
@_accepts_halves
def eigvalsh(x: Any, /, UPLO: str = "L") -> NDArray:
    """Eigenvalues (..., n), ascending, of Hermitian matrices.

    The dtype is real; of complex matrices it is that of their real part.
    Raises what `eigh` raises.

    >>> import tracejit as tj
    >>> tj.linalg.eigvalsh(tj.asarray([[2.0, 0.0], [0.0, 1.0]]))
    NDArray([1., 2.], dtype=float32)
    """
    array = _square("linalg.eigvalsh", x)
    return dispatch.emit(ops.eigenvalues_hermitian, array, upper=_upper("linalg.eigvalsh", UPLO))


@public
@_accepts_halves
def eig(x: Any, /) -> EigResult:
    """Eigenvalues (..., n) and eigenvectors (..., n, n) of square matrices: a named pair, always complex.

    Raises ShapeError for matrices that are not square, LinAlgError if it does not converge. There is no
    gradient.

    >>> import tracejit as tj
    >>> tj.linalg.eig(tj.asarray([[0.0, 1.0], [-1.0, 0.0]])).eigenvalues
    NDArray([0.+1.j, 0.-1.j], dtype=complex64)
    """
    return EigResult(*dispatch.emit(ops.eig, _square("linalg.eig", x)))


@public
@_accepts_halves
def eigvals(x: Any, /) -> NDArray:
    """Eigenvalues (..., n) of square matrices, always complex.

    Raises what `eig` raises.

    >>> import tracejit as tj
    >>> tj.linalg.eigvals(tj.asarray([[0.0, 1.0], [-1.0, 0.0]]))
    NDArray([0.+1.j, 0.-1.j], dtype=complex64)
    """
    return eig(x).eigenvalues


# -- determinants, inverses, systems -------------------------------------------------------------------------


@public
@_accepts_halves
def slogdet(x: Any, /) -> SlogdetResult:
    """Sign and logarithm of the magnitude of determinants: a named pair of arrays (...).

    For a singular matrix they are 0 and minus infinity. The logarithm is real. Floating dtypes are preserved,
    integers become floating.
    Raises ShapeError for matrices that are not square.

    >>> import tracejit as tj
    >>> tj.linalg.slogdet(tj.asarray([[0.0, 1.0], [1.0, 0.0]])).sign
    NDArray(-1., dtype=float32)
    """
    return SlogdetResult(*dispatch.emit(ops.slogdet, _square("linalg.slogdet", x)))


@public
@_accepts_halves
def det(x: Any, /) -> NDArray:
    """Determinants (...) of square matrices (..., n, n), from `slogdet`.

    Floating dtypes are preserved, integers become floating.
    Raises ShapeError for matrices that are not square. The gradient needs nonsingular matrices.

    >>> import tracejit as tj
    >>> tj.linalg.det(tj.asarray([[0.0, 1.0], [1.0, 0.0]]))
    NDArray(-1., dtype=float32)
    """
    sign, log_magnitude = slogdet(x)
    return sign * FUNCTIONS["exp"](log_magnitude)


@public
@_accepts_halves
def inv(x: Any, /) -> NDArray:
    """Inverses of square matrices.

    The shape and floating dtypes are preserved; integers become floating.
    Raises ShapeError for matrices that are not square, LinAlgError for singular matrices.

    >>> import tracejit as tj
    >>> tj.linalg.inv(tj.asarray([[2.0, 0.0], [0.0, 4.0]]))
    NDArray([[0.5 , 0.  ],
             [0.  , 0.25]], dtype=float32)
    """
    return dispatch.emit(ops.inv, _square("linalg.inv", x))


@public
@_accepts_halves
def solve(x1: Any, x2: Any, /) -> NDArray:
    """The solution y of ``x1 y = x2``.

    x1: (..., n, n); x2: (n,), or (..., n, k); batches broadcast. The result has the shape of `x2`, broadcast.
    Floating dtypes are preserved, integers become floating.
    Raises ShapeError for incompatible shapes, LinAlgError for singular matrices.

    >>> import tracejit as tj
    >>> tj.linalg.solve(tj.asarray([[2.0, 0.0], [0.0, 4.0]]), tj.asarray([2.0, 4.0]))
    NDArray([1., 1.], dtype=float32)
    """
    a, b = _square("linalg.solve", x1), _floating("linalg.solve", x2)
    dtype = result_type(a, b)
    a, b = dispatch.cast(a, dtype), dispatch.cast(b, dtype)
    columns = b.reshape(*b.shape, 1) if b.ndim == 1 else b
    if columns.ndim < 2 or columns.shape[-2] != a.shape[-1]:
        raise _shape(f"linalg.solve: matrices of shape {a.shape} and right sides of shape {b.shape}")
    batch = _common("linalg.solve", a.shape[:-2], columns.shape[:-2])
    left = broadcast_to(a, (*batch, *a.shape[-2:]))
    result = dispatch.emit(ops.solve, left, broadcast_to(columns, (*batch, *columns.shape[-2:])))
    return result[..., 0] if b.ndim == 1 else result


@public
@_accepts_halves
def solve_triangular(
    a: Any, b: Any, /, trans: int = 0, lower: bool = False, unit_diagonal: bool = False
) -> NDArray:
    """The solution y of ``a y = b`` for a triangular matrix: one triangle of `a`; SciPy's function.

    a: (..., n, n); b: (n,), or (..., n, k). With `trans` 1 the system is that of the transpose of `a`, with 2
    that of its conjugate transpose. With `unit_diagonal` the diagonal is taken to be ones.
    It calls `solve`, so it costs an LU factorization, not only n**2 operations per column.
    Floating dtypes are preserved, integers become floating.
    Raises ShapeError for incompatible shapes, ArgumentError for another `trans`, LinAlgError for singular
    matrices.

    >>> import tracejit as tj
    >>> a = tj.asarray([[2.0, 9.0], [1.0, 4.0]])
    >>> tj.linalg.solve_triangular(a, tj.asarray([2.0, 5.0]), lower=True)
    NDArray([1., 1.], dtype=float32)
    """
    if trans not in (0, 1, 2):
        raise _argument(f"linalg.solve_triangular: expected trans 0, 1 or 2, got {trans!r}")
    array = _square("linalg.solve_triangular", a)
    triangle = (tril if lower else triu)(array)
    if unit_diagonal:
        ones = eye(array.shape[-1], dtype=array.dtype)
        triangle = where(ones == 1, ones, triangle)
    if trans:
        triangle = matrix_transpose(conj(triangle) if trans == 2 else triangle)
    return solve(triangle, b)


def _common(name: str, *shapes: tuple[int, ...]) -> tuple[int, ...]:
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        raise _shape(f"{name}: batches {shapes} do not broadcast") from None


@public
def pinv(x: Any, /, rcond: Any = None, hermitian: bool = False, *, rtol: Any = None) -> NDArray:
    """Pseudo-inverses (..., n, m) of matrices (..., m, n), by the singular value decomposition.

    Singular values below `rtol` (or `rcond`) times the largest one are treated as 0. The default is max(m, n)
    times the machine epsilon (NumPy's default for `rcond` is 1e-15). Floating dtypes are preserved, integers
    become floating.
    Raises ShapeError for fewer than 2 dimensions, ArgumentError for both bounds and for `hermitian`.

    >>> import tracejit as tj
    >>> tj.linalg.pinv(tj.asarray([[2.0], [0.0]]))
    NDArray([[0.5, 0. ]], dtype=float32)
    """
    if hermitian or (rcond is not None and rtol is not None):
        raise _argument("linalg.pinv: give rcond or rtol, not both; hermitian=True is not there")
    array = _matrices("linalg.pinv", x)
    if 0 in array.shape[-2:]:
        shape = (*array.shape[:-2], array.shape[-1], array.shape[-2])
        return dispatch.full(0, shape, array.dtype, array.device)
    bound = next((b for b in (rcond, rtol) if b is not None), max(array.shape[-2:]) * _eps(array))
    u, s, vh = svd(array, full_matrices=False)
    cutoff = _per_matrix(bound, s) * s.max(axis=-1, keepdims=True)
    is_kept = s > cutoff
    inverse = where(is_kept, 1 / where(is_kept, s, 1.0), 0.0)
    return matmul(_adjoint(vh), inverse.reshape(*s.shape, 1) * _adjoint(u))


def _per_matrix(bound: Any, s: Any) -> Any:
    """Expand a bound per matrix to broadcast with the singular values; a number is returned as is."""
    return dispatch.as_array("linalg", bound)[..., None] if getattr(bound, "ndim", 0) else bound


@public
def matrix_rank(x: Any, tol: Any = None, hermitian: bool = False, *, rtol: Any = None) -> NDArray:
    """The number of singular values above `tol`, or `rtol` times the largest (max(m, n) machine epsilons).

    x: (..., m, n); the result is int64 (...). Raises ArgumentError for both bounds and for `hermitian`.

    >>> import tracejit as tj
    >>> tj.linalg.matrix_rank(tj.asarray([[1.0, 2.0], [2.0, 4.0]]))
    NDArray(1, dtype=int64)
    """
    if hermitian or (tol is not None and rtol is not None):
        raise _argument("linalg.matrix_rank: give tol or rtol, not both; hermitian=True is not there")
    array = _floating("linalg.matrix_rank", x)
    if array.ndim < 2:
        return dispatch.cast((array != 0).any(), INT64)
    if 0 in array.shape[-2:]:
        return dispatch.full(0, array.shape[:-2], INT64, array.device)
    s = svdvals(array)
    if tol is None:
        relative = max(array.shape[-2:]) * _eps(array) if rtol is None else _per_matrix(rtol, s)
        cutoff = s.max(axis=-1, keepdims=True) * relative
    else:
        cutoff = _per_matrix(tol, s)
    return reductions.count_nonzero(s > cutoff, axis=-1)


@public
def lstsq(a: Any, b: Any, rcond: Any = None) -> tuple[NDArray, NDArray, NDArray, NDArray]:
    """The x of least norm that minimises ``|a x - b|``: (x, residuals, rank, singular values).

    a: (m, n); b: (m,) or (m, k). Singular values below `rcond` times the largest one are treated as 0. The
    residuals are squared norms, or empty if the rank is below n or m <= n. For m > n this needs a look at the
    rank, which makes a traced function piecewise.
    Floating dtypes are preserved, integers become floating.
    Raises ShapeError for incompatible shapes.

    >>> import tracejit as tj
    >>> tj.linalg.lstsq(tj.asarray([[1.0], [1.0]]), tj.asarray([1.0, 3.0]))[0].round(4)
    NDArray([2.], dtype=float32)
    """
    left, right = _matrices("linalg.lstsq", a), _floating("linalg.lstsq", b)
    if left.ndim != 2 or right.ndim not in (1, 2) or right.shape[0] != left.shape[0]:
        raise _shape(f"linalg.lstsq: a of shape {left.shape} and b of shape {right.shape} do not fit")
    dtype = result_type(left, right)
    left, right = dispatch.cast(left, dtype), dispatch.cast(right, dtype)
    m, n = left.shape
    bound = max(m, n) * _eps(left) if rcond is None or rcond < 0 else rcond
    columns = right.reshape(m, -1)
    u, s, vh = svd(left, full_matrices=False)
    is_kept = s > bound * s.max()
    inverse = where(is_kept, 1 / where(is_kept, s, 1.0), 0.0)
    solution = matmul(_adjoint(vh), inverse.reshape(-1, 1) * matmul(_adjoint(u), columns))
    rank = reductions.count_nonzero(is_kept)
    residuals = columns - matmul(left, solution)
    squared_norms = reductions.sum(absolute(residuals) ** 2, axis=0)
    if m <= n or int(rank) < n:
        squared_norms = squared_norms[:0]
    return (solution[:, 0] if right.ndim == 1 else solution), squared_norms, rank, s


@public
def tensorsolve(a: Any, b: Any, axes: Any = None) -> NDArray:
    """The x of ``tensordot(a, x, x.ndim) = b``.

    The leading dimensions of `a` are those of `b`, the trailing ones those of x, and both have equal numbers
    of elements. The dimensions `axes` of `a` are first moved to the end. Floating dtypes are preserved,
    integers become floating.
    Raises ShapeError for incompatible shapes, LinAlgError for a singular system.

    >>> import tracejit as tj
    >>> tj.linalg.tensorsolve(tj.eye(4).reshape(2, 2, 4), tj.ones((2, 2)))
    NDArray([1., 1., 1., 1.], dtype=float32)
    """
    left, right = _floating("linalg.tensorsolve", a), _floating("linalg.tensorsolve", b)
    for axis in axes or ():
        left = moveaxis(left, normalize_axis("linalg.tensorsolve", axis, left.ndim), -1)
    unknown = left.shape[right.ndim :]
    count = math.prod(unknown)
    if left.size != count * count or right.size != count:
        raise _shape(f"linalg.tensorsolve: a of shape {left.shape} is no square system for {right.shape}")
    return solve(left.reshape(count, count), right.reshape(-1)).reshape(unknown)


@public
def tensorinv(a: Any, ind: int = 2) -> NDArray:
    """The inverse of ``x -> tensordot(a, x, ind)``.

    The result has the dimensions of `a` from `ind` on, followed by the first `ind` ones.
    Floating dtypes are preserved, integers become floating.
    Raises ShapeError unless both groups have equal numbers of elements, LinAlgError for a singular tensor.

    >>> import tracejit as tj
    >>> tj.linalg.tensorinv(tj.eye(4).reshape(2, 2, 4)).shape
    (4, 2, 2)
    """
    array, split = _floating("linalg.tensorinv", a), integer("linalg.tensorinv: ind", ind)
    first, last = array.shape[:split], array.shape[split:]
    if split < 1 or math.prod(first) != math.prod(last):
        raise _shape(f"linalg.tensorinv: shape {array.shape} divided at {ind} is not square")
    return inv(array.reshape(math.prod(first), -1)).reshape(*last, *first)


# -- norms ---------------------------------------------------------------------------------------------------


def _vector_norm(x: Any, ord: Any, axes: tuple[int, ...], keepdims: bool) -> Any:
    """The norm of vectors over the axes."""
    total = functools.partial(reductions.sum, axis=axes, keepdims=keepdims)
    if ord is None or ord == 2:
        return sqrt(total(FUNCTIONS["square"](x) if is_floating(x.dtype) else absolute(x) ** 2))
    magnitude = absolute(x)
    if ord == math.inf:
        return reductions.max(magnitude, axis=axes, keepdims=keepdims)
    if ord == -math.inf:
        return reductions.min(magnitude, axis=axes, keepdims=keepdims)
    if ord == 0:
        return total(dispatch.cast(x != 0, magnitude.dtype))
    if ord == 1:
        return total(magnitude)
    return total(magnitude**ord) ** (1 / ord)


def _matrix_norm(name: str, x: Any, ord: Any, axes: tuple[int, int], keepdims: bool) -> Any:
    """The norm of matrices with rows and columns along the two axes."""
    row, column = axes
    if ord in (None, "fro"):
        result = _vector_norm(x, 2, axes, False)
    elif ord in (1, -1, math.inf, -math.inf):
        inner, outer = (row, column) if abs(ord) == 1 else (column, row)
        sums = reductions.sum(absolute(x), axis=inner, keepdims=True)
        extreme = reductions.max if ord > 0 else reductions.min
        result = extreme(sums, axis=(inner, outer))
    elif ord in (2, -2, "nuc"):
        s = svdvals(moveaxis(x, (row, column), (-2, -1)))
        result = s.sum(axis=-1) if ord == "nuc" else s.max(axis=-1) if ord == 2 else s.min(axis=-1)
    else:
        raise _argument(f'{name}: ord {ord!r} of matrices; it is "fro", "nuc", 1, 2, inf or their negatives')
    if not keepdims:
        return result
    return result.reshape(*(1 if a in axes else n for a, n in enumerate(x.shape)))


@public
def vector_norm(x: Any, /, *, axis: Any = None, keepdims: bool = False, ord: Any = 2) -> NDArray:
    """The norms of vectors along the axes (None: all): ``sum(|x|**ord)**(1 / ord)``.

    ord: a number; infinity means the largest, minus infinity the smallest magnitude, 0 the number of nonzero
    elements. The axes are removed, or with `keepdims` have the extent 1.
    The dtype is real; of complex vectors it is that of their real part.
    Raises AxisError for an axis out of range, ArgumentError for another `ord`.

    >>> import tracejit as tj
    >>> tj.linalg.vector_norm(tj.asarray([3.0, 4.0]))
    NDArray(5., dtype=float32)
    """
    array = _floating("linalg.vector_norm", x)
    if isinstance(ord, str) or ord is None:
        raise _argument(f"linalg.vector_norm: ord {ord!r} of vectors; give a number")
    return _vector_norm(array, ord, normalize_axes("linalg.vector_norm", axis, array.ndim), keepdims)


@public
def matrix_norm(x: Any, /, *, keepdims: bool = False, ord: Any = "fro") -> NDArray:
    """The norms (...) of matrices (..., m, n).

    ord: "fro", "nuc" (the sum of singular values), 2 and -2 (the largest and smallest of these), 1 and -1
    (the largest and smallest sum of a column), inf and -inf (of a row).
    The dtype is real; of complex matrices it is that of their real part.
    Raises ShapeError for fewer than 2 dimensions, ArgumentError for another `ord`.

    >>> import tracejit as tj
    >>> tj.linalg.matrix_norm(tj.asarray([[3.0, 0.0], [0.0, 4.0]]))
    NDArray(5., dtype=float32)
    """
    array = _matrices("linalg.matrix_norm", x)
    axes = (array.ndim - 2, array.ndim - 1)
    return _matrix_norm("linalg.matrix_norm", array, ord, axes, keepdims)


@public
def norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> NDArray:
    """The norm of vectors along one axis, or of matrices along two, as in NumPy.

    Without `axis` and `ord` it is the 2-norm of all elements; with `ord` alone the array must have one or two
    dimensions. See `vector_norm` and `matrix_norm` for `ord`. The dtype is real; of complex numbers it is
    that of their real part.
    Raises AxisError for an axis out of range, ArgumentError for another `ord` or number of axes.

    >>> import tracejit as tj
    >>> tj.linalg.norm(tj.asarray([[3.0, 4.0], [6.0, 8.0]]), axis=1)
    NDArray([ 5., 10.], dtype=float32)
    """
    array = _floating("linalg.norm", x)
    axes = tuple(range(array.ndim)) if axis is None else _ordered_axes(axis, array.ndim)
    if axis is None and ord is None:
        return _vector_norm(array, 2, axes, keepdims)
    if len(axes) == 1:
        if isinstance(ord, str):
            raise _argument(f"linalg.norm: ord {ord!r} of vectors; give a number")
        return _vector_norm(array, ord, axes, keepdims)
    if len(axes) != 2:
        raise _argument(f"linalg.norm: {len(axes)} axes; norms are of vectors (1) or matrices (2)")
    return _matrix_norm("linalg.norm", array, ord, (axes[0], axes[1]), keepdims)


def _ordered_axes(axis: Any, ndim: int) -> tuple[int, ...]:
    sequence = axis if isinstance(axis, (tuple, list)) else (axis,)
    normalize_axes("linalg.norm", tuple(sequence), ndim)  # raises for axes out of range or repeated
    return tuple(normalize_axis("linalg.norm", a, ndim) for a in sequence)


@public
def cond(x: Any, p: Any = None) -> NDArray:
    """The condition numbers (...) of matrices: the norm times the norm of the inverse.

    p: as `ord` of `matrix_norm`; None and 2 divide the largest by the smallest singular value.
    The dtype is real; of complex matrices it is that of their real part.
    Raises ShapeError for fewer than 2 dimensions, LinAlgError for singular ones (unless p is None, 2 or -2).

    >>> import tracejit as tj
    >>> tj.linalg.cond(tj.asarray([[2.0, 0.0], [0.0, 8.0]]))
    NDArray(4., dtype=float32)
    """
    array = _matrices("linalg.cond", x)
    if p in (None, 2, -2):
        s = svdvals(array)
        return s[..., -1] / s[..., 0] if p == -2 else s[..., 0] / s[..., -1]
    return matrix_norm(array, ord=p) * matrix_norm(inv(array), ord=p)


# -- products, diagonals -------------------------------------------------------------------------------------


@public
def matrix_power(x: Any, n: int, /) -> NDArray:
    """The `n`-th power of square matrices; negative powers are those of the inverse.

    The shape and dtype are unchanged; with a negative power integers become floating.
    Raises ShapeError for matrices that are not square, LinAlgError for negative powers of singular ones.

    >>> import tracejit as tj
    >>> tj.linalg.matrix_power(tj.asarray([[1, 1], [1, 0]]), 5)
    NDArray([[8, 5],
             [5, 3]], dtype=int64)
    """
    times = integer("linalg.matrix_power: n", n)
    array = dispatch.as_array("linalg.matrix_power", x)
    _square("linalg.matrix_power", array)
    base, times = (inv(array), -times) if times < 0 else (array, times)
    if not times:
        return broadcast_to(eye(base.shape[-1], dtype=base.dtype), base.shape).copy()
    result = None
    while times:
        if times & 1:
            result = base if result is None else matmul(result, base)
        times >>= 1
        base = matmul(base, base) if times else base
    assert result is not None
    return result


@public
def multi_dot(arrays: Sequence[Any]) -> NDArray:
    """The product of two or more matrices, in the order with the fewest multiplications.

    The first operand may be a row vector and the last one a column vector, of one dimension. Dynamic
    programming determines the order.
    The result has the common dtype.
    Raises ArgumentError for fewer than two, ShapeError for incompatible shapes.

    >>> import tracejit as tj
    >>> tj.linalg.multi_dot([tj.ones((2, 9)), tj.ones((9, 1)), tj.ones(1)])
    NDArray([9., 9.], dtype=float32)
    """
    operands = [dispatch.as_array("linalg.multi_dot", x) for x in arrays]
    if len(operands) < 2:
        raise _argument(f"linalg.multi_dot: {len(operands)} arrays; give at least two")
    has_row, has_column = operands[0].ndim == 1, operands[-1].ndim == 1
    matrices = [x.reshape(1, -1) if i == 0 and has_row else x for i, x in enumerate(operands)]
    matrices[-1] = matrices[-1].reshape(-1, 1) if has_column else matrices[-1]
    for left, right in itertools.pairwise(matrices):
        if left.ndim != 2 or right.ndim != 2 or left.shape[1] != right.shape[0]:
            raise _shape(f"linalg.multi_dot: shapes {[x.shape for x in operands]} do not fit")
    extents = [matrices[0].shape[0], *(x.shape[1] for x in matrices)]

    @functools.cache
    def best(i: int, j: int) -> tuple[int, int]:
        """Return the cost of the product of matrices i to j, and the last matrix of its left factor."""
        if i == j:
            return 0, i
        return min(
            (best(i, k)[0] + best(k + 1, j)[0] + extents[i] * extents[k + 1] * extents[j + 1], k)
            for k in range(i, j)
        )

    def product(i: int, j: int) -> Any:
        if i == j:
            return matrices[i]
        k = best(i, j)[1]
        return matmul(product(i, k), product(k + 1, j))

    result = product(0, len(matrices) - 1)
    result = result[0] if has_row else result
    return result[..., 0] if has_column else result


@public
def outer(x1: Any, x2: Any, /) -> NDArray:
    """The products of all elements of a vector (n,) with all elements of another one (m,): (n, m).

    The result has the common dtype.
    Raises ShapeError for other numbers of dimensions.

    >>> import tracejit as tj
    >>> tj.linalg.outer(tj.asarray([1, 2]), tj.asarray([3, 4]))
    NDArray([[3, 4],
             [6, 8]], dtype=int64)
    """
    a, b = dispatch.as_array("linalg.outer", x1), dispatch.as_array("linalg.outer", x2)
    if a.ndim != 1 or b.ndim != 1:
        raise _shape(f"linalg.outer: takes vectors, got shapes {a.shape} and {b.shape}")
    return linear.outer(a, b)


@public
def cross(x1: Any, x2: Any, /, *, axis: int = -1) -> NDArray:
    """The cross product of vectors of 3 elements along an axis.

    The result has the broadcast shape and the common dtype.
    Raises ShapeError for other extents, DTypeError for bools.

    >>> import tracejit as tj
    >>> tj.linalg.cross(tj.asarray([1, 0, 0]), tj.asarray([0, 1, 0]))
    NDArray([0, 0, 1], dtype=int64)
    """
    a, b = dispatch.as_array("linalg.cross", x1), dispatch.as_array("linalg.cross", x2)
    for x in (a, b):
        if x.shape[normalize_axis("linalg.cross", axis, x.ndim)] != 3:
            raise _shape(f"linalg.cross: 3 elements along axis {axis}, got shapes {a.shape} and {b.shape}")
    return linear.cross(a, b, axis=axis)


@public
def diagonal(x: Any, /, *, offset: int = 0) -> NDArray:
    """The diagonals (..., k) of matrices (..., m, n), `offset` above the main one.

    Raises ShapeError for fewer than 2 dimensions.

    >>> import tracejit as tj
    >>> tj.linalg.diagonal(tj.asarray([[1, 2], [3, 4]]))
    NDArray([1, 4], dtype=int64)
    """
    return placing.diagonal(x, offset, -2, -1)


@public
def trace(x: Any, /, *, offset: int = 0, dtype: Any = None) -> NDArray:
    """The sums (...) of the diagonals of matrices (..., m, n), `offset` above the main one.

    Raises ShapeError for fewer than 2 dimensions, DTypeError for an unsupported dtype.

    >>> import tracejit as tj
    >>> tj.linalg.trace(tj.asarray([[1, 2], [3, 4]]))
    NDArray(5, dtype=int64)
    """
    return reductions.sum(diagonal(x, offset=offset), axis=-1, dtype=dtype)


declare(
    __name__,
    matmul=matmul,
    matrix_transpose=matrix_transpose,
    tensordot=tensordot,
    vecdot=vecdot,
)
__all__ = names_of(__name__)
