"""Training steps of networks for images, with momentum.

- ResNet-18 in its variant for 32 x 32 images (a 3 x 3 stem without pooling), 32 images;
- ResNet-50 for 224 x 224 images, 8 images: 3 x 3, some with stride 2, between 1 x 1 convolutions;
- MobileNetV2 for 224 x 224 images, 8 images: depthwise convolutions between 1 x 1 convolutions.

He, Zhang, Ren and Sun, Deep residual learning for image recognition, 2015; Sandler et al., MobileNetV2,
2018. A net is written once, over the functions of a *kit* that each peer implements; batch norm is that of
training, without running statistics. Nets are compared after one step, with a large tolerance, because their
gradients amplify errors (for ResNet-18, the mean deviation from float64 gradients is 0.4 % for torch, 0.03 %
for ours). The scale of the last norm of each residual branch is initialised to a small value (0 in Goyal et
al., Accurate, large minibatch SGD, 2017): if it starts at 1, gradients of ResNet-50 differ by a tenth to a
quarter between peers.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from benchmarks.workload import Arrays, Side, Workload, normal, torch_training, training_results

RATE, MOMENTUM, EPSILON, CLASSES = 0.01, 0.9, 1e-5, 10

ADDED = 0.2
"""The first scale of the last norm of a block that adds to its input."""

STEM_WINDOW = 7
"""The window of a stem that pooling follows."""


class Kit(NamedTuple):
    """The functions of a peer: ``conv(x, w, stride, groups)``, whose padding keeps the extents at stride 1;
    ``norm(x, scale, shift)`` of a batch; ``relu``; ``relu6``; ``smaller``, 3 x 3 max pooling
    with stride 2; ``pool``, means of images; and ``loss(scores, labels)``, mean cross entropy.
    """

    conv: Callable[..., Any]
    norm: Callable[..., Any]
    relu: Callable[..., Any]
    relu6: Callable[..., Any]
    smaller: Callable[..., Any]
    pool: Callable[..., Any]
    loss: Callable[..., Any]


class Layer(NamedTuple):
    """A convolution followed by batch norm."""

    name: str
    channels: int
    filters: int
    window: int = 3
    stride: int = 1
    groups: int = 1

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Its parameters."""
        window = (self.filters, self.channels // self.groups, self.window, self.window)
        return {
            self.name: window,
            f"{self.name}.scale": (self.filters,),
            f"{self.name}.shift": (self.filters,),
        }

    def __call__(self, kit: Kit, p: dict[str, Any], x: Any) -> Any:
        y = kit.conv(x, p[self.name], self.stride, self.groups)
        return kit.norm(y, p[f"{self.name}.scale"], p[f"{self.name}.shift"])


class Block(NamedTuple):
    """Layers, and their shortcut, which is added to their result: none, the input, or the result of a
    layer."""

    layers: tuple[Layer, ...]
    adds: bool = False
    project: Layer | None = None


def resnet18() -> Iterator[Block]:
    yield Block((Layer("stem", 3, 64),))
    channels = 64
    for width, first in ((64, 1), (128, 2), (256, 2), (512, 2)):
        for number, stride in enumerate((first, 1)):
            name = f"{width}.{number}"
            project = Layer(f"{name}.project", channels, width, 1, stride) if stride > 1 else None
            layers = (Layer(f"{name}.a", channels, width, 3, stride), Layer(f"{name}.b", width, width))
            yield Block(layers, True, project)
            channels = width


def resnet50() -> Iterator[Block]:
    yield Block((Layer("stem", 3, 64, 7, 2),))
    channels = 64
    for width, count, first in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for number in range(count):
            name, stride, wide = f"{width}.{number}", first if number == 0 else 1, 4 * width
            project = Layer(f"{name}.project", channels, wide, 1, stride) if number == 0 else None
            layers = (
                Layer(f"{name}.reduce", channels, width, 1),
                Layer(f"{name}.conv", width, width, 3, stride),
                Layer(f"{name}.expand", width, wide, 1),
            )
            yield Block(layers, True, project)
            channels = wide


def mobilenet() -> Iterator[Block]:
    yield Block((Layer("stem", 3, 32, 3, 2),))
    channels = 32
    stages = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2))
    for stage, (factor, width, count, first) in enumerate((*stages, (6, 320, 1, 1))):
        for number in range(count):
            name, wide, stride = f"{stage}.{number}", channels * factor, first if number == 0 else 1
            grow = (Layer(f"{name}.grow", channels, wide, 1),) if factor > 1 else ()
            depth, shrink = (
                Layer(f"{name}.depth", wide, wide, 3, stride, wide),
                Layer(f"{name}.shrink", wide, width, 1),
            )
            yield Block((*grow, depth, shrink), stride == 1 and channels == width)
            channels = width
    yield Block((Layer("head", channels, 1280, 1),))


