"""The store: what is kept by key, and what push and pull do with it.

Values of one key that lie on several devices are summed where the store keeps the key, in a balanced tree of
their order, so that the bits depend on the values only. Every method is written with arrays; the store's
dicts hold arrays that are written in place, so a traced step finds them again.

A store of several ranks (``"dist_sync"``, ``"dist_async"``) lies on each of them, and holds the same bits
there: what is pushed is summed over ranks, too, in a balanced tree, and every rank makes the same update. A
store of `staleness` s applies at a push the sum that was pushed s pushes earlier, so the exchange has s steps
to arrive: a pull sees at least all that any rank pushed up to s steps ago (the bound of Ho et al., More
effective distributed ML via a stale synchronous parallel parameter server, 2013), and always exactly that,
so runs stay reproducible.
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
from tracejit.frontend.recording.location import check_callable, user_location
from tracejit.ir.types import CPU, Device
from tracejit.kvstore.compression import compressed, threshold_of
from tracejit.optim.states import state_of

KEYS = frozenset({int, str})
"""Types of keys."""

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
"""Other names of MXNet's for the same stores."""

COUNTERPARTS = {"nccl": "device", "horovod": "dist_sync", "byteps": "dist_sync", "p3": "dist_sync"}
"""Stores of MXNet's that use libraries which are not used here, and what does the same."""


def create(name: str = "local", staleness: int | None = None) -> KVStore:
    """A store: ``"local"`` keeps all values on ``cpu:0``, ``"device"`` each where it was.

    ``"dist_sync"`` sums what all ranks of `tj.distributed` push; ``"dist_async"`` applies these sums
    `staleness` pushes later (default 1), so that steps do not wait for one another. ``"dist_device_sync"``
    and ``"dist_device_async"`` keep values as ``"device"`` does. MXNet's other names for these, such as
    ``"local_allreduce_cpu"``, and capital letters are understood.
    Raises ArgumentError for another name, or a staleness that is negative or of another store.

    >>> import tracejit as tj
    >>> tj.kvstore.create("device").type
    'device'
    """
    kind = name.lower() if isinstance(name, str) else name
    kind = ALIASES.get(kind, kind)
    if kind not in TYPES:
        near = f"; {COUNTERPARTS[kind]!r} does the same" if kind in COUNTERPARTS else ""
        expected = ", ".join(map(repr, TYPES))
        raise _refuse(f"kvstore.create: there is no store {name!r}{near}; expected one of {expected}")
    is_late = kind.endswith("async")
    if staleness is not None and (not is_late or type(staleness) is not int or staleness < 0):
        raise _refuse(f"kvstore.create: staleness is a number from 0 on, of 'dist_async'; got {staleness!r}")
    late = 1 if staleness is None else staleness
    return KVStore(kind, late if is_late else 0)


