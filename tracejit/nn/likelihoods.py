"""Losses for multiple classes, with labels that are class numbers or probabilities, and divergences.

Scores are shifted to a maximum of 0 before exponentiation, so that nothing overflows. The score at a label is
a masked sum, not a gather, so that a loss is computed in a single pass over the rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tracejit import ops
from tracejit.errors import ArgumentError, ShapeError, locate
from tracejit.frontend.arrays import dispatch
from tracejit.frontend.arrays.axes import integer, normalize_axis
from tracejit.frontend.arrays.functions import reductions
from tracejit.frontend.arrays.functions.manipulation import reshape
from tracejit.frontend.arrays.ndarray import NDArray
from tracejit.frontend.arrays.promotion import is_zero
from tracejit.frontend.recording.location import user_location
from tracejit.ir.types import is_floating
from tracejit.nn.activations import log_softmax, shifted
from tracejit.nn.common import REDUCTIONS, check_choice, check_shape, floating, floats, reduced, where
from tracejit.nn.functional import class_numbers, hits, in_range


def cross_entropy(
    logits: Any,
    labels: Any,
    /,
    *,
    axis: int = -1,
    weight: Any = None,
    ignore_index: Any = None,
    label_smoothing: Any = 0.0,
    reduction: str = "mean",
) -> NDArray:
    """Return the negative log-probability of the labels under softmax(logits), averaged over rows by default.

    labels: class numbers (integers with the shape of the logits without `axis`; a number out of range raises
    OutOfBoundsError), or probabilities (floats with the shape of the logits). weight: a factor for each
    class, or None. ignore_index: a class number, possibly out of range, whose rows are ignored.
    label_smoothing: the fraction of the label's probability that is distributed over all classes (Szegedy et
    al., 2016). reduction: "mean", "sum" or "none"; for class numbers the mean is weighted, as in PyTorch.
    Returns a floating scalar, or for "none" an array of logits' shape without `axis`.
    Raises ShapeError if shapes do not match, DTypeError for bool labels, ArgumentError for another
    `reduction`.

    >>> import tracejit as tj
    >>> tj.nn.cross_entropy(tj.zeros((3, 2)), tj.asarray([0, 1, 1]))
    NDArray(0.6931472, dtype=float32)
    """
    name = "nn.cross_entropy"
    check_choice(name, "reduction", reduction, REDUCTIONS)
    scores = floating(name, logits)
    position = normalize_axis(name, axis, scores.ndim)
    targets = dispatch.as_array(name, labels)
    factors = None if weight is None else _class_weights(name, weight, scores.shape[position])
    if is_floating(targets.dtype):
        if ignore_index is not None:
            message = f"{name}: ignore_index is for class numbers; labels are {targets.dtype}, probabilities"
            raise locate(ArgumentError(message), user_location())
        _check_labels(name, targets, scores, scores.shape)
        return reduced(_soft_losses(scores, targets, factors, position, label_smoothing), reduction)
    _check_labels(name, targets, scores, _without(scores.shape, position))
    weighted = _WeightedLabels(name, targets, scores.shape[position], position, factors, ignore_index)
    losses = _label_losses(scores, weighted, position, label_smoothing)
    return weighted.reduced(losses, reduction)


def _without(shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
    return (*shape[:axis], *shape[axis + 1 :])


def _check_labels(name: str, labels: Any, scores: Any, expected: tuple[int, ...]) -> None:
    if labels.shape != expected:
        raise locate(
            ShapeError(
                f"{name}: {labels.dtype} labels of shape {labels.shape} for logits of shape "
                f"{scores.shape}; expected {expected} (integers name classes, floats are probabilities)"
            ),
            user_location(),
        )


def _class_weights(name: str, weight: Any, classes: int) -> Any:
    factors = floating(name, weight)
    check_shape(name, "weight", factors, (classes,), "one number for each class")
    return factors


class _WeightedLabels:
    """Checked class numbers, and the weights of the rows.

    labels:  int64, with a run-time check of their range; 0 in ignored rows.
    ignored: a mask of the ignored rows, or None.
    factors: a weight for each class, or None.
    """

    def __init__(
        self, name: str, labels: Any, classes: int, axis: int, factors: Any, ignore_index: Any
    ) -> None:
        numbers = class_numbers(name, labels)
        self.ignored = None
        if ignore_index is not None:
            self.ignored = numbers == integer(f"{name}: ignore_index", ignore_index)
            numbers = where(self.ignored, 0, numbers)
        self.labels = in_range(name, numbers, classes, axis)
        self.factors = factors

    def weights(self, dtype: np.dtype) -> Any:
        """Return the weight of each row, or None if all weights are 1."""
        if self.factors is None and self.ignored is None:
            return None
        if self.factors is None:
            return 1 - dispatch.cast(self.ignored, dtype)
        weights = dispatch.cast(dispatch.emit(ops.gather, self.factors, self.labels, axis=0), dtype)
        return weights if self.ignored is None else where(self.ignored, 0, weights)

    def reduced(self, losses: Any, reduction: str) -> Any:
        """Reduce the losses of the rows that are not ignored; the mean is weighted."""
        if self.ignored is not None:
            losses = where(self.ignored, 0, losses)
        weights = self.weights(losses.dtype) if reduction == "mean" else None
        if weights is None:
            return reduced(losses, reduction)
        return reductions.sum(losses) / reductions.sum(weights)


def _soft_losses(scores: Any, targets: Any, factors: Any, axis: int, smoothing: Any) -> Any:
    """Return the losses for labels that are probabilities."""
    logarithms = log_softmax(scores, axis)
    if factors is not None:
        logarithms = logarithms * _broadcast_along(factors, logarithms, axis)
    if not is_zero(smoothing):
        targets = targets * (1 - smoothing) + smoothing / scores.shape[axis]
    return -reductions.sum(logarithms * targets, axis)


def _label_losses(scores: Any, weighted: _WeightedLabels, axis: int, smoothing: Any) -> Any:
    """Return log(sum(exp(s))) - s[label], with s shifted to a maximum of 0 to avoid overflow.

    The score at the label is a masked sum, not a gather, so that this is a single pass over the rows.
    """
    scores_shifted, axes = shifted("nn.cross_entropy", scores, axis)
    total = dispatch.apply(ops.log, reductions.sum(dispatch.apply(ops.exp, scores_shifted), axes))
    at_label = reductions.sum(where(hits(weighted.labels, scores.shape[axis], axis), scores_shifted, 0), axes)
    losses = total - at_label
    if weighted.factors is not None:
        losses = losses * dispatch.emit(ops.gather, weighted.factors, weighted.labels, axis=0)
    if is_zero(smoothing):
        return losses
    return losses * (1 - smoothing) + _mean_loss(scores_shifted, total, weighted.factors, axis) * smoothing


def _mean_loss(scores: Any, total: Any, factors: Any, axis: int) -> Any:
    """Return the mean of the losses for all classes as labels."""
    if factors is None:
        return total - reductions.mean(scores, axis)
    return total * reductions.mean(factors) - reductions.mean(
        scores * _broadcast_along(factors, scores, axis), axis
    )


def _broadcast_along(factors: Any, array: Any, axis: int) -> Any:
    """Reshape a vector to broadcast against an array along an axis."""
    return reshape(factors, (-1, *(1,) * (array.ndim - axis - 1)))


def nll_loss(
    log_probabilities: Any,
    labels: Any,
    /,
    *,
    axis: int = -1,
    weight: Any = None,
    ignore_index: Any = None,
    reduction: str = "mean",
) -> NDArray:
    """Return the negative log-probabilities at the labels, averaged over all rows by default.

    labels: class numbers (integers, of the shape without `axis`; a number out of range raises
    OutOfBoundsError). weight, ignore_index, reduction: as in `cross_entropy`, which equals this function
    applied to `log_softmax`.
    Returns a floating scalar, or for "none" an array of the shape without `axis`.
    Raises ShapeError if shapes do not match, DTypeError for other labels, ArgumentError for another
    `reduction`.

    >>> import tracejit as tj
    >>> tj.nn.nll_loss(tj.asarray([[-1.0, -2.0], [-3.0, -4.0]]), tj.asarray([0, 1]))
    NDArray(2.5, dtype=float32)
    """
    name = "nn.nll_loss"
    check_choice(name, "reduction", reduction, REDUCTIONS)
    scores = floating(name, log_probabilities)
    position = normalize_axis(name, axis, scores.ndim)
    classes = scores.shape[position]
    factors = None if weight is None else _class_weights(name, weight, classes)
    targets = dispatch.as_array(name, labels)
    _check_labels(name, targets, scores, _without(scores.shape, position))
    weighted = _WeightedLabels(name, targets, classes, position, factors, ignore_index)
    losses = -reductions.sum(where(hits(weighted.labels, classes, position), scores, 0), position)
    if factors is not None:
        losses = losses * dispatch.emit(ops.gather, factors, weighted.labels, axis=0)
    return weighted.reduced(losses, reduction)


def kl_div(
    log_probabilities: Any, target: Any, /, *, log_target: bool = False, reduction: str = "mean"
) -> NDArray:
    """Return the terms of the Kullback-Leibler divergence, ``target * (log(target) - log_probabilities)``.

    target: probabilities, or their logarithms with ``log_target=True``. reduction: "mean", "sum", "none", or
    "batchmean", the sum divided by the first extent, which is the mathematical divergence.
    Raises ShapeError if shapes differ, ArgumentError for another `reduction`.

    >>> import tracejit as tj
    >>> tj.nn.kl_div(tj.zeros((1, 2)), tj.asarray([[0.0, 1.0]]), reduction="batchmean")
    NDArray(0., dtype=float32)
    """
    name = "nn.kl_div"
    check_choice(name, "reduction", reduction, (*REDUCTIONS, "batchmean"))
    logarithms, targets = floats(name, log_probabilities, target)
    check_shape(name, "target", targets, logarithms.shape, "that of the log-probabilities")
    if log_target:
        terms = dispatch.apply(ops.exp, targets) * (targets - logarithms)
    else:
        is_zero_target = targets == 0
        terms = where(
            is_zero_target,
            0,
            targets * (dispatch.apply(ops.log, where(is_zero_target, 1, targets)) - logarithms),
        )
    if reduction == "batchmean":
        return reductions.sum(terms) / logarithms.shape[0]
    return reduced(terms, reduction)


__all__ = ["cross_entropy", "kl_div", "nll_loss"]
