"""Continuous distributions of one number, each a function of one or two evenly distributed ones.

They are *reparameterised*: a result is a smooth function of the parameters and of numbers that do not depend
on them, so gradients with respect to the parameters are those of this function.
Source of the transforms: Devroye, Non-Uniform Random Variate Generation, 1986, chapter II.2.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from tracejit import ops
from tracejit.frontend.arrays import dispatch
from tracejit.frontend.arrays.functions.elementwise import clip, where
from tracejit.frontend.arrays.random.draws import (
    FLOAT64,
    Draw,
    check,
    check_at_least_zero,
    check_positive,
)
from tracejit.frontend.arrays.random.quantiles import normal_cdf, normal_quantile

if TYPE_CHECKING:
    from tracejit.frontend.arrays.ndarray import NDArray
    from tracejit.frontend.arrays.random.generator import Generator


def _log(x: Any) -> Any:
    return dispatch.apply(ops.log, x)


def uniform(
    low: Any = 0.0,
    high: Any = 1.0,
    shape: Any = None,
    dtype: Any = None,
    *,
    device: Any = None,
    generator: Generator | None = None,
) -> NDArray:
    """Numbers evenly distributed in [low, high), float32 by default; the bounds may be arrays. Where they are
    large beside their distance, a number may be rounded to `high`, as NumPy's may.
    Raises ArgumentError for a dtype that is not floating, ShapeError for a negative extent or bounds that do
    not broadcast to `shape`.

    >>> import tracejit as tj
    >>> tj.random.uniform(shape=(2, 3)).shape
    (2, 3)
    """
    draw = Draw("random.uniform", shape, dtype, device, generator, low, high)
    first, last = draw.parameters
    return draw.unit() * (last - first) + first


def normal(
    loc: Any = 0.0,
    scale: Any = 1.0,
    shape: Any = None,
    dtype: Any = None,
    *,
    device: Any = None,
    generator: Generator | None = None,
) -> NDArray:
    """Normally distributed numbers with mean `loc` and standard deviation `scale`, float32 by default.

    By Box and Muller's transform, from the two halves of one position (float32) or from two positions
    (float64).
    Raises ArgumentError for a dtype that is not floating or a negative scale, ShapeError for a negative
    extent or parameters that do not broadcast to `shape`.

    >>> import tracejit as tj
    >>> tj.random.normal(shape=4, dtype=tj.float64).dtype
    dtype('float64')
    """
    check_at_least_zero("random.normal", "a scale", scale)
    draw = Draw("random.normal", shape, dtype, device, generator, loc, scale)
    centre, width = draw.parameters
    return draw.normal() * width + centre


def lognormal(
    mean: Any = 0.0,
    sigma: Any = 1.0,
    shape: Any = None,
    dtype: Any = None,
    *,
    device: Any = None,
    generator: Generator | None = None,
) -> NDArray:
    """Numbers whose logarithm is normally distributed with this mean and standard deviation.

    Raises ArgumentError for a dtype that is not floating or a negative sigma, ShapeError as `normal` does.

    >>> import tracejit as tj
    >>> bool((tj.random.lognormal(shape=9) > 0).all())
    True
    """
    check_at_least_zero("random.lognormal", "a sigma", sigma)
    draw = Draw("random.lognormal", shape, dtype, device, generator, mean, sigma)
    centre, width = draw.parameters
    return dispatch.apply(ops.exp, draw.normal() * width + centre)


def exponential(
    scale: Any = 1.0,
    shape: Any = None,
    dtype: Any = None,
    *,
    device: Any = None,
    generator: Generator | None = None,
) -> NDArray:
    """Exponentially distributed numbers with mean `scale`, by the inverse of the distribution function.

    Raises ArgumentError for a dtype that is not floating or a negative scale, ShapeError as `normal` does.

    >>> import tracejit as tj
    >>> bool((tj.random.exponential(2.0, shape=9) > 0).all())
    True
    """
    check_at_least_zero("random.exponential", "a scale", scale)
    draw = Draw("random.exponential", shape, dtype, device, generator, scale)
    return -_log(draw.open_unit()) * draw.parameters[0]


def laplace(
    loc: Any = 0.0,
    scale: Any = 1.0,
    shape: Any = None,
    dtype: Any = None,
    *,
    device: Any = None,
    generator: Generator | None = None,
) -> NDArray:
    """Numbers of Laplace's distribution, exponential on both sides of `loc`, by its inverse.

    Raises ArgumentError for a dtype that is not floating or a negative scale, ShapeError as `normal` does.

    >>> import tracejit as tj
    >>> tj.random.laplace(shape=(2, 3)).shape
    (2, 3)
    """
    check_at_least_zero("random.laplace", "a scale", scale)
    draw = Draw("random.laplace", shape, dtype, device, generator, loc, scale)
    centre, width = draw.parameters
    unit = draw.open_unit()
    below = unit < 0.5
    size = _log(2 * where(below, unit, 1 - unit))
    return where(below, size, -size) * width + centre


def logistic(
    loc: Any = 0.0,
    scale: Any = 1.0,
    shape: Any = None,
    dtype: Any = None,
    *,
    device: Any = None,
    generator: Generator | None = None,
) -> NDArray:
    """Numbers of the logistic distribution, by its inverse, log(u / (1 - u)).

    Raises ArgumentError for a dtype that is not floating or a negative scale, ShapeError as `normal` does.

    >>> import tracejit as tj
    >>> tj.random.logistic(shape=(2, 3)).shape
    (2, 3)
    """
    check_at_least_zero("random.logistic", "a scale", scale)
    draw = Draw("random.logistic", shape, dtype, device, generator, loc, scale)
    centre, width = draw.parameters
    unit = draw.open_unit()
    return _log(unit / (1 - unit)) * width + centre


def gumbel(
    loc: Any = 0.0,
    scale: Any = 1.0,
    shape: Any = None,
    dtype: Any = None,
    *,
    device: Any = None,
    generator: Generator | None = None,
) -> NDArray:
    """Numbers of Gumbel's distribution (of the largest of many), by its inverse, -log(-log(u)).

    Raises ArgumentError for a dtype that is not floating or a negative scale, ShapeError as `normal` does.

    >>> import tracejit as tj
    >>> tj.random.gumbel(shape=(2, 3)).shape
    (2, 3)
    """
    check_at_least_zero("random.gumbel", "a scale", scale)
    draw = Draw("random.gumbel", shape, dtype, device, generator, loc, scale)
    centre, width = draw.parameters
    return -_log(-_log(draw.open_unit())) * width + centre


def cauchy(
    loc: Any = 0.0,
    scale: Any = 1.0,
    shape: Any = None,
    dtype: Any = None,
    *,
    device: Any = None,
    generator: Generator | None = None,
) -> NDArray:
    """Numbers of Cauchy's distribution, by its inverse, tan(pi (u - 1/2)).

    Raises ArgumentError for a dtype that is not floating or a negative scale, ShapeError as `normal` does.

    >>> import tracejit as tj
    >>> tj.random.cauchy(shape=(2, 3)).shape
    (2, 3)
    """
    check_at_least_zero("random.cauchy", "a scale", scale)
    draw = Draw("random.cauchy", shape, dtype, device, generator, loc, scale)
    centre, width = draw.parameters
    return dispatch.apply(ops.tan, (draw.open_unit() - 0.5) * math.pi) * width + centre


def weibull(
    a: Any,
    shape: Any = None,
    dtype: Any = None,
    *,
    device: Any = None,
    generator: Generator | None = None,
) -> NDArray:
    """Numbers of Weibull's distribution with exponent `a` and scale 1, by its inverse.

    Raises ArgumentError for a dtype that is not floating or unless a > 0, ShapeError as `normal` does.

    >>> import tracejit as tj
    >>> bool((tj.random.weibull(1.5, shape=9) > 0).all())
    True
    """
    check_positive("random.weibull", "a", a)
    draw = Draw("random.weibull", shape, dtype, device, generator, a)
    return dispatch.apply(ops.pow, -_log(draw.open_unit()), 1 / draw.parameters[0])


def pareto(
    a: Any,
    shape: Any = None,
    dtype: Any = None,
    *,
    device: Any = None,
    generator: Generator | None = None,
) -> NDArray:
    """Numbers of Pareto's second distribution (Lomax's) with exponent `a`, from 0 on, as in NumPy.

    Raises ArgumentError for a dtype that is not floating or unless a > 0, ShapeError as `normal` does.

    >>> import tracejit as tj
    >>> bool((tj.random.pareto(3.0, shape=9) > 0).all())
    True
    """
    check_positive("random.pareto", "a", a)
    draw = Draw("random.pareto", shape, dtype, device, generator, a)
    return dispatch.apply(ops.expm1, -_log(draw.open_unit()) / draw.parameters[0])


def rayleigh(
    scale: Any = 1.0,
    shape: Any = None,
    dtype: Any = None,
    *,
    device: Any = None,
    generator: Generator | None = None,
) -> NDArray:
    """Numbers of Rayleigh's distribution (lengths of normal vectors in the plane), by its inverse.

    Raises ArgumentError for a dtype that is not floating or a negative scale, ShapeError as `normal` does.

    >>> import tracejit as tj
    >>> bool((tj.random.rayleigh(shape=9) > 0).all())
    True
    """
    check_at_least_zero("random.rayleigh", "a scale", scale)
    draw = Draw("random.rayleigh", shape, dtype, device, generator, scale)
    return dispatch.apply(ops.sqrt, _log(draw.open_unit()) * -2.0) * draw.parameters[0]


def truncated_normal(
    lower: Any,
    upper: Any,
    shape: Any = None,
    dtype: Any = None,
    *,
    device: Any = None,
    generator: Generator | None = None,
) -> NDArray:
    """Standard normal numbers, of which only those from `lower` to `upper` occur.

    By the inverse of the distribution function in float64, with the quantiles of Wichura's AS 241 (1988); the
    bounds should not both lie more than 7 deviations on one side.
    Raises ArgumentError for a dtype that is not floating or unless lower < upper, ShapeError as `normal`
    does.

    >>> import tracejit as tj
    >>> bool((abs(tj.random.truncated_normal(-2.0, 2.0, shape=100)) <= 2).all())
    True
    """
    name = "random.truncated_normal"
    draw = Draw(name, shape, dtype, device, generator, lower, upper, within=FLOAT64)
    first, last = draw.parameters
    check(name, "upper - lower", last - first, lambda v: v > 0, "above 0")
    low, high = normal_cdf(first), normal_cdf(last)
    found = normal_quantile(draw.open_unit() * (high - low) + low)
    return draw.result(clip(found, first, last))


__all__ = [
    "cauchy",
    "exponential",
    "gumbel",
    "laplace",
    "logistic",
    "lognormal",
    "normal",
    "pareto",
    "rayleigh",
    "truncated_normal",
    "uniform",
    "weibull",
]
