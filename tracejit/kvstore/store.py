"""The store: arrays by key, and the operations push and pull.

The values of a key on several devices are summed on the device where the store keeps the key, in a balanced
tree over their order, so the bits depend on the values only. All methods are implemented with array
operations. The arrays in the store's dicts are written in place, so a traced step can refer to them.

A store of several ranks (``"dist_sync"``, ``"dist_async"``) is replicated on each rank with the same bits:
pushed values are summed over the ranks, too, in a balanced tree, and every rank performs the same update. A
store with `staleness` s applies at each push the sum of s pushes earlier, so the exchange has s steps to
complete. A pull sees all values that any rank pushed at least s steps ago (the bound of Ho et al., More
effective distributed ML via a stale synchronous parallel parameter server, 2013), and no later ones, so runs
are reproducible.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from tracejit import distributed, ops
from tracejit.distributed.collectives import balanced_sum, exchanged
from tracejit.errors import ArgumentError, DTypeError, ShapeError, TracejitError, locate
from tracejit.frontend.arrays import dispatch, trees
from tracejit.frontend.arrays.functions.creation import zeros_like
from tracejit.frontend.arrays.ndarray import NDArray
from tracejit.frontend.python import kinds
from tracejit.frontend.recording.location import check_callable, user_location
from tracejit.ir.types import CPU, Device
from tracejit.kvstore.compression import compressed, threshold_of
from tracejit.optim.states import state_of

kinds.treat_like_users(__name__)

KEYS = frozenset({int, str})
"""The types of keys."""

Updater = Callable[[Any, NDArray, NDArray], object]

TYPES = ("local", "device", "dist_sync", "dist_device_sync", "dist_async", "dist_device_async")

ALIASES = {
    "local_allreduce_cpu": "local",
    "local_update_cpu": "local",
    "local_allreduce_device": "device",
    "dist": "dist_sync",
    "dist_sync_device": "dist_device_sync",
    "dist_async_device": "dist_device_async",
}
"""MXNet's alternative names of these stores."""

COUNTERPARTS = {"nccl": "device", "horovod": "dist_sync", "byteps": "dist_sync", "p3": "dist_sync"}
"""MXNet's stores that use other libraries, and the equivalent stores."""


def create(name: str = "local", staleness: int | None = None) -> KVStore:
    """Create a store: ``"local"`` keeps all values on ``cpu:0``, ``"device"`` each on its own device.

    ``"dist_sync"`` sums the pushed values over all ranks of `tj.distributed`. ``"dist_async"`` applies these
    sums `staleness` pushes later (default 1), so that steps do not wait for exchanges. ``"dist_device_sync"``
    and ``"dist_device_async"`` keep values on devices like ``"device"``. MXNet's alternative names, such as
    ``"local_allreduce_cpu"``, and capital letters are accepted.
    Raises ArgumentError for an unknown name, a negative staleness, or one for a store that is not
    asynchronous.

    >>> import tracejit as tj
    >>> tj.kvstore.create("device").type
    'device'
    """
    kind = name.lower() if isinstance(name, str) else name
    kind = ALIASES.get(kind, kind)
    if kind not in TYPES:
        hint = f"; {COUNTERPARTS[kind]!r} does the same" if kind in COUNTERPARTS else ""
        expected = ", ".join(map(repr, TYPES))
        raise _argument_error(f"kvstore.create: there is no store {name!r}{hint}; expected one of {expected}")
    is_late = kind.endswith("async")
    if staleness is not None and (not is_late or type(staleness) is not int or staleness < 0):
        raise _argument_error(
            f"kvstore.create: staleness must be an integer >= 0, for 'dist_async' only; got {staleness!r}"
        )
    delay = 1 if staleness is None else staleness
    return KVStore(kind, delay if is_late else 0)


