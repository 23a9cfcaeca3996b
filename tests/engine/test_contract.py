"""What MXNet's engine promises and its tests ask for, of each of the ways to run tasks here."""

import gc
import itertools
import random
import threading
import time
import weakref

import pytest

import tracejit as tj
from tracejit import engine
from tracejit.config import config
from tracejit.engine import Variable
from tracejit.errors import ArgumentError, DeviceError, EngineError

VARIABLES = 20


@pytest.fixture(params=["naive", "one worker", "three workers"])
def kind(request, monkeypatch):
    """The engine in one of its forms; waits for all work at the end."""
    if request.param == "naive":
        monkeypatch.setattr(config, "engine", "naive")
    else:
        engine.set_workers(1 if request.param == "one worker" else 3)
    yield request.param
    engine.wait_all()


class Workload:
    """``data[write] = sum of data[reads] / (n + 1)``, again and again, with a little sleep here and there."""

    def __init__(self, seed):
        chance = random.Random(seed)
        self.steps = [
            (
                [chance.randrange(VARIABLES) for _ in range(chance.randrange(2, 12))],
                chance.randrange(VARIABLES),
                chance.choice([0.0] * 19 + [1e-4]),
            )
            for _ in range(400)
        ]

    def serial(self):
        data = [1.0] * VARIABLES
        for reads, write, _ in self.steps:
            data[write] = sum(data[i] for i in reads) / (len(reads) + 1)
        return data

    def pushed(self, asynchronous):
        """The data when everything has run, and the variables that ordered it."""
        data, variables = [1.0] * VARIABLES, [Variable() for _ in range(VARIABLES)]

        def run(reads, write, seconds, done):
            total = sum(data[i] for i in reads)
            if seconds:
                time.sleep(seconds)
            data[write] = total / (len(reads) + 1)
            if done is not None:
                done()

        for number, (reads, write, seconds) in enumerate(self.steps):
            is_late = asynchronous and number % 2 == 0
            engine.push(
                (lambda done, s=(reads, write, seconds): run(*s, done))
                if is_late
                else (lambda s=(reads, write, seconds): run(*s, None)),
                reads=[variables[i] for i in reads],
                writes=[variables[write]],
                priority=number % 5,
                asynchronous=is_late,
            )
        engine.wait_all()
        return data, variables


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("asynchronous", [False, True])
def test_random_work_gives_what_it_gives_one_by_one(kind, seed, asynchronous):
    workload = Workload(seed)
    data, variables = workload.pushed(asynchronous)
    assert data == workload.serial()
    assert all(variable.ready for variable in variables)


def test_a_variable_counts_what_writes_it(kind):
    variable = Variable()
    first = variable.writes
    for _ in range(10):
        engine.push(lambda: None, reads=[variable])
    assert variable.writes == first
    for _ in range(10):
        engine.push(lambda: None, writes=[variable])
    engine.wait_all()
    assert variable.writes == first + 10


def test_readers_run_and_writers_follow_in_order(kind):
    variable, seen = Variable(), []
    for _ in range(10):
        engine.push(lambda: seen.append("read"), reads=[variable])
    for number in range(10):
        engine.push(lambda number=number: seen.append(number), writes=[variable])
    engine.wait(variable)
    assert seen == ["read"] * 10 + list(range(10))


def test_nothing_needs_a_wait(kind):
    for _ in range(2):
        engine.wait(Variable())
        engine.wait_all()


def test_a_wait_for_what_is_only_read_returns_at_once(kind):
    """MXNet's fifth basic test; the naive engine has run the task by then."""
    variable, leave, seen = Variable(), threading.Event(), []
    if kind == "naive":
        leave.set()
    engine.push(lambda: (leave.wait(20), seen.append(1)), reads=[variable])
    engine.wait(variable)
    assert bool(seen) == (kind == "naive")
    leave.set()
    engine.wait_all()
    assert seen == [1]


def test_a_variable_may_be_deleted_while_tasks_use_it(kind):
    variable, seen = Variable(), []
    gone = weakref.ref(variable)
    for number in range(20):
        engine.push(lambda number=number: seen.append(number), writes=[variable])
    del variable
    engine.wait_all()
    assert seen == list(range(20))
    assert_let_go(gone)


