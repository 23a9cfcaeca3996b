"""Counters of loops with looks: a count of rounds that was never met before records nothing."""

import math
import sys

import numpy as np
import pytest

import tracejit as tj
from tests.semantics.test_tree import bits
from tracejit.frontend.python.bytecode import instructions
from tracejit.frontend.python.stack import names_on_stack


def outcomes(function, calls):
    """Results and errors of some calls, and random numbers after them."""
    tj.random.seed(11)
    found = []
    for i in range(calls):
        x = tj.asarray(np.array([2.0, 3.0, 5.0], np.float32) * (1.0 + i % 11))
        try:
            found.append(bits(function(x, 30 + i % 7, 1.0 + i % 5)))
        except (ZeroDivisionError, IndexError, ValueError) as error:
            found.append((type(error).__name__, str(error)))
        found.append(bits(tj.random.uniform(shape=1)))
    return found


def same(step, calls=55, traces=None):
    """The traced function does what the body does; it is recorded at most `traces` times."""
    f = tj.jit(step, strict=True)
    assert outcomes(step, calls) == outcomes(f, calls)
    again = f.cache_info().traces
    assert outcomes(step, calls) == outcomes(f, calls)
    if traces is not None:
        assert f.cache_info().traces == again <= traces, f.explain()
    return f


def counts(x, n, k):
    rounds = 0
    while x.max() > k:
        x = x * 0.75
        rounds += 1
    return x, rounds


def both_ends(x, n, k):
    rounds = 0
    while rounds < n:
        x = x * 0.9
        rounds = rounds + 1
        if float(x.sum()) < k:
            break
    return x, rounds


def breaks(x, n, k):
    for i in range(100):  # noqa: B007
        x = x * 0.9 + 0.01
        if x.max() < k:
            break
    return x, i


def falls_through(x, n, k):
    for i in range(n):
        if x.max() < 0.1 * k:
            return "small", x, i
        x = x * 0.9
    else:
        x = x - 1
    return x, i


def backwards(x, n, k):
    seen = 0.0
    for i in range(n, 3, -2):
        x = x * 0.8
        if float(x.min()) < k:
            continue
        seen = seen + i
    return x, seen


def uses_the_variable(x, n, k):
    for i in range(1, 200):
        x = x - x / (1 + i)
        if x.max() * i < 6.0 * k:
            break
    return x * i, i / 2, float(i)


def steps_of_time(x, n, k):
    t, h = 0.0, 0.3
    while t < k:
        x = x + h * tj.sin(x)
        if h > 0.05 and float(x.max()) > 3.0:
            h = h * 0.5
        t += h
    return x, t


def two_counters(x, n, k):
    good = bad = 0
    while good < 5 and bad < 7:
        if x.sum() > 6 * k:
            x = x * 0.7
            good += 1
        else:
            x = x + 1
            bad += 1
    return x, good, bad


def in_a_loop(x, n, k):
    total = 0
    for outer in range(3):
        inner = 0
        while x.max() > k + outer:
            x = x * 0.8
            inner += 1
        total += inner
        x = x * 3
    return x, total


def after_a_loop(x, n, k):
    count = 0
    for _ in range(50):
        x = x * 0.8
        if x.max() < k:
            break
    while x.max() < 2 * k:
        x = x * 1.5
        count += 1
    return x, count


def best_so_far(x, n, k):
    best, since, at = math.inf, 0, 0
    for i in range(60):
        x = x * 0.9 + 0.05 * tj.cos(x * 5)
        loss = float(tj.abs(x).sum())
        if loss < best - 0.01 * k:
            best, since, at = loss, 0, i
        else:
            since += 1
            if since >= 3:
                break
    return x, best, at, i


@pytest.mark.parametrize(
    ("step", "traces"),
    [
        (counts, 2),
        (both_ends, 4),
        (breaks, 3),
        (falls_through, 4),
        (uses_the_variable, 3),
        (after_a_loop, 8),
        (backwards, None),
        (steps_of_time, 40),
        (two_counters, None),
        (in_a_loop, None),
        (best_so_far, None),
    ],
)
def test_any_number_of_rounds(step, traces):
    same(step, traces=traces)


