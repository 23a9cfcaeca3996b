"""Distributions of integers, bools and signs.

They have no gradients, because their results are integers. The number of positions of the stream that each
consumes does not depend on values.
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
    accepts_size,
    check,
    check_at_least_zero,
    check_probability,
    refuse,
)
from tracejit.frontend.arrays.random.streams import WORD
from tracejit.frontend.recording.number import concrete

if TYPE_CHECKING:
    from tracejit.frontend.arrays.ndarray import NDArray
    from tracejit.frontend.arrays.random.generator import Generator

MAX_INT64_FLOAT = 2.0**63 - 1024  # the largest float64 in the range of int64


@accepts_size
def integers(
    low: Any,
    high: Any = None,
    shape: Any = None,
    dtype: Any = None,
    *,
    device: Any = None,
    generator: Generator | None = None,
) -> NDArray:
    """Uniformly distributed integers from `low` to `high` - 1, int64 by default; one bound is `high`.

    The bounds may be integer arrays. The result is the upper 64 bits of bits * (high - low), so the relative
    bias of a probability is at most (high - low) / 2**64.
    Raises ArgumentError for a dtype that is not an integer dtype, or bounds that are empty, outside of the
    dtype, or no integers; ShapeError for bounds that do not broadcast to `shape`.

    >>> import tracejit as tj
    >>> x = tj.random.integers(5, 7, shape=100)
    >>> bool(((x >= 5) & (x < 7)).all())
    True
    """
    low, high = (0, low) if high is None else (low, high)
    if isinstance(low, ArrayCore | np.ndarray) or isinstance(high, ArrayCore | np.ndarray):
        return _integers_between(low, high, shape, dtype, device, generator)
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


def _integers_between(low: Any, high: Any, shape: Any, dtype: Any, device: Any, generator: Any) -> Any:
    """Implement `integers` if at least one bound is an array, in uint64, where differences wrap."""
    name = "random.integers"
    bounds: list[Any] = [
        b if isinstance(b, ArrayCore | np.ndarray) else integer(name, concrete(b)) for b in (low, high)
    ]
    for bound in bounds:
        if not isinstance(bound, int) and bound.dtype.kind not in "iu":
            raise refuse(f"{name}: bounds must be integers, not {bound.dtype}", DTypeError)
    kinds: dict[str, Any] = {"kinds": "iu", "within": UINT64}
    unsigned = [b % WORD if isinstance(b, int) else b for b in bounds]
    draw = Draw(name, shape, dtype, device, generator, *unsigned, **kinds)
    limits = np.iinfo(draw.dtype)
    check(name, "low", bounds[0], lambda v: v >= limits.min, f"of at least {limits.min}")
    check(name, "high", bounds[1], lambda v: v <= limits.max + 1, f"of at most {limits.max + 1}")
    check(name, "high - low", bounds[1] - bounds[0], lambda v: v > 0, "above 0")
    first, last = draw.parameters
    return draw.result(_upper_product(draw.bits(UINT64), last - first) + first)


def _upper_product(x: Any, factor: Any) -> Any:
    """Return the upper 64 bits of the 128-bit product of a uint64 array and a number or uint64 array."""
    low, high = factor & 0xFFFFFFFF, factor >> 32
    x_low, x_high = x & 0xFFFFFFFF, x >> 32
    middle = x_high * low + ((x_low * low) >> 32)
    if isinstance(high, int) and not high:
        return middle >> 32
    carry = x_low * high + (middle & 0xFFFFFFFF)
    return x_high * high + (middle >> 32) + (carry >> 32)


@accepts_size
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


@accepts_size
def rademacher(
    shape: Any = (), dtype: Any = None, *, device: Any = None, generator: Generator | None = None
) -> NDArray:
    """Signs, -1 or 1 with equal probability, int64 by default.

    Raises ArgumentError for a dtype that is not a signed integer and not floating, ShapeError for a negative
    extent.

    >>> import tracejit as tj
    >>> bool((abs(tj.random.rademacher(9)) == 1).all())
    True
    """
    draw = Draw(
        "random.rademacher", shape, "int64" if dtype is None else dtype, device, generator, kinds="if"
    )
    return dispatch.cast(draw.bits(UINT64) & 1, draw.dtype) * 2 - 1


@accepts_size
def geometric(
    p: Any, shape: Any = None, dtype: Any = None, *, device: Any = None, generator: Generator | None = None
) -> NDArray:
    """The number of trials, each with success probability `p`, up to the first success; int64 by default.

    Method: inversion of the distribution function (Devroye 1986, chapter X.2). Numbers beyond the range of
    the dtype are clipped to its maximum.
    Raises ArgumentError for a dtype that is not an integer dtype or a p outside (0, 1], ShapeError for a
    negative extent, or if `p` does not broadcast to `shape`.

    >>> import tracejit as tj
    >>> bool((tj.random.geometric(0.3, shape=9) >= 1).all())
    True
    """
    check("random.geometric", "p", p, lambda v: (v > 0) & (v <= 1), "above 0 and at most 1")
    draw = Draw("random.geometric", shape, dtype, device, generator, p, kinds="iu")
    rate = dispatch.apply(ops.log1p, -float64_array(draw.parameters[0]))
    trials = dispatch.apply(ops.ceil, dispatch.apply(ops.log, draw.open_unit()) / rate)
    return _as_integers(draw, clip(trials, 1.0, None))


@accepts_size
def poisson(
    lam: Any = 1.0,
    shape: Any = None,
    dtype: Any = None,
    *,
    device: Any = None,
    generator: Generator | None = None,
) -> NDArray:
    """Numbers of the Poisson distribution with mean `lam`; int64 by default.

    Method: for `lam` < 10 inversion of the distribution function, truncated at 40 (a probability of less than
    2**-42); otherwise transformed rejection (Hoermann, PTRS, 1993) with 20 proposals, which are all rejected
    with a probability below 2**-40.
    Raises ArgumentError for a dtype that is not an integer dtype or a negative lam, ShapeError for a negative
    extent, or if `lam` does not broadcast to `shape`.

    >>> import tracejit as tj
    >>> bool((tj.random.poisson(3.0, shape=9) >= 0).all())
    True
    """
    check_at_least_zero("random.poisson", "lam", lam)
    draw = Draw("random.poisson", shape, dtype, device, generator, lam, kinds="iu")
    return _as_integers(draw, poisson_number(draw, draw.parameters[0]))


@accepts_size
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

    Method: for an expectation of fewer than 10 successes or failures inversion of the distribution function,
    truncated at 40 (a probability of less than 2**-42); otherwise transformed rejection (Hoermann, BTRS,
    1993) with 23 proposals, which are all rejected with a probability below 2**-40.
    Raises ArgumentError for a dtype that is not an integer dtype, a negative n or a p outside [0, 1];
    ShapeError for a negative extent or parameters that do not broadcast to `shape`.

    >>> import tracejit as tj
    >>> bool((tj.random.binomial(5, 0.3, shape=9) <= 5).all())
    True
    """
    check_at_least_zero("random.binomial", "n", n)
    check_probability("random.binomial", "p", p)
    draw = Draw("random.binomial", shape, dtype, device, generator, n, p, kinds="iu")
    return _as_integers(draw, binomial_number(draw, *draw.parameters))


