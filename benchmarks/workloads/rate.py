"""A training step that chooses its learning rate: larger while the loss falls, half if it has risen.

The choice depends on data. Compiling peers express it by `where`, so that the step stays one graph;
the sides called ``if`` use an ordinary Python branch, which must wait for the loss.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from benchmarks.workload import Side, Workload, training_results
from benchmarks.workloads.mlp import (
    ByHand,
    jax_loss,
    make_data,
    torch_loss,
    tracejit_forward,
)

SHAPE = (128, 784, 512)
START, GROWTH, SHRINK = 1e-2, 1.01, 0.5
HUGE = 3e38


def in_tracejit(tj: Any, data: dict[str, Any], *, branch: bool) -> Side:
    def loss_of(params, x, y):
        return tj.nn.cross_entropy(tracejit_forward(tj, params, x), y)

    @tj.jit
    def train(params, state, x, y):
        loss, gradients = tj.value_and_grad(loss_of)(params, x, y)
        if branch:
            state["rate"] = state["rate"] * (GROWTH if loss < state["loss"] else SHRINK)
        else:
            state["rate"] = state["rate"] * tj.where(loss < state["loss"], GROWTH, SHRINK)
        state["loss"] = loss
        for name, gradient in gradients.items():
            params[name] -= state["rate"] * gradient

    params = {name: tj.asarray(value) for name, value in data["params"].items()}
    state = {"rate": tj.asarray(START), "loss": tj.asarray(HUGE)}
    x, y = tj.asarray(data["x"]), tj.asarray(data["y"])

    def read():
        found = {name: value.numpy() for name, value in params.items()}
        return {"rate": state["rate"].numpy(), **training_results(state["loss"].numpy(), found, data)}

    return Side(lambda: train(params, state, x, y), read, None if branch else train)


def in_jax(jax: Any, data: dict[str, Any]) -> Side:
    jnp = jax.numpy

    @functools.partial(jax.jit, donate_argnums=(0, 1))
    def train(params, state, x, y):
        loss, gradients = jax.value_and_grad(functools.partial(jax_loss, jax))(params, x, y)
        rate = state["rate"] * jnp.where(loss < state["loss"], GROWTH, SHRINK)
        params = jax.tree.map(lambda p, g: p - rate * g, params, gradients)
        return params, {"rate": rate, "loss": loss}

    params = {name: jnp.asarray(value) for name, value in data["params"].items()}
    state = {"rate": jnp.asarray(START, jnp.float32), "loss": jnp.asarray(HUGE, jnp.float32)}
    x, y = jnp.asarray(data["x"]), jnp.asarray(data["y"])

    def step():
        nonlocal params, state
        params, state = train(params, state, x, y)
        return params, state

    return Side(
        step, lambda: {"rate": np.asarray(state["rate"]), **training_results(state["loss"], params, data)}
    )


def in_torch(torch: Any, data: dict[str, Any]) -> Side:
    @torch.compile(fullgraph=True, dynamic=False)
    def train(params, rate, last, x, y):
        gradients, loss = torch.func.grad_and_value(functools.partial(torch_loss, torch))(params, x, y)
        rate.mul_(torch.where(loss < last, GROWTH, SHRINK))
        last.copy_(loss)
        for name, gradient in gradients.items():
            params[name].sub_(rate * gradient)

    params = {name: torch.from_numpy(value).clone() for name, value in data["params"].items()}
    rate, last = torch.tensor(START), torch.tensor(HUGE)
    x, y = torch.from_numpy(data["x"]), torch.from_numpy(data["y"])

    @torch.no_grad()
    def step():
        train(params, rate, last, x, y)

    return Side(step, lambda: {"rate": rate.numpy(), **training_results(last, params, data)})


def in_numpy(numpy: Any, data: dict[str, Any]) -> Side:
    params = {name: value.copy() for name, value in data["params"].items()}
    x, y = data["x"], data["y"]
    net = ByHand(params, len(x))
    rate, last = START, HUGE

    def step():
        nonlocal rate, last
        loss = net.loss(x, y)
        net.backward(x)
        rate *= GROWTH if loss < last else SHRINK
        last = loss
        for name, gradient in net.gradients.items():
            gradient *= rate
            params[name] -= gradient

    return Side(step, lambda: {"rate": np.asarray(rate), **training_results(last, params, data)})


SIDES = {
    "tracejit": functools.partial(in_tracejit, branch=False),
    "tracejit:if": functools.partial(in_tracejit, branch=True),
    "numpy": in_numpy,
    "jax": in_jax,
    "torch": in_torch,
}
WORKLOADS = [Workload("chosen-rate", "training", functools.partial(make_data, *SHAPE), SIDES)]
