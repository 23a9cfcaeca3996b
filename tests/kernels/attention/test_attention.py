"""The kernels of attention against NumPy's meaning of their operators; the same bits in any split."""

import numpy as np
import pytest

from tests.kernels.native import address, random_ranges, run
from tracejit.ir.op import OPS
from tracejit.ir.types import ArrayType
from tracejit.kernels.attention import plan
from tracejit.kernels.attention.table import ATTENTION


@pytest.fixture(scope="module")
def addresses():
    """The addresses of both kernels for both dtypes."""
    return {"_".join(key): address(*key, "ATTENTION") for key in ATTENTION}


class Native:
    """Calls operators by their kernels, with units in random ranges on `threads` threads."""

    def __init__(self, addresses, rng, threads=1):
        self.addresses, self.rng, self.threads = addresses, rng, threads

    def __call__(self, name, *arrays, **attrs):
        dtype = arrays[0].dtype
        types = OPS[name].infer(*(ArrayType(a.shape, a.dtype) for a in arrays), **attrs)
        results = [np.full(type.shape, np.nan, dtype) for type in types]
        operands = [np.ascontiguousarray(a) for a in (*arrays, *results)]
        call = plan.CALLS[name](name, [a.shape for a in operands], attrs, str(dtype))
        block = np.array([*call.words, *(a.ctypes.data for a in operands)], np.int64)
        ranges = random_ranges(self.rng, call.units)
        run(self.addresses[f"{name}_{dtype}"], block, ranges, self.threads, call.scratch)
        return operands[len(arrays) :]

    def both(self, q, k, v, ct, *masks, **attrs):
        """(result, log sums, gradients of q, k and v)."""
        result, log_sums = self("attention", q, k, v, *masks, **attrs)
        operands = (q, k, v, log_sums, (ct * result).sum(-1), ct, *masks)
        to_q, to_k, to_v = self("attention_gradient", *operands, parts=plan.gradient_ranges(k.shape), **attrs)
        return result, log_sums, to_q.sum(0), to_k, to_v


def by_definition(q, k, v, ct, scale, causal, mask=0.0):
    """The same in float64, with the whole matrix of weights; `mask` broadcasts to the scores."""
    q, k, v, ct = (a.astype(float) for a in (q, k, v, ct))
    heads = len(q) // len(k)
    keys, values = (a.repeat(heads, 0) for a in (k, v))
    scores = scale * q @ keys.swapaxes(1, 2) + mask
    if causal:
        scores[:, ~np.tri(*scores.shape[1:], dtype=bool)] = -np.inf
    log_sums = np.logaddexp.reduce(scores, -1)
    log_sums[log_sums == -np.inf] = np.inf  # of rows that see nothing
    weights = np.exp(scores - log_sums[..., None])
    result = weights @ values
    slopes = weights * (ct @ values.swapaxes(1, 2) - (ct * result).sum(-1, keepdims=True)) * scale
    shared = [
        a.reshape(len(k), heads, *k.shape[1:2], -1).sum(1)
        for a in (slopes.swapaxes(1, 2) @ q, weights.swapaxes(1, 2) @ ct)
    ]
    return result, log_sums, slopes @ keys, *shared


def operands(rng, dtype, shared, heads, queries, keys, features, values):
    shapes = [(shared * heads, queries, features), (shared, keys, features), (shared, keys, values)]
    return [rng.normal(size=s).astype(dtype) for s in (*shapes, (shared * heads, queries, values))]


