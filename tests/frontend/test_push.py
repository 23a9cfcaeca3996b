"""Arrays as what Python tasks of the engine read and write."""

import threading
import time

import numpy as np
import pytest

import tracejit as tj
from tracejit import engine
from tracejit.config import config
from tracejit.errors import EngineError, OutOfBoundsError


@pytest.fixture(params=["native", "naive"])
def mode(request, monkeypatch):
    monkeypatch.setattr(config, "engine", request.param)
    yield request.param
    engine.wait_all()


def later(seconds=0.05):
    time.sleep(seconds)


def test_a_push_comes_after_what_was_recorded_and_before_what_follows(mode):
    x, seen = tj.zeros(5000), []
    x += 1

    def show():
        later()
        seen.append(float(x.numpy().sum()))

    engine.push(show, reads=[x])
    x += 1  # waits until the task has read
    assert float(x.sum()) == 10000
    assert seen == [5000]


@pytest.mark.parametrize("size", [3, 5000])
def test_a_task_writes_an_array(mode, size):
    batch = tj.zeros((2, size)).wait()
    address = batch._storage.address
    for i in range(3):

        def load(i=i):
            later()
            batch[0] = np.full(size, i, np.float32)
            batch[1] = batch[0] * 2
            assert float(batch[1, 0]) == 2 * i  # its own work is done when it looks
            batch[1] += 1

        engine.push(load, writes=[batch])
        total = batch.sum()
        assert float(total) == size * (3 * i + 1)
    assert batch._storage.address == address


def test_views_have_the_variable_of_their_array(mode):
    x = tj.zeros(3000)
    engine.push(lambda: (later(), x.fill(7.0)), writes=[x[10:20]])
    assert float(x[0]) == 7.0


def test_traced_functions_read_what_a_task_writes(mode):
    @tj.jit
    def step(w, x):
        w += x.sum()
        return w * 2

    w, x = tj.zeros(3), tj.zeros(4000)
    step(w, x)
    for i in range(3):
        engine.push(lambda i=i: (later(), x.fill(i)), writes=[x])
        result = step(w, x)
    np.testing.assert_array_equal(result.numpy(), np.full(3, 2 * 4000 * 3.0))
    assert step.cache_info().traces == 1


def test_traced_functions_work_inside_tasks(mode):
    @tj.jit
    def double(x):
        x *= 2
        return x.sum()

    x, seen = tj.ones(4000), []
    double(x)
    engine.push(lambda: seen.append(float(double(x))), writes=[x])
    assert float(x.sum()) == 16000
    assert seen == [16000]


def test_a_failed_task_leaves_its_arrays_poisoned_until_they_are_overwritten(mode):
    x, other = tj.ones(3), tj.ones(3)

    def explode():
        raise ValueError("no such file")

    engine.push(explode, writes=[x], name="loader")
    for look in (x.numpy, (x + 1).numpy, x.wait):
        with pytest.raises(
            EngineError, match=r"(?s)'loader' failed: ValueError: no such file.*test_push\.py:\d+"
        ) as found:
            look()
        assert isinstance(found.value.__cause__, ValueError)
    np.testing.assert_array_equal(other.numpy(), np.ones(3))
    engine.push(lambda: x.fill(4.0), writes=[x])
    np.testing.assert_array_equal(x.numpy(), np.full(3, 4.0))


def test_an_error_inside_a_task_s_array_code_is_the_task_s_error(mode):
    x, index = tj.ones(5000), tj.asarray([5000])

    def bad():
        x[:1] = tj.ones(5000)[index + tj.zeros(3000, dtype=tj.int64)][:1]

    engine.push(bad, reads=[index], writes=[x])
    with pytest.raises(EngineError) as found:
        x.numpy()
    assert isinstance(found.value.__cause__, OutOfBoundsError)


def test_asynchronous_tasks_and_priorities_take_arrays(mode):
    x, threads, seen = tj.zeros(3), [], []

    def fetch(done):
        def arrive():
            later()
            seen.append("arrived")
            done()

        threads.append(threading.Thread(target=arrive))
        threads[0].start()

    engine.push(fetch, writes=[x], asynchronous=True, priority=3)
    x.wait()
    assert seen == ["arrived"]
    threads[0].join()


def test_a_traced_function_that_pushes_runs_piecewise():
    x, seen = tj.zeros(3), []

    def step(x):
        x += 1
        engine.push(lambda: seen.append(float(x[0])), reads=[x])
        return x * 2

    traced = tj.jit(step)
    for i in range(3):
        assert float(traced(x)[0]) == 2 * (i + 1)
    engine.wait_all()
    assert seen == [1, 2, 3]
    assert "push" in traced.explain()


def test_looks_from_outside_while_a_task_writes_wait_for_it():
    x, inside, leave = tj.zeros(5000), threading.Event(), threading.Event()

    def write():
        x[...] = 1.0
        inside.set()
        leave.wait(10)
        x[...] = 2.0

    engine.push(write, writes=[x])
    assert inside.wait(10)
    threading.Timer(0.05, leave.set).start()
    assert float(x.min()) == float(x.max()) == 2.0


def test_wait_all_launches_what_is_recorded():
    x = tj.asarray(np.ones((64, 64), np.float32)) * 2 + 1
    tj.wait_all()
    assert x._storage.pending is None
