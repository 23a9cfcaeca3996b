"""One Jacobi sweep of a 2-D grid, written with slices and assigned to the interior of the grid that it
reads."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from benchmarks.workload import Side, Workload, normal

SIZE = 2048
QUARTER = np.float32(0.25)


def make_data() -> dict[str, np.ndarray]:
    """A grid."""
    return {"grid": normal(SIZE, SIZE)}


def in_tracejit(tj: Any, data: dict[str, np.ndarray]) -> Side:
    @tj.jit
    def sweep(a):
        a[1:-1, 1:-1] = 0.25 * (a[:-2, 1:-1] + a[2:, 1:-1] + a[1:-1, :-2] + a[1:-1, 2:])

    grid = tj.asarray(data["grid"])
    return Side(lambda: sweep(grid), lambda: {"grid": grid.numpy()}, sweep)


def in_jax(jax: Any, data: dict[str, np.ndarray]) -> Side:
    @functools.partial(jax.jit, donate_argnums=0)
    def sweep(a):
        return a.at[1:-1, 1:-1].set(0.25 * (a[:-2, 1:-1] + a[2:, 1:-1] + a[1:-1, :-2] + a[1:-1, 2:]))

    grid = jax.numpy.asarray(data["grid"])

    def step():
        nonlocal grid
        grid = sweep(grid)
        return grid

    return Side(step, lambda: {"grid": np.asarray(grid)})


def in_torch(torch: Any, data: dict[str, np.ndarray]) -> Side:
    @torch.compile(fullgraph=True, dynamic=False)
    def sweep(a):
        a[1:-1, 1:-1] = 0.25 * (a[:-2, 1:-1] + a[2:, 1:-1] + a[1:-1, :-2] + a[1:-1, 2:])

    grid = torch.from_numpy(data["grid"]).clone()
    return Side(lambda: sweep(grid), lambda: {"grid": grid.numpy()})


def in_numpy(numpy: Any, data: dict[str, np.ndarray]) -> Side:
    grid = data["grid"].copy()
    fresh = np.empty_like(grid[1:-1, 1:-1])

    def step():
        np.add(grid[:-2, 1:-1], grid[2:, 1:-1], out=fresh)
        np.add(fresh, grid[1:-1, :-2], out=fresh)
        np.add(fresh, grid[1:-1, 2:], out=fresh)
        np.multiply(fresh, QUARTER, out=grid[1:-1, 1:-1])

    return Side(step, lambda: {"grid": grid})


def in_numba(numba: Any, data: dict[str, np.ndarray]) -> Side:
    """Two alternating grids, which need no copy; both have the same border."""

    @numba.njit(parallel=True, fastmath=True, error_model="numpy")
    def sweep(new, old):
        rows, columns = old.shape
        for i in numba.prange(1, rows - 1):
            for j in range(1, columns - 1):
                new[i, j] = QUARTER * (old[i - 1, j] + old[i + 1, j] + old[i, j - 1] + old[i, j + 1])

    old, new = data["grid"].copy(), data["grid"].copy()

    def step():
        nonlocal old, new
        sweep(new, old)
        old, new = new, old

    return Side(step, lambda: {"grid": old})


def in_numexpr(numexpr: Any, data: dict[str, np.ndarray]) -> Side:
    grid = data["grid"].copy()
    fresh, inside = np.empty_like(grid[1:-1, 1:-1]), grid[1:-1, 1:-1]
    names = {"n": grid[:-2, 1:-1], "s": grid[2:, 1:-1], "w": grid[1:-1, :-2], "e": grid[1:-1, 2:]}
    names |= {"quarter": QUARTER}

    def step():
        numexpr.evaluate("quarter * (n + s + w + e)", local_dict=names, global_dict={}, out=fresh)
        inside[...] = fresh

    return Side(step, lambda: {"grid": grid})


SIDES = {
    "tracejit": in_tracejit,
    "numpy": in_numpy,
    "jax": in_jax,
    "torch": in_torch,
    "numba": in_numba,
    "numexpr": in_numexpr,
}
WORKLOADS = [Workload("stencil", "kernel", make_data, SIDES)]
