"""Gradients where memory is shared: views of one storage, memory that Python sees, recordings cut on the way.

The derivative is with respect to the array, however the function reaches it, so writing through one view and
reading through another one counts. Each case runs eagerly and traced, on storages that are computed already
and on pending ones, and is compared with finite differences of the same function on NumPy (float64).
"""

from __future__ import annotations

import threading

import numpy as np
import pytest

import tracejit as tj
from tracejit.config import config
from tracejit.errors import ReplayError

RATE = 1e-6


def slopes(function, data, start, stop):
    """The gradient of ``function(memory)`` with respect to elements of its memory, by central differences."""
    found = []
    for i in range(start, stop):
        values = []
        for change in (RATE, -RATE):
            memory = data.copy()
            memory[i] += change
            values.append(float(function(memory)))
        found.append((values[0] - values[1]) / (2 * RATE))
    return found


def reads_beside(base):
    x = base[0:4]
    return (x * x).sum() + base[2:6].sum() * 10.0


def reads_the_whole(base):
    x = base[1:3]
    return (x * x * x).sum() + (base * base).sum()


def writes_and_reads_beside(base):
    x = base[0:4]
    base[0:4] = x * 2.0
    return (base[2:6] * base[2:6]).sum()


def writes_between_two_reads(base):
    x = base[0:4]
    a, b = x * 1.0, base[2:6] * 2.0
    base[0:4] = x * a
    c = base[1:5] * b
    base[3:6] = base[0:3] * 0.5
    return (base[1:5] * c).sum() + base[5]


def writes_in_a_loop(base):
    for i in range(5):
        base[i + 1 : i + 3] = base[i + 1 : i + 3] * base[i]
    return base.sum()


def reads_two_parts_then_all(base):
    x = base[0:2]
    return (x.sum() + base[4:6].sum()) * (base * base).sum()


CASES = [reads_beside, reads_the_whole, writes_and_reads_beside, writes_between_two_reads, writes_in_a_loop,
         reads_two_parts_then_all]  # fmt: skip


@pytest.mark.parametrize("pending", [False, True], ids=["computed", "pending"])
@pytest.mark.parametrize("jitted", [False, True], ids=["eager", "jit"])
@pytest.mark.parametrize("part", [(0, 4), (2, 6), (1, 3), (0, 6)], ids=str)
@pytest.mark.parametrize("case", CASES)
def test_the_derivative_counts_whatever_view_is_used(case, part, jitted, pending):
    data = np.array([0.5, -1.0, 1.5, 2.0, 0.75, -0.25])
    start, stop = part
    expected = slopes(case, data, start, stop)

    def gradient(x, base):
        return tj.grad(lambda x: case(base))(x)

    function = tj.jit(gradient) if jitted else gradient
    for _ in range(3):
        base = tj.asarray(data) * 1.0
        if not pending:
            base.wait()
        got = function(base[start:stop], base)
        np.testing.assert_allclose(got.numpy(), expected, rtol=1e-6, atol=1e-7)
        memory = data.copy()
        case(memory)
        np.testing.assert_allclose(base.numpy(), memory, rtol=1e-12)


@pytest.mark.parametrize("jitted", [False, True], ids=["eager", "jit"])
def test_a_view_as_argument_of_a_captured_array(jitted):
    base = tj.asarray(np.arange(6.0)).wait()
    gradient = tj.grad(lambda x: (x * x).sum() + base[2:6].sum() * 10.0)
    function = tj.jit(gradient) if jitted else gradient
    for _ in range(3):
        assert function(base[0:4]).tolist() == [0, 2, 14, 16]
    if jitted:
        assert function.cache_info().replays == 2


@pytest.mark.parametrize("jitted", [False, True], ids=["eager", "jit"])
def test_two_leaves_on_one_memory_get_the_same_total(jitted):
    base = tj.asarray(np.arange(6.0)).wait()

    def loss(a, b):
        return (a * b).sum()

    function = tj.grad(loss, argnums=(0, 1))
    function = tj.jit(function) if jitted else function
    for _ in range(3):
        one, two = function(base[0:4], base[2:6])
        total = np.zeros(6)
        total[0:4] += np.arange(2.0, 6.0)
        total[2:6] += np.arange(4.0)
        np.testing.assert_array_equal(one.numpy(), total[0:4])
        np.testing.assert_array_equal(two.numpy(), total[2:6])


