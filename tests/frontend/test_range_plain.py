"""Loops over Python's `range` in bodies of many operations; a recording of all iterations is the oracle."""

import numpy as np
import pytest

import tracejit as tj
from tracejit import config
from tracejit.frontend.jit import record
from tracejit.frontend.recording import trace
from tracejit.frontend.recording.ranges import builtin_range
from tracejit.ops.loops import loop


def sweeps(a, x, n):
    for _ in range(n):
        for i in range(1, 19):
            a[i, 1:19] += a[i - 1, :18] + a[i + 1, 2:20]
            for j in range(1, 19):
                a[i, j] += a[i, j - 1]
                a[i, j] /= 3.0
    return a


def solves(a, x, n):
    for i in range(20):
        for j in range(i):
            a[i, j] -= a[i, :j] @ a[:j, j]
            a[i, j] /= 4.0
        for j in range(i, 20):
            a[i, j] -= a[i, :i] @ a[:i, j]
    for i in range(20):
        x[i] = x[i] * 0.5 + a[i, i]
    return x


def leaves_early(a, x, n):
    seen = []
    for i in range(n * 20):
        x = x * 0.5 + i
        seen.append(1)
        if len(seen) == 17:
            break
    return x, i


def has_an_else(a, x, n):
    for i in range(n * 20):
        x = x * 0.5 + i
        if i < 0:
            break
    else:
        x = x + a[i % 3]
    return x


def compares(a, x, n):
    for i in range(n * 20):
        x = x + 1 if i % 2 else x * 0.5
    return x


def collects(a, x, n):
    found = []
    for i in range(n * 20):
        x = x * 0.5 + a[i % 5]
        found.append(x)
    return found


def picks_from_lists(a, x, n):
    rates, layers = {i: i * 0.25 for i in range(60)}, [a[3], a[4], a[5]]
    for i in range(n * 20):
        x = x * 0.5 + layers[i % 3] * rates[i]
    return x


def asks_for_types(a, x, n):
    for i in range(n * 20):
        x = x * 0.5 + (a[i] if isinstance(i, int) and type(i) is int else a[0])
    return x


def uses_ranges_as_objects(a, x, n):
    rounds = range(3, 3 + n * 10)
    for i in rounds:
        x = x * 0.5 + a[i] * len(rounds) + rounds[2] * (5 in rounds)
    return x, [2 * i for i in range(20)], list(range(n)), isinstance(rounds, object)


def counts_up(a, x, n):
    for i in range(n * 20):
        x = x * 0.5 + a[i] * i
    return x, i


def returns_the_variable(a, x, n):
    k = 7
    for i in range(n * 20 - 1, -1, -1):
        x = x * 0.5 + a[i] * i
        k = i + 2
    return x, i, k


BODIES = [
    leaves_early,
    has_an_else,
    compares,
    collects,
    picks_from_lists,
    asks_for_types,
    uses_ranges_as_objects,
    counts_up,
    returns_the_variable,
]


def arguments():
    made = np.random.default_rng(3)
    return tj.asarray(made.normal(size=(48, 48))), tj.asarray(made.normal(size=48))


def expect_equal(traced, unrolled, n, monkeypatch):
    """A call returns and stores, bit for bit, the results of a recording of all iterations."""
    a, x = arguments()
    b, y = arguments()
    result = traced(a, x, n)
    with monkeypatch.context() as patched:
        patched.setattr(config, "disable", frozenset({"roll"}))
        expected = unrolled(b, y, n)
    got, wanted = tj.tree.leaves((result, a, x)), tj.tree.leaves((expected, b, y))
    assert [type(leaf) for leaf in got] == [type(leaf) for leaf in wanted]
    for one, other in zip(got, wanted, strict=True):
        np.testing.assert_array_equal(np.asarray(one), np.asarray(other))


@pytest.fixture
def recordings(monkeypatch):
    """The traces that are begun."""
    begun = []

    class Counted(trace.Trace):
        def __init__(self, *args, **options):
            super().__init__(*args, **options)
            begun.append(self.assumed.rolled)

    monkeypatch.setattr(record, "Trace", Counted)
    return begun


def test_nested_loops_of_very_many_operations_are_recorded_in_a_few_rounds(monkeypatch, recordings):
    traced = tj.jit(sweeps)
    traced(*arguments(), 30)
    assert recordings == [False, True]
    expect_equal(traced, tj.jit(sweeps), 2, monkeypatch)
    a, x = arguments()
    graph = traced.graph(a, x, 40)
    assert len(graph.nodes) < 200
    assert any(node.op is loop for node in graph.nodes)
    assert "not rolled" not in traced.explain()


