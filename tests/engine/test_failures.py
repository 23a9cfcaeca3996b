"""What fails is told at the wait; poison spreads to readers and ends with the next whole write."""

import gc
import signal
import threading
import time
import weakref

import numpy as np
import pytest

from tests.engine.programs import pack, task
from tracejit import engine
from tracejit.engine import FRESH, OVERWRITE, READ, WRITE, Program, Task, Variable, failures
from tracejit.engine.hosts import hosts
from tracejit.errors import EngineError, OutOfBoundsError

BIG = 1 << 30


def explode():
    raise KeyError("bang")


def test_a_failed_python_task_is_raised_with_name_and_line():
    variable = Variable()
    engine.push(explode, writes=[variable], name="loader")
    with pytest.raises(EngineError, match=r"(?s)'loader' failed: KeyError.*test_failures\.py:\d+") as caught:
        engine.wait(variable)
    assert isinstance(caught.value.__cause__, KeyError)


def test_poison_stays_until_a_write_succeeds():
    variable = Variable()
    assert variable.poison is None
    engine.push(explode, writes=[variable])
    for _ in range(2):
        with pytest.raises(EngineError, match="bang"):
            engine.wait(variable)
    assert "bang" in str(variable.poison)
    engine.push(lambda: None, writes=[variable])
    engine.wait(variable)
    assert variable.poison is None


def test_readers_of_poison_do_not_run_and_pass_it_on():
    a, b, c, seen = Variable(), Variable(), Variable(), []
    engine.push(explode, writes=[a], name="origin")
    engine.push(lambda: seen.append("b"), reads=[a], writes=[b])
    engine.push(lambda: seen.append("c"), reads=[b, c], writes=[c])
    engine.push(lambda: seen.append("free"), writes=[a])
    for variable in (b, c):
        with pytest.raises(EngineError, match="origin"):
            engine.wait(variable)
    engine.wait(a)
    assert seen == ["free"]


def test_wait_all_raises_each_failure_once_and_names_the_others():
    variables = [Variable() for _ in range(3)]
    for i, variable in enumerate(variables):
        engine.push(explode, writes=[variable], name=f"task {i}")
        with pytest.raises(EngineError) if i == 0 else nothing_raised():
            if i == 0:
                engine.wait(variable)
    with pytest.raises(EngineError, match="task 1") as caught:
        engine.wait_all()
    assert "task 2" in caught.value.__notes__[0]
    engine.wait_all()


class nothing_raised:
    def __enter__(self):
        return self

    def __exit__(self, *exception):
        return False


def test_errors_of_asynchronous_tasks():
    a, b = Variable(), Variable()
    engine.push(lambda done: done(ValueError("late")), writes=[a], asynchronous=True)
    with pytest.raises(EngineError, match="late"):
        engine.wait(a)

    def both(done):
        done()
        raise ValueError("after completion")

    engine.push(both, writes=[b], asynchronous=True)
    engine.wait(b)
    hosts.stop(10)  # the error comes a moment after the completion
    with pytest.raises(EngineError, match="after completion"):
        engine.wait_all()


class Checked:
    """input -> check (may fail) -> fresh output, and an update of existing storage behind the check."""

    def __init__(self, cost):
        self.cells = np.zeros(16, np.int64)
        self.data, self.fresh, self.state = Variable("data"), Variable("fresh"), Variable("state")
        tasks = [
            task("check", 0, 8, 2, uses=(0,), cost=cost, can_fail=True, location="user.py:7"),
            task("mix", 3, after=(0,), uses=(1, 0), cost=cost),
            task("mix", 6, after=(0,), uses=(2, 0), cost=cost),
        ]
        patches = [(1, 0, 0), (3, 1, 0), (4, 0, 0), (6, 2, 0), (7, 0, 0)]
        self.program = Program(
            tasks,
            [0] * 9,
            patches,
            arguments=[READ, FRESH, WRITE],
            on_error=lambda index, status, block: OutOfBoundsError(f"task {index}: element {status - 1}"),
        )

    def launch(self):
        base = self.cells.ctypes.data
        arguments = pack((base, self.data), (base + 8 * 8, self.fresh), (base + 8 * 9, self.state))
        self.program.launch(arguments, self)


