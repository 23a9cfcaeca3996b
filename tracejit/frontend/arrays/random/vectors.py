"""Multivariate distributions, and distributions of classes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracejit import ops
from tracejit.errors import ShapeError
from tracejit.frontend.arrays import dispatch, linalg
from tracejit.frontend.arrays.axes import normalize_axis
from tracejit.frontend.arrays.functions import reductions
from tracejit.frontend.arrays.functions.elementwise import where
from tracejit.frontend.arrays.functions.manipulation import broadcast_to, moveaxis
from tracejit.frontend.arrays.functions.movement import stack
from tracejit.frontend.arrays.random.rejection import binomial_number
from tracejit.frontend.arrays.random.request import (
    FLOAT64,
    Draw,
    accepts_size,
    check,
    check_at_least_zero,
    refuse,
)

if TYPE_CHECKING:
    from tracejit.frontend.arrays.ndarray import NDArray
    from tracejit.frontend.arrays.random.generator import Generator

METHODS = ("cholesky", "eigh", "svd")


@accepts_size
def multivariate_normal(
    mean: Any,
    cov: Any,
    shape: Any = None,
    dtype: Any = None,
    method: str = "cholesky",
    *,
    device: Any = None,
    generator: Generator | None = None,
) -> NDArray:
    """Normally distributed vectors: the mean plus a root of the covariance times standard normal numbers.

    mean: shape (..., n); cov: (..., n, n), symmetric.
    shape: the shape of the result without the last dimension.
    method: the factorization for the root: Cholesky's (`cov` must be positive definite), or that by
    eigenvalues or singular values (zero eigenvalues are allowed).
    Gradients with respect to both parameters are those of this function. float32 by default.
    Raises ArgumentError for a dtype that is not floating or an unknown method, ShapeError for incompatible
    shapes, LinAlgError for a covariance that is not positive definite.

    >>> import tracejit as tj
    >>> tj.random.multivariate_normal(tj.zeros(2), tj.eye(2), shape=5).shape
    (5, 2)
    """
    name = "random.multivariate_normal"
    centre, covariance = dispatch.as_array(name, mean), dispatch.as_array(name, cov)
    if centre.ndim < 1 or covariance.ndim < 2 or covariance.shape[-2:] != centre.shape[-1:] * 2:
        shapes = f"{centre.shape} and {covariance.shape}"
        raise refuse(
            f"{name}: expected a mean (..., n) and a cov (..., n, n), got shapes {shapes}", ShapeError
        )
    if method not in METHODS:
        raise refuse(f"{name}: unknown method {method!r}; expected one of {', '.join(METHODS)}")
    draw = Draw(
        *(name, shape, dtype, device, generator, centre[..., 0], covariance[..., 0, 0]),
        tail=centre.shape[-1:],
    )
    root = _root(dispatch.cast(covariance, draw.within), method)
    return draw.result((root @ draw.normal()[..., None])[..., 0] + dispatch.cast(centre, draw.within))


def _root(cov: Any, method: str) -> Any:
    """Return a matrix whose product with its transpose is `cov`."""
    if method == "cholesky":
        return linalg.cholesky(cov)
    if method == "eigh":
        values, vectors = linalg.eigh(cov)
    else:
        vectors, values, _ = linalg.svd(cov)
    return vectors * dispatch.apply(ops.sqrt, where(values > 0, values, 0.0))[..., None, :]


@accepts_size
def categorical(
    logits: Any,
    axis: int = -1,
    shape: Any = None,
    *,
    device: Any = None,
    generator: Generator | None = None,
) -> NDArray:
    """Classes, int64, with probabilities softmax(logits) along an axis.

    shape: the shape of the result, to which that of `logits` without the axis must broadcast (None: the
    latter). A class with logit -inf is never chosen.
    Method: the position of the largest sum of a logit and Gumbel noise (Gumbel, Statistical Theory of Extreme
    Values, 1954; `jax.random.categorical`).
    Raises AxisError for an axis out of range, ShapeError for shapes that do not broadcast.

    >>> import tracejit as tj
    >>> tj.random.categorical(tj.asarray([-tj.inf, 0.0, -tj.inf]), shape=3)
    NDArray([1, 1, 1], dtype=int64)
    """
    name = "random.categorical"
    scores = dispatch.as_array(name, logits)
    scores = moveaxis(scores, normalize_axis(name, axis, scores.ndim), -1)
    draw = Draw(name, shape, None, device, generator, scores[..., 0], tail=scores.shape[-1:])
    noise = -dispatch.apply(ops.log, -dispatch.apply(ops.log, draw.open_unit()))
    return reductions.argmax(scores + noise, axis=-1)


@accepts_size
def multinomial(
    n: Any,
    pvals: Any,
    shape: Any = None,
    dtype: Any = None,
    *,
    device: Any = None,
    generator: Generator | None = None,
) -> NDArray:
    """The number of outcomes of each class in `n` trials with these probabilities; int64 by default.

    n: a number or an array; pvals: shape (..., classes), with a sum of 1 along the last dimension.
    shape: the shape of the result without the last dimension.
    Method: binomial numbers for recursively halved sets of classes (Devroye 1986, chapter XI.1).
    Raises ArgumentError for a dtype that is not an integer dtype, a negative n, negative probabilities or a
    sum that is not 1; ShapeError for shapes that do not broadcast.

    >>> import tracejit as tj
    >>> x = tj.random.multinomial(20, tj.asarray([0.2, 0.3, 0.5]), shape=4)
    >>> x.shape, x.sum(axis=-1).tolist()
    ((4, 3), [20, 20, 20, 20])
    """
    name = "random.multinomial"
    probabilities = check_probabilities(name, "pvals", pvals)
    check_at_least_zero(name, "n", n)
    draw = Draw(name, shape, dtype, device, generator, n, probabilities[..., 0], kinds="iu")
    trials = broadcast_to(dispatch.as_array(name, draw.parameters[0]), draw.extents)
    classes = [probabilities[..., i] for i in range(probabilities.shape[-1])]
    outcomes = _outcomes(draw, dispatch.cast(trials, FLOAT64), classes)
    return draw.result(stack(outcomes, axis=-1))


def _outcomes(draw: Draw, trials: Any, probabilities: list[Any]) -> list[Any]:
    """Draw the number of outcomes of each class, given the number of trials for all these classes."""
    if len(probabilities) == 1:
        return [trials]
    middle = len(probabilities) // 2
    first = sum(probabilities[1:middle], probabilities[0])
    second = sum(probabilities[middle + 1 :], probabilities[middle])
    total = first + second
    share = where(total > 0, first / where(total > 0, total, 1.0), 0.5)
    in_first = binomial_number(draw, trials, share)
    return _outcomes(draw, in_first, probabilities[:middle]) + _outcomes(
        draw, trials - in_first, probabilities[middle:]
    )


def check_probabilities(name: str, what: str, p: Any) -> Any:
    """Return probabilities along the last dimension as a float64 array, checked for their range and sum."""
    array = dispatch.cast(dispatch.as_array(name, p), FLOAT64)
    if not array.ndim or not array.shape[-1]:
        raise refuse(
            f"{name}: expected {what} with at least one probability, got shape {array.shape}", ShapeError
        )
    check(name, what, array, lambda v: v >= 0, "of at least 0")
    check(name, f"a sum of {what}", reductions.sum(array, axis=-1), lambda v: abs(v - 1) < 1e-5, "of 1")
    return array


__all__ = ["categorical", "multinomial", "multivariate_normal"]
