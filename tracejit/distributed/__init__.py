"""Distributed computation: several processes run the same program on their own data, on one or more machines.

    tj.distributed.init()

    @tj.jit
    def step(params, x, y):
        loss, gradients = tj.value_and_grad(loss_of)(params, x, y)
        gradients = tj.distributed.all_reduce(gradients, op="mean")
        tj.optim.sgd(params, gradients, lr=0.1)
        return loss

The ranks are started with ``tracejit run -n 4 train.py``, or by mpirun or srun. Bytes move by MPI (mpi4py)
between machines, and through shared memory within one. Results are bitwise identical on all ranks.

Modules; each imports only modules to its right and below:

    parallel, sharding, checkpoint  training: data parallelism, sharded optimizer states, checkpoints
    collectives, groups             collective operations; subsets of the ranks
    measuring, simulation           costs of a step, measured in one process; predicted times on any number
                                    of ranks
    world                           the ranks of this program: `init`, `rank`, `size`, the end
    transport                       operations over MPI and shared memory, advanced by the caller of
                                    `progress`
    channel                         the transfers of one operation: by shared memory or as messages
    window                          the memory that ranks of one machine share
    control                         agreement on the exchanges of a step; the end of a rank, and its reason
    outbox                          outgoing MPI messages, by priority
    plans                           exchanges that native code begins and ends without Python
    native_exchange, notices        exchanges and notices in shared memory, performed by native code
    board                           the native state of that memory
    link                            an emulated network link between ranks of one machine
    calls                           the entry points of the native code (`kernels.ranks`)
    scratch                         a cache of receive buffers

The package imports `codegen`, `engine`, `frontend`, `ir`, `kernels`, `ops` and `optim`. Of `kernels` it
imports `ranks`, which the loader of `codegen` loads, and layouts of `executor`. None of these layers
imports it.
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