class KVStore:
    """A store of values by key, as created by `create`. Keys are integers or strings.

    Instead of a key, methods accept a list of keys with a list of as many values. A value is an array, or a
    list of arrays, one per device.

    >>> import tracejit as tj
    >>> kv = tj.kvstore.create()
    >>> kv.init("w", tj.zeros(2))
    >>> kv.push("w", [tj.ones(2), tj.ones(2, device=tj.cpu(1))])
    >>> out = tj.zeros(2)
    >>> kv.pull("w", out=out)
    >>> out
    NDArray([2., 2.], dtype=float32)
    """

    def __init__(self, type: str, staleness: int = 0) -> None:
        self.type = type
        self.staleness = staleness
        self._is_shared = type.startswith("dist")
        self._keeps_devices = "device" in type
        self._late: dict[Any, list[NDArray]] = {}  # sums that will be applied, oldest first
        self._stored: dict[Any, NDArray] = {}
        self._updater: Updater | None = None
        self._optimizer: Callable[..., Any] | None = None
        self._state_of: Callable[[Any], Any] | None = None
        self._settings: dict[str, Any] = {}
        self._states: dict[Any, Any] = {}
        self._threshold: float | None = None
        self._residuals: dict[Any, Any] = {}

    # -- properties ------------------------------------------------------------------------------------------

    @property
    def rank(self) -> int:
        """The number of this process among those that share the store.

        >>> import tracejit as tj
        >>> tj.kvstore.create().rank
        0
        """
        return distributed.rank() if self._is_shared else 0

    @property
    def num_workers(self) -> int:
        """The number of processes that share the store.

        >>> import tracejit as tj
        >>> tj.kvstore.create().num_workers
        1
        """
        return distributed.size() if self._is_shared else 1

    def is_capable(self, capability: str) -> bool:
        """Whether the store has a capability, of which there is one: updates by an ``"optimizer"``.

        >>> import tracejit as tj
        >>> tj.kvstore.create().is_capable("optimizer")
        True
        """
        return capability.lower() == "optimizer"

    def barrier(self) -> None:
        """Wait until all processes that share the store have called this method.

        >>> import tracejit as tj
        >>> tj.kvstore.create().barrier()
        """
        if self._is_shared:
            distributed.barrier()

    # -- values ----------------------------------------------------------------------------------------------

    def init(self, key: Any, value: Any) -> None:
        """Store copies of values under new keys; if ranks share the store, the values of rank 0.

        value: an array of any shape and dtype; of a list for several devices, the first is used.
        Raises ArgumentError for a key that exists, or is not an integer or string.

        >>> import tracejit as tj
        >>> tj.kvstore.create().init([3, 5], [tj.ones(2), tj.ones((2, 2))])
        """
        for k, values in _key_value_pairs("init", key, value):
            if k in self._stored:
                raise _argument_error(f"init: the key {k!r} is known already; push a value to replace it")
            device = self._device_for(values[0])
            first = distributed.broadcast(values[0]) if self._is_shared else values[0]
            self._stored[k] = first.copy() if first.device == device else first.to(device)
            if self._state_of is not None:
                self._states[k] = self._state_of(self._stored[k])

    def _device_for(self, value: NDArray) -> Device:
        return value.device if self._keeps_devices else CPU

    def push(self, key: Any, value: Any, priority: int = 0) -> None:
        """Update the stored value by the sum of `value` over devices, or replace it if there is no updater.

        value:    arrays of the stored shape and dtype, on any devices; summed over all ranks that share the
                  store. The arrays of a list of keys are exchanged together.
        priority: if several copies and exchanges could run, those of higher priority are first.
        Raises ArgumentError for an unknown key, ShapeError or DTypeError for a value of another type.

        >>> import tracejit as tj
        >>> kv = tj.kvstore.create()
        >>> kv.init(0, tj.zeros(2))
        >>> kv.push(0, tj.ones(2), priority=-1)
        """
        sums: dict[Any, NDArray] = {}
        for k, values in _grouped_by_key("push", key, value):
            stored = self._known("push", k)
            for array in values:
                _check_compatible("push", k, array, stored)
            if self._threshold is not None:
                values = self._compressed(k, values, self._threshold)
            sums[k] = balanced_sum([_moved(array, stored.device, priority) for array in values])
        if self._is_shared and distributed.size() > 1:
            sums = exchanged(sums, "sum", priority)
        for k, total in sums.items():
            self._apply(k, total)

    def _apply(self, k: Any, total: NDArray) -> None:
        """Update a key by a sum: `total`, or with staleness an earlier one."""
        stored = self._stored[k]
        if self.staleness:
            queue = [*self._late.get(k, []), total.copy()]
            self._late[k] = queue[-self.staleness :]
            if len(queue) <= self.staleness:
                return
            total = queue[0]
        if self._updater is not None:
            self._updater(k, total, stored)
        elif self._optimizer is not None:
            state = (self._states[k],) if k in self._states else ()
            self._optimizer(stored, total, *state, **self._settings)
        else:
            stored[...] = total

    def _compressed(self, key: Any, values: list[NDArray], threshold: float) -> list[NDArray]:
        residuals = self._residuals.get(key, [])
        if len(residuals) < len(values):
            residuals = self._residuals[key] = [*residuals, *map(zeros_like, values[len(residuals) :])]
        return [compressed(v, residual, threshold) for v, residual in zip(values, residuals, strict=False)]

    def pull(self, key: Any, out: Any = None, priority: int = 0) -> None:
        """Write the stored value to `out`, on the devices of its arrays.

        out:      an array of the stored shape and dtype, or a list of them.
        priority: as in `push`.
        Raises ArgumentError for an unknown key or without `out`, ShapeError or DTypeError if types differ.

        >>> import tracejit as tj
        >>> kv, out = tj.kvstore.create(), [tj.zeros(1), tj.zeros(1, device=tj.cpu(1))]
        >>> kv.init("w", tj.ones(1))
        >>> kv.pull("w", out=out)
        >>> out[1]
        NDArray([1.], dtype=float32)
        """
        if out is None:
            raise _argument_error("pull: needs out=, the arrays to write to")
        for k, outputs in _key_value_pairs("pull", key, out):
            stored = self._known("pull", k)
            for output in outputs:
                _check_compatible("pull", k, output, stored)
                output[...] = _moved(stored, output.device, priority)

    def pushpull(self, key: Any, value: Any, out: Any = None, priority: int = 0) -> None:
        """Call `push`, then `pull` into `out`, or into `value` itself.

        Arguments and errors are those of both methods.

        >>> import tracejit as tj
        >>> kv, halves = tj.kvstore.create(), [tj.ones(1), tj.ones(1, device=tj.cpu(1))]
        >>> kv.init(0, tj.zeros(1))
        >>> kv.pushpull(0, halves)
        >>> halves[1]
        NDArray([2.], dtype=float32)
        """
        self.push(key, value, priority)
        self.pull(key, value if out is None else out, priority)

    def broadcast(self, key: Any, value: Any, out: Any, priority: int = 0) -> None:
        """Call `init`, then `pull` into `out`.

        Arguments and errors are those of both methods.

        >>> import tracejit as tj
        >>> out = [tj.zeros(1), tj.zeros(1, device=tj.cpu(1))]
        >>> tj.kvstore.create().broadcast("w", tj.ones(1), out)
        >>> out[1]
        NDArray([1.], dtype=float32)
        """
        self.init(key, value)
        self.pull(key, out, priority)

    def _known(self, name: str, key: Any) -> NDArray:
        if key not in self._stored:
            shown = ", ".join(map(repr, list(self._stored)[:8])) or "none"
            raise _argument_error(f"{name}: the key {key!r} is not known (known: {shown}); call init first")
        return self._stored[key]

    # -- updates ---------------------------------------------------------------------------------------------

    def set_updater(self, updater: Updater) -> None:
        """Set the updater: `push` will call ``updater(key, received, stored)``, which writes to `stored`.

        `received` and `stored` are arrays of the same shape and dtype, on the same device.
        Raises ArgumentError if `updater` is not callable.

        >>> import tracejit as tj
        >>> kv, out = tj.kvstore.create(), tj.zeros(1)
        >>> kv.init(0, tj.ones(1))
        >>> def update(key, received, stored):
        ...     stored -= 0.5 * received
        >>> kv.set_updater(update)
        >>> kv.pushpull(0, tj.ones(1), out)
        >>> out
        NDArray([0.5], dtype=float32)
        """
        check_callable("set_updater", updater)
        self._updater = updater
        self._optimizer = self._state_of = None

    def set_optimizer(
        self, optimizer: Callable[..., Any], *, state: Callable[[Any], Any] | None = None, **settings: Any
    ) -> None:
        """Set the optimizer, a function of `tj.optim`, with which `push` will update stored values.

        optimizer: called as ``optimizer(stored, received, **settings)``, or with the key's state as third
                   argument.
        state:     creates the state for a stored array; not needed for the functions of `tj.optim`.
        Raises ArgumentError if `optimizer` is not callable.

        >>> import tracejit as tj
        >>> kv, out = tj.kvstore.create(), tj.zeros(1)
        >>> kv.init(0, tj.ones(1))
        >>> kv.set_optimizer(tj.optim.momentum, lr=0.5, beta=0.9)
        >>> kv.pushpull(0, tj.ones(1), out)
        >>> out
        NDArray([0.5], dtype=float32)
        """
        if not callable(optimizer):
            raise _argument_error(
                f"set_optimizer: expected a function of tj.optim, got {type(optimizer).__name__}"
            )
        self._optimizer, self._settings, self._updater = optimizer, settings, None
        self._state_of = state or state_of(optimizer)
        self._states = {}
        if self._state_of is not None:
            self._states = {key: self._state_of(stored) for key, stored in self._stored.items()}

    def set_gradient_compression(self, compression_params: Mapping[str, Any]) -> None:
        """Compress pushed gradients to two bits per element, with a residual (see `kvstore.compression`).

        compression_params: ``{"type": "2bit", "threshold": 0.5}``. Within one process this changes the summed
        values, but saves no bytes.
        Raises ArgumentError for other parameters.

        >>> import tracejit as tj
        >>> kv, out = tj.kvstore.create("device"), tj.zeros(2)
        >>> kv.init(0, tj.zeros(2))
        >>> kv.set_gradient_compression({"type": "2bit", "threshold": 0.5})
        >>> kv.push(0, tj.asarray([0.75, 0.25]))
        >>> kv.push(0, tj.asarray([0.25, 0.25]))
        >>> kv.pull(0, out)
        >>> out
        NDArray([0.5, 0.5], dtype=float32)
        """
        self._threshold = threshold_of(compression_params)
        self._residuals = {}

    def save_optimizer_states(self, fname: str | os.PathLike[str]) -> None:
        """Write the optimizer's states to a file; if ranks share the store, rank 0 writes it and all wait.

        Raises ArgumentError without an optimizer.

        >>> import os, tempfile, tracejit as tj
        >>> kv = tj.kvstore.create()
        >>> kv.init(0, tj.ones(1))
        >>> kv.set_optimizer(tj.optim.momentum, lr=0.5)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     kv.save_optimizer_states(os.path.join(folder, "states.npz"))
        ...     kv.load_optimizer_states(os.path.join(folder, "states.npz"))
        """
        if self._optimizer is None:
            raise _argument_error("save_optimizer_states: there is no optimizer; call set_optimizer first")
        from tracejit.frontend.arrays.io import save  # importing `zipfile` takes 4 ms

        if self.rank == 0:
            save(fname, [[key, state] for key, state in self._states.items()])
        self.barrier()

    def load_optimizer_states(self, fname: str | os.PathLike[str]) -> None:
        """Read the states that `save_optimizer_states` wrote, and move each to the device of its key.

        Raises ArgumentError without an optimizer, or if the file contains states of other keys.

        >>> import tracejit as tj
        >>> try:
        ...     tj.kvstore.create().load_optimizer_states("states.npz")
        ... except tj.errors.ArgumentError as error:
        ...     print(str(error).splitlines()[0])
        load_optimizer_states: there is no optimizer; call set_optimizer first
        """
        if self._optimizer is None:
            raise _argument_error("load_optimizer_states: there is no optimizer; call set_optimizer first")
        from tracejit.frontend.arrays.io import load  # imported late as in `save_optimizer_states`

        loaded = dict(load(fname))
        if loaded.keys() != self._states.keys():
            expected = list(self._states)
            raise _argument_error(
                f"load_optimizer_states: states of the keys {list(loaded)}, expected {expected}"
            )
        for key, state in loaded.items():
            device = self._stored[key].device
            self._states[key] = trees.map(lambda x: x.to(device) if isinstance(x, NDArray) else x, state)  # noqa: B023


