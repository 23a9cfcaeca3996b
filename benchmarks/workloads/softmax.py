"""Softmax over rows: forward, and forward with the gradient for a given cotangent in one call."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from benchmarks.workload import Side, Workload, normal

SHAPE = (4096, 1024)


def make_data() -> dict[str, np.ndarray]:
    """A matrix and a cotangent."""
    return {"x": normal(*SHAPE), "ct": normal(*SHAPE, seed=1)}


def in_tracejit(tj: Any, data: dict[str, np.ndarray], *, backward: bool) -> Side:
    @tj.jit
    def forward(x):
        return (tj.nn.softmax(x, axis=1),)

    @tj.jit
    def both(x, ct):
        y, pull_back = tj.vjp(lambda x: tj.nn.softmax(x, axis=1), x)
        return y, *pull_back(ct)

    x, ct = tj.asarray(data["x"]), tj.asarray(data["ct"])
    step = (lambda: both(x, ct)) if backward else (lambda: forward(x))
    return Side(step, lambda: _named([result.numpy() for result in step()]), both if backward else forward)


def _named(results: list[np.ndarray]) -> dict[str, np.ndarray]:
    return dict(zip(("y", "dx"), results, strict=False))


def in_jax(jax: Any, data: dict[str, np.ndarray], *, backward: bool) -> Side:
    jnp = jax.numpy
    softmax = functools.partial(jax.nn.softmax, axis=1)

    @functools.partial(jax.jit, donate_argnums=0, keep_unused=True)
    def forward(old, x):
        return (softmax(x),)

    @functools.partial(jax.jit, donate_argnums=0, keep_unused=True)
    def both(old, x, ct):
        y, pull_back = jax.vjp(softmax, x)
        return y, *pull_back(ct)

    x, ct = jnp.asarray(data["x"]), jnp.asarray(data["ct"])
    results = tuple(jnp.empty_like(x) for _ in range(1 + backward))

    def step():
        nonlocal results
        results = both(results, x, ct) if backward else forward(results, x)
        return results

    return Side(step, lambda: _named([np.asarray(result) for result in results]))


def in_torch(torch: Any, data: dict[str, np.ndarray], *, backward: bool) -> Side:
    def softmax(x):
        return torch.softmax(x, 1)

    @torch.compile(fullgraph=True, dynamic=False)
    def forward(y, x):
        y.copy_(softmax(x))

    @torch.compile(fullgraph=True, dynamic=False)
    def both(y, dx, x, ct):
        value, pull_back = torch.func.vjp(softmax, x)
        y.copy_(value)
        dx.copy_(pull_back(ct)[0])

    x, ct = torch.from_numpy(data["x"]), torch.from_numpy(data["ct"])
    results = [torch.empty_like(x) for _ in range(1 + backward)]
    step = (lambda: both(*results, x, ct)) if backward else (lambda: forward(*results, x))
    return Side(step, lambda: _named([result.numpy() for result in results]))


def in_numpy(numpy: Any, data: dict[str, np.ndarray], *, backward: bool) -> Side:
    x, ct = data["x"], data["ct"]
    y, dx = np.empty_like(x), np.empty_like(x)

    def step():
        np.subtract(x, x.max(1, keepdims=True), out=y)
        np.exp(y, out=y)
        np.divide(y, y.sum(1, keepdims=True), out=y)
        if backward:
            np.subtract(ct, np.einsum("ij,ij->i", ct, y)[:, None], out=dx)
            np.multiply(dx, y, out=dx)

    return Side(step, lambda: _named([y, dx] if backward else [y]))


def in_numba(numba: Any, data: dict[str, np.ndarray], *, backward: bool) -> Side:
    exp = math.exp
    flags = {"parallel": True, "fastmath": True, "error_model": "numpy"}

    @numba.njit(**flags)
    def forward(y, x):
        rows, columns = x.shape
        for i in numba.prange(rows):
            highest = x[i, 0]
            for j in range(columns):
                highest = max(highest, x[i, j])
            total = np.float32(0)
            for j in range(columns):
                y[i, j] = exp(x[i, j] - highest)
                total += y[i, j]
            scale = np.float32(1) / total
            for j in range(columns):
                y[i, j] *= scale

    @numba.njit(**flags)
    def gradient(dx, y, ct):
        rows, columns = y.shape
        for i in numba.prange(rows):
            dot = np.float32(0)
            for j in range(columns):
                dot += ct[i, j] * y[i, j]
            for j in range(columns):
                dx[i, j] = (ct[i, j] - dot) * y[i, j]

    x, ct = data["x"], data["ct"]
    y, dx = np.empty_like(x), np.empty_like(x)

    def step():
        forward(y, x)
        if backward:
            gradient(dx, y, ct)

    return Side(step, lambda: _named([y, dx] if backward else [y]))


def _workload(direction: str) -> Workload:
    functions = {
        "tracejit": in_tracejit,
        "numpy": in_numpy,
        "jax": in_jax,
        "torch": in_torch,
        "numba": in_numba,
    }
    backward = direction == "backward"
    sides = {name: functools.partial(side, backward=backward) for name, side in functions.items()}
    return Workload(f"softmax-{direction}", "kernel", make_data, sides)


WORKLOADS = [_workload("forward"), _workload("backward")]
