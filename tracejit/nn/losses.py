"""Losses, under PyTorch's names: distances, and losses for two classes; `likelihoods` has multiple classes.

``reduction="mean"`` averages over all losses, "sum" adds them, "none" returns all of them. The formulas avoid
overflow, and derivatives are finite wherever the loss is finite.
"""

from __future__ import annotations

import math
from typing import Any

from tracejit import ops
from tracejit.frontend.arrays import dispatch
from tracejit.frontend.arrays.axes import normalize_axis
from tracejit.frontend.arrays.functions import reductions
from tracejit.frontend.arrays.functions.manipulation import broadcast_arrays
from tracejit.frontend.arrays.ndarray import NDArray
from tracejit.nn.activations import softplus
from tracejit.nn.common import REDUCTIONS, check_choice, check_shape, factor, floats, reduced, where


def _difference(name: str, x: Any, target: Any, reduction: str) -> Any:
    """Return x - target, after checking that the shapes are equal."""
    check_choice(name, "reduction", reduction, REDUCTIONS)
    array, expected = floats(name, x, target)
    check_shape(name, "target", expected, array.shape, "that of x")
    return array - expected


# ---- distances


def mse_loss(x: Any, target: Any, /, *, reduction: str = "mean") -> NDArray:
    """Return the squared difference of x and target, averaged by default.

    Raises ShapeError if shapes differ, ArgumentError for another `reduction`.

    >>> import tracejit as tj
    >>> tj.nn.mse_loss(tj.asarray([1.0, 2.0]), tj.asarray([1.0, 4.0]))
    NDArray(2., dtype=float32)
    """
    difference = _difference("nn.mse_loss", x, target, reduction)
    return reduced(difference * difference, reduction)


def l1_loss(x: Any, target: Any, /, *, reduction: str = "mean") -> NDArray:
    """Return the absolute difference of x and target, averaged by default.

    Raises ShapeError if shapes differ, ArgumentError for another `reduction`.

    >>> import tracejit as tj
    >>> tj.nn.l1_loss(tj.asarray([1.0, 2.0]), tj.asarray([1.0, 4.0]))
    NDArray(1., dtype=float32)
    """
    difference = _difference("nn.l1_loss", x, target, reduction)
    return reduced(dispatch.apply(ops.abs, difference), reduction)


def huber_loss(x: Any, target: Any, /, *, delta: Any = 1.0, reduction: str = "mean") -> NDArray:
    """Return half the squared difference up to `delta`, and a line of slope `delta` beyond. Huber, 1964.

    Raises ShapeError if shapes differ, ArgumentError for another `reduction`.

    >>> import tracejit as tj
    >>> tj.nn.huber_loss(tj.asarray([1.0, 2.0]), tj.asarray([2.0, 5.0]), reduction="none")
    NDArray([0.5, 2.5], dtype=float32)
    """
    return reduced(_huber(_difference("nn.huber_loss", x, target, reduction), delta), reduction)


def _huber(difference: Any, delta: Any) -> Any:
    distance = dispatch.apply(ops.abs, difference)
    return where(distance <= delta, difference * difference * 0.5, (distance - 0.5 * delta) * delta)


def smooth_l1_loss(x: Any, target: Any, /, *, beta: Any = 1.0, reduction: str = "mean") -> NDArray:
    """Return `huber_loss` with ``delta=beta``, divided by `beta`; it approaches `l1_loss` for small `beta`.

    Raises ShapeError if shapes differ, ArgumentError for another `reduction`.

    >>> import tracejit as tj
    >>> tj.nn.smooth_l1_loss(tj.asarray([1.0, 2.0]), tj.asarray([2.0, 5.0]), beta=2.0, reduction="none")
    NDArray([0.25, 2.  ], dtype=float32)
    """
    if type(beta) in (int, float) and beta == 0:
        return l1_loss(x, target, reduction=reduction)
    return reduced(_huber(_difference("nn.smooth_l1_loss", x, target, reduction), beta) / beta, reduction)


