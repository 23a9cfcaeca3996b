"""Promise 3: numbers are run-time inputs until their value is looked at; then they are guards."""

from __future__ import annotations

import functools
import math
import time

import numpy as np
import pytest

import tracejit as tj
from tests.semantics.compare import Keywords, Program, check
from tracejit.config import config
from tracejit.frontend.recording import trace_numbers


def test_a_learning_rate_that_changes_every_step_is_one_trace():
    def make(xp, array):
        w = array(np.ones(4))

        def step(w, x, lr):
            w -= lr * x

        return Program(step, lambda i: (w, array(np.arange(4.0)), 0.5 / (i + 1)), w)

    check(make, calls=20, traces=1)


def test_adams_bias_correction_is_one_trace():
    def make(xp, array):
        state = {"w": array(np.ones(4)), "m": array(np.zeros(4)), "v": array(np.zeros(4)), "t": 0}

        def step(state, g, lr, b1=0.9, b2=0.999, eps=1e-8):
            state["t"] += 1
            state["m"] = b1 * state["m"] + (1 - b1) * g
            state["v"] = b2 * state["v"] + (1 - b2) * g * g
            m = state["m"] / (1 - b1 ** state["t"])
            v = state["v"] / (1 - b2 ** state["t"])
            state["w"] = state["w"] - lr * m / (v**0.5 + eps)

        return Program(step, lambda i: (state, array(np.arange(4.0) - i), 0.1 / (i + 1)), state)

    check(make, calls=12, traces=1)


def test_a_flag_gives_two_traces():
    def make(xp, array):
        def step(x, training):
            if training:
                return x * 2.0
            return x

        return Program(step, lambda i: (array([1.0, i]), i % 2 == 0))

    check(make, calls=6, traces=2)


@pytest.mark.parametrize("use", ["shape", "axis", "index", "slice", "range", "repeat"])
def test_a_number_that_decides_the_structure_is_one_trace_per_value(use):
    def make(xp, array):
        def step(x, n):
            if use == "shape":
                return x.reshape(n, -1).sum(axis=0)
            if use == "axis":
                return x.sum(axis=n % 2)
            if use == "index":
                return x[n]
            if use == "slice":
                return x[:n] * 2.0
            if use == "repeat":
                return sum([x] * n)
            for _ in range(n):
                x = x * 2.0
            return x

        return Program(step, lambda i: (array(np.arange(12.0).reshape(6, 2)), 1 + i % 3))

    check(make, calls=9, traces=3 if use != "axis" else 2)


def test_math_and_formatting_look_at_the_value():
    def make(xp, array):
        def step(x, lr):
            return x * math.sqrt(lr), f"lr={lr:.2f}"

        return Program(step, lambda i: (array([1.0, 2.0]), 0.25 * (1 + i % 2)))

    check(make, calls=6, traces=2)


def test_pythons_arithmetic_is_pythons():
    def make(xp, array):
        def step(x, a, b):
            mixed = (
                a // b,
                a % b,
                -a,
                +b,
                abs(a - 10),
                a**2 / b,
                7 - a,
                2.0 * b,
                divmod(7, 2)[0] * a,
                (a << 1) | 1,
            )
            return x * (a * b - a / b), mixed

        return Program(step, lambda i: (array([1.0, 2.0]), 3 + i, 4 - 2 * i if i != 2 else 5))

    check(make, calls=6, traces=1)


def test_branches_on_a_number():
    def make(xp, array):
        def step(x, n):
            if n % 10 == 0:
                return x * 0.0
            if n > 5:
                return x + n
            return x - n

        return Program(step, lambda i: (array([1.0, 2.0]), i))

    check(make, calls=21, traces=3)


def test_zero_and_not_a_number_are_told_apart():
    @tj.jit
    def sign(x, a):
        return x * math.copysign(1.0, a) + (0.0 if a == a else 5.0)

    x = tj.ones(1)
    for value, expected in (
        (0.0, 1.0),
        (-0.0, -1.0),
        (math.nan, 6.0),
        (0.0, 1.0),
        (math.inf, 1.0),
        (-0.0, -1.0),
    ):
        assert float(sign(x, value)[0]) == expected


def test_type_of_a_number_is_part_of_the_signature():
    def make(xp, array):
        def step(x, a):
            return x * a

        return Program(step, lambda i: (array(np.arange(3)), 2.5 if i % 2 else 2))

    check(make, calls=6, traces=2)


def test_numpy_numbers_are_strong_but_for_float64():
    def make(xp, array):
        def step(x, a):
            return x * a + 1

        return Program(
            step, lambda i: (array(np.ones(3, np.float32)), np.int64(i) if i % 2 else np.float32(i))
        )

    check(make, calls=6, traces=2)


def test_numpy_functions_of_numbers():
    def make(xp, array):
        def step(x, a):
            return x * float(np.sqrt(a)) + np.maximum(a, 2.0).item()

        return Program(step, lambda i: (array(np.ones(3, np.float32)), 1.0 + i % 2))

    check(make, calls=6, traces=2)


def test_a_number_too_large_for_the_dtype_is_an_error_every_time():
    @tj.jit
    def add(x, n):
        return x + n

    x = tj.asarray(np.zeros(3, np.int8))
    np.testing.assert_array_equal(add(x, 100).numpy(), [100] * 3)
    for _ in range(3):
        with pytest.raises((TypeError, OverflowError), match="300"):
            add(x, 300)
        np.testing.assert_array_equal(add(x, 7).numpy(), [7] * 3)
    assert np.isinf(tj.jit(lambda x, s: x * s)(tj.ones(2), 1e300).numpy()).all()


