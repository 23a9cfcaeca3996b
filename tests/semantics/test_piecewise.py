"""Promise 5: what cannot be replayed makes a function piecewise: right on every call, and explained."""

from __future__ import annotations

import datetime
import gc
import inspect
import itertools
import logging
import random
import threading
import time
import uuid

import numpy as np
import pytest

import tracejit as tj
from tests.semantics.compare import Program, check
from tracejit import collector
from tracejit.errors import ReplayError

HISTORY: list[float] = []
GENERATOR = np.random.default_rng(0)
COUNTER = 0
DEBUG = True


def line_of(text: str) -> int:
    with open(__file__) as file:
        return next(number for number, line in enumerate(file, 1) if text in line and "line_of" not in line)


def clip_if_large(x):
    if (x * x).sum().tolist() > 10:  # a look at a value
        x *= 0.5
    return x * 2.0


def test_a_branch_on_a_value():
    def make(xp, array):
        w = array(np.ones(4))

        def step(w, x):
            w += x
            return clip_if_large(w)

        return Program(step, lambda i: (w, array(np.full(4, float(i)))), w)

    f = check(make, calls=6, traces=None, piecewise=True)
    text = f.explain()
    assert f"test_piecewise.py:{line_of('a look at a value')}" in text
    assert "tj.where" in text


@pytest.mark.parametrize(
    "look", ["float", "int", "bool", "item", "tolist", "str", "format", "numpy", "asarray", "index"]
)
def test_every_look(look):
    """One element is a number of the call (`test_tree.py`); what sees many, or makes text, is piecewise."""

    def make(xp, array):
        def step(x):
            total = x.sum()
            if look == "float":
                return x * float(total)
            if look == "int":
                return x * int(total)
            if look == "bool":
                return x * 2.0 if total else x
            if look == "item":
                return x * total.item()
            if look == "tolist":
                return x * x.tolist()[0]
            if look == "str":
                return x * len(str(total))
            if look == "format":
                return x * len(f"{total:.1f}")
            if look == "numpy":
                return x * float(np.max(x.numpy() if hasattr(x, "numpy") else x))
            if look == "asarray":
                return x * float(np.asarray(x)[0])
            return x * [1.0, 2.0, 3.0][total.astype(np.int64) % 3]

        return Program(step, lambda i: (array(np.arange(3.0) + i),))

    check(make, traces=None, piecewise=look not in ("float", "int", "bool", "item", "index"))


def test_shapes_that_depend_on_values():
    def make(xp, array):
        def step(x):
            positive = x[x > 0]
            return positive * 2.0

        return Program(step, lambda i: (array(np.arange(5.0) - i % 2),))

    check(make, traces=2)  # one for each number of elements


def test_assignment_through_a_mask_is_no_look():
    def make(xp, array):
        w = array(np.arange(6.0))

        def step(w, x):
            w[w > x] = 0.0
            return w.sum()

        return Program(step, lambda i: (w, array(5.0 - i)), w)

    check(make)


def test_results_and_side_effects_on_every_call():
    HISTORY.clear()
    seen = []

    @tj.jit
    def step(x):
        loss = (x * x).sum()
        HISTORY.append(float(loss))
        seen.append(x.shape)
        return x + 1

    x = tj.zeros(2)
    for _ in range(4):
        x = step(x)
    assert HISTORY == [0, 2, 8, 18]
    assert seen == [(2,)] * 4
    assert "HISTORY" in step.explain()


def test_an_outer_list_that_grows():
    log = []

    @tj.jit
    def step(x, lr):
        log.append(lr * 2)
        return x * lr

    for i in range(4):
        assert step(tj.ones(1), float(i)).tolist() == [i]
    assert log == [0, 2, 4, 6]
    assert all(type(n) is float for n in log)
    assert "log" in step.explain()
    assert "runs piecewise" in step.explain()


def test_an_outer_dict_and_set_that_grow():
    table, names = {}, set()

    @tj.jit
    def step(x, name):
        table[name] = x * 2
        names.add(name)
        return x

    for name in "abca":
        step(tj.ones(1), name)
    assert sorted(table) == ["a", "b", "c"]
    assert names == {"a", "b", "c"}
    assert table["c"].tolist() == [2]


def test_a_log_is_written_in_every_call(capsys, caplog):
    logger = logging.getLogger("tracejit.test")
    logger.setLevel(logging.INFO)
    says, logs = tj.jit(lambda x: (print("called"), x)[1]), tj.jit(lambda x: (logger.info("called"), x)[1])
    for _ in range(4):
        says(tj.ones(1)), logs(tj.ones(1))
    assert capsys.readouterr().out == "called\n" * 4
    assert len(caplog.records) == 4
    assert "runs piecewise" in says.explain()
    assert "runs piecewise" in logs.explain()


