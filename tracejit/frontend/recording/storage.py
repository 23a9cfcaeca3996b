"""Storage of arrays: memory once the content is computed, or a value in an open recording until then.

An `NDArray` is a `Storage` and a view of it. All views of one array share one storage, and a write through
any of them rebinds the content of the storage. Its address, once it has one, never changes.

States of a storage:
- *pending*:      no buffer yet; the content is the value `pending` of `recording`, which created the storage.
- *materialised*: a buffer and an engine variable, usually the same object. `recording` is the eager recording
                  that has accessed the storage and is not flushed yet (then the newest content may be a value
                  there), or None.
- *failed*:       the computation failed, for lack of memory for instance, and there is no buffer; accessing
                  the address or the variable raises the error `failure`. A materialised storage with a
                  `failure` could not be written: it has its old content, and the next look raises the error.

A storage whose content was computed immediately (`ComputedStorage`) has only the NumPy array that owns its
memory: most small results are soon used or dropped, and need nothing else. The first use of another attribute
converts it to a `Storage` (`initialise`). That storage is materialised, but its address and its variable are
created only on their first use. Until then no launch can use the storage. No launch can start to use it while
NumPy uses it, as both need `memory_lock`.

    s = computed(np.zeros(3))._storage
    s.untouched                     # True: no launch has used it. It is no longer a `ComputedStorage`
    s.variable, s.address           # created now
    s.untouched                     # False

The elements that a mask selects in a traced call are `Uncounted` until their number is needed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tracejit import engine
from tracejit.engine.failures import without_traceback
from tracejit.errors import AllocationError, locate
from tracejit.forking import make_rlock
from tracejit.frontend.recording.location import user_location
from tracejit.ir.types import BFLOAT16, CPU, ArrayType
from tracejit.ir.view import View

if TYPE_CHECKING:
    from tracejit.frontend.recording.recording import Recording
    from tracejit.ir.graph import Value

memory_lock = make_rlock()
"""Acquired while NumPy computes on storages that no launch has used, and while the variable of such a storage
is created. A thread waits for nothing while it owns this lock.
"""


class StorageFailure:
    """The reason why a storage has no content, and whether it has been reported."""

    __slots__ = ("error", "reported")

    def __init__(self, error: Exception):
        self.error, self.reported = error, False

    def tell(self) -> BaseException:
        """Return the error, which the caller raises, and mark it as reported."""
        self.reported = True
        return without_traceback(self.error)


_types: dict[tuple[Any, ...], ArrayType] = {}
MAX_CACHED_TYPES = 4096  # the maximum number of cached types


class Storage:
    """The content that all views of one array share. `type` describes it as one C-contiguous block.

    shared:    whether Python can access the memory, through a NumPy view for instance.
    untouched: whether no launch has used the storage, which has neither address nor variable yet.
    made_at:   the user's line that created the storage; None if unknown.
    """

    __slots__ = (
        "__weakref__",
        "_elements",
        "address",
        "buffer",
        "failure",
        "made_at",
        "pending",
        "recording",
        "shared",
        "type",
        "untouched",
        "variable",
    )
    address: int
    buffer: Any
    variable: Any

    def __init__(self, type: ArrayType, buffer: engine.Buffer | None = None) -> None:
        self.type = type
        self.buffer = self.variable = buffer
        self.address = 0 if buffer is None else buffer.memory
        self.recording: Recording | None = None
        self.pending: Value | None = None
        self.shared = False
        self.made_at: str | None = None
        self.failure: StorageFailure | None = None
        self.untouched = False
        self._elements: np.ndarray | None = None

    @staticmethod
    def at(address: int, type: ArrayType, owner: object, variable: engine.Variable) -> Storage:
        """Return a storage on memory that `owner` keeps alive and whose accesses `variable` orders."""
        storage = Storage(type)
        storage.address, storage.buffer, storage.variable = address, owner, variable
        return storage

    def __getattr__(self, name: str) -> Any:
        """Create the address and the variable of a storage when one of them is first used."""
        if name not in ("address", "variable"):
            raise AttributeError(f"'Storage' object has no attribute {name!r}")
        if self.failure is not None:
            raise self.failure.tell()
        address, variable = self.buffer.ctypes.data, engine.Variable()
        with memory_lock:
            if self.untouched:
                self.address, self.variable = address, variable
                self.untouched = False
        return object.__getattribute__(self, name)

    def initialise(self) -> None:
        """Ensure that all attributes exist; see `ComputedStorage`."""

    def expose(self) -> None:
        """Note that Python can access the memory from now on."""
        self.initialise()
        self.shared = True

    def materialise(self) -> None:
        """Allocate the memory and the engine variable of a pending storage."""
        try:
            self.buffer = self.variable = engine.pool_of(self.type.device.number).allocate(self.type.nbytes)
        except (MemoryError, OverflowError, ValueError):  # NumPy's errors, which differ by size
            message = f"there is no memory for an array of {self.type}, {self.type.nbytes} bytes"
            raise locate(AllocationError(message), self.made_at or user_location()) from None
        self.address = self.buffer.memory
        self.pending = self.recording = None

    def fail(self, error: Exception) -> StorageFailure:
        """Note that the content of a pending storage cannot be computed."""
        self.failure = StorageFailure(error)
        self.pending = self.recording = self.buffer = None
        del self.variable, self.address
        return self.failure

    def tell_failure(self) -> None:
        """Raise the reason why this storage has no content, or, once, the reason why it could not be
        written.
        """
        failure = self.failure
        if failure is not None:
            if self.buffer is None:
                raise failure.tell()
            self.failure = None
            if not failure.reported:
                raise failure.tell()

    def memory(self) -> np.ndarray:
        """Return the memory as a writable NumPy array of the base shape. The caller has waited for the
        variable.
        """
        return memory_at(self.address, self.type, self)

    @property
    def elements(self) -> np.ndarray:
        """The memory as a writable one-dimensional NumPy array, valid for the lifetime of this storage."""
        if self._elements is None:
            if self.untouched:
                self._elements = self.buffer.reshape(-1)
            else:
                flat = ArrayType((self.type.size,), self.type.dtype)
                self._elements = memory_at(self.address, flat, self.buffer)
        return self._elements

    def seen(self, view: View) -> np.ndarray:
        """Return the elements of a view as a NumPy array. It may be written only if no element repeats."""
        return view.read(self.elements)


class ComputedStorage(Storage):
    """A storage whose content was computed immediately, and that no recording or launch has used since.

    It has only a C-contiguous array in `buffer`, to which nothing else refers; its other attributes read as
    in `UNTOUCHED`. It becomes a `Storage` (`initialise`) before any of these is set, and when its address or
    its variable is used.
    """

    __slots__ = ()

    def __getattr__(self, name: str) -> Any:
        if name == "type":
            self.type = type_of(self.buffer)
            return self.type
        if name in UNTOUCHED:
            return UNTOUCHED[name]
        self.initialise()
        return getattr(self, name)

    def initialise(self) -> None:
        """Become a `Storage` that no launch has used."""
        with memory_lock:
            if type(self) is not ComputedStorage:
                return  # another thread has initialised it
            self.type = type_of(self.buffer)
            self.recording = self.pending = self.made_at = self.failure = self._elements = None
            self.shared, self.untouched = False, True
            self.__class__ = Storage  # type: ignore[assignment]


class Uncounted(Storage):
    """The elements that a mask selects in a traced call, as long as their number is not needed.

    It has only `buffer`, a description of its content (see `arrays.selection`). It becomes a `Storage` when
    any other attribute is used.
    """

    __slots__ = ()

    def __init__(self, selection: Any) -> None:
        self.buffer = selection

    def __getattr__(self, name: str) -> Any:
        self.initialise()
        return getattr(self, name)

    def initialise(self) -> None:
        """Become a `Storage` of a known size."""
        self.buffer.gather()

    def become(self, value: Value, recording: Recording) -> None:
        """Become a `Storage` whose content is `value`."""
        Storage.__init__(self, value.type)
        self.recording, self.pending = recording, value
        self.__class__ = Storage  # type: ignore[assignment]


UNTOUCHED: dict[str, Any] = dict.fromkeys(("recording", "pending", "made_at", "failure", "_elements"))
UNTOUCHED |= {"shared": False, "untouched": True}


def type_of(array: np.ndarray) -> ArrayType:
    """Return the type of a NumPy array on ``cpu:0``. Equal types are usually one object."""
    return _types.get((array.shape, array.dtype)) or interned(ArrayType(array.shape, array.dtype, CPU))


def interned(type: ArrayType) -> ArrayType:
    """Return one object for equal types, usually: replays compare types by identity first."""
    key: tuple[Any, ...] = (type.shape, type.dtype) if type.device is CPU else (type.device, type)
    if key not in _types and len(_types) >= MAX_CACHED_TYPES:
        _types.clear()
    return _types.setdefault(key, type)


class _Memory:
    """Exposes raw memory through the array interface and keeps its owner alive."""

    __slots__ = ("__array_interface__", "owner")

    def __init__(self, address: int, shape: tuple[int, ...], dtype: np.dtype, owner: object):
        self.owner = owner
        self.__array_interface__ = {
            "data": (address, False),
            "shape": shape,
            "typestr": dtype.str,
            "version": 3,
        }


def memory_at(address: int, type: ArrayType, owner: object) -> np.ndarray:
    """Return a NumPy array of `type.nbytes` bytes at `address`, which keeps `owner` alive."""
    if type.size == 0:
        return np.empty(type.shape, type.dtype)
    array = np.asarray(_Memory(address, type.shape, type.dtype, owner))
    # The array interface has no type string for bfloat16.
    return array.view(type.dtype) if type.dtype == BFLOAT16 else array
