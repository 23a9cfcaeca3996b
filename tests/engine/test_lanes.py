"""Lanes: a queue of its own, with workers, for each device, for Python tasks and for communication."""

import threading
import time

import numpy as np
import pytest

from tests.engine.programs import pack, task
from tests.engine.test_lifecycle import run_script
from tracejit import engine
from tracejit.config import config
from tracejit.engine import (
    COMMUNICATION,
    FRESH,
    HOST,
    READ,
    WRITE,
    Program,
    Task,
    Variable,
    available_processors,
)
from tracejit.errors import ArgumentError, EngineError, OutOfBoundsError

BIG = 1 << 30


def python(function, **rest):
    rest.setdefault("name", function.__name__)
    return Task(location=None, function=0, block=0, units=0, chunk=1, callable=function, **rest)


def events_of(program, *arguments):
    with engine.profile() as profile:
        program.launch(pack(*arguments), arguments)
        engine.wait_all()
    return profile.events


def test_each_device_has_workers_and_one_launch_spans_several():
    engine.set_workers(1)
    out, variable = np.zeros(64, np.int64), Variable()
    tasks = [
        task("spin", 0, units=32, uses=(0,), cost=BIG, lane=0, name="here"),
        task("spin", 3, units=32, uses=(0,), cost=BIG, lane=3, name="there"),
        python(lambda block: None, after=(0, 1), name="between"),
    ]
    patches = [(0, 0, 0), (3, 0, 256)]
    program = Program(tasks, [0, 0, 1000, 0, 0, 1000], patches, arguments=[FRESH])
    events = events_of(program, (out.ctypes.data, variable))
    assert {event.lane for event in events if event.name == "here"} == {"cpu:0"}
    there = [event for event in events if event.name == "there"]
    assert {event.lane for event in there} == {"cpu:3"}
    assert {event.thread for event in there} <= {"cpu:3 worker 0", threading.current_thread().name}
    assert {event.lane for event in events if event.name == "between"} == {"host"}
    assert len({event.launch for event in events}) == 1
    assert {event.nbytes for event in events} == {BIG, 0}
    np.testing.assert_array_equal(out[:32], out[32:])


def test_threads_that_wait_compute_nothing_where_other_ranks_have_the_processors(monkeypatch):
    monkeypatch.setattr(available_processors, "_sharing", [max(2, engine.processors())])  # one processor each
    engine.set_workers(1)
    out, variable = np.zeros(64, np.int64), Variable()
    tasks = [task("spin", units=64, uses=(0,), cost=BIG, name="chunks")]
    program = Program(tasks, [0, 0, 100_000], [(0, 0, 0)], arguments=[FRESH])
    events = events_of(program, (out.ctypes.data, variable))
    assert {event.thread for event in events} == {"worker 0"}


def test_a_busy_device_does_not_keep_the_others():
    """A long kernel on one lane, many short ones on another: these end first."""
    engine.set_workers(1)
    out, long, short = np.zeros(2, np.int64), Variable(), Variable()
    arguments = [(out.ctypes.data, long), (out.ctypes.data + 8, short)]
    first = Program(
        [task("spin", lane=1, uses=(0,), cost=BIG)], [0, 0, 500_000_000], [(0, 0, 0)], arguments=[FRESH]
    )
    second = Program([task("spin", lane=2, uses=(0,), cost=BIG)], [0, 0, 1], [(0, 0, 0)], arguments=[FRESH])
    first.launch(pack(arguments[0]), (out, long))
    time.sleep(0.1)  # its worker begins it; a thread that waits would help
    for _ in range(20):
        second.launch(pack(arguments[1]), (out, short))
    engine.wait(short)
    assert not long.ready
    engine.wait(long)


@pytest.mark.parametrize("lane", [HOST, COMMUNICATION])
def test_priorities_order_what_is_ready_on_a_python_lane(lane, monkeypatch):
    monkeypatch.setattr(engine.hosts.hosts, "_limit", 1)
    engine.stop()  # so that the lane starts with one thread
    gate, entered, seen, done = threading.Event(), threading.Event(), [], Variable()

    def hold(block):
        entered.set()
        gate.wait()

    Program([python(hold, lane=lane)], [0]).launch(b"", None)
    entered.wait()
    tasks = [
        python(lambda block, i=i: seen.append(i), lane=lane, priority=i % 3, uses=(0,)) for i in range(9)
    ]
    Program(tasks, [0], arguments=[READ]).launch(pack((0, done)), done)
    gate.set()
    engine.wait_all()
    assert seen == [2, 5, 8, 1, 4, 7, 0, 3, 6]


