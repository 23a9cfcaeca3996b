"""The assignment step of k-means: for each point the nearest centre, by |x|^2 - 2 x.c + |c|^2.

Rounding may decide a tie either way, so the distances to the chosen centres are compared.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.workload import Arrays, Side, Workload, normal

POINTS, WIDTH, CENTRES = 65536, 32, 64


def make_data() -> dict[str, np.ndarray]:
    """Points and centres."""
    return {"points": normal(POINTS, WIDTH), "centres": normal(CENTRES, WIDTH, seed=1)}


def _distances(data: dict[str, np.ndarray], labels: Any) -> Arrays:
    chosen = data["centres"][np.asarray(labels)]
    return {"distances": np.linalg.norm(data["points"].astype(np.float64) - chosen, axis=1)}


def in_tracejit(tj: Any, data: dict[str, np.ndarray]) -> Side:
    @tj.jit
    def assign(points, centres):
        return tj.argmin((centres * centres).sum(axis=1) - 2 * (points @ centres.T), axis=1)

    points, centres = tj.asarray(data["points"]), tj.asarray(data["centres"])
    return Side(
        lambda: assign(points, centres), lambda: _distances(data, assign(points, centres).numpy()), assign
    )


def in_jax(jax: Any, data: dict[str, np.ndarray]) -> Side:
    @jax.jit
    def assign(points, centres):
        return jax.numpy.argmin((centres * centres).sum(1) - 2 * (points @ centres.T), axis=1)

    points, centres = jax.numpy.asarray(data["points"]), jax.numpy.asarray(data["centres"])
    return Side(lambda: assign(points, centres), lambda: _distances(data, assign(points, centres)))


def in_torch(torch: Any, data: dict[str, np.ndarray]) -> Side:
    @torch.compile(fullgraph=True, dynamic=False)
    def assign(labels, points, centres):
        labels.copy_(torch.argmin((centres * centres).sum(1) - 2 * (points @ centres.T), dim=1))

    points, centres = torch.from_numpy(data["points"]), torch.from_numpy(data["centres"])
    labels = torch.empty(POINTS, dtype=torch.int64)
    return Side(lambda: assign(labels, points, centres), lambda: _distances(data, labels))


def in_numpy(numpy: Any, data: dict[str, np.ndarray]) -> Side:
    points, centres = data["points"], data["centres"]
    scores, labels = np.empty((POINTS, CENTRES), np.float32), np.empty(POINTS, np.int64)

    def step():
        np.matmul(points, -2 * centres.T, out=scores)
        np.add(scores, np.einsum("ij,ij->i", centres, centres), out=scores)
        np.argmin(scores, axis=1, out=labels)

    return Side(step, lambda: _distances(data, labels))


def in_numba(numba: Any, data: dict[str, np.ndarray]) -> Side:
    @numba.njit(parallel=True, fastmath=True, error_model="numpy")
    def assign(labels, points, centres):
        for i in numba.prange(points.shape[0]):
            nearest, least = 0, np.float32(np.inf)
            for k in range(centres.shape[0]):
                distance = np.float32(0)
                for j in range(points.shape[1]):
                    apart = points[i, j] - centres[k, j]
                    distance += apart * apart
                if distance < least:
                    nearest, least = k, distance
            labels[i] = nearest

    labels = np.empty(POINTS, np.int64)
    return Side(lambda: assign(labels, data["points"], data["centres"]), lambda: _distances(data, labels))


SIDES = {"tracejit": in_tracejit, "numpy": in_numpy, "jax": in_jax, "torch": in_torch, "numba": in_numba}
WORKLOADS = [Workload("kmeans-assignment", "graph", make_data, SIDES)]