# -- bodies that ask for the value ---------------------------------------------------------------------------


def index(x, n, k):
    y = x
    for i in range(3):
        if y[i] > 2 * k:
            break
        y = y * 1.5
    return y, i


def of_a_list(x, n, k):
    rates, i = [0.5, 0.6, 0.7, 0.8], 0
    while x.max() > k and i < 4:
        x = x * rates[i]
        i += 1
    return x


def text(x, n, k):
    i = 0
    while x.max() > 2 * k and i < 5:
        i += 1
        x = x * 0.5
    return x, f"{i} rounds"


def out_of_range(x, n, k):
    i = 0
    while x.max() > k and i < 8:
        x = x + x[i]
        i += 1
    return x


def every_third(x, n, k):
    i = 0
    while x.max() > k and i < 10:
        i += 1
        x = x * (0.5 if i % 3 == 0 else 0.9)
    return x, i


def other_iterables(x, n, k):
    done = []
    for i in reversed(range(4)):
        x = x * 0.9
        if x.max() < k:
            done.append(i)
    for i, y in enumerate(range(3)):
        if x.max() > i + y:
            x = x - 0.1
    squares = [i * i for i in range(4) if x.max() > 0]
    return x, done, squares, len(range(n)), 7 in range(n), list(range(3))


@pytest.mark.parametrize("step", [index, of_a_list, text, out_of_range, every_third, other_iterables])
def test_bodies_that_ask_for_the_value(step):
    same(step)


def test_variables_of_functions_defined_inside():
    def step(x, n, k):
        i = 0

        def more():
            nonlocal i
            i += 1
            return i

        while x.max() > 4 * k and i < 9:
            more()
            x = x * 0.5
        return x, i

    f = tj.jit(step)
    assert outcomes(step, 30) == outcomes(f, 30)


def test_the_state_of_a_range_that_is_left_is_not_that_of_the_next():
    def step(x, n, k):
        rounds = 0
        while x.max() > k:
            for i in [1, 2] if rounds % 2 else range(3):
                x = x * (0.9 - 0.01 * i)
                if x.max() < 2 * k:
                    break
            rounds += 1
        return x, rounds

    same(step)


@pytest.mark.parametrize("bounds", [(True,), (2.5,), (1, 5, 0), ("3",)])
def test_bounds_are_pythons(bounds):
    def step(x):
        count = 0
        while x.max() > 1:
            x = x * 0.5
            count += 1
        for i in range(*bounds):
            x = x + i
        return x, count

    def outcome(function):
        try:
            return bits(function(tj.full(2, 9.0)))
        except (TypeError, ValueError) as error:
            return str(error)

    f = tj.jit(step)
    assert [outcome(f) for _ in range(3)] == [outcome(step)] * 3


def test_a_counter_shows_its_value_to_tracers():
    """Variables are changed where a debugger would; one that is attached sees the numbers."""
    seen = []

    def step(x):
        n = 0
        while x.max() > 1:
            x = x * 0.5
            n += 1
        return n

    def trace(frame, event, argument):
        if frame.f_code is step.__code__ and "n" in frame.f_locals:
            seen.append(frame.f_locals["n"])
        return trace

    f = tj.jit(step)
    outer = sys.gettrace()
    sys.settrace(trace)
    try:
        count = f(tj.full(2, 9.0))
    finally:
        sys.settrace(outer)
    assert (count, max(map(int, seen))) == (4, 4)


def loads_a_counter(x, n, k):
    """The counter is loaded before the look in its expression."""
    rounds = total = 0
    while rounds < 3:
        total = total + (7 if x[rounds] > k else 1)
        rounds += 1
    return total, rounds


def asks_a_counter(x, n, k):
    """The operand of the test is computed from the counter."""
    odd, rounds = 3, 0
    for value in x:
        if (odd & 3) + value > k:
            odd = (odd >> 1) ^ 5
        else:
            odd += 1
        rounds += 1
    return odd, rounds


