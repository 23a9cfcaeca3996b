"""Functions for neural networks, composed of array functions so that they fuse with neighbouring operations.

Softmax, its logarithm and cross entropy over the last axis each become one kernel over rows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tracejit import ops
from tracejit.errors import ArgumentError, DTypeError, ShapeError, locate
from tracejit.frontend.arrays import dispatch, promotion, random
from tracejit.frontend.arrays.axes import integer, normalize_axes, normalize_axis
from tracejit.frontend.arrays.core import ArrayCore
from tracejit.frontend.arrays.functions import elementwise, reductions
from tracejit.frontend.arrays.functions.ranges import positions
from tracejit.frontend.arrays.ndarray import NDArray
from tracejit.frontend.recording.location import user_location

sigmoid = elementwise.sigmoid
tanh = elementwise.tanh


def _floating(name: str, x: Any) -> Any:
    """`x` as an array of a floating dtype."""
    array = dispatch.as_array(name, x)
    return dispatch.cast(array, promotion.floating(array.dtype))


def relu(x: Any, /) -> NDArray:
    """The positive part: x where it is above 0, else 0; nan stays nan. The gradient at 0 is 0.

    Shape and dtype stay.
    Raises ArgumentError for what is no array or number.

    >>> import tracejit as tj
    >>> tj.nn.relu(tj.asarray([-1.0, 2.0]))
    NDArray([0., 2.], dtype=float32)
    """
    array = dispatch.as_array("nn.relu", x)
    return dispatch.apply(ops.where, array <= 0, 0, array)


def gelu(x: Any, /, *, approximate: str = "none") -> NDArray:
    """x times the probability that a normal variable is below x; ``approximate="tanh"`` is a little faster.

    Hendrycks and Gimpel, Gaussian error linear units, 2016.
    Shape stays; floating dtypes stay, integers become floating.
    Raises ArgumentError for another `approximate`, or for what is no array or number.

    >>> import tracejit as tj
    >>> tj.nn.gelu(tj.asarray([0.0]))
    NDArray([0.], dtype=float32)
    """
    array = _floating("nn.gelu", x)
    if approximate == "none":
        return array * 0.5 * (dispatch.apply(ops.erf, array * math.sqrt(0.5)) + 1)
    if approximate == "tanh":
        inner = (array * array * array * 0.044715 + array) * math.sqrt(2 / math.pi)
        return array * 0.5 * (dispatch.apply(ops.tanh, inner) + 1)
    raise locate(
        ArgumentError(f'nn.gelu: approximate is "none" or "tanh", not {approximate!r}'), user_location()
    )


def _shifted(name: str, x: Any, axis: Any) -> tuple[Any, tuple[int, ...]]:
    """x minus its maximum over axes, through which no cotangent flows; and the axes."""
    array = _floating(name, x)
    axes = normalize_axes(name, axis, array.ndim)
    highest = dispatch.emit(ops.stop_gradient, reductions.max(array, axes, keepdims=True))
    return array - highest, axes


def softmax(x: Any, /, axis: int | Sequence[int] | None = -1) -> NDArray:
    """exp(x), divided by its sum over `axis`, without overflow.

    Shape stays; floating dtypes stay, integers become floating.
    Raises AxisError for an axis out of range or repeated, ArgumentError for what is no array or number.

    >>> import tracejit as tj
    >>> tj.nn.softmax(tj.asarray([1.0, 1.0]))
    NDArray([0.5, 0.5], dtype=float32)
    """
    shifted, axes = _shifted("nn.softmax", x, axis)
    powers = dispatch.apply(ops.exp, shifted)
    return powers / reductions.sum(powers, axes, keepdims=True)


def log_softmax(x: Any, /, axis: int | Sequence[int] | None = -1) -> NDArray:
    """The logarithm of `softmax`, accurate where that is small.

    Shape stays; floating dtypes stay, integers become floating.
    Raises AxisError for an axis out of range or repeated, ArgumentError for what is no array or number.

    >>> import tracejit as tj
    >>> tj.nn.log_softmax(tj.asarray([0.0, 0.0]))
    NDArray([-0.6931472, -0.6931472], dtype=float32)
    """
    shifted, axes = _shifted("nn.log_softmax", x, axis)
    powers = dispatch.apply(ops.exp, shifted)
    return shifted - dispatch.apply(ops.log, reductions.sum(powers, axes, keepdims=True))


def logsumexp(x: Any, /, axis: int | Sequence[int] | None = None, *, keepdims: bool = False) -> NDArray:
    """log(sum(exp(x))) over `axis` (all by default), without overflow; -inf where all elements are -inf.

    The result has the shape of `x` without the axes (extent 1 with `keepdims`).
    Raises AxisError for an axis out of range or repeated, ArgumentError for what is no array or number.

    >>> import tracejit as tj
    >>> tj.nn.logsumexp(tj.asarray([1000.0, 1000.0]))
    NDArray(1000.6932, dtype=float32)
    """
    array = _floating("nn.logsumexp", x)
    axes = normalize_axes("nn.logsumexp", axis, array.ndim)
    highest = dispatch.emit(ops.stop_gradient, reductions.max(array, axes, keepdims=True))
    highest = dispatch.apply(ops.where, dispatch.apply(ops.isfinite, highest), highest, 0)
    powers = dispatch.apply(ops.exp, array - highest)
    result = dispatch.apply(ops.log, reductions.sum(powers, axes, keepdims=True)) + highest
    return result if keepdims else ArrayCore.new(result._storage, result._view.drop(axes))


def _labels(name: str, labels: Any) -> Any:
    """Class numbers as an int64 array."""
    array = dispatch.as_array(name, labels)
    if array.dtype.kind not in "iu":
        raise locate(DTypeError(f"{name}: labels must be integers, not {array.dtype}"), user_location())
    return dispatch.cast(array, np.dtype("int64"))


def _hits(labels: Any, classes: int, axis: int) -> Any:
    """A mask, true where the position along the new dimension `axis` of extent `classes` is the label."""
    shape = (*labels.shape[:axis], classes, *labels.shape[axis:])
    wide = ArrayCore.new(labels._storage, labels._view.expand(axis).broadcast(shape))
    return positions(shape, axis, labels.device) == wide


def one_hot(labels: Any, num_classes: int, /, *, dtype: Any = None, axis: int = -1) -> NDArray:
    """A new dimension of extent `num_classes` with 1 at each label and 0 elsewhere (float32 by default).

    Labels outside 0 .. num_classes - 1 have zeros only.
    labels: integers of any shape.
    Raises DTypeError for other labels, AxisError for an axis out of range.

    >>> import tracejit as tj
    >>> tj.nn.one_hot(tj.asarray([1, 0]), 2)
    NDArray([[0., 1.],
             [1., 0.]], dtype=float32)
    """
    found = _labels("nn.one_hot", labels)
    place = normalize_axis("nn.one_hot", axis, found.ndim + 1)
    hits = _hits(found, integer("nn.one_hot: num_classes", num_classes), place)
    return dispatch.cast(
        hits, np.dtype("float32") if dtype is None else promotion.supported("nn.one_hot", dtype)
    )


def cross_entropy(logits: Any, labels: Any, /, *, axis: int = -1, reduction: str = "mean") -> NDArray:
    """The negative log-probability of the labels under softmax(logits); averaged over all rows by default.

    labels: class numbers (integers, of logits' shape without `axis`; one out of range raises
    OutOfBoundsError), or probabilities (floats, of logits' shape). reduction: "mean", "sum" or "none".
    Returns a floating scalar, or for "none" an array of logits' shape without `axis`.
    Raises ShapeError if shapes do not fit, DTypeError for bool labels, ArgumentError for another `reduction`.

    >>> import tracejit as tj
    >>> tj.nn.cross_entropy(tj.zeros((3, 2)), tj.asarray([0, 1, 1]))
    NDArray(0.6931472, dtype=float32)
    """
    if reduction not in ("mean", "sum", "none"):
        raise locate(
            ArgumentError(f'nn.cross_entropy: reduction is "mean", "sum" or "none", not {reduction!r}'),
            user_location(),
        )
    scores = _floating("nn.cross_entropy", logits)
    place = normalize_axis("nn.cross_entropy", axis, scores.ndim)
    targets = dispatch.as_array("nn.cross_entropy", labels)
    classes = scores.shape[place]
    expected = (
        scores.shape if targets.dtype.kind == "f" else (*scores.shape[:place], *scores.shape[place + 1 :])
    )
    if targets.shape != expected:
        raise locate(
            ShapeError(
                f"nn.cross_entropy: {targets.dtype} labels of shape {targets.shape} for logits of shape "
                f"{scores.shape}; expected {expected} (integers name classes, floats are probabilities)"
            ),
            user_location(),
        )
    if targets.dtype.kind == "f":
        losses = -reductions.sum(log_softmax(scores, place) * targets, place)
    else:
        losses = _label_losses(scores, _checked(_labels("nn.cross_entropy", targets), classes, place), place)
    if reduction == "none":
        return losses
    return reductions.mean(losses) if reduction == "mean" else reductions.sum(losses)


def _checked(labels: Any, classes: int, axis: int) -> Any:
    """`labels`, checked at run time for their range; a negative one must not count from the end."""
    outside = dispatch.apply(ops.where, labels < 0, labels - classes, labels)
    return dispatch.emit(ops.check_index, outside, extent=classes, axis=axis)


def _label_losses(scores: Any, labels: Any, axis: int) -> Any:
    """log(sum(exp(s))) - s[label], with s shifted to a maximum of 0, so that nothing overflows.

    The score at the label is a masked sum, not a gather, so that all of it is one pass over the rows.
    """
    shifted, axes = _shifted("nn.cross_entropy", scores, axis)
    total = reductions.sum(dispatch.apply(ops.exp, shifted), axes)
    hits = _hits(labels, scores.shape[axis], axis)
    at_label = reductions.sum(dispatch.apply(ops.where, hits, shifted, 0), axes)
    return dispatch.apply(ops.log, total) - at_label


def dropout(x: Any, rate: Any, /) -> NDArray:
    """Set each element to 0 with probability `rate` and divide the others by 1 - rate; for training only.

    0 <= rate < 1. The elements are chosen by the stream of x's device (see `tj.random`).
    Shape stays; floating dtypes stay, integers become floating.
    Raises ArgumentError for a rate outside [0, 1).

    >>> import tracejit as tj
    >>> tj.nn.dropout(tj.ones(3), 0.0)
    NDArray([1., 1., 1.], dtype=float32)
    """
    if not 0 <= rate < 1:
        raise locate(ArgumentError(f"nn.dropout: rate must be in [0, 1), got {rate}"), user_location())
    array = _floating("nn.dropout", x)
    kept = random.uniform(shape=array.shape, device=array.device) >= rate
    return dispatch.apply(ops.where, kept, array * (1 / (1 - rate)), 0)


__all__ = [
    "cross_entropy",
    "dropout",
    "gelu",
    "log_softmax",
    "logsumexp",
    "one_hot",
    "relu",
    "sigmoid",
    "softmax",
    "tanh",
]
