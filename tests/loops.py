"""Programs as people write them in NumPy, with plain loops over rows, columns and time steps.

Each is a function of arrays that it may write, and a maker of such arguments for a size `n`:
`PROGRAMS[name]` is `(function, make)`. They run on NumPy arrays and on ours, so NumPy is their oracle.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Arrays = tuple[Any, ...]
PROGRAMS: dict[str, tuple[Callable[..., Any], Callable[[int], Arrays]]] = {}


def program(make: Callable[[int], Arrays]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a program whose arguments `make` makes."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        PROGRAMS[function.__name__] = function, make
        return function

    return register


def _random(*shape: int) -> np.ndarray:
    return np.random.default_rng(shape).random(shape)


def _definite(n: int) -> np.ndarray:
    """A symmetric matrix with positive eigenvalues."""
    a = _random(n, n)
    return a @ a.T + n * np.eye(n)


# ------------------------------------------------------------------------------------------------- triangles


@program(lambda n: (_definite(n),))
def lu(a):
    for i in range(len(a)):
        for j in range(i):
            a[i, j] -= a[i, :j] @ a[:j, j]
            a[i, j] /= a[j, j]
        for j in range(i, len(a)):
            a[i, j] -= a[i, :i] @ a[:i, j]


@program(lambda n: (_definite(n), _random(n), np.zeros(n), np.zeros(n)))
def ludcmp(a, b, x, y):
    lu(a)
    n = len(a)
    for i in range(n):
        y[i] = b[i] - a[i, :i] @ y[:i]
    for i in range(n - 1, -1, -1):
        x[i] = (y[i] - a[i, i + 1 :] @ x[i + 1 :]) / a[i, i]


@program(lambda n: (_definite(n),))
def cholesky(a):
    a[0, 0] = a[0, 0] ** 0.5
    for i in range(1, len(a)):
        for j in range(i):
            a[i, j] -= (a[i, :j] * a[j, :j]).sum()
            a[i, j] /= a[j, j]
        a[i, i] -= (a[i, :i] * a[i, :i]).sum()
        a[i, i] = a[i, i] ** 0.5


@program(lambda n: (_definite(n),))
def elimination(a):
    for k in range(len(a) - 1):
        a[k + 1 :, k] /= a[k, k]
        a[k + 1 :, k + 1 :] -= a[k + 1 :, k : k + 1] * a[k : k + 1, k + 1 :]


@program(lambda n: (_random(n + 2, n), np.zeros((n + 2, n)), np.zeros((n, n))))
def gramschmidt(a, q, r):
    for k in range(a.shape[1]):
        r[k, k] = (a[:, k] * a[:, k]).sum() ** 0.5
        q[:, k] = a[:, k] / r[k, k]
        for j in range(k + 1, a.shape[1]):
            r[k, j] = (q[:, k] * a[:, j]).sum()
            a[:, j] -= q[:, k] * r[k, j]


@program(lambda n: (1.5, _random(n, n), _random(n, n + 3)))
def trmm(alpha, a, b):
    for i in range(len(b)):
        for j in range(b.shape[1]):
            b[i, j] += (a[i + 1 :, i] * b[i + 1 :, j]).sum()
    b *= alpha


@program(lambda n: (1.5, 1.2, _random(n, n + 3), _random(n, n), _random(n, n + 3)))
def symm(alpha, beta, c, a, b):
    c *= beta
    for i in range(len(c)):
        for j in range(c.shape[1]):
            c[:i, j] += alpha * b[i, j] * a[i, :i]
            temporary = b[:i, j] @ a[i, :i]
            c[i, j] += alpha * b[i, j] * a[i, i] + alpha * temporary


@program(lambda n: (0.5 * _random(n), np.zeros(n)))
def durbin(r, y):
    alpha, beta = -r[0], 1.0
    y[0] = -r[0]
    for k in range(1, len(r)):
        beta = beta * (1.0 - alpha * alpha)
        alpha = -(r[k] + (np.flip(r[:k]) * y[:k]).sum()) / beta
        y[:k] += alpha * np.flip(y[:k])
        y[k] = alpha


@program(lambda n: (_definite(n), np.zeros(n), _random(n)))
def trisolv(a, x, b):
    for i in range(len(x)):
        x[i] = (b[i] - a[i, :i] @ x[:i]) / a[i, i]


# ------------------------------------------------------------------------------------------------- stencils


def _rounds(n: int) -> int:
    return max(n // 2, 2)


@program(lambda n: (_rounds(n), _random(n, n), _random(n, n), _random(n, n), np.arange(n, dtype=float)))
def fdtd_2d(rounds, ex, ey, hz, fict):
    for t in range(rounds):
        ey[0, :] = fict[t]
        ey[1:, :] -= 0.5 * (hz[1:, :] - hz[:-1, :])
        ex[:, 1:] -= 0.5 * (hz[:, 1:] - hz[:, :-1])
        hz[:-1, :-1] -= 0.7 * (ex[:-1, 1:] - ex[:-1, :-1] + ey[1:, :-1] - ey[:-1, :-1])


@program(lambda n: (_rounds(n), _random(n, n), _random(n, n)))
def jacobi_2d(rounds, a, b):
    for _ in range(rounds):
        b[1:-1, 1:-1] = 0.2 * (a[1:-1, 1:-1] + a[1:-1, :-2] + a[1:-1, 2:] + a[2:, 1:-1] + a[:-2, 1:-1])
        a[1:-1, 1:-1] = 0.2 * (b[1:-1, 1:-1] + b[1:-1, :-2] + b[1:-1, 2:] + b[2:, 1:-1] + b[:-2, 1:-1])


@program(lambda n: (_rounds(n), _random(n, n, n), _random(n, n, n)))
def heat_3d(rounds, a, b):
    def step(x):
        core = x[1:-1, 1:-1, 1:-1]
        along = x[2:, 1:-1, 1:-1] - 2.0 * core + x[:-2, 1:-1, 1:-1]
        across = x[1:-1, 2:, 1:-1] - 2.0 * core + x[1:-1, :-2, 1:-1]
        deep = x[1:-1, 1:-1, 2:] - 2.0 * core + x[1:-1, 1:-1, :-2]
        return 0.125 * along + 0.125 * across + 0.125 * deep + core

    for _ in range(rounds):
        b[1:-1, 1:-1, 1:-1] = step(a)
        a[1:-1, 1:-1, 1:-1] = step(b)


@program(lambda n: (2, _random(n, n), _random(n, n), _random(n, n), _random(n, n)))
def adi(rounds, u, v, p, q):
    n = len(u)
    a, b, c = -0.4, 1.8, -0.4
    for _ in range(rounds):
        v[0, 1:-1] = 1.0
        p[1:-1, 0] = 0.0
        q[1:-1, 0] = v[0, 1:-1]
        for j in range(1, n - 1):
            p[1:-1, j] = -c / (a * p[1:-1, j - 1] + b)
            right = -a * u[j, :-2] + (1.0 + 2.0 * a) * u[j, 1:-1] - c * u[j, 2:]
            q[1:-1, j] = (right - a * q[1:-1, j - 1]) / (a * p[1:-1, j - 1] + b)
        v[n - 1, 1:-1] = 1.0
        for j in range(n - 2, 0, -1):
            v[j, 1:-1] = p[1:-1, j] * v[j + 1, 1:-1] + q[1:-1, j]


@program(lambda n: (_rounds(n), _random(n, n), _random(n, n)))
def cavity(rounds, p, b):
    """Poisson's equation with boundary stores after every round."""
    for _ in range(rounds):
        q = p.copy()
        around = q[1:-1, 2:] + q[1:-1, :-2] + q[2:, 1:-1] + q[:-2, 1:-1]
        p[1:-1, 1:-1] = 0.25 * around - b[1:-1, 1:-1]
        p[:, -1] = p[:, -2]
        p[0, :] = p[1, :]
        p[:, 0] = p[:, 1]
        p[-1, :] = 0


