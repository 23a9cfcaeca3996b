"""Kept graphs inside of other things: traced functions, gradients, optimizers, bound arrays, tasks."""

import copy
import pickle

import numpy as np
import pytest

import tracejit as tj
from tracejit.errors import ArgumentError, ReplayError, ShapeError
from tracejit.graphs.safety import with_checked_indices
from tracejit.ir.text import parse_graph

X = np.random.default_rng(0).normal(size=(3, 2)).astype("float32")
weight = tj.asarray([[1.0, 2.0], [3.0, 4.0]])


def layer(x):
    return tj.tanh(x @ weight)


@pytest.fixture(scope="module")
def graph():
    return tj.export(layer, tj.spec(("batch", 2)))


def test_a_call_is_part_of_a_trace(graph):
    traced = tj.jit(lambda x: (graph(x * 2) + 1).sum())
    kernels = len(tj.jit(lambda x: (layer(x * 2) + 1).sum()).kernels(tj.spec((3, 2))))
    for _ in range(3):
        np.testing.assert_allclose(traced(tj.asarray(X)), (np.tanh(2 * X @ weight.numpy()) + 1).sum(), 1e-6)
    assert len(traced.kernels(tj.asarray(X))) == kernels  # it fuses
    assert traced.cache_info().traces == 1
    assert "piecewise" not in traced.explain()


def test_a_graph_moves_to_another_device_with_parameters_and_draws(tmp_path):
    def noisy(x, rate):
        noise = tj.random.uniform(shape=(len(x), 2)) + tj.arange(2, dtype="float32")
        return tj.tanh(x @ weight) * rate + noise

    here = tj.export(noisy, tj.spec(("batch", 2)), 0.5)
    there = here.to("cpu:1")
    there.save(tmp_path / "graph.safetensors")
    x = tj.asarray(X)
    for graph in (there, tj.load_graph(tmp_path / "graph.safetensors"), here.to(tj.cpu(1)).to("cpu:1")):
        tj.random.seed(7)
        result = graph(x.to("cpu:1"), 2.0)
        assert result.device == tj.cpu(1) == graph.parameters["weight"].device
        tj.random.seed(7)
        drawn = tj.random.uniform(shape=(3, 2), device="cpu:1").numpy()
        known = np.tanh(X @ weight.numpy()) * 2 + drawn + np.arange(2)
        np.testing.assert_allclose(result.numpy(), known, rtol=1e-5)
    with pytest.raises(ArgumentError, match=r"x must be on cpu:1, got an array on cpu:0.*graph.to"):
        there(x, 2.0)
    assert there.to("cpu")(x, 0.0).device == tj.cpu(0)
    bound = [graph.bind(x.to(graph.inputs["x"].device), 0.0) for graph in (here, there)]
    assert [one().device for one in bound] == [tj.cpu(0), tj.cpu(1)]


def test_a_graph_whose_views_begin_at_a_difference_moves_to_another_device():
    here = tj.export(lambda x: x[-1:] + x[:1], tj.spec("n"))
    assert "[view=n - 1+" in str(here.text)
    assert here.to("cpu:1").to("cpu:0").text == here.text
    assert here.to("cpu:1")(tj.arange(4.0, device="cpu:1")).tolist() == [3.0]


def test_a_graph_that_was_exported_for_another_device_has_its_parameters_there(tmp_path):
    moved = weight.to("cpu:1")
    with tj.device("cpu:1"):
        graph = tj.export(lambda x: x @ moved, tj.spec(("batch", 2)))
    graph.save(tmp_path / "graph.safetensors")
    for kept in (graph, tj.load_graph(tmp_path / "graph.safetensors")):
        np.testing.assert_array_equal(kept(tj.asarray(X).to("cpu:1")), X @ weight.numpy())


def test_a_graph_on_two_devices_stays_there():
    graph = tj.export(lambda x: x.to("cpu:1") + 1, tj.spec(2))
    assert graph(tj.ones(2)).device == tj.cpu(1)
    with pytest.raises(ArgumentError, match="computes on cpu:0 and cpu:1; only a graph on one device"):
        graph.to("cpu")


def test_a_trace_sees_parameters_that_are_replaced(graph):
    traced = tj.jit(lambda x: graph(x))
    before = traced(tj.asarray(X)).numpy()
    graph.parameters["weight"] = weight * 0
    assert not traced(tj.asarray(X)).numpy().any()
    graph.parameters["weight"] = weight.copy()
    np.testing.assert_array_equal(traced(tj.asarray(X)), before)
    assert traced.cache_info().traces == 1


