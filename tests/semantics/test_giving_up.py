"""A body that turns out to be piecewise has done nothing by then: it runs itself, once, with plain values."""

import collections
import contextlib
import functools
import gc
import io
import itertools
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
    def step(x):
        try:
            try:
                return x * (2 if x.sum() > 0 else 3)
            finally:
                calls.put("inner")
        finally:
            calls.put("outer")

    return [step(one()), step(one()), [calls.get() for _ in range(calls.qsize())]]


@CASES.add
def what_catches_everything(jit):
    caught = queue.SimpleQueue()

    @jit
    def step(x, n):
        total = x
        while True:
            try:
                try:
                    total = total * (2 if total.sum() > n else 3)
                    break
                except BaseException:
                    caught.put(1)
                    continue
            except BaseException:
                continue
        return total

    return [step(one(), 1), step(one(), 1.5), caught.qsize()]


@CASES.add
def what_is_entered_by_hand(jit):
    class Quiet:
        def __enter__(self):
            self.inner = np.errstate(divide="ignore")
            self.inner.__enter__()

        def __exit__(self, *error):
            self.inner.__exit__(*error)

    @jit
    def step(x):
        with Quiet():
            print(end="")
            return x * 2

    before = np.geterr()["divide"]
    results = [step(one()), step(one()), np.geterr()["divide"]]
    np.seterr(divide=before)
    return results


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


CHANGES = {}


def change(function):
    CHANGES[function.__name__] = function
    return function


@change
def large_arrays(thing):
    thing.held[0] += 1


@change
def entries(thing):
    thing.held["n"] += 1


@change
def members(thing):
    for each in thing.held:
        each.n += 1


@change
def arguments(thing):
    thing.held.args = (*thing.held.args, len(thing.held.args))


@change
def lists(thing):
    thing.held[0].append(1)


@change
def calls(thing):
    thing.held()


HELD = {
    "large array": (lambda: np.zeros(20000), large_arrays, lambda held: held[0]),
    "array of objects": (lambda: np.array([[1], None], dtype=object), lists, list),
    "library's dict": (lambda: collections.UserDict(n=0), entries, dict),
    "large dict": (lambda: dict.fromkeys((*range(5000), "n"), 0), entries, lambda held: held["n"]),
    "large dict of objects": (lambda: {n: [] for n in range(5000)}, lists, lambda held: held[0]),
    "set": (lambda: {Thing(n=0)}, members, lambda held: [each.n for each in held]),
    "exception": (lambda: ValueError(1), arguments, lambda held: held.args),
    "bound iterator": (lambda: itertools.count().__next__, calls, lambda held: held()),
    "partial iterator": (lambda: functools.partial(next, itertools.count()), calls, lambda held: held()),
}


@pytest.mark.parametrize("where", ["global", "argument"])
@pytest.mark.parametrize("name", HELD)
def test_what_cannot_be_taken_back_is_changed_once(name, where):
    make, change, show = HELD[name]
    thing = Thing(held=make())

    @tj.jit
    def by_name(x):
        change(thing)
        print(end="")
        return x * 2

    @tj.jit
    def given(x, thing):
        change(thing)
        print(end="")
        return x * 2

    plain = Thing(held=make())
    for _ in range(3):
        by_name(one()) if where == "global" else given(one(), thing)
        change(plain)
    assert repr(show(thing.held)) == repr(show(plain.held))


@CASES.add
def results_that_a_cache_keeps(jit):
    built = []

    @functools.cache
    def table():
        built.append(1)
        return 2

    @jit
    def step(x):
        factor = table()
        print(end="")
        return x * factor

    return [step(one()), step(one()), built]


@CASES.add
def arrays_that_others_keep(jit):
    cache = collections.UserDict()

    @jit
    def step(x, k):
        if k not in cache:
            cache[k] = x * k
        print(end="")
        return cache[k]

    return [step(one(), k) for k in (1, 2, 1, 2)]


def taken(items):
    return next(zip(items, range(1), strict=False))[0]


def first(items=None):
    return taken(items)


@CASES.add
def iterators_by_other_ways(jit):
    thing, items = Thing(a=iter(range(9))), iter(range(9))
    first.__defaults__, name = (iter(range(9)),), "a"

    @jit
    def step(x, **more):
        found = taken(getattr(thing, name)), first(), taken(more["items"])
        print(end="")
        return x, found

    return [step(one(), items=items) for _ in range(3)]


@CASES.add
def objects_that_are_finalized(jit):
    class Open:
        live = 0

        def __init__(self):
            Open.live += 1

        def __del__(self):
            Open.live -= 1

    @jit
    def step(x):
        held = Open()
        print(end="")
        return x * (2 if held else 3)

    return [step(one()), Open.live, step(one()), Open.live]


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

    with pytest.raises(ReplayError, match="SimpleQueue, whose state a replay cannot check"):
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