MADE = {"bits": random.Random(5).getrandbits}
ALONE = {
    "time": lambda x: x * (time.perf_counter_ns() % 1000003),
    "clock": lambda x: x * datetime.datetime.now().microsecond,
    "uuid": lambda x: x * (uuid.uuid4().int % 1000003),
    "random": lambda x: x * random.random(),
    "uniform": lambda x: x * random.uniform(0, 1),
    "generator": lambda x: x * float(GENERATOR.normal()),
    "count": lambda x: x * sum(n for n, _ in zip(COUNT, range(2), strict=False)),
    "method": lambda x: x * MADE["bits"](20),
    "numpy": lambda x: x * np.random.rand(),
    "made here": lambda x: x * float(np.random.default_rng().normal()),
    "next": lambda x: x * next(ITERATOR),
    "directly": lambda x: x * ITERATOR.__next__(),
}
ITERATOR, COUNT = iter(range(1, 1000)), itertools.count()


@pytest.mark.parametrize("what", ALONE)
def test_each_is_reason_enough(what):
    step = tj.jit(ALONE[what])
    assert len({float(step(tj.ones(1))[0]) for _ in range(4)}) > 1
    text = step.explain()
    assert "runs piecewise" in text
    assert step.cache_info().replays == 0
    with pytest.raises(ReplayError):
        tj.jit(ALONE[what], strict=True)(tj.ones(1))


@pytest.mark.parametrize("consume", ["loop", "list", "unpack", "zip"])
def test_an_outer_iterator_moves_on_in_every_call(consume):
    stream = iter(range(100))

    @tj.jit
    def step(x):
        if consume == "loop":
            for number in stream:
                value = number
                break
        elif consume == "list":
            (value,) = list(itertools.islice(stream, 1))
        elif consume == "unpack":
            value, _ = zip(stream, range(1), strict=False).__next__()
        else:
            for number, _ in zip(stream, range(1), strict=False):
                value = number
        return x * value

    results = [float(step(tj.ones(1))[0]) for _ in range(4)]
    assert results == sorted(set(results))
    assert "runs piecewise" in step.explain()


def test_a_generator_argument_is_consumed_in_every_call():
    @tj.jit
    def step(batches, x):
        for batch in batches:
            x = x + batch
        return x

    for i in range(4):
        assert step((float(n) for n in range(i + 1)), tj.zeros(1)).tolist() == [sum(range(i + 1))]


def test_a_counter_in_a_global():
    @tj.jit
    def step(x):
        global COUNTER
        COUNTER += 1
        return x * COUNTER

    before = COUNTER
    for i in range(1, 5):
        assert step(tj.ones(1)).tolist() == [before + i]
    assert before + 4 == COUNTER
    assert type(COUNTER) is int
    assert step.cache_info().traces == 1


def test_a_nonlocal_counter():
    count = 0

    @tj.jit
    def step(x):
        nonlocal count
        count += 1
        return x * count

    for i in range(1, 5):
        assert step(tj.ones(1)).tolist() == [i]
        assert count == i
    assert step.cache_info().traces == 1


def test_a_lock_is_taken_in_every_call():
    class Lock:
        def __init__(self):
            self.lock, self.taken = threading.Lock(), 0

    shared = Lock()

    @tj.jit
    def step(x):
        with shared.lock:
            return x * 2

    for _ in range(3):
        assert step(tj.ones(1)).tolist() == [2]
    assert "runs piecewise" in step.explain()


def test_piecewise_only_where_the_branch_says_so():
    printed = []

    @tj.jit
    def step(x, i):
        loss = (x * i).sum()
        if i % 5 == 0:
            printed.append(float(loss))
        return loss

    for i in range(11):
        assert float(step(tj.ones(2), i)) == 2 * i
    assert printed == [0, 10, 20]
    assert step.cache_info().traces == 4  # a call after one piecewise call is recorded
    assert step.cache_info().replays == 7


def test_numbers_formatted_for_a_log_do_not_retrace_every_call(capsys):
    @tj.jit
    def step(x, i):
        print(f"step {i}", float(x.sum()))
        return x * i

    for i in range(10):
        step(tj.ones(2), i)
    assert capsys.readouterr().out.splitlines()[3] == "step 3 2.0"
    assert step.cache_info().traces <= 4  # after 1, 2 and 4 calls: its reason may be gone


def strict_programs():
    def look(x):
        return x * x.tolist()[0]  # strict look

    def clock(x):
        return x * time.time()  # strict clock

    def logs(x):
        HISTORY.append(1.0)  # strict log
        return x

    def rng(x):
        return x * np.random.rand()  # strict rng

    return {"look": look, "clock": clock, "log": logs, "rng": rng}