def test_an_error_in_arithmetic_is_pythons_error_every_time():
    total = tj.zeros(1)

    @tj.jit
    def step(x, a, b):
        total[...] += 1.0
        return x * (a / b)

    x = tj.ones(2)
    assert step(x, 1.0, 2.0).tolist() == [0.5, 0.5]
    for _ in range(3):
        with pytest.raises(ZeroDivisionError):
            step(x, 1.0, 0.0)
    assert step(x, 1.0, 4.0).tolist() == [0.25, 0.25]
    assert total.tolist() == [2.0]


def test_long_chains_of_arithmetic_stay_small():
    def make(xp, array):
        def step(x, a):
            for _ in range(60):
                a = a * 0.5 + a * a * 1e-3
            return x * a

        return Program(step, lambda i: (array([1.0, 2.0]), 1.0 + i))

    f = check(make, traces=1)
    assert len(f._entries[0].text) < 20_000


def test_the_bound_on_signatures_holds_and_evicts_the_least_recently_used(monkeypatch):
    monkeypatch.setattr(config, "signatures", 3)

    @tj.jit
    def step(x, n):
        return x * len(range(n))

    x = tj.ones(2)
    for n in range(10):
        step(x, 1)  # stays in use
        assert step(x, n).tolist() == [n, n]
        assert step.cache_info().signatures <= 3
    before = step.cache_info().traces
    step(x, 1)
    assert step.cache_info().traces == before
    assert "dropped" in step.explain()


def test_explain_names_the_number_that_retraces_and_the_remedy():
    @tj.jit
    def step(x, epoch):
        return x * len(range(epoch))

    for epoch in range(6):
        step(tj.ones(2), epoch)
    text = step.explain()
    assert "epoch" in text
    assert "0 -> 1" in text or "1 -> 2" in text
    assert "retraces" in text
    assert "control flow" in text


def test_numbers_in_containers_and_keywords():
    def make(xp, array):
        def step(x, *rest, scale=1.0, **options):
            return x * scale + rest[0] * options["shift"][0]

        return Program(step, lambda i: (array([1.0, 2.0]), i, Keywords(scale=0.5 + i, shift=[i * 2.0])))

    check(make, traces=1)


def test_a_power_whose_type_changes_is_seen():
    def make(xp, array):
        def step(x, n):
            return x * 2**n

        return Program(step, lambda i: (array(np.arange(3)), n if (n := i % 3) < 2 else -1))

    check(make, calls=9, traces=2)


def test_comparing_types_gets_plain_numbers():
    def make(xp, array):
        def step(x, n):
            if type(n) is float:
                return x * 2.0
            return x * {int: 3, float: 4}[type(n)]

        return Program(step, lambda i: (array([1.0, 2.0]), i if i % 2 else 1.5))

    check(make, calls=6, traces=None)


def test_a_number_that_outlives_its_call_is_nothing_but_its_value():
    """A cache filled by a call that runs piecewise, where nobody watches any more."""

    @functools.lru_cache
    def doubled(k):
        return k * 2

    @tj.jit
    def timed(x, n):
        return x * doubled(n) + (time.time() < 0)

    @tj.jit
    def step(x, n, k):
        m = doubled(n)
        return x * m * k + k * m - m / k + (m > k) + tj.where(x > m, m, k)

    def plain(x, n, k):
        return x * 2 * n * k + k * 2 * n - 2 * n / k + (2 * n > k) + np.where(x > 2 * n, 2 * n, k)

    x = np.array([1, 5], np.float32)
    for n in (1, 2, 3):
        assert timed(tj.asarray(x), n).tolist() == (x * 2 * n).tolist()
    for n, k in ((1, 2), (1, 4), (2, 4), (3, 1), (1, 2)):
        np.testing.assert_allclose(step(tj.asarray(x), n, k).numpy(), plain(x, n, k), rtol=1e-6)
    kept = doubled(2)
    assert (kept + 1, 1 + kept, kept > 3, -kept, (tj.ones(1) * kept).item()) == (5, 5, True, -4, 4)


def escape_times(n):
    times = np.zeros((n, n), np.int64)
    for i in range(n):
        for j in range(n):
            z, c, k = 0.0, 3 * j / n - 2 + i / n / 2, 0
            while k < 20 and z * z < 4:
                z, k = z * z + c, k + 1
            times[i, j] = k
    return times


def test_a_guarded_number_implies_what_is_computed_from_it(monkeypatch):
    for limit in (trace_numbers.MAX_REQUIRED, 10):
        monkeypatch.setattr(trace_numbers, "MAX_REQUIRED", limit)
        f = tj.jit(escape_times, strict=True)
        for n in (9, 6, 9, 6):
            np.testing.assert_array_equal(f(n), escape_times(n))
        assert f.cache_info()[:2] == (2, 2)
        assert len(f.explain()) < 1000


def test_numbers_computed_from_a_guarded_one_stay_inputs_of_kernels():
    @tj.jit
    def mean(x, n):
        total = x * 0
        for _ in range(n):
            total = total + x
        return total / (n * 1.5)

    x = tj.ones(4)
    assert [float(mean(x, n)[0]) for n in (3, 3)] == [pytest.approx(2 / 3)] * 2
    assert "1.5" not in str(mean.graph(x, 3))


def test_questions_about_other_numbers_are_guards_after_a_guarded_one():
    @tj.jit
    def f(x, n, limit):
        for _ in range(n):
            x = x * 2
        return x if limit > n else -x

    assert [float(f(tj.ones(()), 3, limit)) for limit in (5, 2, 7, 3)] == [8, -8, 8, -8]
    assert f.cache_info().traces == 2
