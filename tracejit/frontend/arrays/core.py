"""The base class of arrays, without operators: a `Storage` and a `View`, construction, looks and conversion.

A *look* reads a value in Python (`numpy`, `item`, `float`, `bool`, `print`, ...). It flushes the recording
that produces the value, and waits for this value only. The subclass `NDArray` (in `frontend.arrays.ndarray`)
adds operators and indexing. `ArrayCore.new` creates an `NDArray` without an import of its module, so that
dispatch can be a layer below the operators that call it.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np

from tracejit import engine
from tracejit.errors import ArgumentError, DeviceError, OutOfBoundsError, ReplayError, ShapeError, locate
from tracejit.frontend.arrays import dlpack
from tracejit.frontend.recording.eager import SMALL
from tracejit.frontend.recording.location import user_location
from tracejit.frontend.recording.number import ANSWERING
from tracejit.frontend.recording.recording import lock, thread
from tracejit.frontend.recording.storage import ComputedStorage, Storage
from tracejit.ir.types import CPU, DTYPES, ArrayType, Device
from tracejit.ir.view import IDENTITIES, NumPyView, View


class ArrayCore:
    """The base of `NDArray` on which the operators are built."""

    __slots__ = ("__weakref__", "_memory", "_storage", "_view")
    __array_priority__ = 1000
    concrete: ClassVar[type[Any]]

    def __init_subclass__(cls) -> None:
        ArrayCore.concrete = cls
        ANSWERING.add(cls)

    @staticmethod
    def new(storage: Storage, view: View | None = None) -> Any:
        """Create an `NDArray` on `storage`, by default on all of its elements."""
        return ArrayCore.concrete(storage, view or View.of_shape(storage.type.shape))

    def __init__(self, storage: Storage, view: View):
        self._storage = storage
        self._view = view
        self._memory: np.ndarray | None = None  # a NumPy view of the elements, cached by the first access

    # -- attributes ------------------------------------------------------------------------------------------

    @property
    def shape(self) -> tuple[int, ...]:
        """Extents of the dimensions.

        >>> import tracejit as tj
        >>> tj.ones((2, 3)).shape
        (2, 3)
        """
        memory = self._memory
        return self._view.shape if memory is None else memory.shape

    @property
    def dtype(self) -> np.dtype:
        """NumPy dtype of the elements.

        >>> import tracejit as tj
        >>> tj.ones(2).dtype
        dtype('float32')
        """
        memory = self._memory
        return self._storage.type.dtype if memory is None else memory.dtype

    @property
    def device(self) -> Device:
        """The device on which the elements are stored.

        >>> import tracejit as tj
        >>> print(tj.ones(2).device)
        cpu:0
        """
        return self._storage.type.device

    @property
    def ndim(self) -> int:
        """Number of dimensions.

        >>> import tracejit as tj
        >>> tj.ones((2, 3)).ndim
        2
        """
        memory = self._memory
        return len(self._view.shape) if memory is None else memory.ndim

    @property
    def size(self) -> int:
        """Number of elements.

        >>> import tracejit as tj
        >>> tj.ones((2, 3)).size
        6
        """
        memory = self._memory
        return self._view.size if memory is None else memory.size

    @property
    def itemsize(self) -> int:
        """Bytes of one element.

        >>> import tracejit as tj
        >>> tj.ones((2, 3)).itemsize
        4
        """
        return self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        """Bytes of all elements.

        >>> import tracejit as tj
        >>> tj.ones((2, 3)).nbytes
        24
        """
        return self.size * self.itemsize

    @property
    def strides(self) -> tuple[int, ...]:
        """Bytes to step in each dimension, as in NumPy.

        >>> import tracejit as tj
        >>> tj.ones((2, 3)).T.strides
        (4, 12)
        """
        return tuple(s * self.itemsize for s in self._view.strides)

    def __len__(self) -> int:
        if not self.shape:
            raise locate(ArgumentError("len() of an array without dimensions"), user_location())
        return self.shape[0]

    # -- construction ----------------------------------------------------------------------------------------

    @staticmethod
    def from_numpy(array: np.ndarray) -> Any:
        """Return a new array with a copy of the elements of `array`, taken before the call returns.

        Shape and dtype are those of `array`.
        Raises ArgumentError for an unsupported dtype and for masked arrays.

        >>> import numpy as np, tracejit as tj
        >>> tj.NDArray.from_numpy(np.arange(3))
        NDArray([0, 1, 2], dtype=int64)
        """
        if type(array) is not np.ndarray and hasattr(type(array), "filled"):
            raise locate(
                ArgumentError("asarray: a masked array would lose its mask; use .filled(...) or .data"),
                user_location(),
            )
        dtype = array.dtype if array.dtype.isnative else array.dtype.newbyteorder("=")
        if dtype not in DTYPES:
            raise locate(
                ArgumentError(
                    f"asarray: NumPy dtype {array.dtype} is not supported; cast it to one of "
                    f"{', '.join(map(str, DTYPES))}"
                ),
                user_location(),
            )
        array_copy = empty(array.shape, dtype)
        array_copy._memory[...] = array
        if thread.trace is not None:
            storage = thread.trace.imported(array_copy._storage, array)
            return array_copy if storage is array_copy._storage else ArrayCore.new(storage)
        return array_copy

    # -- looks -----------------------------------------------------------------------------------------------

    def __variable__(self) -> engine.Variable:
        """The variable that orders accesses to the memory, for `tj.engine.push` (see `engine.push.Ordered`).

        Operations recorded for the array have been launched when the call returns. All views of one array
        share one variable.
        """
        self._launched("tj.engine.push()")
        return self._storage.variable

    def _readable(self) -> np.ndarray | None:
        """Return the elements as a NumPy view of the memory if their values are available now, else None."""
        storage = self._storage
        if type(storage) is not ComputedStorage:
            if storage.recording is not None or storage.shared or storage.type.device is not CPU:
                return None
            if not storage.untouched and not storage.variable.ready:
                return None
        return self._memory if self._memory is not None else self._find_memory()

    def _find_memory(self) -> np.ndarray:
        """Create and cache a NumPy view of the elements in memory, writable if the array is."""
        view = self._view
        seen = self._storage.seen(view)
        if not view.writable or (not view.is_contiguous() and view.overlaps_itself()):
            seen.flags.writeable = False
        self._memory = seen
        return seen

    def _view_from(self, seen: np.ndarray) -> Any:
        """Return the view of this `ComputedStorage` array that corresponds to the NumPy view `seen`."""
        result, view = _new(type(self)), _new(NumPyView)
        view._facts = seen, self._storage.buffer
        result._storage, result._view, result._memory = self._storage, view, seen
        return result

    def _writable(self) -> np.ndarray | None:
        """Return the elements as `_readable` does, if they can be written; else None.

        The view must be writable, and no other user may access the memory while this thread owns `lock` and
        `storage.memory_lock`.
        """
        if type(self._storage) is not ComputedStorage and not self._storage.untouched:
            return None
        elements = self._readable()
        return elements if elements is not None and elements.flags.writeable else None

    def _ready(self, what: str) -> None:
        """Flush the operations on which the content depends, and wait for them."""
        self._launched(what)
        if self._storage.failure is not None:
            self._storage.tell_failure()
        if not self._storage.untouched:
            engine.wait(self._own_variable())

    def _own_variable(self) -> engine.Variable:
        """The variable of the storage, or its substitute in a Python task (see `EagerRecording`)."""
        variable = self._storage.variable
        return variable if thread.eager is None else thread.eager.held.get(variable.address, variable)

    def _launched(self, what: str) -> None:
        """Launch the recording that produces the content; `what` names the look in errors."""
        if thread.trace is not None:
            thread.trace.refuse_look(self, what)
        recording = self._storage.recording
        if recording is not None:
            with lock:
                if self._storage.recording is not None:
                    self._storage.recording.release(self._storage)

    def _seen(self, what: str) -> np.ndarray:
        """Wait for the elements, and return a NumPy view of the memory.

        The caller must read it immediately.
        """
        if type(self._storage) is not ComputedStorage or thread.trace is not None:
            if not self._storage.type.device.is_addressable:
                elements: np.ndarray = self._on_cpu(what)._seen(what)
                self._ready(what)  # also raises the failure of a write that left the content unchanged
                return elements
            self._ready(what)
        return self._memory if self._memory is not None else self._find_memory()

    def _on_cpu(self, what: str) -> Any:
        """Return a copy in host memory of an array on another kind of device."""
        self._launched(what)
        return self.to(CPU)  # type: ignore[attr-defined]  # defined by NDArray

    def _refuse_sharing(self, what: str) -> None:
        """Raise DeviceError for an array whose memory the host cannot address."""
        if not self.device.is_addressable:
            text = f'{what}: the memory of {self.device} cannot be shared yet; copy it, as in x.to("cpu:0")'
            raise locate(DeviceError(text), user_location())

    def numpy(self, *, copy: bool = True) -> np.ndarray:
        """The elements as a NumPy array: a copy, or with ``copy=False`` a read-only view of the memory.

        A view makes the storage *shared*: calls that access the memory later return only when their work is
        complete.
        In a traced function this look makes the function piecewise.
        Raises EngineError if the elements could not be computed.

        >>> import tracejit as tj
        >>> tj.ones(2).numpy()
        array([1., 1.], dtype=float32)
        """
        elements = self._seen("numpy()")
        if copy:
            return elements.copy()
        self._refuse_sharing("numpy(copy=False)")
        self._storage.expose()
        elements = elements.view()
        elements.flags.writeable = False
        return elements

    def item(self, *index: int) -> Any:
        """The only element (or the one at `index`) as a Python number.

        Raises ArgumentError for several elements without an index, OutOfBoundsError for one out of range.

        >>> import tracejit as tj
        >>> tj.asarray([[1, 2]]).item(0, 1)
        2
        """
        if thread.trace is not None and self.size == 1 and not index:
            return thread.trace.element(self, "item()")
        elements = self._seen("item()")
        if not index and elements.size != 1:
            message = f"item(): an array of shape {self.shape} has {elements.size} elements; give an index"
            raise locate(ArgumentError(message), user_location())
        try:
            return elements.item(*index)
        except (IndexError, ValueError, TypeError) as error:
            kind = OutOfBoundsError if isinstance(error, IndexError) else ArgumentError
            raise locate(
                kind(f"item(): {error}, for an array of shape {self.shape}"), user_location()
            ) from None

    def tolist(self) -> Any:
        """The elements as nested lists of Python numbers.

        A number for an array without dimensions. Raises EngineError if the elements could not be computed.

        >>> import tracejit as tj
        >>> tj.asarray([[1, 2]]).tolist()
        [[1, 2]]
        """
        return self._seen("tolist()").tolist()

    def wait(self) -> Any:
        """Wait until the elements are computed, and return the array itself.

        Raises the error of the computation if it failed.

        >>> import tracejit as tj
        >>> x = (tj.ones(2) * 2).wait()
        """
        self._ready("wait()")
        return self

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if copy is False:
            raise ArgumentError(
                "an NDArray's memory is given to NumPy as a copy; use x.numpy(copy=False) for a view"
            )
        array = self._seen("__array__").copy()
        return array if dtype is None else array.astype(dtype)

    def __float__(self) -> float:
        return float(self._scalar("float()"))

    def __int__(self) -> int:
        return int(self._scalar("int()"))

    def __bool__(self) -> bool:
        return bool(self._scalar("bool()"))

    def __complex__(self) -> complex:
        return complex(self._scalar("complex()"))

    def __index__(self) -> int:
        if self.dtype.kind not in "iu" or self.ndim:
            raise locate(
                ArgumentError(f"only 0-d integer arrays can be an index, not {self.dtype}{list(self.shape)}"),
                user_location(),
            )
        return int(self._scalar("index()"))

    def _scalar(self, what: str) -> Any:
        if self.size != 1:
            kind = ShapeError if what == "bool()" else ArgumentError  # as NumPy: ValueError, else TypeError
            raise locate(
                kind(
                    f"{what}: an array of shape {self.shape} has {self.size} elements, expected one; "
                    "use .any(), .all() or an index"
                ),
                user_location(),
            )
        if thread.trace is not None and what in ("bool()", "int()", "index()"):
            return thread.trace.element(self, what)
        return self._seen(what).item()

    def __repr__(self) -> str:
        text = np.array2string(self._seen("repr()"), separator=", ", prefix="NDArray(")
        return f"NDArray({text}, dtype={self.dtype})"

    def __str__(self) -> str:
        return str(self._seen("str()"))

    def __format__(self, spec: str) -> str:
        return format(self.item() if self.ndim == 0 else str(self), spec)

    __hash__ = None  # type: ignore[assignment]

    # -- exchange --------------------------------------------------------------------------------------------

    def __dlpack__(
        self, *, stream: Any = None, max_version: Any = None, dl_device: Any = None, copy: bool | None = None
    ) -> Any:
        self._refuse_sharing("__dlpack__")
        self._storage.expose()
        elements = self._seen("__dlpack__")
        engine.wait(self._own_variable(), exclusive=True)  # the consumer may write the memory
        options = {"stream": stream, "max_version": max_version, "dl_device": dl_device, "copy": copy}
        return dlpack.export(elements, options)

    def __dlpack_device__(self) -> tuple[int, int]:
        self._refuse_sharing("__dlpack_device__")
        return (1, 0)

    def __reduce__(self) -> Any:
        return _on_device, (self.numpy(), str(self.device))


def _on_device(elements: np.ndarray, where: str | int) -> Any:
    """Restore a pickled array on its device `where`; an integer is the index of a CPU device."""
    array = ArrayCore.from_numpy(elements)
    where = where if isinstance(where, str) else f"cpu:{where}"
    return array if where == str(CPU) else array.to(where)


_new: Any = object.__new__


def computed(elements: np.ndarray) -> Any:
    """Wrap a NumPy array in C order, to which the caller holds the only reference."""
    array, storage = _new(ArrayCore.concrete), _new(ComputedStorage)
    storage.buffer = array._memory = elements
    array._storage = storage
    shape = elements.shape
    array._view = IDENTITIES.get(shape) or View.of_shape(shape)
    return array


def empty(shape: tuple[int, ...], dtype: np.dtype) -> Any:
    """Return a new array with undefined elements on ``cpu:0``."""
    if math.prod(shape) <= SMALL:
        return computed(np.empty(shape, dtype))
    storage = Storage(ArrayType(shape, dtype))
    storage.materialise()
    array = ArrayCore.new(storage)
    array._memory = storage.memory()
    return array


def refuse_trace(what: str) -> None:
    """Raise ReplayError if a trace is being recorded; `what` names the refused operation."""
    if thread.trace is not None:
        raise locate(ReplayError(f"{what} cannot be used inside a traced function"), user_location())
