"""Steps that check something and rebind a number: they wait for their checks, not for the rest."""

import threading
import types

import numpy as np
import pytest

import tracejit as tj
from tracejit import engine
from tracejit.config import config
from tracejit.errors import OutOfBoundsError


class Late:
    """A matrix that is not there before `open` is called."""

    def __init__(self):
        self.matrix, self._gate = tj.eye(64).wait(), threading.Event()

    def hold(self):
        self._gate.clear()
        engine.push(lambda: self._gate.wait(20), writes=[self.matrix])

    def open(self):
        self._gate.set()


def counted():
    """A step that gathers rows, multiplies them, updates weights and counts its calls."""
    state = types.SimpleNamespace(t=0, w=tj.zeros(64))

    @tj.jit
    def step(x, index, matrix):
        state.w -= (x[index] @ matrix).sum(axis=0)
        state.t += 1

    return step, state


def test_the_number_is_rebound_before_the_step_has_ended():
    step, state = counted()
    late, x, index = Late(), tj.ones((3, 64)), tj.asarray([0, 2])
    for _ in range(2):
        step(x, index, late.matrix)
    late.hold()
    step(x, index, late.matrix)
    step(x, index, late.matrix)
    assert state.t == 4
    assert not state.w.__variable__().ready
    late.open()
    np.testing.assert_array_equal(state.w.numpy(), np.full(64, -8.0))
    assert step.cache_info().traces == 1


@pytest.mark.parametrize("kind", ["native", "naive"])
def test_a_check_that_fails_is_raised_by_the_call_and_changes_nothing(kind, monkeypatch):
    monkeypatch.setattr(config, "engine", kind)
    step, state = counted()
    x, matrix, good, bad = tj.ones((3, 64)), tj.eye(64), tj.asarray([0, 2]), tj.asarray([0, 7])
    for number in range(3):
        step(x, good, matrix)
        with pytest.raises(OutOfBoundsError, match=r"index 7 is out of bounds"):
            step(x, bad, matrix)
        assert state.t == number + 1
    np.testing.assert_array_equal(state.w.numpy(), np.full(64, -6.0))
    tj.wait_all()


def test_a_failure_of_what_comes_late_is_told_at_the_array():
    """The number was rebound when nothing of the step itself could fail any more."""
    step, state = counted()
    x, index, matrix = tj.ones((3, 64)), tj.asarray([0, 2]), tj.eye(64).wait()
    for _ in range(2):
        step(x, index, matrix)
    gate = threading.Event()

    def fail():
        gate.wait(20)
        raise ValueError("no such file")

    engine.push(fail, writes=[matrix], name="loader")
    step(x, index, matrix)
    assert state.t == 3
    gate.set()
    with pytest.raises(engine.hosts.EngineError, match="'loader' failed"):
        state.w.numpy()
    np.testing.assert_array_equal(state.w.numpy(), np.full(64, -4.0))


def test_a_failure_in_flight_of_another_function_is_told_first():
    """It writes the same array, so the step waits for it."""
    step, state = counted()
    x, index, late = tj.ones((3, 64)), tj.asarray([0, 2]), Late()

    @tj.jit
    def spoil(x, index, matrix):
        state.w -= (matrix @ x.T)[index][0, 0]

    for _ in range(2):
        step(x, index, late.matrix)
        spoil(x, index, late.matrix)
    late.hold()
    spoil(x, tj.asarray([99]), late.matrix)
    threading.Timer(0.05, late.open).start()
    with pytest.raises(OutOfBoundsError):
        step(x, index, late.matrix)
    assert state.t == 2
    step(x, index, late.matrix)
    assert state.t == 3