@pytest.mark.parametrize("step", [loads_a_counter, asks_a_counter])
def test_counters_in_expressions_with_looks(step):
    same(step)


def test_the_operand_of_a_test_is_no_longer_on_the_stack():
    def names(step):
        code = step.__code__
        tests = (i.offset for i in instructions(code) if i.opname.startswith("POP_JUMP"))
        return [set(names_on_stack(code, offset)) for offset in tests]

    assert names(asks_a_counter) == [{"x"}]  # the iterator
    assert any("total" in each for each in names(loads_a_counter))


def repeats(x, n, k):
    """The trip count of the inner loop is an argument."""
    total = x * 0
    for value in x:
        y = value
        for j in range(n - 27):
            y = y * 0.5 + j
        if y > k:
            total = total + y
    return total


def test_trip_counts_from_arguments():
    """They are required at first. When they vary, no trip count is recorded again."""
    f = tj.jit(repeats, strict=True)
    x = tj.asarray(np.array([2.0, 3.0, 5.0]))
    for k in (1.0, 3.0, 9.0):
        f(x, 30, k)
    until_look, _ = f._entries[0].paths[0].launches[0]
    assert [node.op.name for node in until_look.nodes].count("multiply") >= 3  # the inner loop has no looks
    for n in range(28, 40):
        for k in (1.0, 3.0, 9.0):
            assert bits(f(x, n, k)) == bits(repeats(x, n, k))
    traces = f.cache_info().traces
    for n in range(40, 60):
        for k in (1.0, 3.0, 9.0):
            assert bits(f(x, n, k)) == bits(repeats(x, n, k))
    assert f.cache_info().traces == traces


def test_a_trip_count_that_varies_is_not_required_again():
    same(repeats, calls=110)


def last_positive(x, y):
    total, last = x[0] * 0, -1
    for i, v in enumerate(x):
        if v > 0:
            total = total + v * i
            last = i
    return total, last


def pairs(x, y):
    """The shorter array ends the loop."""
    count, total = 0, x[0] * 0
    for a, b in zip(x, y[:7]):  # noqa: B905
        if a > b:
            count += 1
        elif a + b > 0:
            total = total + b
    return count, total


def rows_from_five(x, y):
    count = 0
    for i, row in enumerate(x.reshape(4, 2), 5):
        if row[0] > row[1]:
            count += i
        elif row[0] + row[1] > 1:
            break
    return count, i


def nested(x, y):
    found = 0
    for i, a in enumerate(x):
        for b, c in zip(y, x):  # noqa: B905
            if a * b > 1 and i > 2:
                found += 1
            if c > 1.5:
                break
    return found


def enumerated_pairs(x, y):
    total, last = x[0] * 0, 0
    for i, (a, b) in enumerate(zip(x, y[:7]), 2):  # noqa: B905
        if a > b:
            total = total + a * i
            last = i
        else:
            total = total - b * last
    return total, last, list(zip(x, y))[3], sum(1 for _ in enumerate(zip(y, x)))  # noqa: B905


def of_other_things(x, y):
    """Python's own `enumerate` and `zip`."""
    names = [name for _, name in zip(range(3), "abcdef")]  # noqa: B905
    pairs = list(zip(x, y))  # noqa: B905
    total = sum(k * value for k, value in enumerate([1, 2, 3]))
    return len(pairs), names, total, [float(a) for a, _ in pairs] if x[0] > 0 else None


@pytest.mark.parametrize(
    "step", [last_positive, pairs, rows_from_five, nested, enumerated_pairs, of_other_things]
)
def test_enumerate_and_zip(step):
    traced = tj.jit(step)
    for seed in range(24):
        rng = np.random.default_rng(seed)
        x, y = rng.integers(-8, 9, 8) / 4, rng.integers(-8, 9, 8) / 4
        assert bits(traced(tj.asarray(x), tj.asarray(y))) == bits(step(tj.asarray(x), tj.asarray(y)))
    if step is not of_other_things:
        assert traced.cache_info().replays >= 12, traced.explain()
