"""A training step of a classifier: in -> hidden -> hidden -> 10, relu, cross entropy, momentum or Adam.

The mlp-8 workloads (seven hidden layers) are not timed; `benchmarks.memory` measures their memory.
"""

from __future__ import annotations

import functools
import itertools
from typing import Any

import numpy as np

from benchmarks.workload import Arrays, Side, Workload, normal, torch_training, training_results

CLASSES = 10
RATES = {"momentum": 1e-2, "adam": 1e-4}
MOMENTUM, BETA1, BETA2, EPSILON = 0.9, 0.9, 0.999, 1e-8


def make_data(batch: int, inputs: int, hidden: int, layers: int = 3) -> dict[str, Any]:
    """A batch, and parameters of `layers` layers (He initialisation, biases not 0 so that units differ)."""
    sizes = (inputs, *[hidden] * (layers - 1), CLASSES)
    params = {}
    for i, (fan_in, fan_out) in enumerate(itertools.pairwise(sizes), 1):
        params[f"w{i}"] = normal(fan_in, fan_out, scale=(2 / fan_in) ** 0.5, seed=i)
        params[f"b{i}"] = normal(fan_out, scale=0.1, seed=i)
    labels = np.random.default_rng(1).integers(0, CLASSES, batch)
    return {"x": normal(batch, inputs), "y": labels, "params": params}


def depth(params: dict[str, Any]) -> int:
    """Number of layers."""
    return len(params) // 2


# -- tracejit ------------------------------------------------------------------------------------------------


def tracejit_forward(tj: Any, params: dict[str, Any], x: Any) -> Any:
    """Class scores."""
    layers = depth(params)
    for i in range(1, layers):
        x = tj.nn.relu(x @ params[f"w{i}"] + params[f"b{i}"])
    return x @ params[f"w{layers}"] + params[f"b{layers}"]


def in_tracejit(tj: Any, data: dict[str, Any], *, optimizer: str) -> Side:
    def loss_of(params, x, y):
        return tj.nn.cross_entropy(tracejit_forward(tj, params, x), y)

    @tj.jit
    def train(params, state, x, y, rate):
        loss, gradients = tj.value_and_grad(loss_of)(params, x, y)
        if optimizer == "adam":
            tj.optim.adam(params, gradients, state, rate, BETA1, BETA2, EPSILON)
        else:
            tj.optim.momentum(params, gradients, state, rate, MOMENTUM)
        return loss

    params = {name: tj.asarray(value) for name, value in data["params"].items()}
    state = tj.optim.adam_state(params) if optimizer == "adam" else tj.optim.zeros_like(params)
    x, y, rate = tj.asarray(data["x"]), tj.asarray(data["y"]), RATES[optimizer]
    loss = None

    def step():
        nonlocal loss
        loss = train(params, state, x, y, rate)

    def read():
        return training_results(loss.numpy(), {n: p.numpy() for n, p in params.items()}, data)

    return Side(step, read, train, lambda: (params, state, x, y, rate))


def forward_in_tracejit(tj: Any, data: dict[str, Any]) -> Side:
    @tj.jit
    def predict(params, x):
        return tracejit_forward(tj, params, x)

    params = {name: tj.asarray(value) for name, value in data["params"].items()}
    x = tj.asarray(data["x"])
    return Side(lambda: predict(params, x), lambda: {"scores": predict(params, x).numpy()}, predict)


# -- JAX -----------------------------------------------------------------------------------------------------


def jax_loss(jax: Any, params: dict[str, Any], x: Any, y: Any) -> Any:
    """Mean cross entropy."""
    layers = depth(params)
    for i in range(1, layers):
        x = jax.nn.relu(x @ params[f"w{i}"] + params[f"b{i}"])
    scores = x @ params[f"w{layers}"] + params[f"b{layers}"]
    return -(jax.nn.log_softmax(scores) * jax.nn.one_hot(y, CLASSES)).sum(1).mean()


def jax_update(jax: Any, params: Any, gradients: Any, state: Any, rate: Any, optimizer: str) -> Any:
    """New parameters and state."""
    of_leaves = jax.tree.map
    if optimizer == "momentum":
        state = of_leaves(lambda v, g: MOMENTUM * v + g, state, gradients)
        return of_leaves(lambda p, v: p - rate * v, params, state), state
    t = state["t"] + 1
    m = of_leaves(lambda m, g: BETA1 * m + (1 - BETA1) * g, state["m"], gradients)
    v = of_leaves(lambda v, g: BETA2 * v + (1 - BETA2) * g * g, state["v"], gradients)
    size, scale = rate / (1 - BETA1**t), 1 / (1 - BETA2**t)
    new = of_leaves(lambda p, m, v: p - size * m / (jax.numpy.sqrt(v * scale) + EPSILON), params, m, v)
    return new, {"t": t, "m": m, "v": v}


