"""Pipeline parallelism: each half of a network has its own device, and a batch is split into micro-batches.

While the second device computes one micro-batch, the first computes the next; backward passes run in the
opposite direction. The example contains no explicit scheduling: the step is serial code, and the recording
determines its dependencies. The data are synthetic: noisy 8x8 pictures of ten random patterns.

    python examples/pipeline.py [--parts 4]
"""

from __future__ import annotations

import argparse
import itertools

import numpy as np

import tracejit as tj

SIZES = (64, 256, 256, 128, 10)
BATCH, STEPS, RATE = 256, 40, 0.2


def batches(seed=0):
    """Pictures, shape (BATCH, 64), and labels."""
    generator = np.random.default_rng(seed)
    patterns = generator.normal(size=(10, 64))
    for _ in range(STEPS):
        labels = generator.integers(0, 10, BATCH)
        yield (patterns[labels] + generator.normal(0, 0.8, (BATCH, 64))).astype(np.float32), labels


def initial_weights(devices):
    """The layers, in order, divided equally between the devices."""
    generator = np.random.default_rng(1)
    count = len(SIZES) - 1
    return [
        tj.asarray(
            generator.normal(0, n**-0.5, (n, m)).astype(np.float32), device=devices[i * len(devices) // count]
        )
        for i, (n, m) in enumerate(itertools.pairwise(SIZES))
    ]


def loss_of(weights, x, labels):
    """The cross entropy; the input of each layer is moved to the device of its weights."""
    for w in weights[:-1]:
        x = tj.tanh(x.to(w.device) @ w)
    place = weights[-1].device
    return tj.nn.cross_entropy(x.to(place) @ weights[-1], labels.to(place))


def train(devices, parts):
    """Losses and weights after all steps, and the step."""
    weights = initial_weights(devices)

    @tj.jit
    def step(x, labels):
        size = BATCH // parts
        total, sums = None, None
        for start in range(0, BATCH, size):
            part = slice(start, start + size)
            loss, gradients = tj.value_and_grad(loss_of)(weights, x[part], labels[part])
            total = loss if total is None else total + loss
            sums = gradients if sums is None else [a + b for a, b in zip(sums, gradients, strict=True)]
        tj.optim.sgd(weights, sums, lr=RATE / parts)
        return total / parts

    losses = [step(tj.asarray(x), tj.asarray(labels)) for x, labels in batches()]
    return [float(loss) for loss in losses], weights, step


def overlap(step, x, labels):
    """The fraction of the first device's busy time in which the second is also busy."""
    with tj.profile() as profile:
        for _ in range(5):
            step(x, labels)
        tj.wait_all()
    busy = {lane: [(e.start, e.end) for e in profile.events if e.lane == lane] for lane in ("cpu:0", "cpu:1")}
    both = sum(max(0, min(a[1], b[1]) - max(a[0], b[0])) for a in busy["cpu:0"] for b in busy["cpu:1"])
    return both / sum(end - start for start, end in busy["cpu:0"])


def main(arguments=None):
    """Train on two devices and on one; return the losses, whether the bits are equal, and the schedule."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--parts", type=int, default=4, help="of a batch, which has 256 examples")
    parts = parser.parse_args(arguments).parts
    losses, weights, step = train([tj.cpu(0), tj.cpu(1)], parts)
    _, others, _ = train([tj.cpu(0)], parts)
    same = all(np.array_equal(a.numpy(), b.numpy()) for a, b in zip(weights, others, strict=True))
    x, labels = next(batches())
    share = overlap(step, tj.asarray(x), tj.asarray(labels))
    print(f"loss {losses[0]:.3f} -> {losses[-1]:.3f}; as on one device: {same}; both busy: {share:.0%}")
    return losses, same, step.schedule(tj.asarray(x), tj.asarray(labels))


if __name__ == "__main__":
    main()
