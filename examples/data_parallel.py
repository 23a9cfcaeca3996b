"""Data-parallel training on several ranks, with checkpoints: the same bits on one, two or four ranks.

The data are synthetic: noisy 8x8 pictures of ten random patterns. Started without `tracejit run`, the program
is the only rank. A job that was interrupted continues from its latest checkpoint if it is started again with
the same folder.

    python examples/data_parallel.py
    tracejit run -n 4 examples/data_parallel.py --folder checkpoints
"""

from __future__ import annotations

import argparse
import hashlib
import itertools

import numpy as np

import tracejit as tj

SIZES = (64, 128, 10)
EXAMPLES = 2048
BATCH = 128  # total over all ranks
SHARDS = 4  # of each batch; also the maximum number of ranks
RATE = 0.05


def pictures():
    """Pictures, shape (EXAMPLES, 64), and their labels."""
    generator = np.random.default_rng(0)
    patterns, labels = generator.normal(size=(10, 64)), generator.integers(0, 10, EXAMPLES)
    noise = generator.normal(0, 2.0, (EXAMPLES, 64))
    return (patterns[labels] + noise).astype(np.float32), labels


def initial_weights():
    generator = np.random.default_rng(1)
    return [
        tj.asarray(generator.normal(0, n**-0.5, (n, m)).astype(np.float32))
        for n, m in itertools.pairwise(SIZES)
    ]


def loss_of(weights, x, labels):
    for w in weights[:-1]:
        x = tj.nn.relu(x @ w)
    return tj.nn.cross_entropy(x @ weights[-1], labels)


def train(epochs, folder=None):
    """Train, starting from the latest checkpoint in `folder`; return the losses of this run and the
    weights."""
    x, labels = pictures()
    state = {"weights": initial_weights(), "velocity": tj.optim.zeros_like(initial_weights())}
    first = 0
    if folder is not None and (found := tj.distributed.load_checkpoint(folder)) is not None:
        state, first = found
    gradients_of = tj.distributed.data_parallel(loss_of, shards=SHARDS)

    @tj.jit
    def step(state, x, labels):
        loss, gradients = gradients_of(state["weights"], x, labels)
        tj.optim.momentum(state["weights"], gradients, state["velocity"], lr=RATE, beta=0.9)
        return loss

    losses = []
    for epoch in range(first, epochs):
        for mine in tj.distributed.sampler(EXAMPLES, BATCH, seed=2, epoch=epoch):
            losses.append(step(state, tj.asarray(x[mine]), tj.asarray(labels[mine])))
        if folder is not None:
            tj.distributed.save_checkpoint(folder, state, epoch + 1)
    return [float(loss) for loss in losses], state["weights"]


def main(arguments=None):
    """Train; return the losses and a digest of the weights."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--folder", help="of checkpoints, which all ranks share")
    options = parser.parse_args(arguments)
    tj.distributed.init()
    losses, weights = train(options.epochs, options.folder)
    digest = hashlib.sha256(b"".join(w.numpy().tobytes() for w in weights)).hexdigest()[:16]
    if tj.distributed.rank() == 0:
        how = f"{tj.distributed.size()} ranks" if tj.distributed.size() > 1 else "one rank"
        change = f"loss {losses[0]:.3f} -> {losses[-1]:.3f}, " if losses else ""
        print(f"{how}: {change}weights {digest}")
    return losses, digest


if __name__ == "__main__":
    main()