class KVStore:
    """Values by key. Keys are integers or strings; made by `create`.

    Where a method takes a key, it takes a list of keys, too, with a list of as many values; a value is an
    array or a list of arrays, one for each device.

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
        self._late: dict[Any, list[NDArray]] = {}  # sums that are to be applied, oldest first
        self._stored: dict[Any, NDArray] = {}
        self._updater: Updater | None = None
        self._optimizer: Callable[..., Any] | None = None
        self._state_of: Callable[[Any], Any] | None = None
        self._settings: dict[str, Any] = {}
        self._states: dict[Any, Any] = {}
        self._threshold: float | None = None
        self._residuals: dict[Any, Any] = {}

    # -- facts -----------------------------------------------------------------------------------------------

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
        """Whether the store can do what is asked: it can update by an ``"optimizer"``.

        >>> import tracejit as tj
        >>> tj.kvstore.create().is_capable("optimizer")
        True
        """
        return capability.lower() == "optimizer"

    def barrier(self) -> None:
        """Wait for the other processes that share the store.

        >>> import tracejit as tj
        >>> tj.kvstore.create().barrier()
        """
        if self._is_shared:
            distributed.barrier()

    # -- values ----------------------------------------------------------------------------------------------

    def init(self, key: Any, value: Any) -> None:
        """Store copies of values under keys that are new; where ranks share the store, those of rank 0.

        value: an array of any shape and dtype; of a list for several devices, the first is taken.
        Raises ArgumentError for a key that is known, or that is no integer or string.

        >>> import tracejit as tj
        >>> tj.kvstore.create().init([3, 5], [tj.ones(2), tj.ones((2, 2))])
        """
        for k, values in _pairs("init", key, value):
            if k in self._stored:
                raise _refuse(f"init: the key {k!r} is known already; push a value to replace it")
            place = self._place_of(values[0])
            first = distributed.broadcast(values[0]) if self._is_shared else values[0]
            self._stored[k] = first.copy() if first.device == place else first.to(place)
            if self._state_of is not None:
                self._states[k] = self._state_of(self._stored[k])

    def _place_of(self, value: NDArray) -> Device:
        return value.device if self._keeps_devices else CPU

    def push(self, key: Any, value: Any, priority: int = 0) -> None:
        """Update what is stored by the sum of `value` over devices, or replace it if there is no updater.

        value:    arrays of the stored shape and dtype, on any devices; of all ranks that share the store. The
                  arrays of a list of keys travel together.
        priority: copies and exchanges of higher priority come first, where several could run.
        Raises ArgumentError for an unknown key, ShapeError or DTypeError for a value that does not fit.

        >>> import tracejit as tj
        >>> kv = tj.kvstore.create()
        >>> kv.init(0, tj.zeros(2))
        >>> kv.push(0, tj.ones(2), priority=-1)
        """
        sums: dict[Any, NDArray] = {}
        for k, values in _grouped("push", key, value):
            stored = self._known("push", k)
            for each in values:
                _check_fit("push", k, each, stored)
            if self._threshold is not None:
                values = self._compressed(k, values, self._threshold)
            sums[k] = balanced_sum([_moved(each, stored.device, priority) for each in values])
        if self._is_shared and distributed.size() > 1:
            sums = exchanged(sums, "sum", priority)
        for k, received in sums.items():
            self._apply(k, received)

    def _apply(self, k: Any, received: NDArray) -> None:
        """Update the key by a sum: this one, or one that was pushed earlier."""
        stored = self._stored[k]
        if self.staleness:
            late = [*self._late.get(k, []), received.copy()]
            self._late[k] = late[-self.staleness :]
            if len(late) <= self.staleness:
                return
            received = late[0]
        if self._updater is not None:
            self._updater(k, received, stored)
        elif self._optimizer is not None:
            state = (self._states[k],) if k in self._states else ()
            self._optimizer(stored, received, *state, **self._settings)
        else:
            stored[...] = received

    def _compressed(self, key: Any, values: list[NDArray], threshold: float) -> list[NDArray]:
        known = self._residuals.get(key, [])
        if len(known) < len(values):
            known = self._residuals[key] = [*known, *map(zeros_like, values[len(known) :])]
        return [compressed(v, rest, threshold) for v, rest in zip(values, known, strict=False)]

    def pull(self, key: Any, out: Any = None, priority: int = 0) -> None:
        """Write what is stored into `out`, where it lies.

        out:      an array of the stored shape and dtype, or a list of them.
        priority: as in `push`.
        Raises ArgumentError for an unknown key or without `out`, ShapeError or DTypeError if it does not fit.

        >>> import tracejit as tj
        >>> kv, out = tj.kvstore.create(), [tj.zeros(1), tj.zeros(1, device=tj.cpu(1))]
        >>> kv.init("w", tj.ones(1))
        >>> kv.pull("w", out=out)
        >>> out[1]
        NDArray([1.], dtype=float32)
        """
        if out is None:
            raise _refuse("pull: needs out=, the arrays to write to")
        for k, places in _pairs("pull", key, out):
            stored = self._known("pull", k)
            for place in places:
                _check_fit("pull", k, place, stored)
                place[...] = _moved(stored, place.device, priority)

    def pushpull(self, key: Any, value: Any, out: Any = None, priority: int = 0) -> None:
        """`push`, then `pull` into `out`, or into `value` itself.

        The arguments and errors are those of both.

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
        """`init`, then `pull` into `out`.

        The arguments and errors are those of both.

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
            known = ", ".join(map(repr, list(self._stored)[:8])) or "none"
            raise _refuse(f"{name}: the key {key!r} is not known (known: {known}); call init first")
        return self._stored[key]

    # -- updates ---------------------------------------------------------------------------------------------

    def set_updater(self, updater: Updater) -> None:
        """Have `push` call ``updater(key, received, stored)``, which writes to `stored`.

        `received` and `stored` are arrays of one shape and dtype, on one device.
        Raises ArgumentError for what cannot be called.

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
        """Have `push` update what is stored by a function of `tj.optim`, with these settings.

        optimizer: called as ``optimizer(stored, received, **settings)``, or with the key's state as third
                   argument.
        state:     makes the state for a stored array; those of `tj.optim` are known.
        Raises ArgumentError for what cannot be called.

        >>> import tracejit as tj
        >>> kv, out = tj.kvstore.create(), tj.zeros(1)
        >>> kv.init(0, tj.ones(1))
        >>> kv.set_optimizer(tj.optim.momentum, lr=0.5, beta=0.9)
        >>> kv.pushpull(0, tj.ones(1), out)
        >>> out
        NDArray([0.5], dtype=float32)
        """
        if not callable(optimizer):
            raise _refuse(f"set_optimizer: expected a function of tj.optim, got {type(optimizer).__name__}")
        self._optimizer, self._settings, self._updater = optimizer, settings, None
        self._state_of = state or state_of(optimizer)
        self._states = {}
        if self._state_of is not None:
            self._states = {key: self._state_of(stored) for key, stored in self._stored.items()}

    def set_gradient_compression(self, compression_params: Mapping[str, Any]) -> None:
        """Push two bits of each element, and add the rest to the next push (see `kvstore.compression`).

        compression_params: ``{"type": "2bit", "threshold": 0.5}``. Within one process this changes what is
        summed, and saves no bytes.
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
        """Write the optimizer's states to a file; where ranks share the store, rank 0 does, and all wait.

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
            raise _refuse("save_optimizer_states: there is no optimizer; call set_optimizer first")
        from tracejit.frontend.arrays.io import save  # the module for ZIP files takes 4 ms

        if self.rank == 0:
            save(fname, [[key, state] for key, state in self._states.items()])
        self.barrier()

    def load_optimizer_states(self, fname: str | os.PathLike[str]) -> None:
        """Read the states that `save_optimizer_states` wrote; each goes to the device of its key.

        Raises ArgumentError without an optimizer, or if the file holds states of other keys.

        >>> import tracejit as tj
        >>> try:
        ...     tj.kvstore.create().load_optimizer_states("states.npz")
        ... except tj.errors.ArgumentError as error:
        ...     print(str(error).splitlines()[0])
        load_optimizer_states: there is no optimizer; call set_optimizer first
        """
        if self._optimizer is None:
            raise _refuse("load_optimizer_states: there is no optimizer; call set_optimizer first")
        from tracejit.frontend.arrays.io import load  # as in `save_optimizer_states`

        found = dict(load(fname))
        if found.keys() != self._states.keys():
            expected = list(self._states)
            raise _refuse(f"load_optimizer_states: states of the keys {list(found)}, expected {expected}")
        for key, state in found.items():
            place = self._stored[key].device
            self._states[key] = trees.map(lambda x: x.to(place) if isinstance(x, NDArray) else x, state)  # noqa: B023


