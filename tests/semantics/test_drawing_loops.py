"""Loops over looks that draw random numbers: native iterations draw those that eager code draws."""

import numpy as np
import pytest

import tracejit as tj
from tests.thorough import some
from tracejit.frontend.recording.look_loops import run_ahead


def metropolis(n, x):
    total, accepted = x * 0, 0
    for _ in range(n):
        y = x + tj.random.normal() * 0.5
        if tj.random.uniform() < tj.exp((x * x - y * y) / 2):
            x = y
            accepted += 1
        total = total + x
    return total, accepted


def rejection(n, x):
    """Some ways through an iteration draw more numbers than others."""
    accepted, tried = 0, 0
    while accepted < n:
        a, b = tj.random.uniform(), tj.random.uniform()
        tried += 1
        if a * a + b * b < 1:
            accepted += 1
            x = x + tj.random.normal() * a
            if x > 2:
                x = x - tj.random.uniform() - tj.random.uniform()
    return x, tried


def walks(n, x):
    """Nested loops: several states."""
    steps = 0
    for _ in range(n):
        place = 0
        while abs(place) < 4:
            place += 1 if tj.random.uniform() < 0.5 else -1
            steps += 1
        x = x + tj.random.normal() * place
    return x, steps


def vectors(n, x):
    y = tj.zeros(3) + x
    for _ in range(n):
        y = y * 0.9 + tj.random.normal(shape=3)
        if y.max() > 2:
            y = y - tj.random.integers(0, 3, shape=3)
    return y.sum(), 0


def long_vectors(n, x):
    y = tj.zeros(100) + x
    for _ in range(n):
        y = y * 0.9 + tj.random.normal(shape=100)
        if y.max() > 3:
            y = y * 0.5
    return y.sum(), 0


BODIES = [metropolis, rejection, walks, vectors, long_vectors]


def drawn_by(function, seed, n):
    """The results of a call, and the numbers that are drawn after it."""
    tj.random.seed(seed)
    tj.random.uniform(shape=3).wait()
    result, count = function(n, tj.asarray(0.5))
    return result.numpy(), int(count), tj.random.uniform(shape=2).numpy()


def assert_equal(results, expected):
    for result, other in zip(results, expected, strict=True):
        np.testing.assert_array_equal(result, other)


@pytest.mark.parametrize(
    ("body", "patience"),
    some([*((body, 100.0) for body in BODIES), (rejection, 0.0), (metropolis, 0.0)], 4, unpack=True),
)
def test_the_numbers_of_eager_code(body, patience, monkeypatch):
    monkeypatch.setattr(run_ahead, "PATIENCE", patience)
    f = tj.jit(body, strict=True)
    for seed, n in ((1, 60), (1, 60), (2, 60), (3, 150), (4, 1), (6, 80)):
        assert_equal(drawn_by(f, seed, n), drawn_by(body, seed, n))
    if body is not long_vectors:
        assert "are one launch" in f.explain()


def test_the_draws_before_and_after_a_loop():
    def body(n, x):
        a = tj.random.normal()
        x, count = rejection(n, x * a)
        return x + tj.random.uniform(), count

    f = tj.jit(body, strict=True)
    for seed in range(8):
        assert_equal(drawn_by(f, seed, 30), drawn_by(body, seed, 30))


def test_paths_that_are_tried_in_turn_return_what_they_drew():
    def body(n, x):
        x, count = metropolis(n, x)
        if x > 0:
            return x * tj.random.uniform(), count
        return x - tj.random.normal(), count + 1

    f = tj.jit(body, strict=True)
    for seed in range(12):
        assert_equal(drawn_by(f, seed, 30), drawn_by(body, seed, 30))
    assert f.cache_info().replays >= 6


def test_a_loop_that_fails_returns_what_it_drew():
    def body(x, limit):
        k = 0
        while k < 50:
            k = k + 1
            if tj.random.uniform() < 0.5:
                x[k + limit] += 1
        return x

    f = tj.jit(body)
    for limit in (0, 0, 3, 30, 0):
        results = []
        for function in (f, body):
            tj.random.seed(limit)
            x = tj.zeros(60)
            try:
                function(x, limit).wait()
            except IndexError:
                results.append("IndexError")
            else:
                results.append(x.tolist())
                results.append(tj.random.uniform().tolist())
        half = len(results) // 2
        assert results[:half] == results[half:], limit
