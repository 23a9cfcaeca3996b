"""Promise 9: threads call traced functions at once; results are those of serial calls.

`TRACEJIT_STRESS=60` runs the stress test for that many seconds (two by default).
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import tracejit as tj

THREADS = 8
SECONDS = float(os.environ.get("TRACEJIT_STRESS", "2"))


def together(work):
    """Run ``work(i)`` on eight threads that start at once; their results, or the first error."""
    barrier = threading.Barrier(THREADS)

    def run(i):
        barrier.wait()
        return work(i)

    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(run, range(THREADS)))


def test_one_trace_for_each_signature_however_many_threads_ask():
    @tj.jit
    def step(x, n):
        return x * 2 + n

    def work(i):
        return [float(step(tj.ones(3 + k % 3), float(i)).sum()) for k in range(12)]

    results = together(work)
    for i, values in enumerate(results):
        assert values == [(2 + i) * (3 + k % 3) for k in range(12)]
    assert step.cache_info().traces == 3
    assert step.cache_info().signatures == 3


def test_threads_with_arrays_of_their_own():
    @tj.jit
    def step(state, x, lr):
        state["w"] -= lr * (state["w"] - x)
        state["t"] += 1
        return (state["w"] * state["t"]).sum()

    def work(i):
        state = {"w": tj.ones(50) * i, "t": 0}
        plain, results = np.full(50, i, np.float32), []
        for k in range(40):
            x = np.full(50, k, np.float32)
            results.append((float(step(state, tj.asarray(x), 0.25)), k + 1))
            plain -= np.float32(0.25) * (plain - x)
            assert results[-1][0] == pytest.approx(plain.sum() * (k + 1), rel=1e-4)
        np.testing.assert_allclose(state["w"].numpy(), plain, rtol=1e-5)
        return state["t"]

    assert together(work) == [40] * THREADS
    assert step.cache_info().traces == 1


def test_increments_of_one_array_are_not_lost():
    total = tj.zeros(64)

    @tj.jit
    def add(x):
        total[...] = total + x

    together(lambda i: [add(tj.ones(64)) for _ in range(50)])
    assert total.tolist() == [50.0 * THREADS] * 64


def test_eager_code_in_threads():
    def work(i):
        x, plain = tj.zeros(20), np.zeros(20, np.float32)
        for k in range(60):
            x[k % 20] += i + k
            plain[k % 20] += i + k
            if k % 7 == 0:
                x = x * 0.5
                plain = plain * np.float32(0.5)
        np.testing.assert_allclose(x.numpy(), plain, rtol=1e-6)

    together(work)


def test_eager_arrays_pass_between_threads():
    shared = [tj.ones(16) * i for i in range(THREADS)]

    def work(i):
        return float((shared[(i + 1) % THREADS] * 2 + shared[i]).sum())

    assert together(work) == [16.0 * (2 * ((i + 1) % THREADS) + i) for i in range(THREADS)]


def test_recordings_never_leak_between_threads():
    started, finished = threading.Event(), threading.Event()

    @tj.jit
    def slow(x):
        y = x * 2
        started.set()
        finished.wait(10)
        return y + 1

    other = {}

    def work():
        started.wait(10)
        other["eager"] = (tj.ones(2) * 3).tolist()
        other["jit"] = tj.jit(lambda x: x + 5)(tj.ones(2)).tolist()
        finished.set()

    thread = threading.Thread(target=work)
    thread.start()
    assert slow(tj.ones(2)).tolist() == [3, 3]
    thread.join()
    assert other == {"eager": [3, 3], "jit": [6, 6]}


def test_objects_hold_plain_values_for_other_threads_while_compiling():
    class State:
        def __init__(self):
            self.w, self.t = tj.zeros(4), 0

    states = [State() for _ in range(6)]
    wrong, stop = [], threading.Event()

    def watch():
        while not stop.is_set():
            for state in states:
                seen = state.w.tolist()
                if len(set(seen)) != 1:
                    wrong.append(seen)

    @tj.jit
    def step(state, x):
        state.w = state.w + x
        state.t += 1

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        for state in states:
            for _ in range(5):
                step(state, tj.ones(4))
    finally:
        stop.set()
        thread.join()
    assert not wrong
    assert [s.w.tolist() for s in states] == [[5.0] * 4] * 6


def test_random_numbers_drawn_by_threads_are_distinct():
    @tj.jit
    def draw(x):
        return tj.random.uniform(shape=1000) + x * 0

    results = together(lambda i: [draw(tj.zeros(1)).numpy() for _ in range(5)])
    draws = [tuple(d[:4]) for values in results for d in values]
    assert len(set(draws)) == len(draws)


def run_apart(code):
    """Run a program in a process of its own, so that one that hangs is an error; its output."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    "statement", ["y = x + 1", "y = step(x)", "y = grad(x)", "y = tj.where(x > 2, x, 0) + 1"]
)
def test_waiting_for_memory_that_python_sees_lets_tasks_go_on(statement):
    """A statement waits for a Python task, which itself needs the recorder."""
    printed = run_apart(f"""
        import threading, time
        import numpy as np, tracejit as tj

        memory = np.zeros(4000, np.float32)
        x, busy = tj.from_dlpack(memory), threading.Event()
        step, grad = tj.jit(lambda x: x + 1), tj.grad(lambda x: (x * x).sum() * 0.5 + x.sum())
        {statement}

        def load():
            busy.wait(10)
            time.sleep(0.2)  # until the statement waits
            x[...] = tj.ones(4000) * 3

        for _ in range(3):
            busy.clear()
            tj.engine.push(load, writes=[x])
            busy.set()
            {statement}
            print(float(y[0]), memory[0])
            memory[...] = 0
    """)
    assert printed == "4.0 3.0\n" * 3


