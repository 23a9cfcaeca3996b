"""Data parallel training: gradients of a batch that lies on several ranks and devices, and whose turn it is.

The batch is made of *shards*. Each shard's gradient is computed by itself, and they are summed in a balanced
tree: first the shards of a rank, then those of all ranks. Where the number of shards is a power of two, this
is one tree whatever the number of ranks, so training gives the same bits on 1, 2 or 4 of them.
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
    """A function like ``tj.value_and_grad(loss)`` whose result is the mean over the batches of all ranks.

    loss:    ``loss(params, *batch)`` returns the mean loss of a batch, a 0-d array.
    shards:  into how many parts the batch of all ranks is divided, a power of two and a multiple of their
             number: as many give the same bits for any number of ranks and devices. None: one a device.
    devices: those of this rank that share its part of the batch. None: the one where the parameters lie.
    The function takes the parameters and this rank's part of the batch, arrays whose first extents are equal
    and a multiple of the shards here. It returns the loss and the gradients, the same bits on all ranks; in a
    traced function gradients travel while others are computed.
    Raises ArgumentError for another number of shards, ShapeError where they do not divide the batch.

    >>> import tracejit as tj
    >>> step = tj.distributed.data_parallel(lambda w, x: (w * x).mean(), shards=2)
    >>> loss, gradient = step(tj.ones(()), tj.arange(4.0))
    >>> float(loss), float(gradient)
    (1.5, 1.5)
    """
    places = list(devices) if devices is not None else []
    count = size() * max(1, len(places)) if shards is None else shards
    if type(count) is not int or count < 1 or count % size() or (shards is not None and count & (count - 1)):
        what = f"data_parallel: shards={shards!r}; expected a power of two, a multiple of the {size()} ranks"
        raise locate(ArgumentError(what), user_location())
    here = count // size()

    def mean(params: Any, *batch: NDArray) -> tuple[NDArray, Any]:
        found = []
        for number in range(here):
            part = [_part(x, number, here) for x in batch]
            if not places:
                found.append(value_and_grad(loss)(params, *part))
                continue
            place = places[number * len(places) // here]
            there = trees.map(lambda x: _on(place, x), params)  # noqa: B023
            value, gradients = value_and_grad(loss)(there, *[x.to(place) for x in part])
            home = trees.leaves(params)[0].device
            found.append((_on(home, value), trees.map(lambda x: _on(home, x), gradients)))  # noqa: B023
        losses = balanced_sum([value for value, _ in found])
        columns = zip(*(trees.leaves(gradients) for _, gradients in found), strict=True)
        _, structure = trees.flatten(found[0][1])
        sums = dict(enumerate([*map(balanced_sum, columns), losses]))
        if size() > 1:
            sums = exchanged(sums, "sum")
        *gradients, total = [sums[i] * (1.0 / count) for i in range(len(sums))]
        return total, trees.unflatten(structure, gradients)

    return mean


def _on(device: Device, x: Any) -> Any:
    return x.to(device) if isinstance(x, NDArray) else x


def _part(x: NDArray, number: int, parts: int) -> NDArray:
    """One of equal parts along the first axis."""
    if not x.ndim or x.shape[0] % parts:
        what = f"data_parallel: shape {x.shape} is not divided into {parts} shards along the first axis"
        raise locate(ShapeError(what), user_location())
    extent = x.shape[0] // parts
    found: NDArray = x[number * extent : (number + 1) * extent] if parts > 1 else x
    return found


def sampler(n: int, batch: int, seed: int = 0, epoch: int = 0) -> Iterator[np.ndarray]:
    """Yield, for each batch of an epoch, the positions of the examples of this rank, int64.

    n:     the number of examples; batch: those of all ranks together, a multiple of their number.
    seed, epoch: choose the order (NumPy's PCG64), which is the same for any number of ranks.
    All ranks get the same number of batches; the last ``n % batch`` examples of the order are left out.
    Raises ArgumentError if the batch is larger than n or no multiple of the ranks.

    >>> import tracejit as tj
    >>> sum(len(positions) for positions in tj.distributed.sampler(10, 4)) * tj.distributed.size()
    8
    """
    if not 0 < batch <= n or batch % size():
        what = f"sampler: a batch of {batch}; expected a multiple of the {size()} ranks, at most {n} examples"
        raise locate(ArgumentError(what), user_location())
    return _positions(np.random.default_rng([seed, epoch]).permutation(n), batch)


def _positions(order: np.ndarray, batch: int) -> Iterator[np.ndarray]:
    mine = batch // size()
    for start in range(rank() * mine, len(order) - batch + rank() * mine + 1, batch):
        yield order[start : start + mine]