def test_priorities_order_what_is_ready_on_a_device():
    engine.set_workers(0)
    trail, order = np.zeros(10, np.int64), Variable()
    blocks = [slot for i in range(9) for slot in (0, 0, i)]
    patches = [(3 * i, 0, 0) for i in range(9)]
    tasks = [task("trail", 3 * i, cost=BIG, priority=i % 3, lane=1, name=str(i)) for i in range(9)]
    program = Program(tasks, blocks, patches, arguments=[FRESH])
    events = events_of(program, (trail.ctypes.data, order))
    assert [int(event.name) for event in events] == [2, 5, 8, 1, 4, 7, 0, 3, 6]


def test_communication_has_one_thread_even_if_its_tasks_wait():
    names, v = set(), Variable()

    def note(block):
        names.add(threading.current_thread().name)
        time.sleep(0.001)

    for _ in range(8):
        Program([python(note, lane=COMMUNICATION)], [0]).launch(b"", None)
    engine.wait_all()
    assert len(names) == 1
    assert "communication" in names.pop()
    engine.push(lambda: None, writes=[v])
    engine.wait(v)


@pytest.mark.parametrize("naive", [False, True])
def test_what_runs_always_runs_in_a_failed_launch_and_learns_why(naive, monkeypatch):
    if naive:
        monkeypatch.setattr(config, "engine", "naive")
    values, variable, told = np.array([1, -1], np.int64), Variable(), []

    def skipped(block):
        raise AssertionError("runs although the launch has failed")

    tasks = [
        task("check", units=2, chunk=2, uses=(0,), can_fail=True),
        python(skipped, after=(0,)),
        python(lambda block, failure: told.append(failure), after=(1,), always=True, name="tell"),
        python(lambda block, failure: told.append(failure), lane=COMMUNICATION, after=(2,), always=True),
    ]
    program = Program(
        tasks,
        [0, 0, 0],
        [(1, 0, 0)],
        arguments=[WRITE],
        on_error=lambda index, status, block: OutOfBoundsError(f"number {status - 1}"),
    )
    program.launch(pack((values.ctypes.data, variable)), (values, variable))
    with pytest.raises(OutOfBoundsError, match="number 1"):
        engine.wait(variable)
    engine.wait_all()
    assert [str(failure) for failure in told] == ["number 1"] * 2
    values[1] = 1
    told.clear()
    tasks[1] = python(lambda block: None, after=(0,))
    Program(tasks, [0, 0, 0], [(1, 0, 0)], arguments=[WRITE]).launch(
        pack((values.ctypes.data, variable)), (values, variable)
    )
    engine.wait_all()
    assert told == [None, None]


def test_what_runs_always_runs_when_an_input_is_poisoned():
    variable, told = Variable(), []
    engine.push(lambda: 1 / 0, writes=[variable])
    tell = python(lambda block, failure: told.append(failure), always=True, uses=(0,))
    Program([tell], [0], arguments=[READ]).launch(pack((0, variable)), variable)
    with pytest.raises(EngineError, match="ZeroDivisionError"):
        engine.wait(variable)
    engine.wait_all()
    assert "ZeroDivisionError" in str(told[0])


