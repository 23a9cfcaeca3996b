"""Promise 6: results survive later calls; what was given comes back as itself; any tree of results."""

from __future__ import annotations

import collections
import dataclasses
import enum

import numpy as np
import pytest

import tracejit as tj
from tests.semantics.compare import Program, check

TABLE = {"w": tj.ones(2)}
Pair = collections.namedtuple("Pair", "first second")


class Colour(enum.Enum):
    RED = 1


@dataclasses.dataclass
class Report:
    loss: object
    name: str = "train"


def test_results_survive_all_later_calls():
    @tj.jit
    def step(x):
        return x * 2, (x + 1)[1:], x.sum()

    held = []
    for i in range(20):
        held.append((i, step(tj.asarray(np.arange(5, dtype=np.float32) + i))))
    for i, (double, tail, total) in held:
        x = np.arange(5) + i
        assert double.tolist() == (x * 2).tolist()
        assert tail.tolist() == (x + 1)[1:].tolist()
        assert float(total) == x.sum()


def test_a_view_of_a_result_aliases_the_result():
    @tj.jit
    def step(x):
        y = x * 2
        return y, y[1:], y.T

    for _ in range(3):
        y, tail, transposed = step(tj.ones(3))
        tail[0] = 7
        assert y.tolist() == [2, 7, 2]
        assert transposed.tolist() == [2, 7, 2]


def test_returning_an_argument_returns_that_argument():
    @tj.jit
    def step(x, tree, n):
        x += 1
        return x, tree, tree["w"], n

    for _ in range(4):
        x, tree = tj.zeros(2), {"w": tj.ones(2)}
        given = step(x, tree, 5)
        assert given[0] is x
        assert given[1] is tree
        assert given[2] is tree["w"]
        assert given[3] == 5


def test_returning_a_view_of_an_argument_returns_an_aliasing_view():
    @tj.jit
    def step(x):
        return x[1:3], x.T

    for i in range(4):
        base = tj.zeros(8)
        x = base[i : i + 4]
        part, turned = step(x)
        part[...] = 1
        turned[3] = 2
        expected = np.zeros(8)
        expected[i + 1 : i + 3] = 1
        expected[i + 3] = 2
        assert base.tolist() == expected.tolist()
    assert step.cache_info().traces == 1


def test_returning_what_was_reached_by_name():
    inner = tj.zeros(2)
    held = {"inner": inner}

    @tj.jit
    def step(x):
        return TABLE, TABLE["w"], held["inner"], held, inner[1:]

    for _ in range(4):
        table, w, same, box, tail = step(tj.ones(1))
        assert table is TABLE
        assert w is TABLE["w"]
        assert same is inner
        assert box is held
        tail[0] = 5
        assert inner.tolist() == [0, 5]
        inner[1] = 0
    assert step.cache_info().replays == 3


def test_the_same_argument_twice_comes_back_twice():
    @tj.jit
    def step(a, b):
        return a is b, a, b

    x, y = tj.ones(2), tj.ones(2)
    view = x[:]
    for _ in range(3):
        assert step(x, x)[0] is True
        same, a, b = step(x, y)
        assert (same, a is x, b is y) == (False, True, True)
        same, a, b = step(x, view)
        assert (same, a is x, b is view) == (False, True, True)


def test_trees_of_results():
    def make(xp, array):
        def step(x, n, lr):
            return {
                "none": None,
                "text": "done",
                "flag": x.ndim == 1,
                "number": n * 2,
                "rate": lr / 2,
                "list": [x + 1.0, (x, n)],
                "pair": Pair(x * 2.0, n),
                "report": Report(x.sum()),
                "colour": Colour.RED,
                "shape": x.shape,
                "empty": [],
            }

        return Program(step, lambda i: (array(np.arange(3.0)), i, 0.5 * i))

    check(make)


