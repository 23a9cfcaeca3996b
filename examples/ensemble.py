"""An ensemble of networks, trained together: `tj.vmap` of an ordinary training step.

The step is written for one network and updates it in place. Mapped over parameters that are stacked along
axis 0, and over the learning rates, it trains all networks simultaneously: matrix products become batched
products, and one Python call performs one step of every member. The members see the same data, start from
different weights and draw different dropout masks; where their predictions disagree, the ensemble is
uncertain.

    python examples/ensemble.py
"""

from __future__ import annotations

import tracejit as tj

MEMBERS, HIDDEN, STEPS = 8, 32, 150


def network(params, x):
    """The output of one network: a number for each row of `x`."""
    hidden = tj.tanh(x @ params["w1"] + params["b1"])
    hidden = tj.tanh(hidden @ params["w2"] + params["b2"])
    return (hidden @ params["w3"])[:, 0]


def step(params, x, y, rate):
    """One step of gradient descent on one network, in place; return the loss."""

    def loss_of(params):
        noise = tj.nn.dropout(tj.ones(x.shape[0]), 0.2)  # each member drops other rows
        return (noise * (network(params, x) - y) ** 2).mean()

    loss, gradients = tj.value_and_grad(loss_of)(params)
    for name, gradient in gradients.items():
        params[name] -= rate * gradient
    return loss


def initial(_):
    """Random weights of one network."""
    return {
        "w1": tj.random.normal(scale=2.0, shape=(1, HIDDEN)),
        "b1": tj.random.uniform(-3.0, 3.0, shape=HIDDEN),
        "w2": tj.random.normal(scale=HIDDEN**-0.5, shape=(HIDDEN, HIDDEN)),
        "b2": tj.zeros(HIDDEN),
        "w3": tj.random.normal(scale=HIDDEN**-0.5, shape=(HIDDEN, 1)),
    }


@tj.jit
def train(ensemble, x, y, rates):
    """One step of all members; return their losses."""
    return tj.vmap(step, in_axes=(0, None, None, 0))(ensemble, x, y, rates)


@tj.jit
def predict(ensemble, x):
    """Mean and spread of the members' predictions."""
    found = tj.vmap(network, in_axes=(0, None))(ensemble, x)
    return found.mean(axis=0), found.std(axis=0)


def main(steps: int = STEPS):
    """Train on a sine with a gap in the middle; print and return the losses, and the spreads in the gap
    and elsewhere."""
    tj.random.seed(0)
    x = tj.concat([tj.random.uniform(-2.0, -0.7, shape=(64, 1)), tj.random.uniform(0.7, 2.0, shape=(64, 1))])
    y = tj.sin(3 * x[:, 0])
    ensemble = tj.vmap(initial)(tj.arange(MEMBERS))
    rates = tj.linspace(0.03, 0.1, MEMBERS)
    losses = [train(ensemble, x, y, rates) for _ in range(steps)]
    _, spread = predict(ensemble, tj.asarray([[-1.5], [0.0], [1.5]]))
    first, last = losses[0].numpy(), losses[-1].numpy()
    print(f"losses of {MEMBERS} members: {first.mean():.3f} at first, {last.mean():.3f} after {steps} steps")
    print(f"spread of the predictions: {float(spread[1]):.3f} in the gap, {float(spread[0]):.3f} and "
          f"{float(spread[2]):.3f} where data are")  # fmt: skip
    print(f"{train.cache_info().traces} trace, {train.cache_info().replays} replays")
    return first, last, spread.numpy()


if __name__ == "__main__":
    main()
