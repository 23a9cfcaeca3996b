"""Continuous univariate distributions, each computed from one or two uniform numbers.

They are *reparameterised*: a result is a smooth function of the parameters and of random numbers that do not
depend on them, so gradients with respect to the parameters are those of this function.
Source of the transforms: Devroye, Non-Uniform Random Variate Generation, 1986, chapter II.2.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from tracejit import ops
from tracejit.frontend.arrays import dispatch
from tracejit.frontend.arrays.functions.elementwise import clip, where
from tracejit.frontend.arrays.random.normal_distribution import normal_cdf, normal_quantile
from tracejit.frontend.arrays.random.request import (
    FLOAT64,
    Draw,
    accepts_size,
    check,
    check_at_least_zero,
    check_positive,
)

if TYPE_CHECKING:
    from tracejit.frontend.arrays.ndarray import NDArray
    from tracejit.frontend.arrays.random.generator import Generator


def _log(x: Any) -> Any:
    return dispatch.apply(ops.log, x)


@accepts_size
def uniform(
    low: Any = 0.0,
    high: Any = 1.0,
    shape: Any = None,
    dtype: Any = None,
    *,
    device: Any = None,
    generator: Generator | None = None,
) -> NDArray:
    """Uniformly distributed numbers in [low, high), float32 by default.

    The bounds may be arrays. If they are large compared to their distance, a number may be rounded to `high`,
    as in NumPy.
    Raises ArgumentError for a dtype that is not floating, ShapeError for a negative extent or bounds that do
    not broadcast to `shape`.

    >>> import tracejit as tj
    >>> tj.random.uniform(shape=(2, 3)).shape
    (2, 3)
    """
    draw = Draw("random.uniform", shape, dtype, device, generator, low, high)
    first, last = draw.parameters
    return draw.result(draw.unit() * (last - first) + first)


@accepts_size
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

    Method: the Box-Muller transform, from the two halves of one position (float32) or from two positions
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
    return draw.result(draw.normal() * width + centre)


@accepts_size
def lognormal(
    mean: Any = 0.0,
    sigma: Any = 1.0,
    shape: Any = None,
    dtype: Any = None,
    *,
    device: Any = None,
    generator: Generator | None = None,
) -> NDArray:
    """Numbers whose logarithm is normally distributed with mean `mean` and standard deviation `sigma`.

    float32 by default.
    Raises ArgumentError for a dtype that is not floating or a negative sigma, ShapeError as `normal` does.

    >>> import tracejit as tj
    >>> bool((tj.random.lognormal(shape=9) > 0).all())
    True
    """
    check_at_least_zero("random.lognormal", "a sigma", sigma)
    draw = Draw("random.lognormal", shape, dtype, device, generator, mean, sigma)
    centre, width = draw.parameters
    return draw.result(dispatch.apply(ops.exp, draw.normal() * width + centre))


@accepts_size
def exponential(
    scale: Any = 1.0,
    shape: Any = None,
    dtype: Any = None,
    *,
    device: Any = None,
    generator: Generator | None = None,
) -> NDArray:
    """Exponentially distributed numbers with mean `scale`, by inversion of the distribution function.

    float32 by default. Source: Devroye, Non-uniform random variate generation, 1986.
    Raises ArgumentError for a dtype that is not floating or a negative scale, ShapeError as `normal` does.

    >>> import tracejit as tj
    >>> bool((tj.random.exponential(2.0, shape=9) > 0).all())
    True
    """
    check_at_least_zero("random.exponential", "a scale", scale)
    draw = Draw("random.exponential", shape, dtype, device, generator, scale)
    return draw.result(-_log(draw.open_unit()) * draw.parameters[0])


@accepts_size
def laplace(
    loc: Any = 0.0,
    scale: Any = 1.0,
    shape: Any = None,
    dtype: Any = None,
    *,
    device: Any = None,
    generator: Generator | None = None,
) -> NDArray:
    """Numbers of the Laplace distribution, exponential on both sides of `loc`, by inversion.

    float32 by default. Source: Devroye, Non-uniform random variate generation, 1986.
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
    return draw.result(where(below, size, -size) * width + centre)


@accepts_size
def logistic(
    loc: Any = 0.0,
    scale: Any = 1.0,
    shape: Any = None,
    dtype: Any = None,
    *,
    device: Any = None,
    generator: Generator | None = None,
) -> NDArray:
    """Numbers of the logistic distribution, by inversion: log(u / (1 - u)).

    float32 by default. Source: Devroye, Non-uniform random variate generation, 1986.
    Raises ArgumentError for a dtype that is not floating or a negative scale, ShapeError as `normal` does.

    >>> import tracejit as tj
    >>> tj.random.logistic(shape=(2, 3)).shape
    (2, 3)
    """
    check_at_least_zero("random.logistic", "a scale", scale)
    draw = Draw("random.logistic", shape, dtype, device, generator, loc, scale)
    centre, width = draw.parameters
    unit = draw.open_unit()
    return draw.result(_log(unit / (1 - unit)) * width + centre)


