"""Schedules: learning rates as functions of the step, counted from 0.

For a Python number as the step, a schedule returns a float. For a traced step it returns a zero-dimensional
float32 array, so that a traced function contains the schedule and is not retraced for other steps.

>>> [cosine(step, 4, 1.0) for step in (0, 2, 4, 5)]
[1.0, 0.5, 0.0, 0.0]
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tracejit.errors import ArgumentError, locate
from tracejit.frontend.arrays.core import ArrayCore
from tracejit.frontend.arrays.functions import elementwise
from tracejit.frontend.recording.location import user_location
from tracejit.frontend.recording.number import NumberProxy


def _schedule(step: Any, formula: Callable[[Any, Any], Any]) -> Any:
    """Return ``formula(functions, step)``, with NumPy's functions for a number, else with array functions."""
    traced = type(step) is NumberProxy or isinstance(step, ArrayCore)
    return formula(elementwise, step * 1.0) if traced else float(formula(np, float(step)))


def _positive(name: str, what: str, value: Any) -> None:
    if not value > 0:
        raise locate(ArgumentError(f"optim.{name}: {what} must be above 0, got {value}"), user_location())


def linear(step: Any, steps: Any, start: Any, end: Any = 0.0) -> Any:
    """Return a linear schedule from `start` to `end` in `steps` steps, and `end` afterwards.

    Returns a float, or a traced scalar array for a traced step.
    Raises ArgumentError if `steps` is not positive.

    >>> import tracejit as tj
    >>> [tj.optim.linear(step, 4, 1.0) for step in (0, 1, 9)]
    [1.0, 0.75, 0.0]
    """
    _positive("linear", "steps", steps)
    return _schedule(step, lambda xp, t: start + (end - start) * xp.minimum(t / steps, 1.0))


def warm_up(step: Any, steps: Any, start: Any = 0.0) -> Any:
    """Return a factor that grows linearly from `start` to 1 in `steps` steps, for another schedule.

    Goyal et al., Accurate, large minibatch SGD, 2017.
    Returns a float, or a traced scalar array for a traced step.
    Raises ArgumentError if `steps` is not positive.

    >>> import tracejit as tj
    >>> [tj.optim.warm_up(step, 4) for step in (0, 1, 4, 9)]
    [0.0, 0.25, 1.0, 1.0]
    """
    _positive("warm_up", "steps", steps)
    return linear(step, steps, start, 1.0)


def _half_cosine(xp: Any, start: Any, end: Any, fraction: Any) -> Any:
    """Interpolate between `start` and `end` along half a period of the cosine."""
    return end + (start - end) * (xp.cos(fraction * math.pi) + 1.0) * 0.5


def cosine(step: Any, steps: Any, start: Any, end: Any = 0.0) -> Any:
    """Return a schedule from `start` to `end` along half a cosine period, in `steps` steps, then `end`.

    Loshchilov and Hutter, SGDR, 2017.
    Returns a float, or a traced scalar array for a traced step.
    Raises ArgumentError if `steps` is not positive.

    >>> import tracejit as tj
    >>> tj.optim.cosine(50, 100, 0.5)
    0.25
    """
    _positive("cosine", "steps", steps)
    return _schedule(step, lambda xp, t: _half_cosine(xp, start, end, xp.minimum(t / steps, 1.0)))


def exponential(step: Any, start: Any, factor: Any, every: Any = 1) -> Any:
    """Return ``start * factor ** (step / every)``.

    Returns a float, or a traced scalar array for a traced step.
    Raises ArgumentError if `every` is not positive.

    >>> import tracejit as tj
    >>> tj.optim.exponential(6, 1.0, 0.5, every=3)
    0.25
    """
    _positive("exponential", "every", every)
    return _schedule(step, lambda xp, t: start * factor ** (t / every))


def step_decay(step: Any, start: Any, factor: Any, every: Any) -> Any:
    """Return ``start * factor ** (step // every)``, which decreases every `every` steps.

    Returns a float, or a traced scalar array for a traced step.
    Raises ArgumentError if `every` is not positive.

    >>> import tracejit as tj
    >>> [tj.optim.step_decay(step, 1.0, 0.5, 10) for step in (0, 9, 10, 25)]
    [1.0, 1.0, 0.5, 0.25]
    """
    _positive("step_decay", "every", every)
    return _schedule(step, lambda xp, t: start * factor ** (t // every))


def piecewise_constant(step: Any, boundaries: Sequence[Any], values: Sequence[Any]) -> Any:
    """Return the first value before the first boundary, the second value from there on, and so on.

    boundaries: increasing steps, one fewer than values.
    Returns a float, or a traced scalar array for a traced step.
    Raises ArgumentError for other numbers of values.

    >>> import tracejit as tj
    >>> [tj.optim.piecewise_constant(step, (10, 20), (1.0, 0.5, 0.1)) for step in (9, 10, 20)]
    [1.0, 0.5, 0.1]
    """
    if len(values) != len(boundaries) + 1:
        message = f"optim.piecewise_constant: {len(values)} values for {len(boundaries)} boundaries; one more"
        raise locate(ArgumentError(message), user_location())

    def formula(xp: Any, t: Any) -> Any:
        result = values[0]
        for boundary, value in zip(boundaries, values[1:], strict=True):
            result = xp.where(xp.greater_equal(t, boundary), value, result)
        return result

    return _schedule(step, formula)


def one_cycle(
    step: Any,
    steps: Any,
    highest: Any,
    *,
    rising: float = 0.3,
    start_divisor: float = 25.0,
    end_divisor: float = 1e4,
) -> Any:
    """Return a schedule from ``highest / start_divisor`` up to `highest`, then down to ``highest /
    start_divisor / end_divisor``.

    Both phases follow half a cosine period; the first takes the fraction `rising` of the steps. Smith and
    Topin, Super-convergence, 2018; numbers as in PyTorch, whose last step is ``steps - 1``.
    Returns a float, or a traced scalar array for a traced step.
    Raises ArgumentError for fewer than two steps, or a fraction that leaves no step for one of the phases.

    >>> import tracejit as tj
    >>> [round(tj.optim.one_cycle(step, 10, 1.0), 4) for step in (0, 2, 9)]
    [0.04, 1.0, 0.0]
    """
    peak, last = rising * steps - 1, steps - 1
    if not 0 < peak < last:
        message = f"optim.one_cycle: {steps} steps, of which {rising} rise, leave none for one of the halves"
        raise locate(ArgumentError(message), user_location())
    first = highest / start_divisor

    def formula(xp: Any, t: Any) -> Any:
        rise = _half_cosine(xp, first, highest, xp.minimum(t / peak, 1.0))
        fraction = xp.minimum(xp.maximum((t - peak) / (last - peak), 0.0), 1.0)
        return xp.where(xp.less(t, peak), rise, _half_cosine(xp, highest, first / end_divisor, fraction))

    return _schedule(step, formula)


__all__ = ["cosine", "exponential", "linear", "one_cycle", "piecewise_constant", "step_decay", "warm_up"]
