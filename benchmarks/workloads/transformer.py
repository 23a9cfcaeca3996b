"""A training step of one transformer block: layer norm, attention, layer norm, perceptron with GELU,
residuals.

8 sequences of 128 tokens, width 256, 4 heads; squared error against a target, and gradient descent on all
twelve parameters.
"""

from __future__ import annotations

import functools
from typing import Any

from benchmarks.workload import Side, Workload, normal, torch_training, training_results

BATCH, TOKENS, WIDTH, HEADS = 8, 128, 256, 4
HEAD, INNER = WIDTH // HEADS, 4 * WIDTH
RATE, EPSILON = 1.0, 1e-5


def make_data() -> dict[str, Any]:
    """Tokens, a target of the same shape, and parameters."""
    scale = WIDTH**-0.5
    params = {
        "gain1": 1 + normal(WIDTH, scale=0.1), "bias1": normal(WIDTH, scale=0.1, seed=1),
        "wqkv": normal(WIDTH, 3 * WIDTH, scale=scale), "bqkv": normal(3 * WIDTH, scale=0.1),
        "wo": normal(WIDTH, WIDTH, scale=scale), "bo": normal(WIDTH, scale=0.1, seed=2),
        "gain2": 1 + normal(WIDTH, scale=0.1, seed=3), "bias2": normal(WIDTH, scale=0.1, seed=4),
        "w1": normal(WIDTH, INNER, scale=scale), "b1": normal(INNER, scale=0.1),
        "w2": normal(INNER, WIDTH, scale=INNER**-0.5), "b2": normal(WIDTH, scale=0.1, seed=5),
    }  # fmt: skip
    shape = (BATCH, TOKENS, WIDTH)
    return {"x": normal(*shape), "target": normal(*shape, seed=1), "params": params}


def in_tracejit(tj: Any, data: dict[str, Any], *, training: bool = True) -> Side:
    def layer_norm(x, gain, bias):
        deviation = x - x.mean(axis=-1, keepdims=True)
        variance = (deviation * deviation).mean(axis=-1, keepdims=True)
        return deviation / tj.sqrt(variance + EPSILON) * gain + bias

    def attention(p, x):
        qkv = (x @ p["wqkv"] + p["bqkv"]).reshape((BATCH, TOKENS, 3, HEADS, HEAD))
        q, k, v = (qkv[:, :, part].swapaxes(1, 2) for part in range(3))
        weights = tj.nn.softmax(q @ k.swapaxes(-1, -2) * HEAD**-0.5)
        joined = (weights @ v).swapaxes(1, 2).reshape((BATCH, TOKENS, WIDTH))
        return joined @ p["wo"] + p["bo"]

    def block(p, x):
        x = x + attention(p, layer_norm(x, p["gain1"], p["bias1"]))
        hidden = tj.nn.gelu(layer_norm(x, p["gain2"], p["bias2"]) @ p["w1"] + p["b1"], approximate="tanh")
        return x + hidden @ p["w2"] + p["b2"]

    def loss_of(params, x, target):
        difference = block(params, x) - target
        return (difference * difference).mean()

    @tj.jit
    def train(params, x, target, rate):
        loss, gradients = tj.value_and_grad(loss_of)(params, x, target)
        tj.optim.sgd(params, gradients, rate)
        return loss

    params = {name: tj.asarray(value) for name, value in data["params"].items()}
    x, target = tj.asarray(data["x"]), tj.asarray(data["target"])
    if not training:
        predict = tj.jit(block)
        return Side(lambda: predict(params, x), lambda: {"y": predict(params, x).numpy()}, predict)
    loss = None

    def step():
        nonlocal loss
        loss = train(params, x, target, RATE)

    def read():
        return training_results(loss.numpy(), {n: p.numpy() for n, p in params.items()}, data)

    return Side(step, read, train)


