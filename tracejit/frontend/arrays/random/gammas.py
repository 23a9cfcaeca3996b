"""The gamma distribution, and distributions computed from gamma numbers.

Method: Marsaglia and Tsang, "A simple method for generating gamma variables", 2000, with a fixed number of
proposals. A proposal is accepted with a probability of at least 0.951, so the probability that all 10 are
rejected is less than 2**-43; the last one is used then. For a parameter a < 1, a gamma number with parameter
a + 1 is multiplied by u**(1/a). All computations are in float64.

The results have gradients with respect to scales, but not with respect to parameters that affect the
acceptance.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracejit import ops
from tracejit.frontend.arrays import dispatch
from tracejit.frontend.arrays.core import ArrayCore
from tracejit.frontend.arrays.devices import default_device
from tracejit.frontend.arrays.functions import reductions
from tracejit.frontend.arrays.functions.elementwise import where
from tracejit.frontend.arrays.random.request import (
    FLOAT64,
    Draw,
    accepts_size,
    check,
    check_at_least_zero,
    check_positive,
    first_accepted,
    refuse,
)

if TYPE_CHECKING:
    from tracejit.frontend.arrays.ndarray import NDArray
    from tracejit.frontend.arrays.random.generator import Generator

PROPOSALS = 10


def _log(x: Any) -> Any:
    return dispatch.apply(ops.log, x)


def _log_gamma_number(draw: Draw, a: Any) -> Any:
    """Return the logarithm of a gamma number with parameter `a`; it does not underflow for small `a`."""
    a = draw.without_gradient(a)
    is_small = a < 1
    is_number = not isinstance(a, ArrayCore)
    parameter = (a + 1 if is_small else a) if is_number else where(is_small, a + 1, a)
    shift = parameter - 1 / 3
    spread = 1 / (9 * shift) ** 0.5
    x = draw.normal((PROPOSALS,))
    root = x * spread + 1
    log_v = 3 * _log(where(root > 0, root, 1.0))
    v = root * root * root
    accepted = (root > 0) & (
        _log(draw.open_unit(proposals=(PROPOSALS,))) < x * x / 2 + shift * (1 - v + log_v)
    )
    log_gamma = first_accepted(log_v, accepted) + (_log(shift) if not is_number else _log_of_number(shift))
    if is_number and not is_small:
        return log_gamma
    boost = _log(draw.open_unit()) / a
    return log_gamma + boost if is_number else log_gamma + where(is_small, boost, 0.0)


def _log_of_number(x: Any) -> Any:
    return dispatch.apply(ops.log, dispatch.full(x, (), FLOAT64, default_device()))


def _gamma_number(draw: Draw, a: Any) -> Any:
    return dispatch.apply(ops.exp, _log_gamma_number(draw, a))


@accepts_size
def gamma(
    a: Any,
    scale: Any = 1.0,
    shape: Any = None,
    dtype: Any = None,
    *,
    device: Any = None,
    generator: Generator | None = None,
) -> NDArray:
    """Numbers of the gamma distribution with parameter `a` (NumPy's `shape`) and a scale; mean a * scale.

    Method: rejection sampling by Marsaglia and Tsang (2000) with 10 proposals, which are all rejected with a
    probability below 2**-43. There is a gradient with respect to the scale only. float32 by default.
    Raises ArgumentError for a dtype that is not floating, unless a > 0, or for a negative scale; ShapeError
    for a negative extent or parameters that do not broadcast to `shape`.

    >>> import tracejit as tj
    >>> bool((tj.random.gamma(2.5, shape=9) > 0).all())
    True
    """
    check_positive("random.gamma", "a", a)
    check_at_least_zero("random.gamma", "a scale", scale)
    draw = Draw("random.gamma", shape, dtype, device, generator, a, scale, within=FLOAT64)
    power, width = draw.parameters
    return draw.result(_gamma_number(draw, power) * width)


@accepts_size
def chisquare(
    df: Any,
    shape: Any = None,
    dtype: Any = None,
    *,
    device: Any = None,
    generator: Generator | None = None,
) -> NDArray:
    """Numbers of the chi-square distribution with `df` degrees of freedom, by `gamma`.

    float32 by default.
    Raises ArgumentError for a dtype that is not floating or unless df > 0, ShapeError as `gamma` does.

    >>> import tracejit as tj
    >>> bool((tj.random.chisquare(3, shape=9) > 0).all())
    True
    """
    check_positive("random.chisquare", "df", df)
    draw = Draw("random.chisquare", shape, dtype, device, generator, df, within=FLOAT64)
    return draw.result(2 * _gamma_number(draw, draw.parameters[0] / 2))


@accepts_size
def standard_t(
    df: Any,
    shape: Any = None,
    dtype: Any = None,
    *,
    device: Any = None,
    generator: Generator | None = None,
) -> NDArray:
    """Numbers of Student's t distribution with `df` degrees of freedom, by `normal` and `gamma`.

    float32 by default.
    Raises ArgumentError for a dtype that is not floating or unless df > 0, ShapeError as `gamma` does.

    >>> import tracejit as tj
    >>> tj.random.standard_t(5, shape=(2, 3)).shape
    (2, 3)
    """
    check_positive("random.standard_t", "df", df)
    draw = Draw("random.standard_t", shape, dtype, device, generator, df, within=FLOAT64)
    half = draw.parameters[0] / 2
    log_mean_square = _log_gamma_number(draw, half) - _log_of(half)
    return draw.result(draw.normal() * dispatch.apply(ops.exp, log_mean_square * -0.5))


def _log_of(x: Any) -> Any:
    return _log(x) if isinstance(x, ArrayCore) else _log_of_number(x)


@accepts_size
def f(
    dfnum: Any,
    dfden: Any,
    shape: Any = None,
    dtype: Any = None,
    *,
    device: Any = None,
    generator: Generator | None = None,
) -> NDArray:
    """Numbers of the F distribution: quotients of two chi-square numbers divided by their degrees of freedom.

    float32 by default.
    Raises ArgumentError for a dtype that is not floating or unless both are above 0, ShapeError as `gamma`
    does.

    >>> import tracejit as tj
    >>> bool((tj.random.f(3, 8, shape=9) > 0).all())
    True
    """
    check_positive("random.f", "dfnum", dfnum)
    check_positive("random.f", "dfden", dfden)
    draw = Draw("random.f", shape, dtype, device, generator, dfnum, dfden, within=FLOAT64)
    numerator, denominator = (p / 2 for p in draw.parameters)
    logarithm = (
        _log_gamma_number(draw, numerator)
        - _log_of(numerator)
        - _log_gamma_number(draw, denominator)
        + _log_of(denominator)
    )
    return draw.result(dispatch.apply(ops.exp, logarithm))


@accepts_size
def beta(
    a: Any,
    b: Any,
    shape: Any = None,
    dtype: Any = None,
    *,
    device: Any = None,
    generator: Generator | None = None,
) -> NDArray:
    """Numbers of the beta distribution: x / (x + y) for two gamma numbers, computed from logarithms.

    float32 by default.
    Raises ArgumentError for a dtype that is not floating or unless both are above 0, ShapeError as `gamma`
    does.

    >>> import tracejit as tj
    >>> x = tj.random.beta(0.5, 2.0, shape=9)
    >>> bool(((x >= 0) & (x <= 1)).all())
    True
    """
    check_positive("random.beta", "a", a)
    check_positive("random.beta", "b", b)
    draw = Draw("random.beta", shape, dtype, device, generator, a, b, within=FLOAT64)
    first, second = draw.parameters
    return draw.result(
        dispatch.apply(ops.sigmoid, _log_gamma_number(draw, first) - _log_gamma_number(draw, second))
    )


@accepts_size
def dirichlet(
    alpha: Any,
    shape: Any = None,
    dtype: Any = None,
    *,
    device: Any = None,
    generator: Generator | None = None,
) -> NDArray:
    """Points of the simplex: gamma numbers with the parameters `alpha`, divided by their sum.

    alpha: array of shape (..., k), all above 0.
    shape: the shape of the result without the last dimension; None for that of `alpha`. float32 by default.
    Raises ArgumentError for a dtype that is not floating, an `alpha` without dimensions or not above 0;
    ShapeError for shapes that do not broadcast.

    >>> import tracejit as tj
    >>> x = tj.random.dirichlet(tj.ones(3), shape=5)
    >>> x.shape, bool((abs(x.sum(axis=-1) - 1) < 1e-6).all())
    ((5, 3), True)
    """
    name = "random.dirichlet"
    weights = dispatch.as_array(name, alpha)
    if not weights.ndim:
        raise refuse(f"{name}: expected an array of parameters, got the number {alpha}")
    check(name, "alpha", weights, lambda v: v > 0, "above 0")
    draw = Draw(
        name, shape, dtype, device, generator, weights[..., 0], within=FLOAT64, tail=weights.shape[-1:]
    )
    logarithms = _log_gamma_number(draw, dispatch.cast(weights, FLOAT64))
    maximum = reductions.max(logarithms, axis=-1, keepdims=True)
    scaled = dispatch.apply(ops.exp, logarithms - maximum)  # scaled to avoid overflow
    return draw.result(scaled / reductions.sum(scaled, axis=-1, keepdims=True))


__all__ = ["beta", "chisquare", "dirichlet", "f", "gamma", "standard_t"]
