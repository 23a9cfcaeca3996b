"""Collective operations: sums, gathers, broadcasts and barriers, eager or inside a traced step.

In a traced step each bucket of arrays is one node (see `ops.communicate`) that begins when its operands are
computed: the gradients of the last layers travel while those of the first are computed. Arrays are put into
buckets from the last to the first, as a backward pass makes them; the first ones have the highest priority,
as the next step needs them first.

In eager code each call is a launch of its own, so that ranks that look at different arrays in between still
launch the same exchanges.
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
"""Bytes of arrays that travel together."""


def all_reduce(tree: Any, op: str = "sum", priority: int | None = None, *, group: Group | None = None) -> Any:
    """Arrays combined over all ranks, or a group of them: new ones, in the containers of `tree`.

    tree:     an array, or containers of arrays; of the same shapes and dtypes on all ranks.
    op:       "sum", "mean" (of floating dtypes), "max", "min" or "prod".
    priority: exchanges of higher priority travel first. None: the first leaves, then the others.
    group:    made by `split`. None: all ranks.
    Combined in a balanced tree over the ranks: the same bits on all ranks and in every run.
    Raises ArgumentError for another op or what is no array; waits raise PeerError if another rank fails.

    >>> import tracejit as tj
    >>> tj.distributed.all_reduce({"w": tj.ones(2)})
    {'w': NDArray([1., 1.], dtype=float32)}
    """
    combine = "sum" if op == "mean" else op
    if combine not in COMBINE:
        raise _refuse(f"all_reduce: op is 'sum', 'mean', 'max', 'min' or 'prod', got {op!r}")
    leaves, structure = trees.flatten(tree)
    _check("all_reduce", leaves)
    within = attributes("all_reduce", group)
    if op == "mean" and not all(leaf.dtype.kind in "fcV" for leaf in leaves):
        raise _refuse("all_reduce: a mean is of floating dtypes; use astype")
    if size() == 1:
        return trees.unflatten(structure, [leaf.copy() for leaf in leaves])
    found = dict(exchanged(dict(enumerate(leaves)), combine, priority, **within))
    if op == "mean":
        found = {i: leaf * (1.0 / size_of(group)) for i, leaf in found.items()}
    return trees.unflatten(structure, [found[i] for i in range(len(leaves))])


def exchanged(
    arrays: dict[Any, NDArray], combine: str, priority: int | None = None, **within: Any
) -> dict[Any, NDArray]:
    """The arrays combined over all ranks, by the same keys, which stand in order of use.

    within: as from `groups.attributes`.
    """
    found: dict[Any, NDArray] = {}
    order = {key: -number for number, key in enumerate(arrays)}
    with _Apart():
        for bucket in buckets(arrays):
            urgency = max(order[key] for key in bucket) if priority is None else priority
            operands = [arrays[key] for key in bucket]
            attrs = {"combine": combine, "priority": urgency, "token": None, **within}
            results = dispatch.emit(ops.exchange, *operands, **attrs)
            found.update(zip(bucket, results, strict=True))
    return found


def balanced_sum(arrays: Sequence[NDArray]) -> NDArray:
    """The sum of arrays on one device in a balanced tree of their order, as ranks are summed. Each is rounded
    before, as those of other ranks are: a product would add to another one in its own kernel, in other steps.
    """
    if len(arrays) > 1:
        arrays = [dispatch.apply(ops.rounded, array) for array in arrays]
    while len(arrays) > 1:
        pairs = [a + b for a, b in zip(arrays[::2], arrays[1::2], strict=False)]
        arrays = [*pairs, arrays[-1]] if len(arrays) % 2 else pairs
    return arrays[0]


def buckets(arrays: Mapping[Any, NDArray]) -> list[list[Any]]:
    """Keys of arrays of one dtype that travel together, from the last to the first."""
    found: list[list[Any]] = []
    filled = 0
    for key in reversed(arrays):
        array = arrays[key]
        nbytes = array.size * array.dtype.itemsize
        if not found or filled + nbytes > BUCKET or array.dtype != arrays[found[-1][0]].dtype:
            found.append([])
            filled = 0
        found[-1].append(key)
        filled += nbytes
    return found


class _Apart:
    """Launch what eager code records within by itself; in a trace nothing changes."""

    def __enter__(self) -> None:
        if thread.trace is None:
            eager.flush()

    def __exit__(self, *failure: object) -> None:
        if thread.trace is None:
            eager.flush()


def all_gather(x: NDArray, priority: int = 0, *, group: Group | None = None) -> NDArray:
    """The arrays of all ranks, or of a group of them, stacked along a new first axis in order of rank.

    x:     an array of the same shape and dtype on all ranks.
    group: made by `split`. None: all ranks.
    Raises ArgumentError for what is no array.

    >>> import tracejit as tj
    >>> tj.distributed.all_gather(tj.ones(2)).shape == (tj.distributed.size(), 2)
    True
    """
    _check("all_gather", [x])
    within = attributes("all_gather", group)
    if size() == 1:
        return x.reshape((1, *x.shape)).copy()
    return _collected(ops.all_gather, x, size=size_of(group), priority=priority, token=None, **within)


def reduce_scatter(x: NDArray, op: str = "sum", priority: int = 0, *, group: Group | None = None) -> NDArray:
    """This rank's part, along the first axis, of the arrays of all ranks, or of a group of them, combined.

    x:     an array of the same shape and dtype on all ranks; its first extent is a multiple of their number.
    op:    as in `all_reduce`, but for "mean".
    group: made by `split`. None: all ranks.
    Raises ArgumentError for another op, ShapeError for another extent.

    >>> import tracejit as tj
    >>> tj.distributed.reduce_scatter(tj.ones((4, 2))).shape == (4 // tj.distributed.size(), 2)
    True
    """
    _check("reduce_scatter", [x])
    if op not in COMBINE:
        raise _refuse(f"reduce_scatter: op is 'sum', 'max', 'min' or 'prod', got {op!r}")
    within, count = attributes("reduce_scatter", group), size_of(group)
    if not x.ndim or x.shape[0] % count:
        what = f"reduce_scatter: shape {x.shape}; the first extent must be a multiple of the {count} ranks"
        raise locate(ShapeError(what), user_location())
    if size() == 1:
        return x.copy()
    attrs = {"combine": op, "size": count, "priority": priority, "token": None, **within}
    return _collected(ops.reduce_scatter, x, **attrs)


def broadcast(tree: Any, root: int = 0, priority: int = 0, *, group: Group | None = None) -> Any:
    """The arrays of rank `root`: new ones, in the containers of `tree`.

    tree:  an array, or containers of arrays; of the same shapes and dtypes on all ranks.
    group: made by `split`, in which `root` is counted. None: all ranks.
    Raises ArgumentError for what is no array, or where there is no such rank.

    >>> import tracejit as tj
    >>> tj.distributed.broadcast(tj.arange(3))
    NDArray([0, 1, 2], dtype=int64)
    """
    within = attributes("broadcast", group)
    _check_place("broadcast", "root", root, group)
    leaves, structure = trees.flatten(tree)
    _check("broadcast", leaves)
    if size() == 1:
        return trees.unflatten(structure, [leaf.copy() for leaf in leaves])
    with _Apart():
        attrs = {"root": root, "priority": priority, "token": None, **within}
        results = dispatch.emit(ops.broadcast, *leaves, **attrs)
    return trees.unflatten(structure, results)


def barrier() -> None:
    """Wait until all ranks are here; not inside a traced function, where an exchange waits for all anyway.

    Raises ArgumentError inside a traced function, PeerError if another rank fails.

    >>> import tracejit as tj
    >>> tj.distributed.barrier()
    """
    if thread.trace is not None:
        raise _refuse("barrier: inside a traced function; call it outside")
    if size() > 1:
        all_reduce(zeros(1)).wait()


def send(x: NDArray, to: int, priority: int = 0, *, group: Group | None = None) -> None:
    """Send an array to another rank, which calls `receive`; messages to one rank keep their order.

    group: made by `split`, in which `to` is counted. None: all ranks.
    Raises ArgumentError for what is no array, or for this or no rank.

    >>> import tracejit as tj
    >>> try:
    ...     tj.distributed.send(tj.ones(2), to=tj.distributed.rank())
    ... except tj.errors.ArgumentError as error:
    ...     print(type(error).__name__)
    ArgumentError
    """
    _check("send", [x])
    to = _check_other("send", "to", to, group)
    with _Apart():
        dispatch.emit(ops.send, x, rank=to, priority=priority, token=f"send {to}")


def receive(like: NDArray, source: int, priority: int = 0, *, group: Group | None = None) -> NDArray:
    """The next array that rank `source` sends here: a new one.

    like:  an array of the shape and dtype that was sent.
    group: made by `split`, in which `source` is counted. None: all ranks.
    Raises ArgumentError for what is no array, or for this or no rank.

    >>> import tracejit as tj
    >>> try:
    ...     tj.distributed.receive(tj.ones(2), source=tj.distributed.rank())
    ... except tj.errors.ArgumentError as error:
    ...     print(type(error).__name__)
    ArgumentError
    """
    _check("receive", [like])
    source = _check_other("receive", "source", source, group)
    with _Apart():
        (result,) = dispatch.emit(
            ops.receive, like, rank=source, priority=priority, token=f"receive {source}"
        )
    found: NDArray = result
    return found


def _collected(op: Op, x: NDArray, **attrs: Any) -> NDArray:
    with _Apart():
        result: NDArray = dispatch.emit(op, x, **attrs)
    return result


# -- arguments -----------------------------------------------------------------------------------------------


def _refuse(message: str) -> TracejitError:
    return locate(ArgumentError(message), user_location())


def _check(name: str, leaves: Sequence[Any]) -> None:
    if not leaves or not all(isinstance(leaf, NDArray) for leaf in leaves):
        kinds = ", ".join(dict.fromkeys(type(leaf).__name__ for leaf in leaves)) or "nothing"
        raise _refuse(f"{name}: expected arrays, got {kinds}; use tj.asarray")


def _check_place(name: str, what: str, number: Any, group: Group | None) -> None:
    """Raise ArgumentError where a group, or all ranks, have no rank of this number."""
    if type(number) is not int or not 0 <= number < size_of(group):
        raise _refuse(f"{name}: {what} is a rank from 0 to {size_of(group) - 1}, got {number!r}")


def _check_other(name: str, what: str, number: Any, group: Group | None) -> int:
    """The number, among all ranks, of another rank of a group."""
    attributes(name, group)
    _check_place(name, what, number, group)
    found: int = number if group is None else group.members[number]
    if found == rank():
        raise _refuse(f"{name}: {what}={number} is this rank itself")
    return found


# -- groups --------------------------------------------------------------------------------------------------


def split(color: int, group: Group | None = None) -> Group:
    """The group of the ranks that give the same color as this one, in order of rank.

    color: an integer of 64 bits. group: one that is divided further; None: all ranks.
    All ranks call this, also if `group` is given, and all make the calls that take the group.
    Raises ArgumentError for another color, and inside a traced function.

    >>> import tracejit as tj
    >>> tj.distributed.split(tj.distributed.rank() // 2).size <= 2  # pairs of ranks
    True
    """
    if type(color) is not int or not -(1 << 63) <= color < 1 << 63:
        raise _refuse(f"split: color is an integer of 64 bits, got {color!r}")
    if thread.trace is not None:
        raise _refuse("split: inside a traced function; make the group outside")
    attributes("split", group)
    colors = all_gather(asarray([color])).reshape((-1,)).tolist()
    parts = (tuple(range(size())),) if group is None else group.parts
    return Group(divided(colors, parts), rank())
