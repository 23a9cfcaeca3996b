"""Promise 3: nothing grows without bound, however many signatures, schedules and gradients there were."""

from __future__ import annotations

import gc
import linecache
import weakref

import pytest

import tracejit as tj
from tracejit.config import config
from tracejit.frontend.recording import eager, recording
from tracejit.frontend.recording.storage import Storage
from tracejit.ops.structural import CALLBACKS

LIMIT = 3


@pytest.fixture(autouse=True)
def few_signatures(monkeypatch):
    monkeypatch.setattr(config, "signatures", LIMIT)


def files_of(name):
    """How many replay functions of `name` linecache knows when the next function has been made."""

    @tj.jit
    def another_step(x):
        return x

    another_step(tj.ones(1))
    return sum(name in file for file in linecache.cache)


def test_signatures_that_were_dropped_are_forgotten():
    @tj.jit
    def numbered_step(x, n):
        return x * len(range(n))

    entries = []
    for n in range(4 * LIMIT):
        assert numbered_step(tj.ones(2), n).tolist() == [n, n]
        entries.append(weakref.ref(numbered_step._entries[0]))
    gc.collect()
    assert numbered_step.cache_info().traces == 4 * LIMIT
    assert [e() is not None for e in entries] == [False] * 3 * LIMIT + [True] * LIMIT
    assert files_of("numbered_step") == LIMIT
    assert f"{3 * LIMIT} dropped" in numbered_step.explain()


def test_the_least_recently_used_signature_goes():
    @tj.jit
    def step(x, n):
        return x * len(range(n))

    order = [
        1,
        2,
        3,
        1,
        2,
        4,
        1,
        2,
        4,
        5,
        1,
    ]  # 4 takes the place of 3; 5 that of 1, the oldest but for 2 and 4
    known: list[int] = []
    for n in order:
        before = step.cache_info().traces
        step(tj.ones(1), n)
        assert (step.cache_info().traces == before) == (n in known), (n, known)
        known = [*[k for k in known if k != n][-LIMIT + 1 :], n]


def test_reasons_of_retraces_are_bounded():
    @tj.jit
    def step(n):
        return [None] * n

    for n in range(130):
        step(n)
    assert len(step._retraces) == 100
    assert "n caused 100 retraces" in step.explain()


def test_callbacks_of_dropped_signatures_are_forgotten():
    seen, before = [], len(CALLBACKS)

    @tj.jit
    def step(x, n):
        tj.callback(seen.append, x.sum())
        return x * len(range(n))

    for n in range(4 * LIMIT):
        step(tj.ones(2), n)
    tj.wait_all()
    gc.collect()
    assert len(seen) == 4 * LIMIT
    assert len(CALLBACKS) - before <= LIMIT
    del step
    gc.collect()
    assert len(CALLBACKS) == before


def test_a_function_that_is_gone_leaves_nothing():
    def make():
        scale = tj.ones(1000)

        @tj.jit
        def passing_step(x):
            return x * scale

        passing_step(tj.ones(1000)).wait()
        return weakref.ref(passing_step), weakref.ref(scale._storage)

    gone = make()
    gc.collect()
    assert [reference() for reference in gone] == [None, None]
    assert files_of("passing_step") == 0


def test_finalizers_leave_the_files_that_somebody_walks_through():
    @tj.jit
    def walked_step(x):
        return x + 1

    walked_step(tj.ones(2))
    before = list(linecache.cache)
    del walked_step
    gc.collect()
    assert all(name in linecache.cache for name in before)  # as `linecache.checkcache` expects
    assert files_of("walked_step") == 0


def test_signatures_of_one_text_share_code_and_have_files_of_their_own():
    @tj.jit
    def shaped_step(x):
        return x + 1

    for n in (2, 3):
        assert shaped_step(tj.ones(n)).tolist() == shaped_step(tj.ones(n)).tolist() == [2.0] * n
    first, second = (entry.replay.__code__ for entry in shaped_step._entries)
    assert first.co_code == second.co_code
    assert first.co_filename != second.co_filename
    for code, entry in zip((first, second), shaped_step._entries, strict=True):
        assert "".join(linecache.getlines(code.co_filename)) == entry.text
    assert files_of("shaped_step") == 2


def test_schedules_of_eager_code_are_bounded(monkeypatch):
    monkeypatch.setattr(eager, "SCHEDULES", 4)
    eager._schedules.clear()
    for n in range(1, 10):
        x = tj.ones(5000)
        for _ in range(n):
            x = x + 1.0
        assert float(x[0]) == n + 1
        assert len(eager._schedules) <= 4


@pytest.mark.parametrize("jitted", [False, True])
def test_values_kept_for_gradients_are_forgotten(jitted):
    def loss(w):
        y = w
        for _ in range(40):  # more than one recording
            y = tj.sin(y) * 1.1
        return y.sum()

    gradient = tj.jit(tj.grad(loss)) if jitted else tj.grad(loss)
    w = tj.ones(5000)
    gradient(w).wait()
    gc.collect()
    before = len(recording.saved_values)
    for _ in range(5):
        gradient(w).wait()
    gc.collect()
    assert len(recording.saved_values) <= before


def test_memory_of_eager_gradients_is_given_back():
    def loss(w):
        for _ in range(40):
            w = tj.tanh(w) * 1.1
        return w.sum()

    def live():
        gc.collect()
        return sum(isinstance(o, Storage) and o.type.shape == (7919,) for o in gc.get_objects())

    w, counts = tj.ones(7919), []
    for _ in range(5):
        tj.grad(loss)(w).wait()
        counts.append(live())
    assert counts == [counts[0]] * 5
    assert counts[0] <= 2, "the argument, and one in the open recording"
