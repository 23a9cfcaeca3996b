"""NumPy's functions for attributes of arrays and for their memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tracejit.frontend.arrays.core import ArrayCore
from tracejit.frontend.arrays.functions.creation import asarray
from tracejit.frontend.arrays.public import public

if TYPE_CHECKING:
    from tracejit.frontend.arrays.ndarray import NDArray

    def __getattr__(name: str) -> Any: ...


@public
def shape(x: Any, /) -> tuple[int, ...]:
    """The extents of an array, or of data that can become one.

    Raises ArgumentError for other data.

    >>> import tracejit as tj
    >>> tj.shape([[1, 2]])
    (1, 2)
    """
    extents: tuple[int, ...] = asarray(x).shape
    return extents


@public
def ndim(x: Any, /) -> int:
    """The number of dimensions of an array, or of data that can become one.

    Raises ArgumentError for other data.

    >>> import tracejit as tj
    >>> tj.ndim([[1, 2]])
    2
    """
    return len(shape(x))


@public
def size(x: Any, /, axis: int | None = None) -> int:
    """The number of elements of an array, or the extent of one axis.

    Raises AxisError for an axis out of range.

    >>> import tracejit as tj
    >>> tj.size(tj.ones((2, 3))), tj.size(tj.ones((2, 3)), 1)
    (6, 3)
    """
    from tracejit.frontend.arrays.axes import normalize_axis

    array = asarray(x)
    return int(array.size) if axis is None else int(array.shape[normalize_axis("size", axis, array.ndim)])


@public
def copy(x: Any, /) -> NDArray:
    """A new array with the elements of `x`.

    Shape and dtype are unchanged. Raises ArgumentError for an object that is not an array or number.

    >>> import tracejit as tj
    >>> tj.copy(tj.ones(2))
    NDArray([1., 1.], dtype=float32)
    """
    return asarray(x).copy()


@public
def isfortran(x: Any, /) -> bool:
    """Whether the elements are stored column by column, and not row by row.

    Raises ArgumentError for data that cannot become an array.

    >>> import tracejit as tj
    >>> tj.isfortran(tj.ones((2, 3)).T)
    True
    """
    array = asarray(x)
    return not array._view.is_contiguous() and array.T._view.is_contiguous()


@public
def shares_memory(a: Any, b: Any, /, max_work: int | None = None) -> bool:
    """Whether two arrays have an element in common. This waits for the arrays to be computed.

    max_work: as for `numpy.shares_memory`. A traced function runs piecewise.
    Raises `numpy.exceptions.TooHardError` where more than `max_work` would be needed.

    >>> import tracejit as tj
    >>> x = tj.zeros(4)
    >>> tj.shares_memory(x[::2], x[1::2]), tj.shares_memory(x[1:], x)
    (False, True)
    """
    return _overlap(np.shares_memory, a, b, max_work)


@public
def may_share_memory(a: Any, b: Any, /, max_work: int | None = None) -> bool:
    """Whether the memory that two arrays span overlaps; see `shares_memory`.

    Raises `numpy.exceptions.TooHardError` where more than `max_work` would be needed.

    >>> import tracejit as tj
    >>> x = tj.zeros(4)
    >>> tj.may_share_memory(x[::2], x[1::2])
    True
    """
    return _overlap(np.may_share_memory, a, b, max_work)


def _overlap(function: Any, a: Any, b: Any, max_work: int | None) -> bool:
    """Call NumPy's `function` on the memory of arrays."""
    name = f"{function.__name__}()"
    return bool(
        function(*(x._seen(name) if isinstance(x, ArrayCore) else x for x in (a, b)), max_work=max_work)
    )
