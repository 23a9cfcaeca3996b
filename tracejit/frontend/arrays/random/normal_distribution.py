"""The normal distribution function and its inverse, for float64 arrays and Python numbers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tracejit import ops
from tracejit.frontend.arrays import dispatch
from tracejit.frontend.arrays.core import ArrayCore
from tracejit.frontend.arrays.devices import default_device
from tracejit.frontend.arrays.functions.elementwise import clip, where

# Wichura, Algorithm AS 241: the percentage points of the normal distribution, 1988 (PPND16): the coefficients
# of numerators and denominators, from the highest power to the lowest.
CENTRE = (
    (
        *(2509.0809287301226727, 33430.575583588128105, 67265.770927008700853, 45921.953931549871457),
        *(13731.693765509461125, 1971.5909503065514427, 133.14166789178437745, 3.387132872796366608),
    ),
    (
        *(5226.495278852854561, 28729.085735721942674, 39307.89580009271061, 21213.794301586595867),
        *(5394.1960214247511077, 687.1870074920579083, 42.313330701600911252, 1.0),
    ),
)
NEAR_TAIL = (
    (
        *(7.7454501427834140764e-4, 0.0227238449892691845833, 0.24178072517745061177, 1.27045825245236838258),
        *(3.64784832476320460504, 5.7694972214606914055, 4.6303378461565452959, 1.42343711074968357734),
    ),
    (
        *(1.05075007164441684324e-9, 5.475938084995344946e-4, 0.0151986665636164571966),
        *(0.14810397642748007459, 0.68976733498510000455, 1.6763848301838038494, 2.05319162663775882187, 1.0),
    ),
)
FAR_TAIL = (
    (
        *(2.01033439929228813265e-7, 2.71155556874348757815e-5, 0.0012426609473880784386),
        *(0.026532189526576123093, 0.29656057182850489123, 1.7848265399172913358, 5.4637849111641143699),
        6.6579046435011037772,
    ),
    (
        *(2.04426310338993978564e-15, 1.4215117583164458887e-7, 1.8463183175100546818e-5),
        *(7.868691311456132591e-4, 0.0148753612908506148525, 0.13692988092273580531, 0.59983220655588793769),
        1.0,
    ),
)


def _ratio(x: Any, coefficients: tuple[tuple[float, ...], tuple[float, ...]]) -> Any:
    """Return the quotient of two polynomials in x, evaluated by Horner's scheme."""
    values = []
    for polynomial in coefficients:
        value: Any = polynomial[0]
        for c in polynomial[1:]:
            value = x * value + c
        values.append(value)
    return values[0] / values[1]


def normal_cdf(x: Any) -> Any:
    """Return the probability that a standard normal number is at most x."""
    if type(x) in (int, float):
        return math.erfc(-x / math.sqrt(2)) / 2
    if not isinstance(x, ArrayCore):
        x = dispatch.full(x, (), np.dtype(float), default_device())
    return (dispatch.apply(ops.erf, x * math.sqrt(0.5)) + 1) / 2


def normal_quantile(p: Any) -> Any:
    """Return the x below which a standard normal number is with probability p, 0 < p < 1."""
    q = p - 0.5
    centre = q * _ratio(0.180625 - q * q, CENTRE)
    smaller = where(q < 0, p, 1 - p)
    r = dispatch.apply(ops.sqrt, -dispatch.apply(ops.log, clip(smaller, 2.0**-1022, 0.5)))
    tail = where(r <= 5, _ratio(r - 1.6, NEAR_TAIL), _ratio(r - 5, FAR_TAIL))
    return where(abs(q) <= 0.425, centre, where(q < 0, -tail, tail))