def waves(parts):
    """More operators than one recording holds."""
    total = 0.0
    for x in parts:
        for _ in range(8):
            x = tj.sin(x) * 1.1
        total = total + x.sum()
    return total


def expected_waves(data):
    x, slope = data.copy(), np.ones_like(data)
    for _ in range(8):
        slope = slope * np.cos(x) * 1.1
        x = np.sin(x) * 1.1
    return slope


@pytest.mark.parametrize("way", ["grad", "vjp", "jit"])
def test_recordings_that_are_cut_in_the_middle_of_a_gradient(way):
    data = np.linspace(0.5, 1.5, 20)
    base = tj.asarray(data).wait()
    parts = [base, *(base[2 * i : 2 * i + 2] for i in range(10))]

    def loss(parts):
        return waves(parts[1:])

    if way == "vjp":
        _, pull_back = tj.vjp(loss, parts)
        (got,) = pull_back(tj.asarray(1.0, dtype=tj.float64))
    else:
        got = (tj.jit(tj.grad(loss)) if way == "jit" else tj.grad(loss))(parts)
    expected = expected_waves(data)
    np.testing.assert_allclose(got[0].numpy(), expected, rtol=1e-12)
    np.testing.assert_allclose(np.concatenate([g.numpy() for g in got[1:]]), expected, rtol=1e-12)


@pytest.mark.parametrize("jitted", [False, True], ids=["eager", "jit"])
def test_leaves_whose_memory_python_sees(jitted):
    one, two = np.array([1.0, 2.0, 3.0]), np.array([4.0, 5.0, 6.0])
    function = tj.grad(lambda a, b: (a * b * b).sum(), argnums=(0, 1))
    function = tj.jit(function) if jitted else function
    for _ in range(3):
        first, second = function(tj.from_dlpack(one), tj.from_dlpack(two))
        np.testing.assert_allclose(first.numpy(), two * two)
        np.testing.assert_allclose(second.numpy(), 2 * one * two)
        one += 1.0


def test_a_pull_back_of_arrays_whose_memory_python_sees():
    one, two = np.array([1.0, 2.0, 3.0]), np.array([4.0, 5.0, 6.0])
    a, b = tj.from_dlpack(one), tj.from_dlpack(two)
    (product, total), pull_back = tj.vjp(lambda a, b: (a * b, a + b), a, b)
    for _ in range(2):
        first, second = pull_back((a, b))
        np.testing.assert_array_equal(product.numpy(), one * two)
        np.testing.assert_array_equal(total.numpy(), one + two)
        np.testing.assert_array_equal(first.numpy(), one * two + two)
        np.testing.assert_array_equal(second.numpy(), one * one + two)


@pytest.fixture(params=["native", "naive"])
def mode(request, monkeypatch):
    monkeypatch.setattr(config, "engine", request.param)
    yield
    tj.wait_all()


def test_another_thread_reads_the_array_meanwhile(mode):
    w = tj.asarray([1.0, 2.0]).wait()
    begun, go_on, seen = threading.Event(), threading.Event(), []

    def loss(w):
        first = (w * w).sum().wait()
        begun.set()
        assert go_on.wait(10)
        return first + (w * 3.0).sum()

    def read():
        assert begun.wait(10)
        seen.append((w * 2.0).tolist())
        go_on.set()

    thread = threading.Thread(target=read)
    thread.start()
    assert tj.grad(loss)(w).tolist() == [5, 7]
    thread.join()
    assert seen == [[2, 4]]


def test_a_task_reads_the_array_meanwhile(mode):
    w, seen = tj.asarray([1.0, 2.0]).wait(), []

    def loss(w):
        first = (w * w).sum()
        tj.engine.push(lambda: seen.append(w.tolist()), reads=[w])
        w[0] = w[0] * 4.0
        tj.engine.push(lambda: seen.append(w.tolist()), reads=[w])
        return first + (w * w).sum()

    assert tj.grad(loss)(w).tolist() == [2 + 32, 4 + 4]
    tj.wait_all()
    assert sorted(seen) == [[1, 2], [4, 2]]


