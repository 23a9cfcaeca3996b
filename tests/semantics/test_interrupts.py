"""Promise 7, Ctrl-C: an interrupted call writes its arrays wholly or not at all, and the next one works."""

from __future__ import annotations

import copy
import functools
import gc
import itertools
import os
import signal
import sys
import threading
import time
import types

import numpy as np
import pytest

import tracejit as tj
from tests.semantics.interrupting import PACKAGE, interrupted
from tracejit import engine
from tracejit.engine import launches, variable
from tracejit.engine.hosts import hosts
from tracejit.errors import OutOfBoundsError
from tracejit.frontend.jit import record
from tracejit.frontend.python.identity import Identity
from tracejit.frontend.python.interned import interned
from tracejit.frontend.recording import eager, recording
from tracejit.frontend.recording.recording import thread
from tracejit.frontend.surroundings import monitoring, profiling, watch

pytestmark = pytest.mark.cpu("it interrupts Python, of which the driver of these tests is made")


def everywhere(call, look, expect, *, checks=False):
    """Interrupt `call` at every place, each time followed by a good call; how many calls were interrupted.

    `look` gives the state, and `expect` what a call will make of it, if it happens.
    """
    happened = []
    for number in itertools.count():
        before, after = look(), expect()
        fired = interrupted(call, number, checks=checks)
        now = look()
        happened.append(now == after)
        assert now == (after if happened[-1] else before), number
        if not fired:
            break
        after = expect()
        call()
        assert look() == after
    assert happened[-1]
    assert {True, False} == set(happened[:-1])
    assert launches.IN_FLIGHT == {}
    return number


class State:
    def __init__(self, xp, size):
        self.w, self.v = xp.zeros(size, dtype="float32"), xp.zeros(size, dtype="float32")
        self.t, self.last = 0, None


def values(state):
    """The arrays that steps write; looking at them may find an error that nobody has seen."""
    return state.w.tolist(), state.v.tolist()


def plain(state, x):
    state.w += x
    state.v -= x


def rebinding(state, x):
    """Rebindings are as atomic as Python's own statements: only the arrays are compared."""
    plain(state, x)
    state.t += 1
    state.last = state.w * 2
    return state.w.sum()


def sweep(body, size=3, *, checks=False):
    """Interrupt replays of `body` at every place; whatever comes of it is compared with NumPy's state."""
    step, ours, theirs = tj.jit(body), State(tj, size), State(np, size)
    x = np.full(size, 2, np.float32)
    y = tj.asarray(x)

    def call():
        step(ours, y)

    def expect():
        nonlocal theirs
        if values(ours) != values(theirs):
            theirs = following
        return advance()

    def advance():
        nonlocal following
        following = copy.deepcopy(theirs)
        body(following, x)
        return values(following)

    following = theirs
    for _ in range(3):
        after = expect()
        call()
        assert values(ours) == after
    traces = step.cache_info().traces
    everywhere(call, lambda: values(ours), expect, checks=checks)
    assert step.cache_info().traces == traces


@pytest.mark.parametrize("body", [plain, rebinding])
def test_a_replay_writes_all_arrays_or_none(body):
    sweep(body)


@pytest.mark.parametrize("workers", [0, 1])
def test_launches_that_are_queued(workers):
    count = engine.workers.count
    engine.set_workers(workers)
    try:
        sweep(plain, 30_000, checks=True)
    finally:
        engine.set_workers(count)


def test_the_naive_engine(monkeypatch):
    monkeypatch.setattr(tj.config, "engine", "naive")
    sweep(plain, checks=True)


def test_a_step_that_may_fail_waits_for_its_checks():
    @tj.jit
    def step(state, index):
        state.w += 1
        state.v = tj.take(state.w, index)
        state.t += 1

    def look():
        try:
            return state.t, state.w.tolist(), state.v.tolist()
        except OutOfBoundsError:
            return state.t, state.w.tolist(), state.v.tolist()

    def bad():
        try:
            step(state, index)
        except OutOfBoundsError:
            failed.append(1)

    state = types.SimpleNamespace(w=tj.zeros(3), t=0, v=tj.zeros(2))
    failed, good = [], tj.asarray([0, 2])
    for _ in range(2):
        step(state, good)
    before, index = look(), tj.asarray([0, 3])
    for number in itertools.count():
        fired = interrupted(bad, number, checks=True)
        assert look() == before
        if not fired:
            break
    assert len(failed) >= 1


