"""`math`, `round`, `min` and NumPy's functions of numbers that a body finds in arrays: replays compute them,
with the bits and errors of Python's.
"""

from __future__ import annotations

import math
import threading
from math import exp
from math import log as logarithm

import numpy as np
import pytest

import tracejit as tj
from tests.semantics.test_tree import bits
from tracejit.frontend.recording.operations import FUNCTIONS, TESTS


def copied(value):
    return value.copy() if isinstance(value, tj.NDArray) else value


def outcome(function, given):
    """The result of a call and its arguments after it, or its error: a traced call has no effects then."""
    given = [copied(each) for each in given]
    try:
        return bits(function(*given)), bits(given)
    except (ArithmeticError, ValueError) as error:
        return type(error).__name__, str(error)


def same(step, calls, traces):
    """Calls have the outcomes of the body itself; it is recorded at most `traces` times."""
    f = tj.jit(step, strict=True)
    for given in calls:
        assert outcome(f, given) == outcome(step, given), given
    assert f.cache_info().traces <= traces, f.explain()
    return f


def numbers(*values):
    return [(tj.asarray(np.array([value])),) for value in values]


def body_of(text):
    """A body that computes `text` of s, a number that it finds."""
    namespace = {"math": math, "__name__": "math_programs"}
    exec(f"def step(x):\n    s = x.sum().item()\n    return {text}, x + 1\n", namespace)
    return namespace["step"]


SECOND = {"atan2": "1.5", "copysign": "1.5", "fmod": "1.5", "ldexp": "3", "nextafter": "9.0", "pow": "1.5"}
SECOND |= {"remainder": "0.3"}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_of_math(name):
    second = f", {SECOND[name]}" if name in SECOND else ""
    f = same(body_of(f"math.{name}(s{second})"), numbers(1.0, 0.5, 0.25, -0.75, 0.125, 1.5), 5)
    assert f.cache_info().replays >= 1


@pytest.mark.parametrize("name", TESTS)
def test_tests_of_math_are_guards(name):
    calls = numbers(0.5, math.nan, 2.5, math.inf, -math.inf, math.nan)
    same(body_of(f"x * 2 if math.{name}(s) else x + 1"), calls, 2)


def found_elsewhere(x):
    s = float(x.sum())
    return exp(-s) + logarithm(s + 2.0), math.hypot(s, 2.0), math.atan2(1, s), math.pi * s


def rounded(x):
    s = float(x.sum())
    return round(s), round(s, 2), math.floor(s), math.ceil(s), int(s), divmod(s, 0.7), abs(-s), pow(s, 2)


def clamped(x):
    s = float(x.sum())
    h = min(2.0, max(0.3, 0.9 * s))
    return h, max(s, 0.5, h), min(3, round(s)), x * h


def of_numpy(x):
    s = float(x.sum())
    return np.exp(-s) * 2.0, np.maximum(s, 0.75), float(np.sqrt(abs(s))), np.floor(s) + s


@pytest.mark.parametrize("step", [found_elsewhere, rounded, clamped, of_numpy])
def test_functions_by_other_names(step):
    same(step, numbers(0.5, 0.25, 1.75, -0.25, 0.125), 1)


def test_the_smaller_of_numbers_of_two_types_is_guarded():
    def step(x):
        s = float(x.sum())
        return x * min(s, 1), min([s, 2.0]), max(s, 3.0, key=abs)

    same(step, numbers(0.5, 0.25, 4.5, 1.75, -7.0, 0.125), 5)


def test_captured_functions():
    root, module = math.sqrt, math

    def step(x):
        return x * root(x.sum().item()) + module.exp(x[0].item())

    same(step, numbers(0.5, 0.25, 1.75), 1)


def test_errors_are_raised_where_python_raises_them():
    def step(x):
        x += 1
        return math.log(x.sum().item() - 1.5) + math.exp(x.sum().item() * 100)

    for _ in range(2):
        same(step, numbers(2.0, 0.5, 1.0, 0.25, 9.0, 2.5), 6)


def test_errors_that_the_body_catches():
    def step(x):
        try:
            accept = math.exp(x.sum().item())
        except OverflowError:
            accept = 1.0
        return x * accept

    f = tj.jit(step)
    for given in numbers(0.5, 1e4, 0.25, 1e5, 0.125):
        assert outcome(f, given) == outcome(step, given)


