"""Modules: parameters by name, saving, training in traced functions, and that they replay."""

import copy
import dataclasses
import pickle

import numpy as np
import pytest

import tracejit as tj
from tests.frontend.conftest import to_numpy

nn = tj.nn


class Net(nn.Module):
    """Everything that a net may hold: lists, dicts, functions, numbers, a shared parameter."""

    def __init__(self):
        self.embed = nn.Embedding(7, 8)
        self.blocks = [nn.Sequential(nn.Linear(8, 8), nn.gelu, nn.Dropout(0.0))]
        self.norms = {"first": nn.LayerNorm(8), "last": nn.BatchNorm(8)}
        self.scale = tj.ones(())
        self.factor = 0.5
        self.tied = self.embed.weight

    def forward(self, labels):
        x = self.embed(labels)
        for block in self.blocks:
            x = x + block(self.norms["first"](x)) * self.factor
        x = self.norms["last"](x) * self.scale
        return x @ self.tied.T


NAMES = [
    *("scale", "embed.weight", "blocks.0.layers.0.weight", "blocks.0.layers.0.bias"),
    *("norms.first.weight", "norms.first.bias", "norms.last.weight", "norms.last.bias"),
]


def seeded(make):
    tj.random.seed(1)
    return make()


def test_names():
    net = seeded(Net)
    assert set(net.parameters()) - {"tied"} | {"embed.weight"} == set(NAMES)
    assert len(net.parameters()) == len(NAMES)
    buffers = net.state_dict().keys() - net.parameters().keys()
    assert buffers == {"norms.last.running_mean", "norms.last.running_var"}
    assert net.modules()["blocks.0.layers.0"] is net.blocks[0].layers[0]


def test_a_module_is_a_tree():
    net = seeded(Net)
    leaves = tj.tree.leaves({"net": net, "x": 3})
    assert len(leaves) == len(NAMES) + 1
    assert tj.optim.zeros_like(net).keys() == net.parameters().keys()
    assert float(tj.optim.global_norm(net)) > 0
    path = tj.tree.leaves_with_paths(nn.Linear(1, 1), "net")[0][0]
    assert path == "net['weight']"


def test_states_are_loaded_in_place(tmp_path):
    net, other = Net(), Net()
    held = other.parameters()
    tj.save(tmp_path / "net.npz", net.state_dict())
    other.load_state_dict(tj.load(tmp_path / "net.npz"))
    assert all(other.parameters()[name] is x for name, x in held.items())
    labels = tj.asarray([1, 2, 6])
    np.testing.assert_array_equal(net.eval()(labels).numpy(), other.eval()(labels).numpy())
    with pytest.raises(
        tj.errors.ArgumentError, match=r"missing \['bias'\], unknown \['b'\](?s:.*)test_nn_modules"
    ):
        nn.Linear(1, 1).load_state_dict({"weight": tj.ones((1, 1)), "b": tj.ones(1)})
    with pytest.raises(tj.errors.ShapeError, match=r"weight has shape \(1,\), expected \(1, 1\)"):
        nn.Linear(1, 1).load_state_dict({"weight": tj.ones(1), "bias": tj.ones(1)})


def test_training_is_passed_on():
    net = Net()
    assert all(not m.training for m in net.eval().modules().values())
    assert all(m.training for m in net.train().modules().values())


def loss_of(net, labels):
    return nn.cross_entropy(net(labels), labels)


def train(net, state, labels, lr):
    loss, grads = tj.value_and_grad(loss_of)(net, labels)
    tj.optim.adamw(net, tj.optim.clip_by_global_norm(grads, 1.0), state, lr)
    return loss


def test_traced_training_equals_eager_training_and_replays():
    labels = tj.asarray([0, 1, 2, 3, 4, 5, 6])
    eager, traced = seeded(Net), seeded(Net)
    state, state2 = tj.optim.adam_state(eager), tj.optim.adam_state(traced)
    step = tj.jit(train)
    for k in range(5):
        loss = float(train(eager, state, labels, 0.01 + k / 100))
        np.testing.assert_allclose(float(step(traced, state2, labels, 0.01 + k / 100)), loss, rtol=2e-4)
    assert (step.cache_info().traces, step.cache_info().replays) == (1, 4)
    assert state2["step"] == 5
    for name, x in eager.state_dict().items():
        np.testing.assert_allclose(traced.state_dict()[name].numpy(), x.numpy(), rtol=2e-3, atol=2e-5)
    assert np.abs(traced.norms["last"].running_mean.numpy()).max() > 0
    another = seeded(Net)  # of the same class: the same program
    step(another, tj.optim.adam_state(another), labels, 0.1)
    assert step.cache_info().traces == 1
    step(another.eval(), tj.optim.adam_state(another), labels, 0.1)
    assert step.cache_info().traces == 2