@pytest.mark.parametrize("name", ["look", "clock", "log", "rng"])
def test_strict_raises_at_the_line_and_changes_nothing(name):
    function = tj.jit(strict_programs()[name], strict=True)
    HISTORY.clear()
    for _ in range(3):
        with pytest.raises(ReplayError) as caught:
            function(tj.ones(2))
    assert not HISTORY
    if name != "log":  # what a container holds is compared at the end: the line is the function's
        assert f"test_piecewise.py:{line_of('# strict ' + name)}" in str(caught.value)
    assert function.cache_info().signatures == 0


def test_pure_vouches_for_a_function():
    calls = []

    @tj.pure
    def announce(n):
        calls.append(n)
        print(end="")
        return 3.0

    @tj.jit(strict=True)
    def step(x, n):
        return x * announce(n)

    for i in range(6):
        assert step(tj.ones(2), i % 2).tolist() == [3, 3]
    assert calls == [0, 1]
    assert step.cache_info().traces == 2


def test_pure_methods():
    class Model:
        def __init__(self):
            self.calls = 0

        @tj.pure
        def note(self, text):
            self.calls += 1
            print(end=text[:0])

        @tj.jit(strict=True)
        def step(self, x):
            self.note("step")
            return x * 2

    model = Model()
    for _ in range(3):
        model.step(tj.ones(1))
    assert model.calls == 1


def test_callback_logs_without_giving_up_replay():
    losses, steps = [], []

    def record(name, step, loss):
        steps.append((name, step, loss.dtype, loss.shape))

    @tj.jit(strict=True)
    def step(w, x, i):
        loss = ((w - x) ** 2).sum()
        tj.callback(losses.append, loss)
        w -= 0.5 * (w - x)
        tj.callback(record, "loss", i, loss)
        tj.callback(losses.append, w[0])
        return loss

    w = tj.zeros(3)
    expected = []
    plain = np.zeros(3, np.float32)
    for i in range(5):
        x = np.full(3, i, np.float32)
        loss = step(w, tj.asarray(x), i)
        expected.append(float(((plain - x) ** 2).sum()))
        plain -= np.float32(0.5) * (plain - x)
        expected.append(float(plain[0]))
        assert float(loss) == pytest.approx(expected[-2])
    tj.wait_all()
    assert [float(v) for v in losses] == pytest.approx(expected)
    assert [s[:2] for s in steps] == [("loss", i) for i in range(5)]
    assert type(steps[0][1]) is int
    assert step.cache_info().traces == 1
    assert step.cache_info().replays == 4


def test_callback_outside_and_in_piecewise_code():
    seen = []

    @tj.jit
    def step(x):
        tj.callback(lambda v: seen.append(v.tolist()), x)
        if float(x[0]) > 1:
            tj.callback(lambda v, n: seen.append((v.tolist(), n)), x, 7)
        return x

    tj.callback(seen.append, 5)
    for i in range(3):
        step(tj.ones(1) * i)
    tj.wait_all()
    assert seen == [5, [0.0], [1.0], [2.0], ([2.0], 7)]


def test_a_callback_that_captures_what_is_recorded_is_refused():
    @tj.jit
    def step(x):
        y = x * 2
        tj.callback(lambda: print(y))
        return y

    with pytest.raises(TypeError, match="as an argument"):
        step(tj.ones(1))


def test_a_callback_that_fails_is_reported():
    def fail(x):
        raise RuntimeError("full disk")

    @tj.jit
    def step(x):
        tj.callback(fail, x)
        return x * 2

    for _ in range(2):
        y = step(tj.ones(2))
        assert y.tolist() == [2, 2]
        with pytest.raises(tj.TracejitError, match="full disk"):
            tj.wait_all()


def test_a_flag_turned_off_makes_it_replayable(monkeypatch):
    @tj.jit
    def step(x):
        if DEBUG:
            HISTORY.append(float(x.sum()))
        return x * 2

    step(tj.ones(2))
    assert "runs piecewise" in step.explain()
    monkeypatch.setitem(globals(), "DEBUG", False)
    for _ in range(4):
        step(tj.ones(2))
    assert step.cache_info().replays == 3


def test_numpy_arguments_are_arrays_in_every_call():
    kinds = []

    @tj.jit
    def step(x, tree):
        kinds.append(type(x) is tj.NDArray and type(tree["y"][0]) is tj.NDArray)
        tree["sum"] = x.sum() + tree["y"][0]
        return x * float(x[0])

    for i in range(4):
        tree = {"y": [np.ones(2, np.float32)]}
        assert type(step(np.full(2, i, np.float32), tree)) is tj.NDArray
        assert tree["sum"].tolist() == [2 * i + 1] * 2
    assert kinds == [True] * 4