def test_an_asynchronous_task_of_a_program_is_pending_until_it_is_completed():
    variable, finish, after = Variable(), [], []
    tasks = [
        python(lambda block, on_complete: finish.append(on_complete), asynchronous=True, uses=(0,)),
        python(lambda block: after.append(1), after=(0,)),
    ]
    program = Program(tasks, [0], arguments=[FRESH])
    program.launch(pack((0, variable)), variable)
    while not finish:
        time.sleep(0.001)
    assert (variable.ready, after) == (False, [])
    finish.pop()()
    engine.wait_all()
    assert (variable.ready, after) == (True, [1])
    program.launch(pack((0, variable)), variable)
    while not finish:
        time.sleep(0.001)
    finish.pop()(ValueError("the peer is gone"))
    with pytest.raises(EngineError, match="the peer is gone"):
        engine.wait(variable)
    with pytest.raises(EngineError, match="the peer is gone"):
        engine.wait(variable)
    assert after == [1]
    engine.push(lambda: None, writes=[variable])
    engine.wait_all()


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (lambda: task("nothing", lane=-1), "a kernel runs on a device"),
        (lambda: python(lambda block: None, lane=0), "a Python task on HOST"),
        (lambda: python(lambda block: None, lane=-3), "a Python task on HOST"),
        (lambda: task("nothing", always=True), "only Python tasks run always"),
        (lambda: task("nothing", asynchronous=True), "or are asynchronous"),
    ],
)
def test_tasks_on_lanes_that_do_not_fit(bad, message):
    with pytest.raises(ArgumentError, match=message):
        Program([bad()], [0, 0, 0])


@pytest.mark.parametrize("count", [-1, 1.5, "2", None, True])
def test_bad_counts_of_workers_are_refused(count):
    with pytest.raises(ArgumentError, match="set_workers: expected a count of at least 0"):
        engine.set_workers(count)
    with pytest.raises(ArgumentError, match="set_workers: expected a device of at least 0"):
        engine.set_workers(1, device=-1)


def test_workers_of_one_device():
    engine.set_workers(2, device=4)
    names = [t.name for t in threading.enumerate()]
    assert sum("cpu:4 worker" in name for name in names) == 2
    with pytest.raises(ArgumentError, match="either every device has workers"):
        engine.set_workers(0, device=4)
    engine.set_workers(0)
    assert engine.workers.count_of(4) == engine.workers.count_of(77) == 0
    with pytest.raises(ArgumentError, match="either every device has workers"):
        engine.set_workers(1, device=4)


def test_stop_ends_all_threads_and_work_starts_them_again():
    variable, seen = Variable(), []
    nothing = Program([task("nothing", uses=(0,), cost=BIG, lane=1)], arguments=[WRITE])
    for _ in range(3):
        nothing.launch(pack((0, variable)), variable)
        engine.push(lambda: seen.append(1), writes=[variable])
        engine.stop()
        ours = [t.name for t in threading.enumerate() if t.name.startswith("tracejit")]
        assert ours == []
    assert len(seen) == 3
    engine.start()
    names = {t.name for t in threading.enumerate()}
    assert {"tracejit worker 0", "tracejit cpu:1 worker 0"} <= names
    engine.push(engine.stop, writes=[variable])
    with pytest.raises(EngineError, match="inside a task"):
        engine.wait(variable)


def test_a_fork_does_not_wait_for_a_kernel_that_takes_long():
    """The child finds it failed, and works; the parent gets its result."""
    done = run_script(
        """
        import os, numpy as np
        from tracejit.engine import native
        import warnings
        warnings.simplefilter("ignore", DeprecationWarning)  # since 3.12, of forks beside threads
        engine.lifecycle.PATIENCE = 0.05
        out, variable = np.zeros(1, np.int64), Variable()
        spin, patches = task("spin", uses=(0,), cost=1 << 30), [(0, 0, 0)]
        long = Program([spin], [0, 0, 400_000_000], patches, arguments=[FRESH])
        quick = Program([spin], [0, 0, 1], patches, arguments=[FRESH])
        engine.set_workers(1)
        long.launch(pack((out.ctypes.data, variable)), (out, variable))
        while not native.LANES[0].words[40 >> 3] or not native.ENGINE.words[232 >> 3]:
            time.sleep(0.001)
        start = time.monotonic()
        pid = os.fork()
        assert time.monotonic() - start < 1.0
        if pid == 0:
            try:
                wait(variable)
            except engine.hosts.EngineError as error:
                assert "when it forked" in str(error)
                quick.launch(pack((out.ctypes.data, variable)), (out, variable))
                wait(variable)
                os._exit(7 if out[0] else 8)
            os._exit(9)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
        wait(variable)
        print(out[0] != 0)
        """
    )
    assert (done.stderr, done.stdout.strip()) == ("", "True")
