"""Shards of a batch on one rank: the sums of their gradients are those of ranks that have a shard each."""

import numpy as np
import pytest

import tracejit as tj


def loss_of(w, x, y):
    return ((x @ w) * y).sum()


@pytest.mark.parametrize("columns", [1, 8, 32])
@pytest.mark.parametrize("rows", [16, 200, 512])
@pytest.mark.parametrize("shards", [2, 4, 8])
def test_gradients_are_rounded_before_they_are_added(rows, columns, shards):
    """A product that adds to another one in its own kernel sums in other steps, and so does BLAS."""
    rng = np.random.default_rng(rows + columns)
    w = tj.asarray(rng.normal(size=(24, columns)).astype(np.float32))
    x, y = (rng.normal(size=(shards * rows, n)).astype(np.float32) for n in (24, columns))
    alone = tj.jit(tj.grad(loss_of))
    parts = zip(np.split(x, shards), np.split(y, shards), strict=True)
    sums = [alone(w, *map(tj.asarray, part)).numpy() for part in parts]
    while len(sums) > 1:
        sums = [a + b for a, b in zip(sums[::2], sums[1::2], strict=True)]
    together = tj.jit(tj.distributed.data_parallel(loss_of, shards=shards))
    _, gradient = together(w, tj.asarray(x), tj.asarray(y))
    np.testing.assert_array_equal(gradient.numpy(), sums[0] * np.float32(1.0 / shards))
