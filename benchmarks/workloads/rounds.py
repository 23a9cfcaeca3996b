"""Ten thousand iterations of six operations on short rows: over `tj.range`, over Python's `range`, and as a
`fori_loop` in JAX.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.workload import Arrays, Side, Workload, normal

ROUNDS = 10_000
SIZES = (8, 64, 1024)


def rows(size: int) -> Callable[[], Arrays]:
    """The state, and the operands that all iterations use."""
    return lambda: {"x": normal(size), "w": normal(size, seed=1), "b": normal(size, seed=2)}


def in_tracejit(tj: Any, data: Arrays, *, plain: bool = False) -> Side:
    """A loop over `tj.range`, or over `range` if `plain`."""
    rounds: Any = range if plain else tj.range

    @tj.jit
    def run(x, w, b, n):
        for _ in rounds(n):
            x = tj.tanh(x * w + b) * 0.5 - x * 0.25
        return x

    x, w, b = (tj.asarray(data[name]) for name in "xwb")
    return Side(lambda: run(x, w, b, ROUNDS), lambda: {"x": run(x, w, b, ROUNDS).numpy()}, run)


def plain(tj: Any, data: Arrays) -> Side:
    """A loop over Python's `range`."""
    return in_tracejit(tj, data, plain=True)


def in_jax(jax: Any, data: Arrays) -> Side:
    """A `fori_loop`."""
    numpy = jax.numpy

    @jax.jit
    def run(x, w, b):
        return jax.lax.fori_loop(0, ROUNDS, lambda _, x: numpy.tanh(x * w + b) * 0.5 - x * 0.25, x)

    x, w, b = (numpy.asarray(data[name]) for name in "xwb")
    return Side(lambda: run(x, w, b), lambda: {"x": np.asarray(run(x, w, b))})


RANGE = [f"rounds-{size}" for size in SIZES]
PLAIN = [f"rounds-plain-{size}" for size in SIZES]
WORKLOADS = [
    Workload(name, "graph", rows(size), {"tracejit": side, "jax": in_jax})
    for names, side in ((RANGE, in_tracejit), (PLAIN, plain))
    for name, size in zip(names, SIZES, strict=True)
]
