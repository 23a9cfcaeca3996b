"""Polynomials as arrays of coefficients, the highest power first (NumPy's `poly1d` order)."""

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
    """The polynomial with coefficients `p` at `x`, by Horner's rule.

    p: of one dimension; x: of any shape, which the result has. The result has the common dtype.
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

    Coefficients of one dimension; the result is as long as the longer one. The result has the common dtype.
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

    Coefficients of one dimension; the result is as long as the longer one. The result has the common dtype.
    Raises ShapeError for coefficients of more dimensions.

    >>> import tracejit as tj
    >>> tj.polysub([1, 2], [1, 0, 0])
    NDArray([-1,  1,  2], dtype=int64)
    """
    a, b = _as_long("polysub", a1, a2)
    return a - b


def _as_long(name: str, a1: Any, a2: Any) -> tuple[Any, Any]:
    """Coefficients filled up with leading zeros to one length."""
    a, b = _coefficients(name, a1), _coefficients(name, a2)
    length = max(a.size, b.size)
    filled = [concat([_zeros(length - x.size, x), x]) if x.size < length else x for x in (a, b)]
    return filled[0], filled[1]


@public
def polymul(a1: Any, a2: Any) -> NDArray:
    """The product of two polynomials.

    Coefficients of one dimension, n and m of them; the result has n + m - 1. The result has the common dtype.
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
    """The `m`-th antiderivative of a polynomial, with constants of integration `k` (0).

    k: a number for all, or one for each integration. The result is `m` coefficients longer and floating.
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
    """The matrix of powers of the elements of `x`: falling ones, or `increasing`, `N` columns (square).

    x: of one dimension; small integers become int64.
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

    Coefficients of one dimension, the first of `v` not 0. The remainder has no leading zeros; for that it is
    looked at, and a traced function runs piecewise.
    Raises ShapeError for coefficients of more dimensions, ArgumentError for none.

    >>> import tracejit as tj
    >>> tj.polydiv(tj.asarray([3.0, 5.0, 2.0]), tj.asarray([2.0, 1.0]))
    (NDArray([1.5 , 1.75], dtype=float32), NDArray([0.25], dtype=float32))
    """
    a, b = (floating("polydiv", _coefficients("polydiv", p)) for p in (u, v))
    if not a.size or not b.size:
        raise locate(ArgumentError("polydiv: a polynomial has at least one coefficient"), user_location())
    dtype = result_type(a, b)
    rest, factors = dispatch.cast(a, dtype).copy(), []
    count = a.size - b.size + 1
    for k in range(count):
        factors.append(rest[k] / b[0])
        rest[k : k + b.size] -= factors[-1] * b
    quotient = stack(factors) if factors else _zeros(1, rest)
    close = np.isclose(rest.numpy(), 0, rtol=1e-14)
    leading = int(np.argmin(close)) if not close.all() else close.size - 1
    return quotient, rest[leading:]


@public
def poly(x: Any) -> NDArray:
    """The coefficients of the polynomial with these roots, or the characteristic one of a square matrix.

    The result, one longer than there are roots, is floating; of a real matrix it is real.
    Raises ShapeError for more dimensions and for matrices that are not square.

    >>> import tracejit as tj
    >>> tj.poly(tj.asarray([1.0, 2.0]))
    NDArray([ 1., -3.,  2.], dtype=float32)
    """
    given = floating("poly", asarray(x))
    if given.ndim == 2 and given.shape[0] == given.shape[1] and given.size:
        roots, _ = dispatch.emit(ops.eig, given)
    elif given.ndim <= 1:
        roots = given.reshape(-1)
    else:
        what = f"poly: takes roots in one dimension or a square matrix, got shape {given.shape}"
        raise locate(ShapeError(what), user_location())
    result = dispatch.full(1, (1,), roots.dtype, roots.device)
    for k in range(roots.size):
        factor = concat([dispatch.full(1, (1,), roots.dtype, roots.device), -roots[k : k + 1]])
        result = convolve(result, factor)
    is_real = given.ndim == 2 and given.dtype.kind == "f"
    found: NDArray = dispatch.emit(ops.real, result) if is_real and result.dtype.kind == "c" else result
    return found


@public
def roots(p: Any) -> NDArray:
    """The roots of a polynomial, complex: the eigenvalues of its companion matrix.

    Zeros in front of and behind the coefficients are looked for, so a traced function runs piecewise.
    Raises ShapeError for coefficients of more dimensions.

    >>> import tracejit as tj
    >>> tj.roots(tj.asarray([1.0, -3.0, 2.0])).real.round(4)
    NDArray([2., 1.], dtype=float32)
    """
    given = floating("roots", _coefficients("roots", p))
    places = np.flatnonzero(given.numpy())
    if not places.size:
        return dispatch.full(0, (0,), given.dtype, given.device)
    first, last = int(places[0]), int(places[-1])
    inner, zeros = given[first : last + 1], given.size - 1 - last
    count = inner.size - 1
    if not count:
        return _zeros(zeros, given)
    companion = dispatch.full(0, (count, count), given.dtype, given.device)
    companion[0] = -inner[1:] / inner[0]
    for k in range(count - 1):
        companion[k + 1, k] = 1
    found, _ = dispatch.emit(ops.eig, companion)
    return concat([found, _zeros(zeros, found)]) if zeros else found


@public
def polyfit(
    x: Any, y: Any, deg: int, rcond: None = None, full: bool = False, w: Any = None, cov: Any = False
) -> Any:
    """The polynomial of degree `deg` through points in the least squares sense, its highest power first.

    x: (m,); y: (m,), or (m, k) for k polynomials; w: weights of the differences, (m,). With `cov` a pair of
    the coefficients and their covariances, scaled by the squared differences but for ``cov="unscaled"``.
    Computed by a QR factorization of scaled powers. The result is floating.
    Raises ShapeError for points or weights that do not fit, ArgumentError for a negative `deg`, for fewer
    points than coefficients, `rcond` and `full`.

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
    found = inverse @ (q.T @ target)
    if not cov:
        return found
    base: Any = inverse @ inverse.T
    if cov != "unscaled":
        if points.size <= order:
            what = f'polyfit: covariances need more than {order} points; or give cov="unscaled"'
            raise locate(ArgumentError(what), user_location())
        rest = target - powers @ found
        factor = (rest * rest).sum(axis=0) / (points.size - order)
        base = base * factor if target.ndim == 1 else base[:, :, None] * factor
    return found, base
