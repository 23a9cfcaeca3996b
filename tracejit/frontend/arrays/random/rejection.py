"""Poisson and binomial numbers, as integers in float64, with a fixed number of steps per element.

Small means use inversion of the distribution function, a sum of up to 41 probabilities. Others use
transformed rejection: "The transformed rejection method for generating Poisson random variables" (Hoermann
1993, PTRS) and "The generation of binomial random variates" (Hoermann 1993, BTRS), without their squeeze
steps. The number of proposals is such that all are rejected with a probability below 2**-40. Proposals and
terms form a leading dimension. Logarithms of probabilities are computed as by Loader ("Fast and accurate
computation of binomial probabilities", 2000), without cancellation for large means.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from tracejit import ops
from tracejit.frontend.arrays import dispatch
from tracejit.frontend.arrays.core import ArrayCore
from tracejit.frontend.arrays.devices import default_device
from tracejit.frontend.arrays.functions import reductions, scans
from tracejit.frontend.arrays.functions.creation import asarray
from tracejit.frontend.arrays.functions.elementwise import clip, where
from tracejit.frontend.arrays.functions.movement import take
from tracejit.frontend.arrays.random.request import FLOAT64, INT64, Draw, first_accepted

SMALL = 10  # smaller means use inversion of the distribution function
TERMS = 40  # with such means, numbers exceed this with a probability below 2**-42
POISSON_PROPOSALS = 20
BINOMIAL_PROPOSALS = 23


class SamplingMethod(NamedTuple):
    """A function of the parameters that draws numbers, and substitute parameters for which it is defined."""

    draw: Callable[..., Any]
    substitutes: tuple[float, ...]


def _log(x: Any) -> Any:
    return dispatch.apply(ops.log, x)


def _sqrt(x: Any) -> Any:
    return dispatch.apply(ops.sqrt, x)


def float64_array(x: Any) -> Any:
    """Return a parameter as a float64 array."""
    return x if isinstance(x, ArrayCore) else dispatch.full(x, (), FLOAT64, default_device())


def _by_mean(mean: Any, parameters: tuple[Any, ...], small: SamplingMethod, large: SamplingMethod) -> Any:
    """Draw numbers by one of two methods, depending on the mean.

    For an array of means both methods draw all elements, and the results are merged. Each method receives its
    substitute parameters for the elements of the other one.
    """
    if not isinstance(mean, ArrayCore):
        return (small if mean < SMALL else large).draw(*map(float64_array, parameters))
    is_small = dispatch.apply(ops.less, mean, SMALL)
    of_small = small.draw(
        *(where(is_small, x, y) for x, y in zip(parameters, small.substitutes, strict=True))
    )
    of_large = large.draw(
        *(where(is_small, y, x) for x, y in zip(parameters, large.substitutes, strict=True))
    )
    return where(is_small, of_small, of_large)


def _inverse(draw: Draw, log_first: Any, log_ratio: Any) -> Any:
    """Return the smallest integer whose distribution function is at least a uniform number.

    log_first: the logarithm of the probability of 0.
    log_ratio: a function of j that returns the logarithm of the probability of j divided by that of j - 1.
    """
    j = _terms(draw)
    logarithms = _sums(log_ratio(j)) + log_first
    first = dispatch.apply(ops.exp, log_first)
    distribution = _sums(dispatch.apply(ops.exp, logarithms)) + first
    unit = draw.unit(FLOAT64)
    exceeded = reductions.sum(dispatch.cast(unit > distribution, FLOAT64), axis=0)
    return exceeded + dispatch.cast(unit > first, FLOAT64)


def _sums(x: Any) -> Any:
    """Return the cumulative sums along the leading dimension."""
    return scans.cumulative_sum(x, axis=0)


def _terms(draw: Draw) -> Any:
    """Return 1, 2, ..., TERMS along a dimension that precedes those of the result."""
    numbers = dispatch.cast(dispatch.emit(ops.iota, size=TERMS, device=draw.device), FLOAT64) + 1
    return numbers.reshape((TERMS,) + (1,) * (len(draw.extents) + len(draw.tail)))


# -- logarithms of probabilities -----------------------------------------------------------------------------

_EXACT = 16


def _stirling_error_of(k: int) -> float:
    return math.lgamma(k + 1) - (k + 0.5) * math.log(k) + k - 0.5 * math.log(2 * math.pi) if k else 0.0


_TABLE = np.array([_stirling_error_of(k) for k in range(_EXACT)])


def _stirling_error(k: Any) -> Any:
    """log(k!) minus Stirling's approximation for integers k > 0; 0, a special case of callers, for 0."""
    inverse = 1 / clip(k, float(_EXACT), None)
    square = inverse * inverse
    series = inverse * (
        1 / 12 - square * (1 / 360 - square * (1 / 1260 - square * (1 / 1680 - square / 1188)))
    )
    exact = take(asarray(_TABLE), dispatch.cast(clip(k, 0.0, _EXACT - 1.0), INT64))
    return where(k < _EXACT, exact, series)


