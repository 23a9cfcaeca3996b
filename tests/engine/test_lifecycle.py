"""Fork, exit, and changing the workers while there is work."""

import os
import pathlib
import random
import subprocess
import sys
import textwrap
import threading
import time

import numpy as np
import pytest

from tests.engine.programs import pack, task
from tracejit import engine
from tracejit.engine import FRESH, WRITE, Program, Variable
from tracejit.errors import EngineError

BIG = 1 << 30
ROOT = pathlib.Path(__file__).parents[2]


HEADER = """
import threading, time
from tests.engine import conftest
from tests.engine.programs import pack, task
from tracejit import engine
from tracejit.engine import *
"""


def run_script(body, *, timeout=60):
    """Run a script in a process of its own that has the executor installed; its completed process."""
    return subprocess.run(
        [sys.executable, "-c", HEADER + textwrap.dedent(body)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=timeout,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


def test_pending_work_is_done_at_exit():
    done = run_script(
        """
        v = Variable()
        program = Program([task("nothing", uses=(0,), cost=1 << 30)], arguments=[WRITE])
        for i in range(5):
            program.launch(pack((0, v)), v)
            push(lambda i=i: (time.sleep(0.02), print("task", i, flush=True)), writes=[v])
        """
    )
    assert done.stderr == ""
    assert done.stdout.split() == [word for i in range(5) for word in ("task", str(i))]
    assert done.returncode == 0


@pytest.mark.parametrize("workers", [0, 2])
def test_tasks_are_done_at_exit_where_no_thread_can_be_started(workers):
    """As in Python 3.12 when the interpreter ends; some tasks wait for others."""
    done = run_script(
        f"""
        import atexit
        engine.set_workers({workers})
        def refuse(thread):
            raise RuntimeError("can't create new thread at interpreter shutdown")
        def refuse_all():
            threading.Thread.start = refuse
        variables = [Variable() for _ in range(12)]
        def chain(i):
            time.sleep(0.01)
            if i < 8:
                push(lambda: print("task\\n", end="", flush=True), writes=[variables[i]])
            if i < 4:
                wait(variables[i])
        for i in range(12):
            push(lambda i=i: chain(i))
        atexit.register(refuse_all)
        """
    )
    assert (done.stderr, done.stdout.split(), done.returncode) == ("", ["task"] * 8, 0)


def test_what_never_ends_cannot_hold_up_the_exit():
    """A pending task, one stuck in Python, and native work behind them; and an error that nobody saw."""
    start = time.monotonic()
    done = run_script(
        """
        engine.lifecycle.PATIENCE = 0.2
        a, b, c = Variable(), Variable(), Variable()
        push(lambda done: None, writes=[a], asynchronous=True)
        push(threading.Event().wait, writes=[b])
        program = Program([task("nothing", uses=(0, 1), cost=1 << 30)], arguments=[WRITE, WRITE])
        program.launch(pack((0, a), (0, b)), (a, b))
        push(lambda: 1 / 0, writes=[c], name="unseen")
        """
    )
    assert done.returncode == 0
    assert "unseen" in done.stderr
    assert "ZeroDivisionError" in done.stderr
    assert time.monotonic() - start < 30


def test_exit_while_workers_compute():
    done = run_script(
        """
        import numpy as np
        engine.lifecycle.PATIENCE = 0.01
        engine.set_workers(3)
        out, v = np.zeros(4096, np.int64), Variable()
        program = Program([task("spin", 0, 4096, 1, uses=(0,), cost=1 << 30)], [0, 0, 100_000],
                          [(0, 0, 0)], arguments=[FRESH])
        program.launch(pack((out.ctypes.data, v)), (out, v))
        print("launched")
        """
    )
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "launched", "")


def in_child(check):
    """Fork; run `check` in the child; its result must be true."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            code = 0 if check() else 2
        except BaseException as error:
            print("child:", repr(error), file=sys.stderr, flush=True)
        finally:
            os._exit(code)
    end = time.monotonic() + 30
    while True:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            assert os.waitstatus_to_exitcode(status) == 0
            return
        if time.monotonic() > end:
            os.kill(pid, 9)
            os.waitpid(pid, 0)
            pytest.fail("the child hangs")
        time.sleep(0.001)


pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")


def test_parent_and_child_both_work_after_a_fork():
    engine.set_workers(2)
    out, variable, seen = np.zeros(64, np.int64), Variable(), []
    program = Program(
        [task("spin", 0, 64, 1, uses=(0,), cost=BIG)], [0, 0, 20_000], [(0, 0, 0)], arguments=[FRESH]
    )

    def work():
        out[:] = 0
        program.launch(pack((out.ctypes.data, variable)), (out, variable))
        engine.push(lambda: seen.append(np.count_nonzero(out)), reads=[variable])
        engine.wait(variable, exclusive=True)
        engine.wait_all()
        return seen.pop() == 64

    assert work()
    for _ in range(5):
        program.launch(pack((out.ctypes.data, variable)), (out, variable))  # in flight during the fork
        in_child(work)
        assert work()


def test_fork_while_other_threads_launch():
    engine.set_workers(2)
    cell, stop = np.zeros(2, np.int64), threading.Event()
    variable = Variable()
    program = Program(
        [task("mix", uses=(0,), cost=BIG)] * 3, [0, 0, 1], [(0, 0, 0), (1, 0, 8)], arguments=[WRITE]
    )

    def launch_often():
        while not stop.is_set():
            program.launch(pack((cell.ctypes.data, variable)), (cell, variable))

    thread = threading.Thread(target=launch_often)
    thread.start()
    try:
        for _ in range(5):
            own = Variable()

            def work(own=own):
                for _ in range(20):
                    program.launch(pack((cell.ctypes.data, own)), (cell, own))
                engine.wait(own)
                engine.wait_all()
                return True

            in_child(work)
    finally:
        stop.set()
        thread.join()
    engine.wait_all()


def test_a_python_task_of_the_parent_fails_in_the_child(monkeypatch):
    monkeypatch.setattr(engine.lifecycle, "PATIENCE", 0.05)
    variable, leave, entered = Variable(), threading.Event(), threading.Event()

    def hold():
        entered.set()
        leave.wait(20)

    engine.push(hold, writes=[variable], name="holder")
    entered.wait(10)

    def check():
        with pytest.raises(EngineError, match=r"holder.*forked"):
            engine.wait(variable)
        engine.push(lambda: None, writes=[variable])
        engine.wait(variable)
        return True

    in_child(check)
    leave.set()
    engine.wait(variable)


def test_fork_inside_a_python_task():
    variable, other, results = Variable(), Variable(), []

    def task():
        def check():
            engine.push(lambda: None, writes=[other])
            engine.wait(other)
            return True

        in_child(check)
        results.append("parent goes on")

    engine.push(task, writes=[variable])
    engine.wait(variable)
    assert results == ["parent goes on"]


def test_workers_may_change_while_there_is_work():
    rng, variable, cell = random.Random(1), Variable(), np.zeros(2, np.int64)
    cell[1] = 1
    program = Program(
        [task("mix", uses=(0,), cost=BIG, after=range(i)) for i in range(4)],
        [0, 0, 1],
        [(0, 0, 0), (1, 0, 8)],
        arguments=[WRITE],
    )
    for _ in range(100):
        program.launch(pack((cell.ctypes.data, variable)), (cell, variable))
        if rng.random() < 0.2:
            engine.set_workers(rng.randrange(4))
    engine.wait(variable)
    expected = 0
    for _ in range(400):
        expected = (expected * 31 + 7 + 1) & (1 << 64) - 1
    assert int(cell[0]) & (1 << 64) - 1 == expected


def test_short_lived_threads_may_launch_and_wait():
    variable, cell = Variable(), np.zeros(2, np.int64)
    program = Program(
        [task("mix", uses=(0,), cost=BIG)], [0, 0, 1], [(0, 0, 0), (1, 0, 8)], arguments=[WRITE]
    )

    def use():
        program.launch(pack((cell.ctypes.data, variable)), (cell, variable))
        engine.wait(variable)

    for _ in range(30):
        threads = [threading.Thread(target=use) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert cell[0] != 0
