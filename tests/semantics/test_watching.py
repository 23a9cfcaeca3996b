"""What the body calls is seen wherever it is called: also by code of this package, and after that."""

from __future__ import annotations

import cProfile
import os
import pstats
import random
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import tracejit as tj
from tests.fuzz.count import COUNT
from tracejit.errors import ReplayError
from tracejit.frontend.surroundings import watch

MARKS = (time.time, time.monotonic, time.process_time, os.getpid, os.getppid, threading.get_ident)
SCALE = 1.0


class Index:
    """An index or a shape that asks the clock."""

    def __index__(self):
        time.time()
        return 1


class Operand:
    """An operand that asks the clock when it becomes an array."""

    def __dlpack__(self, **_options):
        time.time()
        return np.ones(3, np.float32).__dlpack__()

    def __dlpack_device__(self):
        return (1, 0)


class Sequence(list):
    """A list that asks the clock for its items."""

    def __iter__(self):
        time.time()
        return super().__iter__()


def clocked(x):
    time.time()
    return (x * x).sum()


def pieces(x):
    yield x
    time.time()
    yield x


def rescued(x):
    try:
        x @ tj.ones((7, 7))
    except tj.errors.ShapeError:
        time.time()
    return x


def rescued_within(x):
    def fails(x):
        raise KeyError

    try:
        tj.tree.map(fails, [x])
    except KeyError:
        time.time()
    return x


BODIES = {
    "a loss": lambda x: tj.grad(clocked)(x),
    "a value and its gradient": lambda x: tj.value_and_grad(clocked)(x),
    "a pull-back": lambda x: tj.vjp(clocked, x)[0],
    "a loss in a loss": lambda x: tj.grad(lambda y: (tj.grad(clocked)(y) * y).sum())(x),
    "a leaf": lambda x: tj.tree.map(clocked, {"a": x}),
    "an index": lambda x: x[Index()],
    "a shape": lambda x: x + tj.ones((Index(),)),
    "an axis": lambda x: x.reshape(1, 3).sum(axis=Index()),
    "an operand": lambda x: tj.add(x, Operand()),
    "a sequence": lambda x: tj.stack(Sequence([x, x])),
    "probabilities": lambda x: tj.nn.cross_entropy(x, Operand()),
    "an axis of a function of ours": lambda x: tj.nn.softmax(x.reshape(1, 3), axis=Index()),
    "a factor": lambda x: tj.matmul(x, Operand()),
    "an iterator": lambda x: tj.stack(list(pieces(x))),
    "the same line, after": lambda x: tj.exp(x) * (time.time() > 0),
    "the same line, before": lambda x: (time.time() > 0) * tj.exp(x),
    "between operators": lambda x: (x + 1, time.time(), x + 2)[0],
    "after a loss": lambda x: (tj.grad(lambda y: (y * y).sum())(x), time.time())[0],
    "after an attribute": lambda x: x * (x.shape[0] + (time.time() < 0)),
    "after an error": rescued,
    "after an error in a function": rescued_within,
}


@pytest.mark.parametrize("what", BODIES)
def test_a_clock_is_seen(what):
    body = BODIES[what]

    @tj.jit
    def step(x):
        return body(x)

    @tj.jit(strict=True)
    def strict(x):
        return body(x)

    step(tj.ones(3))
    assert "time.time()" in step.explain()
    with pytest.raises(ReplayError, match=r"time\.time\(\)"):
        strict(tj.ones(3))
    assert sys.getprofile() is None


def test_functions_called_by_ours_alone_are_guarded(monkeypatch):
    def loss(x):
        return (x * x * SCALE).sum()

    @tj.jit(strict=True)
    def step(x):
        return tj.grad(loss)(x)

    assert step(tj.ones(2)).tolist() == [2, 2]
    monkeypatch.setattr(sys.modules[__name__], "SCALE", 3.0)
    assert step(tj.ones(2)).tolist() == [6, 6]
    assert step.cache_info().traces == 2


def test_a_function_vouched_for_is_not_watched_when_ours_calls_it():
    seen = []

    @tj.pure
    def note(x):
        seen.append(time.time())
        return x

    @tj.jit(strict=True)
    def step(x):
        return tj.tree.map(note, [x])[0] * 2

    for _ in range(3):
        assert step(tj.ones(1)).tolist() == [2]
    assert len(seen) == 1


