"""Distributed computation: several processes run the same program on their own data, on one or more machines.

    tj.distributed.init()

    @tj.jit
    def step(params, x, y):
        loss, gradients = tj.value_and_grad(loss_of)(params, x, y)
        gradients = tj.distributed.all_reduce(gradients, op="mean")
        tj.optim.sgd(params, gradients, lr=0.1)
        return loss

The ranks are started with ``tracejit run -n 4 train.py``, or by mpirun or srun. MPI (mpi4py) moves the bytes.
Results are bitwise identical on all ranks.
"""

from __future__ import annotations

from tracejit.distributed.checkpoint import load_checkpoint, save_checkpoint
from tracejit.distributed.collectives import (
    all_gather,
    all_reduce,
    barrier,
    broadcast,
    receive,
    reduce_scatter,
    send,
    split,
)
from tracejit.distributed.groups import Group
from tracejit.distributed.measuring import Step, measure
from tracejit.distributed.parallel import data_parallel, sampler
from tracejit.distributed.sharding import gather_state, scatter_state, shard_optimizer
from tracejit.distributed.simulation import Costs, Prediction, Work
from tracejit.distributed.world import init, rank, size

__all__ = [
    "Costs",
    "Group",
    "Prediction",
    "Step",
    "Work",
    "all_gather",
    "all_reduce",
    "barrier",
    "broadcast",
    "data_parallel",
    "gather_state",
    "init",
    "load_checkpoint",
    "measure",
    "rank",
    "receive",
    "reduce_scatter",
    "sampler",
    "save_checkpoint",
    "scatter_state",
    "send",
    "shard_optimizer",
    "size",
    "split",
]
