"""`TRACEJIT_CHECK`: every launch is compared with the NumPy evaluator; the first wrong operator is named."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import tracejit as tj
from tracejit import compile
from tracejit.config import config
from tracejit.errors import CheckError
from tracejit.frontend.recording import eager
from tracejit.ops import sin, tanh

pytestmark = pytest.mark.cpu("TRACEJIT_CHECK=1 compares memory of CPUs only")


@pytest.fixture(autouse=True)
def checking(monkeypatch):
    monkeypatch.setattr(config, "check", True)
    eager._schedules.clear()
    yield
    eager._schedules.clear()


def wrong(monkeypatch):
    """From now on the compiler takes tanh for sin."""
    right = compile.compile_graph

    def compile_wrongly(graph, *rest):
        def swap(node):
            return dataclasses.replace(node, op=sin) if node.op is tanh else node

        nodes = tuple(map(swap, graph.nodes))
        return right(dataclasses.replace(graph, nodes=nodes), *rest)

    monkeypatch.setattr(compile, "compile_graph", compile_wrongly)


def test_right_programs_pass():
    @tj.jit
    def step(w, x, lr):
        w -= lr * tj.tanh(x @ w)
        w[1:] += w[:-1]
        tj.callback(lambda v: None, w)
        return (w * w).sum(), tj.take(w, tj.asarray([0, 2])), tj.random.uniform(shape=3)

    w = tj.ones(3)
    for i in range(4):
        step(w, tj.ones((3, 3)) * i, 0.1)
    x = tj.asarray(np.linspace(0, 1, 5000, dtype=np.float32))
    x[10:20] = tj.exp(x[:10])
    assert float(x.sum()) > 0


def test_sums_that_are_widened_later_may_differ_as_before():
    x = tj.asarray(np.random.default_rng(0).normal(size=(1000, 6, 3)).astype(np.float32))

    def widened(x):
        return ((x[:, :, :] - x[:, :1]) ** 2).sum(axis=2) / (x > 0).sum(axis=1)[:, :1]

    assert tj.jit(widened)(x).dtype == np.float64


def test_the_wrong_operator_is_named_with_its_line(monkeypatch):
    wrong(monkeypatch)

    @tj.jit
    def step(x):
        y = x * 2
        z = tj.tanh(y + 1)  # the wrong one
        return (z * z).sum()

    with pytest.raises(CheckError, match=r"tanh gives .*NumPy evaluator") as caught:
        step(tj.ones(4))
    with open(__file__) as file:
        line = next(n for n, text in enumerate(file, 1) if "the wrong one" in text)
    assert f"test_check.py:{line}" in str(caught.value)


def test_eager_launches_are_checked(monkeypatch):
    wrong(monkeypatch)
    with pytest.raises(CheckError, match="tanh"):
        tj.tanh(tj.ones(5000)).numpy()


def test_replays_are_checked():
    @tj.jit
    def step(x):
        return tj.tanh(x)

    step(tj.ones(4))
    (entry,) = step._entries
    launch = entry.replay.__globals__["launch"]
    schedule = launch.args[0]
    broken = schedule._replace(launch=lambda packed, keep, started: None)  # computes nothing
    entry.replay.__globals__["launch"] = type(launch)(launch.func, broken, *launch.args[1:])
    with pytest.raises(CheckError):
        step(tj.ones(4) * 2)  # not what the first call has left in memory


def test_it_costs_nothing_when_off(monkeypatch):
    monkeypatch.setattr(config, "check", False)
    step = tj.jit(lambda x: x * 2)
    step(tj.ones(4))
    (entry,) = step._entries
    assert entry.replay.__globals__["launch"] == entry.schedule.launch
