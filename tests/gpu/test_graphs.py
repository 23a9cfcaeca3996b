"""Segments of a schedule as graphs of kernels: one launch a call, failures, and what is refused."""

import numpy as np
import pytest

import tracejit as tj
from tests.gpu.fake import OUT_OF_MEMORY
from tracejit.engine.cuda.graphs import VALUES, failed_task
from tracejit.errors import DeviceError, OutOfBoundsError
from tracejit.kernels.executor.layout import RANK


@tj.jit
def step(x, w, rate):
    """Several kernels: products do not fuse."""
    hidden = tj.tanh(x @ w)
    w -= rate * (x.T @ hidden)
    return hidden.sum(axis=0)


def expected(x, w, rate):
    hidden = np.tanh(x @ w)
    return hidden.sum(axis=0), w - np.float32(rate) * (x.T @ hidden)


def arrays(seed=0):
    g = np.random.default_rng(seed)
    return g.normal(size=(9, 4)).astype(np.float32), g.normal(size=(4, 4)).astype(np.float32)


def test_a_replay_is_one_launch(gpu, fake):
    x, w = arrays()
    there, weights = tj.asarray(x, device=gpu), tj.asarray(w, device=gpu)
    step(there, weights, 0.1).numpy()
    assert "graph of" in str(step.schedule(there, weights, 0.1))
    w = expected(x, w, 0.1)[1]
    for turn in range(5):
        before, rate = (fake.launches, fake.graph_launches), 0.1 / (1 + turn)
        total = step(there, weights, rate)
        total.wait()
        assert (fake.launches - before[0], fake.graph_launches - before[1]) == (1, 1)
        wanted, w = expected(x, w, rate)
        np.testing.assert_allclose(total.numpy(), wanted, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(weights.numpy(), w, rtol=1e-4, atol=1e-5)


def test_launches_in_flight_have_values_of_their_own(gpu, fake):
    """Several calls are issued while the device stands still."""
    x, w = arrays()
    inputs = [tj.asarray(x + n, device=gpu) for n in range(4)]
    weights = [tj.asarray(w * n, device=gpu) for n in range(4)]
    step(inputs[0], weights[0], 0.0).numpy()
    with fake.at_rest():
        totals = [step(a, b, 0.5) for a, b in zip(inputs, weights, strict=True)]
    for n, total in enumerate(totals):
        wanted, after = expected(x + n, w * n, 0.5)
        np.testing.assert_allclose(total.numpy(), wanted, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(weights[n].numpy(), after, rtol=1e-4, atol=1e-4)


@tj.jit
def pick(table, first, second, count):
    count += 1
    rows = (table[first] @ table.T) + 1
    return rows.sum() + (table.T[second] @ table).sum()


def test_a_bad_index_in_a_graph_is_told_and_nothing_is_written(gpu):
    table, count = tj.asarray(arrays()[0], device=gpu), tj.zeros(1, device=gpu)

    def index(*numbers):
        return tj.asarray(numbers, device=gpu)

    good = pick(table, index(1, -1), index(0, 2), count).item()
    for first, second, told in (
        ((1, 90), (0, 2), "index number 1 is out of bounds for axis 0 with extent 9"),
        ((1, 2), (-50, 2), "index number 0 is out of bounds for axis 0 with extent 4"),
        ((1, 90), (-50, 2), "index number 1 is out of bounds for axis 0 with extent 9"),
    ):
        for _ in range(3):  # in whatever order the kernels run
            result = pick(table, index(*first), index(*second), count)
            with pytest.raises(OutOfBoundsError, match=told):
                result.numpy()
    assert count.tolist() == [1]
    assert pick(table, index(1, -1), index(0, 2), count).item() == good


@pytest.mark.parametrize(
    ("name", "code"),
    [("cuGraphExecKernelNodeSetParams", 910), ("cuGraphLaunch", 1), ("cuGraphLaunch", OUT_OF_MEMORY)],
)
def test_a_graph_that_the_driver_refuses(name, code, gpu, fake):
    x, w = arrays()
    there, weights, here = tj.asarray(x, device=gpu), tj.asarray(w, device=gpu), tj.asarray(x)
    step(there, weights, 0.0).numpy()
    fake.fail(name, code)
    with pytest.raises(DeviceError, match="gpu:0"):
        step(there, weights, 0.5).numpy()
    assert (here * 2).tolist() == (x * 2).tolist()
    there, weights = tj.asarray(x, device=gpu), tj.asarray(w, device=gpu)
    np.testing.assert_allclose(
        step(there, weights, 0.5).numpy(), expected(x, w, 0.5)[0], rtol=1e-4, atol=1e-4
    )


def test_a_graph_that_cannot_be_made(gpu, fake):
    @tj.jit
    def other(x, w):
        return tj.exp(x @ w).sum()

    x, w = (tj.asarray(a, device=gpu) for a in arrays())
    fake.fail("cuGraphInstantiate", 1)
    with pytest.raises(DeviceError, match="cuGraphInstantiate: CUDA_ERROR_INVALID_VALUE"):
        other(x, w).numpy()
    assert other(x, w).item() > 0


def test_more_values_than_a_setter_takes(gpu):
    count = VALUES // 4

    @tj.jit
    def many(xs, w):
        return [tj.tanh(x @ w) for x in xs]

    g = np.random.default_rng(0)
    w = g.normal(size=(2, 2)).astype(np.float32)
    for turn in range(2):
        xs = [np.full((2, 2), n + turn, np.float32) for n in range(count)]
        found = many([tj.asarray(x, device=gpu) for x in xs], tj.asarray(w, device=gpu))
        for x, result in zip(xs, found, strict=True):
            np.testing.assert_allclose(result.numpy(), np.tanh(x @ w), rtol=1e-5, atol=1e-6)


def test_the_naive_engine_launches_kernel_by_kernel(gpu, fake, monkeypatch):
    monkeypatch.setattr(tj.config, "engine", "naive")

    @tj.jit
    def another(x, w):
        return tj.exp(x @ w).sum() + 1

    x, w = arrays()
    before = fake.graph_launches
    found = another(tj.asarray(x, device=gpu), tj.asarray(w, device=gpu)).item()
    assert abs(found - np.exp(x @ w).sum() - 1) < 1e-2
    assert fake.graph_launches == before


def test_a_status_tells_the_task():
    assert failed_task(2 * RANK + 7) == (2, 7)
