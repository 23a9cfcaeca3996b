"""Python tasks: order, overlap, priorities, asynchronous completion, waiting inside tasks."""

import threading
import time

import pytest

from tracejit import engine
from tracejit.config import config
from tracejit.engine import Variable
from tracejit.engine.hosts import hosts
from tracejit.errors import ArgumentError, DeviceError, EngineError


def test_writers_run_in_order():
    variable, seen = Variable(), []
    for i in range(300):
        engine.push(lambda i=i: seen.append(i), writes=[variable])
    engine.wait(variable)
    assert seen == list(range(300))


def test_readers_run_at_once_and_between_writers():
    """Both readers must be inside at the same time to pass the barrier, and the writer comes after both."""
    variable, barrier, seen = Variable(), threading.Barrier(2), []

    def read():
        barrier.wait(10)
        seen.append("read")

    engine.push(lambda: seen.append("first"), writes=[variable])
    engine.push(read, reads=[variable])
    engine.push(read, reads=[variable])
    engine.push(lambda: seen.append("last"), writes=[variable])
    engine.wait(variable)
    assert seen == ["first", "read", "read", "last"]


def test_independent_tasks_overlap():
    barrier = threading.Barrier(3)
    variables = [Variable() for _ in range(3)]
    for variable in variables:
        engine.push(lambda: barrier.wait(10), writes=[variable])
    engine.wait_all()


def test_priorities_order_ready_python_tasks(monkeypatch):
    monkeypatch.setattr(hosts, "_limit", 1)
    hosts.stop(10)
    gate, seen, entered, leave = Variable(), [], threading.Event(), threading.Event()

    def hold():
        entered.set()
        leave.wait(10)

    engine.push(hold, writes=[gate])
    entered.wait(10)
    for i, priority in enumerate([0, 7, -1, 7, 3]):
        engine.push(lambda i=i: seen.append(i), priority=priority)
    leave.set()
    engine.wait_all()
    assert seen == [1, 3, 4, 0, 2]


def test_wait_waits_for_this_variable_only():
    slow, quick, leave, seen = Variable(), Variable(), threading.Event(), []
    engine.push(lambda: leave.wait(10), writes=[slow])
    engine.push(lambda: seen.append(1), writes=[quick])
    engine.wait(quick)
    assert seen == [1]
    leave.set()
    engine.wait(slow)


def test_exclusive_wait_waits_for_readers_too():
    variable, leave, entered, left = Variable(), threading.Event(), threading.Event(), []

    def read():
        entered.set()
        leave.wait(10)
        left.append(1)

    engine.push(read, reads=[variable])
    entered.wait(10)
    engine.wait(variable)  # no writer: returns at once
    assert not left
    threading.Timer(0.02, leave.set).start()
    engine.wait(variable, exclusive=True)
    assert left == [1]


def test_asynchronous_tasks_end_when_completed():
    variable, completions, seen = Variable(), [], []
    engine.push(completions.append, writes=[variable], asynchronous=True)
    engine.push(lambda: seen.append("after"), reads=[variable])
    while not completions:
        time.sleep(1e-4)
    time.sleep(0.01)
    assert not seen
    completions[0]()
    engine.wait_all()
    assert seen == ["after"]
    with pytest.raises(EngineError, match="twice"):
        completions[0]()


def test_an_asynchronous_task_may_complete_inside_itself():
    variable = Variable()
    engine.push(lambda on_complete: on_complete(), writes=[variable], asynchronous=True)
    engine.wait(variable)


def test_tasks_that_wait_do_not_use_up_the_threads():
    """A tower of tasks, each waiting for the next, many times higher than the pool is wide."""
    height, variables, seen = 40, [Variable() for _ in range(41)], []

    def climb(level):
        if level < height:
            engine.push(lambda: climb(level + 1), writes=[variables[level + 1]])
            engine.wait(variables[level + 1])
        seen.append(level)

    engine.push(lambda: climb(0), writes=[variables[0]])
    engine.wait(variables[0])
    assert seen == list(range(height, -1, -1))


def test_waiting_for_ones_own_variables_returns_at_once():
    a, b, seen = Variable(), Variable(), []

    def task():
        engine.wait(a)
        engine.wait(b)
        seen.append(1)

    engine.push(task, reads=[a], writes=[b])
    engine.push(lambda: seen.append(2), writes=[a])
    engine.wait(a)
    engine.wait(b)
    assert seen == [1, 2]


def test_wait_all_inside_a_task_is_refused():
    variable, caught = Variable(), []

    def task():
        try:
            engine.wait_all()
        except EngineError as error:
            caught.append(error)

    engine.push(task, writes=[variable])
    engine.wait(variable)
    assert "itself" in str(caught[0])


def test_one_variable_read_and_written_by_one_task():
    variable, seen = Variable(), []
    engine.push(lambda: seen.append(1), reads=[variable, variable], writes=[variable, variable])
    engine.push(lambda: seen.append(2), reads=[variable])
    engine.wait_all()
    assert seen == [1, 2]


def test_variables_are_recycled_only_when_unused():
    """A task keeps its variables: new ones made meanwhile do not share their records."""
    leave = threading.Event()
    variable = Variable()
    address = variable.address
    engine.push(lambda: leave.wait(10), writes=[variable])
    del variable
    fresh = [Variable() for _ in range(2000)]
    assert address not in {v.address for v in fresh}
    leave.set()
    engine.wait_all()


def test_naive_engine_runs_python_tasks_on_the_calling_thread(monkeypatch):
    monkeypatch.setattr(config, "engine", "naive")
    seen, variable = [], Variable()
    engine.push(lambda: seen.append(threading.current_thread()), writes=[variable])
    assert seen == [threading.current_thread()]
    engine.push(lambda: 1 / 0, writes=[variable])
    with pytest.raises(EngineError, match="ZeroDivisionError"):
        engine.wait(variable)
    completions = []
    engine.push(completions.append, writes=[variable], asynchronous=True)
    engine.push(lambda: seen.append("after"), reads=[variable])
    assert len(seen) == 1
    completions[0]()
    assert seen[1:] == ["after"]


def test_wrong_arguments():
    with pytest.raises(ArgumentError, match="engine variables"):
        engine.push(print, reads=["x"])
    with pytest.raises(DeviceError, match="gpu"):
        engine.push(print, device="gpu:0")
    with pytest.raises(ArgumentError, match="-1"):
        engine.set_workers(-1)


@pytest.mark.parametrize("priority", [2**70, 2**63, -(2**63) - 1, 1.5, None])
def test_a_priority_that_is_no_word_is_refused(priority):
    with pytest.raises(ArgumentError, match="priority"):
        engine.push(lambda: None, priority=priority)
    seen = []
    engine.push(lambda: seen.append(1), priority=2**63 - 1)
    engine.wait_all()
    assert seen == [1]