def test_stress():
    """Many functions, signatures and arrays, shared and not, until the time is up."""
    functions = [tj.jit(lambda x, n, k=k: (x * n + k).sum()) for k in range(4)]
    counters = [tj.zeros(8) for _ in range(4)]
    increments = [[0] * 4 for _ in range(THREADS)]

    @tj.jit
    def bump(counter):
        counter += 1

    end = time.monotonic() + SECONDS

    def work(i):
        rng = np.random.default_rng(i)
        while time.monotonic() < end:
            k, size, n = int(rng.integers(4)), int(rng.integers(1, 9)), float(rng.integers(5))
            x = rng.integers(0, 10, size).astype(np.float32)
            assert float(functions[k](tj.asarray(x), n)) == (x * n + k).sum()
            c = int(rng.integers(4))
            bump(counters[c])
            increments[i][c] += 1
            if rng.random() < 0.1:
                y = tj.asarray(x)
                y[0] += 5
                assert float(y.sum()) == x.sum() + 5

    together(work)
    for c in range(4):
        assert counters[c].tolist() == [sum(done[c] for done in increments)] * 8
    assert bump.cache_info().traces == 1
    assert all(f.cache_info().traces <= 8 for f in functions)


@contextlib.contextmanager
def alarms(handler, first=2e-4, then=2e-4):
    before = signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, first, then)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.cpu("it interrupts Python, of which the driver of these tests is made")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # where nobody may raise
def test_a_handler_of_signals_that_raises_leaves_the_watch_in_order():
    @tj.jit
    def step(x):
        for i in range(20):
            x = x + i
        return x.sum()

    @tj.jit
    def timed(x):
        return x + time.time()

    def stop(number, frame):
        raise TimeoutError

    stopped = 0
    for n in range(1, 100):
        try:
            with alarms(stop, first=n * 5e-5, then=0):
                step(tj.zeros(n))
        except TimeoutError:
            stopped += 1
        assert step(tj.zeros(n)).item() == n * 190
    assert stopped > 0
    first, second = timed(tj.zeros(1)).item(), timed(tj.zeros(1)).item()
    assert second >= first > 1e9