def test_gradients_flow_through_calls(graph):
    x = tj.asarray(X)

    def loss(x):
        return (graph(x) ** 2).sum()

    expected = tj.grad(lambda x: (layer(x) ** 2).sum())(x)
    np.testing.assert_allclose(tj.grad(loss)(x), expected, rtol=1e-6)
    np.testing.assert_allclose(tj.jit(tj.grad(loss))(x), expected, rtol=1e-6)
    twice = tj.grad(lambda x: (tj.grad(loss)(x) ** 2).sum())(x)
    known = tj.grad(lambda x: (tj.grad(lambda x: (layer(x) ** 2).sum())(x) ** 2).sum())(x)
    np.testing.assert_allclose(twice, known, rtol=1e-5)
    value, tangent = tj.jvp(graph, (x,), (tj.ones((3, 2)),))
    np.testing.assert_allclose(value, layer(x), rtol=1e-6)
    np.testing.assert_allclose(tangent, tj.jvp(layer, (x,), (tj.ones((3, 2)),))[1], rtol=1e-5)


def test_an_exported_gradient_is_a_graph():
    graph = tj.export(tj.grad(lambda x: (x**3).sum()), tj.spec("n"))
    assert graph(tj.asarray([1.0, 2.0])).tolist() == [3.0, 12.0]
    assert tj.grad(lambda x: graph(x).sum())(tj.asarray([1.0, 2.0])).tolist() == [6.0, 12.0]


def test_a_graph_is_the_tree_of_its_parameters(graph):
    x, y = tj.asarray(X), tj.zeros((3, 2))

    @tj.jit
    def step(graph, x, y):
        loss, gradients = tj.value_and_grad(lambda graph: ((graph(x) - y) ** 2).mean())(graph)
        tj.optim.sgd(graph, gradients, 0.1)
        return loss

    other = tj.export(layer, tj.spec(("batch", 2)))
    losses = [float(step(other, x, y)) for _ in range(4)]
    assert losses == sorted(losses, reverse=True)
    assert step.cache_info().traces == 1
    assert (graph.parameters["weight"] == weight).all()
    assert (other.parameters["weight"] != weight).any()


def test_calls_mix_with_imperative_updates(graph):
    x = tj.asarray(X).copy()
    for _ in range(3):
        x[0] = graph(x)[1]
        x += 1
    y = X.copy()
    for _ in range(3):
        y[0] = np.tanh(y @ weight.numpy())[1]
        y += 1
    np.testing.assert_allclose(x, y, rtol=1e-6)


def test_a_graph_of_a_graph(graph):
    outer = tj.export(lambda x: graph(x) + graph(x * 2), tj.spec(("n", 2)))
    assert list(outer.parameters) == ["graph.parameters['weight']"]
    np.testing.assert_allclose(outer(tj.asarray(X)), graph(X) + graph(2 * X), rtol=1e-6)


def test_a_rule_of_ones_own_is_no_part_of_a_graph():
    @tj.custom_gradient
    def clipped(x):
        return x, lambda dy: tj.clip(dy, -1.0, 1.0)

    graph = tj.export(lambda x: (5 * clipped(x)).sum(), tj.spec(3))
    assert float(graph(tj.ones(3))) == 15
    with pytest.raises(ArgumentError, match=r"has no gradient: .*gradient of its own at .*test_calls"):
        tj.grad(graph)(tj.ones(3))
    inside = tj.export(tj.grad(lambda x: (5 * clipped(x)).sum()), tj.spec(3))
    assert inside(tj.ones(3)).tolist() == [1, 1, 1]


def test_random_numbers_are_those_of_the_function():
    def draws(x):
        first = tj.random.normal(shape=x.shape)
        return tj.random.uniform(shape=(x.shape[0],)) + first.sum(1), first

    graph = tj.export(draws, tj.spec(("n", 3)))
    for call in (draws, graph, tj.jit(graph)):
        tj.random.seed(5)
        results = [[r.numpy() for r in call(tj.ones((4, 3)))] for _ in range(3)]
        if call is draws:
            expected = results
        for ours, theirs in zip(results, expected, strict=True):
            np.testing.assert_array_equal(ours[1], theirs[1])
            np.testing.assert_allclose(ours[0], theirs[0], rtol=1e-5)


def test_indices_out_of_range_fail():
    graph = tj.export(lambda x, i: x[i] * 2, tj.spec(3), tj.spec("n", "int64"))
    assert graph(tj.arange(3, dtype="float32"), tj.asarray([0, -1])).tolist() == [0, 4]
    with pytest.raises(tj.errors.OutOfBoundsError, match="index 3 is out of bounds"):
        graph(tj.ones(3), tj.asarray([3])).numpy()


def test_views_of_noncontiguous_arguments():
    graph = tj.export(lambda x: x.reshape(6), tj.spec((2, 3)))
    assert graph(tj.zeros((2, 3))).shape == (6,)
    with pytest.raises(ArgumentError, match="is not contiguous; pass a copy"):
        graph(tj.zeros((3, 2)).T)
    assert graph(tj.zeros((3, 2)).T.copy()).shape == (6,)