def residual_scores(blocks: Callable[[], Iterator[Block]], kit: Kit, p: dict[str, Any], x: Any) -> Any:
    """The scores of a ResNet: relu after each layer; for the last layer of a block, after the shortcut is
    added."""
    for block in blocks():
        y = x
        for layer in block.layers[:-1]:
            y = kit.relu(layer(kit, p, y))
        y = block.layers[-1](kit, p, y)
        if block.adds:
            y = y + (x if block.project is None else block.project(kit, p, x))
        x = kit.relu(y)
        x = x if block.layers[0].window < STEM_WINDOW else kit.smaller(x)
    return kit.pool(x) @ p["dense"]


def mobile_scores(kit: Kit, p: dict[str, Any], x: Any) -> Any:
    """The scores of MobileNetV2: relu6 after each layer except the projections that reduce channels."""
    for block in mobilenet():
        y = x
        for layer in block.layers:
            y = layer(kit, p, y)
            y = y if layer.name.endswith("shrink") else kit.relu6(y)
        x = x + y if block.adds else y
    return kit.pool(x) @ p["dense"]


class Net(NamedTuple):
    """A net to train: blocks, scores, the shape of its images, the features before the last product."""

    blocks: Callable[[], Iterator[Block]]
    scores: Callable[[Kit, dict[str, Any], Any], Any]
    images: tuple[int, int, int, int]
    features: int


NETS = {
    "resnet18": Net(resnet18, functools.partial(residual_scores, resnet18), (32, 3, 32, 32), 512),
    "resnet50": Net(resnet50, functools.partial(residual_scores, resnet50), (8, 3, 224, 224), 2048),
    "mobilenetv2": Net(mobilenet, mobile_scores, (8, 3, 224, 224), 1280),
}


def make_data(net: Net) -> dict[str, Any]:
    """Images, labels and parameters (He initialisation)."""
    blocks = list(net.blocks())
    layers = [layer for block in blocks for layer in (*block.layers, block.project) if layer is not None]
    params = {}
    for seed, layer in enumerate(layers):
        for name, shape in layer.shapes().items():
            if len(shape) > 1:
                params[name] = normal(*shape, scale=float(2 / np.prod(shape[1:])) ** 0.5, seed=seed)
            else:
                params[name] = np.full(shape, name.endswith("scale"), np.float32)
    for block in blocks:
        if block.adds:
            params[f"{block.layers[-1].name}.scale"][:] = ADDED
    params["dense"] = normal(net.features, CLASSES, scale=net.features**-0.5)
    labels = np.random.default_rng(1).integers(0, CLASSES, net.images[0])
    return {"x": normal(*net.images), "y": labels, "params": params}


def results(loss: Any, params: dict[str, Any], data: dict[str, Any]) -> Arrays:
    """The loss, and the changes of the weights; the changes of norms are noise where another norm follows."""
    weights = {name: value for name, value in data["params"].items() if value.ndim > 1}
    return training_results(loss, params, {"params": weights})


