"""A training step of LeNet: two convolutions of 5 x 5, each with relu and pooling, and two dense layers.

64 images of 28 x 28 in ten classes; cross entropy and gradient descent. LeCun, Bottou, Bengio and Haffner,
Gradient-based learning applied to document recognition, 1998, with the widths that later libraries use.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from benchmarks.workload import Side, Workload, normal, torch_training, training_results

BATCH, EXTENT, CLASSES, RATE = 64, 28, 10, 0.01


def make_data() -> dict[str, Any]:
    """Images, labels and parameters (He initialisation)."""
    shapes = {"c1": (20, 1, 5, 5), "c2": (50, 20, 5, 5), "w3": (800, 500), "w4": (500, CLASSES)}
    params = {}
    for seed, (name, shape) in enumerate(shapes.items(), 1):
        fan_in = np.prod(shape[1:]) if len(shape) == 4 else shape[0]
        params[name] = normal(*shape, scale=float(2 / fan_in) ** 0.5, seed=seed)
        params[f"b{seed}"] = normal(shape[0] if len(shape) == 4 else shape[1], scale=0.1, seed=seed)
    labels = np.random.default_rng(1).integers(0, CLASSES, BATCH)
    return {"x": normal(BATCH, 1, EXTENT, EXTENT), "y": labels, "params": params}


def in_tracejit(tj: Any, data: dict[str, Any]) -> Side:
    def loss_of(p, x, y):
        x = tj.nn.max_pool2d(tj.nn.relu(tj.nn.conv2d(x, p["c1"], p["b1"])), 2)
        x = tj.nn.max_pool2d(tj.nn.relu(tj.nn.conv2d(x, p["c2"], p["b2"])), 2)
        x = tj.nn.relu(x.reshape((BATCH, -1)) @ p["w3"] + p["b3"])
        return tj.nn.cross_entropy(x @ p["w4"] + p["b4"], y)

    @tj.jit
    def train(params, x, y, rate):
        loss, gradients = tj.value_and_grad(loss_of)(params, x, y)
        tj.optim.sgd(params, gradients, rate)
        return loss

    params = {name: tj.asarray(value) for name, value in data["params"].items()}
    x, y = tj.asarray(data["x"]), tj.asarray(data["y"])
    loss = None

    def step():
        nonlocal loss
        loss = train(params, x, y, RATE)

    def read():
        return training_results(loss.numpy(), {n: p.numpy() for n, p in params.items()}, data)

    return Side(step, read, train)


def in_jax(jax: Any, data: dict[str, Any]) -> Side:
    jnp, lax = jax.numpy, jax.lax

    def convolved(x, w, b):
        x = lax.conv_general_dilated(x, w, (1, 1), "VALID", dimension_numbers=("NCHW", "OIHW", "NCHW"))
        x = jax.nn.relu(x + b[:, None, None])
        return lax.reduce_window(x, -jnp.inf, lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID")

    def loss_of(p, x, y):
        x = convolved(convolved(x, p["c1"], p["b1"]), p["c2"], p["b2"])
        scores = jax.nn.relu(x.reshape(BATCH, -1) @ p["w3"] + p["b3"]) @ p["w4"] + p["b4"]
        return -(jax.nn.log_softmax(scores) * jax.nn.one_hot(y, CLASSES)).sum(1).mean()

    @functools.partial(jax.jit, donate_argnums=0)
    def train(params, x, y, rate):
        loss, gradients = jax.value_and_grad(loss_of)(params, x, y)
        return jax.tree.map(lambda p, g: p - rate * g, params, gradients), loss

    params = {name: jnp.asarray(value) for name, value in data["params"].items()}
    x, y, rate = jnp.asarray(data["x"]), jnp.asarray(data["y"]), jnp.asarray(RATE, jnp.float32)
    loss = None

    def step():
        nonlocal params, loss
        params, loss = train(params, x, y, rate)
        return params, loss

    return Side(step, lambda: training_results(loss, params, data), train, lambda: (params, x, y, rate))


def torch_loss(torch: Any, p: dict[str, Any], x: Any, y: Any) -> Any:
    """Mean cross entropy."""
    functional = torch.nn.functional
    x = functional.max_pool2d(torch.relu(functional.conv2d(x, p["c1"], p["b1"])), 2)
    x = functional.max_pool2d(torch.relu(functional.conv2d(x, p["c2"], p["b2"])), 2)
    x = torch.relu(torch.addmm(p["b3"], x.reshape(BATCH, -1), p["w3"]))
    return functional.cross_entropy(torch.addmm(p["b4"], x, p["w4"]), y)


def in_torch(torch: Any, data: dict[str, Any]) -> Side:
    """Forward, backward and update as one compiled graph."""

    @torch.compile(fullgraph=True, dynamic=False)
    def train(params, x, y):
        gradients, loss = torch.func.grad_and_value(functools.partial(torch_loss, torch))(params, x, y)
        for name, gradient in gradients.items():
            params[name].sub_(RATE * gradient)
        return loss

    params = {name: torch.from_numpy(value).clone() for name, value in data["params"].items()}
    x, y = torch.from_numpy(data["x"]), torch.from_numpy(data["y"])
    loss = None

    @torch.no_grad()
    def step():
        nonlocal loss
        loss = train(params, x, y)

    return Side(step, lambda: training_results(loss, params, data))


def in_torch_eager(torch: Any, data: dict[str, Any]) -> Side:
    """Autograd and torch's own optimizer."""
    params = {name: torch.tensor(value, requires_grad=True) for name, value in data["params"].items()}
    x, y, leaves = torch.from_numpy(data["x"]), torch.from_numpy(data["y"]), list(params.values())
    updater = torch.optim.SGD(leaves, RATE)
    return torch_training(updater, functools.partial(torch_loss, torch), params, (x, y), data)


SIDES = {"tracejit": in_tracejit, "jax": in_jax, "torch": in_torch, "torch:eager": in_torch_eager}
WORKLOADS = [Workload("lenet", "training", make_data, SIDES)]
