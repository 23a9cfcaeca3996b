"""A job that loses a rank and goes on with fewer: the same bits as without the loss.

A checkpoint is written every few steps; it holds the weights, the state of the optimizer and the number of
the step, and is loaded on any number of ranks. The batches and their order depend on the step alone.

    tracejit run -n 4 examples/elastic.py checkpoints --lose 17      # rank 1 is killed in step 17
    tracejit run -n 2 examples/elastic.py checkpoints                # goes on from step 15 on two ranks
    python examples/elastic.py other-checkpoints                     # all at once, on one: the same digest

`tracejit run --restarts 3 -n 4 ...` starts a job that fails again by itself, on as many ranks.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import signal

import numpy as np

import tracejit as tj

EXAMPLES, BATCH, SHARDS = 1024, 64, 4
STEPS, EVERY, RATE = 40, 5, 0.02


def data():
    """Points, shape (EXAMPLES, 16), and what is to be learned of them, (EXAMPLES, 1)."""
    generator = np.random.default_rng(0)
    x = generator.normal(size=(EXAMPLES, 16))
    return x.astype(np.float32), np.sin(x.sum(axis=1, keepdims=True)).astype(np.float32)


def initial_state():
    generator = np.random.default_rng(1)
    weights = [
        tj.asarray(generator.normal(0, n**-0.5, (n, m)).astype(np.float32)) for n, m in ((16, 64), (64, 1))
    ]
    return {"weights": weights, "adam": tj.optim.adam_state(weights)}


def loss_of(weights, x, y):
    return ((tj.tanh(x @ weights[0]) @ weights[1] - y) ** 2).mean()


def positions():
    """For each step the examples of this rank, epoch after epoch."""
    epoch = 0
    while True:
        yield from tj.distributed.sampler(EXAMPLES, BATCH, seed=2, epoch=epoch)
        epoch += 1


def main(arguments=None):
    """Train, from the latest checkpoint on; returns the first step of this run and a digest of the state."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", help="of checkpoints, which all ranks share")
    parser.add_argument("--lose", type=int, metavar="STEP", help="kill rank 1 in this step")
    options = parser.parse_args(arguments)
    tj.distributed.init()
    state, first = initial_state(), 0
    if (found := tj.distributed.load_checkpoint(options.folder)) is not None:
        state, first = found
    gradients_of = tj.distributed.data_parallel(loss_of, shards=SHARDS)

    @tj.jit
    def step(state, x, y):
        loss, gradients = gradients_of(state["weights"], x, y)
        tj.optim.adam(state["weights"], gradients, state["adam"], lr=RATE)
        return loss

    x, y = data()
    for number, mine in zip(range(STEPS), positions(), strict=False):
        if number < first:
            continue  # before the checkpoint
        if number == options.lose and tj.distributed.rank() == 1:
            tj.wait_all()
            os.kill(os.getpid(), signal.SIGKILL)
        step(state, tj.asarray(x[mine]), tj.asarray(y[mine]))
        if (number + 1) % EVERY == 0:
            tj.distributed.save_checkpoint(options.folder, state, number + 1)
    leaves = [leaf for leaf in tj.tree.leaves(state) if isinstance(leaf, tj.NDArray)]
    digest = hashlib.sha256(b"".join(leaf.numpy().tobytes() for leaf in leaves)).hexdigest()[:16]
    if tj.distributed.rank() == 0:
        print(f"from step {first} on {tj.distributed.size()} rank(s): state {digest}")
    return first, digest


if __name__ == "__main__":
    main()