def in_jax(jax: Any, data: dict[str, Any]) -> Side:
    jnp = jax.numpy

    def layer_norm(x, gain, bias):
        deviation = x - x.mean(-1, keepdims=True)
        variance = (deviation * deviation).mean(-1, keepdims=True)
        return deviation * jax.lax.rsqrt(variance + EPSILON) * gain + bias

    def attention(p, x):
        qkv = (x @ p["wqkv"] + p["bqkv"]).reshape(BATCH, TOKENS, 3, HEADS, HEAD)
        q, k, v = (qkv[:, :, part] for part in range(3))
        weights = jax.nn.softmax(jnp.einsum("bqhd,bkhd->bhqk", q, k) * HEAD**-0.5)
        joined = jnp.einsum("bhqk,bkhd->bqhd", weights, v).reshape(BATCH, TOKENS, WIDTH)
        return joined @ p["wo"] + p["bo"]

    def loss_of(p, x, target):
        x = x + attention(p, layer_norm(x, p["gain1"], p["bias1"]))
        hidden = jax.nn.gelu(layer_norm(x, p["gain2"], p["bias2"]) @ p["w1"] + p["b1"], approximate=True)
        return ((x + hidden @ p["w2"] + p["b2"] - target) ** 2).mean()

    @functools.partial(jax.jit, donate_argnums=0)
    def train(params, x, target, rate):
        loss, gradients = jax.value_and_grad(loss_of)(params, x, target)
        return jax.tree.map(lambda p, g: p - rate * g, params, gradients), loss

    params = {name: jnp.asarray(value) for name, value in data["params"].items()}
    x, target, rate = jnp.asarray(data["x"]), jnp.asarray(data["target"]), jnp.asarray(RATE, jnp.float32)
    loss = None

    def step():
        nonlocal params, loss
        params, loss = train(params, x, target, rate)
        return params, loss

    return Side(step, lambda: training_results(loss, params, data), train, lambda: (params, x, target, rate))


def torch_loss(torch: Any, p: dict[str, Any], x: Any, target: Any) -> Any:
    """Squared error of the block's result."""
    functional = torch.nn.functional

    def layer_norm(x, gain, bias):
        return functional.layer_norm(x, (WIDTH,), gain, bias, EPSILON)

    def affine(x, w, b):
        return torch.addmm(b, x.reshape(-1, x.shape[-1]), w).reshape(*x.shape[:-1], w.shape[-1])

    qkv = affine(layer_norm(x, p["gain1"], p["bias1"]), p["wqkv"], p["bqkv"])
    q, k, v = qkv.reshape(BATCH, TOKENS, 3, HEADS, HEAD).permute(2, 0, 3, 1, 4)
    joined = functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(BATCH, TOKENS, WIDTH)
    x = x + affine(joined, p["wo"], p["bo"])
    hidden = functional.gelu(
        affine(layer_norm(x, p["gain2"], p["bias2"]), p["w1"], p["b1"]), approximate="tanh"
    )
    return ((x + affine(hidden, p["w2"], p["b2"]) - target) ** 2).mean()


def in_torch(torch: Any, data: dict[str, Any]) -> Side:
    @torch.compile(fullgraph=True, dynamic=False)
    def train(params, x, target):
        gradients, loss = torch.func.grad_and_value(functools.partial(torch_loss, torch))(params, x, target)
        for name, gradient in gradients.items():
            params[name].sub_(RATE * gradient)
        return loss

    params = {name: torch.from_numpy(value).clone() for name, value in data["params"].items()}
    x, target = torch.from_numpy(data["x"]), torch.from_numpy(data["target"])
    loss = None

    @torch.no_grad()
    def step():
        nonlocal loss
        loss = train(params, x, target)

    return Side(step, lambda: training_results(loss, params, data))


def in_torch_eager(torch: Any, data: dict[str, Any]) -> Side:
    """Autograd and a fused optimizer."""
    params = {name: torch.tensor(value, requires_grad=True) for name, value in data["params"].items()}
    optimizer = torch.optim.SGD(list(params.values()), RATE, fused=True)
    x, target = torch.from_numpy(data["x"]), torch.from_numpy(data["target"])
    return torch_training(optimizer, functools.partial(torch_loss, torch), params, (x, target), data)


SIDES = {"tracejit": in_tracejit, "jax": in_jax, "torch": in_torch, "torch:eager": in_torch_eager}
WORKLOADS = [
    Workload("transformer", "training", make_data, SIDES),
    Workload(
        "transformer-forward",
        "memory",
        make_data,
        {"tracejit": functools.partial(in_tracejit, training=False)},
    ),
]