def test_another_count_replays(monkeypatch):
    monkeypatch.setattr(builtin_range, "LONG_RECORDING", 20)
    traced = tj.jit(counts_up)
    for n in (2, 1):
        expect_equal(traced, tj.jit(counts_up), n, monkeypatch)
    assert traced.cache_info().traces == 1


def test_few_operations_are_recorded_once(recordings):
    @tj.jit
    def short(x):
        for i in range(200):
            x = tj.tanh(x * 0.5 + i)
        return x

    short(tj.ones(3))
    assert recordings == [False]


def test_rounds_of_moving_extents_are_all_recorded(monkeypatch, recordings):
    monkeypatch.setattr(builtin_range, "LONG_RECORDING", 1000)
    traced = tj.jit(solves)
    expect_equal(traced, tj.jit(solves), 1, monkeypatch)
    assert [begun for begun in recordings if begun] == [True] * 3  # two loops ask for their variable
    assert "solves" in traced.explain()
    assert "not rolled: the value of the loop variable is asked for" in traced.explain()


@pytest.mark.parametrize("body", BODIES)
def test_what_the_body_asks_of_its_variable(body, monkeypatch):
    monkeypatch.setattr(builtin_range, "LONG_RECORDING", 8)
    traced, unrolled = tj.jit(body), tj.jit(body)
    for n in (2, 2, 1):
        expect_equal(traced, unrolled, n, monkeypatch)
    assert traced.cache_info().replays >= 1


def test_rounds_that_are_worth_several_workers_stay_apart(monkeypatch, recordings):
    monkeypatch.setattr(builtin_range, "LONG_RECORDING", 20)
    monkeypatch.setattr(builtin_range, "LONG_SCALE", 1)

    @tj.jit
    def wide(x):
        for _ in range(16):
            x = x * 0.5 + 1
        return x

    np.testing.assert_array_equal(wide(tj.zeros(1 << 17)), np.full(1 << 17, 2 - 2.0**-15, np.float32))
    assert recordings == [False, True, True]
    assert "an iteration is long enough for several workers" in wide.explain()


def test_more_rounds_than_a_recording_may_have():
    @tj.jit
    def walk(x):
        for i in range(50_000):
            x = x * 0.5 + i
            x[1:] += x[:-1]
        return x

    x = np.ones(3)
    for i in range(50_000):
        x = x * 0.5 + i
        x[1:] += x[:-1].copy()
    np.testing.assert_allclose(walk(tj.ones(3, dtype="float64")), x)
    walk(tj.ones(3, dtype="float64"))
    assert walk.cache_info().replays == 1


def test_loops_in_gradients_are_recorded_round_by_round(monkeypatch, recordings):
    monkeypatch.setattr(builtin_range, "LONG_RECORDING", 30)

    @tj.jit
    def slope(x):
        with_respect = tj.grad(lambda y: (y * y).sum())
        for _ in range(20):
            x = x - 0.25 * with_respect(x)
        return x

    np.testing.assert_array_equal(slope(tj.ones(2)), np.full(2, 0.5**20, np.float32))
    np.testing.assert_array_equal(slope(tj.ones(2)), np.full(2, 0.5**20, np.float32))
    assert slope.cache_info().replays == 1


def test_errors_name_the_line(monkeypatch):
    monkeypatch.setattr(builtin_range, "LONG_RECORDING", 30)

    @tj.jit
    def beyond(x):
        for i in range(40):
            x[i] = x[i + 1] * 0.5
        return x

    x = tj.arange(30.0)
    with pytest.raises(IndexError, match="test_range_plain"):
        beyond(x)
    np.testing.assert_array_equal(x, np.arange(30.0))


def test_triangular_loops_are_left_to_the_pass():
    def orthogonal(m):
        q = m * 0.0
        for k in range(48):
            q[:, k] = m[:, k] / tj.sqrt(m[:, k] @ m[:, k])
            for j in range(k + 1, 48):
                m[:, j] -= q[:, k] * (q[:, k] @ m[:, j])
        return q

    f = tj.jit(orthogonal, strict=True)
    given = np.random.default_rng(0).normal(size=(48, 48))
    q = f(tj.asarray(given)).numpy()
    np.testing.assert_allclose(q.T @ q, np.eye(48), atol=1e-9)
    (schedule,) = f.schedules()
    assert len(schedule.tasks) < 60  # 1,128 iterations
