"""Programs of many iterations, written as Python loops over slices: small solvers of dense linear algebra, a
stencil with a thousand sweeps, and a recurrent net.

Our side, NumPy's and Numba's share one body, or Numba has the loops over elements that its users would write;
JAX has loops with functional bodies if the extents are equal in all iterations.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.workload import Arrays, Side, Workload, normal

ORDER, ROWS, ROUNDS, GRID = 60, 400, 1000, 200
STEPS, BATCH, WIDTH = 64, 32, 64
Body = Callable[..., Any]


def lu(a: Any) -> Any:
    """Doolittle's factors in one matrix, row by row."""
    m = a.copy()
    for i in range(m.shape[0]):
        for j in range(i):
            m[i, j] = (m[i, j] - m[i, :j] @ m[:j, j]) / m[j, j]
        for j in range(i, m.shape[0]):
            m[i, j] -= m[i, :i] @ m[:i, j]
    return m


def cholesky(a: Any) -> Any:
    """The lower factor, row by row; elements above the diagonal are unchanged."""
    m = a.copy()
    for i in range(m.shape[0]):
        for j in range(i):
            m[i, j] = (m[i, j] - m[i, :j] @ m[j, :j]) / m[j, j]
        m[i, i] = (m[i, i] - m[i, :i] @ m[i, :i]) ** 0.5
    return m


def solve(a: Any) -> Any:
    """Forward substitution; the last column is the right-hand side."""
    x = a[:, -1].copy()
    for i in range(x.shape[0]):
        x[i] = (x[i] - a[i, :i] @ x[:i]) / a[i, i]
    return x


def orthonormal(a: Any) -> Any:
    """The modified Gram-Schmidt process."""
    q = a.copy()
    for k in range(q.shape[1]):
        q[:, k] /= (q[:, k] * q[:, k]).sum() ** 0.5
        for j in range(k + 1, q.shape[1]):
            q[:, j] -= q[:, k] * (q[:, k] * q[:, j]).sum()
    return q


def durbin(a: Any) -> Any:
    """The Levinson-Durbin recursion for a Toeplitz matrix whose first column begins with 1."""
    r = a[:, 0] / (2.0 * a[0, 0] * a.shape[0])
    y = -r
    energy, alpha = 1.0, -r[0]
    for k in range(1, r.shape[0]):
        energy = energy * (1.0 - alpha * alpha)
        alpha = -(r[k] + r[:k][::-1] @ y[:k]) / energy
        y[:k] += alpha * y[:k][::-1]
        y[k] = alpha
    return y


