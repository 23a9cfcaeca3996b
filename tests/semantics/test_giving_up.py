"""A body that turns out to be piecewise has done nothing by then: it runs itself, once, with plain values."""

import contextlib
import gc
import io
import json
import queue
import threading
import time
import weakref

import numpy as np
import pytest

import tracejit as tj
from tests.semantics.cases import Cases, Thing, one
from tracejit.errors import ReplayError

CASES = Cases()


def is_float(n):
    return type(n) is float


@CASES.add
def types_after_an_effect(jit):
    @jit
    def step(x, n):
        time.time()
        return x * (10 if is_float(n) else 1)

    return [step(one(), n) for n in (1, 1.0, 2, 2.5)]


@CASES.add
def metrics_as_text(jit):
    log = io.StringIO()

    @jit
    def step(x, rate):
        metrics = {"rate": rate * 2, "step": 1}
        log.write("")
        log.write(json.dumps(metrics) + "\n")
        return x * rate

    return [step(one(), 0.5), step(one(), 0.25), log.getvalue()]


@CASES.add
def what_others_get(jit):
    got = queue.SimpleQueue()

    @jit
    def step(x, rate, state):
        got.put({"rate": rate * 2})
        got.put(state)
        state["t"] += 1
        return x * rate

    state = {"t": 0}
    results = [step(one(), 0.5, state), got.get(), got.get() is state, state]
    return [*results, step(one(), 0.5, state), got.get(), got.get() is state]


@CASES.add
def what_comes_last(jit):
    calls = queue.SimpleQueue()

    @jit
    def step(x, n):
        try:
            try:
                return x * (2 if is_float(n) else 3)
            finally:
                calls.put("inner")
        finally:
            calls.put("outer")

    return [step(one(), 1), step(one(), 1.5), [calls.get() for _ in range(calls.qsize())]]


@CASES.add
def what_catches_everything(jit):
    caught = queue.SimpleQueue()

    @jit
    def step(x, n):
        total = x
        for _ in range(2):
            try:
                total = total * (2 if is_float(n) else 3)
                print(end="")
            except BaseException as error:
                caught.put(type(error).__name__)
                raise
        return total

    return [step(one(), 1), step(one(), 1.5), caught.qsize()]


@CASES.add
def what_is_swallowed(jit):
    @jit
    def step(x, n):
        factor = 0
        while factor < 3:
            with contextlib.suppress(BaseException):
                factor += 1
                print(end="")
        return x * factor * n

    return [step(one(), 1), step(one(), 2)]


@CASES.add
def what_was_entered_is_left(jit):
    @contextlib.contextmanager
    def mode(value):
        before, settings.mode = settings.mode, value
        entered.append(value)
        try:
            yield
        finally:
            settings.mode = before
            left.append(value)

    settings, entered, left = Thing(mode="eval"), [], []

    @jit
    def step(x, n):
        with np.errstate(divide="ignore"), mode("train"):
            print(end="")
            return x * n

    before = np.geterr()
    results = [step(one(), 1), step(one(), 2)]
    return [*results, np.geterr() == before, settings.mode, entered, left]


@CASES.add
def locks(jit):
    lock, held = threading.Lock(), Thing(n=0)

    @jit
    def step(x):
        held.n += 1
        with lock:
            held.n += 1
        return x * held.n

    return [step(one()), step(one()), lock.locked(), held.n]


@CASES.add
def objects_that_are_not_found_by_name(jit):
    counter = Thing(n=0)
    refer, local = weakref.ref(counter), threading.local()
    local.counter = counter

    @jit
    def step(x, n):
        refer().n += 1
        local.counter.n += 1
        print(end="")
        return x * (2 if is_float(n) else 3)

    return [step(one(), 1), step(one(), 1.5), counter.n]


@CASES.add
def generators_that_are_told(jit):
    def gather():
        while True:
            told.append((yield))

    told = []
    generator = gather()
    next(generator)

    @jit
    def step(x, n):
        generator.send(n * 2)
        return x * (2 if is_float(n) else 3)

    return [step(one(), 1), step(one(), 1.5), told]


@CASES.add
def methods_handed_on(jit):
    kept = []

    @jit
    def step(x, n):
        list(map(kept.append, [n]))
        return x * (2 if is_float(n) else 3)

    return [step(one(), 1), step(one(), 1.5), kept]


@CASES.add
def random_numbers(jit):
    tj.random.seed(3)

    @jit
    def step(x):
        noise = tj.random.normal(shape=x.shape)
        if noise.sum() > 0:
            noise = noise + tj.random.normal(shape=x.shape)
        return x + noise

    return [step(tj.ones(3)).tolist() for _ in range(4)]


@CASES.add
def arrays_that_change_before_a_look(jit):
    state = Thing(w=tj.ones(2), seen=[])

    @jit
    def step(x):
        state.w += x
        state.seen.append(len(state.seen))
        if state.w.sum() > 5:
            state.w -= 1
        return state.w * 2

    return [[step(tj.ones(2)).tolist(), state.w.tolist(), list(state.seen)] for _ in range(4)]


@pytest.mark.parametrize("name", CASES)
def test_giving_up(name):
    CASES.check(name)


def test_a_strict_function_runs_nothing_of_what_is_to_come():
    done = queue.SimpleQueue()

    @tj.jit(strict=True)
    def step(x):
        try:
            x.tolist()
        finally:
            done.put(1)
        return x

    with pytest.raises(ReplayError, match="looks at the value"):
        step(one())
    assert done.empty()


def test_the_lock_of_a_function_is_free_while_its_body_runs_itself():
    """Two calls that wait for one another."""
    meeting = threading.Barrier(2, timeout=30)

    @tj.jit
    def step(x):
        meeting.wait()
        return x * 2

    threads = [threading.Thread(target=step, args=(tj.ones(n),)) for n in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not meeting.broken


def numbers():
    yield from (1, 2)


class Large:
    """What a body makes."""


@pytest.mark.parametrize("items", [numbers, lambda: [1, 2]])
def test_nothing_is_kept_of_a_body_that_was_broken_off(items):
    @tj.jit
    def step(x, n):
        large = Large()
        large.y = x * 2
        left = items()
        first = next(iter(left))
        factor = 2 if is_float(n) else 3
        print(end="")
        return large.y * factor * first

    with collector_off():
        step(one(), 1.5)
        step(one(), 1)
        assert not any(type(found) is Large for found in gc.get_objects())


@contextlib.contextmanager
def collector_off():
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
