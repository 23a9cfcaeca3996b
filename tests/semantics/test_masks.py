"""What a mask picks: without its extent where none is needed, counted where one is. NumPy is the oracle."""

from __future__ import annotations

import numpy as np
import pytest

import tracejit as tj
from tracejit.errors import ReplayError, ShapeError

RNG = np.random.default_rng(5)
INPUTS = [RNG.standard_normal((5, 4)) for _ in range(4)] + [np.ones((5, 4)), -np.ones((5, 4))]


def sums(xp, x, y):
    return x[x > 0].sum(), xp.sum(y[x > 0]), (x[x > 0] * 2 + y[x > 0]).sum()


def means(xp, x, y):
    m = xp.logical_and(x > 0, y < 1)
    m[0, 0] = True  # there is a mean
    return x[m].mean(), xp.mean(x[m] > 0.5), x[m].var(), x[m].std()


def truths(xp, x, y):
    m = x > 0
    return (y[m] > 0).any(), (y[m] > 0).all(), xp.count_nonzero(y[m] > 0), (y[m] * 0.5).prod()


def rows(xp, x, y):
    m = x[:, 0] > 0
    first = x[m] * xp.abs(y[2]) + y[:1]
    return first.sum(), x[m].sum(axis=0), x[m, :].sum(axis=(0, 1)), (x[m] - y[m]).sum(axis=0)


def stored(xp, x, y):
    x[x > 0] = x[x > 0] ** 2 - 1.0
    x[y > 0] += y[y > 0]
    x[y < 0] *= 0.5
    m = x > y
    x[m], y[m] = y[m], x[m]
    return x, y


def stored_rows(xp, x, y):
    m = y[:, 1] > 0
    x[m] = y[m] - x[m] * 0.25
    x[m] -= 1
    return x


def kept(xp, x, y):
    """What was picked stays what it was."""
    m = x > 0
    picked = x[m]
    x += 1
    m[...] = True
    alias = picked
    picked += 1
    return picked.sum(), alias.sum(), x.sum(), m.sum()