def test_new_containers_are_new_in_every_call():
    @tj.jit
    def step(x):
        return {"x": x * 2, "list": [1, 2]}

    one, two = step(tj.ones(1)), step(tj.ones(1))
    assert one is not two
    one["list"].append(3)
    one["x"] += 1
    assert two["list"] == [1, 2]
    assert step(tj.ones(1))["list"] == [1, 2]
    assert step(tj.ones(1))["x"].tolist() == [2]


@pytest.mark.parametrize("value", [None, 3, "text", (), 2.5, True])
def test_results_without_arrays(value):
    @tj.jit
    def step(x):
        x += 1
        return value

    x = tj.zeros(1)
    for i in range(1, 5):
        assert step(x) == value
        assert x.tolist() == [i]


def test_a_constant_array_made_in_the_body_is_new_in_every_call():
    def make(xp, array):
        def step(x):
            grid = array([1.0, 2.0, 3.0])
            table = array(np.arange(3.0))
            grid += x
            table[0] = 9.0
            return grid, table, array([5.0, 6.0])

        return Program(step, lambda i: (array(np.full(3, float(i))),))

    f = check(make)
    first = f(tj.zeros(3))
    first[2][0] = 100
    assert f(tj.zeros(3))[2].tolist() == [5, 6]


def test_objects_that_cannot_be_made_again_are_piecewise_and_right():
    class Result:
        def __init__(self, loss, lr):
            self.loss, self.lr = loss, lr

    @tj.jit
    def step(x, lr):
        return Result(x * lr, lr * 2)

    for i in range(4):
        result = step(tj.ones(1), float(i))
        assert result.loss.tolist() == [i]
        assert result.lr == 2 * i
        assert type(result.lr) is float
    assert "Result" in step.explain()


def test_a_closure_over_the_calls_arrays_is_piecewise_and_right():
    @tj.jit
    def step(x, n):
        return lambda: (x * n).tolist()

    for i in range(4):
        assert step(tj.ones(1) * i, 2)() == [2 * i]


def test_numpy_arguments_come_back_as_arrays():
    @tj.jit
    def step(x):
        return x

    for i in range(3):
        data = np.full(2, i, np.float32)
        result = step(data)
        assert type(result) is tj.NDArray
        data[...] = -1
        assert result.tolist() == [i, i]


def test_a_result_is_known_by_identity_when_it_comes_back_as_argument():
    """Also between functions; comparing types takes longer than all other checks of an array."""
    double, halve = tj.jit(lambda x: x * 2), tj.jit(lambda x: x / 2)
    x = tj.asarray(np.arange(6.0).reshape(2, 3))
    halve(double(x))
    for function in (double, halve):
        function.entry_for(x).replay.__globals__["adopt_type"] = lambda storage, type: False
    replays = double.cache_info().replays
    for _ in range(3):
        x = halve(double(x))
    assert x.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert double.cache_info().traces == halve.cache_info().traces == 1
    assert double.cache_info().replays == replays + 3


def test_numpy_arrays_that_the_body_worked_out_are_copied():
    def table(n, scale):
        squares = np.zeros((n, 3))
        for i in range(n):
            squares[i] = i * scale
        return squares.T, {"again": squares.T.copy(), "n": n}

    function = tj.jit(table, strict=True)
    for n, scale in ((4, 2), (4, 2), (3, 2), (4, 1), (4, 2)):
        found, parts = function(n, scale)
        expected = table(n, scale)[0]
        assert type(found) is np.ndarray
        assert found.strides == expected.strides
        np.testing.assert_array_equal(found, expected)
        np.testing.assert_array_equal(parts["again"], expected)
        found[...] = 7  # the caller's own
    assert function.cache_info().traces == 3


def test_numpy_arrays_that_share_memory_are_not_copied():
    table = np.arange(4.0)

    def window(n):
        return table[:n]

    def twice(n):
        made = np.arange(float(n))
        return made, made[1:]

    for body in (window, twice):
        function = tj.jit(body)
        for _ in range(3):
            found = function(3)
            expected = body(3)
            np.testing.assert_array_equal(found[0], expected[0])
        assert "cannot make again" in function.explain()
    assert np.shares_memory(tj.jit(window)(3), table)