def test_gradients_with_respect_to_a_module():
    net, labels = seeded(Net), tj.asarray([0, 1, 1])
    for gradient in (tj.grad(loss_of), tj.jit(tj.grad(loss_of))):
        found = gradient(net, labels)
        assert found.keys() == net.parameters().keys()
        assert all(found[name].shape == x.shape for name, x in net.parameters().items())
        found = gradient(net, labels)
    assert np.abs(found["blocks.0.layers.0.weight"].numpy()).max() > 0


LAYER = INPUT = None  # made by the test: random numbers need a kernel, and every process imports this file


def test_a_module_that_is_reached_by_name():
    global LAYER, INPUT
    LAYER, INPUT = nn.Linear(2, 1), tj.ones((3, 2))

    @tj.jit
    def step():
        grads = tj.grad(lambda layer: (layer(INPUT) ** 2).sum())(LAYER)
        tj.optim.sgd(LAYER, grads, 0.05)
        return LAYER(INPUT)

    first = float(abs(step()).sum())
    for _ in range(5):
        last = float(abs(step()).sum())
    assert last < first
    assert step.cache_info().traces == 1
    LAYER.weight = tj.zeros((1, 2))
    LAYER.bias = None
    assert float(abs(step()).sum()) == 0


LAYERS = {
    "linear": (lambda: nn.Linear(6, 3, bias=False), (4, 6)),
    "conv1d": (lambda: nn.Conv1d(6, 4, 3, stride=2, groups=2), (2, 6, 9)),
    "conv2d": (lambda: nn.Conv2d(6, 4, (3, 2), padding="same"), (2, 6, 5, 4)),
    "layer_norm": (lambda: nn.LayerNorm((3, 6)), (2, 3, 6)),
    "rms_norm": (lambda: nn.RMSNorm(6), (2, 3, 6)),
    "group_norm": (lambda: nn.GroupNorm(3, 6), (2, 6, 4)),
    "batch_norm": (lambda: nn.BatchNorm(6).eval(), (2, 6, 4)),
    "attention": (lambda: nn.MultiHeadAttention(6, 2), (2, 4, 6)),
    "lstm": (lambda: nn.LSTM(6, 3, layers=2, bidirectional=True), (2, 3, 6)),
    "gru": (lambda: nn.GRU(6, 3, bias=False), (2, 3, 6)),
}


