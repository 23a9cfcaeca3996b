"""Dtypes, constants and questions about them. Dtypes are NumPy's dtype objects."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from tracejit.frontend.arrays import dispatch
from tracejit.frontend.arrays.core import ArrayCore
from tracejit.frontend.arrays.devices import as_device
from tracejit.frontend.recording.number import plain
from tracejit.ir.types import DTYPES

if TYPE_CHECKING:
    from tracejit.frontend.arrays.ndarray import NDArray

# The name `bool` means the builtin here; the namespace exports the dtype under that name, as NumPy does.
(bool_, int8, int16, int32, int64, uint8, uint16, uint32, uint64, float32, float64,
 complex64, complex128) = DTYPES  # fmt: skip

pi, e, inf, nan = math.pi, math.e, math.inf, math.nan
newaxis = None


def _typed(x: Any) -> Any:
    """Return the dtype of an array; numbers and dtypes stay themselves."""
    return x.dtype if isinstance(x, ArrayCore) else plain(x)


def astype(x: Any, dtype: Any, /, *, copy: bool = True, device: Any = None) -> NDArray:
    """The elements converted to `dtype` as NumPy does; the array itself with ``copy=False`` if it has that.

    The shape stays. A float that does not fit an integer becomes the nearest one that does, nan becomes 0.
    Raises DTypeError for an unsupported dtype, ArgumentError for what is no array or number, DeviceError for
    an unknown device.

    >>> import tracejit as tj
    >>> tj.astype(tj.asarray([1.7, -1.7]), tj.int32)
    NDArray([ 1, -1], dtype=int32)
    """
    array = dispatch.as_array("astype", x)
    place = as_device("astype", device, array.device)
    return array.astype(dtype, copy=copy).to(place)


def result_type(*arrays_and_dtypes: Any) -> np.dtype:
    """The dtype that arrays, dtypes and Python numbers are promoted to.

    Raises TypeError for what has no dtype.

    >>> import tracejit as tj
    >>> tj.result_type(tj.int8, tj.uint8)
    dtype('int16')
    """
    return np.result_type(*map(_typed, arrays_and_dtypes))


def can_cast(from_: Any, to: Any, /, casting: Any = "safe") -> bool:
    """Whether a dtype (or an array's) can be cast to another under NumPy's rule `casting`.

    Raises TypeError for what has no dtype.

    >>> import tracejit as tj
    >>> tj.can_cast(tj.float64, tj.float32)
    False
    """
    return np.can_cast(_typed(from_), _typed(to), casting=casting)


def isdtype(dtype: Any, kind: Any) -> bool:
    """Whether a dtype is of a kind: ``"bool"``, ``"integral"``, ``"real floating"``, a dtype, or several.

    Raises ValueError for an unknown kind.

    >>> import tracejit as tj
    >>> tj.isdtype(tj.int8, "signed integer")
    True
    """
    return np.isdtype(_typed(dtype), kind)


def finfo(type: Any, /) -> np.finfo[Any]:
    """Limits of a floating dtype, or of an array's.

    Raises ValueError for a dtype that is not floating.

    >>> import tracejit as tj
    >>> tj.finfo(tj.float32).bits
    32
    """
    return np.finfo(_typed(type))


def iinfo(type: Any, /) -> np.iinfo[Any]:
    """Limits of an integer dtype, or of an array's.

    Raises ValueError for a dtype that is not an integer one.

    >>> import tracejit as tj
    >>> tj.iinfo(tj.int8).max
    127
    """
    return np.iinfo(_typed(type))


__all__ = [
    "astype",
    "bool_",
    "can_cast",
    "complex64",
    "complex128",
    "e",
    "finfo",
    "float32",
    "float64",
    "iinfo",
    "inf",
    "int8",
    "int16",
    "int32",
    "int64",
    "isdtype",
    "nan",
    "newaxis",
    "pi",
    "result_type",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
]