SIZES = [
    *((2, 1, 200, 333, 64, 64), (1, 3, 97, 40, 16, 24)),
    *((3, 2, 1, 5, 7, 3), (1, 1, 150, 700, 128, 33)),
]
"""(matrices of keys, matrices of queries for each, queries, keys, features, values)."""


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    "sizes", [(2, 1, 200, 333, 64, 64), (1, 3, 97, 40, 16, 24), (3, 2, 1, 5, 7, 3), (1, 1, 150, 700, 128, 33)]
)
def test_blocks_give_attention_and_its_gradients(addresses, dtype, causal, sizes):
    rng = np.random.default_rng(sum(sizes))
    arrays = operands(rng, dtype, *sizes)
    scale = -0.5 if sizes[0] == 3 else sizes[4] ** -0.5
    found = Native(addresses, rng).both(*arrays, scale=scale, causal=causal)
    for a, exact in zip(found, by_definition(*arrays, scale, causal), strict=True):
        assert np.abs(a - exact).max() <= 40 * np.finfo(dtype).eps * max(1, np.abs(exact).max())


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    ("masks", "rows", "spread"), [(1, 200, 1), (2, 1, 3), (3, 200, 1), (6, 200, 1), (1, 1, 6)]
)
def test_masks_are_added_to_scores(addresses, dtype, causal, masks, rows, spread):
    """For all matrices, in turn, or repeated; rows and blocks of rows that see nothing give zeros."""
    rng = np.random.default_rng(masks)
    arrays = operands(rng, dtype, 2, 3, 200, 333, 16, 24)
    mask = rng.normal(size=(masks, rows, 333)).astype(dtype)
    mask[:, :, 100:300] = -np.inf  # a block of keys that nobody sees
    mask[:, 3:110:2] = -np.inf
    found = Native(addresses, rng).both(*arrays, mask, scale=0.3, causal=causal, spread=spread)
    every = mask[np.arange(6) // spread % masks].astype(float)
    for a, exact in zip(found, by_definition(*arrays, 0.3, causal, every), strict=True):
        finite = np.isfinite(exact)
        assert (finite == np.isfinite(a)).all()
        error = np.abs(a[finite] - exact[finite]).max()
        assert error <= 40 * np.finfo(dtype).eps * max(1, np.abs(exact[finite]).max())


@pytest.mark.parametrize("cut", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_rows_that_see_nothing_may_be_nan(addresses, dtype, cut):
    """Their cotangents reach queries and keys unless they are cut off, and all values."""
    rng = np.random.default_rng(7)
    arrays = operands(rng, dtype, 1, 1, 100, 300, 8, 8)
    mask = np.where(rng.random((1, 100, 300)) < 0.5, 0, -np.inf).astype(dtype)
    mask[:, 97] = -np.inf
    attrs = {"scale": 0.3, "causal": False, "nan": True, "cut": cut}
    found = Native(addresses, rng).both(*arrays, mask, **attrs)
    rest = [a[:, :97] for a in (arrays[0], mask, arrays[3])]
    seen = by_definition(rest[0], *arrays[1:3], rest[2], 0.3, False, rest[1].astype(float))
    result, log_sums, of_q, of_k, of_v = found
    assert all(np.isnan(a).all() for a in (result[:, 97], log_sums[:, 97], of_v))
    assert np.isnan(of_k).all() == np.isnan(of_q[:, 97]).all() == (not cut)
    for a, exact in zip((result, log_sums, of_q), seen, strict=False):
        np.testing.assert_allclose(a[:, :97], exact, rtol=0, atol=1e-4 if dtype == "float32" else 1e-12)
    if cut:
        assert (of_q[:, 97] == 0).all()
        assert np.isfinite(of_k).all()
    gradient = OPS["attention_gradient"].evaluate
    operands_of = (*arrays[:3], log_sums, (arrays[3] * result).sum(-1), arrays[3], mask)
    for a, b in zip(found[2:], gradient(*operands_of, parts=1, **attrs), strict=True):
        np.testing.assert_array_equal(np.isnan(a), np.isnan(b.reshape(a.shape)))


def test_bits_do_not_depend_on_threads_or_ranges(addresses):
    rng = np.random.default_rng(2)
    arrays = operands(rng, "float32", 2, 2, 230, 300, 32, 32)
    expected = [a.tobytes() for a in Native(addresses, rng).both(*arrays, scale=0.2, causal=True)]
    for threads in (2, 5):
        found = Native(addresses, rng, threads).both(*arrays, scale=0.2, causal=True)
        assert [a.tobytes() for a in found] == expected