def in_jax(jax: Any, data: dict[str, Any], *, optimizer: str) -> Side:
    jnp = jax.numpy

    @functools.partial(jax.jit, donate_argnums=(0, 1))
    def train(params, state, x, y, rate):
        loss, gradients = jax.value_and_grad(functools.partial(jax_loss, jax))(params, x, y)
        return *jax_update(jax, params, gradients, state, rate, optimizer), loss

    params = {name: jnp.asarray(value) for name, value in data["params"].items()}

    def zeros():
        return jax.tree.map(jnp.zeros_like, params)

    state = zeros()
    if optimizer == "adam":
        state = {"t": jnp.asarray(0.0, jnp.float32), "m": state, "v": zeros()}
    x, y, rate = jnp.asarray(data["x"]), jnp.asarray(data["y"]), jnp.asarray(RATES[optimizer], jnp.float32)
    loss = None

    def step():
        nonlocal params, state, loss
        params, state, loss = train(params, state, x, y, rate)
        return params, state, loss

    return Side(
        step, lambda: training_results(loss, params, data), train, lambda: (params, state, x, y, rate)
    )


# -- torch ---------------------------------------------------------------------------------------------------


def torch_loss(torch: Any, params: dict[str, Any], x: Any, y: Any) -> Any:
    """Mean cross entropy."""
    layers = depth(params)
    for i in range(1, layers):
        x = torch.relu(torch.addmm(params[f"b{i}"], x, params[f"w{i}"]))
    scores = torch.addmm(params[f"b{layers}"], x, params[f"w{layers}"])
    return torch.nn.functional.cross_entropy(scores, y)


def torch_update(params: Any, gradients: Any, state: Any, rate: Any, optimizer: str) -> None:
    """Update parameters and state in place."""
    if optimizer == "momentum":
        for name, gradient in gradients.items():
            state[name].mul_(MOMENTUM).add_(gradient)
            params[name].sub_(rate * state[name])
        return
    t = state["t"]
    t += 1
    size, scale = rate / (1 - BETA1**t), 1 / (1 - BETA2**t)
    for name, gradient in gradients.items():
        m, v = state["m"][name], state["v"][name]
        m.mul_(BETA1).add_(gradient, alpha=1 - BETA1)
        v.mul_(BETA2).addcmul_(gradient, gradient, value=1 - BETA2)
        params[name].sub_(size * m / ((v * scale).sqrt() + EPSILON))


def in_torch(torch: Any, data: dict[str, Any], *, optimizer: str) -> Side:
    """Forward, backward and update as one compiled graph."""

    @torch.compile(fullgraph=True, dynamic=False)
    def train(params, state, x, y, rate):
        gradients, loss = torch.func.grad_and_value(functools.partial(torch_loss, torch))(params, x, y)
        torch_update(params, gradients, state, rate, optimizer)
        return loss

    params = {name: torch.from_numpy(value).clone() for name, value in data["params"].items()}

    def zeros():
        return {name: torch.zeros_like(value) for name, value in params.items()}

    state = {"t": torch.zeros(()), "m": zeros(), "v": zeros()} if optimizer == "adam" else zeros()
    x, y = torch.from_numpy(data["x"]), torch.from_numpy(data["y"])
    loss = None

    @torch.no_grad()
    def step():
        nonlocal loss
        loss = train(params, state, x, y, RATES[optimizer])

    return Side(step, lambda: training_results(loss, params, data))


def in_torch_eager(torch: Any, data: dict[str, Any], *, optimizer: str) -> Side:
    """Autograd and torch's own fused optimizers."""
    params = {name: torch.tensor(value, requires_grad=True) for name, value in data["params"].items()}
    leaves, rate = list(params.values()), RATES[optimizer]
    if optimizer == "adam":
        updater = torch.optim.Adam(leaves, rate, (BETA1, BETA2), EPSILON, fused=True)
    else:
        updater = torch.optim.SGD(leaves, rate, MOMENTUM, fused=True)
    x, y = torch.from_numpy(data["x"]), torch.from_numpy(data["y"])
    return torch_training(updater, functools.partial(torch_loss, torch), params, (x, y), data)


# -- NumPy ---------------------------------------------------------------------------------------------------


