"""Distributions of integers, of truth values and of signs.

They have no gradients: their results are integers. How many positions of the stream they take is fixed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tracejit import ops
from tracejit.errors import DTypeError
from tracejit.frontend.arrays import dispatch
from tracejit.frontend.arrays.axes import integer
from tracejit.frontend.arrays.core import ArrayCore
from tracejit.frontend.arrays.functions.elementwise import clip
from tracejit.frontend.arrays.random.gammas import gamma
from tracejit.frontend.arrays.random.rejection import binomial_number, float64_array, poisson_number
from tracejit.frontend.arrays.random.request import (
    FLOAT64,
    UINT64,
    Draw,
    check,
    check_at_least_zero,
    check_probability,
    refuse,
    takes_size,
)
from tracejit.frontend.arrays.random.streams import WORD
from tracejit.frontend.recording.number import concrete

if TYPE_CHECKING:
    from tracejit.frontend.arrays.ndarray import NDArray
    from tracejit.frontend.arrays.random.generator import Generator

LARGEST = 2.0**63 - 1024  # the largest float64 below the largest int64


@takes_size
def integers(
    low: Any,
    high: Any = None,
    shape: Any = None,
    dtype: Any = None,
    *,
    device: Any = None,
    generator: Generator | None = None,
) -> NDArray:
    """Integers evenly distributed from `low` (0 if only one bound is given) to `high` - 1, int64 by default;
    the bounds may be integer arrays.

    The upper 64 bits of bits * (high - low), so some numbers are more likely than others by at most (high -
    low) / 2**64.
    Raises ArgumentError for a dtype that is no integer one, or bounds that are empty, outside of it or no
    integers; ShapeError for bounds that do not broadcast to `shape`.

    >>> import tracejit as tj
    >>> x = tj.random.integers(5, 7, shape=100)
    >>> bool(((x >= 5) & (x < 7)).all())
    True
    """
    low, high = (0, low) if high is None else (low, high)
    if isinstance(low, ArrayCore | np.ndarray) or isinstance(high, ArrayCore | np.ndarray):
        return _between(low, high, shape, dtype, device, generator)
    first, last = (integer("random.integers", concrete(b)) for b in (low, high))
    draw = Draw("random.integers", shape, dtype, device, generator, kinds="iu")
    limits = np.iinfo(draw.dtype)
    if not limits.min <= first < last <= limits.max + 1:
        raise refuse(
            f"random.integers: need low < high within {draw.dtype}, got {first} and {last}; "
            f"low is at least {limits.min}, high at most {limits.max + 1}"
        )
    bits = draw.bits(UINT64)
    scaled = bits if last - first == WORD else _upper_product(bits, last - first)
    return draw.result(scaled + first % WORD)


def _between(low: Any, high: Any, shape: Any, dtype: Any, device: Any, generator: Any) -> Any:
    """Integers between bounds of which one is an array, at least; in uint64, where differences wrap."""
    name = "random.integers"
    given: list[Any] = [
        b if isinstance(b, ArrayCore | np.ndarray) else integer(name, concrete(b)) for b in (low, high)
    ]
    for bound in given:
        if not isinstance(bound, int) and bound.dtype.kind not in "iu":
            raise refuse(f"{name}: bounds must be integers, not {bound.dtype}", DTypeError)
    kinds: dict[str, Any] = {"kinds": "iu", "within": UINT64}
    words = [b % WORD if isinstance(b, int) else b for b in given]
    draw = Draw(name, shape, dtype, device, generator, *words, **kinds)
    limits = np.iinfo(draw.dtype)
    check(name, "low", given[0], lambda v: v >= limits.min, f"of at least {limits.min}")
    check(name, "high", given[1], lambda v: v <= limits.max + 1, f"of at most {limits.max + 1}")
    check(name, "high - low", given[1] - given[0], lambda v: v > 0, "above 0")
    first, last = draw.parameters
    return draw.result(_upper_product(draw.bits(UINT64), last - first) + first)


def _upper_product(x: Any, factor: Any) -> Any:
    """The upper 64 bits of the 128-bit product of a uint64 array and a number or another one, by halves."""
    low, high = factor & 0xFFFFFFFF, factor >> 32
    x_low, x_high = x & 0xFFFFFFFF, x >> 32
    middle = x_high * low + ((x_low * low) >> 32)
    if isinstance(high, int) and not high:
        return middle >> 32
    other = x_low * high + (middle & 0xFFFFFFFF)
    return x_high * high + (middle >> 32) + (other >> 32)


@takes_size
def bernoulli(
    p: Any = 0.5, shape: Any = None, *, device: Any = None, generator: Generator | None = None
) -> NDArray:
    """Bools that are True with probability `p`, which may be an array that broadcasts.

    Raises ArgumentError for a p outside [0, 1], ShapeError for a negative extent, or if `p` does not
    broadcast to `shape`.

    >>> import tracejit as tj
    >>> bool(tj.random.bernoulli(1.0, shape=10).all())
    True
    """
    check_probability("random.bernoulli", "p", p)
    draw = Draw("random.bernoulli", shape, None, device, generator, p)
    return draw.unit() < draw.parameters[0]


@takes_size
def rademacher(
    shape: Any = (), dtype: Any = None, *, device: Any = None, generator: Generator | None = None
) -> NDArray:
    """Signs, -1 or 1 with equal probability, int64 by default.

    Raises ArgumentError for a dtype that is no signed integer and not floating, ShapeError for a negative
    extent.

    >>> import tracejit as tj
    >>> bool((abs(tj.random.rademacher(9)) == 1).all())
    True
    """
    draw = Draw(
        "random.rademacher", shape, "int64" if dtype is None else dtype, device, generator, kinds="if"
    )
    return dispatch.cast(draw.bits(UINT64) & 1, draw.dtype) * 2 - 1


@takes_size
def geometric(
    p: Any, shape: Any = None, dtype: Any = None, *, device: Any = None, generator: Generator | None = None
) -> NDArray:
    """The number of trials with probability `p` until one succeeds: 1, 2, ...; int64 by default.

    By the inverse of the distribution function (Devroye 1986, chapter X.2). Numbers beyond the dtype are its
    largest.
    Raises ArgumentError for a dtype that is no integer one or a p outside (0, 1], ShapeError for a negative
    extent, or if `p` does not broadcast to `shape`.

    >>> import tracejit as tj
    >>> bool((tj.random.geometric(0.3, shape=9) >= 1).all())
    True
    """
    check("random.geometric", "p", p, lambda v: (v > 0) & (v <= 1), "above 0 and at most 1")
    draw = Draw("random.geometric", shape, dtype, device, generator, p, kinds="iu")
    rate = dispatch.apply(ops.log1p, -float64_array(draw.parameters[0]))
    trials = dispatch.apply(ops.ceil, dispatch.apply(ops.log, draw.open_unit()) / rate)
    return _counts(draw, clip(trials, 1.0, None))


@takes_size
def poisson(
    lam: Any = 1.0,
    shape: Any = None,
    dtype: Any = None,
    *,
    device: Any = None,
    generator: Generator | None = None,
) -> NDArray:
    """Numbers of events of which `lam` are expected; int64 by default.

    Below 10 by the inverse of the distribution function, of which the part beyond 40 is left out (less than
    2**-42); from 10 on by transformed rejection (Hoermann, PTRS, 1993) in 20 rounds, of which all fail with a
    probability below 2**-40.
    Raises ArgumentError for a dtype that is no integer one or a negative lam, ShapeError for a negative
    extent, or if `lam` does not broadcast to `shape`.

    >>> import tracejit as tj
    >>> bool((tj.random.poisson(3.0, shape=9) >= 0).all())
    True
    """
    check_at_least_zero("random.poisson", "lam", lam)
    draw = Draw("random.poisson", shape, dtype, device, generator, lam, kinds="iu")
    return _counts(draw, poisson_number(draw, draw.parameters[0]))


@takes_size
def binomial(
    n: Any,
    p: Any = 0.5,
    shape: Any = None,
    dtype: Any = None,
    *,
    device: Any = None,
    generator: Generator | None = None,
) -> NDArray:
    """The number of successes in `n` trials, each with probability `p`; int64 by default.

    Where fewer than 10 successes, or failures, are expected by the inverse of the distribution function, of
    which the part beyond 40 is left out (less than 2**-42); else by transformed rejection (Hoermann, BTRS,
    1993) in 23 rounds, of which all fail with a probability below 2**-40.
    Raises ArgumentError for a dtype that is no integer one, a negative n or a p outside [0, 1]; ShapeError
    for a negative extent or parameters that do not broadcast to `shape`.

    >>> import tracejit as tj
    >>> bool((tj.random.binomial(5, 0.3, shape=9) <= 5).all())
    True
    """
    check_at_least_zero("random.binomial", "n", n)
    check_probability("random.binomial", "p", p)
    draw = Draw("random.binomial", shape, dtype, device, generator, n, p, kinds="iu")
    return _counts(draw, binomial_number(draw, *draw.parameters))


@takes_size
def negative_binomial(
    n: Any,
    p: Any,
    shape: Any = None,
    dtype: Any = None,
    *,
    device: Any = None,
    generator: Generator | None = None,
) -> NDArray:
    """The number of failures before `n` successes, each with probability `p`: Poisson with gamma means.

    Raises ArgumentError for a dtype that is no integer one, unless n > 0, or for a p outside (0, 1];
    ShapeError for a negative extent or parameters that do not broadcast to `shape`.

    >>> import tracejit as tj
    >>> bool((tj.random.negative_binomial(5, 0.3, shape=9) >= 0).all())
    True
    """
    name = "random.negative_binomial"
    check(name, "n", n, lambda v: v > 0, "above 0")
    check(name, "p", p, lambda v: (v > 0) & (v <= 1), "above 0 and at most 1")
    draw = Draw(name, shape, dtype, device, generator, n, p, kinds="iu")
    wanted, chance = draw.parameters
    options = {"device": device, "generator": generator}
    means = gamma(wanted, (1 - chance) / chance, draw.extents, FLOAT64, **options)
    return _counts(draw, poisson_number(draw, means))


def _counts(draw: Draw, x: Any) -> Any:
    """Whole numbers in float64 as integers of the dtype; those beyond it are its largest."""
    limit = min(float(np.iinfo(draw.dtype).max), LARGEST)
    return draw.result(clip(x, None, limit))


__all__ = ["bernoulli", "binomial", "geometric", "integers", "negative_binomial", "poisson", "rademacher"]
