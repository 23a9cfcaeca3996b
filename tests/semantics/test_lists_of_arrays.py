"""NumPy's functions of lists that contain recorded arrays or numbers (`surroundings.numpy_module`), and loops
without looks beside others (`look_loops.counters`): programs that compute tables and walk through them.
"""

from __future__ import annotations

import numpy as np
import pytest

import tracejit as tj


def extremes(x):
    y = np.zeros(4)
    y[0] = x[0, 0]
    largest = np.maximum.reduce([x[0], x[1], x[2] * 2])
    allowed = np.logical_and.reduce([x[0] > 0.2, x[1] > 0.1])
    y[1] = np.max([x[0, 1], 0.5, x[1, 1]])
    return y, largest, allowed, np.argmin([x[0, 0], x[1, 1], y[0]]), np.mean([[x[0, 0], 1], [2, x[0, 1]]])


def of_others(x):
    """Lists without recorded elements are NumPy's, and so are other uses of these functions."""
    y = np.zeros(3) + np.max([1.0, 3.0])
    y[1:] = x[0, :2]
    return (
        y * np.add.reduce([1, 2, 3]),
        np.maximum(x, 0.5),
        np.add.outer(x[0], np.array([1, 2])),
        np.sum(x, axis=0),
    )


def by_position(x):
    y = np.full(3, 2.0)
    y[0] = x[0, 0]
    return (
        np.sort([y[0], x[1, 0], 0.5]),
        np.cumsum([y[0], 1]),
        np.percentile([y[0], 1.0, x[0, 2]], 50, axis=0),
    )


def of_arguments(x):
    """The body creates no array."""
    return (
        np.maximum.reduce([x[0], x[1], x[2]]),
        np.argmax([x[0, 0], x[1, 1]]),
        np.where(x[0] > 0.5, 1.0, -1.0),
    )


@pytest.mark.parametrize(
    "body", [extremes, of_others, by_position, of_arguments], ids=lambda body: body.__name__
)
def test_functions_of_lists(body):
    step, rng = tj.jit(body), np.random.default_rng(0)
    for _ in range(3):
        x = rng.random((3, 4))
        for result, expected in zip(step(x), body(x), strict=True):
            assert np.asarray(result).dtype == np.asarray(expected).dtype
            np.testing.assert_allclose(np.asarray(result), expected, rtol=1e-12)
    assert "piecewise" not in step.explain()
    assert step.cache_info().replays == 2


def warping(x, y):
    """The table of distances, and the number of steps of the shortest path through it."""
    table = np.full((len(x) + 1, len(y) + 1), np.inf)
    table[0, 0] = 0
    for i in range(1, len(x) + 1):
        for j in range(1, len(y) + 1):
            nearest = min(table[i - 1, j], table[i, j - 1], table[i - 1, j - 1])
            table[i, j] = abs(x[i - 1] - y[j - 1]) + nearest
    n, i, j = 0, len(x), len(y)
    while i > 0 and j > 0:
        step = np.argmin([table[i - 1, j - 1], table[i - 1, j], table[i, j - 1]])
        if step == 0:
            i -= 1
            j -= 1
        elif step == 1:
            i -= 1
        else:
            j -= 1
        n += 1
    return table[-1, -1], n


def filtered(x, y):
    """The inner loops have few iterations, whose questions depend on the outer counter."""
    out = np.zeros(len(x) * 9)
    for n in range(len(out)):
        total = 0.0
        for k in range(3):
            if n - k >= 0:
                total += y[k] * x[(n - k) % len(x)]
        for k in range(1, 3):
            if n - k >= 0:
                total -= 0.1 * y[k] * out[n - k]
        out[n] = total
    return out, total


def of_rows(x, y):
    """The loops are over arrays."""
    total, n = np.zeros(1), 0
    for a in x:
        for b in y:
            total[0] = max(total[0] * 0.999, a * b) + 0.01
    while total[0] > 0.5:
        total[0] *= 0.75
        n += 1
    return total, n


@pytest.mark.parametrize("body", [warping, filtered, of_rows], ids=lambda body: body.__name__)
def test_long_loops_without_looks(body):
    """Their iterations are not all recorded: that would be more than 2,048 operations between two looks."""
    step, rng = tj.jit(body), np.random.default_rng(1)
    for _ in range(3):
        x, y = rng.random(40), rng.random(50)
        for result, expected in zip(step(x, y), body(x, y), strict=True):
            np.testing.assert_allclose(np.asarray(result), expected, rtol=1e-12)
    assert step.cache_info().traces == 1
    assert "one launch" in step.explain()
