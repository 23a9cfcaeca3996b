"""The cost of first calls grows as the recorded graph does."""

from __future__ import annotations

import cProfile
import functools

import numpy as np
import pytest

import tracejit as tj
from benchmarks import recording
from tracejit.compile import plan_graph
from tracejit.errors import ReplayError
from tracejit.frontend.jit import record
from tracejit.frontend.recording import trace
from tracejit.frontend.recording.trace import Trace


def update(params, velocities, gradients, rate):
    for p, v, g in zip(params, velocities, gradients, strict=True):
        v *= 0.9
        v += g
        p -= rate * v


def test_arguments_are_not_compared_pairwise(monkeypatch):
    """Whether storages share memory is asked of parts of one array, and of memory that others see."""
    asked = []
    monkeypatch.setattr(Trace, "share", lambda *given: asked.append(given))
    tj.jit(update, strict=True).plan(*[[tj.ones(3) for _ in range(20)] for _ in range(3)], 0.1)
    assert not asked


@pytest.mark.parametrize("body", recording.BODIES)
def test_planning_is_linear(body, monkeypatch):
    """By the number of calls it makes, which no other load on the machine changes."""

    def cost(n):
        for name in ("DEEP", "WIDE", "ROUNDS"):
            monkeypatch.setattr(recording, name, n)
        made = recording.BODIES[body]()
        graph = tj.jit(made.function, strict=True).graph(*made.arguments)
        profile = cProfile.Profile()
        profile.runcall(plan_graph, graph)
        return sum(entry.callcount for entry in profile.getstats())

    cost(32)  # fills the caches
    assert cost(256) < 9 * cost(32)


def test_a_body_with_too_many_operations_runs_piecewise(monkeypatch):
    monkeypatch.setattr(trace, "MAX_OPERATIONS", 50)

    def count(x, n):
        for _ in range(n):
            x += 1
        return x

    counting = tj.jit(count)
    x = tj.zeros(2)
    assert counting(x, 10).tolist() == [10, 10]
    assert counting(x, 100).tolist() == [110, 110]
    text = counting.explain()
    assert "more than 50 operations" in text, text
    assert "test_first_calls.py" in text, text
    with pytest.raises(ReplayError, match="decorate a function that it calls"):
        tj.jit(count, strict=True)(x, 100)
    assert x.tolist() == [110, 110]


def test_a_body_too_long_to_record_is_tried_again_after_many_calls(monkeypatch):
    monkeypatch.setattr(trace, "MAX_OPERATIONS", 50)
    monkeypatch.setattr(record, "OPERATIONS", 10)
    repeated = tj.jit(lambda x: functools.reduce(lambda y, _: y + 1, range(100), x))
    traces = []
    for _ in range(9):
        assert float(repeated(tj.zeros(()))) == 100
        traces.append(repeated.cache_info().traces)
    assert traces == [1, 1, 1, 1, 1, 2, 2, 2, 2], "51 operations are worth 5 calls, then 10"


def test_reading_an_element_records_one_operation():
    def swapped(x):
        a, b = x[0], x[1]
        x[0], x[1] = b, a
        a += 10
        return a, b, x[0], x[0]

    f = tj.jit(swapped, strict=True)
    assert "copy" not in str(f.graph(tj.zeros(3)))
    for _ in range(3):
        ours, theirs = tj.asarray([1.0, 2.0, 3.0]), np.array([1.0, 2.0, 3.0])
        results = f(ours)
        assert [float(r) for r in results] == [float(r) for r in swapped(theirs)]
        assert ours.tolist() == theirs.tolist()
        ours[0] = 7
        assert float(results[3]) == 2, "an element is no view"
