"""Two CPU devices in one process: data-parallel training with a KVStore, and a layer on each device.

The data are synthetic: noisy 8x8 pictures of ten random patterns. Each device of a machine has its own
workers, memory and random numbers; one recorded step spans both.

    python examples/two_devices.py [--steps 60]
"""

from __future__ import annotations

import argparse
import itertools

import numpy as np

import tracejit as tj

DEVICES = [tj.cpu(0), tj.cpu(1)]
SIZES = (64, 128, 10)
BATCH = 128
RATE = 0.05


def batches(steps, seed=0):
    """Batches of pictures, shape (BATCH, 64), with their labels."""
    generator = np.random.default_rng(seed)
    patterns = generator.normal(size=(10, 64))
    for _ in range(steps):
        labels = generator.integers(0, 10, BATCH)
        noise = generator.normal(0, 0.8, (BATCH, 64))
        yield (patterns[labels] + noise).astype(np.float32), labels


def initial_weights():
    generator = np.random.default_rng(1)
    shapes = itertools.pairwise(SIZES)
    return [generator.normal(0, n**-0.5, (n, m)).astype(np.float32) for n, m in shapes]


def loss_of(weights, x, labels):
    """The cross entropy; each layer is computed on the device of its weights."""
    for w in weights[:-1]:
        x = tj.nn.relu(x.to(w.device) @ w)
    place = weights[-1].device
    return tj.nn.cross_entropy(x.to(place) @ weights[-1], labels.to(place))


def halves(array):
    """The halves of a batch, one on each device."""
    return [tj.asarray(half, device=d) for half, d in zip(np.split(array, 2), DEVICES, strict=True)]


def train_in_parallel(steps):
    """Train with a copy of the model on each device; the store sums their gradients and updates the
    weights."""
    kv = tj.kvstore.create("device")
    copies = [[tj.asarray(w, device=d) for d in DEVICES] for w in initial_weights()]
    for key, layer in enumerate(copies):
        kv.init(key, layer[0])
    kv.set_optimizer(tj.optim.momentum, lr=RATE / 2, beta=0.9)

    @tj.jit
    def step(images, labels):
        losses, gradients = [], []
        for i, (x, y) in enumerate(zip(images, labels, strict=True)):
            loss, gradient = tj.value_and_grad(loss_of)([layer[i] for layer in copies], x, y)
            losses.append(loss.to(DEVICES[0]))
            gradients.append(gradient)
        for key in reversed(range(len(copies))):
            kv.push(key, [gradient[key] for gradient in gradients], priority=-key)
            kv.pull(key, out=copies[key], priority=-key)
        return (losses[0] + losses[1]) / 2

    losses = [step(halves(x), halves(y)) for x, y in batches(steps)]
    return [float(loss) for loss in losses], step


def train_layers_apart(steps):
    """Train with the first layer on one device, the second on the other."""
    weights = [tj.asarray(w, device=d) for w, d in zip(initial_weights(), DEVICES, strict=True)]

    @tj.jit
    def step(x, labels):
        loss, gradients = tj.value_and_grad(loss_of)(weights, x, labels)
        tj.optim.sgd(weights, gradients, RATE)
        return loss

    losses = [step(tj.asarray(x), tj.asarray(y)) for x, y in batches(steps)]
    return [float(loss) for loss in losses], step


def main(arguments=None):
    """Train both models; return their losses."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=60)
    steps = parser.parse_args(arguments).steps
    found = []
    for title, train in (("data parallel", train_in_parallel), ("a layer per device", train_layers_apart)):
        losses, step = train(steps)
        info = step.cache_info()
        print(
            f"{title}: loss {losses[0]:.3f} -> {losses[-1]:.3f}, {info.traces} trace, {info.replays} replays"
        )
        found.append(losses)
    return found


if __name__ == "__main__":
    main()
