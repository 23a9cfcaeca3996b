"""Layer norm over rows: forward, and forward with the gradients for a given cotangent in one call."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from benchmarks.workload import Side, Workload, normal

ROWS, COLUMNS = 4096, 1024
EPSILON = 1e-5
NAMES = ("y", "dx", "dgain", "dbias")


def make_data() -> dict[str, np.ndarray]:
    """A matrix, gain and bias of a row, and a cotangent."""
    return {
        "x": normal(ROWS, COLUMNS),
        "gain": 1 + normal(COLUMNS, scale=0.1),
        "bias": normal(COLUMNS, scale=0.1, seed=1),
        "ct": normal(ROWS, COLUMNS, seed=1),
    }


def _named(results: Any) -> dict[str, np.ndarray]:
    return dict(zip(NAMES, map(np.asarray, results), strict=False))


def in_tracejit(tj: Any, data: dict[str, np.ndarray], *, backward: bool) -> Side:
    def layer_norm(x, gain, bias):
        deviation = x - x.mean(axis=1, keepdims=True)
        variance = (deviation * deviation).mean(axis=1, keepdims=True)
        return deviation * (1 / tj.sqrt(variance + EPSILON)) * gain + bias

    @tj.jit
    def forward(x, gain, bias):
        return (layer_norm(x, gain, bias),)

    @tj.jit
    def both(x, gain, bias, ct):
        y, pull_back = tj.vjp(layer_norm, x, gain, bias)
        return y, *pull_back(ct)

    x, gain, bias, ct = (tj.asarray(data[name]) for name in ("x", "gain", "bias", "ct"))
    step = (lambda: both(x, gain, bias, ct)) if backward else (lambda: forward(x, gain, bias))
    return Side(step, lambda: _named([r.numpy() for r in step()]), both if backward else forward)


def in_jax(jax: Any, data: dict[str, np.ndarray], *, backward: bool) -> Side:
    jnp = jax.numpy

    def layer_norm(x, gain, bias):
        deviation = x - x.mean(axis=1, keepdims=True)
        variance = (deviation * deviation).mean(axis=1, keepdims=True)
        return deviation * jax.lax.rsqrt(variance + EPSILON) * gain + bias

    @functools.partial(jax.jit, donate_argnums=0, keep_unused=True)
    def forward(old, x, gain, bias):
        return (layer_norm(x, gain, bias),)

    @functools.partial(jax.jit, donate_argnums=0, keep_unused=True)
    def both(old, x, gain, bias, ct):
        y, pull_back = jax.vjp(layer_norm, x, gain, bias)
        return y, *pull_back(ct)

    x, gain, bias, ct = (jnp.asarray(data[name]) for name in ("x", "gain", "bias", "ct"))
    results = tuple(map(jnp.empty_like, (x, x, gain, bias) if backward else (x,)))

    def step():
        nonlocal results
        results = both(results, x, gain, bias, ct) if backward else forward(results, x, gain, bias)
        return results

    return Side(step, lambda: _named(results))


def in_torch(torch: Any, data: dict[str, np.ndarray], *, backward: bool) -> Side:
    def layer_norm(x, gain, bias):
        return torch.nn.functional.layer_norm(x, (COLUMNS,), gain, bias, EPSILON)

    @torch.compile(fullgraph=True, dynamic=False)
    def forward(results, x, gain, bias):
        results[0].copy_(layer_norm(x, gain, bias))

    @torch.compile(fullgraph=True, dynamic=False)
    def both(results, x, gain, bias, ct):
        y, pull_back = torch.func.vjp(layer_norm, x, gain, bias)
        for result, value in zip(results, (y, *pull_back(ct)), strict=True):
            result.copy_(value)

    x, gain, bias, ct = (torch.from_numpy(data[name]) for name in ("x", "gain", "bias", "ct"))
    results = [torch.empty_like(t) for t in ((x, x, gain, bias) if backward else (x,))]
    step = (
        (lambda: both(results, x, gain, bias, ct)) if backward else (lambda: forward(results, x, gain, bias))
    )
    return Side(step, lambda: _named(results))


def in_numpy(numpy: Any, data: dict[str, np.ndarray], *, backward: bool) -> Side:
    x, gain, bias, ct = (data[name] for name in ("x", "gain", "bias", "ct"))
    deviation, y, dx = (np.empty_like(x) for _ in range(3))
    results = [y]

    def step():
        nonlocal results
        np.subtract(x, x.mean(1, keepdims=True), out=deviation)
        variance = np.einsum("ij,ij->i", deviation, deviation)[:, None] / np.float32(COLUMNS)
        inverse = 1 / np.sqrt(variance + np.float32(EPSILON))
        np.multiply(deviation, inverse, out=deviation)
        np.multiply(deviation, gain, out=y)
        np.add(y, bias, out=y)
        if backward:
            dgain, dbias = np.einsum("ij,ij->j", ct, deviation), ct.sum(0)
            np.multiply(ct, gain, out=dx)
            along = np.einsum("ij,ij->i", dx, deviation)[:, None] / np.float32(COLUMNS)
            np.subtract(dx, dx.mean(1, keepdims=True), out=dx)
            np.subtract(dx, np.multiply(deviation, along, out=deviation), out=dx)
            np.multiply(dx, inverse, out=dx)
            results = [y, dx, dgain, dbias]

    return Side(step, lambda: _named(results))


def in_numba(numba: Any, data: dict[str, np.ndarray]) -> Side:
    """Forward only."""
    one, epsilon = np.float32(1), np.float32(EPSILON)

    @numba.njit(parallel=True, fastmath=True, error_model="numpy")
    def forward(y, x, gain, bias):
        rows, columns = x.shape
        scale = one / np.float32(columns)
        for i in numba.prange(rows):
            total = np.float32(0)
            for j in range(columns):
                total += x[i, j]
            mean = total * scale
            squares = np.float32(0)
            for j in range(columns):
                squares += (x[i, j] - mean) * (x[i, j] - mean)
            inverse = one / np.sqrt(squares * scale + epsilon)
            for j in range(columns):
                y[i, j] = (x[i, j] - mean) * inverse * gain[j] + bias[j]

    y = np.empty_like(data["x"])
    return Side(lambda: forward(y, data["x"], data["gain"], data["bias"]), lambda: {"y": y})


FUNCTIONS = {
    "tracejit": in_tracejit,
    "numpy": in_numpy,
    "jax": in_jax,
    "torch": in_torch,
}


def _sides(backward: bool) -> dict[str, Any]:
    return {name: functools.partial(side, backward=backward) for name, side in FUNCTIONS.items()}


WORKLOADS = [
    Workload("layer-norm-forward", "kernel", make_data, _sides(False) | {"numba": in_numba}),
    Workload("layer-norm-backward", "kernel", make_data, _sides(True)),
]