class ByHand:
    """Forward and backward pass with preallocated buffers. The keys of `gradients` are the parameters'
    names."""

    def __init__(self, params: Arrays, batch: int) -> None:
        self.params = params
        self.layers = depth(params)
        widths = [params[f"b{i}"].size for i in range(1, self.layers + 1)]
        self.values = [np.empty((batch, width), np.float32) for width in widths]
        self.cotangents = [np.empty_like(value) for value in self.values]
        self.gradients = {name: np.empty_like(value) for name, value in params.items()}

    def loss(self, x: np.ndarray, y: np.ndarray) -> float:
        """Return the loss; store the cotangent of the scores."""
        for i, value in enumerate(self.values, 1):
            np.matmul(x, self.params[f"w{i}"], out=value)
            value += self.params[f"b{i}"]
            if i < self.layers:
                np.maximum(value, 0, out=value)
            x = value
        scores, cotangent, rows = self.values[-1], self.cotangents[-1], np.arange(len(y))
        scores -= scores.max(axis=1, keepdims=True)
        np.exp(scores, out=cotangent)
        sums = cotangent.sum(axis=1, keepdims=True)
        loss = (np.log(sums[:, 0]) - scores[rows, y]).mean()
        cotangent /= sums
        cotangent[rows, y] -= 1
        cotangent *= np.float32(1 / len(y))
        return loss

    def backward(self, x: np.ndarray) -> None:
        """Fill `gradients`."""
        for i in range(self.layers, 0, -1):
            cotangent, before = self.cotangents[i - 1], x if i == 1 else self.values[i - 2]
            np.matmul(before.T, cotangent, out=self.gradients[f"w{i}"])
            np.sum(cotangent, axis=0, out=self.gradients[f"b{i}"])
            if i > 1:
                np.matmul(cotangent, self.params[f"w{i}"].T, out=self.cotangents[i - 2])
                self.cotangents[i - 2] *= before > 0


def in_numpy(numpy: Any, data: dict[str, Any], *, optimizer: str) -> Side:
    params = {name: value.copy() for name, value in data["params"].items()}
    x, y, rate = data["x"], data["y"], RATES[optimizer]
    net = ByHand(params, len(x))
    first, second, one, two = (
        {name: np.zeros_like(value) for name, value in params.items()} for _ in range(4)
    )
    loss, t = np.float32(0), 0

    def adam(name: str, gradient: np.ndarray) -> None:
        m, v, a, b = first[name], second[name], one[name], two[name]
        m *= BETA1
        m += np.multiply(gradient, 1 - BETA1, out=a)
        v *= BETA2
        v += np.multiply(np.multiply(gradient, gradient, out=a), 1 - BETA2, out=a)
        np.sqrt(np.multiply(v, 1 / (1 - BETA2**t), out=a), out=a)
        a += EPSILON
        np.multiply(m, rate / (1 - BETA1**t), out=b)
        params[name] -= np.divide(b, a, out=b)

    def momentum(name: str, gradient: np.ndarray) -> None:
        first[name] *= MOMENTUM
        first[name] += gradient
        params[name] -= np.multiply(first[name], rate, out=one[name])

    update = adam if optimizer == "adam" else momentum

    def step():
        nonlocal loss, t
        t += 1
        loss = net.loss(x, y)
        net.backward(x)
        for name, gradient in net.gradients.items():
            update(name, gradient)

    return Side(step, lambda: training_results(loss, params, data))


SIDES = {
    "tracejit": in_tracejit,
    "numpy": in_numpy,
    "jax": in_jax,
    "torch": in_torch,
    "torch:eager": in_torch_eager,
}


def _workload(optimizer: str, batch: int, inputs: int, hidden: int) -> Workload:
    return Workload(
        f"mlp-{optimizer}-{batch}x{inputs}x{hidden}",
        "training",
        functools.partial(make_data, batch, inputs, hidden),
        {name: functools.partial(side, optimizer=optimizer) for name, side in SIDES.items()},
        # Adam's first steps are the sign of the gradient, which rounding decides where it is almost 0.
        tolerance=0.1 if optimizer == "adam" else 1e-4,
    )


DEEP = functools.partial(make_data, 256, 512, 512, layers=8)
WORKLOADS = [
    _workload(optimizer, *shape)
    for optimizer in RATES
    for shape in ((16, 64, 32), (128, 784, 512), (1024, 784, 1024))
] + [
    Workload(
        "mlp-8-training",
        "memory",
        DEEP,
        {name: functools.partial(SIDES[name], optimizer="momentum") for name in ("tracejit", "jax")},
    ),
    Workload("mlp-8-forward", "memory", DEEP, {"tracejit": forward_in_tracejit}),
]
