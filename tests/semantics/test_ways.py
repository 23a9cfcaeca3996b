"""Loops whose rounds look more than once: branches and loops in a round. Any number of rounds, in any order
of the branches that were met, replays; results, random numbers and arguments are those of the body itself.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

import tracejit as tj
from tests.semantics.test_tree import bits
from tests.thorough import some
from tracejit.frontend.recording import segments


def outcome(function, given):
    """The result of a call, its arguments after it, and the next random number; or its error."""
    given = [each.copy() if isinstance(each, tj.NDArray) else each for each in given]
    try:
        found = bits(function(*given)), bits(given)
    except (ArithmeticError, ValueError) as error:
        found = type(error).__name__, str(error)
    return found, bits(tj.random.uniform(shape=1))


def outcomes(function, calls):
    tj.random.seed(7)
    return [outcome(function, given) for given in calls]


def vector(*values):
    return tj.asarray(np.array(values))


def gradient_descent(x, t0, tol):
    """A line search that halves the step."""
    rounds = 0
    while True:
        slope = 4.0 * x * abs(x)
        if float(abs(slope).max()) < tol:
            break
        t = t0
        while float(abs(x - t * slope).sum()) > float(abs(x).sum() - 0.1 * t * abs(slope).sum()):
            t *= 0.5
        x = x - t * slope
        rounds += 1
        if rounds > 60:
            return x, "slow"
    return x, rounds


def newton_with_damping(x, scale, tol):
    residual = abs(x * x * x - scale)
    while residual.max() > tol:
        step = (x * x * x - scale) / (3.0 * x * x)
        damping = 1.0
        while damping > 1e-3:
            y = x - damping * step
            new = abs(y * y * y - scale)
            if new.max() < residual.max():
                break
            damping *= 0.5
        x, residual = y, new
    return x


def adaptive_steps(x, end, tol):
    t, h, accepted, refused = 0.0, 0.25, 0, 0
    while t < end:
        h = min(h, end - t)
        k = tj.sin(x) - x
        y = x + h * k
        error = float(abs(h * (tj.sin(y) - y - k)).max())
        if error < tol:
            t, x = t + h, y
            accepted += 1
        else:
            refused += 1
        h = h * min(2.0, max(0.3, 0.9 * math.sqrt(tol / (error + 1e-15))))
    return x, accepted, refused


def metropolis(x, rounds, temperature):
    energy, accepted = float(abs(x).sum()), 0
    for _ in range(rounds):
        y = x + tj.random.normal(shape=3, dtype="float64")
        new = float(abs(y).sum())
        if new < energy or float(tj.random.uniform()) < math.exp((energy - new) / temperature):
            x, energy = y, new
            accepted += 1
    return x, energy, accepted


def bisection(c, high, tol):
    low, rounds = 0.0, 0
    while high - low > tol:
        middle = 0.5 * (low + high)
        if tj.exp(-middle * c).sum() > 1.0:
            low = middle
        else:
            high = middle
        rounds += 1
    return low, rounds


def early_stopping(x, patience, tol):
    best, at, bad, kept = math.inf, 0, 0, x
    for i in range(200):
        x = x * 0.9 + 0.3 * tj.cos(x * 3.0)
        loss = float(abs(x - 0.4).sum())
        if loss < best - tol:
            best, at, bad, kept = loss, i, 0, x
        else:
            bad += 1
            if bad >= patience:
                break
    return kept, best, at, x


def power_iteration(x, limit, tol):
    norm, rounds = 0.0, 0
    while True:
        y = tj.stack([2.0 * x[0] + x[1], x[0] + 3.0 * x[1], x[2] * 0.5])
        new = float(abs(y).max())
        if new > limit:
            return "diverges", rounds
        x = y / new
        if abs(new - norm) < tol:
            return x, new, rounds
        norm, rounds = new, rounds + 1


def clusters(x, start, tol):
    """Centres of which one may have no points. The elements are integers: fused sums may add them in another
    order.
    """
    a, b = tj.asarray(float(start)), tj.asarray(float(start) + 0.5)
    moved = math.inf
    while moved > tol:
        near = abs(x - a) < abs(x - b)
        count = near.sum()
        if count == 0 or count == x.size:
            a, b = x.min(), x.max()
            continue
        new_a = tj.where(near, x, 0.0).sum() / count
        new_b = tj.where(near, 0.0, x).sum() / (x.size - count)
        moved = float(abs(new_a - a) + abs(new_b - b))
        a, b = new_a, new_b
    return a, b


def rollouts(x, limit, gamma):
    total, weight, steps = 0.0, 1.0, 0
    for _ in range(3):
        state = x
        for _ in range(30):
            state = state * 1.1 + 0.05
            reward = float(state.sum())
            total += weight * reward
            weight *= gamma
            steps += 1
            if reward > limit:
                break
        x = x * 0.5
    return total, steps, x


def in_place(x, n, tol):
    x *= 1.0
    while float(x.max()) > tol:
        if float(x.min()) > 0.5:
            x -= 0.25
        else:
            x *= 0.75
    return x.sum()


def swapped(x, n, tol):
    """The arrays of the state change places."""
    a, b = x * 1.0, x * 0.5
    while float(a.max()) > tol:
        if float(b.sum()) > n:
            a, b = b, a * 0.5
        else:
            a, b = b * 0.75, a
    return a, b


def helper(x):
    return x.sum().item()


def looks_elsewhere(x, n, tol):
    """The state at a look of a function that the body calls is hidden."""
    rounds = 0
    while float(x.max()) > tol:
        x = x * (0.5 if helper(x) > n else 0.75)
        rounds += 1
    return x, rounds


def raises(x, n, tol):
    rounds = 0
    while float(x.max()) > tol:
        x = x * (0.5 if float(x.sum()) > 1.0 else 0.75) + 0.0 / (rounds - n)
        rounds += 1
    return x, rounds


A = [vector(0.9, -0.4, 0.2), vector(2.0, 3.0, 0.7), vector(0.3, 0.2, -0.1), vector(1.5, -2.5, 3.5)]
P = [vector(0.9, 0.4, 0.2), vector(2.0, 3.0, 0.7), vector(0.3, 0.2, 0.1), vector(1.5, 2.5, 3.5)]
PROGRAMS = [
    (gradient_descent, A, (1.0, 0.5, 0.3), (1e-2, 1e-4, 1e-3), 8),
    (newton_with_damping, P, (2.0, 9.0, 30.0), (1e-2, 1e-9, 1e-5), 8),
    (adaptive_steps, A, (1.0, 2.5, 4.0), (1e-2, 1e-3, 3e-3), 14),
    (metropolis, A, (3, 40, 17), (0.5, 1.0, 2.0), 24),
    (bisection, P, (4.0, 9.0, 30.0), (1e-2, 1e-6, 1e-4), 8),
    (early_stopping, A, (2, 4, 3), (1e-2, 1e-4, 1e-3), 14),
    (power_iteration, P, (9.0, 4.5, 30.0), (1e-2, 1e-9, 1e-5), 8),
    (clusters, [tj.rint(tj.concatenate([p, p * 3.0]) * 8) for p in P], (0.0, 1.0, 9.0), (1e-2, 1e-9), 12),
    (rollouts, P, (6.0, 3.0, 40.0), (0.9, 0.99), 14),
    (in_place, P, (0,), (0.3, 0.01, 0.1), 8),
    (swapped, P, (1.0, 2.0, 0.3), (0.3, 0.01, 0.1), 10),
    (looks_elsewhere, P, (1.0, 2.0, 0.3), (0.3, 0.01, 0.1), 8),
    (raises, P, (3, 50, 6), (0.3, 0.01), 24),
]


@pytest.mark.parametrize(("step", "arrays", "first", "second", "traces"), some(PROGRAMS, 7, unpack=True))
def test_programs(step, arrays, first, second, traces):
    calls = [(x, a, b) for b in second for x in arrays for a in first]
    f = tj.jit(step, strict=True)
    assert outcomes(f, calls) == outcomes(step, calls)
    seen = f.cache_info().traces
    assert seen <= traces, f.explain()
    if step is not raises and step is not metropolis:
        assert outcomes(f, calls[::-1]) == outcomes(step, calls[::-1])
        assert f.cache_info().traces == seen
        assert "while True" in max((path.text for path in f._entries[0].paths), key=len)


def test_few_rounds_are_recorded(monkeypatch):
    found, find = [], segments.Segments.find
    monkeypatch.setattr(segments.Segments, "find", lambda *a: found.append(1) or find(*a))

    def body(x, k):
        up = down = 0
        while float(abs(x).max()) < 1e6:
            if float(x.sum()) > k:
                x = x * -1.01
                up += 1
            else:
                x = 0.5 - x * 1.03
                down += 1
        return x, up, down

    f = tj.jit(body, strict=True)
    x = vector(0.5, 0.25, 0.75)
    assert bits(f(x, 2.0)) == bits(body(x, 2.0))
    up, down = body(x, 2.0)[1:]
    assert up + down > 300
    assert len(found) < 40
    assert f.cache_info().traces == 1


def test_random_numbers_of_rounds_that_run_ahead(monkeypatch):
    """Those after the last time in the state are drawn again."""
    f = tj.jit(metropolis, strict=True)
    calls = [(A[0], rounds, 1.0) for rounds in (300, 1, 2, 5, 300, 50)]
    assert outcomes(f, calls) == outcomes(metropolis, calls)
    assert f.cache_info().traces <= 6


def test_rounds_with_branches_are_one_launch_unless_they_change_large_arrays():
    for body, arguments in ((bisection, (P[0], 9.0, 1e-3)), (gradient_descent, (A[0], 1.0, 1e-4))):
        f = tj.jit(body, strict=True)
        f(*arguments)
        assert "are a launch each" not in f.explain()

    def halved(x, y):
        while float(x.sum()) > 1.0:
            if float(x[0]) > 0.5:
                y = y * 0.5
            x = x * 0.75
        return y

    f = tj.jit(halved, strict=True)
    f(tj.ones(3), tj.ones(5000))
    assert "are a launch each: iterations have branches, and change large arrays" in f.explain()


def test_threads_replay_loops():
    import threading

    f, wrong = tj.jit(early_stopping, strict=True), []
    wanted = {k: outcome(early_stopping, (A[k], 3, 1e-3))[0] for k in range(4)}

    def work():
        for i in range(40):
            found = outcome(f, (A[i % 4], 3, 1e-3))[0]
            if found != wanted[i % 4]:
                wrong.append((i, found, wanted[i % 4]))

    threads = [threading.Thread(target=work) for _ in range(3)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert not wrong, wrong
