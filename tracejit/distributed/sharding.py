"""Optimizers whose state is sharded over the ranks: stage 1 of ZeRO.

The parameters of a bucket are concatenated, and each rank owns a slice of the result. In a step a rank
receives the sum of its slice of the gradients (`reduce_scatter`), updates its slice of the parameters, and
all ranks gather the slices (`all_gather`). This moves as many bytes as an `all_reduce`, which consists of the
same two phases without the update. So state and update cost each rank 1 / size of the total, and the bits are
those of an unsharded update.

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
    """Shard an optimizer over the ranks (ZeRO-1): return its update function and this rank's state.

    optimizer: a function of `tj.optim`, or an elementwise one with the same signature,
               ``optimizer(params, gradients, state, **settings)``, without `state` if it has none.
    params:    a tree of arrays, the same on all ranks.
    op:        how to combine the gradients of the ranks: "mean" or "sum". None: they are combined already,
               for instance by `data_parallel` or `all_reduce`.
    state:     a function that creates the state for a list of arrays; not needed for those of `tj.optim`.
    The update is called as ``update(params, gradients, state, **settings)`` and writes the parameters in
    place, with the same bits as ``optimizer`` on combined gradients. The state differs between ranks; store
    the result of `gather_state` in a checkpoint.
    Raises ArgumentError for an unknown `op` or an optimizer that needs complete parameters (lamb). The update
    raises it for a parameter without a gradient, or with a shape other than in `params`.

    >>> import tracejit as tj
    >>> params = {"w": tj.ones(2)}
    >>> update, state = tj.distributed.shard_optimizer(tj.optim.momentum, params)
    >>> update(params, {"w": tj.ones(2)}, state, lr=0.5)
    >>> params
    {'w': NDArray([0.5, 0.5], dtype=float32)}
    """
    check_callable("shard_optimizer", optimizer)
    if op not in OPS:
        raise _argument_error(f"shard_optimizer: op must be 'mean', 'sum' or None, got {op!r}")
    if optimizer is lamb:
        raise _argument_error(
            "shard_optimizer: lamb needs norms of whole parameters, a rank has slices; use adamw"
        )
    shards = _Shards(params)
    make_state = state or state_of(optimizer)

    def update(params: Any, gradients: Any, state: Any = None, *args: Any, **settings: Any) -> None:
        state_args = () if make_state is None else (state,)
        leaves, grads = shards.arrays(params), shards.gradients(gradients)
        own_params, own_grads = shards.slices(leaves), shards.combined(grads, op)
        optimizer(own_params, own_grads, *state_args, *args, **settings)
        shards.write(leaves, own_params)

    return update, None if make_state is None else make_state(shards.slices(shards.arrays(params)))


def gather_state(state: Any) -> dict[str, Any]:
    """Gather the states of all ranks for a checkpoint: a tree that is the same on all ranks.

    All ranks must call this function; each needs memory for the state of all ranks.

    state: this rank's state from `shard_optimizer`, whose arrays are sharded like the parameters.
    Raises ArgumentError inside a traced function.

    >>> import tracejit as tj
    >>> update, state = tj.distributed.shard_optimizer(tj.optim.momentum, [tj.ones(2), tj.ones(1)])
    >>> tj.distributed.gather_state(state)["state"][0].shape
    (3,)
    """
    if thread.trace is not None:
        raise _argument_error("gather_state: inside a traced function; call it outside")
    gathered = trees.map(lambda x: all_gather(x).reshape((-1,)) if _is_divided(x) else x, state)
    return {"ranks": size(), "state": gathered}


def scatter_state(whole: Any, like: Any) -> Any:
    """Extract this rank's shard of a state that `gather_state` returned on any number of ranks.

    whole: the gathered state, for instance from a checkpoint.
    like:  this rank's state from `shard_optimizer` for the same parameters.
    Raises ArgumentError for the state of a different optimizer or of different parameters.

    >>> import tracejit as tj
    >>> update, state = tj.distributed.shard_optimizer(tj.optim.momentum, [tj.ones(3)])
    >>> whole = tj.distributed.gather_state(state)
    >>> tj.distributed.scatter_state(whole, like=state)[0].shape == state[0].shape
    True
    """
    if not isinstance(whole, dict) or whole.keys() != {"ranks", "state"}:
        raise _argument_error(f"scatter_state: expected a result of gather_state, got {type(whole).__name__}")
    (leaves, structure), (own_leaves, expected) = trees.flatten(whole["state"]), trees.flatten(like)
    matches = structure == expected and all(
        isinstance(x, NDArray) == isinstance(y, NDArray) for x, y in zip(leaves, own_leaves, strict=True)
    )
    if not matches:
        raise _argument_error(f"scatter_state: a state {structure} of another optimizer; expected {expected}")
    parts = [
        _own_slice(x, y, whole["ranks"]) if _is_divided(y) else x
        for x, y in zip(leaves, own_leaves, strict=True)
    ]
    return trees.unflatten(expected, parts)


def _is_divided(x: Any) -> bool:
    return isinstance(x, NDArray) and x.ndim > 0


def _own_slice(whole: NDArray, like: NDArray, ranks: int) -> NDArray:
    """Slice this rank's elements from an array that was padded for `ranks` ranks."""
    expected = like.size * size()
    if whole.ndim != 1 or whole.dtype != like.dtype or not -size() < whole.size - expected < ranks:
        message = f"{whole.dtype}{list(whole.shape)} on {ranks} ranks"
        raise _argument_error(
            f"scatter_state: {message} is not of these parameters: {like.dtype}[{expected}] here"
        )
    padded = whole.to(like.device)
    if padded.size < expected:
        padded = concat([padded, zeros(expected - padded.size, dtype=like.dtype, device=like.device)])
    return padded[like.size * rank() : like.size * (rank() + 1)].copy()