def test_floats_among_the_arguments_are_inputs():
    """Functions of `math` and NumPy compute them again; integers are guarded."""
    f = same(
        lambda x, n: (x * math.sqrt(n), math.sqrt(x.sum().item() * n)),
        [(tj.ones(2), n) for n in (1.0, 4.0, 1.0, 9.0)],
        1,
    )
    assert f.cache_info().replays == 3

    def discounted(x, rate, years):
        return x * np.exp(-rate * years) + np.sqrt(years / 10) - max(rate, 0.5) + math.log(years)

    f = same(discounted, [(tj.ones(2), r, y) for r in (0.5, 0.25, 0.75) for y in (1.0, 2.5)], 1)
    assert f.cache_info().replays == 5
    f = same(lambda x, n: x * math.sqrt(n), [(tj.ones(2), n) for n in (1, 4, 1)], 2)
    assert f.cache_info().replays == 1


def test_a_float_that_has_no_root():
    def step(x, n):
        return x * math.sqrt(n)

    f = tj.jit(step)
    for n in (4.0, 1.0):
        assert bits(f(tj.ones(2), n)) == bits(step(tj.ones(2), n))
    with pytest.raises(ValueError, match="math domain error"):
        f(tj.ones(2), -1.0)
    assert bits(f(tj.ones(2), 9.0)) == bits(step(tj.ones(2), 9.0))


def metropolis(x, noise, u, t):
    energy, accepted = float(tj.abs(x).sum()), 0
    for i in range(8):
        y = x + noise[i]
        e = float(tj.abs(y).sum())
        if e < energy or float(u[i]) < math.exp(-(e - energy) / t):
            x, energy = y, e
            accepted += 1
        t *= 0.9
    return x, energy, accepted


def test_metropolis():
    random = np.random.default_rng(3)
    data = [
        (random.normal(size=3), random.normal(size=(8, 3)) * 2, random.uniform(size=8), 0.5 + i)
        for i in range(6)
    ]
    calls = [[tj.asarray(v) if isinstance(v, np.ndarray) else v for v in given] for given in data]
    f = same(metropolis, calls, 6)
    before = f.cache_info()
    for given in calls:
        assert outcome(f, given) == outcome(metropolis, given)
    assert f.cache_info().traces == before.traces
    assert "piecewise" not in f.explain()


def test_other_threads_find_math_itself():
    found, recording, done = [], threading.Event(), threading.Event()

    def look():
        recording.wait(10)
        found.append((math.sqrt(4.0), exp(0.0), math.pi, math.factorial(4)))
        done.set()

    def wait(array):
        recording.set()
        done.wait(10)

    @tj.jit
    def step(x):
        s = x.sum().item()
        wait_for_other()
        return exp(-s) + math.sqrt(s)

    wait_for_other = tj.pure(lambda: wait(None))
    other = threading.Thread(target=look)
    other.start()
    step(tj.ones(2))
    other.join()
    assert found == [(2.0, 1.0, math.pi, 24)]
    assert exp is math.exp
    assert type(math).__name__ == "module"


def test_functions_of_math_in_a_function_that_vmap_calls():
    def step(x):
        scale = math.exp(-float(x.sum()))
        return tj.vmap(lambda row: row * math.exp(0.5))(x) * scale

    same(step, [(tj.ones((2, 3)) * n,) for n in (0.25, 0.5)], 1)


def of_elements(x):
    total, n = 0.0, 0
    for k in range(len(x)):
        if math.exp(-x[k]) > 0.5:
            total += math.sqrt(x[k]) + math.atan2(x[k], 2.0)
            n += math.floor(x[k] * 4)
    return total, n, math.hypot(x[0], x[1]) + exp(x[2])


def variance(x):
    mean, squares, alarms = x[0], 0.0, 0
    for value in x:
        d = value - mean
        mean = mean + 0.1 * d
        squares = 0.9 * (squares + 0.1 * d * d)
        if abs(d) > 1.5 * math.sqrt(squares):
            alarms += 1
    return mean, alarms


@pytest.mark.parametrize("body", [of_elements, variance], ids=lambda body: body.__name__)
def test_functions_of_elements(body):
    """They look at the element; the iterations of a loop are transitions between equal states."""
    step, rng = tj.jit(body), np.random.default_rng(0)
    for _ in range(12):
        x = rng.random(200)
        np.testing.assert_allclose([float(r) for r in step(x)], [float(r) for r in body(x)], rtol=1e-12)
    assert "piecewise" not in step.explain()
    assert step.cache_info().replays >= 5  # what precedes the loop, and follows it, has several paths


def test_an_array_of_several_elements_has_no_square_root():
    step = tj.jit(lambda x: math.sqrt(x))
    for _ in range(2):
        with pytest.raises(TypeError):
            step(tj.ones(3))
