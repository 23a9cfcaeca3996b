"""Bytes of internal memory of the nets, for a training step and for the forward pass.

    python -m benchmarks.nets.plan [NET ...]

prints them as one line of JSON. No net is run, and no kernel is compiled.

planned, naive   bytes of intermediate results: in the arena, and with a separate buffer for each operator's
result parameters       bytes of the parameters, which neither of these includes
"""

from __future__ import annotations

import json
import math
import sys
from typing import Any

import tracejit as tj
from benchmarks.nets import NETS
from benchmarks.nets.layers import Layers, Net

BATCH = 64


def specs(shapes: dict[str, tuple[int, ...]]) -> dict[str, Any]:
    """Specifications instead of arrays."""
    return {name: tj.spec(shape) for name, shape in shapes.items()}


def training(net: Net, batch: int) -> Any:
    """The plan of a step: forward, backward, gradient descent."""

    def step(params, running, x, labels, rate):
        def loss_of(params):
            return net.loss(Layers(params, running, training=True), x, labels)

        loss, gradients = tj.value_and_grad(loss_of)(params)
        tj.optim.sgd(params, gradients, rate)
        return loss

    labels = tj.spec((batch,), tj.int64)
    return tj.jit(step).plan(specs(net.shapes), specs(net.statistics), images(net, batch), labels, 0.1)


def forward(net: Net, batch: int) -> Any:
    """The plan of the forward pass."""

    def predict(params, running, x):
        return net.scores(Layers(params, running, training=False), x)

    return tj.jit(predict).plan(specs(net.shapes), specs(net.statistics), images(net, batch))


def images(net: Net, batch: int) -> Any:
    """The specification of a batch of images."""
    return tj.spec((batch, *net.IMAGE))


def findings(name: str, batch: int = BATCH) -> dict[str, Any]:
    """The findings of one net."""
    net = NETS[name]()
    found: dict[str, Any] = {"parameters": 4 * sum(map(math.prod, net.shapes.values()))}
    for what, plan in (("training", training(net, batch)), ("forward", forward(net, batch))):
        found[what] = {"planned": plan.planned_bytes, "naive": plan.naive_bytes}
    return found


def main() -> None:
    """Plan the named nets, or all."""
    names = sys.argv[1:] or list(NETS)
    print(json.dumps({name: findings(name) for name in names}))


if __name__ == "__main__":
    main()
