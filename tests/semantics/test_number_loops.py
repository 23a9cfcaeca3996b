"""Loops that compute with numbers only, in bodies that look: against the same function on NumPy's arrays."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracejit as tj
from tests.semantics.test_serial_loops import arrays_of, copies, count_primes, run, traced_copies
from tracejit.frontend.recording.look_loops import run_ahead


def digits(d, sums):
    for k in range(len(d)):
        n, total = int(d[k]), 0
        while n:
            n, digit = divmod(n, 10)
            total += digit
        sums[k] = total


def square_roots(x, roots):
    for k in range(len(x)):
        a = float(x[k])
        r = a if a > 1.0 else 1.0
        while abs(r * r - a) > 1e-12 * a:
            r = (r + a / r) / 2.0
        roots[k] = r


def escapes(re, im, steps):
    for k in range(len(re)):
        x = y = 0.0
        a, b, n = float(re[k]), float(im[k]), 0
        while x * x + y * y < 4.0 and n < 40:
            x, y = x * x - y * y + a, 2.0 * x * y + b
            n += 1
        steps[k] = n


def chained(d):
    found = 0
    for k in range(len(d)):
        n = int(d[k])
        while 3 < n < 1000:
            n = n * 3 // 2
            found += n % 7
        found -= 1
    return found


def euclid(a, b):
    while b != 0:
        a, b = b, a % b
    return a


def fractions(p, q, out):
    for k in range(len(p)):
        out[k] = euclid(int(p[k]), int(q[k]))


def with_a_break(d):
    longest = 0
    for k in range(len(d)):
        n, steps = int(d[k]), 0
        while True:
            if n <= 1:
                break
            n = n // 2 if n % 2 == 0 else 3 * n + 1
            steps += 1
            if steps > 100:
                break
        longest = max(longest, steps)
    return longest


def kept_answers(d):
    answers = 0
    for k in range(len(d)):
        n, parity = int(d[k]), 0
        while n > 0:
            is_odd = n % 2 == 1
            n //= 2
            parity = parity ^ 1 if is_odd else parity
        answers = answers * 2 % 1001 + parity
    return answers


def in_c_code(d):
    total = 0
    for k in range(len(d)):
        n = int(d[k])
        while n > 2:
            n -= 3
            total += sorted([n, 5, total % 4])[0] + min(n, 7)
        total += any(v > n for v in (1, 2))
    return total


def of_several(d):
    n, m = int(d[0]), int(d[1])
    while n < 2000:
        n += m + 1
        while m > 3:
            m -= 2
            n += 1
        m = n % 13
    return n, m


def integers(high: int, count: int = 30) -> Callable[[Any], tuple[Any, ...]]:
    return lambda rng: (rng.integers(0, high, count),)


PROGRAMS: dict[str, tuple[Any, Any]] = {
    "primes": (count_primes, integers(400)),
    "digits": (digits, lambda r: (r.integers(0, 10**9, 30), np.zeros(30, "int64"))),
    "square roots": (square_roots, lambda r: (r.random(30) * 50, np.zeros(30))),
    "escapes": (escapes, lambda r: (r.random(30) * 3 - 2, r.random(30) * 2 - 1, np.zeros(30, "int32"))),
    "chained": (chained, integers(50)),
    "fractions": (fractions, lambda r: (*r.integers(0, 10**6, (2, 30)), np.zeros(30, "int64"))),
    "with a break": (with_a_break, integers(90)),
    "kept answers": (kept_answers, integers(5000)),
    "in C code": (in_c_code, integers(20, 6)),
    "of several": (of_several, integers(40, 2)),
}
AT_ONCE = ("primes", "digits", "chained", "of several")
"""Those whose first call also runs its loops at once."""


@pytest.mark.parametrize(
    ("name", "patience"),
    [*((name, run_ahead.PATIENCE) for name in PROGRAMS), *((name, 0.0) for name in AT_ONCE)],
)
def test_programs(name, patience, monkeypatch):
    monkeypatch.setattr(run_ahead, "PATIENCE", patience)
    function, arguments = PROGRAMS[name]
    traced, rng = tj.jit(function), np.random.default_rng(3)
    for _ in range(6):
        numpys = arguments(rng)
        ours = traced_copies(numpys)
        assert run(traced, ours) == run(function, numpys), traced.explain()
        assert arrays_of(ours) == arrays_of(numpys), traced.explain()


@pytest.mark.parametrize("name", ["primes", "digits", "square roots", "escapes", "fractions"])
def test_most_calls_replay(name):
    function, arguments = PROGRAMS[name]
    traced, rng = tj.jit(function), np.random.default_rng(4)
    for _ in range(24):
        traced(*traced_copies(arguments(rng)))
    assert traced.cache_info().replays >= 12, traced.explain()


def test_iterations_are_one_launch():
    traced = tj.jit(digits)
    for numbers in ([907, 13, 4], [10**9, 1, 55]):
        d, sums = tj.asarray(numbers), tj.zeros(3, dtype="int64")
        traced(d, sums)
        assert sums.numpy().tolist() == [sum(map(int, str(n))) for n in numbers]
    assert "are one launch" in traced.explain()


def test_numbers_beyond_those_that_loops_compute():
    def f(d):
        n, steps = int(d[0]), 0
        while n > 1:
            n = n // 3
            steps += 1
        return steps

    traced = tj.jit(f)
    for first in (1 << 62, 5, (1 << 63) - 1, 3**20):
        arrays = copies([np.array([first])])
        assert traced(tj.asarray(arrays[0])) == f(arrays[0])


def test_a_body_that_does_not_look_is_recorded_as_it_was():
    @tj.jit
    def f(x, n):
        while n > 1:
            n = n // 2
        return x + n

    assert f(tj.ones(2), 37).tolist() == [2.0, 2.0]
    assert "look" not in f.explain()


def flood(blocked, queue, seen):
    """A breadth-first search. The states in the loop over a tuple are unknown, as its iterator is."""
    head, tail = 0, 1
    while head < tail:
        r, c = int(queue[head, 0]), int(queue[head, 1])
        head += 1
        for dr, dc in ((0, 1), (1, 0)):
            a, b = r + dr, c + dc
            if a < 0 or b < 0 or a >= 5 or b >= 5:
                continue
            if seen[a, b] > 0 or blocked[a, b] > 0:
                continue
            seen[a, b] = 1
            queue[tail, 0] = a
            queue[tail, 1] = b
            tail += 1
    return tail


def test_the_same_call_again_replays():
    traced, rng = tj.jit(flood), np.random.default_rng(0)
    grids = [np.asarray(rng.random((5, 5)) < 0.2, "int64") for _ in range(3)]
    for k in (0, 0, 0, 1, 2, 0, 1, 2):
        numpys = [grids[k], np.zeros((25, 2), "int64"), np.zeros((5, 5), "int64")]
        ours = traced_copies(numpys)
        assert run(traced, ours) == run(flood, numpys), traced.explain()
        assert arrays_of(ours) == arrays_of(numpys), traced.explain()
    assert traced.cache_info().replays >= 5, traced.explain()


def whole_parts(x, scale):
    """Floats as integers, and integers as operands of floats."""
    total, count = 0, 0
    for k in range(len(x)):
        f = float(x[k]) * scale
        j = int(f)
        total += 3 * j + math.floor(f) - math.ceil(f * 2) + math.trunc(f / 3)
        if math.sqrt(f * f) > 2.0:
            count += 1
        x[k] = x[k] * 0.5 + count
    return total, count


def test_floats_as_integers():
    f, rng = tj.jit(whole_parts), np.random.default_rng(0)
    for scale in (1.0, 10.0, 1e3, 1e15, 1e17, 3.0, 1e30, 0.5):
        x = rng.standard_normal(40)
        ours, numpys = tj.asarray(x), x.copy()
        assert f(ours, scale) == whole_parts(numpys, scale)
        np.testing.assert_array_equal(ours, numpys)
    assert "are one launch" in f.explain()
    for bad, error in ((np.nan, ValueError), (np.inf, OverflowError)):
        x[20] = bad
        with pytest.raises(error):
            f(tj.asarray(x), 1.0)


def distance(a, b):
    """The edit distance: NumPy's array is recorded only when a recorded value goes into it."""
    d = np.zeros((len(a) + 1, len(b) + 1), int)
    d[:, 0], d[0] = np.arange(len(a) + 1), np.arange(len(b) + 1)
    for i in range(1, len(a) + 1):
        for j in range(1, len(b) + 1):
            d[i, j] = min(d[i - 1, j] + 1, d[i, j - 1] + 1, d[i - 1, j - 1] + (a[i - 1] != b[j - 1]))
    return d


