"""Promise 7: a failure leaves everything as it was before that call, and the next good call works."""

from __future__ import annotations

import types

import numpy as np
import pytest

import tracejit as tj
from tracejit.errors import OutOfBoundsError
from tracejit.frontend.jit import record


class State:
    def __init__(self):
        self.w, self.t, self.log, self.mode = tj.zeros(3), 0, [1], "a"
        self.nested = types.SimpleNamespace(count=0, v=tj.zeros(3))


def snapshot(state):
    return (
        state.w.tolist(), state.t, list(state.log), state.mode, state.nested.count, state.nested.v.tolist(),
        sorted(vars(state)), id(state.w), type(state.t),
    )  # fmt: skip


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_an_exception_in_the_body_leaves_everything_as_it_was(error):
    state, tree = State(), {"x": tj.zeros(2), "n": [1, 2]}
    table, buffer = {"k": 1}, np.zeros(3)

    @tj.jit
    def step(state, tree, x, fail):
        state.w += x
        state.t += 1
        state.nested.count += 1
        state.nested.v = state.nested.v + x
        state.mode = "b"
        state.log.append(2)
        state.extra = x * 2
        table["new"] = 1
        buffer[0] = 5
        tree["x"] = tree["x"] + 1
        tree["n"].append(3)
        tree["y"] = 1
        if fail:
            raise error("stop")
        return x

    before = snapshot(state)
    for _ in range(2):
        with pytest.raises(error):
            step(state, tree, tj.ones(3), True)
        assert snapshot(state) == before
        assert tree["x"].tolist() == [0, 0]
        assert tree["n"] == [1, 2]
        assert "y" not in tree
        assert table == {"k": 1}
        assert not buffer.any()
    assert step.cache_info().signatures == 0
    step(state, tree, tj.ones(3), False)
    assert state.w.tolist() == [1, 1, 1]
    assert state.t == state.nested.count == 1
    assert type(state.t) is int
    assert tree["n"] == [1, 2, 3]
    assert state.log == [1, 2]
    assert state.extra.tolist() == [2, 2, 2]


def test_an_error_that_holds_an_argument_leaves_that_as_it_was():
    @tj.jit
    def step(tree, n):
        tree["n"] = n
        tree["more"].append(n)
        raise ValueError(tree, tree["more"])

    tree = {"n": 0, "more": []}
    for _ in range(2):
        with pytest.raises(ValueError, match="more") as found:
            step(tree, 5)
        assert found.value.args[0] is tree
        assert found.value.args[1] is tree["more"]
        assert tree == {"n": 0, "more": []}


def test_a_type_or_shape_error_surfaces_at_the_users_line():
    w = tj.zeros(3)

    @tj.jit
    def step(x):
        w[...] = w + 1
        return w @ x  # the line

    for _ in range(2):
        with pytest.raises(ValueError, match=r"test_failure\.py:\d+") as caught:
            step(tj.ones(4))
        assert "(3,)" in str(caught.value)
        assert w.tolist() == [0, 0, 0]
    assert float(step(tj.ones(3))) == 3
    assert w.tolist() == [1, 1, 1]


def test_a_failing_kernel_changes_nothing():
    w, v = tj.zeros(3), tj.zeros(3)
    params = {"m": tj.zeros(3), "t": 0}

    @tj.jit
    def step(params, index):
        w[...] = w + 1
        row = tj.take(w, index)
        v[...] = v + row.sum()
        params["m"] = params["m"] + 1
        params["t"] += 1
        return row

    good, bad = tj.asarray([0, 2]), tj.asarray([0, 3])
    for round in range(1, 4):
        assert step(params, good).tolist() == [round, round]
        tj.wait_all()
        before = (w.tolist(), v.tolist(), params["m"].tolist(), params["t"])
        with pytest.raises(OutOfBoundsError, match="3"):
            step(params, bad).wait()
        after = (_settled(w), _settled(v), _settled(params["m"]), params["t"])
        assert after == before
    assert step.cache_info().traces == 1


def _settled(array):
    """The values of an array whose pending error has been told."""
    try:
        return array.tolist()
    except OutOfBoundsError:
        return array.tolist()


def test_a_failing_first_call_changes_nothing():
    w = tj.zeros(2)

    @tj.jit
    def step(tree, index):
        w[...] = w + 1
        tree["row"] = tj.take(w, index)
        tree["n"] = 1

    tree = {}
    with pytest.raises(OutOfBoundsError):
        step(tree, tj.asarray([5]))
    assert tree == {}
    assert _settled(w) == [0, 0]
    step(tree, tj.asarray([1]))
    assert tree["row"].tolist() == [1]


def test_an_interrupt_while_compiling_leaves_everything_as_it_was(monkeypatch):
    state = State()

    @tj.jit
    def step(state, x):
        state.w += x
        state.t += 1
        state.nested.v = state.nested.v + 1
        return state.w.sum()

    before = snapshot(state)

    def interrupt(graph):
        raise KeyboardInterrupt

    monkeypatch.setattr(record.compile, "compile_graph", interrupt)
    with pytest.raises(KeyboardInterrupt):
        step(state, tj.ones(3))
    assert snapshot(state) == before
    monkeypatch.undo()
    for i in range(1, 4):
        assert float(step(state, tj.ones(3))) == 3 * i
        assert state.t == i
    assert step.cache_info().traces == 1


def test_piecewise_code_keeps_its_finished_statements():
    w, log = tj.zeros(2), []

    @tj.jit
    def step(x, fail):
        w[...] = w + x
        log.append(w.tolist()[0])
        w[...] = w + x
        if fail:
            raise ValueError("stop")

    for i in range(1, 4):
        with pytest.raises(ValueError, match="stop"):
            step(tj.ones(2), True)
        assert w.tolist() == [2 * i, 2 * i]
        assert len(log) == i


def test_an_array_of_a_failed_recording_cannot_be_used():
    @tj.jit
    def step(x):
        error = ValueError("stop")
        error.array = x * 2
        raise error

    with pytest.raises(ValueError, match="stop") as caught:
        step(tj.ones(2))
    with pytest.raises(tj.TracejitError, match="never computed"):
        caught.value.array.tolist()


def test_a_failing_engine_task_poisons_what_it_writes_until_it_is_overwritten():
    x = tj.ones(3).wait()

    def fail():
        raise RuntimeError("no luck")

    tj.engine.push(fail, writes=[x._storage.variable])

    @tj.jit
    def step(x):
        return x * 2

    with pytest.raises(tj.TracejitError, match="no luck"):
        step(x).tolist()


def test_errors_do_not_count_as_signatures_and_are_not_cached():
    @tj.jit
    def step(x, n):
        return x.reshape(n, 2)

    for _ in range(3):
        with pytest.raises(ValueError, match="reshape"):
            step(tj.ones(6), 4)
    assert step.cache_info().signatures == 0
    assert step(tj.ones(6), 3).shape == (3, 2)
