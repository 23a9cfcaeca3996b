"""Reinterpretation of the bits of arrays as another dtype: the implementation of `NDArray.view`.

Between dtypes of equal size this is the operator `bitcast`. Otherwise numbers are split into narrower
unsigned integers along the last axis, or combined from them, lowest bytes first. A complex number is the pair
of its real and imaginary part.

>>> import tracejit as tj
>>> tj.asarray([1.0, -2.0]).view(tj.uint32)
NDArray([1065353216, 3221225472], dtype=uint32)
>>> tj.asarray([258], dtype=tj.int16).view(tj.uint8)
NDArray([2, 1], dtype=uint8)
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from tracejit import ops
from tracejit.errors import ShapeError, locate
from tracejit.frontend.arrays import dispatch
from tracejit.frontend.arrays.core import ArrayCore
from tracejit.frontend.arrays.functions.elementwise import FUNCTIONS, imag, real
from tracejit.frontend.arrays.functions.movement import stack
from tracejit.frontend.recording.location import user_location

BOOL, UINT8 = np.dtype(bool), np.dtype("uint8")


def reinterpreted(x: Any, dtype: np.dtype) -> Any:
    """Return the bits of `x` as numbers of `dtype`.

    With another dtype the result is a read-only copy, because its memory is not that of `x`.
    """
    if x.dtype == dtype:
        return ArrayCore.new(x._storage, x._view)
    result = _reinterpreted(x, dtype)
    return ArrayCore.new(result._storage, dataclasses.replace(result._view, writable=False))


def _reinterpreted(x: Any, dtype: np.dtype) -> Any:
    source = x.dtype
    if source == dtype:
        return x
    if source == BOOL:
        return _reinterpreted(dispatch.cast(x, UINT8), dtype)
    if dtype == BOOL:
        return _reinterpreted(x, UINT8) != 0
    if source.kind == "c":
        return _reinterpreted(_merged(stack([real(x), imag(x)], axis=-1), x, dtype), dtype)
    if dtype.kind == "c":
        parts = _reinterpreted(x, np.dtype(f"float{4 * dtype.itemsize}"))
        return FUNCTIONS["complex"](*_groups(parts, 2, x, dtype))
    if source.itemsize == dtype.itemsize:
        return dispatch.emit(ops.bitcast, x, dtype=dtype)
    bits, unsigned = _reinterpreted(x, _unsigned(source)), _unsigned(dtype)
    if source.itemsize > dtype.itemsize:
        shifts = range(0, 8 * source.itemsize, 8 * dtype.itemsize)
        parts = stack([dispatch.cast(bits >> shift, unsigned) for shift in shifts], axis=-1)
        return _reinterpreted(_merged(parts, x, dtype), dtype)
    groups = _groups(bits, dtype.itemsize // source.itemsize, x, dtype)
    combined = dispatch.cast(groups[0], unsigned)
    for number, group in enumerate(groups[1:], 1):
        combined = combined | (dispatch.cast(group, unsigned) << 8 * source.itemsize * number)
    return _reinterpreted(combined, dtype)


def _unsigned(dtype: np.dtype) -> np.dtype:
    return np.dtype(f"uint{8 * dtype.itemsize}")


def _merged(parts: Any, x: Any, dtype: np.dtype) -> Any:
    """Merge the last axis of `parts`, the parts of each number, into the last axis of `x`."""
    if not x.ndim:
        raise _refused(x, dtype)
    return parts.reshape((*x.shape[:-1], x.shape[-1] * parts.shape[-1]))


def _groups(parts: Any, count: int, x: Any, dtype: np.dtype) -> list[Any]:
    """Return the first, second, ... elements of each group of `count` neighbours along the last axis."""
    if not parts.ndim or parts.shape[-1] % count:
        raise _refused(x, dtype)
    return [parts[..., start::count] for start in range(count)]


def _refused(x: Any, dtype: np.dtype) -> Exception:
    what = f"view: the last axis of an array {x.dtype}{list(x.shape)} is not a multiple of {dtype}"
    return locate(ShapeError(what), user_location())
