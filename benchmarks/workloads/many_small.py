"""Overhead: a thousand live arrays, each times 100 plus 1, and a chain of five thousand ``+= 1`` (Minerva's
test).

Arrays are tiny (10 x 8), so overhead is measured, not arithmetic.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from benchmarks.workload import Side, Workload, normal

SHAPE, ARRAYS, LINKS = (10, 8), 1000, 5000


def make_arrays() -> dict[str, np.ndarray]:
    """A thousand small arrays, stacked into one."""
    return {"x": normal(ARRAYS, *SHAPE)}


def make_one() -> dict[str, np.ndarray]:
    """One small array."""
    return {"x": normal(*SHAPE)}


def arrays_in_tracejit(tj: Any, data: dict[str, np.ndarray]) -> Side:
    @tj.jit
    def scale(arrays):
        return [a * 100 + 1 for a in arrays]

    arrays = [tj.asarray(a) for a in data["x"]]
    return Side(lambda: scale(arrays), lambda: {"y": np.stack([a.numpy() for a in scale(arrays)])}, scale)


def arrays_in_tracejit_eager(tj: Any, data: dict[str, np.ndarray]) -> Side:
    """Undecorated: recorded lazily, in segments of equal length."""
    arrays = [tj.asarray(a) for a in data["x"]]

    def step():
        return [a * 100 + 1 for a in arrays]

    return Side(step, lambda: {"y": np.stack([a.numpy() for a in step()])})


def arrays_in_jax(jax: Any, data: dict[str, np.ndarray]) -> Side:
    @functools.partial(jax.jit, donate_argnums=0, keep_unused=True)
    def scale(old, arrays):
        return [a * 100 + 1 for a in arrays]

    arrays = [jax.numpy.asarray(a) for a in data["x"]]
    results = [jax.numpy.empty_like(a) for a in arrays]

    def step():
        nonlocal results
        results = scale(results, arrays)
        return results

    return Side(step, lambda: {"y": np.stack(results)})


def arrays_in_torch_eager(torch: Any, data: dict[str, np.ndarray]) -> Side:
    """The multi-tensor functions; torch.compile takes minutes for a thousand inputs."""
    arrays = [torch.from_numpy(a) for a in data["x"]]
    results: list[Any] = []

    def step():
        nonlocal results
        results = torch._foreach_mul(arrays, 100.0)
        torch._foreach_add_(results, 1.0)

    return Side(step, lambda: {"y": np.stack(results)})


def arrays_in_numpy(numpy: Any, data: dict[str, np.ndarray]) -> Side:
    arrays, results = list(data["x"]), [np.empty(SHAPE, np.float32) for _ in range(ARRAYS)]

    def step():
        for array, result in zip(arrays, results, strict=True):
            np.multiply(array, 100, out=result)
            result += 1

    return Side(step, lambda: {"y": np.stack(results)})


def chain_in_tracejit(tj: Any, data: dict[str, np.ndarray]) -> Side:
    @tj.jit
    def count(x):
        for _ in range(LINKS):
            x += 1

    x = tj.asarray(data["x"])
    return Side(lambda: count(x), lambda: {"x": x.numpy()}, count)


def chain_in_tracejit_eager(tj: Any, data: dict[str, np.ndarray]) -> Side:
    """Undecorated: recorded lazily, in segments of equal length."""
    x = tj.asarray(data["x"])

    def step():
        nonlocal x
        for _ in range(LINKS):
            x += 1
        return x

    return Side(step, lambda: {"x": x.numpy()})


def chain_in_jax(jax: Any, data: dict[str, np.ndarray]) -> Side:
    @functools.partial(jax.jit, donate_argnums=0)
    def count(x):
        return jax.lax.fori_loop(0, LINKS, lambda _, x: x + 1, x)

    x = jax.numpy.asarray(data["x"])

    def step():
        nonlocal x
        x = count(x)
        return x

    return Side(step, lambda: {"x": np.asarray(x)})


def chain_in_torch_eager(torch: Any, data: dict[str, np.ndarray]) -> Side:
    """The eager loop; torch.compile unrolls it and takes minutes."""
    x = torch.from_numpy(data["x"]).clone()

    def step():
        for _ in range(LINKS):
            x.add_(1)

    return Side(step, lambda: {"x": x.numpy()})


def chain_in_numpy(numpy: Any, data: dict[str, np.ndarray]) -> Side:
    x, add = data["x"].copy(), np.add

    def step():
        for _ in range(LINKS):
            add(x, 1, out=x)

    return Side(step, lambda: {"x": x})


WORKLOADS = [
    Workload(
        "thousand-arrays",
        "graph",
        make_arrays,
        {
            "tracejit": arrays_in_tracejit,
            "tracejit:eager": arrays_in_tracejit_eager,
            "numpy": arrays_in_numpy,
            "jax": arrays_in_jax,
            "torch:eager": arrays_in_torch_eager,
        },
    ),
    Workload(
        "chain-of-5000",
        "graph",
        make_one,
        {
            "tracejit": chain_in_tracejit,
            "tracejit:eager": chain_in_tracejit_eager,
            "numpy": chain_in_numpy,
            "jax": chain_in_jax,
            "torch:eager": chain_in_torch_eager,
        },
    ),
]
