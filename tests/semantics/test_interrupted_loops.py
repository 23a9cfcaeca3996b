"""Ctrl-C inside a native loop is answered at once; the loop goes on, and writes its arrays wholly."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import tracejit as tj
from tracejit import engine
from tracejit.engine import lifecycle

pytestmark = pytest.mark.cpu("it interrupts Python, of which the driver of these tests is made")

ANSWER = 0.1  # seconds on an idle machine
BUSY = 0.4  # and on one that has other things to do


@tj.jit
def walk(x, y, n):
    for _ in tj.range(n):
        x[...] = x * 0.999 + y
        y[...] = y * 0.5 + x


@tj.jit
def nested(x, y, n):
    """Long rounds: the inner loop is left, too."""
    for _ in tj.range(4):
        y[...] = y + 1.0
        for _ in tj.range(n):
            x[...] = x * 0.999 + y


class Alarm:
    """A signal that raises KeyboardInterrupt in the main thread after a time; `sent` is when."""

    def __init__(self, seconds):
        self.seconds, self.sent = seconds, 0.0

    def __enter__(self):
        self.before = signal.signal(signal.SIGALRM, self._interrupt)
        self.due = time.monotonic() + self.seconds
        signal.setitimer(signal.ITIMER_REAL, self.seconds)
        return self

    def __exit__(self, *_):
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, self.before)

    def _interrupt(self, number, frame):
        raise KeyboardInterrupt


def given():
    return tj.asarray(np.linspace(0.0, 1.0, 8)), tj.zeros(8, dtype="float64")


def rounds_of(body, seconds):
    """How many rounds take about so long."""
    n = 1000
    while True:
        x, y = given()
        body(x, y, n)
        x.wait()
        x, y = given()
        start = time.monotonic()
        body(x, y, n)
        x.wait()
        took = time.monotonic() - start
        if took > 0.02:
            return int(n * seconds / took)
        n *= 4


@pytest.fixture(params=[0, 1])
def workers(request):
    count = engine.workers.count
    engine.set_workers(request.param)
    yield request.param
    engine.set_workers(count)


def interrupted(body, n):
    """The arrays of a call of `n` rounds, or more, that was interrupted, how many rounds it has, and how long
    the answer took.
    """
    while True:
        x, y = given()
        with Alarm(0.2) as alarm:
            try:
                body(x, y, n)
                x.wait()
                n *= 2  # it took less time than was expected
                continue
            except KeyboardInterrupt:
                seconds = time.monotonic() - alarm.due
        assert (tj.arange(4.0) + 1.0).tolist() == [1.0, 2.0, 3.0, 4.0]  # the engine goes on
        if y.numpy().any():  # else the launch had not been made
            return x, y, n, seconds


@pytest.mark.parametrize("body", [walk, nested])
def test_an_interrupt_does_not_wait_for_a_loop(body, workers):
    x, y, n, seconds = interrupted(body, rounds_of(body, 0.6))
    assert seconds < BUSY
    expected = given()
    body(*expected, n)
    for found, wanted in zip((x, y), expected, strict=True):
        np.testing.assert_array_equal(found.numpy(), wanted.numpy())


@pytest.mark.parametrize("workers", [1], indirect=True)
def test_many_interrupts_of_one_loop(workers):
    n = rounds_of(walk, 0.6)
    expected = given()
    walk(*expected, n)
    x, y = given()
    walk(x, y, n)
    hits = 0
    while hits < 8:
        try:
            with Alarm(0.01):
                x.wait()
                break
        except KeyboardInterrupt:
            hits += 1
    assert hits >= 1
    for found, wanted in zip((x, y), expected, strict=True):
        np.testing.assert_array_equal(found.numpy(), wanted.numpy())


SCRIPT = """
import sys, time
import tracejit as tj
from tracejit.engine import lifecycle

lifecycle.PATIENCE = 0.2

@tj.jit
def walk(x, n):
    for _ in tj.range(n):
        x[...] = x * 0.999 + 1.0

x = tj.zeros(8)
walk(x, 100)
x.wait()
print("ready", flush=True)
walk(x, 1 << 40)
x.wait()
"""


def test_ctrl_c_ends_a_script(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    process = subprocess.Popen(
        [sys.executable, str(script)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        start = time.monotonic()
        _, told = process.communicate(timeout=20)
        assert time.monotonic() - start < 5.0
    finally:
        process.kill()
    assert "KeyboardInterrupt" in told
    assert process.returncode != 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_parent_and_child_go_on_with_a_loop(monkeypatch):
    monkeypatch.setattr(lifecycle, "PATIENCE", 0.05)
    n = rounds_of(walk, 0.6)
    expected = given()
    walk(*expected, n)
    wanted = [a.numpy().copy() for a in expected]
    x, y = given()
    walk(x, y, n)
    pid = os.fork()
    same = all(np.array_equal(a.numpy(), b) for a, b in zip((x, y), wanted, strict=True))
    if pid == 0:
        os._exit(0 if same else 1)
    assert same
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
