"""A program in which rank 1 goes wrong: ``faults.py WHAT``; `test_faults.py` starts it."""

import os
import sys
import time

import tracejit as tj

WHAT = sys.argv[1]
STEPS = 6

tj.distributed.init()
BAD = tj.distributed.rank() == 1 and os.environ.get("TRACEJIT_RESTART", "0") == "0"


@tj.jit
def step(w, x):
    gradient = tj.distributed.all_reduce((x * w).sum(axis=0), op="mean")
    w -= 0.1 * gradient
    return gradient.sum()


def train(steps, folder=None):
    w, x, first = tj.ones(4), tj.ones((3, 4)) * (tj.distributed.rank() + 1.0), 0
    if folder is not None and (found := tj.distributed.load_checkpoint(folder)) is not None:
        w, first = found
        print("from step", first, flush=True)
    for number in range(first, steps):
        if BAD and number == 3:
            if WHAT == "raise":
                raise ValueError("a bad batch")
            if WHAT == "kill":
                os.kill(os.getpid(), 9)
            if WHAT == "sleep":
                time.sleep(600)
            if WHAT == "shape":
                x = tj.ones((5, 4)).sum(axis=1) * tj.ones((3, 5))
                w = tj.ones(5)
        step(w, x).wait()
        if folder is not None:
            tj.distributed.save_checkpoint(folder, w, number + 1)
    return w


if WHAT == "restart":
    WHAT = "raise"
    for trained in (train(STEPS, sys.argv[2]), train(STEPS)):
        print("weights", trained.numpy().tobytes().hex(), flush=True)
elif WHAT == "wait":
    train(3)
    print("waiting", flush=True)
    time.sleep(600)
else:
    train(3 if BAD and WHAT == "fewer" else STEPS)
    print("trained", flush=True)
