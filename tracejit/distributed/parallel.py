"""Data-parallel training: gradients of a batch that is divided over ranks and devices, and its sampler.

The batch is divided into *shards*. The gradient of each shard is computed separately, and the gradients are
summed in a balanced tree: first over the shards of a rank, then over the ranks. If the number of shards is a
power of two, this is the same tree for any number of ranks, so training yields the same bits on 1, 2 or 4
ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from tracejit.distributed.collectives import balanced_sum, exchanged
from tracejit.distributed.world import rank, size
from tracejit.errors import ArgumentError, ShapeError, locate
from tracejit.frontend.arrays import trees
from tracejit.frontend.arrays.ndarray import NDArray
from tracejit.frontend.grad.reverse import value_and_grad
from tracejit.frontend.recording.location import user_location
from tracejit.ir.types import Device


def data_parallel(
    loss: Callable[..., Any], shards: int | None = None, devices: Sequence[Device] | None = None
) -> Callable[..., tuple[NDArray, Any]]:
    """Return a function like ``tj.value_and_grad(loss)`` that averages over the batches of all ranks.

    loss:    ``loss(params, *batch)`` returns the mean loss of a batch, a 0-d array.
    shards:  number of shards of the global batch, a power of two and a multiple of the number of ranks. The
             same number yields the same bits for any number of ranks and devices. None: one per device.
    devices: the devices of this rank that share its part of the batch. None: the device of the parameters.
    The function takes the parameters and this rank's part of the batch: arrays with equal first extents, a
    multiple of the number of shards of this rank. It returns the loss and the gradients, the same bits on all
    ranks. In a traced function the exchange of gradients overlaps with the computation of others.
    Raises ArgumentError for an invalid number of shards, ShapeError if they do not divide the batch.

    >>> import tracejit as tj
    >>> step = tj.distributed.data_parallel(lambda w, x: (w * x).mean(), shards=2)
    >>> loss, gradient = step(tj.ones(()), tj.arange(4.0))
    >>> float(loss), float(gradient)
    (1.5, 1.5)
    """
    targets = list(devices) if devices is not None else []
    total = size() * max(1, len(targets)) if shards is None else shards
    if type(total) is not int or total < 1 or total % size() or (shards is not None and total & (total - 1)):
        message = (
            f"data_parallel: shards={shards!r}; expected a power of two, a multiple of the {size()} ranks"
        )
        raise locate(ArgumentError(message), user_location())
    n_local = total // size()

    def mean(params: Any, *batch: NDArray) -> tuple[NDArray, Any]:
        results = []
        for number in range(n_local):
            chunk = [_shard_of(x, number, n_local) for x in batch]
            if not targets:
                results.append(value_and_grad(loss)(params, *chunk))
                continue
            device = targets[number * len(targets) // n_local]
            moved_params = trees.map(lambda x: _moved_to(device, x), params)  # noqa: B023
            loss_value, grads = value_and_grad(loss)(moved_params, *[x.to(device) for x in chunk])
            home = trees.leaves(params)[0].device
            results.append((_moved_to(home, loss_value), trees.map(lambda x: _moved_to(home, x), grads)))  # noqa: B023
        losses = balanced_sum([loss_value for loss_value, _ in results])
        columns = zip(*(trees.leaves(grads) for _, grads in results), strict=True)
        _, structure = trees.flatten(results[0][1])
        sums = dict(enumerate([*map(balanced_sum, columns), losses]))
        if size() > 1:
            sums = exchanged(sums, "sum")
        *grads, mean_loss = [sums[i] * (1.0 / total) for i in range(len(sums))]
        return mean_loss, trees.unflatten(structure, grads)

    return mean


def _moved_to(device: Device, x: Any) -> Any:
    return x.to(device) if isinstance(x, NDArray) else x


def _shard_of(x: NDArray, number: int, parts: int) -> NDArray:
    """Slice shard `number` of `parts` along the first axis; raise ShapeError if they are not equal."""
    if not x.ndim or x.shape[0] % parts:
        message = f"data_parallel: shape {x.shape} is not divided into {parts} shards along the first axis"
        raise locate(ShapeError(message), user_location())
    extent = x.shape[0] // parts
    slice_: NDArray = x[number * extent : (number + 1) * extent] if parts > 1 else x
    return slice_


def sampler(n: int, batch: int, seed: int = 0, epoch: int = 0) -> Iterator[np.ndarray]:
    """Yield, for each batch of an epoch, the indices (int64) of the examples of this rank.

    n:     the number of examples.
    batch: examples per batch of all ranks together, a multiple of the number of ranks.
    seed, epoch: determine the order (NumPy's PCG64), which is the same for any number of ranks.
    All ranks get the same number of batches; the last ``n % batch`` examples of the order are skipped.
    Raises ArgumentError if the batch is larger than n or not a multiple of the number of ranks.

    >>> import tracejit as tj
    >>> sum(len(positions) for positions in tj.distributed.sampler(10, 4)) * tj.distributed.size()
    8
    """
    if not 0 < batch <= n or batch % size():
        message = (
            f"sampler: a batch of {batch}; expected a multiple of the {size()} ranks, at most {n} examples"
        )
        raise locate(ArgumentError(message), user_location())
    return _local_indices(np.random.default_rng([seed, epoch]).permutation(n), batch)


def _local_indices(order: np.ndarray, batch: int) -> Iterator[np.ndarray]:
    mine = batch // size()
    for start in range(rank() * mine, len(order) - batch + rank() * mine + 1, batch):
        yield order[start : start + mine]
