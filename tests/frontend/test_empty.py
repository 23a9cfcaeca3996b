"""Arrays without elements in fused kernels: products, reductions and their consumers, eagerly and traced."""

import numpy as np
import pytest

import tracejit as tj
from tracejit.config import config

PROGRAMS = {
    "a product without rows": lambda xp, e: (xp.tanh(e @ e.T) + 1, (e.T @ e) * 2),
    "a product and its sum": lambda xp, e: (
        (e @ e.T).sum(axis=1),
        (e.T @ e).sum(axis=0) + 1,
        (e @ e.T).sum(),
    ),
    "columns of nothing": lambda xp, e: (xp.ones((3, 4), dtype=xp.float32) @ e.T).sum(axis=1) + 2,
    "a product of nothing": lambda xp, e: e.T @ e + xp.ones((4, 4), dtype=xp.float32),
    "reductions": lambda xp, e: (
        e.sum(),
        (e * 2).sum(axis=0),
        e.prod(axis=0),
        (e > 0).any(),
        (e > 0).all(axis=0),
    ),
    "a product without columns": lambda xp, e: (
        xp.tanh(e.T @ xp.ones((0, 0), dtype=xp.float32) + 1).T * 2,
        (xp.ones((3, 4), dtype=xp.float32) @ xp.ones((4, 0), dtype=xp.float32)).reshape(-1) + 1,
    ),
    "rows": lambda xp, e: e - (e * e).sum(axis=1, keepdims=True),
    "sums of nothing beside views": lambda xp, e: (
        e.sum(axis=0) + xp.arange(8, dtype=xp.float32)[::2],
        e.sum(axis=0) * 2 + xp.ones((4, 3), dtype=xp.float32).T[0],
        e.T.sum(axis=1) + xp.arange(9, dtype=xp.float32)[5:1:-1],
        e.any(axis=0) | (xp.arange(4)[::-1] > 1),
    ),
    "running sums": lambda xp, e: tuple(
        xp.cumulative_sum(x, axis=axis)
        for x in (e, e.T, xp.ones((3, 0, 2), dtype=xp.float32), xp.ones((0, 0), dtype=xp.float32))
        for axis in range(x.ndim)
    ),
    "running sums of sums of nothing": lambda xp, e: (
        xp.cumulative_sum(e.sum(axis=0) + xp.arange(4, dtype=xp.float32)),
        xp.cumulative_sum(e.T.prod(axis=1) * 2),
        xp.cumulative_sum(e.sum(axis=0)[:, None] + xp.ones((4, 3), dtype=xp.float32), axis=1),
    ),
    "what is taken of nothing": lambda xp, e: (
        xp.take(e * 2, xp.sum((e > 0).astype(xp.int64)), axis=1),
        xp.take(e, xp.sum((e > 0).astype(xp.int64)), axis=1),
        e * 2 + xp.sum(e),
        (e * 2, (e * 2).sum(axis=0))[0],
    ),
}


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
@pytest.mark.parametrize("jitted", [False, True])
@pytest.mark.parametrize("disabled", ["", "simplify", "fuse"])
def test_arrays_without_elements(program, jitted, disabled, monkeypatch):
    monkeypatch.setattr(config, "disable", frozenset({disabled}))
    empty = np.zeros((0, 4), np.float32)

    def body(e):
        results = program(tj, e)
        return results if isinstance(results, tuple) else (results,)

    expected = program(np, empty)
    run = tj.jit(body) if jitted else body
    for _ in range(2):
        got = run(tj.asarray(empty))
        for a, b in zip(got, expected if isinstance(expected, tuple) else (expected,), strict=True):
            assert (a.shape, a.dtype) == (b.shape, b.dtype)
            np.testing.assert_array_equal(a.numpy(), b)
