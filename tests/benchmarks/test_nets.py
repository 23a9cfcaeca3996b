"""The nets are those of the papers: parameters, extents of what flows through; they compute and learn."""

import math

import numpy as np
import pytest

import tracejit as tj
from benchmarks.nets import NETS
from benchmarks.nets.layers import Layers, Net
from benchmarks.nets.plan import forward, training

# Of the papers' nets, as counted by others; GoogLeNet's with both auxiliary classifiers.
PARAMETERS = {"AlexNet": 60_965_224, "VGG-16": 138_357_544, "GoogLeNet": 13_378_280, "ResNet-50": 25_557_032}


@pytest.mark.parametrize("name", NETS)
def test_number_of_parameters(name):
    assert sum(map(math.prod, NETS[name]().shapes.values())) == PARAMETERS[name]


@pytest.mark.parametrize("name", ["AlexNet", "VGG-16"])
def test_extents(name):
    """The dense layers take what the convolutions give, or recording would raise; these are along the way."""
    net = NETS[name]()
    graph = forward(net, 2).memory.graph
    shapes = {v.type.shape for node in graph.nodes for v in node.outputs}
    expected = {
        "AlexNet": [(2, 96, 55, 55), (2, 256, 27, 27), (2, 384, 13, 13), (2, 256, 6, 6)],
        "VGG-16": [(2, 64, 224, 224), (2, 128, 112, 112), (2, 256, 56, 56), (2, 512, 14, 14), (2, 512, 7, 7)],
    }
    assert shapes.issuperset(expected[name])


@pytest.mark.parametrize("name", ["AlexNet", "GoogLeNet"])
def test_plans_need_less_than_a_buffer_for_each_result(name):
    net = NETS[name]()
    for plan, most in ((training(net, 4), 0.5), (forward(net, 4), 0.25)):
        assert 0 < plan.planned_bytes <= most * plan.naive_bytes


def test_the_forward_pass_needs_at_least_what_is_alive_at_once():
    """VGG-16's largest convolution has its input and its result at the same time."""
    plan = forward(NETS["VGG-16"](), 2)
    assert plan.planned_bytes >= 2 * 4 * 2 * 64 * 224 * 224


class Small(Net):
    """A net of all kinds of layers, for images of 8 x 8."""

    IMAGE = (1, 8, 8)

    def declare(self):
        self.convolution("conv1", 1, 8, 3)
        self.convolution("conv2", 8, 8, 3, groups=2, bias=False)
        self.norm("norm", 8)
        self.dense("fc", 8 * 2 * 2, 2)

    def scores(self, layers, x):
        x = tj.nn.max_pool2d(layers.relu_of("conv1", x, padding=1), 2)
        x = tj.nn.relu(layers.normed("norm", layers.convolved("conv2", x, padding=1, groups=2)))
        return layers.fully("fc", layers.dropped(tj.nn.avg_pool2d(x, 2), 0.1))


def test_a_net_learns_to_tell_horizontal_from_vertical_lines():
    rng, net = np.random.default_rng(0), Small()
    lines, labels = rng.integers(0, 8, 64), rng.integers(0, 2, 64)
    images = rng.normal(size=(64, 1, 8, 8)).astype(np.float32) * 0.1
    for image, line, label in zip(images[:, 0], lines, labels, strict=True):
        image[(line, slice(None)) if label else (slice(None), line)] += 1
    params = {
        name: tj.asarray((rng.normal(size=shape) * 0.3).astype(np.float32))
        for name, shape in net.shapes.items()
    }
    running = {name: tj.ones(shape) for name, shape in net.statistics.items()}
    x, y = tj.asarray(images), tj.asarray(labels)
    tj.random.seed(1)

    @tj.jit(strict=True)
    def step(params, running, x, y, rate):
        def loss_of(params):
            return net.loss(Layers(params, running, training=True), x, y)

        loss, gradients = tj.value_and_grad(loss_of)(params)
        tj.optim.sgd(params, gradients, rate)
        return loss

    losses = [float(step(params, running, x, y, 0.3)) for _ in range(60)]
    assert losses[-1] < 0.2 < losses[0]
    scores = net.scores(Layers(params, running, training=False), x).numpy()
    assert (scores.argmax(axis=1) == labels).mean() > 0.9
