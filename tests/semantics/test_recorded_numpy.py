"""Traced bodies written with NumPy: arrays that NumPy makes are recorded where recorded values go into them.

Every program runs on NumPy arrays first; then traced, with recording and two replays (or piecewise calls) on
changed inputs, and must give the same numbers, shapes and dtypes.
"""

import math
import re
import threading

import numpy as np
import pytest
from numpy import zeros

import tracejit as tj
from tests.frontend.samples import same_tree
from tracejit.errors import ReplayError


def rows(x):
    out = np.zeros((3, x.shape[0]))
    for i in range(3):
        out[i] = x * i
    return out


def by_name(x):
    total = zeros(x.shape[0])
    total += x
    return total


def by_closure():
    numpy = np

    def body(x):
        out = numpy.empty_like(x)
        out[::2] = x[::2]
        out[1::2] = numpy.full(2, 0.5)
        return out

    return body


def grid(x):
    table = np.arange(4) * np.eye(4, dtype=np.int64)
    steps = np.linspace(0, 1, 4)
    out = np.ones((4, 4), dtype=np.float32)
    out[1] = x
    out[2] = steps + np.diag(table)
    return out, np.array([x[0], 1.0]), np.zeros_like(out)


def helper(x):
    return rows(x) + rows(x + 1)


def swapped(x):
    out = np.zeros(4)
    out[:] = x
    first = out[0]
    out[0] = out[3]
    out[3] = first
    return out


def filled_by_ufunc(x):
    out = np.empty(4)
    np.multiply(x, 2, out=out)
    return out


def counts(x):
    """An element is changed in place and stored at once."""
    out = np.zeros(4)
    for k in range(4):
        out[k // 2] += x[k]
    return out


def number_changes(x):
    out = np.zeros(4)
    out[:] = x
    total = out.sum()
    before = total
    total += 1
    return before, total


def sums(x):
    """Numbers are kept while the variable goes on; the caller's number does not change."""
    out, kept, total = np.zeros(4), [], x[0]

    def more(value):
        value *= 2
        return value

    for k in range(4):
        total += x[k]
        kept.append(total)
        out[k] = more(total) - total
    return out, kept


def best_of(x):
    """A loop with looks that keeps the best number."""
    out, error = np.zeros(2), np.sum(x * x)
    best = error
    for k in range(4):
        error -= x[k] * (k - 1)
        if error < best:
            best = error
    out[0], out[1] = best, error
    return out


def steps(x):
    """An adaptive step: the times are kept in an array."""
    times, t, h = np.zeros(8), x[0] * 0, x[1] + 0.25
    for k in range(8):
        t += h
        if t > 1.0:
            h *= 0.5
        times[k] = t
    return times


@pytest.mark.parametrize(
    "program",
    [
        rows,
        by_name,
        by_closure(),
        grid,
        helper,
        swapped,
        filled_by_ufunc,
        counts,
        number_changes,
        sums,
        best_of,
        steps,
    ],
)
def test_the_body_is_replayed(program):
    traced = tj.jit(program, strict=True)
    for i in range(3):
        x = np.linspace(i, i + 1, 4)
        same_tree(traced(tj.asarray(x)), program(x))
    assert traced.cache_info()[:2] == (1, 2)
    assert np.zeros is zeros
    assert type(np.zeros(2)) is np.ndarray


def branches_on_what_it_stored(x):
    out = np.zeros(4)
    out[:] = x
    if out.sum() > 3:
        out[0] = max(out[0], out[3])
    out[1] = out[int(out[2])] + float(out[3])
    for k in range(int(out[2]), 4):
        out[k] = out[k] * 2
    return out


def test_a_look_at_what_is_recorded_replays():
    traced = tj.jit(branches_on_what_it_stored, strict=True)
    for i in (0, 1, 0, 1, 0):
        x = np.linspace(i, i + 1, 4)
        same_tree(traced(tj.asarray(x)), branches_on_what_it_stored(x))
    assert traced.cache_info().replays == 3


def asks_for_the_class(x):
    out = np.zeros(4)
    out[:] = x
    return out if isinstance(out, np.ndarray) else 0


def asks_a_number(x):
    out = np.zeros(4)
    out[:] = x
    return 1 if np.isscalar(out[0]) else 0


def gives_bytes(x):
    out = np.zeros(4)
    out[:] = x
    return out.tobytes()


def handles_the_error(x):
    out = np.zeros(4)
    out[:] = x
    try:
        return out.tobytes()
    except AttributeError:
        return b""


def array_changes(x):
    out = np.zeros(4)
    out[:] = x
    total = np.array(out.sum())
    before = total
    total += 1
    return before, total


def number_is_weak(x):
    out = np.zeros(4)
    out[:] = x
    return out[1] * x.astype(np.float32)


def returns_its_operand(x):
    out = np.zeros(4)
    out[:] = x
    same = np.asarray(out)
    same[0] = 5
    return out


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        (asks_for_the_class, r"isinstance\(\) may distinguish"),
        (asks_a_number, r"isscalar\(\) may distinguish"),
        (gives_bytes, r"tobytes\(\) looks at the value"),
        (handles_the_error, "handles_the_error, which handles errors"),
        (array_changes, "in-place add changes an array without dimensions"),
        (number_is_weak, "multiply: a float64 number widens"),
        (returns_its_operand, "__array__ looks at the value"),
    ],
)
def test_what_could_tell_runs_piecewise_and_right(program, reason):
    traced = tj.jit(program)
    for i in range(3):
        x = np.linspace(i, i + 1, 4)
        result = traced(tj.asarray(x))
        expected = program(x)
        if program is number_is_weak:  # in NumPy it is not
            expected = np.float32(x[1]) * x.astype(np.float32)
        if isinstance(result, bytes):
            assert result == expected
        else:
            same_tree(result, expected)
    assert traced.cache_info().replays == 0
    assert re.search(f"runs piecewise: {reason}", traced.explain()), traced.explain()


