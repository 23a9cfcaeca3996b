"""Calls that change or ask for state of Python's library or NumPy's: each call of a function does so."""

import gc
import inspect
import io
import weakref

import numpy as np
import pytest

import tracejit as tj


class Log(io.FileIO):
    """A class of the user's whose instances open a file."""


def nothing(*arguments):
    pass


SETTINGS = {
    "gc.disable": (lambda path: gc.disable(), gc.enable, gc.isenabled),
    "gc.set_threshold": (
        lambda path: gc.set_threshold(500),
        lambda: gc.set_threshold(700),
        lambda: gc.get_threshold()[0],
    ),
    "seterr": (
        lambda path: np.seterr(divide="ignore"),
        lambda: np.seterr(divide="warn"),
        lambda: np.geterr()["divide"],
    ),
    "seterrcall": (lambda path: np.seterrcall(nothing), lambda: np.seterrcall(None), np.geterrcall),
    "setbufsize": (lambda path: np.setbufsize(16384), lambda: np.setbufsize(8192), np.getbufsize),
    "set_printoptions": (
        lambda path: np.set_printoptions(precision=3),
        lambda: np.set_printoptions(precision=8),
        lambda: np.get_printoptions()["precision"],
    ),
}
FILES = {
    "FileIO": lambda path: io.FileIO(path, "w").fileno,
    "a class of the user's": lambda path: Log(path, "w").fileno,
    "handed on": lambda path: list(map(io.FileIO, [path], ["w"])),
    "open_memmap": lambda path: np.lib.format.open_memmap(path, "w+", float, (1,)).ndim,
}
QUESTIONS = {
    "printing": lambda array: np.array2string(array),
    "print options": lambda array: np.get_printoptions()["precision"],
    "collector": lambda array: gc.isenabled(),
    "printed": lambda array: np.array_repr(array),
}
THIRD = np.array([1 / 3])


@pytest.mark.parametrize("name", SETTINGS)
def test_settings_are_set_in_every_call(name):
    change, undo, ask = SETTINGS[name]
    before = ask()

    @tj.jit
    def step(x):
        change(None)
        return x * 2.0

    try:
        for _ in range(3):
            undo()
            assert step(tj.ones(1)).tolist() == [2]
            assert ask() != before
    finally:
        undo()


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.parametrize("name", FILES)
def test_files_are_opened_in_every_call(name, tmp_path):
    opened, path = FILES[name], tmp_path / "file"

    @tj.jit
    def step(x):
        opened(str(path))
        return x * 2.0

    for _ in range(3):
        path.unlink(missing_ok=True)
        assert step(tj.ones(1)).tolist() == [2]
        assert path.exists()


@pytest.mark.parametrize("name", QUESTIONS)
def test_settings_are_asked_for_in_every_call(name):
    ask = QUESTIONS[name]
    step = tj.jit(lambda x: (x, ask(THIRD)))
    try:
        for precision in (2, 3, 4):
            np.set_printoptions(precision=precision)
            if precision == 3:
                gc.disable()
            assert step(tj.ones(1))[1] == ask(THIRD)
    finally:
        np.set_printoptions(precision=8)
        gc.enable()


def test_who_calls_is_asked_in_every_call():
    def line():
        return inspect.stack()[1].lineno, inspect.currentframe().f_lineno

    step = tj.jit(lambda x: (x, line()))
    assert step(tj.ones(1))[1] == step(tj.ones(1))[1]
    assert step.cache_info().replays == 0


def test_finalizers_are_registered_in_every_call():
    class Owner:
        pass

    owners, done = [Owner()], []

    @tj.jit
    def step(x):
        weakref.finalize(owners[0], done.append, 1)
        return x * 2.0

    for _ in range(3):
        step(tj.ones(1))
    owners.clear()
    gc.collect()
    assert done == [1, 1, 1]


def test_error_states_within_a_block_cost_nothing():
    @tj.jit
    def step(x):
        with np.errstate(divide="ignore"):
            return x / 2.0

    assert step(tj.ones(1)).tolist() == step(tj.ones(1)).tolist() == [0.5]
    assert step.cache_info().replays == 1, step.explain()
