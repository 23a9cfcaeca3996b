"""Prefetching: order, overlap, errors, ends, forks and exits."""

import gc
import itertools
import os
import subprocess
import sys
import textwrap
import threading
import time
import traceback
import weakref

import numpy as np
import pytest

import tracejit as tj

prefetch = tj.data.prefetch


def wait_until(condition):
    """Wait for what other threads do."""
    for _ in range(500):
        if condition():
            return
        time.sleep(0.01)
    raise AssertionError("it did not happen")


@pytest.mark.parametrize("depth", [1, 2, 7])
def test_order_is_kept(depth):
    assert list(prefetch(range(20), depth)) == list(range(20))
    assert list(prefetch([], depth)) == []
    assert [x + y for x, y in zip(prefetch(range(5)), prefetch(iter(range(5))), strict=True)] == [
        0,
        2,
        4,
        6,
        8,
    ]


def test_items_are_loaded_ahead_and_no_further():
    taken = []

    def source():
        for i in range(10):
            taken.append(i)
            yield i

    batches = prefetch(source(), 3)
    wait_until(lambda: taken == [0, 1, 2])
    time.sleep(0.05)
    assert taken == [0, 1, 2]
    assert next(batches) == 0
    wait_until(lambda: taken == [0, 1, 2, 3])
    assert list(batches) == list(range(1, 10))
    assert list(batches) == []


def test_loading_overlaps_the_consumer():
    """The source goes on only while the consumer computes: they would wait for each other otherwise."""
    consumed = [threading.Event() for _ in range(4)]
    asked = [threading.Event() for _ in range(4)]

    def source():
        for i in range(4):
            yield i
            assert consumed[i].wait(5)
            asked[i].set()

    for i in prefetch(source(), 1):
        consumed[i].set()
        assert asked[i].wait(5)


def test_arrays_are_made_ahead_and_used_by_steps():
    @tj.jit
    def step(w, x):
        w += x.sum()
        return w.copy()

    w = tj.zeros(())
    rows = (np.full(4, i, np.float32) for i in range(6))
    seen = [float(step(w, x)) for x in prefetch(map(tj.asarray, rows))]
    assert seen == [0, 4, 12, 24, 40, 60]
    assert step.cache_info().traces == 1


def failing(error):
    yield 1
    raise error


def test_errors_arrive_with_their_traceback():
    batches = prefetch(failing(ZeroDivisionError("the file is damaged")))
    assert next(batches) == 1
    with pytest.raises(ZeroDivisionError, match="damaged") as caught:
        next(batches)
    names = [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert "failing" in names
    assert list(batches) == []
    with pytest.raises(KeyboardInterrupt):
        list(prefetch(failing(KeyboardInterrupt())))
    tj.wait_all()  # nothing is left that fails


def test_the_source_is_dropped():
    class Source:
        def __iter__(self):
            return self

        def __next__(self):
            return 1

    def of(end):
        source = Source()
        gone = weakref.ref(source)
        batches = prefetch(source)
        del source
        end(batches)
        del batches
        gc.collect()
        wait_until(lambda: gone() is None)

    def leave(batches):
        for _ in batches:
            break

    def leave_with_an_error(batches):
        with pytest.raises(ValueError, match="stop"), batches:
            raise ValueError("stop")

    for end in (lambda batches: batches.close(), leave, leave_with_an_error, lambda batches: None):
        of(end)


def test_generators_are_closed():
    ended = threading.Event()

    def source():
        try:
            yield from itertools.count()
        finally:
            ended.set()

    with prefetch(source()) as batches:
        assert next(batches) == 0
    assert list(batches) == []
    del batches
    wait_until(ended.is_set)


def test_a_traced_function_that_iterates_is_piecewise():
    batches = prefetch(range(5))
    step = tj.jit(lambda x: x + next(batches))
    assert [float(step(tj.zeros(()))) for _ in range(3)] == [0, 1, 2]
    assert "batches is an iterator" in step.explain()
    total = tj.jit(lambda x: sum((row for row in prefetch([x, x])), x))
    assert [float(total(tj.ones(()))) for _ in range(2)] == [3, 3]
    assert "tj.data.prefetch gives other items" in total.explain()


def test_errors():
    for call, says in (
        (lambda: prefetch(3), "expected an iterable, got int"),
        (lambda: prefetch([], 0), "a depth of at least 1, got 0"),
        (lambda: prefetch([], "x"), "expected an integer, got str"),
    ):
        with pytest.raises(tj.errors.ArgumentError, match=rf"data\.prefetch.*{says}(?s:.*)test_data"):
            call()


def outcome(code):
    """What a process prints, and its status."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=60, check=False
    )
    return done.stdout, done.stderr, done.returncode


def test_exit_waits_for_no_more_than_what_is_running():
    code = """
    import atexit, time
    taken = []
    atexit.register(lambda: print(len(taken) < 15))  # runs last; 5 seconds would be enough for 25
    import tracejit as tj
    def source():
        while True:
            time.sleep(0.2)
            taken.append(1)
            yield 1
    batches = tj.data.prefetch(source(), 50)
    print(next(batches))
    """
    out, err, status = outcome(code)
    assert (out, err, status) == ("1\nTrue\n", "", 0)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_goes_on_by_itself():
    code = """
    import os, sys, tracejit as tj
    batches = tj.data.prefetch(range(6))
    first = next(batches)
    child = os.fork()
    rest = list(batches)
    if child == 0:
        print("child", rest, flush=True)
        os._exit(0)
    os.waitpid(child, 0)
    print("parent", first, rest)
    """
    out, err, status = outcome(code)
    assert status == 0, err
    assert out == "child [1, 2, 3, 4, 5]\nparent 0 [1, 2, 3, 4, 5]\n"
