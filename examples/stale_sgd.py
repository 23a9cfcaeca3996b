"""Asynchronous SGD with bounded staleness: a step does not wait for the gradients of the steps just before.

A store of kind "dist_async" always applies exactly the sums of `staleness` pushes ago, so a run can be
repeated bit for bit; with staleness 0 it is "dist_sync". Stale gradients require a smaller learning rate.
The data are synthetic: noisy 8x8 pictures of ten random patterns; each rank draws its own.

    python examples/stale_sgd.py
    TRACEJIT_LINK=2e-3,1e8 tracejit run -n 2 examples/stale_sgd.py     # staleness helps on slow networks
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import time

import numpy as np

import tracejit as tj

SIZES = (64, 128, 10)
BATCH = 64  # per rank
RATE = 0.05


def batches(steps):
    """Batches of this rank: pictures, shape (BATCH, 64), and labels."""
    patterns = np.random.default_rng(0).normal(size=(10, 64))
    generator = np.random.default_rng([1, tj.distributed.rank()])
    for _ in range(steps):
        labels = generator.integers(0, 10, BATCH)
        yield (patterns[labels] + generator.normal(0, 1.0, (BATCH, 64))).astype(np.float32), labels


def initial_weights():
    generator = np.random.default_rng(2)
    return [
        tj.asarray(generator.normal(0, n**-0.5, (n, m)).astype(np.float32))
        for n, m in itertools.pairwise(SIZES)
    ]


def loss_of(weights, x, labels):
    for w in weights[:-1]:
        x = tj.nn.relu(x @ w)
    return tj.nn.cross_entropy(x @ weights[-1], labels)


def train(kv, steps):
    """The losses, the final weights, and the seconds per step."""
    weights = initial_weights()
    keys = list(range(len(weights)))
    kv.init(keys, weights)
    kv.set_optimizer(tj.optim.sgd, lr=RATE)

    @tj.jit
    def step(x, labels):
        loss, gradients = tj.value_and_grad(loss_of)(weights, x, labels)
        for key in reversed(keys):
            kv.push(key, gradients[key], priority=-key)
            kv.pull(key, out=weights[key], priority=-key)
        return loss

    given = [(tj.asarray(x), tj.asarray(labels)) for x, labels in batches(steps)]
    half = steps // 2
    losses = [step(x, labels) for x, labels in given[:half]]  # the first is recorded and compiled
    tj.wait_all()
    begun = time.perf_counter()
    losses += [step(x, labels) for x, labels in given[half:]]
    tj.wait_all()
    seconds = (time.perf_counter() - begun) / (steps - half)
    return [float(loss) for loss in losses], weights, seconds


def digest(weights):
    return hashlib.sha256(b"".join(w.numpy().tobytes() for w in weights)).hexdigest()[:16]


def main(arguments=None):
    """Train synchronously and with two stalenesses; return the losses and digests by staleness."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=80)
    steps = parser.parse_args(arguments).steps
    tj.distributed.init()
    found = {}
    for name, kv in (
        ("sync", tj.kvstore.create("dist_sync")),
        (0, tj.kvstore.create("dist_async", staleness=0)),
        (3, tj.kvstore.create("dist_async", staleness=3)),
    ):
        losses, weights, seconds = train(kv, steps)
        found[name] = losses, digest(weights)
        if tj.distributed.rank() == 0:
            how = "synchronous" if name == "sync" else f"staleness {name}"
            change = f"loss {losses[0]:.3f} -> {losses[-1]:.3f}"
            print(f"{how}: {change}, weights {found[name][1]}, {seconds * 1e3:.2f} ms a step")
    return found


if __name__ == "__main__":
    main()
