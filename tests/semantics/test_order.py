"""Promise 2: a read before a write sees the old value; aliased arguments give NumPy's result."""

from __future__ import annotations

import time

import numpy as np
import pytest

import tracejit as tj
from tests.semantics.compare import Program, check


def test_a_read_before_a_later_write_sees_the_old_value():
    def make(xp, array):
        w = array(np.arange(50.0))

        def step(w, x):
            old = w * 1.0
            total = w.sum()
            w += x
            between = w * 2.0
            w[...] = 0.0
            after = w.sum()
            w[10:20] = between[10:20] + old[:10]
            return old, total, between, after

        return Program(step, lambda i: (w, array(np.full(50, i + 1.0))), w)

    check(make)


def test_a_lazy_view_is_read_after_the_write():
    def make(xp, array):
        w = array(np.arange(8.0))

        def step(w):
            view = w[2:6]
            before = view + 0.0
            w *= 3.0
            return before, view + 0.0, view

        return Program(step, lambda i: (w,), w)

    check(make)


def test_a_shift_in_place_reads_before_it_writes():
    def make(xp, array):
        w = array(np.arange(9.0))

        def step(w):
            w[1:] = w[:-1]
            w[:-1] += w[1:]
            w[::-1] = w
            return w.sum()

        return Program(step, lambda i: (w,), w)

    check(make)


def test_a_transposed_update_in_place():
    def make(xp, array):
        w = array(np.arange(16.0).reshape(4, 4))

        def step(w, x):
            w += w.T
            w[...] = w.T * 0.25 + x

        return Program(step, lambda i: (w, array(float(i))), w)

    check(make)


def test_the_same_array_twice():
    def make(xp, array):
        w = array(np.arange(5.0))

        def step(a, b):
            a += 1.0
            b *= 2.0
            return a + b

        return Program(step, lambda i: (w, w), w)

    check(make)


def test_distinct_arrays_after_the_same_array_twice():
    def make(xp, array):
        v, w = array(np.arange(5.0)), array(np.ones(5))

        def step(a, b):
            a += 1.0
            b *= 2.0
            return a + b

        return Program(step, lambda i: (v, v) if i % 2 else (v, w), [v, w])

    check(make, calls=6, traces=2)


@pytest.mark.parametrize("first", [0, 1])
def test_overlapping_views(first):
    def make(xp, array):
        w = array(np.arange(10.0))

        def step(a, b):
            a += 1.0
            b *= a
            a[1] = 3.0
            return a.sum() + b.sum()

        return Program(step, lambda i: (w[1:7], w[3:9]) if (i + first) % 2 else (w[0:6], w[2:8]), w)

    check(make, traces=None)


def test_views_apart_then_overlapping():
    def make(xp, array):
        v, w = array(np.arange(10.0)), array(np.arange(10.0))

        def step(a, b):
            a += 1.0
            b *= a

        return Program(step, lambda i: (v[1:4], w[2:5]) if i < 3 else (w[1:4], w[2:5]), [v, w])

    check(make, calls=6, traces=2)


def test_an_argument_that_is_also_captured():
    def make(xp, array):
        v, w = array(np.arange(5.0)), array(np.ones(5))

        def step(a):
            a += 1.0
            return w * 2.0 + a

        return Program(step, lambda i: (w,) if i in (1, 2) else (v,), [v, w])

    check(make, calls=6, traces=2)


def test_a_view_of_a_captured_array_as_argument():
    def make(xp, array):
        w = array(np.arange(8.0))
        v = array(np.zeros(8))

        def step(a):
            a += 1.0
            w[2] = 5.0
            return w.sum() + a.sum()

        return Program(step, lambda i: (v[0:4],) if i < 2 else (w[i - 2 : i + 2],), [v, w])

    check(make, calls=7, traces=None)