def tracejit_kit(tj: Any) -> Kit:
    nn = tj.nn
    return Kit(
        lambda x, w, s, g: nn.conv2d(x, w, stride=s, padding=w.shape[2] // 2, groups=g),
        lambda x, scale, shift: nn.batch_norm(x, None, None, scale, shift, training=True, epsilon=EPSILON),
        nn.relu,
        lambda x: tj.clip(x, 0, 6),
        lambda x: nn.max_pool2d(x, 3, stride=2, padding=1),
        lambda x: x.mean((2, 3)),
        nn.cross_entropy,
    )


def in_tracejit(net: Net, tj: Any, data: dict[str, Any]) -> Side:
    kit = tracejit_kit(tj)

    @tj.jit
    def train(params, velocity, x, y, rate):
        loss, gradients = tj.value_and_grad(lambda p: kit.loss(net.scores(kit, p, x), y))(params)
        tj.optim.momentum(params, gradients, velocity, rate, MOMENTUM)
        return loss

    params = {name: tj.asarray(value) for name, value in data["params"].items()}
    velocity = tj.optim.zeros_like(params)
    x, y = tj.asarray(data["x"]), tj.asarray(data["y"])
    loss = None

    def step():
        nonlocal loss
        loss = train(params, velocity, x, y, RATE)

    def read():
        return results(loss.numpy(), {n: p.numpy() for n, p in params.items()}, data)

    return Side(step, read, train)


def jax_kit(jax: Any) -> Kit:
    jnp, nn = jax.numpy, jax.nn

    def conv(x, w, stride, groups):
        around, names = [(w.shape[2] // 2,) * 2] * 2, ("NCHW", "OIHW", "NCHW")
        return jax.lax.conv_general_dilated(
            x, w, (stride, stride), around, dimension_numbers=names, feature_group_count=groups
        )

    def norm(x, scale, shift):
        mean = x.mean((0, 2, 3), keepdims=True)
        factor = jax.lax.rsqrt(x.var((0, 2, 3), keepdims=True) + EPSILON) * scale[:, None, None]
        return (x - mean) * factor + shift[:, None, None]

    def loss(scores, y):
        return -(nn.log_softmax(scores) * nn.one_hot(y, CLASSES)).sum(1).mean()

    def smaller(x):
        around = ((0, 0), (0, 0), (1, 1), (1, 1))
        return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 1, 3, 3), (1, 1, 2, 2), around)

    return Kit(conv, norm, nn.relu, lambda x: jnp.clip(x, 0, 6), smaller, lambda x: x.mean((2, 3)), loss)


def in_jax(net: Net, jax: Any, data: dict[str, Any]) -> Side:
    kit, jnp = jax_kit(jax), jax.numpy

    @functools.partial(jax.jit, donate_argnums=(0, 1))
    def train(params, velocity, x, y):
        loss, gradients = jax.value_and_grad(lambda p: kit.loss(net.scores(kit, p, x), y))(params)
        velocity = jax.tree.map(lambda v, g: MOMENTUM * v + g, velocity, gradients)
        return jax.tree.map(lambda p, v: p - RATE * v, params, velocity), velocity, loss

    params = {name: jnp.asarray(value) for name, value in data["params"].items()}
    velocity = {name: jnp.zeros_like(value) for name, value in params.items()}
    x, y, loss = jnp.asarray(data["x"]), jnp.asarray(data["y"]), None

    def step():
        nonlocal params, velocity, loss
        params, velocity, loss = train(params, velocity, x, y)
        return params, loss

    return Side(step, lambda: results(loss, params, data), train, lambda: (params, velocity, x, y))


def torch_kit(torch: Any) -> Kit:
    functional = torch.nn.functional
    return Kit(
        lambda x, w, s, g: functional.conv2d(x, w, stride=s, padding=w.shape[2] // 2, groups=g),
        lambda x, scale, shift: functional.batch_norm(x, None, None, scale, shift, True, 0.1, EPSILON),
        torch.relu,
        functional.relu6,
        lambda x: functional.max_pool2d(x, 3, 2, 1),
        lambda x: x.mean((2, 3)),
        functional.cross_entropy,
    )


def in_torch(
    net: Net, torch: Any, data: dict[str, Any], *, compiled: bool = True, last: bool = False
) -> Side:
    """Autograd and torch's own optimizer; `compiled`: scores and loss; `last`: images with channels last."""
    kit = torch_kit(torch)
    layout = torch.channels_last if last else torch.contiguous_format

    def laid_out(value):
        x = torch.tensor(value)
        return x.to(memory_format=layout) if x.ndim == 4 else x

    def loss_of(params, x, y):
        return kit.loss(net.scores(kit, params, x), y)

    evaluate = torch.compile(loss_of, fullgraph=True, dynamic=False) if compiled else loss_of
    params = {name: laid_out(value).requires_grad_() for name, value in data["params"].items()}
    x, y = laid_out(data["x"]), torch.from_numpy(data["y"])
    updater = torch.optim.SGD(params.values(), RATE, MOMENTUM)
    return torch_training(updater, evaluate, params, (x, y), data, results)


def training(name: str, net: Net) -> Workload:
    """The workload of a net."""
    sides = {
        "tracejit": functools.partial(in_tracejit, net),
        "jax": functools.partial(in_jax, net),
        "torch": functools.partial(in_torch, net),
        "torch:eager": functools.partial(in_torch, net, compiled=False),
        "torch:last": functools.partial(in_torch, net, compiled=False, last=True),
    }
    return Workload(name, "training", functools.partial(make_data, net), sides, tolerance=0.2, steps=1)


WORKLOADS = [training(name, net) for name, net in NETS.items()]