def test_what_a_task_writes_is_a_new_value(mode):
    w = tj.asarray([1.0, 2.0]).wait()

    def loss(w):
        first = (w * 3.0).sum()
        tj.engine.push(lambda: w.fill(7.0), writes=[w])
        return first + (w * 5.0).sum()

    value, gradient = tj.value_and_grad(loss)(w)
    assert float(value) == 9 + 70
    assert gradient.tolist() == [3, 3]


def test_a_gradient_that_needs_what_a_task_has_overwritten_is_an_error(mode):
    w = tj.asarray([1.0, 2.0]).wait()

    def loss(w, x):
        first = (x * x).sum()
        tj.engine.push(lambda: w.fill(7.0), writes=[w])
        return first + w.sum()

    with pytest.raises(ReplayError, match=r"use a copy"):
        tj.grad(lambda w: loss(w, w))(w)
    w[...] = tj.asarray([1.0, 2.0])
    assert tj.grad(lambda w: loss(w, w.copy()))(w).tolist() == [2, 4]


def test_threads_take_gradients_of_the_same_arrays():
    w, scale = tj.asarray([1.0, 2.0, 3.0]).wait(), tj.asarray([0.5, 0.25, 2.0]).wait()
    wrong = []

    def loss(w, x):
        return (w * w * x).sum().wait() + (w[1:] * scale[:2]).sum()

    def work(k):
        for i in range(20):
            got = tj.grad(loss)(w, tj.asarray([1.0, float(i), float(k)])).tolist()
            wanted = [2.0 * 1.0, 4.0 * i + 0.5, 6.0 * k + 0.25]
            if got != wanted:
                wrong.append((got, wanted))

    threads = [threading.Thread(target=work, args=(k,)) for k in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_cotangents_of_which_one_is_overlapped_by_what_was_just_written():
    a, b = tj.asarray([1.0, 2.0, 3.0]), tj.asarray([4.0, 5.0, 6.0])
    _, pull_back = tj.vjp(lambda a, b: (a * b, a + b), a, b)
    base = tj.asarray(np.arange(6.0, dtype=np.float32)).wait()
    base[0:3] = 5.0
    pending = tj.ones(3) * 2.0
    first, second = pull_back((pending, base[1:4]))
    assert first.tolist() == [2 * 4 + 5, 2 * 5 + 5, 2 * 6 + 3]
    assert second.tolist() == [2 * 1 + 5, 2 * 2 + 5, 2 * 3 + 3]


def look():
    """Compute something else: what was recorded until now is launched."""
    return (tj.arange(3) * 2).numpy()


def rewritten(x):
    y = x * 1.0
    look()
    y += 1.0
    look()
    y *= y
    look()
    y[0] += x[1]
    return y


def stored_twice(x):
    y = x * x
    f = y * 1.0
    y[...] = f
    look()
    y[0] = 7.0
    look()
    return f + y * 10.0


def stored_where_it_was_computed_before(x):
    y = x * x
    look()
    f = y * 3.0
    look()
    y[...] = f
    look()
    y[0] *= 2.0
    look()
    return f + y * 10.0


@pytest.mark.parametrize("function", [rewritten, stored_twice, stored_where_it_was_computed_before])
def test_arrays_that_are_written_again_after_a_launch(function):
    data = np.array([1.0, 2.0, 4.0])
    weights = tj.asarray(np.array([1.0, 3.0, 5.0]))
    plain = function(tj.asarray(data)).numpy()
    value, gradient = tj.value_and_grad(lambda x: (function(x) * weights).sum())(tj.asarray(data))
    assert float(value) == float((plain * weights.numpy()).sum())
    expected = slopes(lambda x: (function(tj.asarray(x)) * weights).sum(), data, 0, 3)
    np.testing.assert_allclose(gradient.numpy(), expected, rtol=1e-6)
