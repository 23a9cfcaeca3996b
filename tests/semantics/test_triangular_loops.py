"""Loops over single elements whose trip counts differ: recorded with counters if all iterations would be a
long recording (`ranges.builtin_range`). NumPy and the recording of all iterations are the oracles.
"""

import numpy as np
import pytest

import tracejit as tj
from tracejit.frontend.recording import trace
from tracejit.frontend.recording.ranges import builtin_range, ranges


def is_native(f):
    return "are one launch" in f.explain() and "are a launch each" not in f.explain()


@pytest.fixture
def short_recordings(monkeypatch):
    """Recordings are long from a few hundred operations on."""
    monkeypatch.setattr(builtin_range, "LONG_RECORDING", 150)
    monkeypatch.setattr(ranges, "LONG_UNROLLED", 300)


def backward(a, b):
    x = np.zeros(len(b))
    for i in range(len(b) - 1, -1, -1):
        s = b[i]
        for j in range(i + 1, len(b)):
            s -= a[i, j] * x[j]
        x[i] = s / a[i, i]
    return x


def factorized(a, b):
    a = a.copy()
    for i in range(len(b)):
        for j in range(i):
            for k in range(j):
                a[i, j] -= a[i, k] * a[k, j]
            a[i, j] /= a[j, j]
        for j in range(i, len(b)):
            for k in range(i):
                a[i, j] -= a[i, k] * a[k, j]
    return a


def banded(a, b):
    x = np.zeros(len(b))
    for i in range(len(b)):
        s = b[i]
        for j in range(max(0, i - 3), i):
            s -= a[i, j] * x[j]
        x[i] = s / a[i, i]
    return x


def pairs(a, b):
    energy = 0.0
    for i in range(len(b)):
        for j in range(i + 1, len(b)):
            dx, dy = a[i, 0] - a[j, 0], a[i, 1] - a[j, 1]
            energy += 1.0 / np.sqrt(dx * dx + dy * dy + 0.01)
    return energy


def vectors(a, b):
    force = np.zeros((len(b), 3))
    for i in range(len(b)):
        for j in range(i):
            d = a[i, :3] - a[j, :3]
            force[i] += d * b[j]
            force[j] -= d * b[i]
    return force


@pytest.mark.usefixtures("short_recordings")
@pytest.mark.parametrize("body", [backward, factorized, banded, pairs, vectors])
def test_elements(body):
    rng = np.random.default_rng(1)
    f = tj.jit(body, strict=True)
    for n in (24, 24, 31):
        a, b = rng.standard_normal((n, n)) + n * np.eye(n), rng.standard_normal(n)
        np.testing.assert_allclose(f(a, b), body(a, b), rtol=1e-12)
    assert f.cache_info().replays == 1
    assert is_native(f), f.explain()


@pytest.mark.usefixtures("short_recordings")
def test_the_bits_of_a_recording_of_all_iterations(monkeypatch):
    rng = np.random.default_rng(2)
    a, b = (rng.standard_normal(shape) for shape in ((24, 24), 24))
    counted = tj.jit(factorized)(a, b).numpy()
    monkeypatch.setattr(ranges, "LONG_UNROLLED", 1 << 17)
    f = tj.jit(factorized)
    np.testing.assert_array_equal(f(a, b).numpy(), counted)
    assert "one launch" not in f.explain()


def listed(a, b):
    weights = [float(k) for k in range(len(b))]
    for i in range(len(b)):
        for j in range(i):
            a[i, j] = a[i, j] * weights[j] + b[i]
    return a


def rows(a, b):
    for i in range(len(b)):
        for j in range(i):
            a[i] -= a[i, j] * a[j] * 0.01
    return a


def drawn(a, b):
    for i in range(len(b)):
        for j in range(i):
            a[i, j] = a[i, j] * 0.5 + tj.random.uniform() * 0
    return a


@pytest.mark.usefixtures("short_recordings")
@pytest.mark.parametrize("body", [listed, rows, drawn])
def test_all_iterations_are_recorded(body):
    """Iterations need the value of a counter, change arrays, or draw random numbers."""
    rng = np.random.default_rng(3)
    f = tj.jit(body, strict=True)
    for _ in range(2):
        a, b = rng.standard_normal((24, 24)), rng.standard_normal(24)
        expected = body(a.copy(), b)
        np.testing.assert_allclose(f(tj.asarray(a), b), expected, rtol=1e-6)
    assert f.cache_info().replays == 1
    assert "one launch" not in f.explain()


@pytest.mark.usefixtures("short_recordings")
def test_the_gradient_of_elements():
    def loss(a, b):
        x = tj.zeros(len(b), dtype="float64")
        for i in range(len(b)):
            s = b[i]
            for j in range(i):
                s = s - a[i, j] * x[j]
            x[i] = s / a[i, i]
        return (x * x).sum()

    rng = np.random.default_rng(4)
    a, b = rng.standard_normal((20, 20)) + 20 * np.eye(20), rng.standard_normal(20)
    _, (gradient,) = tj.jit(tj.value_and_grad(loss, argnums=(1,)))(tj.asarray(a), tj.asarray(b))
    lower = np.linalg.inv(np.tril(a))
    np.testing.assert_allclose(gradient, 2 * lower.T @ lower @ b, rtol=1e-9)


@pytest.mark.usefixtures("short_recordings")
def test_a_bad_index_changes_nothing():
    def shifted(a, b):
        for i in range(len(b)):
            for j in range(i):
                b[j + 2] += a[i, j]
        return b

    a, b = np.ones((24, 24)), tj.zeros(24)
    with pytest.raises(IndexError, match="index 24 is out of bounds for axis 0 with extent 24"):
        tj.jit(shifted)(a, b).wait()
    np.testing.assert_array_equal(b, np.zeros(24))


def test_a_count_of_iterations_too_long_to_record(monkeypatch):
    monkeypatch.setattr(trace, "MAX_OPERATIONS", 20_000)
    rng = np.random.default_rng(5)
    a, b = rng.standard_normal((200, 200)) + 200 * np.eye(200), rng.standard_normal(200)
    f = tj.jit(backward, strict=True)
    for _ in range(2):
        np.testing.assert_allclose(f(a, b), backward(a, b), rtol=1e-9)
    assert f.cache_info().replays == 1
