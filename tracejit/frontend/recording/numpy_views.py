"""NumPy arrays that a traced body accesses by name: operands that a replay reads again, or data.

While recording, the body sees a `Watched` view in place of such an array, wherever it accesses it. If the
body uses it as an operand of an NDArray (also a slice of it: ``w @ batch[:32]``), its content at the time of
the call is used, and replays copy it in again. Any other use lets the content enter Python: the array is then
*data*, and guarded by content. Code that compares types gets the array itself, as data. So does code that
also accesses the array through an object that cannot be modified (such as a tuple).
"""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np
from numpy.lib.array_utils import byte_bounds

from tracejit.frontend.recording.recording import thread

MAX_GUARDED_BYTES = 1 << 16
"""The maximum number of bytes of an array that is guarded by content."""

_SHAPE = {"shape", "dtype", "ndim", "size", "strides", "itemsize", "nbytes", "T", "mT", "base", "flags"}
_SHAPE |= {"transpose", "swapaxes"}
_QUIET = _SHAPE | {"_captured", "__class__", "__dict__", "__array_interface__", "__array_priority__"}
_QUIET |= {"__array_ufunc__", "__array_function__", "__array_finalize__", "__array_wrap__"}  # fmt: skip


class Captured:
    """A NumPy array, a copy of its content before the body ran, whether the body sees a view in its place,
    and whether the body used it as data.
    """

    def __init__(self, origin: np.ndarray, path: str):
        self.origin, self.path = origin, path
        self.content = origin.copy() if origin.nbytes <= MAX_GUARDED_BYTES else None
        self.is_watched = self.is_data = False
        self._view: weakref.ref[Watched] | None = None  # weak: the view refers to this; slots keep it alive

    @property
    def watched(self) -> Watched:
        """The view that records how the body uses the array."""
        view = self._view() if self._view is not None else None
        if view is None:
            view = self.origin.view(Watched)
            view._captured = self
            self._view = weakref.ref(view)
        return view

    def use_as_data(self) -> None:
        """Note that the body uses the array other than as an operand: replays have to check its content."""
        self.is_data = True
        if self.content is None and thread.trace is not None:
            thread.trace.give_up(*self.too_large(self.path))

    def too_large(self, path: str) -> tuple[str, str]:
        """Return the reason why such data cannot be checked, and a remedy."""
        size, limit = f"{self.origin.nbytes:,}", f"{MAX_GUARDED_BYTES:,}"
        reason = f"{path}, a NumPy array of {size} bytes, is data (up to {limit} are checked)"
        return reason, "make it an NDArray once, with tj.asarray"

    def changed(self) -> bool:
        """Whether the body changed the content."""
        return self.is_data and self.content is not None and self.content.tobytes() != self.origin.tobytes()

    def restore(self) -> None:
        """Undo the body's changes of the content."""
        if self.content is not None and self.changed():
            self.origin[...] = self.content

    def holds(self, array: np.ndarray) -> bool:
        """Whether `array` is stored within this array's memory."""
        if array.size == 0 or self.origin.size == 0:
            return False
        (low, high), (start, end) = byte_bounds(array), byte_bounds(self.origin)
        return bool(start <= low and high <= end)

    def part(self, array: np.ndarray) -> tuple[int, tuple[int, ...], tuple[int, ...]]:
        """Return the location of `array` in this array: byte offset, shape, strides."""
        offset = array.__array_interface__["data"][0] - self.origin.__array_interface__["data"][0]
        return offset, array.shape, array.strides


class Watched(np.ndarray):
    """The view of a captured array that the body sees."""

    _captured: Captured
    __class__ = property(lambda self: np.ndarray)

    def __array_finalize__(self, parent: Any) -> None:
        if isinstance(parent, Watched):
            self._captured = parent._captured

    def __getattribute__(self, name: str) -> Any:
        if name not in _QUIET:
            np.ndarray.__getattribute__(self, "_captured").use_as_data()
        return np.ndarray.__getattribute__(self, name)

    def _data(self) -> np.ndarray:
        self._captured.use_as_data()
        return self.view(np.ndarray)

    def __getitem__(self, index: Any) -> Any:
        result = np.ndarray.__getitem__(self.__base_array(), index)
        if isinstance(result, np.ndarray) and result.size and self._captured.holds(result):
            view = result.view(Watched)
            view._captured = self._captured
            return view
        self._captured.use_as_data()
        return result

    def __base_array(self) -> np.ndarray:
        return np.asarray(self)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        if not all(_is_numpys(x) for x in (*inputs, *options.get("out", ()))):
            return NotImplemented
        if "out" in options:
            options["out"] = tuple(map(_as_data, options["out"]))
        return getattr(ufunc, method)(*map(_as_data, inputs), **options)

    def __array_function__(self, function: Any, types: Any, args: Any, options: Any) -> Any:
        if not all(issubclass(t, np.ndarray) for t in types):
            return NotImplemented
        return function(*map(_as_data, args), **{k: _as_data(v) for k, v in options.items()})


def _as_data(value: Any) -> Any:
    if isinstance(value, Watched):
        return value._data()
    if type(value) in (list, tuple):
        return type(value)(map(_as_data, value))
    return value


def _is_numpys(value: Any) -> bool:
    """Whether NumPy's own functions handle `value`. Other classes implement the protocol themselves."""
    return isinstance(value, np.ndarray | np.generic) or not hasattr(type(value), "__array_ufunc__")


def _looking(name: str) -> Any:
    def method(self: Watched, *args: Any) -> Any:
        return getattr(np.ndarray, name)(self._data(), *map(_as_data, args))

    method.__name__ = name
    return method


for _name in ("__float__", "__int__", "__bool__", "__index__", "__complex__", "__iter__", "__contains__",
              "__setitem__", "__delitem__", "__repr__", "__str__", "__format__", "__copy__", "__deepcopy__",
              "__reduce__", "__reduce_ex__", "__divmod__"):  # fmt: skip
    setattr(Watched, _name, _looking(_name))


def original_of(value: Any) -> Any:
    """Return the array itself for a watched view of it."""
    if not isinstance(value, Watched):
        return value
    captured = value._captured
    array = np.asarray(value)
    return captured.origin if captured.part(array) == captured.part(captured.origin) else array


def read_part(
    origin: np.ndarray, offset: int, shape: tuple[int, ...], strides: tuple[int, ...]
) -> np.ndarray:
    """Return the elements of an array at a location that `Captured.part` has returned."""
    interface = dict(origin.__array_interface__)
    interface["data"] = (interface["data"][0] + offset, True)
    interface["shape"], interface["strides"] = shape, strides
    return np.asarray(_ForeignMemory(interface, origin))


class _ForeignMemory:
    def __init__(self, interface: dict[str, Any], owner: np.ndarray):
        self.__array_interface__ = interface
        self.owner = owner