def test_two_names_for_one_captured_array():
    def make(xp, array):
        class Box:
            pass

        box = Box()
        box.first = box.second = array(np.arange(4.0))
        other = array(np.ones(4))

        def step(x):
            box.first += x
            return box.second * 2.0

        def arguments(i):
            if i == 3:
                box.second = other
            return (array(float(i)),)

        return Program(step, arguments, box)

    check(make, calls=6, traces=2)


def test_memory_shared_with_numpy_is_one_memory():
    memory = np.zeros(10, np.float32)
    low, high = tj.from_dlpack(memory[:6]), tj.from_dlpack(memory[4:])

    @tj.jit
    def step(a, b, x):
        a += x
        b *= 2.0
        a[4:] += b[:2]
        return a.sum()

    expected = np.zeros(10, np.float32)
    apart = tj.zeros(6), tj.zeros(6)
    for i in range(4):
        step(*apart, 1.0)
        result = step(low, high, i + 1.0)
        a, b = expected[:6], expected[4:]
        a += i + 1.0
        b *= 2.0
        a[4:] += b[:2]
        np.testing.assert_allclose(memory, expected)
        assert float(result) == pytest.approx(a.sum())


@pytest.mark.cpu("NumPy looks at the memory itself")
@pytest.mark.parametrize("jitted", [False, True])
def test_memory_that_python_sees_is_read_and_written_at_once(jitted):
    wrap = tj.jit if jitted else (lambda function: function)
    double, bump = wrap(lambda x: x * 2), wrap(lambda x: x.__iadd__(1))
    memory = np.ones(4000, np.float32)
    shared = tj.from_dlpack(memory)
    for i in range(4):
        memory[...] = i
        doubled = double(shared)
        memory[...] = 10 * i
        assert doubled.numpy()[-1] == 2 * i
        bump(shared[2000:])
        assert (memory[0], memory[-1]) == (10 * i, 10 * i + 1)
    x = tj.ones(5)
    seen = x.numpy(copy=False)
    for i in range(2, 5):
        bump(x)
        assert seen.tolist() == [i] * 5


@pytest.mark.cpu("NumPy looks at the memory itself")
@pytest.mark.parametrize("size", [5, 4000])
def test_memory_that_python_sees_is_read_before_a_statement_ends_that_waits_for_others(size):
    memory = np.ones(size, np.float32)
    x, other = tj.from_dlpack(memory), tj.zeros(size).wait()
    tj.engine.push(lambda: (time.sleep(0.1), other.fill(1.0)), writes=[other])
    total = x + other
    memory[...] = 100.0
    assert total.tolist() == [2.0] * size


@pytest.mark.cpu("NumPy looks at the memory itself")
def test_memory_is_given_away_when_nothing_reads_it_any_more():
    x, other = tj.ones(4000).wait(), tj.zeros(4000).wait()
    tj.engine.push(lambda: (time.sleep(0.1), other.fill(1.0)), writes=[other])
    total = x + other
    np.from_dlpack(x)[...] = 100.0
    assert total.tolist() == [2.0] * 4000


@pytest.mark.parametrize("jitted", [False, True])
def test_results_lie_in_c_order_and_reshapes_of_them_are_views(jitted):
    """NumPy's result lies as its operand does, in columns here, so that its reshape is a copy."""

    def body(x):
        y = x.T + 0
        line, column = y.reshape(-1), y.T.reshape(-1)
        y += 10
        return line * 1, column * 1

    step = tj.jit(body) if jitted else body
    for _ in range(2):
        line, column = step(tj.asarray([[1, 2], [3, 4]]))
        assert line.tolist() == [11, 13, 12, 14]
        assert column.tolist() == [1, 2, 3, 4]


def test_an_element_is_a_copy_and_not_a_view():
    def make(xp, array):
        w = array(np.arange(6.0).reshape(2, 3))

        def step(w):
            kept, view = w[0, 1], w[0, 1, ...]
            w[0, 1], w[1, 2] = w[1, 2], w[0, 1]
            row = w[0]
            kept = kept * 1.0
            row[0] = 7.0
            return kept, view * 1.0, row.sum()

        return Program(step, lambda i: (w,), w)

    check(make)
