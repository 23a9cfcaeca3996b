"""Undecorated array code on small arrays: the cost of an operation outside of a traced function.

Chains are the same code for all sides, with functions of one array module; loops over slices are from
dense linear algebra and dynamic programming (polybench), with extents that change in every iteration.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.workload import Side, Workload, normal

SMALL, ORDER = 100, 60
Body = Callable[..., Any]


def elementwise(xp: Any, x: Any, y: Any) -> Any:
    """Twelve operations on arrays of 100."""
    for _ in range(3):
        z = x * y + 0.5
        x = xp.tanh(z) - y / 2.0
    return x


def softmax(xp: Any, x: Any, y: Any) -> Any:
    """Reductions over rows of a matrix, and the elementwise operations between them."""
    e = xp.exp(x - xp.amax(x, axis=1)[:, None])
    return e / e.sum(axis=1)[:, None] * y


def layers(xp: Any, x: Any, w: Any, v: Any) -> Any:
    """Two dense layers of a net for eight examples."""
    return xp.tanh(x @ w + v[0]) @ w.T + v[1]


def conditions(xp: Any, x: Any, y: Any) -> Any:
    """Comparisons, selections, in-place updates, elements one by one."""
    z = xp.where(x > y, x, y)
    z -= xp.sqrt(abs(y))
    z[0] = 1.0
    z[1:50] *= 2.0
    return z + z[3]


def lu(a: Any) -> Any:
    """Decomposition in place, element by element (polybench `lu`)."""
    for i in range(ORDER):
        for j in range(i):
            a[i, j] -= a[i, :j] @ a[:j, j]
            a[i, j] /= a[j, j]
        for j in range(i, ORDER):
            a[i, j] -= a[i, :i] @ a[:i, j]
    return a


def substitution(a: Any) -> Any:
    """Forward substitution with all rows of a triangle as right-hand sides, row by row."""
    for i in range(ORDER):
        a[i] = (a[i] - a[i, :i] @ a[:i]) / 4.0
    return a


def relaxation(a: Any) -> Any:
    """Sweeps of a shrinking triangle of a grid."""
    for i in range(1, ORDER - 1):
        a[i, 1 : ORDER - i] = (
            0.25 * (a[i - 1, 1 : ORDER - i] + a[i + 1, 1 : ORDER - i]) + 0.5 * a[i, : ORDER - i - 1]
        )
    return a


def chain_data() -> dict[str, np.ndarray]:
    """Two vectors."""
    return {"x": normal(SMALL), "y": normal(SMALL, seed=1)}


def matrix_data() -> dict[str, np.ndarray]:
    """Two matrices of 8 rows."""
    return {"x": normal(8, 16), "y": normal(8, 16, seed=1)}


def layer_data() -> dict[str, np.ndarray]:
    """Examples, a matrix, and two vectors."""
    return {"x": normal(8, 16), "w": normal(16, 16, seed=1), "v": normal(2, 16, seed=2)}


def square() -> dict[str, np.ndarray]:
    """A matrix that can be decomposed without row exchanges."""
    return {"a": normal(ORDER, ORDER) + 4 * ORDER * np.eye(ORDER, dtype=np.float32)}


def _sides(body: Body, *, functional: bool) -> dict[str, Any]:
    """Sides that call ``body(module, *arrays)``, or ``body(*copies)`` with copies of the arrays that the
    body changes."""

    def on(make: Callable[[Any, np.ndarray], Any], to_numpy: Callable[[Any], np.ndarray]) -> Any:
        def prepare(module: Any, data: dict[str, np.ndarray]) -> Side:
            arrays = [make(module, a) for a in data.values()]

            def step() -> Any:
                return (
                    body(module, *arrays) if functional else body(*[make(module, a) for a in data.values()])
                )

            return Side(step, lambda: {"result": to_numpy(step())})

        return prepare

    return {
        "tracejit": on(lambda tj, a: tj.asarray(a), lambda x: x.numpy()),
        "numpy": on(lambda np, a: a.copy(), np.asarray),
        "torch:eager": on(lambda torch, a: torch.from_numpy(a.copy()), lambda x: x.numpy()),
    }


CHAINS = {
    "eager-elementwise": (elementwise, chain_data),
    "eager-softmax": (softmax, matrix_data),
    "eager-layers": (layers, layer_data),
    "eager-conditions": (conditions, chain_data),
}
LOOPS = {"eager-lu": lu, "eager-substitution": substitution, "eager-relaxation": relaxation}
WORKLOADS = [
    *(Workload(name, "eager", data, _sides(body, functional=True)) for name, (body, data) in CHAINS.items()),
    *(Workload(name, "eager", square, _sides(body, functional=False)) for name, body in LOOPS.items()),
]