@pytest.mark.parametrize("cost", [0, BIG])
@pytest.mark.parametrize("workers", [0, 1, 3])
def test_a_failing_kernel_changes_nothing(cost, workers):
    engine.set_workers(workers)
    world = Checked(cost)
    world.cells[:10] = [1, 2, 3, 4, 5, -6, -7, 8, 0, 50]
    world.launch()
    with pytest.raises(OutOfBoundsError, match="task 0: element 5"):
        engine.wait(world.fresh)
    with pytest.raises(OutOfBoundsError, match="element 5"):  # fresh memory stays poisoned
        engine.wait(world.fresh)
    engine.wait(world.state)  # has kept its content, and the failure is told
    assert list(world.cells[8:10]) == [0, 50]
    world.cells[5:7] = 0
    world.launch()
    engine.wait(world.fresh)
    engine.wait(world.state)
    assert list(world.cells[8:10]) == [7, 50 * 31 + 7]


@pytest.mark.parametrize("cost", [0, BIG])
def test_existing_storage_tells_a_failure_that_nobody_has_seen_once(cost):
    world = Checked(cost)
    world.cells[0] = -1
    world.launch()
    with pytest.raises(OutOfBoundsError):
        engine.wait(world.state)
    engine.wait(world.state)
    world.launch()
    world.launch()  # the second failure's mark stands where the first one's stood
    with pytest.raises(OutOfBoundsError):
        engine.wait(world.state)
    with pytest.raises(OutOfBoundsError):
        engine.wait_all()  # the first of them
    engine.wait(world.state)


@pytest.mark.parametrize("cost", [0, BIG])
def test_a_launch_that_reads_poison_fails_under_the_first_name(cost):
    world = Checked(cost)
    engine.push(explode, writes=[world.data], name="loader")
    world.launch()
    for variable in (world.state, world.fresh, world.data):  # a wait for what kept its content tells it once
        with pytest.raises(EngineError, match="loader"):
            engine.wait(variable)
    assert not world.cells.any()


@pytest.mark.parametrize("cost", [0, BIG])
def test_overwriting_ends_poison(cost):
    variable, cells = Variable(), np.zeros(4, np.int64)
    program = Program(
        [task("fill", 0, 4, 1, uses=(0,), cost=cost)],
        [0, 0, 3],
        [(0, 0, 0)],
        scratch_bytes=64,
        arguments=[OVERWRITE],
    )
    engine.push(explode, writes=[variable])
    program.launch(pack((cells.ctypes.data, variable)), (cells, variable))
    engine.wait(variable)
    assert list(cells) == [3, 4, 5, 6]
    with pytest.raises(EngineError, match="bang"):
        engine.wait_all()


def test_a_failing_python_task_in_a_program():
    variable, seen = Variable(), []
    tasks = [
        Task("callback", "user.py:3", 0, 0, 0, 1, callable=lambda block: explode()),
        Task("never", "user.py:4", 0, 0, 0, 1, after=(0,), uses=(0,), callable=seen.append),
    ]
    Program(tasks, arguments=[FRESH]).launch(pack((0, variable)), variable)
    with pytest.raises(EngineError, match=r"(?s)'callback' failed.*user\.py:3"):
        engine.wait(variable)
    assert not seen


def test_an_error_without_on_error_names_the_task():
    variable, cell = Variable(), np.full(1, -1, np.int64)
    program = Program([task("check", uses=(0,))], [0, 0, 0], [(1, 0, 0)], arguments=[FRESH])
    program.launch(pack((cell.ctypes.data, variable)), (cell, variable))
    with pytest.raises(EngineError, match=r"(?s)'check' failed with status 1.*check\.py:1"):
        engine.wait(variable)


def test_old_failures_are_forgotten_but_poison_is_not():
    variable = Variable()
    engine.push(explode, writes=[variable])
    with pytest.raises(EngineError, match="bang"):
        engine.wait(variable)
    for _ in range(failures.CAPACITY + 1):
        other = Variable()
        engine.push(explode, writes=[other])
    with pytest.raises(EngineError):
        engine.wait_all()
    with pytest.raises(EngineError, match="earlier task"):
        engine.wait(variable)


