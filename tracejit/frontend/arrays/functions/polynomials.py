"""Polynomials as arrays of coefficients, the highest power first (NumPy's `poly1d` order)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracejit.errors import ArgumentError, ShapeError, locate
from tracejit.frontend.arrays import dispatch
from tracejit.frontend.arrays.axes import integer
from tracejit.frontend.arrays.functions.convolution import convolve
from tracejit.frontend.arrays.functions.creation import asarray
from tracejit.frontend.arrays.functions.movement import concat, stack
from tracejit.frontend.arrays.functions.pointwise import floating
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


def polyval(p: Any, x: Any) -> NDArray:
    """The polynomial with coefficients `p` at `x`, by Horner's rule.

    p: of one dimension; x: of any shape, which the result has.
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


def polyadd(a1: Any, a2: Any) -> NDArray:
    """The sum of two polynomials.

    Coefficients of one dimension; the result is as long as the longer one.
    Raises ShapeError for coefficients of more dimensions.

    >>> import tracejit as tj
    >>> tj.polyadd([1, 2], [1, 0, 0])
    NDArray([1, 1, 2], dtype=int64)
    """
    a, b = _as_long("polyadd", a1, a2)
    return a + b


def polysub(a1: Any, a2: Any) -> NDArray:
    """The difference of two polynomials.

    Coefficients of one dimension; the result is as long as the longer one.
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


def polymul(a1: Any, a2: Any) -> NDArray:
    """The product of two polynomials.

    Coefficients of one dimension, n and m of them; the result has n + m - 1.
    Raises ShapeError for coefficients of more dimensions, ArgumentError for none.

    >>> import tracejit as tj
    >>> tj.polymul([1, 1], [1, -1])
    NDArray([ 1,  0, -1], dtype=int64)
    """
    a, b = _coefficients("polymul", a1), _coefficients("polymul", a2)
    if not a.size or not b.size:
        raise locate(ArgumentError("polymul: a polynomial has at least one coefficient"), user_location())
    return convolve(a, b)


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


__all__ = ["polyadd", "polyder", "polyint", "polymul", "polysub", "polyval", "vander"]
