"""Collective operations: reductions, gathers, broadcasts and barriers, eager or inside a traced step.

In a traced step each bucket of arrays is one node (see `ops.communicate`), which begins as soon as its
operands are computed: the gradients of the last layers are exchanged while those of the first layers are
computed. Buckets are filled from the last array to the first, the order in which a backward pass produces
gradients. The first arrays have the highest priority, because the next step needs them first.

In eager code each call is a separate launch, so that ranks that read different arrays in between still launch
the same exchanges.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tracejit import ops
from tracejit.distributed.groups import Group, attributes, divided, size_of
from tracejit.distributed.world import rank, size
from tracejit.errors import ArgumentError, ShapeError, TracejitError, locate
from tracejit.frontend.arrays import dispatch, trees
from tracejit.frontend.arrays.functions.creation import asarray, zeros
from tracejit.frontend.arrays.ndarray import NDArray
from tracejit.frontend.recording import eager
from tracejit.frontend.recording.location import user_location
from tracejit.frontend.recording.recording import thread
from tracejit.ir.op import Op
from tracejit.ops.communicate import COMBINE

BUCKET = 1 << 20
"""Maximum bytes of a bucket; a larger array is a bucket of its own."""


def all_reduce(tree: Any, op: str = "sum", priority: int | None = None, *, group: Group | None = None) -> Any:
    """Combine arrays over all ranks, or a group of them; return new arrays in the containers of `tree`.

    tree:     an array, or containers of arrays; of the same shapes and dtypes on all ranks.
    op:       "sum", "mean" (of floating dtypes), "max", "min" or "prod".
    priority: exchanges of higher priority are sent first. None: in the order of the leaves.
    group:    created by `split`. None: all ranks.
    The reduction is a balanced tree over the ranks, so all ranks and all runs obtain the same bits.
    Raises ArgumentError for an unknown op or a leaf that is not an array. Waiting for a result raises
    PeerError if another rank fails.

    >>> import tracejit as tj
    >>> tj.distributed.all_reduce({"w": tj.ones(2)})
    {'w': NDArray([1., 1.], dtype=float32)}
    """
    combine = "sum" if op == "mean" else op
    if combine not in COMBINE:
        raise _argument_error(f"all_reduce: op must be 'sum', 'mean', 'max', 'min' or 'prod', got {op!r}")
    leaves, structure = trees.flatten(tree)
    _check("all_reduce", leaves)
    within = attributes("all_reduce", group)
    if op == "mean" and not all(array.dtype.kind in "fcV" for array in leaves):
        raise _argument_error("all_reduce: op='mean' requires floating dtypes; use astype")
    if size() == 1:
        return trees.unflatten(structure, [array.copy() for array in leaves])
    reduced = dict(exchanged(dict(enumerate(leaves)), combine, priority, **within))
    if op == "mean":
        reduced = {i: array * (1.0 / size_of(group)) for i, array in reduced.items()}
    return trees.unflatten(structure, [reduced[i] for i in range(len(leaves))])


def exchanged(
    arrays: dict[Any, NDArray], combine: str, priority: int | None = None, **within: Any
) -> dict[Any, NDArray]:
    """Combine arrays over all ranks; return the results by the same keys.

    arrays:   in the order in which their results are used.
    priority: of all exchanges. None: arrays that are used first have the highest priority.
    within:   node attributes from `groups.attributes`.
    """
    combined: dict[Any, NDArray] = {}
    order = {key: -number for number, key in enumerate(arrays)}
    with _SeparateLaunch():
        for bucket in buckets(arrays):
            urgency = max(order[key] for key in bucket) if priority is None else priority
            operands = [arrays[key] for key in bucket]
            attrs = {"combine": combine, "priority": urgency, "token": None, **within}
            results = dispatch.emit(ops.exchange, *operands, **attrs)
            combined.update(zip(bucket, results, strict=True))
    return combined


def balanced_sum(arrays: Sequence[NDArray]) -> NDArray:
    """Sum arrays on one device in a balanced tree over their order, with the bits of a sum over ranks.

    Each operand is rounded first, as the operands of other ranks are. Otherwise a matrix product could
    accumulate the addition in its own kernel, which sums in a different order.
    """
    if len(arrays) > 1:
        arrays = [dispatch.apply(ops.rounded, array) for array in arrays]
    while len(arrays) > 1:
        pairs = [a + b for a, b in zip(arrays[::2], arrays[1::2], strict=False)]
        arrays = [*pairs, arrays[-1]] if len(arrays) % 2 else pairs
    return arrays[0]


def buckets(arrays: Mapping[Any, NDArray]) -> list[list[Any]]:
    """Partition the keys, from the last to the first, into buckets of arrays of one dtype."""
    result: list[list[Any]] = []
    filled = 0
    for key in reversed(arrays):
        array = arrays[key]
        nbytes = array.size * array.dtype.itemsize
        if not result or filled + nbytes > BUCKET or array.dtype != arrays[result[-1][0]].dtype:
            result.append([])
            filled = 0
        result[-1].append(key)
        filled += nbytes
    return result


class _SeparateLaunch:
    """A context whose eager operations are a separate launch; it has no effect inside a trace."""

    def __enter__(self) -> None:
        if thread.trace is None:
            eager.flush()

    def __exit__(self, *failure: object) -> None:
        if thread.trace is None:
            eager.flush()


def all_gather(x: NDArray, priority: int = 0, *, group: Group | None = None) -> NDArray:
    """Stack the arrays of all ranks, or of a group of them, along a new first axis in order of rank.

    x:     an array of the same shape and dtype on all ranks.
    group: created by `split`. None: all ranks.
    Raises ArgumentError if `x` is not an array.

    >>> import tracejit as tj
    >>> tj.distributed.all_gather(tj.ones(2)).shape == (tj.distributed.size(), 2)
    True
    """
    _check("all_gather", [x])
    within = attributes("all_gather", group)
    if size() == 1:
        return x.reshape((1, *x.shape)).copy()
    return _emit_separately(ops.all_gather, x, size=size_of(group), priority=priority, token=None, **within)


def reduce_scatter(x: NDArray, op: str = "sum", priority: int = 0, *, group: Group | None = None) -> NDArray:
    """Combine the arrays of all ranks, or of a group of them; return this rank's slice along the first axis.

    x:     an array of the same shape and dtype on all ranks; its first extent is a multiple of their number.
    op:    "sum", "max", "min" or "prod".
    group: created by `split`. None: all ranks.
    Raises ArgumentError for an unknown op, ShapeError if the first extent is not such a multiple.

    >>> import tracejit as tj
    >>> tj.distributed.reduce_scatter(tj.ones((4, 2))).shape == (4 // tj.distributed.size(), 2)
    True
    """
    _check("reduce_scatter", [x])
    if op not in COMBINE:
        raise _argument_error(f"reduce_scatter: op must be 'sum', 'max', 'min' or 'prod', got {op!r}")
    within, count = attributes("reduce_scatter", group), size_of(group)
    if not x.ndim or x.shape[0] % count:
        what = f"reduce_scatter: shape {x.shape}; the first extent must be a multiple of the {count} ranks"
        raise locate(ShapeError(what), user_location())
    if size() == 1:
        return x.copy()
    attrs = {"combine": op, "size": count, "priority": priority, "token": None, **within}
    return _emit_separately(ops.reduce_scatter, x, **attrs)


def broadcast(tree: Any, root: int = 0, priority: int = 0, *, group: Group | None = None) -> Any:
    """Copy the arrays of rank `root` to all ranks; return new arrays in the containers of `tree`.

    tree:  an array, or containers of arrays; of the same shapes and dtypes on all ranks.
    root:  an index into the group, or into all ranks.
    group: created by `split`. None: all ranks.
    Raises ArgumentError for a leaf that is not an array, or if there is no rank `root`.

    >>> import tracejit as tj
    >>> tj.distributed.broadcast(tj.arange(3))
    NDArray([0, 1, 2], dtype=int64)
    """
    within = attributes("broadcast", group)
    _check_rank("broadcast", "root", root, group)
    leaves, structure = trees.flatten(tree)
    _check("broadcast", leaves)
    if size() == 1:
        return trees.unflatten(structure, [leaf.copy() for leaf in leaves])
    with _SeparateLaunch():
        attrs = {"root": root, "priority": priority, "token": None, **within}
        results = dispatch.emit(ops.broadcast, *leaves, **attrs)
    return trees.unflatten(structure, results)


def barrier() -> None:
    """Wait until all ranks have called this function.

    Raises ArgumentError inside a traced function, where every exchange waits for all ranks already, and
    PeerError if another rank fails.

    >>> import tracejit as tj
    >>> tj.distributed.barrier()
    """
    if thread.trace is not None:
        raise _argument_error("barrier: inside a traced function; call it outside")
    if size() > 1:
        all_reduce(zeros(1)).wait()


def send(x: NDArray, to: int, priority: int = 0, *, group: Group | None = None) -> None:
    """Send an array to another rank, which calls `receive`. Messages to the same rank keep their order.

    to:    an index into the group, or into all ranks.
    group: created by `split`. None: all ranks.
    Raises ArgumentError if `x` is not an array, or if `to` is this rank or no rank.

    >>> import tracejit as tj
    >>> try:
    ...     tj.distributed.send(tj.ones(2), to=tj.distributed.rank())
    ... except tj.errors.ArgumentError as error:
    ...     print(type(error).__name__)
    ArgumentError
    """
    _check("send", [x])
    to = _check_other("send", "to", to, group)
    with _SeparateLaunch():
        dispatch.emit(ops.send, x, rank=to, priority=priority, token=f"send {to}")


def receive(like: NDArray, source: int, priority: int = 0, *, group: Group | None = None) -> NDArray:
    """Receive the next array that rank `source` sends to this rank.

    like:   an array of the shape and dtype that was sent.
    source: an index into the group, or into all ranks.
    group:  created by `split`. None: all ranks.
    Raises ArgumentError if `like` is not an array, or if `source` is this rank or no rank.

    >>> import tracejit as tj
    >>> try:
    ...     tj.distributed.receive(tj.ones(2), source=tj.distributed.rank())
    ... except tj.errors.ArgumentError as error:
    ...     print(type(error).__name__)
    ArgumentError
    """
    _check("receive", [like])
    source = _check_other("receive", "source", source, group)
    with _SeparateLaunch():
        (result,) = dispatch.emit(
            ops.receive, like, rank=source, priority=priority, token=f"receive {source}"
        )
    received: NDArray = result
    return received


def _emit_separately(op: Op, x: NDArray, **attrs: Any) -> NDArray:
    with _SeparateLaunch():
        result: NDArray = dispatch.emit(op, x, **attrs)
    return result


# -- arguments -----------------------------------------------------------------------------------------------


def _argument_error(message: str) -> TracejitError:
    return locate(ArgumentError(message), user_location())


def _check(name: str, leaves: Sequence[Any]) -> None:
    if not leaves or not all(isinstance(leaf, NDArray) for leaf in leaves):
        kinds = ", ".join(dict.fromkeys(type(leaf).__name__ for leaf in leaves)) or "nothing"
        raise _argument_error(f"{name}: expected arrays, got {kinds}; use tj.asarray")


def _check_rank(name: str, what: str, number: Any, group: Group | None) -> None:
    """Raise ArgumentError if `number` is not an index into the group, or into all ranks."""
    if type(number) is not int or not 0 <= number < size_of(group):
        raise _argument_error(f"{name}: {what} must be a rank from 0 to {size_of(group) - 1}, got {number!r}")


def _check_other(name: str, what: str, number: Any, group: Group | None) -> int:
    """Return the rank in the world of a rank of a group; raise ArgumentError if it is this rank."""
    attributes(name, group)
    _check_rank(name, what, number, group)
    world_rank: int = number if group is None else group.members[number]
    if world_rank == rank():
        raise _argument_error(f"{name}: {what}={number} is this rank itself")
    return world_rank


# -- groups --------------------------------------------------------------------------------------------------


def split(color: int, group: Group | None = None) -> Group:
    """Return the group of the ranks that pass the same color as this rank, in order of rank.

    color: a 64-bit integer.
    group: the group to subdivide. None: all ranks.
    All ranks must call this function, also with a `group`, and all ranks must make every call that uses the
    resulting group.
    Raises ArgumentError for another color, and inside a traced function.

    >>> import tracejit as tj
    >>> tj.distributed.split(tj.distributed.rank() // 2).size <= 2  # pairs of ranks
    True
    """
    if type(color) is not int or not -(1 << 63) <= color < 1 << 63:
        raise _argument_error(f"split: color must be a 64-bit integer, got {color!r}")
    if thread.trace is not None:
        raise _argument_error("split: inside a traced function; create the group outside")
    attributes("split", group)
    colors = all_gather(asarray([color])).reshape((-1,)).tolist()
    parts = (tuple(range(size())),) if group is None else group.parts
    return Group(divided(colors, parts), rank())