def test_what_is_learned_before_arrays_are_recorded_is_forgotten():
    f, rng = tj.jit(distance, strict=True), np.random.default_rng(1)
    for _ in range(4):
        a, b = rng.integers(0, 3, 40), rng.integers(0, 3, 45)
        np.testing.assert_array_equal(f(a, b), distance(a, b))
    assert f.cache_info()[:2] == (1, 3)
    assert "operations became" in f.explain()
    assert int(re.search(r"(\d+) operations became", f.explain())[1]) < 1000


def hashed(d):
    """FNV-1a: products of integers that the mask keeps small."""
    h = 2166136261
    for k in range(len(d)):
        h = ((h ^ int(d[k])) * 16777619) & 0xFFFFFFFF
    return h


def grown(d):
    """Integers beyond 64 bits."""
    t = 1
    for k in range(len(d)):
        t = t * (int(d[k]) + 1)
        if t > 10**30:
            t = t // 10**25
    return t


def weighted(d):
    """A product of two counters, neither of which has a known limit where it is computed."""
    total = 0
    for k in range(len(d)):
        for j in range(int(d[k]) % 5):
            total += j * k
    return total


@pytest.mark.parametrize("body", [hashed, grown, weighted])
def test_products_that_may_become_large(body):
    f, rng = tj.jit(body, strict=True), np.random.default_rng(3)
    for _ in range(6):
        d = rng.integers(0, 256, 60)
        assert f(tj.asarray(d)) == body(d.tolist())
    assert "are one launch" in f.explain()


def parts(x, n):
    """An argument whose exact value each iteration asks for."""
    total = 0
    for k in range(len(x)):
        if x[k] > 0:
            if n > 3:
                total += 1
            for j in range(n):
                total += j * k
        elif n > 2:
            total -= 1
    return total


def test_exact_values_in_iterations():
    f, rng = tj.jit(parts, strict=True), np.random.default_rng(2)
    for n in (5, 5, 3, 5, 2, 2, 0, 5, 3):
        x = rng.standard_normal(30)
        assert f(tj.asarray(x), n) == parts(x, n)
    assert "are a launch each" not in f.explain()