# -------------------------------------------------------------------------------------------- all the rest


@program(lambda n: (_random(n + 4, n), np.eye(n)))
def correlation(data, corr):
    mean = data.mean(axis=0)
    std = ((data - mean) ** 2).mean(axis=0) ** 0.5 + 0.1
    data -= mean
    data /= float(len(data)) ** 0.5 * std
    for i in range(len(corr) - 1):
        corr[i + 1 :, i] = corr[i, i + 1 :] = data[:, i] @ data[:, i + 1 :]


@program(lambda n: (_random(n, n),))
def floyd_warshall(path):
    for k in range(len(path)):
        path[:] = np.minimum(path, path[:, k : k + 1] + path[k : k + 1, :])


@program(lambda n: (np.arange(n) % 4, np.zeros((n, n), np.int64)))
def nussinov(seq, table):
    n = len(seq)
    for i in range(n - 1, -1, -1):
        for j in range(i + 1, n):
            table[i, j] = np.maximum(table[i, j], table[i, j - 1])
            if i + 1 < n:
                table[i, j] = np.maximum(table[i, j], table[i + 1, j])
                pair = (seq[i] + seq[j] == 3) if i < j - 1 else 0
                table[i, j] = np.maximum(table[i, j], table[i + 1, j - 1] + pair)
            if i + 1 < j:
                table[i, j] = np.maximum(table[i, j], (table[i, i + 1 : j] + table[i + 2 : j + 1, j]).max())


@program(lambda n: (_random(n), np.zeros((n, 3))))
def stores(b, a):
    """Many stores into one array, then a read."""
    for i in range(len(b)):
        a[i, 1] = b[i]
    return a[:, 0] + 1.0


@program(lambda n: (0.01 * _random(n, n),))
def rounds_of_rows(x):
    """A recurrence in which every element of a round needs a row and a column of the round before."""
    for k in range(len(x)):
        x = x - x[k, :] * x[:, k, None]
    return x