class _Shards:
    """The buckets of the arrays of a tree, each a list of leaf indices."""

    def __init__(self, params: Any) -> None:
        leaves, self._structure = trees.flatten(params)
        arrays = {i: leaf for i, leaf in enumerate(leaves) if isinstance(leaf, NDArray)}
        self._types = {i: (leaf.shape, leaf.dtype) for i, leaf in arrays.items()}
        self._keys = buckets(arrays)

    def arrays(self, params: Any) -> dict[int, NDArray]:
        """Return the arrays of a parameter tree by leaf index; raise ArgumentError if types differ."""
        arrays = {i: leaf for i, leaf in enumerate(trees.leaves(params)) if isinstance(leaf, NDArray)}
        if {i: (leaf.shape, leaf.dtype) for i, leaf in arrays.items()} != self._types:
            shapes = [shape for shape, _ in self._types.values()]
            got = [leaf.shape for leaf in arrays.values()]
            raise _argument_error(f"shard_optimizer: created for parameters of shapes {shapes}, got {got}")
        return arrays

    def gradients(self, gradients: Any) -> dict[int, NDArray]:
        """Return the arrays of a tree of gradients by leaf index; raise ArgumentError if one is missing."""
        leaves = aligned("shard_optimizer", self._structure, gradients)
        result = {i: leaves[i] for i in self._types}
        for i, (shape, _) in self._types.items():
            leaf = result[i]
            if not isinstance(leaf, NDArray) or leaf.shape != shape:
                got = f"a gradient of shape {leaf.shape}" if isinstance(leaf, NDArray) else "no gradient"
                message = (
                    f"shard_optimizer: leaf {i} of shape {shape} has {got}; give zeros where it is unused"
                )
                raise _argument_error(message)
        return result

    def _rows(self, arrays: Mapping[int, NDArray], keys: list[int]) -> NDArray:
        """Concatenate the arrays of a bucket, padded with zeros, into a matrix with a row per rank."""
        pieces = [arrays[i].reshape((-1,)) for i in keys]
        padding = -sum(x.size for x in pieces) % size()
        if padding:
            pieces.append(zeros(padding, dtype=pieces[0].dtype, device=pieces[0].device))
        joined: NDArray = pieces[0] if len(pieces) == 1 else concat(pieces)
        return joined.reshape((size(), -1))

    def slices(self, arrays: Mapping[int, NDArray]) -> list[NDArray]:
        """This rank's row of each bucket, copied."""
        return [self._rows(arrays, keys)[rank()].copy() for keys in self._keys]

    def combined(self, gradients: Mapping[int, NDArray], op: str | None) -> list[NDArray]:
        """This rank's row of each bucket of gradients, combined over the ranks."""
        if op is None:
            return self.slices(gradients)
        scale = 1.0 / size() if op == "mean" else 1
        rows = [self._rows(gradients, keys) for keys in self._keys]
        own = [reduce_scatter(x, priority=number).reshape((-1,)) for number, x in enumerate(rows)]
        return own if scale == 1 else [part * scale for part in own]

    def write(self, arrays: Mapping[int, NDArray], slices: list[NDArray]) -> None:
        """Gather the rows of all ranks and write them to the arrays."""
        for number, (keys, own_slice) in enumerate(zip(self._keys, slices, strict=True)):
            gathered, start = all_gather(own_slice, priority=number).reshape((-1,)), 0
            for i in keys:
                array = arrays[i]
                array[...] = gathered[start : start + array.size].reshape(array.shape)
                start += array.size


def _argument_error(message: str) -> TracejitError:
    return locate(ArgumentError(message), user_location())