def test_an_engine_push_is_made_or_not():
    ran, ordered = [], engine.Variable()

    def push():
        engine.push(lambda: ran.append(1), writes=[ordered])

    def look():
        engine.wait(ordered)
        return len(ran)

    push()
    everywhere(push, look, lambda: len(ran) + 1, checks=True)


def test_a_wait_can_be_repeated():
    x, y = tj.ones(100_000).wait(), tj.ones(100_000).wait()
    step = tj.jit(lambda x, y: x.__iadd__(y))
    for number in itertools.count():
        step(x, y)
        if not interrupted(x.wait, number, checks=True):
            break
    assert x.tolist() == [number + 2] * 100_000
    assert launches.IN_FLIGHT == {}


def test_interrupts_lose_no_memory():
    step, state, x = tj.jit(lambda s, x: s.__setitem__("v", s["v"] + x)), {"v": tj.zeros(300)}, tj.ones(300)
    step(state, x)
    step(state, x)
    tj.wait_all()
    gc.collect()

    def places():
        return len(variable._free) + engine.pool.statistics().allocations  # each block has one

    used, before = engine.pool.statistics().in_use, places()
    for number in itertools.count():
        if not interrupted(lambda: step(state, x), number, checks=True):
            break
        step(state, x)
    tj.wait_all()
    gc.collect()
    assert engine.pool.statistics().in_use == used
    assert (places() - before) % variable.SLAB_SIZE == 0


@pytest.mark.parametrize("kind", [engine.Variable, engine.Buffer])
def test_what_is_half_constructed_can_be_collected(kind):
    kind.__new__(kind)  # pytest reports what a destructor raises


def test_no_line_of_python_runs_when_arrays_are_collected():
    arrays = [tj.ones(3).wait() for _ in range(10)]
    ran = []
    sys.setprofile(lambda frame, event, arg: ran.append(frame) if event == "call" else None)
    try:
        arrays.clear()
    finally:
        sys.setprofile(None)
    assert ran == []


def test_real_signals():
    state, x = types.SimpleNamespace(w=tj.zeros(3), v=tj.zeros(3)), tj.ones(3)

    @tj.jit
    def step(state, x):
        state.w += x
        state.v += x
        return state.w.sum()

    def interrupt():
        while not stop.wait(0.0003):
            if armed.is_set():
                armed.clear()
                signal.pthread_kill(main, signal.SIGUSR1)

    main, stop, armed = threading.main_thread().ident, threading.Event(), threading.Event()
    before = signal.signal(signal.SIGUSR1, signal.default_int_handler)
    thread = threading.Thread(target=interrupt)
    step(state, x)
    thread.start()
    hits, end = 0, time.monotonic() + 1
    try:
        while time.monotonic() < end:
            try:
                armed.set()
                while True:
                    step(state, x)
            except KeyboardInterrupt:
                hits += 1
            assert state.w.tolist() == state.v.tolist()
    finally:
        stop.set()
        thread.join()
        signal.signal(signal.SIGUSR1, before)
    assert hits > 20


def is_watched():
    """Whether calls of this thread are reported, after one more that was."""
    (lambda: None)()
    return bool(monitoring.watchers) if sys.version_info >= (3, 12) else sys.getprofile() is not None


@pytest.mark.parametrize("looks", [False, True])
def test_an_interrupted_recording_watches_nothing_any_more(looks):
    def body(x):
        return x * 2 if not looks or x.sum() > 0 else x

    for number in itertools.count():
        step = tj.jit(body)
        within = tuple(module.__file__ for module in (record, watch, monitoring, profiling))
        fired = interrupted(functools.partial(step, tj.ones(2)), number, checks=True, within=within)
        assert not is_watched(), number
        assert step(tj.ones(2)).tolist() == [2, 2]
        if not fired:
            break
    assert number > 30


def test_a_failure_of_another_call_is_told_before_anything_happens():
    w = tj.zeros(3)

    @tj.jit
    def first(index):
        w[...] = w + tj.take(w, index).sum()

    @tj.jit
    def second(state, index):
        w[...] = w + 1
        state.row = tj.take(w, index)
        state.t += 1

    state, good, bad = types.SimpleNamespace(t=0, row=None), tj.asarray([0]), tj.asarray([5])
    first(good)
    second(state, good)
    for _ in range(2):
        first(bad)
        with pytest.raises(OutOfBoundsError):
            second(state, good)
        assert w.tolist() == [state.t] * 3
        second(state, good)
        assert w.tolist() == [state.t] * 3
        assert state.row.tolist() == [state.t]


