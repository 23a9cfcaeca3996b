"""Operators that create values: `constant` (a host number), `full`, `iota` and `empty` (arrays)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tracejit.errors import ArgumentError, DeviceError, ShapeError
from tracejit.ir.op import Trait, register
from tracejit.ir.types import HOST, ArrayType, Device
from tracejit.ops.batching import refusing
from tracejit.ops.rules import ALL, INT64, check_count, check_dtype
from tracejit.ops.symbolic import Operator


def _check_shape_and_device(name: str, shape: Sequence[int], device: Device) -> None:
    if not all(isinstance(n, int) and n >= 0 for n in shape):
        raise ShapeError(f"{name} got the shape {tuple(shape)}; extents are non-negative integers")
    if device == HOST:
        raise DeviceError(
            f"{name} creates an array, which cannot be on the host; name a device such as cpu:0"
        )


def _infer_constant(*types: ArrayType, value: Any, dtype: np.dtype) -> ArrayType:
    check_count("constant", types, 0)
    check_dtype("constant", dtype, ALL)
    if not isinstance(value, bool | int | float | complex):
        raise ArgumentError(f"constant needs a Python number, got {type(value).__name__} {value!r}")
    return ArrayType((), dtype, HOST)


def _infer_full(*types: ArrayType, shape: tuple[int, ...], device: Device) -> ArrayType:
    check_count("full", types, 1)
    if not types[0].on_host:
        raise DeviceError(
            f"full needs a number on the host, got the array {types[0]}; broadcast it with view"
        )
    _check_shape_and_device("full", shape, device)
    return ArrayType(shape, types[0].dtype, device)


def _infer_iota(*types: ArrayType, size: int, device: Device) -> ArrayType:
    check_count("iota", types, 0)
    _check_shape_and_device("iota", (size,), device)
    return ArrayType((size,), INT64, device)


def _infer_empty(*types: ArrayType, shape: tuple[int, ...], dtype: np.dtype, device: Device) -> ArrayType:
    check_count("empty", types, 0)
    check_dtype("empty", dtype, ALL)
    _check_shape_and_device("empty", shape, device)
    return ArrayType(shape, dtype, device)


EXACT = frozenset({Trait.EXACT})
NOT_MAPPED = refusing("numbers are the same for all examples, and so are arrays created from them")

constant = Operator(
    "constant",
    _infer_constant,
    lambda *, value, dtype: np.asarray(value, dtype),
    traits=EXACT,
    doc="A literal number, on the host.",
    batch=NOT_MAPPED,
)
register(constant)

full = Operator(
    "full",
    _infer_full,
    lambda x, *, shape, device: np.full(shape, x, x.dtype),
    traits=EXACT | {Trait.MOVES},
    doc="An array filled with a number.",
    batch=NOT_MAPPED,
)
register(full)

iota = Operator(
    "iota",
    _infer_iota,
    lambda *, size, device: np.arange(size, dtype=INT64),
    traits=EXACT,
    doc="The integers from 0 to size - 1; any grid of indices is a view of such an array.",
    batch=NOT_MAPPED,
)
register(iota)

empty = Operator(
    "empty",
    _infer_empty,
    lambda *, shape, dtype, device: np.zeros(shape, dtype),
    doc="An array with arbitrary elements.",
    batch=NOT_MAPPED,
)
register(empty)
