"""Exported graphs compute what the function computes, for all extents, and say what they take and change."""

import collections
import dataclasses

import numpy as np
import pytest

import tracejit as tj
from tracejit.errors import ArgumentError, ReplayError, ShapeError

SPECS = {"w": tj.spec((6, 5)), "b": tj.spec(5)}


def step(params, x, y, rate):
    def loss_of(params):
        return ((tj.tanh(x @ params["w"] + params["b"]) - y) ** 2).mean()

    loss, gradients = tj.value_and_grad(loss_of)(params)
    for name, gradient in gradients.items():
        params[name] -= rate * gradient
    return loss


def params():
    rng = np.random.default_rng(0)
    return {n: tj.asarray(rng.normal(size=s.shape).astype("float32")) for n, s in SPECS.items()}


def batch(size):
    rng = np.random.default_rng(size)
    return [tj.asarray(rng.normal(size=(size, n)).astype("float32")) for n in (6, 5)]


@pytest.fixture(scope="module")
def graph():
    return tj.export(step, SPECS, tj.spec(("batch", 6)), tj.spec(("batch", 5)), 0.1)


def test_a_training_step_is_that_of_the_traced_function(graph):
    traced, ours, theirs = tj.jit(step), params(), params()
    for size in (4, 4, 1):
        x, y = batch(size)
        assert float(graph(ours, x, y, rate=0.5)) == float(traced(theirs, x, y, 0.5))
    for name in SPECS:
        np.testing.assert_array_equal(ours[name], theirs[name])
    assert graph._program.traced.cache_info()[:2] == traced.cache_info()[:2] == (2, 1)


def test_names_of_inputs_outputs_and_effects(graph):
    assert str(graph.infer()) == (
        "inputs\n  params['w']: float32[6,5]\n  params['b']: float32[5]\n"
        "  x: float32[batch,6]\n  y: float32[batch,5]\n  rate: float\n"
        "outputs\n  result: float32[]\n"
        "effects\n  params['w']: float32[6,5]\n  params['b']: float32[5]"
    )
    assert graph.extents == ("batch",)
    assert repr(graph).startswith("<KeptGraph step(params, x, y, rate): ")


def test_shapes_are_inferred_again(graph):
    assert graph.infer(batch=64).inputs["x"].shape == graph.infer(x=(64, 6)).inputs["x"].shape == (64, 6)
    recorded = tj.jit(step).graph(SPECS, tj.spec((64, 6)), tj.spec((64, 5)), 0.1)
    assert str(graph.graph(batch=64)) == str(recorded)
    with pytest.raises(ShapeError, match=r"x must be float32\[batch,6\], batch=64, got the shape \(64, 7\)"):
        graph.infer(x=(64, 7))
    with pytest.raises(ShapeError, match=r"y must be float32\[batch,5\], batch=64, got the shape \(3,\)"):
        graph.infer(x=(64, 6), y=3)
    with pytest.raises(ArgumentError, match="step has no array or extent 'z'; it has batch, params"):
        graph.infer(z=3)


def test_arguments_are_checked(graph):
    x, y = batch(4)
    with pytest.raises(ArgumentError, match="step takes the arguments params, x, y, rate; rate missing"):
        graph(params(), x, y)
    with pytest.raises(ArgumentError, match="there is no speed to give"):
        graph(params(), x, y, speed=1.0)
    with pytest.raises(ArgumentError, match="5 are given"):
        graph(params(), x, y, 0.1, 0.2)
    with pytest.raises(ArgumentError, match="params must be a dict of w, b, got dict of w"):
        graph({"w": x}, x, y, 0.1)
    with pytest.raises(ArgumentError, match=r"x must be an array float32\[batch,6\], got float64\[4, 6\]"):
        graph(params(), x.astype("float64"), y, 0.1)
    with pytest.raises(ArgumentError, match="rate must be a number of type float, got NDArray"):
        graph(params(), x, y, tj.ones(()))
    with pytest.raises(
        ShapeError, match=r"y must be float32\[batch,5\], batch=4, got the shape \(3, 5\)"
    ) as error:
        graph(params(), x, y[:3], 0.1)
    assert __file__ in str(error.value)