def dtypes(xp, x, y):
    m = x > 0
    whole = (x * 3).astype("int32")
    return (
        whole[m].sum(),
        (whole[m] // 2).sum(),
        m[m].sum(),
        x[m].astype("float32").sum(dtype="float64"),
        (x[m] + 1j).sum(),
        xp.where(y[m] > 0, x[m], 2).sum(),
    )


SHAPE_FREE = [sums, means, truths, rows, stored, stored_rows, kept, dtypes]


def extents(xp, x, y):
    m = x > 0
    return x[m], y[m] * 2, x[m].shape, len(y[m])


def others(xp, x, y):
    """Masks that may pick as many."""
    first = x[xp.sort(x.ravel()).reshape(5, 4) > 0.5]
    return first.sum() + (first[:1] * 2).sum(), xp.sort(x[x > 0]), xp.cumsum(y[y > 0])


def places(xp, x, y):
    i, j = xp.where(x > 0)
    x[i, j] = 7
    (k,) = xp.nonzero(y[0] > 0)
    return x, i * 2, y[0][k], y[:, y[0] > 0], xp.argwhere(x > 0)


def written(xp, x, y):
    m = x > 0
    n = x[m].size
    x[m] = xp.arange(n) + y[m]
    return x, y[0, y[0] > 0] @ x[0, y[0] > 0]


COUNTED = [extents, others, places, written]


def flat(value):
    return (
        [each for part in value for each in flat(part)] if isinstance(value, tuple) else [np.asarray(value)]
    )


def check(body, function, inputs):
    for x, y in inputs:
        expected = flat(body(np, x.copy(), y.copy()))
        for run in (lambda *args: body(tj, *args), function):
            found = flat(run(tj.asarray(x), tj.asarray(y)))
            for a, b in zip(expected, found, strict=True):
                assert a.dtype == b.dtype
                np.testing.assert_allclose(b, a, rtol=1e-12, atol=1e-14)


PAIRS = list(zip(INPUTS, [*INPUTS[1:4], *INPUTS[:3]], strict=True))


@pytest.mark.parametrize("body", SHAPE_FREE, ids=lambda body: body.__name__)
def test_without_extents(body):
    function = tj.jit(lambda x, y: body(tj, x, y), strict=True)
    check(body, function, PAIRS)
    assert function.cache_info().traces == 1, function.explain()
    assert " looks: " not in function.explain()


@pytest.mark.parametrize("body", COUNTED, ids=lambda body: body.__name__)
def test_counted(body):
    function = tj.jit(lambda x, y: body(tj, x, y), strict=True)
    check(body, function, PAIRS)
    before = function.cache_info().traces
    check(body, function, PAIRS)  # the paths are known
    assert function.cache_info().traces == before, function.explain()


def test_extremes_look_whether_there_is_anything():
    function = tj.jit(lambda x, y: (x[y > 0].max(), x[y > 0].min(), (x[y > 0] > 0).max()), strict=True)
    for x, y in PAIRS:
        if (y > 0).any():
            expected = x[y > 0].max(), x[y > 0].min(), (x[y > 0] > 0).max()
            assert tuple(map(float, function(tj.asarray(x), tj.asarray(y)))) == expected
    assert function.cache_info().traces == 1
    for _ in range(2):
        with pytest.raises(ShapeError):
            function(tj.ones((2, 2)), -tj.ones((2, 2)))


def test_what_was_picked_is_an_array():
    def body(x):
        picked = x[x > 0]
        assert type(picked) is tj.NDArray
        assert picked.ndim == 1
        assert picked.dtype == x.dtype
        return picked.sum()

    function = tj.jit(body, strict=True)
    assert float(function(tj.asarray([1.0, -2.0, 4.0]))) == 5
    assert float(function(tj.asarray([1.0, -2.0, -4.0]))) == 1
    assert function.cache_info().traces == 1


def test_gradients_do_not_see_what_is_not_picked():
    """There the functions have no finite value or derivative."""

    def loss(x, v):
        m = x > 1
        return (tj.log(x[m] - 1) * tj.sqrt(x[m]) / v).sum() + (v * tj.log(x[m] - 1)).mean()

    x, v = np.array([3.0, 1.0, -2.0, 2.5]), np.array(2.0)
    gradient = tj.jit(tj.grad(loss, argnums=(0, 1)), strict=True)
    for picked in ([0, 3], [0, 2, 3]):
        x[2] = 5.0 if 2 in picked else -2.0
        u = x[picked]
        to_x = np.zeros(4)
        to_x[picked] = (1 / (u - 1) * np.sqrt(u) + np.log(u - 1) / (2 * np.sqrt(u))) / 2 + 2 / (u - 1) / len(
            u
        )
        to_v = -(np.log(u - 1) * np.sqrt(u)).sum() / 4 + np.log(u - 1).mean()
        found = gradient(tj.asarray(x), tj.asarray(v))
        np.testing.assert_allclose(found[0].numpy(), to_x, rtol=1e-12)
        np.testing.assert_allclose(found[1].numpy(), to_v, rtol=1e-12)
    assert gradient.cache_info().traces == 1


def test_arrays_that_outlive_the_body_are_counted():
    def body(x, kept):
        kept["picked"] = x[x > 0]
        return [x[x < 0]]

    function = tj.jit(body, strict=True)
    for x in INPUTS:
        kept = {}
        (found,) = function(tj.asarray(x), kept)
        np.testing.assert_array_equal(found.numpy(), x[x < 0])
        np.testing.assert_array_equal(kept["picked"].numpy(), x[x > 0])


def test_loops():
    """What a mask picked in a round is held by a variable at the begin of the next one."""

    def body(x, rounds, limit):
        for i in rounds(20):
            picked = x[x > limit]
            x = x - 0.1 * picked.mean() + i * 1e-3
        return x, picked.sum()

    def until(x):
        rounds = 0
        while float(x[x > 0].sum()) > 0.5:
            picked = x[x > 0]
            x[x > 0] = picked * 0.5
            rounds += 1
        return x, picked.sum(), rounds

    data = np.linspace(1, 2, 7)
    for rounds in (range, tj.range):
        function = tj.jit(lambda x, rounds=rounds: body(x, rounds, 0.0), strict=True)
        for scale in (1.0, 2.0):
            for a, b in zip(function(tj.asarray(data * scale)), body(data * scale, range, 0.0), strict=True):
                np.testing.assert_allclose(b, a.numpy(), rtol=1e-12)
    function = tj.jit(until, strict=True)
    for scale in (1.0, 2.0, 40.0):
        for a, b in zip(function(tj.asarray(data * scale)), until(data * scale), strict=True):
            np.testing.assert_allclose(np.asarray(a), b, rtol=1e-12)
    assert function.cache_info().traces == 1, function.explain()


def test_misfits():
    with pytest.raises(IndexError, match="mask of shape"):
        tj.jit(lambda x: x[x[:2] > 0].sum())(tj.ones(3))
    with pytest.raises(ValueError, match="shape"):
        tj.jit(lambda x: x[x > 0] + tj.ones(5))(tj.ones(3))
    with pytest.raises(ReplayError, match="looks at the value"):
        tj.jit(lambda x: x[x > 0], strict=True).graph(tj.ones(3))
    assert tj.jit(lambda x: x[x > 0].sum(), strict=True).graph(tj.ones(3)) is not None