def test_nobody_looks_for_garbage_while_another_thread_records():
    """A function of ``gc.callbacks`` would be mistaken for a call of the body."""
    begun, others_end, enabled = threading.Event(), threading.Event(), []

    def long_block():
        with collector.suspended():
            begun.set()
            others_end.wait()
            enabled.append(gc.isenabled())

    thread = threading.Thread(target=long_block)
    with collector.suspended():
        thread.start()
        begun.wait()
        with collector.suspended():
            pass
    others_end.set()
    thread.join()
    assert enabled == [False]
    assert gc.isenabled()


def test_nobody_looks_for_garbage_while_a_call_is_recorded_and_launched():
    seen = []
    is_enabled = tj.pure(gc.isenabled)  # a body that asks itself is told what holds without a recording

    @tj.jit
    def step(x, look):
        seen.append(is_enabled())
        if look:
            x.tolist()
            seen.append(is_enabled())
        return x * 2

    step(tj.ones(2), False)
    assert gc.isenabled()
    step(tj.ones(2), True)
    assert seen == [True, True, True]  # the body has run itself, which may take long
    assert gc.isenabled()


def test_state_that_the_first_call_makes_is_replayed_afterwards():
    class Adam:
        def __init__(self):
            self.state = {}

        def step(self, params, g):
            for name in params:
                if name not in self.state:
                    self.state[name] = {"t": 0, "m": tj.zeros(1)}
                st = self.state[name]
                st["t"] += 1
                st["m"] = st["m"] * 0.9 + g
                params[name] -= st["m"] / st["t"]

    found = []
    for wrap in (lambda f: f, tj.jit):
        optimizer, params = Adam(), {"a": tj.ones(1)}
        step = wrap(optimizer.step)
        found.append([(step(params, tj.ones(1)), params["a"].tolist()) for _ in range(6)])
    assert found[0] == found[1]
    assert step.cache_info()[:2] == (2, 4)


def test_calls_that_log_now_and_then_leave_the_others_replayed():
    class Trainer:
        def __init__(self):
            self.t = 0

        def step(self, x):
            self.t += 1
            if self.t % 10 == 0:
                time.time()
            return x * self.t

    trainer = Trainer()
    step = tj.jit(trainer.step)
    assert [step(tj.ones(1)).tolist()[0] for _ in range(100)] == list(range(1, 101))
    assert step.cache_info().replays > 80


def test_a_function_that_need_not_run_piecewise_any_more_is_recorded_again():
    class Config:
        verbose = True

    config = Config()

    @tj.jit
    def step(x):
        if config.verbose:
            time.time()
        return x * 2

    for _ in range(3):
        step(tj.ones(1))
    config.verbose = False
    for _ in range(20):
        assert step(tj.ones(1)).tolist() == [2]
    assert step.cache_info().replays >= 12


def test_a_strict_function_raises_though_its_body_catches_the_error():
    @tj.jit(strict=True)
    def step(x):
        try:
            s = x.tolist()[0]
        except Exception:
            s = -1.0
        return x * s

    for _ in range(2):
        with pytest.raises(tj.errors.ReplayError, match="looks at the value"):
            step(tj.ones(1))


def test_library_calls_that_cost_nothing():
    class Worker(threading.Thread):
        scale = 2.0

    worker = Worker()
    for body in (
        lambda x: x * len(list(itertools.chain.from_iterable([[1], [2]]))),
        lambda x: x * worker.scale,
    ):
        step = tj.jit(body)
        assert step(tj.ones(1)).tolist() == step(tj.ones(1)).tolist() == [2]
        assert step.cache_info().replays == 1, step.explain()


def line_in(function, text):
    lines, first = inspect.getsourcelines(function)
    return f"{__file__}:{first + next(i for i, line in enumerate(lines) if text in line)}"


def test_what_is_changed_is_told_with_its_line_and_a_remedy_for_it():
    log, seen = {}, set()

    def stores(x):
        y = x * 2
        log[len(log)] = 1
        return y

    def adds(x):
        y = x * 2
        seen.add(len(seen))
        return y

    def divides(x):
        n = float(x[0])
        try:
            y = x * (1 / n)  # raises
        except ZeroDivisionError:
            y = x
        return y

    for body, text, remedy in (
        (stores, "log[len(log)]", "store it outside"),
        (adds, "seen.add(", "store it outside"),
        (divides, "# raises", "test the number before"),
    ):
        step = tj.jit(body)
        step(tj.zeros(2))
        told = step.explain()
        assert line_in(body, text) in told, told
        assert remedy in told
        assert "return arrays, numbers" not in told
