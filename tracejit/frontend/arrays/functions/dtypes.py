"""Dtypes, constants, and queries about dtypes. Dtypes are NumPy's dtype objects."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import ml_dtypes
import numpy as np

from tracejit.errors import ArgumentError, DTypeError, TracejitError, locate, message
from tracejit.frontend.arrays import dispatch, promotion
from tracejit.frontend.arrays.core import ArrayCore
from tracejit.frontend.arrays.devices import as_device
from tracejit.frontend.arrays.public import declare, public
from tracejit.frontend.recording.location import user_location
from tracejit.frontend.recording.number import concrete
from tracejit.ir.types import DTYPES

if TYPE_CHECKING:
    from tracejit.frontend.arrays.ndarray import NDArray

T = TypeVar("T")
(bool_, int8, int16, int32, int64, uint8, uint16, uint32, uint64, float16, bfloat16, float32, float64,
 complex64, complex128) = DTYPES  # fmt: skip

pi, e, inf, nan, euler_gamma = math.pi, math.e, math.inf, math.nan, np.euler_gamma
newaxis = None

declare(
    __name__,
    bool=bool_,  # the name in NumPy; in this module it is the builtin
    **{dtype.name: dtype for dtype in DTYPES if dtype != bool_},
    bool_=bool_,
    pi=pi,
    e=e,
    inf=inf,
    nan=nan,
    euler_gamma=euler_gamma,
    newaxis=newaxis,
)


def _dtype_or_number(x: Any) -> Any:
    """Return the dtype of an array; return numbers and dtypes unchanged."""
    return x.dtype if isinstance(x, ArrayCore) else concrete(x)


def _known(x: Any) -> Any:
    """Return the dtype of `x`, with one object for bfloat16, whose class and name NumPy also accepts."""
    dtype = _dtype_or_number(x)
    is_name = dtype is ml_dtypes.bfloat16 or isinstance(dtype, str | np.dtype)
    return bfloat16 if is_name and dtype == bfloat16 else dtype


def _queried(name: str, query: Callable[..., T], *dtypes: Any) -> T:
    """Return ``query(*dtypes)``; its errors mention the function `name` and the user's line."""
    try:
        return query(*dtypes)
    except (TypeError, ValueError) as error:
        kind: type[TracejitError] = DTypeError if isinstance(error, TypeError) else ArgumentError
        shown = ", ".join(map(repr, dtypes)) or "nothing"
        raise locate(kind(f"{name}: {message(error)} (got {shown})"), user_location()) from error


@public
def astype(x: Any, dtype: Any, /, *, copy: bool = True, device: Any = None) -> NDArray:
    """The elements converted to `dtype`; with ``copy=False`` the array itself if it has this dtype.

    The shape is unchanged. A float out of the range of an integer dtype becomes its nearest limit, nan
    becomes 0.
    Raises DTypeError for an unsupported dtype, ArgumentError for an object that is not an array or number,
    DeviceError for an unknown device.

    >>> import tracejit as tj
    >>> tj.astype(tj.asarray([1.7, -1.7]), tj.int32)
    NDArray([ 1, -1], dtype=int32)
    """
    array = dispatch.as_array("astype", x)
    target = as_device("astype", device, array.device)
    return array.astype(dtype, copy=copy).to(target)


@public
def result_type(*arrays_and_dtypes: Any) -> np.dtype:
    """The dtype to which arrays, dtypes and Python numbers are promoted. bfloat16 is promoted as float16.

    Raises DTypeError for an object without a dtype, ArgumentError without arguments.

    >>> import tracejit as tj
    >>> tj.result_type(tj.int8, tj.uint8)
    dtype('int16')
    """
    return _queried("result_type", promotion.result_type, *map(_known, arrays_and_dtypes))


@public
def can_cast(from_: Any, to: Any, /, casting: Any = "safe") -> bool:
    """Whether a dtype, or that of an array, can be cast to another one under NumPy's rule `casting`.

    Raises TypeError for an object without a dtype.

    >>> import tracejit as tj
    >>> tj.can_cast(tj.float64, tj.float32)
    False
    """
    return np.can_cast(_dtype_or_number(from_), _dtype_or_number(to), casting=casting)


@public
def isdtype(dtype: Any, kind: Any) -> bool:
    """Whether a dtype is of a kind: ``"bool"``, ``"integral"``, ``"real floating"``, a dtype, or several.

    Raises ValueError for an unknown kind.

    >>> import tracejit as tj
    >>> tj.isdtype(tj.int8, "signed integer")
    True
    """
    known = _known(dtype)
    if known != bfloat16:
        return np.isdtype(known, kind)
    kinds = kind if isinstance(kind, tuple) else (kind,)
    return any(k == bfloat16 or (isinstance(k, str) and np.isdtype(float16, k)) for k in kinds)


@public
def finfo(type: Any, /) -> np.finfo[Any]:
    """Limits of a floating dtype, or of the dtype of an array.

    Raises ArgumentError for a dtype that is not floating.

    >>> import tracejit as tj
    >>> tj.finfo(tj.float32).bits
    32
    """
    return _queried("finfo", ml_dtypes.finfo, _dtype_or_number(type))


@public
def iinfo(type: Any, /) -> np.iinfo[Any]:
    """Limits of an integer dtype, or of the dtype of an array.

    Raises ArgumentError for a dtype that is not an integer dtype.

    >>> import tracejit as tj
    >>> tj.iinfo(tj.int8).max
    127
    """
    return _queried("iinfo", np.iinfo, _dtype_or_number(type))


@public
def promote_types(type1: Any, type2: Any, /) -> np.dtype:
    """The smallest dtype to which both can be cast safely.

    Raises DTypeError for an object that is not a dtype.

    >>> import tracejit as tj
    >>> tj.promote_types(tj.int32, tj.float32)
    dtype('float64')
    """
    return _queried("promote_types", np.promote_types, type1, type2)


@public
def issubdtype(arg1: Any, arg2: Any, /) -> bool:
    """Whether a dtype equals another one, or is of a kind such as `np.floating`.

    Raises TypeError for an object without a dtype.

    >>> import numpy as np, tracejit as tj
    >>> tj.issubdtype(tj.float32, np.floating)
    True
    """
    return np.issubdtype(arg1, arg2)


@public
def min_scalar_type(x: Any, /) -> np.dtype:
    """The smallest dtype for a number, which is a look; for an array with dimensions, its dtype.

    Raises TypeError for an object without a dtype.

    >>> import tracejit as tj
    >>> tj.min_scalar_type(200)
    dtype('uint8')
    """
    if isinstance(x, ArrayCore):
        return x.dtype if x.ndim else np.min_scalar_type(x.numpy())
    return np.min_scalar_type(concrete(x))


@public
def common_type(*arrays: Any) -> type:
    """The common floating or complex scalar type of arrays; integers count as float64.

    Raises TypeError for bools.

    >>> import tracejit as tj
    >>> tj.common_type(tj.ones(2), tj.asarray([1j]))
    <class 'numpy.complex64'>
    """
    return np.common_type(*(np.empty(0, x.dtype) if isinstance(x, ArrayCore) else x for x in arrays))


@public
def isscalar(x: Any, /) -> bool:
    """Whether an object is a number or text. An array without dimensions is none.

    Raises nothing.

    >>> import tracejit as tj
    >>> tj.isscalar(3.5), tj.isscalar(tj.asarray(3.5))
    (True, False)
    """
    return isinstance(x, int | float | complex) or np.isscalar(x)