def test_a_piecewise_caller_runs_it(graph):
    @tj.jit
    def largest(x):
        return float(graph(x).max())

    assert largest(tj.asarray(X)) == pytest.approx(np.tanh(X @ weight.numpy()).max())
    with pytest.raises(ReplayError):
        tj.export(largest, tj.spec((3, 2)))


def test_copies_have_parameters_of_their_own(graph):
    for other in (copy.deepcopy(graph), pickle.loads(pickle.dumps(graph))):
        np.testing.assert_array_equal(other(X), graph(X))
        other.parameters["weight"][...] = 0
        assert not other(X).numpy().any()
    assert graph(X).numpy().all()


# ---- bound to arrays


def test_bound_graphs_hold_their_arrays():
    def step(params, x, rate):
        loss = ((x @ params["w"]) ** 2).mean()
        params["w"] -= rate * params["w"]
        return {"loss": loss, "w": params["w"]}

    graph = tj.export(step, {"w": tj.spec((2, 2))}, tj.spec(("n", 2)), 0.5)
    w = tj.ones((2, 2))
    bound = graph.bind({"w": w}, tj.ones((3, 2)), rate=0.5)
    assert float(bound()["loss"]) == 4
    assert w.tolist() == bound.inputs["params['w']"].tolist() == [[0.5, 0.5]] * 2
    assert float(bound(x=2 * np.ones((3, 2)), rate=1.0)["loss"]) == 4
    assert not bound.outputs["result['w']"].numpy().any()
    assert bound.inputs["rate"] == 1.0
    assert list(bound.outputs) == ["result['loss']", "result['w']"]
    with pytest.raises(ArgumentError, match=r"there is no input 'speed'; inputs are params\['w'\], x, rate"):
        bound(speed=2)
    with pytest.raises(ShapeError, match="x must be"):
        graph.bind({"w": w}, tj.ones((3, 3)), 0.5)


def test_bound_graphs_give_gradients_by_name(graph):
    function = lambda x, y: {"loss": ((graph(x) - y) ** 2).mean(), "y": y}  # noqa: E731
    loss = tj.export(function, tj.spec(("n", 2)), tj.spec(()))
    name = "graph.parameters['weight']"
    bound = loss.bind(tj.asarray(X), tj.zeros(()))
    result, gradients = bound.value_and_grad("x", name, of="result['loss']")
    expected = tj.grad(lambda x: (layer(x) ** 2).mean())(tj.asarray(X))
    np.testing.assert_allclose(gradients["x"], expected, rtol=1e-6)
    assert gradients[name].shape == (2, 2)
    assert float(result["loss"]) == float(bound.outputs["result['loss']"])
    bound.value_and_grad("x", name, of="result['loss']", x=X)
    with pytest.raises(ArgumentError, match="there is no output 'result'; outputs are"):
        bound.value_and_grad("x")
    with pytest.raises(ArgumentError, match="no array 'z'"):
        bound.value_and_grad("z")


# ---- indices of graphs that come from files


def test_checks_are_added_where_nothing_shows_that_indices_are_in_range():
    text = """graph(%0: float32[3,4], %1: int64[2]) {{
      {index}
      %3: float32[2,4] = gather(%0, %2) [axis=0]
      return %3
    }}"""
    for index, known in [
        ("%2: int64[2] = check_index(%1) [extent=3, axis=0]", True),
        ("%2: int64[2] = check_index(%1) [extent=4, axis=0]", False),
        ("%2: int64[2] = iota() [size=2, device=cpu:0]", True),
        ("%2: int64[2] = add(%1, %1)", False),
    ]:
        graph = parse_graph(text.format(index=index), {})
        checked = with_checked_indices(graph)
        assert (len(checked.nodes) == len(graph.nodes)) == known


def test_a_graph_on_another_device():
    """A graph is for the devices that it was exported on; what comes from elsewhere is refused."""
    here, there = (
        tj.export(lambda x: (x * 2 + tj.ones(3, device=x.device)).sum(), tj.spec(("n", 3), device=tj.cpu(k)))
        for k in (0, 1)
    )
    x = tj.arange(6, dtype=tj.float32).reshape(2, 3)
    bound = there.bind(x.to(tj.cpu(1)))
    assert (float(here(x)), float(bound()), float(bound(x=(x + 1).to(tj.cpu(1))))) == (36.0, 36.0, 48.0)
    assert str(bound().device) == "cpu:1"
    with pytest.raises(ArgumentError, match=r"x must be on cpu:1, got an array on cpu:0(?s:.*)test_calls"):
        there(x)
