"""Single operations on small arrays by their kernels, without a launch: the bits of launches."""

import threading

import numpy as np
import pytest

import tracejit as tj
from tests.frontend.samples import sample
from tests.thorough import some
from tracejit.config import config
from tracejit.frontend.arrays import direct
from tracejit.frontend.recording import eager
from tracejit.ops import tanh

FUNCTIONS = {
    "tanh": lambda x, y: tj.tanh(x),
    "maximum": tj.maximum,
    "pow": lambda x, y: tj.pow(abs(x), y),
    "number second": lambda x, y: tj.maximum(x, 0.25),
    "number first": lambda x, y: tj.atan2(0.5, x),
    "sum": lambda x, y: x.sum(),
    "sum of columns": lambda x, y: x.sum(axis=0),
    "max of rows": lambda x, y: x.max(axis=-1),
    "mean": lambda x, y: x.mean(axis=1),
    "product": lambda x, y: x @ y.T,
    "matrix and vector": lambda x, y: x @ y[0],
    "vector and matrix": lambda x, y: x[:, 0] @ y,
    "vectors": lambda x, y: x[0] @ y[1],
    "select": lambda x, y: tj.where(x > y, x, y),
    "select number": lambda x, y: tj.where(x > y, 0.0, y),
    "running sums": lambda x, y: tj.cumulative_sum(x, axis=1),
    "clip": lambda x, y: tj.clip(x, -0.5, y),
}
VIEWS = {
    "whole": lambda a: a,
    "rows": lambda a: a[1:3],
    "columns": lambda a: a[:, 1:4],
    "steps": lambda a: a[::2, ::2],
    "transposed": lambda a: a[:, :4].T,
    "backwards": lambda a: a[::-1],
    "one row": lambda a: a[:1],
    "nothing": lambda a: a[:, :0],
}


def outcome(function):
    """The result of `function` as a NumPy array, or the type of its error."""
    try:
        return function().numpy()
    except tj.TracejitError as error:
        return type(error)


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("dtype", some(["float32", "int32", "float64"], 2))
def test_bits_are_those_of_launches(name, dtype, monkeypatch):
    rng = np.random.default_rng(0)
    a, b = (sample(rng, (4, 5), np.dtype(dtype)) for _ in range(2))
    for view in VIEWS.values():
        x, y = view(tj.asarray(a)), view(tj.asarray(b))
        found = [outcome(lambda x=x, y=y: FUNCTIONS[name](x, y)) for _ in range(2)]
        with monkeypatch.context() as patch:
            patch.setattr(eager, "SMALL", -1)
            launched = outcome(lambda x=x, y=y: FUNCTIONS[name](x, y))
        for result in found:
            if isinstance(launched, type):
                assert result is launched
            else:
                assert result.dtype == launched.dtype
                assert result.shape == launched.shape
                assert result.tobytes() == launched.tobytes()


def test_operands_of_different_shapes():
    x, y = np.float32([[1], [2]]), np.float32([3, 4, 5])
    found = tj.atan2(tj.asarray(x), tj.asarray(y))
    np.testing.assert_allclose(found.numpy(), np.arctan2(x, y), rtol=1e-6)
    with pytest.raises(tj.errors.ShapeError, match=r"atan2: shapes \(2, 2\) and \(3,\)(?s:.*)test_direct"):
        tj.atan2(tj.ones((2, 2)), tj.asarray(y))


def test_results_are_new_arrays_without_variables():
    x = tj.asarray([1.0, 2.0])
    y = tj.exp(x)
    assert y._storage.untouched
    assert x._storage.untouched
    before = y.tolist()
    x += 1
    assert y.tolist() == before


def test_large_products_are_launched():
    assert direct.product(np.ones((8, 8), np.float32), np.ones((8, 8), np.float32)) is not None
    assert direct.product(np.ones((64, 64), np.float32), np.ones((64, 64), np.float32)) is None


def test_checked_runs_launch(monkeypatch):
    operands = (np.ones(3, np.float32),)
    assert direct.compute(tanh, operands, {}) is not None
    monkeypatch.setattr(config, "check", True)
    assert direct.compute(tanh, operands, {}) is None
    np.testing.assert_allclose(tj.tanh(tj.ones(3)).numpy(), np.tanh(np.ones(3)), rtol=1e-6)


def test_threads_use_one_call_in_turn():
    x = [tj.asarray(np.full(50, i, np.float32)) for i in range(4)]
    wanted = [tj.tanh(a).tolist() for a in x]
    found, gate = [None] * 4, threading.Barrier(4)

    def run(i):
        gate.wait()
        results = [tj.tanh(x[i]) for _ in range(300)]
        found[i] = all(r.tolist() == wanted[i] for r in results)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert found == [True] * 4


def test_the_number_of_calls_that_are_kept_is_bounded(monkeypatch):
    monkeypatch.setattr(direct, "MAX_CALLS", 8)
    calls = direct._Calls(direct.matmul, {})
    for n in range(1, 30):
        a = np.ones((n, 1), np.float32)
        calls.add((n,), (a, a.T))
    assert len(calls) <= 8
    assert (29,) in calls