def test_constants_stay_constants():
    """Nothing is recorded that NumPy computes by itself: `if`, `range` and indices take its numbers."""

    @tj.jit(strict=True)
    def step(x):
        table = np.arange(4) ** 2
        total = x * 0
        for k in table[table < 5]:
            if k > 0:
                total += x[int(k) - 1]
        return total

    x = np.linspace(0, 1, 4)
    for _ in range(2):
        same_tree(step(tj.asarray(x)), np.full(4, x[0] + x[3]))


def test_an_array_from_outside_is_written_piecewise():
    target = np.zeros(3)

    @tj.jit
    def step(x):
        np.add(x, 1, out=target)

    for i in range(3):
        step(tj.full(3, float(i)))
        assert target.tolist() == [i + 1] * 3
    assert "numpy.add writes into a NumPy array" in step.explain()
    with pytest.raises(ReplayError, match=r"numpy.add writes into a NumPy array(?s:.*)test_recorded_numpy"):
        tj.jit(step.__wrapped__, strict=True)(tj.ones(3))


def test_an_error_of_the_body_is_its_own():
    @tj.jit
    def step(x):
        out = np.zeros(4)
        out[:] = x
        return out[{}]

    with pytest.raises(IndexError, match="only integers"):
        step(tj.ones(4))
    assert type(np.zeros(2)) is np.ndarray


def test_other_threads_find_numpy_meanwhile():
    found = []

    def elsewhere():
        found.append((type(np.zeros(2)), type(zeros(2)), np.float32))

    def called():
        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()

    run = tj.pure(called)

    @tj.jit
    def step(x):
        out = np.zeros(4)
        out[:] = x
        run()
        return out + zeros(4)

    step(tj.ones(4))
    assert len(found) >= 1
    assert set(found) == {(np.ndarray, np.ndarray, np.float32)}


def crossings(p, a, b):
    """Two names for one element, which in-place operators rebind."""
    fast = slow = p[0]
    position, gain = 0, 0.0
    for i in range(1, len(p)):
        if position:
            gain += p[i] - p[i - 1]
        fast += a * (p[i] - fast)
        slow += b * (p[i] - slow)
        position = 1 if fast > slow else 0
    return gain, fast, slow


