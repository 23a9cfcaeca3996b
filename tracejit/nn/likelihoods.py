"""Losses of many classes: labels that are class numbers or probabilities; divergence of distributions.

Scores are shifted to a maximum of 0 before they are raised to powers, so that nothing overflows. The score at
a label is a masked sum, not a gather, so that all of a loss is one pass over the rows.
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
    """The negative log-probability of the labels under softmax(logits); averaged over all rows by default.

    labels: class numbers (integers, of logits' shape without `axis`; one out of range raises
    OutOfBoundsError), or probabilities (floats, of logits' shape). weight: a factor for each class, or None.
    ignore_index: a class number, maybe out of range, of rows that do not count. label_smoothing: the share of
    the labels that is spread over all classes (Szegedy et al., 2016). reduction: "mean", "sum" or "none"; the
    mean of class numbers' losses is weighted, as in PyTorch.
    Returns a floating scalar, or for "none" an array of logits' shape without `axis`.
    Raises ShapeError if shapes do not fit, DTypeError for bool labels, ArgumentError for another `reduction`.

    >>> import tracejit as tj
    >>> tj.nn.cross_entropy(tj.zeros((3, 2)), tj.asarray([0, 1, 1]))
    NDArray(0.6931472, dtype=float32)
    """
    name = "nn.cross_entropy"
    check_choice(name, "reduction", reduction, REDUCTIONS)
    scores = floating(name, logits)
    place = normalize_axis(name, axis, scores.ndim)
    targets = dispatch.as_array(name, labels)
    factors = None if weight is None else _class_weights(name, weight, scores.shape[place])
    if is_floating(targets.dtype):
        if ignore_index is not None:
            message = f"{name}: ignore_index is for class numbers; labels are {targets.dtype}, probabilities"
            raise locate(ArgumentError(message), user_location())
        _check_labels(name, targets, scores, scores.shape)
        return reduced(_soft_losses(scores, targets, factors, place, label_smoothing), reduction)
    _check_labels(name, targets, scores, _without(scores.shape, place))
    counted = _Counted(name, targets, scores.shape[place], place, factors, ignore_index)
    losses = _label_losses(scores, counted, place, label_smoothing)
    return counted.reduced(losses, reduction)


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


class _Counted:
    """Class numbers in range, and how much each row counts.

    labels:  int64, checked; 0 in rows that are ignored.
    ignored: a mask of these rows, or None.
    factors: a weight for each class, or None.
    """

    def __init__(
        self, name: str, labels: Any, classes: int, axis: int, factors: Any, ignore_index: Any
    ) -> None:
        found = class_numbers(name, labels)
        self.ignored = None
        if ignore_index is not None:
            self.ignored = found == integer(f"{name}: ignore_index", ignore_index)
            found = where(self.ignored, 0, found)
        self.labels = in_range(name, found, classes, axis)
        self.factors = factors

    def weights(self, dtype: np.dtype) -> Any:
        """The weight of each row; None if all count alike."""
        if self.factors is None and self.ignored is None:
            return None
        if self.factors is None:
            return 1 - dispatch.cast(self.ignored, dtype)
        found = dispatch.cast(dispatch.emit(ops.gather, self.factors, self.labels, axis=0), dtype)
        return found if self.ignored is None else where(self.ignored, 0, found)

    def reduced(self, losses: Any, reduction: str) -> Any:
        """Losses without those of ignored rows; their mean is weighted."""
        if self.ignored is not None:
            losses = where(self.ignored, 0, losses)
        weights = self.weights(losses.dtype) if reduction == "mean" else None
        if weights is None:
            return reduced(losses, reduction)
        return reductions.sum(losses) / reductions.sum(weights)


def _soft_losses(scores: Any, targets: Any, factors: Any, axis: int, smoothing: Any) -> Any:
    """Losses of probabilities as labels."""
    found = log_softmax(scores, axis)
    if factors is not None:
        found = found * _beside(factors, found, axis)
    if not is_zero(smoothing):
        targets = targets * (1 - smoothing) + smoothing / scores.shape[axis]
    return -reductions.sum(found * targets, axis)


def _label_losses(scores: Any, counted: _Counted, axis: int, smoothing: Any) -> Any:
    """log(sum(exp(s))) - s[label], with s shifted to a maximum of 0, so that nothing overflows.

    The score at the label is a masked sum, not a gather, so that all of it is one pass over the rows.
    """
    found, axes = shifted("nn.cross_entropy", scores, axis)
    total = dispatch.apply(ops.log, reductions.sum(dispatch.apply(ops.exp, found), axes))
    at_label = reductions.sum(where(hits(counted.labels, scores.shape[axis], axis), found, 0), axes)
    losses = total - at_label
    if counted.factors is not None:
        losses = losses * dispatch.emit(ops.gather, counted.factors, counted.labels, axis=0)
    if is_zero(smoothing):
        return losses
    return losses * (1 - smoothing) + _mean_loss(found, total, counted.factors, axis) * smoothing


def _mean_loss(found: Any, total: Any, factors: Any, axis: int) -> Any:
    """The mean loss over all classes as labels."""
    if factors is None:
        return total - reductions.mean(found, axis)
    return total * reductions.mean(factors) - reductions.mean(found * _beside(factors, found, axis), axis)


def _beside(factors: Any, array: Any, axis: int) -> Any:
    """A vector along an axis of an array, shaped to broadcast against it."""
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
    """The negative of the log-probabilities at the labels; averaged over all rows by default.

    labels: class numbers (integers, of the shape without `axis`; one out of range raises OutOfBoundsError).
    weight, ignore_index, reduction: as in `cross_entropy`, which is this of `log_softmax`.
    Returns a floating scalar, or for "none" an array of the shape without `axis`.
    Raises ShapeError if shapes do not fit, DTypeError for other labels, ArgumentError for another
    `reduction`.

    >>> import tracejit as tj
    >>> tj.nn.nll_loss(tj.asarray([[-1.0, -2.0], [-3.0, -4.0]]), tj.asarray([0, 1]))
    NDArray(2.5, dtype=float32)
    """
    name = "nn.nll_loss"
    check_choice(name, "reduction", reduction, REDUCTIONS)
    found = floating(name, log_probabilities)
    place = normalize_axis(name, axis, found.ndim)
    classes = found.shape[place]
    factors = None if weight is None else _class_weights(name, weight, classes)
    targets = dispatch.as_array(name, labels)
    _check_labels(name, targets, found, _without(found.shape, place))
    counted = _Counted(name, targets, classes, place, factors, ignore_index)
    losses = -reductions.sum(where(hits(counted.labels, classes, place), found, 0), place)
    if factors is not None:
        losses = losses * dispatch.emit(ops.gather, factors, counted.labels, axis=0)
    return counted.reduced(losses, reduction)


def kl_div(
    log_probabilities: Any, target: Any, /, *, log_target: bool = False, reduction: str = "mean"
) -> NDArray:
    """The Kullback-Leibler divergence's terms, ``target * (log(target) - log_probabilities)``.

    target: probabilities, or their logarithms with ``log_target=True``. reduction: "mean", "sum", "none", or
    "batchmean", the sum divided by the first extent, which is the divergence's definition.
    Raises ShapeError if shapes differ, ArgumentError for another `reduction`.

    >>> import tracejit as tj
    >>> tj.nn.kl_div(tj.zeros((1, 2)), tj.asarray([[0.0, 1.0]]), reduction="batchmean")
    NDArray(0., dtype=float32)
    """
    name = "nn.kl_div"
    check_choice(name, "reduction", reduction, (*REDUCTIONS, "batchmean"))
    found, wanted = floats(name, log_probabilities, target)
    check_shape(name, "target", wanted, found.shape, "that of the log-probabilities")
    if log_target:
        terms = dispatch.apply(ops.exp, wanted) * (wanted - found)
    else:
        none = wanted == 0
        terms = where(none, 0, wanted * (dispatch.apply(ops.log, where(none, 1, wanted)) - found))
    if reduction == "batchmean":
        return reductions.sum(terms) / found.shape[0]
    return reduced(terms, reduction)


__all__ = ["cross_entropy", "kl_div", "nll_loss"]