def cosine_similarity(x1: Any, x2: Any, /, *, axis: int = -1, epsilon: Any = 1e-8) -> NDArray:
    """Return the cosine of the angle between vectors along an axis; lengths are at least `epsilon`.

    Shapes broadcast. The result has the shape without the axis, and the common floating dtype.
    Raises ShapeError if shapes do not broadcast, AxisError for an axis out of range.

    >>> import tracejit as tj
    >>> tj.nn.cosine_similarity(tj.asarray([1.0, 0.0]), tj.asarray([3.0, 4.0]))
    NDArray(0.6, dtype=float32)
    """
    name = "nn.cosine_similarity"
    first, second = broadcast_arrays(*floats(name, x1, x2))
    position = normalize_axis(name, axis, first.ndim)
    product = reductions.sum(first * second, position)
    return product / (_length(first, position, epsilon) * _length(second, position, epsilon))


def _length(x: Any, axis: int, minimum: Any) -> Any:
    """Return the Euclidean length along an axis, but at least `minimum`; the derivative is 0 below that."""
    squares = reductions.sum(x * x, axis)
    return dispatch.apply(ops.sqrt, dispatch.apply(ops.maximum, squares, minimum * minimum))


# ---- two classes


def binary_cross_entropy(x: Any, target: Any, /, *, weight: Any = None, reduction: str = "mean") -> NDArray:
    """Return the cross entropy of probabilities x in [0, 1] with respect to targets in [0, 1].

    Logarithms are clipped to at least -100, as in PyTorch. Prefer `binary_cross_entropy_with_logits`. weight:
    a factor for each loss, which broadcasts, or None.
    Raises ShapeError if shapes differ, ArgumentError for another `reduction`.

    >>> import tracejit as tj
    >>> tj.nn.binary_cross_entropy(tj.asarray([0.5, 1.0]), tj.asarray([1.0, 1.0]), reduction="none")
    NDArray([ 0.6931472, -0.       ], dtype=float32)
    """
    name = "nn.binary_cross_entropy"
    check_choice(name, "reduction", reduction, REDUCTIONS)
    probability, expected = floats(name, x, target)
    check_shape(name, "target", expected, probability.shape, "that of x")
    losses = -(expected * _bounded_log(probability) + (1 - expected) * _bounded_log(1 - probability))
    return reduced(losses if weight is None else losses * factor(name, weight), reduction)


def _bounded_log(x: Any) -> Any:
    """Return log(x), clipped to at least -100; the derivative is 0 where it is clipped."""
    tiny = x <= math.exp(-100)
    return where(tiny, -100, dispatch.apply(ops.log, where(tiny, 1, x)))


def binary_cross_entropy_with_logits(
    x: Any, target: Any, /, *, weight: Any = None, pos_weight: Any = None, reduction: str = "mean"
) -> NDArray:
    """Return `binary_cross_entropy` of sigmoid(x), without overflow.

    weight: a factor for each loss; pos_weight: a factor for the term of target; both broadcast, or are None.
    Raises ShapeError if shapes differ, ArgumentError for another `reduction`.

    >>> import tracejit as tj
    >>> tj.nn.binary_cross_entropy_with_logits(tj.asarray([-100.0, 0.0]), tj.ones(2), reduction="none")
    NDArray([100.       ,   0.6931472], dtype=float32)
    """
    name = "nn.binary_cross_entropy_with_logits"
    check_choice(name, "reduction", reduction, REDUCTIONS)
    score, expected = floats(name, x, target)
    check_shape(name, "target", expected, score.shape, "that of x")
    if pos_weight is None:
        losses = softplus(score) - score * expected
    else:
        positive_factor = (factor(name, pos_weight) - 1) * expected + 1
        losses = (1 - expected) * score + positive_factor * softplus(-score)
    return reduced(losses if weight is None else losses * factor(name, weight), reduction)


__all__ = [
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
    "cosine_similarity",
    "huber_loss",
    "l1_loss",
    "mse_loss",
    "smooth_l1_loss",
]
