"""A hyper-parameter sweep in threads: eight concurrent runs train the same network with different settings.

Each run has its own parameters, optimizer state and generator; all share one traced step. Learning rate,
weight decay and dropout rate are numbers, so one recording serves all of them. The results do not depend on
thread scheduling: a sequential sweep has the same bits.

    python examples/sweep.py
"""

from __future__ import annotations

import concurrent.futures
import itertools
import time

import numpy as np

import tracejit as tj

STEPS, BATCH, HIDDEN = 200, 64, 64
RATES, DECAYS, DROPS = (0.02, 0.002), (0.0, 0.1), (0.0, 0.3)


def data(count, seed):
    """Points of two spirals, and the spiral of each point."""
    rng = np.random.default_rng(seed)
    label = rng.integers(0, 2, count)
    turn = rng.uniform(0.3, 3.5, count)
    angle = 2.5 * turn + np.pi * label
    points = turn[:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    return (points + rng.normal(0, 0.12, points.shape)).astype(np.float32), label


def initial(rng):
    """The parameters of a network with two hidden layers."""
    sizes = (2, HIDDEN, HIDDEN, 2)
    return [
        {"w": rng.normal(0.0, (2 / n) ** 0.5, (n, m)), "b": tj.zeros(m)} for n, m in itertools.pairwise(sizes)
    ]


def scores(params, x, drop=0.0, rng=None):
    """Scores (batch, 2); dropout is applied to hidden layers if there is a generator."""
    *hidden, last = params
    for layer in hidden:
        x = tj.nn.relu(x @ layer["w"] + layer["b"])
        x = tj.nn.dropout(x, drop, training=rng is not None, generator=rng)
    return x @ last["w"] + last["b"]


@tj.jit
def train_step(params, state, x, y, rate, decay, drop, rng):
    """One step of AdamW on a randomly drawn batch; return the loss."""
    chosen = rng.integers(0, len(x), BATCH)

    def loss_of(params):
        return tj.nn.cross_entropy(scores(params, x[chosen], drop, rng), y[chosen])

    loss, gradients = tj.value_and_grad(loss_of)(params)
    tj.optim.adamw(params, gradients, state, rate, weight_decay=decay)
    return loss


@tj.jit
def accuracy(params, x, y):
    """The share of points that are classified correctly."""
    return (tj.argmax(scores(params, x), axis=1) == y).astype(tj.float32).mean()


def run(settings, seed, train, test):
    """Train with the given settings; return the accuracy on test data."""
    rng = tj.random.Generator(seed)
    params = initial(rng)
    state = tj.optim.adam_state(params)
    for _ in range(STEPS):
        train_step(params, state, *train, *settings, rng)
    return float(accuracy(params, *test))


def main():
    """Sweep in threads and then sequentially; return the accuracies of both."""
    train, test = ([tj.asarray(part) for part in data(600, seed)] for seed in (0, 1))
    grid = list(itertools.product(RATES, DECAYS, DROPS))
    seeds = range(len(grid))

    start = time.perf_counter()
    with concurrent.futures.ThreadPoolExecutor(len(grid)) as pool:
        found = list(pool.map(lambda settings, seed: run(settings, seed, train, test), grid, seeds))
    middle = time.perf_counter()
    again = [run(settings, seed, train, test) for settings, seed in zip(grid, seeds, strict=True)]
    end = time.perf_counter()

    for (rate, decay, drop), share in sorted(zip(grid, found, strict=True), key=lambda pair: -pair[1]):
        print(f"rate {rate:<5} decay {decay:<3} drop-out {drop:3}: {share:.1%}")
    print(f"{middle - start:.1f} s in threads, recording included; {end - middle:.1f} s one after the other")
    print("the step:", train_step.cache_info())
    return found, again


if __name__ == "__main__":
    main()
