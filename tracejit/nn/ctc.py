"""Connectionist temporal classification: the likelihood of a sequence of labels under all its alignments.

Graves, Fernandez, Gomez and Schmidhuber, Connectionist temporal classification, 2006. An alignment assigns a
label or a blank to each step; consecutive equal labels count once. The label sequence is extended by blanks
between and around the labels. The forward variables, one per example and position in the extended sequence,
are updated step by step, as logarithms; a traced function contains every step.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tracejit import ops
from tracejit.frontend.arrays import dispatch
from tracejit.frontend.arrays.axes import integer
from tracejit.frontend.arrays.functions import reductions
from tracejit.frontend.arrays.functions.creation import full
from tracejit.frontend.arrays.functions.movement import concat, stack
from tracejit.frontend.arrays.functions.ranges import arange
from tracejit.frontend.arrays.ndarray import NDArray
from tracejit.nn.common import (
    REDUCTIONS,
    check_choice,
    check_dimensions,
    check_shape,
    floating,
    reduced,
    where,
)
from tracejit.nn.functional import class_numbers, in_range

NEVER = -1e30
"""The logarithm that represents a probability of 0; it is finite, so that differences are finite."""


def ctc_loss(
    log_probabilities: Any,
    labels: Any,
    input_lengths: Any,
    label_lengths: Any,
    /,
    *,
    blank: Any = 0,
    reduction: str = "mean",
    zero_infinity: bool = False,
) -> NDArray:
    """Return the negative log-likelihood of sequences of labels, summed over all alignments with the steps.

    log_probabilities: (steps, batch, classes), such as the result of `log_softmax`; labels: integers of shape
    (batch, longest); input_lengths, label_lengths: integers of shape (batch,), the numbers of valid steps and
    labels; blank: the class that represents no label. The loss of an example with too few steps for its
    labels is inf, or 0 with ``zero_infinity=True``. reduction: "sum", "none", or "mean", the average over
    examples of losses divided by their number of labels, as in PyTorch.

    Graves et al., Connectionist temporal classification, 2006, with logarithms.
    Raises ShapeError if a shape does not match, OutOfBoundsError for a label that is not a class, DTypeError
    for labels or lengths that are not integers, ArgumentError for another `reduction`.

    >>> import tracejit as tj
    >>> even = tj.nn.log_softmax(tj.zeros((2, 1, 2)))  # 3 of 4 alignments of two steps are one label
    >>> loss = tj.nn.ctc_loss(even, tj.asarray([[1]]), tj.asarray([2]), tj.asarray([1]))
    >>> round(float(tj.exp(-loss)), 6)
    0.75
    """
    name = "nn.ctc_loss"
    check_choice(name, "reduction", reduction, REDUCTIONS)
    steps = floating(name, log_probabilities)
    check_dimensions(name, "log_probabilities", steps, 3, "(steps, batch, classes)")
    count, batch, classes = steps.shape
    label_numbers, inputs, lengths = (class_numbers(name, x) for x in (labels, input_lengths, label_lengths))
    check_dimensions(name, "labels", label_numbers, 2, "(batch, longest)")
    for what, x, shape in (
        ("labels", label_numbers, (batch, label_numbers.shape[1])),
        ("input_lengths", inputs, (batch,)),
        ("label_lengths", lengths, (batch,)),
    ):
        check_shape(name, what, x, shape, "for the batch of log_probabilities")
    extended = _with_blanks(in_range(name, label_numbers, classes, 1), integer(f"{name}: blank", blank))
    emitted = steps[:, arange(batch, device=steps.device)[:, None], extended]  # (steps, batch, positions)
    likelihood = _likelihood(emitted, _skippable(extended), inputs, lengths, count)
    impossible = likelihood <= NEVER / 2
    losses = where(impossible, 0 if zero_infinity else np.inf, -likelihood)
    if reduction == "mean":
        losses = losses / dispatch.cast(dispatch.apply(ops.maximum, lengths, 1), losses.dtype)
    return reduced(losses, reduction)


def _with_blanks(labels: Any, blank: int) -> Any:
    """Insert blanks before, between and after labels: (batch, 2 * longest + 1)."""
    batch, longest = labels.shape
    blanks = full((batch, longest), blank, dtype=labels.dtype, device=labels.device)
    pairs = stack([blanks, labels], axis=2).reshape((batch, 2 * longest))
    return concat([pairs, full((batch, 1), blank, dtype=labels.dtype, device=labels.device)], axis=1)


def _skippable(extended: Any) -> Any:
    """Return a mask of the positions that an alignment may reach from two positions before: labels that
    differ from the preceding label.
    """
    batch, count = extended.shape
    odd = arange(2, count, device=extended.device) % 2 == 1
    differs = (extended[:, 2:] != extended[:, :-2]) & odd
    return concat([full((batch, min(2, count)), False, device=extended.device), differs], axis=1)


def _shifted(x: Any, by: int) -> Any:
    """Shift the forward variables by `by` positions."""
    batch, count = x.shape
    if count <= by:
        return full((batch, count), NEVER, dtype=x.dtype, device=x.device)
    return concat([full((batch, by), NEVER, dtype=x.dtype, device=x.device), x[:, :-by]], axis=1)


def _log_add(logarithms: list[Any]) -> Any:
    """Return the logarithm of the sum of the exponentials of several arrays."""
    highest = logarithms[0]
    for x in logarithms[1:]:
        highest = dispatch.apply(ops.maximum, highest, x)
    highest = dispatch.emit(ops.stop_gradient, highest)
    total: Any = 0
    for x in logarithms:
        total = dispatch.apply(ops.exp, x - highest) + total
    return dispatch.apply(ops.log, total) + highest


def _likelihood(emitted: Any, skippable: Any, inputs: Any, lengths: Any, count: int) -> Any:
    """Return the logarithm of the total probability of all alignments, for each example."""
    position = arange(emitted.shape[2], device=emitted.device)
    forward = where(
        position < 1, 0.0, full(emitted.shape[1:], NEVER, dtype=emitted.dtype, device=emitted.device)
    )
    for step in range(count):
        from_previous = _shifted(forward, 1)
        from_skipped = where(skippable, _shifted(forward, 2), NEVER) if step else from_previous
        updated = (
            _log_add([forward, from_previous, from_skipped] if step else [forward, from_previous])
            + emitted[step]
        )
        forward = where(inputs[:, None] > step, updated, forward)
    ends = (position == 2 * lengths[:, None]) | (position == 2 * lengths[:, None] - 1)
    return _log_sum(where(ends, forward, NEVER))


def _log_sum(logarithms: Any) -> Any:
    """Return the logarithm of the sum of exponentials over the last axis."""
    highest = dispatch.emit(ops.stop_gradient, reductions.max(logarithms, 1, keepdims=True))
    total = reductions.sum(dispatch.apply(ops.exp, logarithms - highest), 1)
    return dispatch.apply(ops.log, total) + highest[:, 0]


__all__ = ["ctc_loss"]
