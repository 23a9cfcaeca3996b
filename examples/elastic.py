"""A job that loses a rank and continues with fewer ranks: the same bits as without the loss.

A checkpoint is written every few steps; it contains the weights, the state of the optimizer and the step
number, and can be loaded on any number of ranks. Each rank keeps only a shard of Adam's state; the shards are
gathered for the checkpoint, and scattered again after loading. The batches and their order depend only on the
step.

    tracejit run -n 4 examples/elastic.py checkpoints --lose 17      # rank 1 is killed in step 17
    tracejit run -n 2 examples/elastic.py checkpoints                # continues from step 15 on two ranks
    python examples/elastic.py other-checkpoints                     # one rank, uninterrupted: same digest

`tracejit run --restarts 3 -n 4 ...` restarts a failed job automatically, on the same number of ranks: a rank
is lost only in the first run.
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
    """Points, shape (EXAMPLES, 16), and their targets, shape (EXAMPLES, 1)."""
    generator = np.random.default_rng(0)
    x = generator.normal(size=(EXAMPLES, 16))
    return x.astype(np.float32), np.sin(x.sum(axis=1, keepdims=True)).astype(np.float32)


def initial_weights():
    generator = np.random.default_rng(1)
    return [
        tj.asarray(generator.normal(0, n**-0.5, (n, m)).astype(np.float32)) for n, m in ((16, 64), (64, 1))
    ]


def loss_of(weights, x, y):
    return ((tj.tanh(x @ weights[0]) @ weights[1] - y) ** 2).mean()


def positions():
    """The indices of this rank's examples for each step, epoch after epoch."""
    epoch = 0
    while True:
        yield from tj.distributed.sampler(EXAMPLES, BATCH, seed=2, epoch=epoch)
        epoch += 1


def main(arguments=None):
    """Train, starting from the latest checkpoint; return the first step of this run and a digest of the
    state."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", help="of checkpoints, which all ranks share")
    parser.add_argument("--lose", type=int, metavar="STEP", help="kill rank 1 in this step")
    options = parser.parse_args(arguments)
    tj.distributed.init()
    weights, first = initial_weights(), 0
    update, state = tj.distributed.shard_optimizer(tj.optim.adam, weights, op=None)
    if (found := tj.distributed.load_checkpoint(options.folder)) is not None:
        (weights, whole), first = found
        state = tj.distributed.scatter_state(whole, like=state)
    gradients_of = tj.distributed.data_parallel(loss_of, shards=SHARDS)

    @tj.jit
    def step(weights, state, x, y):
        loss, gradients = gradients_of(weights, x, y)
        update(weights, gradients, state, lr=RATE)
        return loss

    x, y = data()
    for number, mine in zip(range(STEPS), positions(), strict=False):
        if number < first:
            continue  # before the checkpoint
        if number == options.lose and first == 0 and tj.distributed.rank() == 1:
            tj.wait_all()
            os.kill(os.getpid(), signal.SIGKILL)
        step(weights, state, tj.asarray(x[mine]), tj.asarray(y[mine]))
        if (number + 1) % EVERY == 0:
            tree = (weights, tj.distributed.gather_state(state))
            tj.distributed.save_checkpoint(options.folder, tree, number + 1)
    whole = tj.distributed.gather_state(state)["state"]
    leaves = [leaf for leaf in tj.tree.leaves((weights, whole)) if isinstance(leaf, tj.NDArray)]
    digest = hashlib.sha256(b"".join(leaf.numpy().tobytes() for leaf in leaves)).hexdigest()[:16]
    if tj.distributed.rank() == 0:
        print(f"from step {first} on {tj.distributed.size()} rank(s): state {digest}")
    return first, digest


if __name__ == "__main__":
    main()
