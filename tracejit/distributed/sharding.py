"""Optimizers whose state is divided among ranks: stage 1 of ZeRO.

The parameters of a bucket lie behind one another in memory, as if they were one array, and each rank owns a
slice of it. In a step a rank gets the sum of its slice of the gradients (`reduce_scatter`), updates its slice
of the parameters, and all get the slices of all (`all_gather`): the bytes of an `all_reduce`, which does
the same with the update left out. So state and update cost each rank a part of 1 / size, and the
bits are those of an update of everything everywhere.

Method: Rajbhandari et al., ZeRO: memory optimizations toward training trillion parameter models, 2020.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tracejit.distributed.collectives import all_gather, buckets, reduce_scatter
from tracejit.distributed.world import rank, size
from tracejit.errors import ArgumentError, TracejitError, locate
from tracejit.frontend.arrays import trees
from tracejit.frontend.arrays.functions.creation import zeros
from tracejit.frontend.arrays.functions.movement import concat
from tracejit.frontend.arrays.ndarray import NDArray
from tracejit.frontend.recording.location import check_callable, user_location
from tracejit.frontend.recording.recording import thread
from tracejit.optim.adaptive import lamb
from tracejit.optim.rows import aligned
from tracejit.optim.states import state_of

OPS = ("mean", "sum", None)


def shard_optimizer(
    optimizer: Callable[..., Any],
    params: Any,
    op: str | None = "mean",
    state: Callable[[Any], Any] | None = None,
) -> tuple[Callable[..., None], Any]:
    """An update like `optimizer` whose state is divided among the ranks (ZeRO-1), and this rank's state.

    optimizer: a function of `tj.optim`, or one that is called and works on single elements like these:
               ``optimizer(params, gradients, state, **settings)``, without state if it has none.
    params:    a tree of arrays, the same on all ranks.
    op:        how the ranks' gradients are combined: "mean" or "sum". None: they are already, as those of
               `data_parallel` and `all_reduce` are.
    state:     makes the state for a list of arrays; those of `tj.optim` are known.
    The update is called as ``update(params, gradients, state, **settings)`` and writes the parameters in
    place: the same bits as ``optimizer`` on combined gradients. The state differs from rank to rank; a
    checkpoint holds what `gather_state` makes of it.
    Raises ArgumentError for another `op` or an optimizer that needs whole parameters (lamb), and in the
    update for a parameter without a gradient, or of another shape than those given here.

    >>> import tracejit as tj
    >>> params = {"w": tj.ones(2)}
    >>> update, state = tj.distributed.shard_optimizer(tj.optim.momentum, params)
    >>> update(params, {"w": tj.ones(2)}, state, lr=0.5)
    >>> params
    {'w': NDArray([0.5, 0.5], dtype=float32)}
    """
    check_callable("shard_optimizer", optimizer)
    if op not in OPS:
        raise _refuse(f"shard_optimizer: op is 'mean', 'sum' or None, got {op!r}")
    if optimizer is lamb:
        raise _refuse("shard_optimizer: lamb needs norms of whole parameters, a rank has slices; use adamw")
    shards = _Shards(params)
    make = state or state_of(optimizer)

    def update(params: Any, gradients: Any, state: Any = None, *args: Any, **settings: Any) -> None:
        given = () if make is None else (state,)
        leaves, found = shards.arrays(params), shards.gradients(gradients)
        mine, wanted = shards.slices(leaves), shards.combined(found, op)
        optimizer(mine, wanted, *given, *args, **settings)
        shards.write(leaves, mine)

    return update, None if make is None else make(shards.slices(shards.arrays(params)))


def gather_state(state: Any) -> dict[str, Any]:
    """The states of all ranks, for a checkpoint: a tree that is the same on all ranks.

    state: of `shard_optimizer`, on each rank its own; its arrays lie along the parameters. All ranks call
           this, and each needs memory for the state of all.
    Raises ArgumentError inside a traced function.

    >>> import tracejit as tj
    >>> update, state = tj.distributed.shard_optimizer(tj.optim.momentum, [tj.ones(2), tj.ones(1)])
    >>> tj.distributed.gather_state(state)["state"][0].shape
    (3,)
    """
    if thread.trace is not None:
        raise _refuse("gather_state: inside a traced function; call it outside")
    whole = trees.map(lambda x: all_gather(x).reshape((-1,)) if _is_divided(x) else x, state)
    return {"ranks": size(), "state": whole}


def scatter_state(whole: Any, like: Any) -> Any:
    """This rank's part of a state that `gather_state` made, on any number of ranks.

    whole: from a checkpoint. like: the state of `shard_optimizer` on this rank for the same parameters.
    Raises ArgumentError for a state of another optimizer or of other parameters.

    >>> import tracejit as tj
    >>> update, state = tj.distributed.shard_optimizer(tj.optim.momentum, [tj.ones(3)])
    >>> whole = tj.distributed.gather_state(state)
    >>> tj.distributed.scatter_state(whole, like=state)[0].shape == state[0].shape
    True
    """
    if not isinstance(whole, dict) or whole.keys() != {"ranks", "state"}:
        raise _refuse(f"scatter_state: expected what gather_state made, got {type(whole).__name__}")
    (given, structure), (wanted, expected) = trees.flatten(whole["state"]), trees.flatten(like)
    fits = structure == expected and all(
        isinstance(x, NDArray) == isinstance(y, NDArray) for x, y in zip(given, wanted, strict=True)
    )
    if not fits:
        raise _refuse(f"scatter_state: a state {structure} of another optimizer; expected {expected}")
    parts = [
        _part_of(x, y, whole["ranks"]) if _is_divided(y) else x for x, y in zip(given, wanted, strict=True)
    ]
    return trees.unflatten(expected, parts)


def _is_divided(x: Any) -> bool:
    return isinstance(x, NDArray) and x.ndim > 0


def _part_of(whole: NDArray, like: NDArray, ranks: int) -> NDArray:
    """This rank's row of an array that was padded for so many ranks."""
    expected = like.size * size()
    if whole.ndim != 1 or whole.dtype != like.dtype or not -size() < whole.size - expected < ranks:
        what = f"{whole.dtype}{list(whole.shape)} on {ranks} ranks"
        raise _refuse(f"scatter_state: {what} is not of these parameters: {like.dtype}[{expected}] here")
    moved = whole.to(like.device)
    if moved.size < expected:
        moved = concat([moved, zeros(expected - moved.size, dtype=like.dtype, device=like.device)])
    return moved[like.size * rank() : like.size * (rank() + 1)].copy()


