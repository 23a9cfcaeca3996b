"""Convolution and correlation of sequences, by sliding windows over one operand.

The windows are a view (each starts one element later), so the products are summed without being stored.

>>> import tracejit as tj
>>> tj.convolve(tj.asarray([1, 2, 3]), tj.asarray([1, 1]))
NDArray([1, 3, 5, 3], dtype=int64)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracejit.errors import ArgumentError, ShapeError, locate
from tracejit.frontend.arrays import dispatch, promotion
from tracejit.frontend.arrays.core import ArrayCore
from tracejit.frontend.arrays.functions.creation import asarray
from tracejit.frontend.arrays.functions.elementwise import conj
from tracejit.frontend.arrays.functions.manipulation import flip
from tracejit.frontend.arrays.public import public
from tracejit.frontend.recording.location import user_location
from tracejit.ir.view import View

if TYPE_CHECKING:
    from tracejit.frontend.arrays.ndarray import NDArray


def _lines(name: str, a: Any, v: Any) -> tuple[Any, Any]:
    """Return both operands as 1-dimensional arrays of the common dtype."""
    first, second = (asarray(x) for x in (a, v))
    for x in (first, second):
        if x.ndim > 1 or not x.size:
            what = f"{name}: takes sequences of one dimension and at least one element, got shape {x.shape}"
            raise locate(ShapeError(what), user_location())
    dtype = promotion.common_dtype(name, (first, second))
    return dispatch.cast(first.reshape(-1), dtype), dispatch.cast(second.reshape(-1), dtype)


def _full(a: Any, v: Any) -> Any:
    """Return all n + m - 1 sums of products of `a` with the reversed `v`, the shorter operand."""
    count, width = a.size, v.size
    padded = dispatch.full(False, (count + 2 * (width - 1),), a.dtype, a.device)
    interior = padded._view.slice_axis(0, width - 1, width - 1 + count)
    dispatch.write(ArrayCore.new(padded._storage, interior), a)
    windows: Any = ArrayCore.new(padded._storage, View(0, (count + width - 1, width), (1, 1)).read_only())
    if a.dtype.kind == "b":
        return (windows & flip(v)).any(axis=1)
    return (windows * flip(v)).sum(axis=1, dtype=a.dtype)


def _part(name: str, full: Any, longer: int, shorter: int, mode: str) -> Any:
    """The sums that a mode selects: all, as many as in the longer operand, or those without padding."""
    if mode == "full":
        return full
    if mode == "same":
        start = shorter - 1 - shorter // 2
        return full[start : start + longer].copy()
    if mode == "valid":
        return full[shorter - 1 : longer].copy()
    raise locate(ArgumentError(f'{name}: mode is "full", "same" or "valid", not {mode!r}'), user_location())


@public
def convolve(a: Any, v: Any, /, mode: str = "full") -> NDArray:
    """The convolution of two sequences of n and m elements: sums over j of ``a[j] * v[k - j]``.

    mode: "full" for n + m - 1 sums, "same" for the middle max(n, m) of them, "valid" for those that use all
    elements of the shorter sequence. The result has the common dtype.
    Raises ShapeError for no elements or more than one dimension, ArgumentError for another mode.

    >>> import tracejit as tj
    >>> tj.convolve(tj.asarray([1, 2, 3]), tj.asarray([0, 1, 0.5]), "same")
    NDArray([1. , 2.5, 4. ], dtype=float64)
    """
    first, second = _lines("convolve", a, v)
    if second.size > first.size:
        first, second = second, first
    return _part("convolve", _full(first, second), first.size, second.size, mode)


@public
def correlate(a: Any, v: Any, /, mode: str = "valid") -> NDArray:
    """The cross-correlation of two sequences: sums over j of ``a[j + k] * conj(v[j])``.

    Arguments and dtype are those of `convolve`. Raises what `convolve` raises.

    >>> import tracejit as tj
    >>> tj.correlate(tj.asarray([1.0, 2.0, 3.0]), tj.asarray([0.0, 1.0, 0.5]), "full")
    NDArray([0.5, 2. , 3.5, 3. , 0. ], dtype=float32)
    """
    first, second = _lines("correlate", a, v)
    reversed_second = flip(conj(second))
    if second.size <= first.size:
        return _part("correlate", _full(first, reversed_second), first.size, second.size, mode)
    sums = flip(_full(reversed_second, first))
    return flip(_part("correlate", sums, second.size, first.size, mode)).copy()
