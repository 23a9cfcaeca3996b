"""The bits of arrays read as numbers of another dtype: what `NDArray.view` computes.

Between dtypes of one size it is the operator `bitcast`. Else numbers are taken apart into narrower unsigned
integers, or put together of such, lowest bytes first, along the last axis; complex numbers are their parts.

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


def seen_as(x: Any, dtype: np.dtype) -> Any:
    """The array of another dtype: a copy that cannot be written, as its elements are not those of `x`."""
    if x.dtype == dtype:
        return ArrayCore.new(x._storage, x._view)
    found = _read(x, dtype)
    return ArrayCore.new(found._storage, dataclasses.replace(found._view, writable=False))


def _read(x: Any, dtype: np.dtype) -> Any:
    given = x.dtype
    if given == dtype:
        return x
    if given == BOOL:
        return _read(dispatch.cast(x, UINT8), dtype)
    if dtype == BOOL:
        return _read(x, UINT8) != 0
    if given.kind == "c":
        return _read(_in_line(stack([real(x), imag(x)], axis=-1), x, dtype), dtype)
    if dtype.kind == "c":
        parts = _read(x, np.dtype(f"float{4 * dtype.itemsize}"))
        return FUNCTIONS["complex"](*_grouped(parts, 2, x, dtype))
    if given.itemsize == dtype.itemsize:
        return dispatch.emit(ops.bitcast, x, dtype=dtype)
    bits, wanted = _read(x, _unsigned(given)), _unsigned(dtype)
    if given.itemsize > dtype.itemsize:
        shifts = range(0, 8 * given.itemsize, 8 * dtype.itemsize)
        parts = stack([dispatch.cast(bits >> shift, wanted) for shift in shifts], axis=-1)
        return _read(_in_line(parts, x, dtype), dtype)
    groups = _grouped(bits, dtype.itemsize // given.itemsize, x, dtype)
    whole = dispatch.cast(groups[0], wanted)
    for number, group in enumerate(groups[1:], 1):
        whole = whole | (dispatch.cast(group, wanted) << 8 * given.itemsize * number)
    return _read(whole, dtype)


def _unsigned(dtype: np.dtype) -> np.dtype:
    return np.dtype(f"uint{8 * dtype.itemsize}")


def _in_line(parts: Any, x: Any, dtype: np.dtype) -> Any:
    """The parts of each number, which lie along a last axis of their own, along the last axis of `x`."""
    if not x.ndim:
        raise _refused(x, dtype)
    return parts.reshape((*x.shape[:-1], x.shape[-1] * parts.shape[-1]))


def _grouped(parts: Any, count: int, x: Any, dtype: np.dtype) -> list[Any]:
    """The first, second, ... of each `count` neighbours along the last axis."""
    if not parts.ndim or parts.shape[-1] % count:
        raise _refused(x, dtype)
    return [parts[..., start::count] for start in range(count)]


def _refused(x: Any, dtype: np.dtype) -> Exception:
    what = f"view: the last axis of an array {x.dtype}{list(x.shape)} is no whole number of {dtype}"
    return locate(ShapeError(what), user_location())
