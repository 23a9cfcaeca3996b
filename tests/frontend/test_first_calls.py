"""The cost of first calls grows as the recorded graph does."""

from __future__ import annotations

import cProfile

import pytest

import tracejit as tj
from benchmarks import recording
from tracejit.compile import plan_graph
from tracejit.errors import ReplayError
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
    monkeypatch.setattr(trace, "MOST", 50)

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