def test_what_a_task_holds_is_let_go_when_it_has_ended(kind):
    class Parameter:
        pass

    held, variable = Parameter(), Variable()
    gone = weakref.ref(held)
    engine.push(lambda held=held: None, writes=[variable])
    del held
    engine.wait_all()
    assert_let_go(gone)


def assert_let_go(gone):
    """The object of this weak reference goes; the thread of the last task may still return from it."""
    end = time.monotonic() + 10
    while gone() is not None and time.monotonic() < end:
        time.sleep(0.001)
        gc.collect()
    assert gone() is None


def test_stop_and_start(kind):
    variable, seen = Variable(), []
    for number in range(3):
        engine.stop()
        engine.start()
        engine.push(lambda number=number: seen.append(number), writes=[variable])
    engine.stop()
    assert seen == [0, 1, 2]
    engine.stop()
    engine.push(lambda: seen.append(3), writes=[variable])
    engine.wait(variable)
    assert seen == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("error", "message", "call"),
    [
        (ArgumentError, "expected a function, got int", lambda: engine.push(3)),
        (ArgumentError, "lists, got int", lambda: engine.push(print, reads=-1)),
        (ArgumentError, "lists, got NoneType", lambda: engine.push(print, writes=None)),
        (ArgumentError, r"got Variable; write \[x\]", lambda: engine.push(print, reads=Variable())),
        (ArgumentError, r"got NDArray; write \[x\]", lambda: engine.push(print, writes=tj.ones(2))),
        (ArgumentError, "engine variables, got int", lambda: engine.push(print, reads=[3])),
        (DeviceError, "got cpux", lambda: engine.push(print, device="cpux")),
        (DeviceError, "got gpu:0", lambda: engine.push(print, device="gpu:0")),
        (
            ArgumentError,
            r"wait: expected engine variables, got NDArray; .*x\.wait",
            lambda: engine.wait(tj.ones(2)),
        ),
    ],
)
def test_bad_arguments_are_refused_before_anything_runs(error, message, call):
    with pytest.raises(error, match=message):
        call()
    engine.wait_all()


def boom():
    raise ValueError("a bad shape")


@pytest.mark.parametrize("asynchronous", [False, True])
def test_an_exception_waits_for_the_wait(kind, asynchronous):
    """It is raised at every wait for what the task writes, also after `wait_all` has told it."""
    variable, other = Variable(), Variable()
    engine.push((lambda done: boom()) if asynchronous else boom, writes=[variable], asynchronous=asynchronous)
    engine.push(lambda: None, writes=[other])
    engine.wait(other)
    for wait in (lambda: engine.wait(variable),) * 2:
        with pytest.raises(EngineError, match="a bad shape"):
            wait()
    engine.wait_all()  # told already
    with pytest.raises(EngineError, match="a bad shape"):
        engine.wait(variable)
    engine.push(boom, writes=[variable])
    with pytest.raises(EngineError, match="a bad shape"):
        engine.wait_all()
    engine.wait_all()
    with pytest.raises(EngineError, match="a bad shape"):
        engine.wait(variable)


def test_an_exception_reaches_all_that_follows_and_nothing_else(kind):
    """A chain over several variables; the first cause is named at its end."""
    chain, beside, ran = [Variable() for _ in range(4)], Variable(), []
    engine.push(boom, writes=[chain[0]], name="origin")
    for before, after in itertools.pairwise(chain):
        engine.push(lambda: ran.append("after"), reads=[before], writes=[after])
    engine.push(lambda: ran.append("beside"), writes=[beside])
    engine.wait(beside)
    with pytest.raises(EngineError, match="'origin' failed: ValueError: a bad shape"):
        engine.wait(chain[-1])
    assert ran == ["beside"]


def test_the_engine_works_on_after_exceptions(kind):
    """Several failures, each seen at its own wait, and work in between."""
    seen = []
    for turn in range(1, 4):
        first, second = Variable(), Variable()
        engine.push(boom, writes=[first])
        engine.push(boom, writes=[second])
        for variable in (first, second):
            with pytest.raises(EngineError, match="a bad shape"):
                engine.wait(variable)
            engine.push(lambda: seen.append(1), writes=[variable])
        engine.wait_all()
        assert len(seen) == 2 * turn