# ------------------------------------------------------------------------------------------------- arguments


def _argument_error(message: str) -> TracejitError:
    return locate(ArgumentError(message), user_location())


def _key_value_pairs(name: str, key: Any, value: Any) -> list[tuple[Any, list[NDArray]]]:
    """Check keys and values; return each key with the list of its arrays."""
    if type(key) in KEYS and type(value) is NDArray:
        return [(key, [value])]
    keys = list(key) if isinstance(key, (list, tuple)) else [key]
    values = list(value) if isinstance(key, (list, tuple)) and isinstance(value, (list, tuple)) else [value]
    if len(values) != len(keys):
        raise _argument_error(
            f"{name}: {len(keys)} keys and {len(values)} values; expected a value for each key"
        )
    pairs = []
    for k, v in zip(keys, values, strict=True):
        if type(k) not in KEYS:
            raise _argument_error(f"{name}: keys are integers or strings, got {type(k).__name__} {k!r}")
        arrays = list(v) if isinstance(v, (list, tuple)) else [v]
        if not arrays or not all(isinstance(array, NDArray) for array in arrays):
            kinds = ", ".join(type(array).__name__ for array in arrays) or "nothing"
            is_sparse = any(hasattr(array, "nnz") or hasattr(array, "stype") for array in arrays)
            suggestion = "dense arrays, as of x.toarray()" if is_sparse else "arrays (tj.asarray)"
            raise _argument_error(f"{name}: the value of the key {k!r} is {kinds}; expected {suggestion}")
        pairs.append((k, arrays))
    return pairs


