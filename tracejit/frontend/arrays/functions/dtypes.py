"""Dtypes, constants and questions about them. Dtypes are NumPy's dtype objects."""

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
    bool=bool_,  # as in NumPy; here this name means the builtin
    **{dtype.name: dtype for dtype in DTYPES if dtype != bool_},
    bool_=bool_,
    pi=pi,
    e=e,
    inf=inf,
    nan=nan,
    euler_gamma=euler_gamma,
    newaxis=newaxis,
)


def _typed(x: Any) -> Any:
    """Return the dtype of an array; numbers and dtypes stay themselves."""
    return x.dtype if isinstance(x, ArrayCore) else concrete(x)


def _known(x: Any) -> Any:
    """The dtype, with one object for bfloat16, which NumPy knows by its class and by its name."""
    found = _typed(x)
    is_name = found is ml_dtypes.bfloat16 or isinstance(found, str | np.dtype)
    return bfloat16 if is_name and found == bfloat16 else found


def _asked(name: str, ask: Callable[..., T], *dtypes: Any) -> T:
    """The result of `ask` for dtypes; its errors name the function `name` and the user's line."""
    try:
        return ask(*dtypes)
    except (TypeError, ValueError) as error:
        kind: type[TracejitError] = DTypeError if isinstance(error, TypeError) else ArgumentError
        given = ", ".join(map(repr, dtypes)) or "nothing"
        raise locate(kind(f"{name}: {message(error)} (got {given})"), user_location()) from error


@public
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


@public
def result_type(*arrays_and_dtypes: Any) -> np.dtype:
    """The dtype that arrays, dtypes and Python numbers are promoted to. bfloat16 is promoted as float16 is.

    Raises DTypeError for what has no dtype, ArgumentError if nothing is given.

    >>> import tracejit as tj
    >>> tj.result_type(tj.int8, tj.uint8)
    dtype('int16')
    """
    return _asked("result_type", promotion.result_type, *map(_known, arrays_and_dtypes))


@public
def can_cast(from_: Any, to: Any, /, casting: Any = "safe") -> bool:
    """Whether a dtype (or an array's) can be cast to another under NumPy's rule `casting`.

    Raises TypeError for what has no dtype.

    >>> import tracejit as tj
    >>> tj.can_cast(tj.float64, tj.float32)
    False
    """
    return np.can_cast(_typed(from_), _typed(to), casting=casting)


@public
def isdtype(dtype: Any, kind: Any) -> bool:
    """Whether a dtype is of a kind: ``"bool"``, ``"integral"``, ``"real floating"``, a dtype, or several.

    Raises ValueError for an unknown kind.

    >>> import tracejit as tj
    >>> tj.isdtype(tj.int8, "signed integer")
    True
    """
    given = _known(dtype)
    if given != bfloat16:
        return np.isdtype(given, kind)
    kinds = kind if isinstance(kind, tuple) else (kind,)
    return any(k == bfloat16 or (isinstance(k, str) and np.isdtype(float16, k)) for k in kinds)


@public
def finfo(type: Any, /) -> np.finfo[Any]:
    """Limits of a floating dtype, or of an array's.

    Raises ArgumentError for a dtype that is not floating.

    >>> import tracejit as tj
    >>> tj.finfo(tj.float32).bits
    32
    """
    return _asked("finfo", ml_dtypes.finfo, _typed(type))


@public
def iinfo(type: Any, /) -> np.iinfo[Any]:
    """Limits of an integer dtype, or of an array's.

    Raises ArgumentError for a dtype that is not an integer one.

    >>> import tracejit as tj
    >>> tj.iinfo(tj.int8).max
    127
    """
    return _asked("iinfo", np.iinfo, _typed(type))


@public
def promote_types(type1: Any, type2: Any, /) -> np.dtype:
    """The smallest dtype to which both can be cast safely.

    Raises DTypeError for what is no dtype.

    >>> import tracejit as tj
    >>> tj.promote_types(tj.int32, tj.float32)
    dtype('float64')
    """
    return _asked("promote_types", np.promote_types, type1, type2)


@public
def issubdtype(arg1: Any, arg2: Any, /) -> bool:
    """Whether a dtype is one, or of a kind, such as `np.floating`.

    Raises TypeError for what has no dtype.

    >>> import numpy as np, tracejit as tj
    >>> tj.issubdtype(tj.float32, np.floating)
    True
    """
    return np.issubdtype(arg1, arg2)


@public
def min_scalar_type(x: Any, /) -> np.dtype:
    """The smallest dtype that holds a number; of an array with dimensions its own. A number is looked at.

    Raises TypeError for what has no dtype.

    >>> import tracejit as tj
    >>> tj.min_scalar_type(200)
    dtype('uint8')
    """
    if isinstance(x, ArrayCore):
        return x.dtype if x.ndim else np.min_scalar_type(x.numpy())
    return np.min_scalar_type(concrete(x))


@public
def common_type(*arrays: Any) -> type:
    """The floating or complex scalar type of arrays: float64 if one holds integers.

    Raises TypeError for bools.

    >>> import tracejit as tj
    >>> tj.common_type(tj.ones(2), tj.asarray([1j]))
    <class 'numpy.complex64'>
    """
    return np.common_type(*(np.empty(0, x.dtype) if isinstance(x, ArrayCore) else x for x in arrays))


@public
def isscalar(x: Any, /) -> bool:
    """Whether something is a number or text, and no array, as an array without dimensions is.

    Raises nothing.

    >>> import tracejit as tj
    >>> tj.isscalar(3.5), tj.isscalar(tj.asarray(3.5))
    (True, False)
    """
    return isinstance(x, int | float | complex) or np.isscalar(x)
