"""Promise 10: an array that outlives the call in an unknown way makes a function piecewise, with a reason."""

from __future__ import annotations

import collections
import gc
import types
import weakref

import pytest

import tracejit as tj
from tracejit.errors import ReplayError


class Sink:
    """Holds arrays where names do not lead."""

    def __init__(self):
        self.__dict__["_hidden"] = []

    def put(self, value):
        getattr(self, "_hid" + "den").append(value)


def line_of(text):
    with open(__file__) as file:
        return next(number for number, line in enumerate(file, 1) if text in line and "line_of" not in line)


def check_escape(step, kept, line):
    """The step is right in every call, and the reason names the line that holds the text `line`."""
    for i in range(4):
        assert step(tj.ones(2) * i).tolist() == [3 * i] * 2
        assert kept()[-1].tolist() == [2 * i] * 2
    text = step.explain()
    assert "runs piecewise" in text
    assert f"an array made at {__file__}:{line_of(line)} " in text
    assert step.cache_info().replays == 0
    return text


def test_into_an_outer_list():
    held = []

    @tj.jit
    def step(x):
        y = x * 2  # for the list
        held.append(y)
        return y + x

    assert "is kept in held" in check_escape(step, lambda: held, "for the list")
    assert len(held) == 4


def test_into_an_outer_dict():
    held = {}

    @tj.jit
    def step(x):
        y = x * 2  # for the dict
        held[len(held)] = ("note", [y])
        return y + x

    text = check_escape(step, lambda: [held[len(held) - 1][1][0]], "for the dict")
    assert "is kept in held" in text
    assert len(held) == 4


def test_into_a_list_of_an_object():
    holder = types.SimpleNamespace(history=[])

    @tj.jit
    def step(x):
        y = x * 2  # for the history
        holder.history += [y]
        return y + x

    text = check_escape(step, lambda: holder.history, "for the history")
    assert "is kept in holder.history" in text


def test_into_an_outer_deque_of_fixed_length():
    held = collections.deque([None], maxlen=1)

    @tj.jit
    def step(x):
        y = x * 2
        held.append(y)
        return y + x

    for i in range(4):
        assert step(tj.ones(1) * i).tolist() == [3 * i]
        assert held[-1].tolist() == [2 * i]


def test_the_line_of_what_grows_an_outer_list_by_an_old_array_is_that_of_the_function():
    held, old = [], tj.ones(2)

    @tj.jit
    def step(x):  # grows
        held.append(old)
        return x * 2

    for i in range(3):
        assert step(tj.ones(1) * i).tolist() == [2 * i]
    assert len(held) == 3
    assert all(kept is old for kept in held)
    assert "changes the keys, length or content of held" in step.explain()


def test_into_a_place_that_no_name_leads_to():
    sink = Sink()

    @tj.jit
    def step(x):
        y = x * 2  # for the sink
        sink.put(y)
        return y + x

    check_escape(step, lambda: vars(sink)["_hidden"], "for the sink")


def test_through_a_function_that_hides_it():
    hidden = []
    keep = {"f": hidden.append}

    @tj.jit
    def step(x):
        y = x * 2  # for the hidden list
        keep["f"](y)
        return y + x

    check_escape(step, lambda: hidden, "for the hidden list")


HIDDEN = []


@tj.pure
def hide(value):
    """Vouched for wrongly: not even this is watched."""
    HIDDEN.append(value)


def test_through_a_function_vouched_for():
    HIDDEN.clear()

    @tj.jit
    def step(x):
        y = x * 2  # for the vouched
        hide(y)
        return y + x

    assert "outlives the call" in check_escape(step, lambda: HIDDEN, "for the vouched")


def test_a_part_of_an_array_keeps_the_array():
    HIDDEN.clear()

    @tj.jit
    def step(x):
        y = tj.concat([x, x * 2])  # for the part
        hide(y[2:])
        return x * 3

    check_escape(step, lambda: HIDDEN, "for the part")


def test_into_a_weak_dictionary():
    held = weakref.WeakValueDictionary()
    strong = []

    class Box:
        pass

    @tj.jit
    def step(x):
        box = Box()
        box.y = x * 2
        held["y"] = box
        strong.append(box)
        return box.y + x

    for i in range(3):
        assert step(tj.ones(1) * i).tolist() == [3 * i]
        assert strong[-1].y.tolist() == [2 * i]