@accepts_size
def negative_binomial(
    n: Any,
    p: Any,
    shape: Any = None,
    dtype: Any = None,
    *,
    device: Any = None,
    generator: Generator | None = None,
) -> NDArray:
    """The number of failures before `n` successes with probability `p`: Poisson numbers with gamma means.

    Raises ArgumentError for a dtype that is not an integer dtype, unless n > 0, or for a p outside (0, 1];
    ShapeError for a negative extent or parameters that do not broadcast to `shape`.

    >>> import tracejit as tj
    >>> bool((tj.random.negative_binomial(5, 0.3, shape=9) >= 0).all())
    True
    """
    name = "random.negative_binomial"
    check(name, "n", n, lambda v: v > 0, "above 0")
    check(name, "p", p, lambda v: (v > 0) & (v <= 1), "above 0 and at most 1")
    draw = Draw(name, shape, dtype, device, generator, n, p, kinds="iu")
    successes, probability = draw.parameters
    options = {"device": device, "generator": generator}
    means = gamma(successes, (1 - probability) / probability, draw.extents, FLOAT64, **options)
    return _as_integers(draw, poisson_number(draw, means))


def _as_integers(draw: Draw, x: Any) -> Any:
    """Cast integers in float64 to the dtype of `draw`, clipped to its maximum."""
    limit = min(float(np.iinfo(draw.dtype).max), MAX_INT64_FLOAT)
    return draw.result(clip(x, None, limit))


__all__ = ["bernoulli", "binomial", "geometric", "integers", "negative_binomial", "poisson", "rademacher"]