def test_what_is_written_must_stand_alone():
    def accumulate(total, x):
        total += x
        return total * x

    graph = tj.export(accumulate, tj.spec(3), tj.spec(3))
    total = tj.ones(3)
    with pytest.raises(ArgumentError, match="shares memory with another one; pass a copy"):
        graph(total, total)
    assert graph(total, total.copy()).tolist() == [2.0, 2.0, 2.0]
    rows = tj.zeros((4, 3))
    graph(rows[1], tj.ones(3))
    assert rows.numpy().sum() == rows[1].numpy().sum() == 3


# ---- numbers


def test_numbers_are_inputs_and_branches_are_checked():
    def scaled(x, rate, n):
        return x * (rate * 2 + n) if rate < 1 else x

    graph = tj.export(scaled, tj.spec("k"), 0.5, 3)
    assert graph(tj.ones(2), 0.25, 1).tolist() == [1.5, 1.5]
    assert graph(tj.ones(2), 0, n=1).tolist() == [1.0, 1.0]  # an integer will do for a float
    assert graph.inputs["rate"] is float
    assert graph.inputs["n"] is int
    with pytest.raises(ArgumentError, match=r"exported where \(rate < \(1\)\) is True, and now it is False"):
        graph(tj.ones(2), 2.0, 1)
    with pytest.raises(ArgumentError, match="n must be a number of type int, got float"):
        graph(tj.ones(2), 0.5, 1.5)
    traced = tj.jit(lambda x, rate: graph(x, rate / 2, 1) + 1)
    for rate in (1.0, 0.5, 1.5):
        assert traced(tj.ones(2), rate).tolist() == [rate + 2, rate + 2]
    assert traced.cache_info().traces == 1
    with pytest.raises(ArgumentError, match="exported where"):
        traced(tj.ones(2), 3.0)


def test_plain_values_are_part_of_the_graph():
    graph = tj.export(lambda x, mode: x.sum() if mode == "sum" else x.max(), tj.spec(3), "sum")
    assert float(graph(tj.ones(3), "sum")) == 3
    with pytest.raises(ArgumentError, match="exported for mode='sum'; export it again for 'max'"):
        graph(tj.ones(3), mode="max")


# ---- trees


Point = collections.namedtuple("Point", "a b")


def test_trees_come_in_and_go_out():
    def moved(point, state):
        state["seen"] = point.a + 1
        state["count"] = state["count"] + 1
        return {"point": Point(point.a[1:], point.b), "state": state, "three": 3, "list": [point.a * 2]}

    graph = tj.export(moved, Point(tj.spec(("n", 2)), 1.0), {"seen": tj.spec(("n", 2)), "count": 0})
    point, state = Point(tj.zeros((3, 2)), 5.0), {"seen": tj.ones((3, 2)), "count": 7}
    old = state["seen"]
    result = graph(point, state)
    assert result["state"] is state
    assert state["count"] == 8
    assert state["seen"].tolist() == [[1, 1]] * 3
    assert old.tolist() == [[1, 1]] * 3
    assert result["point"].b == 5.0
    assert result["three"] == 3
    result["point"].a[...] = 9  # a view of the argument, as the function returns it
    assert point.a.tolist() == [[0, 0], [9, 9], [9, 9]]
    assert list(graph.effects) == ["state['seen']", "state['count']"]
    assert graph.outputs["result['point'].a"].shape[1] == 2


def test_a_dataclass_is_taken_by_its_fields():
    @dataclasses.dataclass
    class State:
        w: object
        rate: float

    graph = tj.export(lambda s: s.w * s.rate, State(tj.spec(2), 0.5))
    assert graph(State(tj.ones(2), 3.0)).tolist() == graph({"w": tj.ones(2), "rate": 3.0}).tolist() == [3, 3]