@pytest.mark.parametrize("name", LAYERS)
def test_layers_replay(name):
    make, shape = LAYERS[name]
    layer, x = seeded(make), tj.asarray(np.random.default_rng(1).normal(size=shape).astype(np.float32))
    traced = tj.jit(lambda layer, x: layer(x))
    expected = to_numpy(layer(x))
    for _ in range(3):
        found = to_numpy(traced(layer, x))
        for a, b in zip(tj.tree.leaves(found), tj.tree.leaves(expected), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    assert (traced.cache_info().traces, traced.cache_info().replays) == (1, 2)
    assert all(p.dtype == np.float32 for p in layer.parameters().values())


def test_dtypes():
    layer = nn.Linear(2, 3, dtype=tj.float64)
    assert layer(np.ones(2)).dtype == np.float64


@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_layers_of_recurrent_nets(kind, evaluator):
    net = getattr(nn, kind)(5, 3, layers=2, bidirectional=True, dtype=tj.float64)
    function = getattr(nn, kind.lower())
    rng = np.random.default_rng(2)
    x, states = rng.normal(size=(2, 4, 5)), rng.normal(size=(2, 4, 2, 3))
    state = tuple(states) if kind == "LSTM" else states[0]
    found, last = net(x, tj.tree.map(tj.asarray, state))
    ends = []
    for layer in range(2):
        parts = []
        for direction in range(2):
            index = 2 * layer + direction
            start = (states[0, index], states[1, index]) if kind == "LSTM" else states[0, index]
            outputs, end = function(x, start, *net.cells[index].weights(), reverse=direction == 1)
            parts.append(outputs.numpy())
            ends.append(tj.tree.leaves(end)[0].numpy())
        x = np.concatenate(parts, -1)
    np.testing.assert_allclose(found.numpy(), x, rtol=1e-12)
    np.testing.assert_allclose(tj.tree.leaves(last)[0].numpy(), np.stack(ends), rtol=1e-12)


def changes(net):
    """Ways in which the parameters of a net change, each after the one before."""
    net.extra = tj.ones(3)
    yield "a new attribute"
    net.a.more = tj.full(3, 2.0)
    yield "one of a module inside"
    net.blocks.append(nn.Linear(2, 2))
    yield "another module in a list"
    net.blocks[0].weight = tj.full((2, 2), 3.0)
    yield "another array"
    net.table["k"] = tj.ones(2)
    yield "an array in a dict"
    net.a.bias = None
    yield "no array any more"
    del net.extra
    yield "an attribute less"
    net.table["m"] = nn.Linear(1, 1)
    yield "a module in a dict"
    net.labels = tj.asarray([1, 2])
    yield "an array that is no parameter"
    net.a = nn.Sequential(nn.Linear(3, 3))
    yield "another module"
    net.a.layers[0].bias = tj.ones(3)
    yield "an array in a module in a tuple"


class Changing(nn.Module):
    def __init__(self):
        self.a, self.blocks, self.table = nn.Linear(2, 2), [nn.Linear(2, 2)], {}


@pytest.mark.parametrize("how", ["argument", "closure", "tree"])
def test_replays_see_what_becomes_of_a_module(how):
    net = Changing()
    of_arg = tj.jit(lambda net: sum([(p * p).sum() for p in net.parameters().values()]))
    of_name = tj.jit(lambda: sum([(p * p).sum() for p in net.parameters().values()]))
    of_tree = tj.jit(lambda net: tj.optim.global_norm(net) ** 2)
    total = {"argument": lambda: of_arg(net), "closure": of_name, "tree": lambda: of_tree(net)}[how]
    total()
    for change in changes(net):
        for _ in range(2):
            expected = sum((p.numpy() ** 2).sum() for p in net.parameters().values())
            np.testing.assert_allclose(float(total()), expected, rtol=1e-5, err_msg=change)


def test_a_module_may_be_a_dataclass():
    @dataclasses.dataclass
    class Affine(nn.Module):
        weight: tj.NDArray
        power: int

        def forward(self, x):
            return self.weight * x**self.power

    net = Affine(tj.ones(2), 2)
    assert list(net.parameters()) == ["weight"]
    step = tj.jit(lambda net, x: tj.grad(lambda net: net(x).sum())(net))
    for _ in range(3):
        np.testing.assert_array_equal(step(net, tj.full(2, 3.0))["weight"].numpy(), [9, 9])
    assert step.cache_info().traces == 1


def test_several_modules_and_traced_methods():
    class Traced(nn.Linear):
        @tj.jit
        def forward(self, x):
            return super().forward(x)

    nets, x = [nn.Linear(2, 2), Traced(2, 2)], tj.ones((3, 2))

    @tj.jit
    def step(first, rest):
        def loss_of(first, rest):
            return (rest[0](first(x)) ** 2).sum()

        loss, gradients = tj.value_and_grad(loss_of, argnums=(0, 1))(first, rest)
        for net, gradient in zip((first, rest), gradients, strict=True):
            tj.optim.sgd(net, gradient, 0.01)
        return loss

    losses = [float(step(nets[0], nets[1:])) for _ in range(4)]
    assert losses == sorted(losses, reverse=True)
    assert step.cache_info().traces == 1
    np.testing.assert_allclose(
        nets[1](x).numpy(), nn.linear(x, nets[1].weight, nets[1].bias).numpy(), rtol=1e-6
    )
    value, pull_back = tj.vjp(lambda net: net(x), nets[0])
    assert pull_back(value)[0]["weight"].shape == (2, 2)


def test_copies():
    net = nn.Sequential(nn.Linear(2, 2), nn.Dropout())
    for again in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        again.parameters()["layers.0.weight"][...] = 0
        assert again.layers[0].weight.numpy().max() == 0
    assert net.layers[0].weight.numpy().max() > 0


def test_text():
    assert repr(nn.Linear(3, 2)) == "Linear(weight: float32[2, 3], bias: float32[2])"


def test_forward_is_missing():
    with pytest.raises(NotImplementedError, match="Module does not define forward"):
        nn.Module()(1)