class Tree:
    """A random body: functions of the user's and of this package that call one another, and C functions.

    `called` lists the C functions in the order in which they ran.
    """

    def __init__(self, seed):
        self.plan = self.grow(random.Random(seed), 4)
        self.called = []

    def grow(self, source, depth):
        kinds = (
            ["mark", "array"] if depth == 0 else ["mark", "array", "map", "grad", "user", "catch", "yield"]
        )
        return [
            (source.choice(kinds), source.randrange(6), self.grow(source, depth - 1) if depth else [])
            for _ in range(source.randint(1, 4))
        ]

    def run(self, x, steps):
        ways = {"mark": self.mark, "array": self.array, "map": self.map, "grad": self.grad, "user": self.user}
        ways |= {"catch": self.catch, "yield": self.take}
        for kind, number, inside in steps:
            x = ways[kind](x, number, inside)
        return x

    def mark(self, x, number, inside):
        MARKS[number]()
        self.called += [MARKS[number]]
        return x

    def array(self, x, number, inside):
        return (x * 2, tj.exp(x), x[::-1], x + x.sum(), x.reshape(1, -1)[0], x @ x + x)[number]

    def map(self, x, number, inside):
        return tj.tree.map(lambda leaf: self.run(leaf, inside), {"leaf": x})["leaf"]

    def grad(self, x, number, inside):
        return tj.value_and_grad(lambda y: self.run(y, inside).sum())(x)[1]

    def user(self, x, number, inside):
        return self.run(x, inside)

    def catch(self, x, number, inside):
        def fails(leaf):
            self.run(leaf, inside)
            raise KeyError

        try:
            tj.tree.map(fails, [x])
        except KeyError:
            return self.mark(x, number, inside)
        raise AssertionError

    def yields(self, x, inside):
        yield self.run(x, inside)
        yield x

    def take(self, x, number, inside):
        return tj.stack(tuple(self.yields(x, inside)))[1]


@pytest.mark.parametrize("seed", range(COUNT // 20))
def test_every_call_of_a_random_body_is_seen(seed, monkeypatch):
    seen = []

    def impure(function):
        if function in MARKS:
            seen.append(function)

    monkeypatch.setattr(watch, "impure", impure)
    tree = Tree(seed)
    tj.jit(lambda x: tree.run(x, tree.plan))(tj.ones(2))
    assert seen == tree.called
    assert sys.getprofile() is None


def test_a_container_that_holds_itself_is_watched():
    loop = [1]
    loop.append(loop)

    @tj.jit
    def step(x):
        try:
            tj.tree.flatten(loop)
        except RecursionError:
            return x * 2
        raise AssertionError

    assert step(tj.ones(1)).tolist() == [2]


def test_a_profiler_goes_on_after_a_recording():
    def work():
        return [n * n for n in range(100)]

    @tj.jit
    def step(x):
        return x * 2 + 1

    profiler = cProfile.Profile()
    profiler.enable()
    try:
        results = [step(tj.ones(3)).tolist() for _ in range(3)]
        work()
    finally:
        profiler.disable()
    assert results == [[3, 3, 3]] * 3
    assert step.cache_info().replays == 2
    assert any(function == "work" for _, _, function in pstats.Stats(profiler).stats)


def test_a_profile_function_is_set_again_after_a_recording():
    def profile(frame, event, argument):
        pass

    step = tj.jit(lambda x: x * 2 + 1)
    sys.setprofile(profile)
    try:
        step(tj.ones(3))
        assert sys.getprofile() is profile
    finally:
        sys.setprofile(None)


PENDING = """
import tracejit as tj

class Layer:
    w = tj.random.normal(shape=(3, 2))

@tj.jit(strict=True)
def step(x):
    return (x @ Layer.w).sum()

step(tj.ones((4, 3)))
step(tj.ones((4, 3)))
assert step.cache_info().replays == 1
"""


def test_compiling_pending_eager_code_is_no_part_of_the_body(tmp_path):
    """In a new process with an empty store: the body is the first to look at what eager code has recorded."""
    environment = {**os.environ, "TRACEJIT_CACHE_DIR": str(tmp_path)}
    subprocess.run([sys.executable, "-c", PENDING], env=environment, check=True)


def test_equal_functions_are_told_apart():
    """Code objects are equal where their source is; each has calls of its own."""

    def make():
        namespace = {"time": time, "__name__": "user"}
        exec("def clock(x):\n    time.time()\n    return x\n", namespace)
        return namespace["clock"]

    for _ in range(3):
        clock = make()
        step = tj.jit(lambda x, clock=clock: clock(x) * 2)
        step(tj.ones(1))
        assert "time.time()" in step.explain()
