"""Rounds of a ``while`` that are run without being recorded: results are those of eager code."""

from __future__ import annotations

import numpy as np
import pytest

import tracejit as tj
from tracejit.frontend.recording import segments


def halve(x, tol):
    rounds, total = 0, 0.25
    while float(x.max()) > tol:
        x = x * 0.5
        rounds += 1
        total += 0.5
    return x, rounds, total


def in_place(x, tol):
    steps = 0
    change = 1
    while change > tol:
        before = x.copy()
        x[1:-1] = 0.5 * (before[:-2] + before[2:])
        x[0] = 0.0
        change = tj.abs(x - before).sum()
        steps = steps + 1
    return steps


def two_questions(x, tol):
    up = down = 0
    while x.sum() > tol:
        if x[0] > 3.0:
            x = x * 0.9
            down += 2
        else:
            x = x - 0.25
            up -= 1
    return x, up, down


def swapped(x, tol):
    y = x * 2
    n = 10
    while float(x.sum()) > tol:
        x, y = y * 0.4, x
        n -= 1
    return x, y, n


def counted_in_arrays(x, tol):
    n = 1
    while float(x.sum()) > tol:
        x = x - 0.01 * n
        n += 1
    return x, n


def told(x, tol):
    """The count decides."""
    n = 0
    while float(x.sum()) > tol:
        x = x * 0.9
        n += 1
        if n == 7:
            x = x - 1
    return x, n


BODIES = [halve, in_place, two_questions, swapped, counted_in_arrays, told]


def plain(value):
    return [plain(v) for v in value] if isinstance(value, tuple) else np.asarray(value).tobytes()


@pytest.mark.parametrize("body", BODIES, ids=lambda body: body.__name__)
def test_like_eager_code(body):
    function = tj.jit(body, strict=True)
    for scale in (1.0, 4.0, 0.5, 4.0, 0.0):
        given = [tj.asarray(np.linspace(0.5, 4, 9) * scale) for _ in range(2)]
        assert plain(function(given[0], 0.125)) == plain(body(given[1], 0.125)), scale
        assert plain(given[0]) == plain(given[1])


def test_few_rounds_are_recorded(monkeypatch):
    looks, find = [], segments.Segments.find

    def counted(*args):
        looks.append(1)
        return find(*args)

    monkeypatch.setattr(segments.Segments, "find", counted)

    def body(x):
        n = 0
        while float(x.max()) > 1e-3:
            x = x * 0.99
            n += 1
        return x, n

    function = tj.jit(body)
    _, n = function(tj.ones(4))
    assert n > 600
    assert len(looks) < 9  # three, three with counters, and the native loop
    _, more = function(tj.ones(4) * 8)
    assert more > n
    assert len(looks) < 9  # three, three with counters, and the native loop
    assert function.cache_info().traces == 1


def test_a_call_that_fails_gives_back_what_its_rounds_drew():
    """An index leaves the table in a round that is run ahead, in a replay, and in the first call."""

    def walk(x, table, stop):
        while float(x.sum()) < stop:
            x = x + 1 + 0 * tj.random.uniform(shape=(1,))
            x = x + 0 * table[x.astype("int64")]
        return x

    start, table = np.zeros(1), tj.arange(40.0)
    for stops in ([1e9, 1e9], [20.0, 30.0, 1e9, 25.0, 1e9]):
        function = tj.jit(walk)
        for stop in stops:
            tj.random.seed(3)
            before = tj.random.uniform(shape=(2,)).numpy()
            tj.random.seed(3)
            if stop == 1e9:
                with pytest.raises(IndexError):
                    function(tj.asarray(start), table, stop)
                np.testing.assert_array_equal(tj.random.uniform(shape=(2,)).numpy(), before)
            else:
                assert function(tj.asarray(start), table, stop).item() == stop