class _Shards:
    """The buckets of the arrays of a tree; `keys`: the positions of the leaves of each bucket."""

    def __init__(self, params: Any) -> None:
        leaves, self._structure = trees.flatten(params)
        arrays = {i: leaf for i, leaf in enumerate(leaves) if isinstance(leaf, NDArray)}
        self._types = {i: (leaf.shape, leaf.dtype) for i, leaf in arrays.items()}
        self._keys = buckets(arrays)

    def arrays(self, params: Any) -> dict[int, NDArray]:
        """The arrays of a tree of parameters, by position."""
        arrays = {i: leaf for i, leaf in enumerate(trees.leaves(params)) if isinstance(leaf, NDArray)}
        if {i: (leaf.shape, leaf.dtype) for i, leaf in arrays.items()} != self._types:
            shapes = [shape for shape, _ in self._types.values()]
            got = [leaf.shape for leaf in arrays.values()]
            raise _refuse(f"shard_optimizer: made for parameters of shapes {shapes}, got {got}")
        return arrays

    def gradients(self, gradients: Any) -> dict[int, NDArray]:
        """The arrays of a tree of gradients, which has one for each parameter, by position."""
        leaves = aligned("shard_optimizer", self._structure, gradients)
        found = {i: leaves[i] for i in self._types}
        for i, (shape, _) in self._types.items():
            leaf = found[i]
            if not isinstance(leaf, NDArray) or leaf.shape != shape:
                got = f"a gradient of shape {leaf.shape}" if isinstance(leaf, NDArray) else "no gradient"
                what = f"shard_optimizer: leaf {i} of shape {shape} has {got}; give zeros where it is unused"
                raise _refuse(what)
        return found

    def _rows(self, arrays: Mapping[int, NDArray], keys: list[int]) -> NDArray:
        """The arrays of a bucket behind one another, a row for each rank."""
        flat = [arrays[i].reshape((-1,)) for i in keys]
        rest = -sum(x.size for x in flat) % size()
        if rest:
            flat.append(zeros(rest, dtype=flat[0].dtype, device=flat[0].device))
        whole: NDArray = flat[0] if len(flat) == 1 else concat(flat)
        return whole.reshape((size(), -1))

    def slices(self, arrays: Mapping[int, NDArray]) -> list[NDArray]:
        """This rank's part of each bucket."""
        return [self._rows(arrays, keys)[rank()].copy() for keys in self._keys]

    def combined(self, gradients: Mapping[int, NDArray], op: str | None) -> list[NDArray]:
        """This rank's part of each bucket of gradients, combined over ranks."""
        if op is None:
            return self.slices(gradients)
        scale = 1.0 / size() if op == "mean" else 1
        rows = [self._rows(gradients, keys) for keys in self._keys]
        parts = [reduce_scatter(x, priority=number).reshape((-1,)) for number, x in enumerate(rows)]
        return parts if scale == 1 else [part * scale for part in parts]

    def write(self, arrays: Mapping[int, NDArray], slices: list[NDArray]) -> None:
        """Write what all ranks have in their parts to the arrays."""
        for number, (keys, part) in enumerate(zip(self._keys, slices, strict=True)):
            whole, start = all_gather(part, priority=number).reshape((-1,)), 0
            for i in keys:
                array = arrays[i]
                array[...] = whole[start : start + array.size].reshape(array.shape)
                start += array.size


def _refuse(message: str) -> TracejitError:
    return locate(ArgumentError(message), user_location())