@accepts_size
def gumbel(
    loc: Any = 0.0,
    scale: Any = 1.0,
    shape: Any = None,
    dtype: Any = None,
    *,
    device: Any = None,
    generator: Generator | None = None,
) -> NDArray:
    """Numbers of the Gumbel distribution (of extreme values), by inversion: -log(-log(u)).

    float32 by default. Source: Devroye, Non-uniform random variate generation, 1986.
    Raises ArgumentError for a dtype that is not floating or a negative scale, ShapeError as `normal` does.

    >>> import tracejit as tj
    >>> tj.random.gumbel(shape=(2, 3)).shape
    (2, 3)
    """
    check_at_least_zero("random.gumbel", "a scale", scale)
    draw = Draw("random.gumbel", shape, dtype, device, generator, loc, scale)
    centre, width = draw.parameters
    return draw.result(-_log(-_log(draw.open_unit())) * width + centre)


@accepts_size
def cauchy(
    loc: Any = 0.0,
    scale: Any = 1.0,
    shape: Any = None,
    dtype: Any = None,
    *,
    device: Any = None,
    generator: Generator | None = None,
) -> NDArray:
    """Numbers of the Cauchy distribution, by inversion: tan(pi (u - 1/2)).

    float32 by default. Source: Devroye, Non-uniform random variate generation, 1986.
    Raises ArgumentError for a dtype that is not floating or a negative scale, ShapeError as `normal` does.

    >>> import tracejit as tj
    >>> tj.random.cauchy(shape=(2, 3)).shape
    (2, 3)
    """
    check_at_least_zero("random.cauchy", "a scale", scale)
    draw = Draw("random.cauchy", shape, dtype, device, generator, loc, scale)
    centre, width = draw.parameters
    return draw.result(dispatch.apply(ops.tan, (draw.open_unit() - 0.5) * math.pi) * width + centre)


@accepts_size
def weibull(
    a: Any,
    shape: Any = None,
    dtype: Any = None,
    *,
    device: Any = None,
    generator: Generator | None = None,
) -> NDArray:
    """Numbers of the Weibull distribution with shape parameter `a` and scale 1, by inversion.

    float32 by default. Source: Devroye, Non-uniform random variate generation, 1986.
    Raises ArgumentError for a dtype that is not floating or unless a > 0, ShapeError as `normal` does.

    >>> import tracejit as tj
    >>> bool((tj.random.weibull(1.5, shape=9) > 0).all())
    True
    """
    check_positive("random.weibull", "a", a)
    draw = Draw("random.weibull", shape, dtype, device, generator, a)
    return draw.result(dispatch.apply(ops.pow, -_log(draw.open_unit()), 1 / draw.parameters[0]))


@accepts_size
def pareto(
    a: Any,
    shape: Any = None,
    dtype: Any = None,
    *,
    device: Any = None,
    generator: Generator | None = None,
) -> NDArray:
    """Numbers of the Pareto II (Lomax) distribution with exponent `a`, from 0 on, as in NumPy.

    float32 by default. Source: Devroye, Non-uniform random variate generation, 1986.
    Raises ArgumentError for a dtype that is not floating or unless a > 0, ShapeError as `normal` does.

    >>> import tracejit as tj
    >>> bool((tj.random.pareto(3.0, shape=9) > 0).all())
    True
    """
    check_positive("random.pareto", "a", a)
    draw = Draw("random.pareto", shape, dtype, device, generator, a)
    return draw.result(dispatch.apply(ops.expm1, -_log(draw.open_unit()) / draw.parameters[0]))


@accepts_size
def rayleigh(
    scale: Any = 1.0,
    shape: Any = None,
    dtype: Any = None,
    *,
    device: Any = None,
    generator: Generator | None = None,
) -> NDArray:
    """Numbers of the Rayleigh distribution (norms of normal vectors in the plane), by inversion.

    float32 by default. Source: Devroye, Non-uniform random variate generation, 1986.
    Raises ArgumentError for a dtype that is not floating or a negative scale, ShapeError as `normal` does.

    >>> import tracejit as tj
    >>> bool((tj.random.rayleigh(shape=9) > 0).all())
    True
    """
    check_at_least_zero("random.rayleigh", "a scale", scale)
    draw = Draw("random.rayleigh", shape, dtype, device, generator, scale)
    return draw.result(dispatch.apply(ops.sqrt, _log(draw.open_unit()) * -2.0) * draw.parameters[0])