# ------------------------------------------------------------------------------------------------- arguments


def _refuse(message: str) -> TracejitError:
    return locate(ArgumentError(message), user_location())


def _pairs(name: str, key: Any, value: Any) -> list[tuple[Any, list[NDArray]]]:
    """Keys with the list of their arrays."""
    if type(key) in KEYS and type(value) is NDArray:
        return [(key, [value])]
    keys = list(key) if isinstance(key, (list, tuple)) else [key]
    values = list(value) if isinstance(key, (list, tuple)) and isinstance(value, (list, tuple)) else [value]
    if len(values) != len(keys):
        raise _refuse(f"{name}: {len(keys)} keys and {len(values)} values; expected a value for each key")
    found = []
    for k, v in zip(keys, values, strict=True):
        if type(k) not in KEYS:
            raise _refuse(f"{name}: keys are integers or strings, got {type(k).__name__} {k!r}")
        arrays = list(v) if isinstance(v, (list, tuple)) else [v]
        if not arrays or not all(isinstance(each, NDArray) for each in arrays):
            kinds = ", ".join(type(each).__name__ for each in arrays) or "nothing"
            is_sparse = any(hasattr(each, "nnz") or hasattr(each, "stype") for each in arrays)
            remedy = "dense arrays, as of x.toarray()" if is_sparse else "arrays (tj.asarray)"
            raise _refuse(f"{name}: the value of the key {k!r} is {kinds}; expected {remedy}")
        found.append((k, arrays))
    return found


def _grouped(name: str, key: Any, value: Any) -> list[tuple[Any, list[NDArray]]]:
    """Pairs of a key and its arrays, those of a repeated key together."""
    pairs = _pairs(name, key, value)
    if len(pairs) == 1:
        return pairs
    groups: dict[Any, list[NDArray]] = {}
    for k, arrays in pairs:
        groups.setdefault(k, []).extend(arrays)
    return list(groups.items())


def _check_fit(name: str, key: Any, array: NDArray, stored: NDArray) -> None:
    """Raise if an array is not of the stored shape and dtype."""
    if array.shape != stored.shape:
        what = f"{name}: an array of shape {array.shape} for the key {key!r}, which has {stored.shape}"
        raise locate(ShapeError(what), user_location())
    if array.dtype != stored.dtype:
        what = f"{name}: an array of {array.dtype} for the key {key!r}, which has {stored.dtype}; use astype"
        raise locate(DTypeError(what), user_location())


def _moved(array: NDArray, device: Device, priority: int) -> NDArray:
    """The array on `device`, copied there with a priority."""
    if array.device is device:
        return array
    moved: NDArray = dispatch.emit(ops.copy_to, array, device=device, priority=priority)
    return moved