def test_told_failures_do_not_keep_what_tasks_held():
    class Thing:
        pass

    thing, variable = Thing(), Variable()
    watcher = weakref.ref(thing)
    engine.push(lambda held=thing: None, writes=[variable])
    del thing
    engine.wait(variable)
    engine.wait_all()
    gc.collect()
    assert watcher() is None


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs an interval timer")
def test_ctrl_c_interrupts_a_wait_and_leaves_the_engine_usable():
    variable, leave = Variable(), threading.Event()
    engine.push(lambda: leave.wait(20), writes=[variable])

    def interrupt(number, frame):
        engine.push(lambda: None)  # the engine may be used inside a signal handler
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        start = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            engine.wait(variable)
        assert time.monotonic() - start < 5
    finally:
        signal.signal(signal.SIGALRM, before)
        leave.set()
    engine.wait(variable)
    seen = []
    engine.push(lambda: seen.append(1), reads=[variable])
    engine.wait_all()
    assert seen == [1]


def test_an_on_error_that_raises_is_told_too():
    def on_error(index, status, block):
        raise LookupError("no such line")

    variable, cell = Variable(), np.full(1, -1, np.int64)
    tasks = [task("check", uses=(0,), cost=BIG)]
    program = Program(tasks, [0, 0, 0], [(1, 0, 0)], arguments=[FRESH], on_error=on_error)
    for _ in range(3):
        program.launch(pack((cell.ctypes.data, variable)), (cell, variable))
    with pytest.raises(EngineError, match="'check' failed") as caught:
        engine.wait(variable)
    assert isinstance(caught.value.__cause__, LookupError)
    with pytest.raises(EngineError):
        engine.wait_all()


class UnspeakableError(Exception):
    def __str__(self):
        raise RuntimeError("no words")


class UncopiableError(Exception):
    def __reduce_ex__(self, protocol):
        raise RuntimeError("no copies")


def test_an_error_whose_text_raises_is_told_as_itself():
    variable = Variable()

    def fail():
        raise UnspeakableError

    engine.push(fail, writes=[variable], name="dumb")
    with pytest.raises(EngineError, match="'dumb' failed: UnspeakableError") as caught:
        engine.wait(variable)
    assert isinstance(caught.value.__cause__, UnspeakableError)


@pytest.mark.parametrize("kind", [UnspeakableError, UncopiableError])
def test_an_on_error_may_give_any_error(kind):
    for _ in range(2):
        program = Program([task("check", can_fail=True)], [0, 0, 0], [(1, 0, 0)], arguments=[READ],
                          on_error=lambda index, status, block: kind())  # fmt: skip
        cell, variable = np.full(1, -1, np.int64), Variable()
        for _ in range(2):
            program.launch(pack((cell.ctypes.data, variable)), (cell, variable))
    with pytest.raises(kind) as caught:
        engine.wait_all()
    assert len(caught.value.__notes__) == 3
    assert kind.__name__ in caught.value.__notes__[-1]


def test_many_failures_are_summed_up():
    def fail(i):
        raise ValueError("line\n" * 1000 + str(i))

    for i in range(100):
        engine.push(lambda i=i: fail(i), writes=[Variable()], name=f"task {i}")
    with pytest.raises(EngineError, match="task 0") as caught:
        engine.wait_all()
    notes = "\n".join(caught.value.__notes__).splitlines()
    assert len(notes) == 4
    assert "task 1" in notes[0]
    assert notes[-1] == "and 96 more failed"
    assert max(map(len, notes)) < 300


def test_a_wait_that_takes_long_names_the_tasks_once(monkeypatch, capsys):
    """Tasks that wait for one another, and one that nobody completes."""
    monkeypatch.setattr(engine.threads, "REPORT_AFTER", 0.2)
    variable, other, kept = Variable(), Variable(), []
    engine.push(kept.append, writes=[variable], asynchronous=True, name="forgotten")
    engine.push(lambda: engine.wait(variable), writes=[other], name="waiter")
    timer = threading.Timer(1.0, lambda: kept[0]())
    timer.start()
    engine.wait(other)
    timer.join()
    said = capsys.readouterr().err
    assert said.count("'forgotten' at ") == said.count("not completed") == said.count("a wait has taken") == 2
    assert "'waiter' at " in said
    assert "test_failures.py:" in said