def _grouped_by_key(name: str, key: Any, value: Any) -> list[tuple[Any, list[NDArray]]]:
    """Check keys and values; return each distinct key with the list of all its arrays."""
    pairs = _key_value_pairs(name, key, value)
    if len(pairs) == 1:
        return pairs
    groups: dict[Any, list[NDArray]] = {}
    for k, arrays in pairs:
        groups.setdefault(k, []).extend(arrays)
    return list(groups.items())


def _check_compatible(name: str, key: Any, array: NDArray, stored: NDArray) -> None:
    """Raise ShapeError or DTypeError if an array does not have the stored shape and dtype."""
    if array.shape != stored.shape:
        message = f"{name}: an array of shape {array.shape} for the key {key!r}, which has {stored.shape}"
        raise locate(ShapeError(message), user_location())
    if array.dtype != stored.dtype:
        message = (
            f"{name}: an array of {array.dtype} for the key {key!r}, which has {stored.dtype}; use astype"
        )
        raise locate(DTypeError(message), user_location())


def _moved(array: NDArray, device: Device, priority: int) -> NDArray:
    """Copy an array to `device` with a priority, unless it is there already."""
    if array.device is device:
        return array
    moved: NDArray = dispatch.emit(ops.copy_to, array, device=device, priority=priority)
    return moved
