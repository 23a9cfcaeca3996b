"""Black-Scholes prices of European calls and puts: transcendental functions on every element, no reuse.

All sides use the error function, except numexpr, which has none and uses Abramowitz and Stegun's polynomial
(26.2.17).
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from benchmarks.workload import Side, Workload

RATE, VOLATILITY = 0.02, 0.3
ROOT_HALF = math.sqrt(0.5)


def make_data(count: int) -> dict[str, np.ndarray]:
    """Spot prices, strikes and years to expiry."""
    rng = np.random.default_rng(count)
    ranges = {"spot": (10, 50), "strike": (10, 50), "years": (0.25, 2)}
    return {name: rng.uniform(low, high, count).astype(np.float32) for name, (low, high) in ranges.items()}


def in_tracejit(tj: Any, data: dict[str, np.ndarray]) -> Side:
    def normal_cdf(x):
        return 0.5 + 0.5 * tj.erf(x * ROOT_HALF)

    @tj.jit
    def price(spot, strike, years):
        spread = VOLATILITY * tj.sqrt(years)
        d1 = (tj.log(spot / strike) + (RATE + 0.5 * VOLATILITY**2) * years) / spread
        d2 = d1 - spread
        discounted = strike * tj.exp(-RATE * years)
        call = spot * normal_cdf(d1) - discounted * normal_cdf(d2)
        return call, call - spot + discounted

    arguments = [tj.asarray(data[name]) for name in ("spot", "strike", "years")]

    def read():
        call, put = price(*arguments)
        return {"call": call.numpy(), "put": put.numpy()}

    return Side(lambda: price(*arguments), read, price)


def in_jax(jax: Any, data: dict[str, np.ndarray]) -> Side:
    jnp = jax.numpy

    def normal_cdf(x):
        return 0.5 + 0.5 * jax.lax.erf(x * ROOT_HALF)

    @functools.partial(jax.jit, donate_argnums=(0, 1), keep_unused=True)
    def price(old_call, old_put, spot, strike, years):
        spread = VOLATILITY * jnp.sqrt(years)
        d1 = (jnp.log(spot / strike) + (RATE + 0.5 * VOLATILITY**2) * years) / spread
        d2 = d1 - spread
        discounted = strike * jnp.exp(-RATE * years)
        call = spot * normal_cdf(d1) - discounted * normal_cdf(d2)
        return call, call - spot + discounted

    arguments = [jnp.asarray(data[name]) for name in ("spot", "strike", "years")]
    result = [jnp.empty_like(arguments[0]) for _ in range(2)]

    def step():
        nonlocal result
        result = price(*result, *arguments)
        return result

    return Side(step, lambda: {"call": np.asarray(result[0]), "put": np.asarray(result[1])}, price)


def in_torch(torch: Any, data: dict[str, np.ndarray]) -> Side:
    def normal_cdf(x):
        return 0.5 + 0.5 * torch.erf(x * ROOT_HALF)

    @torch.compile(fullgraph=True, dynamic=False)
    def price(call, put, spot, strike, years):
        spread = VOLATILITY * torch.sqrt(years)
        d1 = (torch.log(spot / strike) + (RATE + 0.5 * VOLATILITY**2) * years) / spread
        d2 = d1 - spread
        discounted = strike * torch.exp(-RATE * years)
        value = spot * normal_cdf(d1) - discounted * normal_cdf(d2)
        call.copy_(value)
        put.copy_(value - spot + discounted)

    arguments = [torch.from_numpy(data[name]) for name in ("spot", "strike", "years")]
    call, put = (torch.empty_like(arguments[0]) for _ in range(2))
    return Side(lambda: price(call, put, *arguments), lambda: {"call": call.numpy(), "put": put.numpy()})


def in_numpy(numpy: Any, data: dict[str, np.ndarray]) -> Side:
    from scipy.special import ndtr  # NumPy has no error function; SciPy is installed with JAX

    spot, strike, years = (data[name] for name in ("spot", "strike", "years"))
    buffers = [np.empty_like(spot) for _ in range(6)]

    def step():
        spread, d1, d2, discounted, call, put = buffers
        np.sqrt(years, out=spread)
        spread *= VOLATILITY
        np.divide(spot, strike, out=d1)
        np.log(d1, out=d1)
        np.multiply(years, RATE + 0.5 * VOLATILITY**2, out=d2)
        d1 += d2
        d1 /= spread
        np.subtract(d1, spread, out=d2)
        np.multiply(years, -RATE, out=discounted)
        np.exp(discounted, out=discounted)
        discounted *= strike
        ndtr(d1, out=d1)
        ndtr(d2, out=d2)
        np.multiply(spot, d1, out=call)
        d2 *= discounted
        call -= d2
        np.subtract(call, spot, out=put)
        put += discounted

    return Side(step, lambda: {"call": buffers[4], "put": buffers[5]})


def in_numba(numba: Any, data: dict[str, np.ndarray]) -> Side:
    f32, exp, log, sqrt, erf = np.float32, math.exp, math.log, math.sqrt, math.erf
    rate, volatility, half, root_half = f32(RATE), f32(VOLATILITY), f32(0.5), f32(ROOT_HALF)

    @numba.njit(parallel=True, fastmath=True, error_model="numpy")
    def price(call, put, spot, strike, years):
        for i in numba.prange(spot.size):
            spread = volatility * sqrt(years[i])
            d1 = (log(spot[i] / strike[i]) + (rate + half * volatility * volatility) * years[i]) / spread
            d2 = d1 - spread
            discounted = strike[i] * exp(-rate * years[i])
            value = spot[i] * (half + half * erf(d1 * root_half)) - discounted * (
                half + half * erf(d2 * root_half)
            )
            call[i] = value
            put[i] = value - spot[i] + discounted

    arguments = [data[name] for name in ("spot", "strike", "years")]
    call, put = (np.empty_like(arguments[0]) for _ in range(2))
    return Side(lambda: price(call, put, *arguments), lambda: {"call": call, "put": put})


def in_numexpr(numexpr: Any, data: dict[str, np.ndarray]) -> Side:
    coefficients = (0.319381530, -0.356563782, 1.781477937, -1.821255978, 1.330274429)
    names = {f"c{i}": np.float32(c) for i, c in enumerate(coefficients)} | data
    names |= {
        "rate": np.float32(RATE), "volatility": np.float32(VOLATILITY), "half": np.float32(0.5),
        "gamma": np.float32(0.2316419), "norm": np.float32(1 / math.sqrt(2 * math.pi)),
    }  # fmt: skip
    for name in ("d1", "d2", "discounted", "call", "put"):
        names[name] = np.empty_like(data["spot"])
    k, d = "(1 / (1 + gamma * abs({0})))", "{0}"
    tail = f"norm * exp(-half * {d} * {d}) * {k} * (c0 + {k} * (c1 + {k} * (c2 + {k} * (c3 + {k} * c4))))"
    cdf = f"where({d} > 0, 1 - {tail}, {tail})"
    spread = "(volatility * sqrt(years))"
    formulas = {
        "d1": f"(log(spot / strike) + (rate + half * volatility * volatility) * years) / {spread}",
        "d2": f"d1 - {spread}",
        "discounted": "strike * exp(-rate * years)",
        "call": f"spot * {cdf.format('d1')} - discounted * {cdf.format('d2')}",
        "put": "call - spot + discounted",
    }

    def step():
        for name, formula in formulas.items():
            numexpr.evaluate(formula, local_dict=names, global_dict={}, out=names[name])

    return Side(step, lambda: {"call": names["call"], "put": names["put"]})


SIDES = {
    "tracejit": in_tracejit,
    "numpy": in_numpy,
    "jax": in_jax,
    "torch": in_torch,
    "numba": in_numba,
    "numexpr": in_numexpr,
}
WORKLOADS = [
    Workload(f"black-scholes-{label}", "kernel", functools.partial(make_data, count), SIDES)
    for label, count in (("1k", 1_000), ("100k", 100_000), ("4M", 4_000_000))
]
