"""Connectionist temporal classification: the likelihood of a sequence of labels under all its alignments.

Graves, Fernandez, Gomez and Schmidhuber, Connectionist temporal classification, 2006. An alignment gives each
step a label or a blank; labels of one run count once. The forward variables of all examples and all places of
the labels with blanks around them go through the steps in a loop, as logarithms: a traced function contains
every step.
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
"""The logarithm of a probability of 0 on the way, so that differences are finite."""


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
    """The negative log-likelihood of sequences of labels, however they are aligned with the steps.

    log_probabilities: (steps, batch, classes), such as `log_softmax` gives; labels: integers of shape (batch,
    longest); input_lengths, label_lengths: integers of shape (batch,), how many steps and labels count;
    blank: the class that stands for none. An example whose labels do not fit into its steps costs inf, with
    ``zero_infinity=True`` nothing. reduction: "sum", "none", or "mean", over examples, of losses divided by
    their numbers of labels, as in PyTorch.

    Graves et al., Connectionist temporal classification, 2006, with logarithms.
    Raises ShapeError if a shape does not fit, OutOfBoundsError for a label that is no class, DTypeError for
    labels or lengths that are no integers, ArgumentError for another `reduction`.

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
    found, inputs, lengths = (class_numbers(name, x) for x in (labels, input_lengths, label_lengths))
    check_dimensions(name, "labels", found, 2, "(batch, longest)")
    for what, x, shape in (
        ("labels", found, (batch, found.shape[1])),
        ("input_lengths", inputs, (batch,)),
        ("label_lengths", lengths, (batch,)),
    ):
        check_shape(name, what, x, shape, "for the batch of log_probabilities")
    places = _with_blanks(in_range(name, found, classes, 1), integer(f"{name}: blank", blank))
    emitted = steps[:, arange(batch, device=steps.device)[:, None], places]  # (steps, batch, places)
    likelihood = _likelihood(emitted, _skippable(places), inputs, lengths, count)
    impossible = likelihood <= NEVER / 2
    losses = where(impossible, 0 if zero_infinity else np.inf, -likelihood)
    if reduction == "mean":
        losses = losses / dispatch.cast(dispatch.apply(ops.maximum, lengths, 1), losses.dtype)
    return reduced(losses, reduction)


def _with_blanks(labels: Any, blank: int) -> Any:
    """Blanks before, between and after labels: (batch, 2 * longest + 1)."""
    batch, longest = labels.shape
    blanks = full((batch, longest), blank, dtype=labels.dtype, device=labels.device)
    pairs = stack([blanks, labels], axis=2).reshape((batch, 2 * longest))
    return concat([pairs, full((batch, 1), blank, dtype=labels.dtype, device=labels.device)], axis=1)


def _skippable(places: Any) -> Any:
    """A mask of places that an alignment may reach from two before: a label other than the last one."""
    batch, count = places.shape
    odd = arange(2, count, device=places.device) % 2 == 1
    differs = (places[:, 2:] != places[:, :-2]) & odd
    return concat([full((batch, min(2, count)), False, device=places.device), differs], axis=1)


def _moved(x: Any, by: int) -> Any:
    """The forward variables of places `by` before."""
    batch, count = x.shape
    if count <= by:
        return full((batch, count), NEVER, dtype=x.dtype, device=x.device)
    return concat([full((batch, by), NEVER, dtype=x.dtype, device=x.device), x[:, :-by]], axis=1)


def _add(logarithms: list[Any]) -> Any:
    """The logarithm of a sum of powers."""
    highest = logarithms[0]
    for x in logarithms[1:]:
        highest = dispatch.apply(ops.maximum, highest, x)
    highest = dispatch.emit(ops.stop_gradient, highest)
    total: Any = 0
    for x in logarithms:
        total = dispatch.apply(ops.exp, x - highest) + total
    return dispatch.apply(ops.log, total) + highest


def _likelihood(emitted: Any, skippable: Any, inputs: Any, lengths: Any, count: int) -> Any:
    """The logarithm of the probability of all alignments, for each example."""
    place = arange(emitted.shape[2], device=emitted.device)
    forward = where(
        place < 1, 0.0, full(emitted.shape[1:], NEVER, dtype=emitted.dtype, device=emitted.device)
    )
    for step in range(count):
        before = _moved(forward, 1)
        skipping = where(skippable, _moved(forward, 2), NEVER) if step else before
        now = _add([forward, before, skipping] if step else [forward, before]) + emitted[step]
        forward = where(inputs[:, None] > step, now, forward)
    ends = (place == 2 * lengths[:, None]) | (place == 2 * lengths[:, None] - 1)
    return _sum_of(where(ends, forward, NEVER))


def _sum_of(logarithms: Any) -> Any:
    """The logarithm of the sum of powers over the last axis."""
    highest = dispatch.emit(ops.stop_gradient, reductions.max(logarithms, 1, keepdims=True))
    total = reductions.sum(dispatch.apply(ops.exp, logarithms - highest), 1)
    return dispatch.apply(ops.log, total) + highest[:, 0]


__all__ = ["ctc_loss"]
