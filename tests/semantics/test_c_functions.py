"""Python's floats in native loops: `math`, ``**``, ``//``, ``%`` have the bits and errors of Python's."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest

import tracejit as tj
from tracejit.kernels import c_functions
from tracejit.kernels.scalar import FUNCTIONS
from tracejit.ops.c_library import C_FUNCTIONS


def bisected(x):
    """A root of each cubic."""
    steps = 0
    for k in range(len(x)):
        low, high, c = -3.0, 3.0, float(x[k])
        while high - low > 1e-10:
            middle = 0.5 * (low + high)
            if middle**3 - c * middle + 0.3 < 0:
                low = middle
            else:
                high = middle
            steps += 1
        x[k] = low
    return steps


def annealed(x):
    """Acceptance by an exponential; the temperature falls by a power."""
    energy, temperature, accepted = 5.0, 2.0, 0
    for k in range(len(x)):
        delta = float(x[k])
        if delta < 0 or math.exp(-delta / temperature) > 0.5:
            energy += delta
            accepted += 1
        temperature = 2.0 * 0.9**k
    return energy, temperature, accepted


def wrapped(x):
    """Angles, and remainders of both signs."""
    total, turns, count = 0.0, 0, 0
    for k in range(len(x)):
        a = float(x[k])
        turns += int(a // 0.7)
        total += a % 0.7 - (a % -0.3) * (turns % 9)
        count += k // -7 + k % (k // 2 + 1) - (k - 9) ** 3 % 1000
        if math.isfinite(total) and math.fabs(a) > 0.5:
            total += math.radians(math.degrees(a) + 1.0)
        x[k] = math.atan2(total, a) + math.fmod(total, 0.25)
    return total, turns, count


def functions(x):
    total = 0.0
    for k in range(len(x)):
        a = abs(float(x[k])) + 0.5
        if a > 0.6:
            total += math.log(a) + math.log2(a) - math.log10(a) + math.log1p(a) - math.expm1(-a)
        total += (
            math.sin(a) * math.cos(total) + math.tan(a) + math.asin(math.tanh(a)) - math.acos(1 / (1 + a))
        )
        total += math.sinh(a / 9) + math.cosh(a / 7) - math.asinh(a) + math.acosh(1 + a) + math.atanh(a / 99)
        total += math.erf(a) - math.erfc(total) + math.atan(a) + math.pow(a, 1.7)
    return total


def damped(x):
    """Iterations with arrays: a loop without branches."""
    t, n = 1.0, 0
    while float(abs(x).max()) > 1e-3 and n < 60:
        x *= math.exp(-0.1 * t)
        x += math.sin(t) * 1e-4
        t = t**0.9 + 0.1
        n += 1
    return t, n


def logistic(x):
    """No question about a number that varies, and no array in the loop."""
    y, n = 0.1, 0
    rate = 3.0 + min(abs(float(x[0])), 0.9)
    while n < 1500:
        y = rate * y * (1.0 - y)
        n += 1
    return y


def simpson(x):
    """A long loop over a range that computes numbers only."""
    scale, total, n = abs(float(x[0])), 0.0, 1000
    for i in range(n + 1):
        weight = 1 if i in (0, n) else 4 if i % 2 else 2
        total += weight * math.exp(-scale * (i / n) ** 2)
    return total / (3 * n)


def pendulum(x):
    """A long loop that stores elements of a row, without looks."""
    angle, speed = float(x[0]), float(x[1])
    path = np.zeros((1200, 2))
    for k in range(1200):
        speed -= 9.81 * math.sin(angle) * 0.001
        angle += speed * 0.001
        path[k, 0] = angle
        path[k, 1] = speed
    return float(path[-1, 0]), float(path[-1, 1]), float(path.max())


def implied(x):
    """An inner loop over a range that only compares numbers."""
    steps = 0
    for k in range(len(x)):
        low, high, goal = 1e-3, 5.0, 1.0 / (1.0 + abs(float(x[k])))
        for _ in range(40):
            middle = 0.5 * (low + high)
            if math.exp(-middle) * math.cos(middle) < goal:
                high = middle
                steps += 1
            else:
                low = middle
        x[k] = low
    return steps


def series(x):
    """Products of counters become floats."""
    for k in range(len(x)):
        a = float(x[k])
        term = total = a
        n = 1
        while abs(term) > 1e-14:
            term *= -a * a / ((2 * n) * (2 * n + 1))
            total += term
            n += 1
        x[k] = total


def euclid(x):
    """`int` is called, and is a dtype."""
    found = np.zeros(len(x), int)
    for k in range(len(x)):
        a = int(x[k] * 1000)
        b = 360 + k
        while b:
            a, b = b, a % b
        found[k] = a
    return int(found.sum())


def angles(x):
    """Functions of two elements."""
    total = 0.0
    for k in range(1, len(x)):
        total += math.atan2(x[k], x[k - 1])
    return total


BODIES = [
    *(bisected, annealed, wrapped, functions, damped, logistic, simpson, pendulum, implied, series, euclid),
    angles,
]


@pytest.mark.parametrize("body", BODIES)
def test_bits_and_launches(body):
    f, rng = tj.jit(body, strict=True), np.random.default_rng(3)
    for _ in range(6):
        x = rng.standard_normal(40) * 2
        ours, numpys = tj.asarray(x), x.copy()
        assert f(ours) == body(numpys)
        assert ours.numpy().tobytes() == numpys.tobytes()
    assert "are one launch" in f.explain()
    assert "are a launch each" not in f.explain()
    assert f.cache_info().replays >= 2


def growing(x):
    """A list that grows: the state is another one in each iteration."""
    y, kept = np.zeros(3000), []
    first = float(x[0])
    for i in range(1, 3000):
        y[i] = y[i - 1] * 0.5 + x[1]
        kept.append(i)
    return first, y.sum(), len(kept)


def test_a_long_loop_whose_states_differ_is_recorded_in_full():
    f = tj.jit(growing, strict=True)
    for seed in range(3):
        x = np.random.default_rng(seed).standard_normal(4)
        np.testing.assert_allclose(f(x), growing(x), rtol=1e-12)
    assert f.cache_info()[:2] == (1, 2)
    assert int(re.search(r"became (\d+) kernels", f.explain())[1]) < 9


def raising(x):
    """Each kind of error, or none."""
    total = 0.0
    for k in range(len(x)):
        a = float(x[k])
        if a > 90:
            total += math.exp(a)
        elif a > 80:
            total += (a - 85.0) ** -2
        elif a > 70:
            total += a % (a - 75.0)
        elif a > 60:
            total += math.log(65.0 - a)
        total += a**2
    return total


def outcome(function, x):
    try:
        return function(x)
    except (ArithmeticError, ValueError) as error:
        return type(error), str(error)


def test_errors_are_those_of_python():
    f = tj.jit(raising)
    plain = np.linspace(-3, 3, 30)
    for special in (0.5, 100.0, 1e3, 85.0, 86.0, 75.0, 74.0, 65.0, 64.0, 66.0, 1e160, 0.5):
        x = plain.copy()
        x[17] = special
        assert outcome(f, tj.asarray(x)) == outcome(raising, x), special


@pytest.mark.parametrize("name", sorted(C_FUNCTIONS))
def test_functions(name):
    """The functions agree in this process; the scalar function and the operator compute what Python does."""
    assert c_functions.agrees(name)
    op, python = C_FUNCTIONS[name], getattr(math, name)
    x = np.array([0.1, 0.5, 0.9])
    operands = [x] * (1 if name in c_functions.UNARY else 2)
    if name == "acosh":
        operands = [x + 1]
    expected = [python(*each) for each in zip(*operands, strict=True)]
    assert op.evaluate(*operands).tolist() == expected
    assert [FUNCTIONS[op.kernel].on_scalars(*each) for each in zip(*operands, strict=True)] == expected


def test_a_function_that_differs_is_not_used(monkeypatch):
    monkeypatch.setattr(c_functions, "agrees", lambda name: name != "exp")
    f = tj.jit(annealed)
    for seed in range(4):
        x = np.random.default_rng(seed).standard_normal(40)
        assert f(tj.asarray(x)) == annealed(x)
    assert "numbers are computed by exp" in f.explain()