@accepts_size
def triangular(
    left: Any,
    mode: Any,
    right: Any,
    shape: Any = None,
    dtype: Any = None,
    *,
    device: Any = None,
    generator: Generator | None = None,
) -> NDArray:
    """Numbers of the triangular distribution on [left, right] with its maximum at `mode`.

    The density increases linearly up to `mode`, and decreases linearly from there.
    Method: inversion of the distribution function.
    float32 by default. Source: Devroye, Non-uniform random variate generation, 1986.
    Raises ArgumentError for a dtype that is not floating or unless left <= mode <= right and left < right;
    ShapeError as `normal` does.

    >>> import tracejit as tj
    >>> x = tj.random.triangular(0.0, 1.0, 4.0, shape=9)
    >>> bool(((x >= 0) & (x <= 4)).all())
    True
    """
    name = "random.triangular"
    draw = Draw(name, shape, dtype, device, generator, left, mode, right)
    first, top, last = draw.parameters
    check_at_least_zero(name, "mode - left", top - first)
    check_at_least_zero(name, "right - mode", last - top)
    check_positive(name, "right - left", last - first)
    unit = draw.open_unit()
    is_rising = unit * (last - first) < top - first
    rising = dispatch.apply(ops.sqrt, unit * ((last - first) * (top - first)))
    falling = dispatch.apply(ops.sqrt, (1 - unit) * ((last - first) * (last - top)))
    return draw.result(where(is_rising, rising + first, last - falling))


@accepts_size
def power(
    a: Any,
    shape: Any = None,
    dtype: Any = None,
    *,
    device: Any = None,
    generator: Generator | None = None,
) -> NDArray:
    """Numbers in (0, 1) with density a * x**(a - 1), by inversion of the distribution function.

    float32 by default. Source: Devroye, Non-uniform random variate generation, 1986.
    Raises ArgumentError for a dtype that is not floating or unless a > 0, ShapeError as `normal` does.

    >>> import tracejit as tj
    >>> bool((tj.random.power(2.0, shape=9) < 1).all())
    True
    """
    check_positive("random.power", "a", a)
    draw = Draw("random.power", shape, dtype, device, generator, a)
    return draw.result(dispatch.apply(ops.pow, draw.open_unit(), 1 / draw.parameters[0]))


@accepts_size
def wald(
    mean: Any,
    scale: Any,
    shape: Any = None,
    dtype: Any = None,
    *,
    device: Any = None,
    generator: Generator | None = None,
) -> NDArray:
    """Numbers of the inverse Gaussian distribution with mean `mean` and scale `scale`.

    Each is computed from a normal and a uniform number. Source: Michael, Schucany and Haas, Generating random
    variates using transformations with multiple roots, 1976. The choice of the root depends on the
    parameters, so gradients with respect to them are refused. float32 by default.
    Raises ArgumentError for a dtype that is not floating or unless both are above 0, ShapeError as `normal`
    does.

    >>> import tracejit as tj
    >>> bool((tj.random.wald(1.0, 2.0, shape=9) > 0).all())
    True
    """
    check_positive("random.wald", "a mean", mean)
    check_positive("random.wald", "a scale", scale)
    draw = Draw("random.wald", shape, dtype, device, generator, mean, scale, within=FLOAT64)
    centre, width = (draw.without_gradient(p) for p in draw.parameters)
    y = centre * draw.normal() ** 2 / (2 * width)
    ratio = 1 / (1 + y + dispatch.apply(ops.sqrt, y * (y + 2)))  # the smaller root divided by the mean
    return draw.result(where(draw.unit() * (1 + ratio) <= 1, ratio, 1 / ratio) * centre)


@accepts_size
def standard_normal(
    shape: Any = (), dtype: Any = None, *, device: Any = None, generator: Generator | None = None
) -> NDArray:
    """Normally distributed numbers with mean 0 and standard deviation 1: `normal` with the shape first.

    float32 by default.
    Raises ArgumentError for a dtype that is not floating, ShapeError for a negative extent.

    >>> import tracejit as tj
    >>> tj.random.standard_normal((2, 3)).shape
    (2, 3)
    """
    draw = Draw("random.standard_normal", shape, dtype, device, generator)
    return draw.result(draw.normal())


@accepts_size
def random(
    shape: Any = (), dtype: Any = None, *, device: Any = None, generator: Generator | None = None
) -> NDArray:
    """Uniformly distributed numbers in [0, 1): `uniform` with the shape first.

    float32 by default.
    Raises ArgumentError for a dtype that is not floating, ShapeError for a negative extent.

    >>> import tracejit as tj
    >>> tj.random.random((2, 3)).shape
    (2, 3)
    """
    draw = Draw("random.random", shape, dtype, device, generator)
    return draw.result(draw.unit())


@accepts_size
def truncated_normal(
    lower: Any,
    upper: Any,
    shape: Any = None,
    dtype: Any = None,
    *,
    device: Any = None,
    generator: Generator | None = None,
) -> NDArray:
    """Standard normal numbers, conditioned on the interval from `lower` to `upper`.

    Method: inversion of the distribution function in float64, with the quantiles of Wichura's AS 241 (1988).
    The bounds should not both be more than 7 standard deviations to the same side of 0. float32 by default.
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
    quantile = normal_quantile(draw.open_unit() * (high - low) + low)
    return draw.result(clip(quantile, first, last))


__all__ = [
    "cauchy",
    "exponential",
    "gumbel",
    "laplace",
    "logistic",
    "lognormal",
    "normal",
    "pareto",
    "power",
    "random",
    "rayleigh",
    "standard_normal",
    "triangular",
    "truncated_normal",
    "uniform",
    "wald",
    "weibull",
]