def test_elements_of_numpy_arguments_are_numbers():
    f = tj.jit(crossings, strict=True)
    for seed in range(4):
        p = np.cumsum(np.random.default_rng(seed).standard_normal(60))
        np.testing.assert_allclose(f(p, 0.2, 0.05), crossings(p, 0.2, 0.05), rtol=1e-12)
    assert f.cache_info().replays >= 1


# ---- bodies that are given numbers only


def epidemic(beta, gamma, n, dt):
    s, i, r = np.zeros(n), np.zeros(n), np.zeros(n)
    s[0], i[0] = 0.99, 0.01
    for t in range(n - 1):
        infected, recovered = beta * s[t] * i[t] * dt, gamma * i[t] * dt
        s[t + 1] = s[t] - infected
        i[t + 1] = i[t] + infected - recovered
        r[t + 1] = r[t] + recovered
    return s, i, r


def orbit(sigma, rho, beta, n, dt):
    out = np.zeros((n, 3))
    x, y, z = 1.0, 1.0, 1.0
    for i in range(n):
        dx, dy, dz = sigma * (y - x), x * (rho - z) - y, x * y - beta * z
        x += dx * dt
        y += dy * dt
        z += dz * dt
        out[i, 0], out[i, 1], out[i, 2] = x, y, z
    return out


def decay(rate, amount, n, dt):
    times = np.linspace(0.0, n * dt, n)
    level = np.array([amount, 0.0])
    for _ in range(n):
        level = level + dt * np.array([-rate * level[0], rate * level[0] * math.exp(-dt)])
    return amount * np.exp(-rate * times), level


@pytest.mark.parametrize("body", [epidemic, orbit, decay])
def test_bodies_of_floats_are_recorded_once(body):
    traced = tj.jit(body, strict=True)
    rng = np.random.default_rng(0)
    for _ in range(5):
        floats = rng.uniform(0.1, 1.0, 4 if body is orbit else 3)
        given = (*floats[:-1].tolist(), 60, float(floats[-1]) / 50)
        found, expected = traced(*given), body(*given)
        several = isinstance(expected, tuple)
        pairs = zip(found, expected, strict=True) if several else [(found, expected)]
        for ours, theirs in pairs:
            assert isinstance(ours, tj.NDArray)
            assert ours.dtype == theirs.dtype
            np.testing.assert_allclose(ours.numpy(), theirs, rtol=1e-13)
    assert traced.cache_info().traces == 1


def test_a_float_that_other_code_needs_is_guarded_all_the_same():
    def body(scale, n):
        table = np.zeros(n)
        table[0] = scale
        return table, f"{scale:.2f}"

    traced = tj.jit(body)
    for scale in (0.5, 0.5, 0.25, 0.5):
        table, text = traced(scale, 3)
        assert (np.asarray(table).tolist(), text) == ([scale, 0, 0], f"{scale:.2f}")


def with_types(x, rate):
    if isinstance(rate, int):
        rate = float(rate)
    return x * rate + np.linspace(0.0, 1.0, 3).sum(), f"{rate:.2f}"


def with_handlers(x, rate):
    steps = np.arange(3.0)
    try:
        text = f"{rate:.2f}"
    except ValueError:
        text = ""
    return x * rate, steps, text


def with_wider_numbers(x, rate):
    steps = np.linspace(0.0, 1.0, 3)
    return x * rate + steps.sum(), steps, f"{rate:.2f}"


@pytest.mark.parametrize("body", [with_types, with_handlers, with_wider_numbers])
def test_recorded_arrays_that_spare_no_guard_are_not_used(body):
    traced, x = tj.jit(body, strict=True), np.arange(3, dtype="float32")
    for rate in (0.5, 0.5, 0.25, 0.5):
        for found, expected in zip(traced(tj.asarray(x), rate), body(x, rate), strict=True):
            if isinstance(expected, str):
                assert found == expected
            else:
                np.testing.assert_allclose(np.asarray(found), expected, rtol=1e-6)
    assert traced.cache_info()[:2] == (2, 2)
