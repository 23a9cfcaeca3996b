"""A program in which a rank goes wrong, mostly rank 1: ``faults.py WHAT``; `test_faults.py` starts it."""

import os
import random
import resource
import sys
import threading
import time

import tracejit as tj

WHAT = sys.argv[1]
STEPS = 6
SIZE = int(os.environ.get("FAULT_SIZE", "4"))

tj.distributed.init()
BAD = tj.distributed.rank() == 1 and os.environ.get("TRACEJIT_RESTART", "0") == "0"


@tj.jit
def step(w, x):
    gradient = tj.distributed.all_reduce((x * w).sum(axis=0), op="mean")
    w -= 0.1 * gradient
    return gradient.sum()


@tj.jit
def other_step(w, x):
    w -= 0.1 * tj.distributed.all_reduce((x * w).sum(axis=0), op="max")
    return w.sum()


def limit_files(nbytes):
    """Have this process fail to write more than so many bytes to a file, as on a full disk."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (nbytes, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))


def save_on_a_full_disk(folder, w, number):
    """A checkpoint fails on all ranks, and the one before it stays; then there is room again."""
    if BAD:
        limit_files(64)
    try:
        tj.distributed.save_checkpoint(folder, w, number)
    except OSError as error:
        print("full", tj.distributed.rank(), type(error).__name__, error, flush=True)
    limit_files(resource.RLIM_INFINITY)
    print("latest", tj.distributed.load_checkpoint(folder)[1], flush=True)


def kill_at_some_moment(seed):
    """Kill this rank, or another, within the next half second, at any point of its program."""
    chance = random.Random(seed)
    victim, delay = chance.randrange(tj.distributed.size()), chance.uniform(0.0, 0.5)
    if victim == tj.distributed.rank() and os.environ.get("TRACEJIT_RESTART", "0") == "0":
        threading.Timer(delay, os.kill, (os.getpid(), 9)).start()


def train(steps, folder=None):
    w, x, first = tj.ones(SIZE), tj.ones((3, SIZE)) * (tj.distributed.rank() + 1.0), 0
    if folder is not None and (found := tj.distributed.load_checkpoint(folder)) is not None:
        w, first = found
        print("from step", first, flush=True)
    for number in range(first, steps):
        if WHAT == "full" and number == 3 and folder is not None:
            save_on_a_full_disk(folder, w, 99)
        if WHAT == "moment" and folder is not None:
            time.sleep(0.01)
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
        (other_step if BAD and number == 3 and WHAT == "graph" else step)(w, x).wait()
        if folder is not None:
            tj.distributed.save_checkpoint(folder, w, number + 1)
    return w


if WHAT == "full":
    for place in (sys.argv[2], None):
        print("weights", train(STEPS, place).numpy().tobytes().hex(), flush=True)
elif WHAT == "moment":
    kill_at_some_moment(int(sys.argv[3]))
    for place in (sys.argv[2], None):
        print("weights", train(60, place).numpy().tobytes().hex(), flush=True)
elif WHAT == "restart":
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