def _deviance(k: Any, mean: Any) -> Any:
    """Return k log(k / mean) + mean - k, for k > 0."""
    d = (k - mean) / mean
    return mean * ((1 + d) * dispatch.apply(ops.log1p, d) - d)


def _log_poisson(k: Any, mean: Any) -> Any:
    """Return the logarithm of the probability of k."""
    positive = clip(k, 1.0, None)
    logarithm = -_deviance(positive, mean) - _stirling_error(positive) - _log(positive * (2 * math.pi)) / 2
    return where(k == 0, -mean, logarithm)


def _log_binomial(k: Any, n: Any, p: Any) -> Any:
    """Return the logarithm of the probability of k successes in n trials."""
    successes = clip(k, 1.0, None)
    failures = clip(n - k, 1.0, None)
    logarithm = (
        _stirling_error(n)
        - _stirling_error(successes)
        - _stirling_error(failures)
        - _deviance(successes, n * p)
        - _deviance(failures, n * (1 - p))
        + _log(n / (successes * failures * (2 * math.pi))) / 2
    )
    at_ends = where(k == 0, n * dispatch.apply(ops.log1p, -p), n * _log(p))
    return where((k == 0) | (k == n), at_ends, logarithm)


# -- numbers -------------------------------------------------------------------------------------------------


def poisson_number(draw: Draw, mean: Any) -> Any:
    """Return Poisson numbers with these means, a Python number or an array."""
    small = SamplingMethod(functools.partial(_small_poisson, draw), (1.0,))
    return _by_mean(
        mean, (mean,), small, SamplingMethod(functools.partial(_large_poisson, draw), (2.0 * SMALL,))
    )


def _small_poisson(draw: Draw, mean: Any) -> Any:
    return _inverse(draw, -mean, lambda j: _log(mean / j))


def _large_poisson(draw: Draw, mean: Any) -> Any:
    b = 0.931 + 2.53 * _sqrt(mean)
    a = -0.059 + 0.02483 * b
    inverse_alpha = 1.1239 + 1.1328 / (b - 3.4)
    u, v = _pair(draw, POISSON_PROPOSALS)
    distance = 0.5 - abs(u)
    k = dispatch.apply(ops.floor, (2 * a / distance + b) * u + mean + 0.43)
    log_ratio = _log(v * inverse_alpha / (a / (distance * distance) + b))
    is_below = log_ratio <= _log_poisson(clip(k, 0.0, None), mean)
    return clip(first_accepted(k, (k >= 0) & is_below), 0.0, None)


def binomial_number(draw: Draw, n: Any, p: Any) -> Any:
    """Return binomial numbers of `n` trials with probability `p`, Python numbers or arrays."""
    is_array = isinstance(p, ArrayCore)
    smaller_p = where(p > 0.5, 1 - p, p) if is_array else (1 - p if p > 0.5 else p)
    small = SamplingMethod(functools.partial(_small_binomial, draw), (1.0, 0.5))
    large = SamplingMethod(functools.partial(_large_binomial, draw), (4.0 * SMALL, 0.5))
    count = _by_mean(n * smaller_p, (float64_array(n), float64_array(smaller_p)), small, large)
    if is_array:
        return where(p > 0.5, n - count, count)
    return n - count if p > 0.5 else count


def _small_binomial(draw: Draw, n: Any, p: Any) -> Any:
    odds = p / (1 - p)
    return _inverse(
        draw,
        n * dispatch.apply(ops.log1p, -p),
        lambda j: _log(where(j <= n, clip(n - j + 1, 1.0, None) / j * odds, 0.0)),
    )


def _large_binomial(draw: Draw, n: Any, p: Any) -> Any:
    spread = _sqrt(n * p * (1 - p))
    b = 1.15 + 2.53 * spread
    a = -0.0873 + 0.0248 * b + 0.01 * p
    alpha = (2.83 + 5.1 / b) * spread
    mode = dispatch.apply(ops.floor, (n + 1) * p)
    u, v = _pair(draw, BINOMIAL_PROPOSALS)
    distance = 0.5 - abs(u)
    k = dispatch.apply(ops.floor, (2 * a / distance + b) * u + n * p + 0.5)
    is_valid = (k >= 0) & (k <= n)
    ratio = _log_binomial(clip(k, 0.0, n), n, p) - _log_binomial(mode, n, p)
    accepted = is_valid & (_log(v * alpha / (a / (distance * distance) + b)) <= ratio)
    return clip(first_accepted(k, accepted), 0.0, n)


def _pair(draw: Draw, proposals: int) -> tuple[Any, Any]:
    """Return two uniform numbers for each proposal, the first from -1/2 to 1/2."""
    return draw.open_unit(FLOAT64, (proposals,)) - 0.5, draw.open_unit(FLOAT64, (proposals,))
