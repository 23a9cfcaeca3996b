"""A training step of an LSTM unrolled over 64 steps: forward, squared error of the last state, backward,
update.

The gates are stored in one matrix of four times the width, in the order input, forget, cell, output.
"""

from __future__ import annotations

import functools
from typing import Any

from benchmarks.workload import Side, Workload, normal, torch_training, training_results

STEPS, BATCH, WIDTH = 64, 32, 128
RATE = 1.0


def make_data() -> dict[str, Any]:
    """A sequence, the target of its last state, and parameters."""
    scale = WIDTH**-0.5
    params = {
        "wx": normal(WIDTH, 4 * WIDTH, scale=scale),
        "wh": normal(WIDTH, 4 * WIDTH, scale=scale, seed=1),
        "b": normal(4 * WIDTH, scale=0.1),
    }
    return {"x": normal(STEPS, BATCH, WIDTH), "target": normal(BATCH, WIDTH, scale=0.5), "params": params}


def in_tracejit(tj: Any, data: dict[str, Any], *, training: bool = True) -> Side:
    def last_state(params, x):
        h = tj.zeros((BATCH, WIDTH))
        c = tj.zeros((BATCH, WIDTH))
        for t in range(STEPS):
            gates = x[t] @ params["wx"] + h @ params["wh"] + params["b"]
            i, f, g, o = (gates[:, k * WIDTH : (k + 1) * WIDTH] for k in range(4))
            c = tj.sigmoid(f) * c + tj.sigmoid(i) * tj.tanh(g)
            h = tj.sigmoid(o) * tj.tanh(c)
        return h

    def loss_of(params, x, target):
        difference = last_state(params, x) - target
        return (difference * difference).mean()

    @tj.jit
    def train(params, x, target, rate):
        loss, gradients = tj.value_and_grad(loss_of)(params, x, target)
        tj.optim.sgd(params, gradients, rate)
        return loss

    params = {name: tj.asarray(value) for name, value in data["params"].items()}
    x, target = tj.asarray(data["x"]), tj.asarray(data["target"])
    if not training:
        predict = tj.jit(last_state)
        return Side(lambda: predict(params, x), lambda: {"h": predict(params, x).numpy()}, predict)
    loss = None

    def step():
        nonlocal loss
        loss = train(params, x, target, RATE)

    def read():
        return training_results(loss.numpy(), {n: p.numpy() for n, p in params.items()}, data)

    return Side(step, read, train)


def in_jax(jax: Any, data: dict[str, Any], *, scan: bool) -> Side:
    jnp = jax.numpy

    def cell(params, h, c, x):
        gates = x @ params["wx"] + h @ params["wh"] + params["b"]
        i, f, g, o = jnp.split(gates, 4, axis=1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        return jax.nn.sigmoid(o) * jnp.tanh(c), c

    def loss_of(params, x, target):
        h = c = jnp.zeros((BATCH, WIDTH))
        if scan:
            (h, c), _ = jax.lax.scan(lambda hc, x: (cell(params, *hc, x), None), (h, c), x)
        else:
            for t in range(STEPS):
                h, c = cell(params, h, c, x[t])
        return ((h - target) ** 2).mean()

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


def torch_loss(torch: Any, params: dict[str, Any], x: Any, target: Any) -> Any:
    """Squared error of the last state."""
    h = c = torch.zeros(BATCH, WIDTH)
    for t in range(STEPS):
        gates = torch.addmm(params["b"], x[t], params["wx"]) + h @ params["wh"]
        i, f, g, o = gates.chunk(4, dim=1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        h = torch.sigmoid(o) * torch.tanh(c)
    return ((h - target) ** 2).mean()


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


def in_torch_module(torch: Any, data: dict[str, Any]) -> Side:
    """torch.nn.LSTM, which is one operator, and a fused optimizer."""
    net = torch.nn.LSTM(WIDTH, WIDTH)
    with torch.no_grad():
        net.weight_ih_l0.copy_(torch.from_numpy(data["params"]["wx"].T))
        net.weight_hh_l0.copy_(torch.from_numpy(data["params"]["wh"].T))
        net.bias_ih_l0.copy_(torch.from_numpy(data["params"]["b"]))
        net.bias_hh_l0.zero_()
    net.bias_hh_l0.requires_grad_(False)  # one bias, as in the other versions
    optimizer = torch.optim.SGD([p for p in net.parameters() if p.requires_grad], RATE, fused=True)
    x, target = torch.from_numpy(data["x"]), torch.from_numpy(data["target"])
    loss = None

    def step():
        nonlocal loss
        optimizer.zero_grad()
        loss = ((net(x)[0][-1] - target) ** 2).mean()
        loss.backward()
        optimizer.step()

    def read():
        found = {"wx": net.weight_ih_l0.T, "wh": net.weight_hh_l0.T, "b": net.bias_ih_l0}
        return training_results(loss.detach(), {name: value.detach() for name, value in found.items()}, data)

    return Side(step, read)


SIDES = {
    "tracejit": in_tracejit,
    "jax": functools.partial(in_jax, scan=False),
    "jax:scan": functools.partial(in_jax, scan=True),
    "torch": in_torch,
    "torch:eager": in_torch_eager,
    "torch:module": in_torch_module,
}
WORKLOADS = [
    Workload("lstm", "training", make_data, SIDES),
    Workload(
        "lstm-forward", "memory", make_data, {"tracejit": functools.partial(in_tracejit, training=False)}
    ),
]