MODULES = ["jit/record", "jit/commit", "recording/trace", "jit/jit"]
FIRST = tuple(os.path.join(PACKAGE, "frontend", f"{name}.py") for name in MODULES)


@pytest.mark.parametrize("body", [plain, rebinding])
def test_a_first_call_writes_all_arrays_or_none(body):
    """Some places of the modules that record and launch."""
    x = np.full(3, 2, np.float32)
    y, whole, before = tj.asarray(x), State(np, 3), values(State(np, 3))
    body(whole, x)
    wanted, happened = values(whole), set()
    for number in itertools.count(0, 31):
        step, state = tj.jit(body), State(tj, 3)
        fired = interrupted(functools.partial(step, state, y), number, checks=True, within=FIRST)
        now = values(state)
        happened.add(now == wanted)
        assert now in (before, wanted), number
        assert type(state.t) is int
        if not fired:
            break
    assert happened == {True, False}


@pytest.mark.parametrize("size", [eager.SMALL + 1, 200_000])
def test_an_eager_flush_loses_nothing_and_does_nothing_twice(size):
    w = tj.zeros(size)
    for number in itertools.count():
        w += 1
        v = w * 2
        fired = interrupted(v.wait, number, checks=True)
        assert v.numpy()[[0, -1]].tolist() == [2 * (number + 1)] * 2
        assert w.numpy()[[0, -1]].tolist() == [number + 1] * 2
        if not fired:
            break
    assert number > 40
    assert launches.IN_FLIGHT == {}


def test_an_eager_statement_happens_or_not():
    memory = np.zeros(3, np.float32)
    w, x, shared = tj.zeros(3, dtype=tj.int32), tj.zeros(3000), tj.from_dlpack(memory)

    def statement():
        w[1:] += 1

    def visible():
        shared[...] = shared + 1

    def lazy():
        x[1:] += 1
        x.wait()

    everywhere(statement, w.tolist, lambda: [0] + [v + 1 for v in w.tolist()[1:]], checks=True)
    everywhere(lazy, lambda: x.tolist()[-2:], lambda: [v + 1 for v in x.tolist()[-2:]], checks=True)
    everywhere(visible, shared.tolist, lambda: [v + 1 for v in shared.tolist()], checks=True)
    assert memory.tolist() == shared.tolist()


def test_threads_are_started_after_an_interrupt():
    ran, ordered = [], engine.Variable()

    def push():
        try:
            engine.push(lambda: ran.append(1), writes=[ordered])
        except RuntimeError as error:  # the interrupt has caught a lock of `threading` between two states
            raise error.__context__ or error from None

    interval = sys.getswitchinterval()
    sys.setswitchinterval(10)  # a new thread begins when it is waited for: as many steps each time
    try:
        missed = 0
        for number in itertools.count(0, 3):
            hosts.stop(10)
            fired = interrupted(push, number, checks=True, within=(PACKAGE, threading.__file__))
            push()
            engine.wait(ordered)
            missed = 0 if fired else missed + 1
            if missed == 2:  # once only: a thread was still there, and none had to be started
                break
    finally:
        sys.setswitchinterval(interval)
    assert number > 45
    assert len(ran) > number // 3


def test_keys_of_dying_values_run_no_code_of_ours():
    """Where an object dies, an exception would be lost: with it, the interrupt."""
    for number in range(3):
        key = interned("dying", Identity(gc))
        dying = [key, interned("deep", interned(Identity(dict)))]
        del key
        assert not interrupted(dying.clear, number, checks=True)


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="there is no hook: sys.monitoring reports events")
def test_an_operator_of_a_body_releases_the_lock_without_the_hook():
    """An interrupt in a hook that is told of the call of ``lock.__exit__`` would prevent the call."""
    told = []

    def hook(frame, event, function):
        if event == "c_call" and getattr(function, "__self__", None) is recording.lock:
            told.append(frame.f_code.co_qualname)

    def body(x, k):
        real = thread.hook
        thread.hook = hook
        try:
            y = tj.where(x > 0, x * 2, 0)
            y[0] = 3
            y[k] = 4
            y += 1
            total = y[y > 1].sum()
            for i in tj.range(3):
                y = y + i
            return y + tj.random.normal(shape=3) + total, tj.grad(lambda v: (v * v).sum())(y)
        finally:
            thread.hook = real
            sys.setprofile(real)

    traced = tj.jit(body)
    traced(tj.ones(3), tj.asarray([0, 1]))
    assert not told
    assert sys.getprofile() is None
    assert not recording.lock._is_owned()
