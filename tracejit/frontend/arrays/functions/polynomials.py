"""Polynomials as arrays of coefficients, highest power first (the order of NumPy's `poly1d`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tracejit import ops
from tracejit.errors import ArgumentError, ShapeError, locate
from tracejit.frontend.arrays import dispatch
from tracejit.frontend.arrays.axes import integer
from tracejit.frontend.arrays.functions.convolution import convolve
from tracejit.frontend.arrays.functions.creation import asarray
from tracejit.frontend.arrays.functions.dtypes import result_type
from tracejit.frontend.arrays.functions.movement import concat, stack
from tracejit.frontend.arrays.functions.pointwise import floating
from tracejit.frontend.arrays.functions.ranges import eye
from tracejit.frontend.arrays.public import public
from tracejit.frontend.recording.location import user_location

if TYPE_CHECKING:
    from tracejit.frontend.arrays.ndarray import NDArray


def _coefficients(name: str, p: Any) -> Any:
    array = asarray(p)
    if array.ndim > 1:
        what = f"{name}: coefficients have one dimension, got shape {array.shape}"
        raise locate(ShapeError(what), user_location())
    return array.reshape(-1)


def _zeros(count: int, like: Any) -> Any:
    return dispatch.full(0, (count,), like.dtype, like.device)


@public
def polyval(p: Any, x: Any) -> NDArray:
    """The values at `x` of the polynomial with coefficients `p`, by Horner's rule.

    p: one dimension; x: any shape, which is that of the result. The result has the common dtype.
    Raises ShapeError for coefficients of more dimensions.

    >>> import tracejit as tj
    >>> tj.polyval([1, 0, 2], tj.asarray([0, 1, 3]))
    NDArray([ 2,  3, 11], dtype=int64)
    """
    coefficients, points = _coefficients("polyval", p), asarray(x)
    result = points * 0
    for k in range(coefficients.shape[0]):
        result = result * points + coefficients[k]
    return result


@public
def polyadd(a1: Any, a2: Any) -> NDArray:
    """The sum of two polynomials.

    The coefficients have one dimension. The result has the length of the longer operand and the common dtype.
    Raises ShapeError for coefficients of more dimensions.

    >>> import tracejit as tj
    >>> tj.polyadd([1, 2], [1, 0, 0])
    NDArray([1, 1, 2], dtype=int64)
    """
    a, b = _as_long("polyadd", a1, a2)
    return a + b


@public
def polysub(a1: Any, a2: Any) -> NDArray:
    """The difference of two polynomials.

    The coefficients have one dimension. The result has the length of the longer operand and the common dtype.
    Raises ShapeError for coefficients of more dimensions.

    >>> import tracejit as tj
    >>> tj.polysub([1, 2], [1, 0, 0])
    NDArray([-1,  1,  2], dtype=int64)
    """
    a, b = _as_long("polysub", a1, a2)
    return a - b


def _as_long(name: str, a1: Any, a2: Any) -> tuple[Any, Any]:
    """Pad coefficients with leading zeros to equal lengths."""
    a, b = _coefficients(name, a1), _coefficients(name, a2)
    length = max(a.size, b.size)
    padded = [concat([_zeros(length - x.size, x), x]) if x.size < length else x for x in (a, b)]
    return padded[0], padded[1]


@public
def polymul(a1: Any, a2: Any) -> NDArray:
    """The product of two polynomials.

    For n and m coefficients, of one dimension, the result has n + m - 1, in the common dtype.
    Raises ShapeError for coefficients of more dimensions, ArgumentError for none.

    >>> import tracejit as tj
    >>> tj.polymul([1, 1], [1, -1])
    NDArray([ 1,  0, -1], dtype=int64)
    """
    a, b = _coefficients("polymul", a1), _coefficients("polymul", a2)
    if not a.size or not b.size:
        raise locate(ArgumentError("polymul: a polynomial has at least one coefficient"), user_location())
    return convolve(a, b)


@public
def polyder(p: Any, m: int = 1) -> NDArray:
    """The `m`-th derivative of a polynomial.

    The result is `m` coefficients shorter.
    Raises ShapeError for coefficients of more dimensions, ArgumentError for a negative `m`.

    >>> import tracejit as tj
    >>> tj.polyder([1, 1, 1, 1])
    NDArray([3, 2, 1], dtype=int64)
    """
    result = _coefficients("polyder", p)
    for _ in range(_times("polyder", m)):
        result = result[:-1] * asarray(list(range(result.size - 1, 0, -1)), dtype="int64")
    return result


@public
def polyint(p: Any, m: int = 1, k: Any = None) -> NDArray:
    """The `m`-th antiderivative of a polynomial, with constants of integration `k` (by default 0).

    k: a number for all integrations, or one for each. The result is `m` coefficients longer and floating.
    Raises ShapeError for coefficients of more dimensions, ArgumentError for a negative `m` or too few `k`.

    >>> import tracejit as tj
    >>> tj.polyint([3.0, 2.0, 1.0], k=5)
    NDArray([1., 1., 1., 5.], dtype=float32)
    """
    times = _times("polyint", m)
    result = floating("polyint", _coefficients("polyint", p))
    constants = asarray(0 if k is None else k).reshape(-1)
    if constants.size not in (1, times):
        what = f"polyint: {constants.size} constants for {times} integrations; give one, or one for each"
        raise locate(ArgumentError(what), user_location())
    for step in range(times):
        constant = dispatch.cast(constants[step % constants.size : step % constants.size + 1], result.dtype)
        powers = asarray(list(range(result.size, 0, -1)), dtype=result.dtype)
        result = concat([result / powers, constant])
    return result


def _times(name: str, m: Any) -> int:
    times = integer(f"{name}: m", m)
    if times < 0:
        raise locate(ArgumentError(f"{name}: m is {times}; it counts, 0 or more"), user_location())
    return times


@public
def vander(x: Any, N: int | None = None, increasing: bool = False) -> NDArray:
    """The Vandermonde matrix of `x`: decreasing (or `increasing`) powers in `N` columns, by default square.

    x: one dimension; small integers become int64.
    Raises ShapeError for more dimensions, ArgumentError for a negative number of columns.

    >>> import tracejit as tj
    >>> tj.vander(tj.asarray([2, 3]), 3)
    NDArray([[4, 2, 1],
             [9, 3, 1]], dtype=int64)
    """
    points = asarray(x)
    if points.ndim != 1:
        what = f"vander: points have one dimension, got shape {points.shape}"
        raise locate(ShapeError(what), user_location())
    columns = points.size if N is None else integer("vander: N", N)
    if columns < 0:
        raise locate(ArgumentError(f"vander: {columns} columns; give 0 or more"), user_location())
    if points.dtype.kind in "biu":
        points = dispatch.cast(points, asarray(0).dtype)
    if not columns:
        return dispatch.full(0, (points.size, 0), points.dtype, points.device)
    powers = [points * 0 + 1]
    while len(powers) < columns:
        powers.append(powers[-1] * points)
    return stack(powers if increasing else powers[::-1], axis=1)


@public
def polydiv(u: Any, v: Any) -> tuple[NDArray, NDArray]:
    """Quotient and remainder of two polynomials.

    The coefficients have one dimension; the first one of `v` must not be 0. The remainder has no leading
    zeros, which needs a look at it, so a traced function runs piecewise.
    Raises ShapeError for coefficients of more dimensions, ArgumentError for none.

    >>> import tracejit as tj
    >>> tj.polydiv(tj.asarray([3.0, 5.0, 2.0]), tj.asarray([2.0, 1.0]))
    (NDArray([1.5 , 1.75], dtype=float32), NDArray([0.25], dtype=float32))
    """
    a, b = (floating("polydiv", _coefficients("polydiv", p)) for p in (u, v))
    if not a.size or not b.size:
        raise locate(ArgumentError("polydiv: a polynomial has at least one coefficient"), user_location())
    dtype = result_type(a, b)
    remainder, factors = dispatch.cast(a, dtype).copy(), []
    count = a.size - b.size + 1
    for k in range(count):
        factors.append(remainder[k] / b[0])
        remainder[k : k + b.size] -= factors[-1] * b
    quotient = stack(factors) if factors else _zeros(1, remainder)
    is_zero = np.isclose(remainder.numpy(), 0, rtol=1e-14)
    leading = int(np.argmin(is_zero)) if not is_zero.all() else is_zero.size - 1
    return quotient, remainder[leading:]


@public
def poly(x: Any) -> NDArray:
    """The coefficients of the polynomial with these roots, or of the characteristic polynomial of a matrix.

    The result is floating, and one longer than the number of roots; for a real square matrix it is real.
    Raises ShapeError for more dimensions and for matrices that are not square.

    >>> import tracejit as tj
    >>> tj.poly(tj.asarray([1.0, 2.0]))
    NDArray([ 1., -3.,  2.], dtype=float32)
    """
    array = floating("poly", asarray(x))
    if array.ndim == 2 and array.shape[0] == array.shape[1] and array.size:
        roots, _ = dispatch.emit(ops.eig, array)
    elif array.ndim <= 1:
        roots = array.reshape(-1)
    else:
        what = f"poly: takes roots in one dimension or a square matrix, got shape {array.shape}"
        raise locate(ShapeError(what), user_location())
    result = dispatch.full(1, (1,), roots.dtype, roots.device)
    for k in range(roots.size):
        factor = concat([dispatch.full(1, (1,), roots.dtype, roots.device), -roots[k : k + 1]])
        result = convolve(result, factor)
    is_real = array.ndim == 2 and array.dtype.kind == "f"
    coefficients: NDArray = (
        dispatch.emit(ops.real, result) if is_real and result.dtype.kind == "c" else result
    )
    return coefficients


@public
def roots(p: Any) -> NDArray:
    """The roots of a polynomial, complex: the eigenvalues of its companion matrix.

    This is a look for leading and trailing zeros, so a traced function runs piecewise.
    Raises ShapeError for coefficients of more dimensions.

    >>> import tracejit as tj
    >>> tj.roots(tj.asarray([1.0, -3.0, 2.0])).real.round(4)
    NDArray([2., 1.], dtype=float32)
    """
    coefficients = floating("roots", _coefficients("roots", p))
    nonzeros = np.flatnonzero(coefficients.numpy())
    if not nonzeros.size:
        return dispatch.full(0, (0,), coefficients.dtype, coefficients.device)
    first, last = int(nonzeros[0]), int(nonzeros[-1])
    inner, zeros = coefficients[first : last + 1], coefficients.size - 1 - last
    count = inner.size - 1
    if not count:
        return _zeros(zeros, coefficients)
    companion = dispatch.full(0, (count, count), coefficients.dtype, coefficients.device)
    companion[0] = -inner[1:] / inner[0]
    for k in range(count - 1):
        companion[k + 1, k] = 1
    eigenvalues, _ = dispatch.emit(ops.eig, companion)
    return concat([eigenvalues, _zeros(zeros, eigenvalues)]) if zeros else eigenvalues


@public
def polyfit(
    x: Any, y: Any, deg: int, rcond: None = None, full: bool = False, w: Any = None, cov: Any = False
) -> Any:
    """The least squares polynomial of degree `deg` for points, highest power first.

    x: (m,); y: (m,), or (m, k) for k polynomials; w: weights of the residuals, (m,). With `cov` the result is
    a pair of the coefficients and their covariances, scaled by the squared residuals except for
    ``cov="unscaled"``.
    Method: a QR factorization of scaled powers. The result is floating.
    Raises ShapeError for points or weights of other shapes, ArgumentError for a negative `deg`, for fewer
    points than coefficients, and for `rcond` and `full`.

    >>> import tracejit as tj
    >>> tj.polyfit(tj.asarray([0.0, 1.0, 2.0]), tj.asarray([1.0, 3.0, 5.0]), 1).round(4)
    NDArray([2., 1.], dtype=float32)
    """
    points, values = floating("polyfit", asarray(x)), floating("polyfit", asarray(y))
    if points.ndim != 1 or values.ndim not in (1, 2) or values.shape[0] != points.size:
        what = f"polyfit: points of shape {points.shape} and values of shape {values.shape} do not fit"
        raise locate(ShapeError(what), user_location())
    if full or rcond is not None:
        what = "polyfit: full and rcond tell of a singular value decomposition, which is not made here"
        raise locate(ArgumentError(f"{what}; use tj.linalg.lstsq and tj.vander"), user_location())
    order = integer("polyfit: deg", deg) + 1
    if not 0 < order <= points.size:
        what = f"polyfit: degree {deg} through {points.size} points; it needs {order} or more, and 0 or more"
        raise locate(ArgumentError(what), user_location())
    dtype = result_type(points, values)
    powers, target = vander(dispatch.cast(points, dtype), order), dispatch.cast(values, dtype)
    if w is not None:
        weights = dispatch.cast(asarray(w), dtype)
        if weights.shape != points.shape:
            what = f"polyfit: weights of shape {weights.shape} for {points.size} points"
            raise locate(ShapeError(what), user_location())
        powers, target = (
            powers * weights[:, None],
            target * (weights if target.ndim == 1 else weights[:, None]),
        )
    scale = dispatch.apply(ops.sqrt, (powers * powers).sum(axis=0))
    q, r = dispatch.emit(ops.qr, powers / scale, complete=False)
    inverse = dispatch.emit(ops.solve, r, dispatch.cast(eye(order), dtype)) / scale[:, None]
    coefficients = inverse @ (q.T @ target)
    if not cov:
        return coefficients
    covariance: Any = inverse @ inverse.T
    if cov != "unscaled":
        if points.size <= order:
            what = f'polyfit: covariances need more than {order} points; or give cov="unscaled"'
            raise locate(ArgumentError(what), user_location())
        residuals = target - powers @ coefficients
        factor = (residuals * residuals).sum(axis=0) / (points.size - order)
        covariance = covariance * factor if target.ndim == 1 else covariance[:, :, None] * factor
    return coefficients, covariance
