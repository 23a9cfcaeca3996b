"""Paths of one function share the transitions of their loops: only new behaviour is recorded."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest

import tracejit as tj
from tracejit.frontend.jit.state_loops import adoption, regions
from tracejit.frontend.recording import looks

SCALE = 2.0


def choose(x):
    """One of four branches in each iteration."""
    total, rare = 0.0, 0
    for k in range(len(x)):
        v = x[k]
        if v > 3:
            total = total + v * 2.0
        elif v > 2:
            total = total - v
            rare += 1
        elif v > 1:
            total = total * 0.5
        else:
            total = total + 1.0
    return total, rare


def scaled(x):
    total = 0.0
    for k in range(len(x)):
        v = x[k]
        total = total + v * SCALE if v > 2 else total + v
    return total


def counted(x, n):
    """An iteration that uses the value of an argument: `n` elements."""
    total = 0.0
    for k in range(len(x)):
        v = x[k]
        total = total + x[:n].sum() if v > 2 else total + v
    return total


def drawing(x):
    """A random walk, whose steps depend on where it is."""
    at = x[0]
    for k in range(1, len(x)):
        v = x[k]
        if v > 2:
            at = at + tj.random.normal()
        elif at > 1:
            at = at * 0.5 + tj.random.uniform()
        else:
            at = at + v
    return at


def twice(x):
    """Two loops, of which the second starts in one of two ways."""
    t, n = 0.0, 0
    for k in range(len(x)):
        if x[k] > 2:
            t = t + x[k]
            n += 1
    while t > 1.0:
        t = t * 0.5 if n % 2 else t - 1.0
        n += 1
    return t, n


def outcome(results):
    results = results if isinstance(results, tuple) else (results,)
    return [np.asarray(each).tobytes() for each in results]


def of(*values):
    return np.asarray(values, np.float32)


def test_a_call_with_known_branches_is_replayed():
    function = tj.jit(choose)
    for x in of(0, 4, 0, 4, 0), of(0, 3, 0, 3, 0), of(0, 2, 0, 2, 0):
        assert outcome(function(tj.asarray(x))) == outcome(choose(x))
    recorded = function.cache_info().traces
    for x in of(0, 4, 3, 2, 0), of(4, 3, 3, 4, 0), of(2, 2, 2, 3, 0), of(4, 2, 3, 4, 0):
        assert outcome(function(tj.asarray(x))) == outcome(choose(x))
    assert function.cache_info().traces <= recorded + 1, function.explain()


@pytest.mark.parametrize("body", [choose, twice])
def test_recordings_end(body):
    function, rng = tj.jit(body), np.random.default_rng(0)
    for call in range(60):
        x = rng.integers(0, 5, 20).astype(np.float32)
        assert outcome(function(tj.asarray(x))) == outcome(body(x)), call
        if call == 29:
            recorded = function.cache_info().traces
    assert function.cache_info().traces <= recorded + 1


def test_random_numbers_are_those_of_eager_code():
    function, rng = tj.jit(drawing), np.random.default_rng(0)
    for call in range(40):
        x = tj.asarray(rng.integers(0, 4, 12).astype(np.float32))
        tj.random.seed(call)
        expected = outcome(drawing(x)), outcome(tj.random.uniform(shape=2))
        tj.random.seed(call)
        assert (outcome(function(x)), outcome(tj.random.uniform(shape=2))) == expected
    assert function.cache_info().traces < 15


def test_conditions_of_a_shared_branch_are_checked(monkeypatch):
    function = tj.jit(scaled)
    some, none, both = of(0, 3, 3, 0), of(0, 1, 1, 0), of(0, 3, 1, 0)
    for x in some, none, both, none:
        assert outcome(function(tj.asarray(x))) == outcome(scaled(x))
    for scale in 3.0, 2.0, np.float32(0.5):
        monkeypatch.setitem(globals(), "SCALE", scale)
        for x in both, some, none, both:
            assert outcome(function(tj.asarray(x))) == outcome(scaled(x))


def test_a_path_that_needs_another_value_does_not_share():
    function = tj.jit(counted)
    for n in 1, 2, 3, 1, 2:
        for x in of(0, 3, 3, 0), of(0, 1, 1, 0), of(0, 3, 1, 0):
            assert outcome(function(tj.asarray(x), n)) == outcome(counted(x, n))


def test_shapes_do_not_mix():
    function, rng = tj.jit(choose), np.random.default_rng(1)
    for call in range(30):
        x = rng.integers(0, 5, 5 + call % 3).astype(np.float32)
        assert outcome(function(tj.asarray(x))) == outcome(choose(x))


def test_paths_keep_no_argument_alive():
    class Box:
        def __init__(self, x):
            self.x = x

    @tj.jit
    def function(box, more):
        total = 0.0
        for k in range(6):
            v = box.x[k]
            total = total + v if v > more["limit"][0] else total - 1.0
        return total

    alive = []
    for x in of(0, 3, 3, 0, 1, 2), of(0, 1, 1, 0, 3, 1), of(3, 3, 3, 0, 3, 0):
        box, more = Box(tj.asarray(x)), {"limit": tj.asarray(of(1.5))}
        function(box, more)
        alive += [weakref.ref(box), weakref.ref(box.x), weakref.ref(more["limit"])]
        del box, more
    gc.collect()
    assert [reference() for reference in alive] == [None] * 9


def test_a_changed_helper_is_not_shared():
    """Paths that call different functions do not share the transitions in which they call them."""
    source = "def helper(v): return v * {}"

    def make(factor):
        namespace = {}
        exec(source.format(factor), namespace)
        return namespace["helper"]

    @tj.jit
    def function(x, helper):
        total = 0.0
        for k in range(4):
            v = x[k]
            total = total + helper(v) if v > 2 else total + v
        return total

    for factor in 2.0, 3.0, 2.0:
        helper = make(factor)
        for x in of(0, 3, 3, 0), of(0, 1, 1, 0), of(3, 0, 3, 1):
            expected = sum(value * (factor if value > 2 else 1) for value in x.tolist())
            assert float(function(tj.asarray(x), helper)) == expected


def test_states_without_a_meaning_are_not_shared(monkeypatch):
    """Each path has its own states then, even if objects of a former recording had the same address."""

    def refuse(self, part):
        raise adoption.NotPortable

    def address(value):
        return 7 if isinstance(value, adoption.Adoption) else id(value)

    monkeypatch.setattr(adoption.Adoption, "_portable", refuse)
    monkeypatch.setattr(adoption, "id", address, raising=False)
    function, rng, states = tj.jit(choose), np.random.default_rng(0), []
    for _ in range(12):
        x = rng.integers(0, 5, 6).astype(np.float32)
        assert outcome(function(tj.asarray(x))) == outcome(choose(x))
    for entry in function._entries:
        states += [end.state for path in entry.paths for end in path.loop_ends.values()]
    assert len({id(state) for state in states}) == len(states) > 2


@pytest.mark.parametrize("body", [choose, twice])
def test_looks_after_a_loop_may_be_steps_of_their_own(body, monkeypatch):
    """As if what follows the last look used a value that its state does not contain."""
    complete = regions._is_complete

    def is_complete(trace, first, last):
        is_last = last == len(trace.looks.state_graph.state_ids) - 1
        return not (is_last and last > first) and complete(trace, first, last)

    monkeypatch.setattr(regions, "_is_complete", is_complete)
    monkeypatch.setattr(looks, "run_ahead", lambda trace: None)  # all looks of a call are recorded
    function, rng = tj.jit(body), np.random.default_rng(0)
    for _ in range(20):
        x = rng.integers(0, 5, 6).astype(np.float32)
        for _ in range(2):
            assert outcome(function(tj.asarray(x))) == outcome(body(x))
    assert function.cache_info().replays >= 20, function.explain()