def sweeps(a: Any) -> Any:
    """A thousand half steps of the Jacobi iteration in two grids."""
    old, new = a.copy(), a.copy()
    for _ in range(ROUNDS // 2):
        new[1:-1, 1:-1] = 0.25 * (old[:-2, 1:-1] + old[2:, 1:-1] + old[1:-1, :-2] + old[1:-1, 2:])
        old[1:-1, 1:-1] = 0.25 * (new[:-2, 1:-1] + new[2:, 1:-1] + new[1:-1, :-2] + new[1:-1, 2:])
    return old


def ours(body: Body) -> Callable[[Any, dict[str, np.ndarray]], Side]:
    """Our side for a body with one array."""

    def side(tj: Any, data: dict[str, np.ndarray]) -> Side:
        function, a = tj.jit(body), tj.asarray(data["a"])
        return Side(lambda: function(a), lambda: {"y": function(a).numpy()}, function)

    return side


def plain(body: Body) -> Callable[[Any, dict[str, np.ndarray]], Side]:
    """NumPy's side."""
    return lambda numpy, data: Side(lambda: body(data["a"]), lambda: {"y": body(data["a"])})


def compiled(body: Body) -> Callable[[Any, dict[str, np.ndarray]], Side]:
    """Numba's side, with the same body."""

    def side(numba: Any, data: dict[str, np.ndarray]) -> Side:
        function = numba.njit(body, fastmath=True, error_model="numpy")
        return Side(lambda: function(data["a"]), lambda: {"y": function(data["a"])})

    return side


def sweeps_in_numba(numba: Any, data: dict[str, np.ndarray]) -> Side:
    """Loops over elements, rows in parallel."""

    @numba.njit(parallel=True, fastmath=True, error_model="numpy")
    def all_sweeps(a):
        old, new = a.copy(), a.copy()
        for _ in range(ROUNDS):
            for i in numba.prange(1, old.shape[0] - 1):
                for j in range(1, old.shape[1] - 1):
                    new[i, j] = 0.25 * (old[i - 1, j] + old[i + 1, j] + old[i, j - 1] + old[i, j + 1])
            old, new = new, old
        return old

    return Side(lambda: all_sweeps(data["a"]), lambda: {"y": all_sweeps(data["a"])})


def _in_jax(jax: Any, data: dict[str, np.ndarray], body: Body) -> Side:
    jax.config.update("jax_enable_x64", True)
    function, a = jax.jit(body), jax.numpy.asarray(data["a"])
    return Side(lambda: function(a), lambda: {"y": np.asarray(function(a))})


def sweeps_in_jax(jax: Any, data: dict[str, np.ndarray]) -> Side:
    """A `fori_loop`."""

    def sweep(_, a):
        return a.at[1:-1, 1:-1].set(0.25 * (a[:-2, 1:-1] + a[2:, 1:-1] + a[1:-1, :-2] + a[1:-1, 2:]))

    return _in_jax(jax, data, lambda a: jax.lax.fori_loop(0, ROUNDS, sweep, a))


def solve_in_jax(jax: Any, data: dict[str, np.ndarray]) -> Side:
    """A `fori_loop` whose products run over complete rows, with a mask."""

    def body(a):
        places = jax.numpy.arange(a.shape[0])

        def row(i, x):
            known = jax.numpy.where(places < i, x, 0.0)
            return x.at[i].set((x[i] - a[i, : a.shape[0]] @ known) / a[i, i])

        return jax.lax.fori_loop(0, a.shape[0], row, a[:, -1])

    return _in_jax(jax, data, body)


def matrix_data(order: int, columns: int = 0) -> Callable[[], Arrays]:
    """A symmetric, positive definite matrix, with additional columns."""

    def make() -> Arrays:
        a = normal(order, order + columns).astype(np.float64)
        square = a[:, :order]
        a[:, :order] = square @ square.T / order + 4.0 * np.eye(order)
        return {"a": a}

    return make


def grid_data() -> Arrays:
    """A grid."""
    return {"a": normal(GRID, GRID).astype(np.float64)}


def lstm_data() -> Arrays:
    """Sequences, and the weights of a cell."""
    return {
        "x": normal(STEPS, BATCH, WIDTH),
        "w": normal(2 * WIDTH, 4 * WIDTH, scale=0.1),
    }


def lstm_in_tracejit(tj: Any, data: dict[str, np.ndarray]) -> Side:
    """A Python loop over the steps, and its gradient."""

    @tj.jit
    def step(w, x):
        def loss_of(w):
            h, c = tj.zeros((BATCH, WIDTH)), tj.zeros((BATCH, WIDTH))
            for t in range(STEPS):
                z = x[t] @ w[:WIDTH] + h @ w[WIDTH:]
                i, f = tj.sigmoid(z[:, :WIDTH]), tj.sigmoid(z[:, WIDTH : 2 * WIDTH])
                o, g = tj.sigmoid(z[:, 2 * WIDTH : 3 * WIDTH]), tj.tanh(z[:, 3 * WIDTH :])
                c = f * c + i * g
                h = o * tj.tanh(c)
            return (h * h).mean()

        return tj.grad(loss_of)(w)

    w, x = tj.asarray(data["w"]), tj.asarray(data["x"])
    return Side(lambda: step(w, x), lambda: {"gradient": step(w, x).numpy()}, step)


def lstm_in_jax(jax: Any, data: dict[str, np.ndarray]) -> Side:
    """`scan` over the steps."""
    numpy = jax.numpy

    @jax.jit
    def step(w, x):
        def loss_of(w):
            def cell(state, row):
                h, c = state
                z = row @ w[:WIDTH] + h @ w[WIDTH:]
                i, f, o = (jax.nn.sigmoid(z[:, k * WIDTH : (k + 1) * WIDTH]) for k in range(3))
                c = f * c + i * numpy.tanh(z[:, 3 * WIDTH :])
                return (o * numpy.tanh(c), c), None

            zeros = numpy.zeros((BATCH, WIDTH))
            (h, _), _ = jax.lax.scan(cell, (zeros, zeros), x)
            return (h * h).mean()

        return jax.grad(loss_of)(w)

    w, x = numpy.asarray(data["w"]), numpy.asarray(data["x"])
    return Side(lambda: step(w, x), lambda: {"gradient": np.asarray(step(w, x))})


def _workload(name: str, body: Body, data: Callable[[], Arrays], **more: Any) -> Workload:
    sides = {"tracejit": ours(body), "numpy": plain(body), "numba": compiled(body), **more}
    return Workload(name, "graph", data, sides)


WORKLOADS = [
    _workload("loop-lu-60", lu, matrix_data(ORDER)),
    _workload("loop-cholesky-60", cholesky, matrix_data(ORDER)),
    _workload("loop-solve-400", solve, matrix_data(ROWS, 1), jax=solve_in_jax),
    _workload("loop-gram-schmidt-60", orthonormal, matrix_data(ORDER)),
    _workload("loop-durbin-400", durbin, matrix_data(ROWS)),
    _workload("loop-stencil-200", sweeps, grid_data, numba=sweeps_in_numba, jax=sweeps_in_jax),
    Workload("loop-lstm-64", "graph", lstm_data, {"tracejit": lstm_in_tracejit, "jax": lstm_in_jax}),
]
PLAIN = [workload.name for workload in WORKLOADS if "numpy" in workload.sides]