# ---- parameters


def test_arrays_found_by_name_are_kept_as_copies():
    weight, table = tj.ones((2, 3)), np.arange(3, dtype="float32")
    graph = tj.export(lambda x: x @ weight + table, tj.spec(("n", 2)))
    assert {n: x.shape for n, x in graph.parameters.items()} == {"weight": (2, 3), "table": (3,)}
    weight[...] = 0
    assert graph(tj.ones((1, 2))).tolist() == [[2, 3, 4]]
    graph.parameters["weight"][...] = 5
    assert graph(tj.ones((1, 2))).tolist() == [[10, 11, 12]]
    graph.parameters["weight"] = tj.zeros((3, 2))
    with pytest.raises(ArgumentError, match=r"parameter weight must be an array float32\[2,3\]"):
        graph(tj.ones((1, 2)))


def test_effects_on_parameters_are_kept():
    total = tj.zeros(2)

    class State:
        mean = tj.zeros(2)

    def track(x):
        total.__iadd__(x)
        State.mean = 0.5 * State.mean + 0.5 * x
        return total * 1

    graph = tj.export(track, tj.spec(2))
    assert list(graph.effects) == ["total", "State.mean"]
    graph(tj.ones(2))
    assert graph(tj.ones(2)).tolist() == [2, 2]
    assert graph.parameters["State.mean"].tolist() == [0.75, 0.75]
    assert total.tolist() == State.mean.tolist() == [0, 0]


class Net(tj.nn.Module):
    def __init__(self):
        self.conv, self.norm = tj.nn.Conv2d(1, 2, 3, padding=1), tj.nn.BatchNorm(2)
        self.drop, self.out = tj.nn.Dropout(0.5), tj.nn.Linear(32, 3)

    def forward(self, x):
        hidden = tj.nn.relu(self.norm(self.conv(x)))
        return self.out(self.drop(hidden.reshape(x.shape[0], -1)))


def test_a_module_with_random_numbers_and_running_means():
    tj.random.seed(1)
    net, x = Net(), tj.random.normal(shape=(5, 1, 4, 4))
    graph = tj.export(lambda x: net(x), tj.spec(("batch", 1, 4, 4)))
    for _ in range(2):
        tj.random.seed(2)
        ours = graph(x)
        tj.random.seed(2)
        np.testing.assert_array_equal(ours, tj.jit(net)(x))
        np.testing.assert_array_equal(graph.parameters["net.norm.running_var"], net.norm.running_var)
    trained = [path for path, _ in tj.tree.leaves_with_paths(graph)]
    assert "['net.norm.weight']" in trained
    assert "['net.norm.running_var']" not in trained


# ---- what is refused


def raising(kind, match, function, *args):
    with pytest.raises(kind, match=match) as error:
        tj.export(function, *args)
    return str(error.value)


def test_what_cannot_be_exported():
    seen = []
    model = tj.nn.Linear(2, 2)
    assert __file__ in raising(ReplayError, "looks at the value", lambda x: float(x.sum()), tj.spec(3))
    raising(ArgumentError, "cannot call a Python function", lambda x: tj.callback(seen.append, x), tj.spec(3))
    raising(ArgumentError, "model is a Linear, which another process", lambda model: 1, model)
    raising(
        ArgumentError, "f is a function, which a file cannot hold", lambda f, x: f(x), tj.tanh, tj.spec(2)
    )
    raising(ArgumentError, "x names an argument and an extent", lambda x: x, tj.spec("x"))
    raising(ArgumentError, "export: int is not a function", 3)
    raising(ArgumentError, "changes the keys or the length", lambda d: d.update(a=1), {})
    raising(ArgumentError, "the result is a NoValue|the result is a", lambda x: np.float32, tj.spec(2))

    class Count:
        t = 0

    def tick(x):
        Count.t += 1
        return x

    raising(
        ArgumentError, "changes Count.t, which is state of Python; pass it as an argument", tick, tj.spec(2)
    )