@pytest.mark.parametrize("kind", ["list", "sink"])
def test_strict_names_the_line_and_keeps_nothing(kind):
    held, sink = [], Sink()

    @tj.jit(strict=True)
    def step(x):
        y = x * 2  # kept by a strict step
        (held.append if kind == "list" else sink.put)(y)
        return x

    with pytest.raises(ReplayError, match=rf"an array made at \S+:{line_of('kept by a strict step')} "):
        step(tj.ones(2))
    assert not held
    assert step.cache_info().signatures == 0


def test_a_new_attribute_becomes_replayable_when_it_is_there():
    class Box:
        pass

    box = Box()

    @tj.jit
    def step(x):
        box.cache = x * 2
        return box.cache + 1

    for i in range(5):
        assert step(tj.ones(1) * i).tolist() == [2 * i + 1]
        assert box.cache.tolist() == [2 * i]
    assert step.cache_info().replays >= 3


def test_lazy_state_becomes_replayable():
    class Optimizer:
        def __init__(self):
            self.m = None

        @tj.jit
        def step(self, w, g):
            if self.m is None:
                self.m = g * 0
            self.m = self.m * 0.5 + g
            w -= self.m

    optimizer, w = Optimizer(), tj.zeros(2)
    expected, m = 0.0, 0.0
    for _ in range(6):
        optimizer.step(w, tj.ones(2))
        m = m * 0.5 + 1
        expected -= m
        assert w.tolist() == [expected] * 2
    assert Optimizer.step.cache_info().traces == 2
    assert "runs piecewise" not in Optimizer.step.explain()


def test_what_dies_with_the_call_is_no_escape():
    @tj.jit(strict=True)
    def step(x):
        parts = [x * i for i in range(3)]
        loop = {"parts": parts}
        loop["self"] = loop  # a cycle
        table = {str(i): p for i, p in enumerate(parts)}
        return sum(table.values())

    for i in range(3):
        assert step(tj.ones(1) * i).tolist() == [3 * i]


@pytest.mark.parametrize("young", [False, True])
def test_what_only_a_cycle_keeps_is_no_escape_without_the_collector(young, monkeypatch):
    """The cycle is looked for among what is new, and only if it is not there among everything."""
    collect, asked = gc.collect, []

    def collected(generation=2):
        asked.append(generation)
        return collect(generation) if young or generation else 0

    @tj.jit(strict=True)
    def step(x):
        part = x * 2
        cycle = {"part": part}
        cycle["self"] = cycle
        return part + 1

    monkeypatch.setattr(gc, "collect", collected)
    gc.disable()
    try:
        assert step(tj.ones(1)).tolist() == [3]
    finally:
        gc.enable()
    assert asked == ([0] if young else [0, 2])


@pytest.mark.cpu("graphs make types of ctypes, which the collector frees")
def test_nothing_of_ours_is_left_to_the_collector():
    """It would keep arrays alive until it runs."""

    def loss(params, x):
        return ((x @ params["w"] + params["b"][0]) ** 2).mean()

    @tj.jit
    def step(params, state, x):
        value, grads = tj.value_and_grad(loss)(params, x)
        tj.optim.momentum(params, grads, state, 0.1)
        return tj.tree.map(lambda leaf: leaf * 2, {"a": [value]})

    params = {"w": tj.ones((3, 2)), "b": [tj.ones(2)]}
    state = tj.optim.zeros_like(params)
    for n in range(1, 4):
        step(params, state, tj.ones((n, 3)))
    tj.wait_all()
    gc.collect()
    gc.disable()
    try:
        step(params, state, tj.ones((9, 3)))
        value, grads = tj.value_and_grad(loss)(params, tj.ones((9, 3)))
        gone = [weakref.ref(leaf) for leaf in tj.tree.leaves((value, grads))]
        del value, grads
        assert [ref() for ref in gone] == [None] * 3
        assert gc.collect() == 0
    finally:
        gc.enable()


def test_a_held_array_of_another_call_is_read_again():
    held = {"y": tj.zeros(2)}

    @tj.jit
    def step(x):
        held["y"] = held["y"] + x
        return held["y"] * 1

    for i in range(1, 5):
        kept = held["y"]
        before = kept.tolist()
        assert step(tj.ones(2)).tolist() == [i, i]
        assert kept.tolist() == before
    assert step.cache_info().traces == 1