def test_functions_that_depend_on_an_extent_otherwise():
    text = raising(ArgumentError, "not one graph for all extents", lambda x: x if len(x) < 50 else x + 1,
                   tj.spec("n"))  # fmt: skip
    assert "for n=11" in text
    text = raising(ArgumentError, "not one graph", lambda x: tj.ones(len(x) // 2), tj.spec("n"))
    assert __file__ in text
    raising(
        ShapeError,
        r"exported with n=11; a multiple is written '2\*n'",
        lambda x: x.reshape(-1, 2),
        tj.spec("n"),
    )
    loop = lambda x: sum(x[i] for i in range(len(x)))  # noqa: E731
    assert __file__ in raising(ArgumentError, "a loop over an extent is unrolled", loop, tj.spec("n"))
    raising(ArgumentError, "not one graph", lambda x: x[: len(x) // 2 * 2], tj.spec("n"))
    halves = tj.export(lambda x: tj.ones(len(x) // 2) * x.reshape(2, -1), tj.spec("2*n"))
    assert halves(tj.ones(6)).shape == (2, 3)
    with pytest.raises(ShapeError, match=r"x must be float32\[2\*n\], got the shape \(5,\)"):
        halves(tj.ones(5))


def test_numpy_arrays_that_depend_on_an_extent_are_refused():
    window = lambda x: tj.hanning(len(x)) * x  # noqa: E731
    text = raising(ArgumentError, "creates a NumPy array of an extent's length", window, tj.spec("n"))
    assert __file__ in text

    def hidden(x):
        return x.sum() + np.array([len(x)], "float32")  # of one shape, but not the same

    raising(ArgumentError, "creates a NumPy array of an extent's length", hidden, tj.spec("n"))
    assert tj.export(hidden, tj.spec(3))(tj.ones(3)).tolist() == [6]


def test_named_extents_elsewhere_are_refused():
    with pytest.raises(ArgumentError, match=r"the extent n has no length here; names are for tj\.export"):
        tj.jit(lambda x: x).graph(tj.spec(("n", 2)))
    with pytest.raises(ArgumentError, match="write a name"):
        tj.spec("n + m")


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.var(0, correction=1) * (0.1 / len(x)) + len(x) / (len(x) + 1),
        lambda x: tj.cumsum(tj.concat([x, x * 2]), 0)[::-1],
        lambda x: tj.flip(x.T @ x, 0) / len(x),
        lambda x: x[tj.argsort(x[:, 0])],
        lambda x: tj.pad(x, ((1, 2), (0, 0)))[:: len(x) + 1],
        lambda x: x[:, None, :] - x[None, :, :],
    ],
)
def test_functions_are_those_of_other_extents(function):
    graph = tj.export(function, tj.spec(("n", 3), "float64"))
    for size in (2, 5, 64):
        x = tj.asarray(np.random.default_rng(size).normal(size=(size, 3)))
        np.testing.assert_allclose(graph(x), function(x), rtol=1e-13)


def test_two_extents():
    def attend(q, k):
        return tj.nn.softmax(q @ k.mT / 2.0, -1)

    graph = tj.export(attend, tj.spec(("batch", "seq", 4)), tj.spec(("batch", "seq", 4)))
    assert graph.infer(batch=3, seq=7).outputs["result"].shape == (3, 7, 7)
    q = tj.asarray(np.random.default_rng(0).normal(size=(3, 7, 4)).astype("float32"))
    np.testing.assert_allclose(graph(q, q), attend(q, q), rtol=1e-6)
    with pytest.raises(ArgumentError, match="the extent seq is not known"):
        graph.infer(batch=3)


def test_three_extents_and_no_more():
    graph = tj.export(lambda x: x.mT.reshape(-1, x.shape[1]), tj.spec(("a", "b", "c")))
    assert graph.infer(a=2, b=3, c=4).outputs["result"].shape == (8, 3)
    raising(ArgumentError, "4 extents have names, at most 3 may", lambda x: x, tj.spec(("a", "b", "c", "d")))
