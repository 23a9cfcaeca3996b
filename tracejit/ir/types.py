"""The type of a value: shape, dtype and device.

A value on the device `HOST` is a number: it is 0-d, and is passed in a kernel's argument block instead of in
memory. Literals and the run-time numbers of a call (a learning rate) are such values.

>>> str(ArrayType((3, 4), np.dtype("float32"), CPU))
'float32[3,4]'
>>> str(ArrayType((), np.dtype("float64"), HOST))
'float64'
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, field

import ml_dtypes
import numpy as np

from tracejit.device_kinds import CPU_KIND, HOST_NAME, KINDS


@dataclass(slots=True, unsafe_hash=True)
class Device:
    """A device that stores values: ``cpu:0``, ``gpu:1``, or `HOST` for numbers. Immutable.

    >>> import tracejit as tj
    >>> print(tj.zeros(2).device)
    cpu:0
    """

    kind: str
    index: int = 0

    @property
    def number(self) -> int:
        """The number of the device in the engine.

        >>> import tracejit as tj
        >>> tj.cpu(1).number
        1
        """
        return KINDS[self.kind].first + self.index

    @property
    def is_addressable(self) -> bool:
        """Whether the CPU can access the device's memory without a copy.

        >>> import tracejit as tj
        >>> tj.cpu(1).is_addressable
        True
        """
        kind = KINDS.get(self.kind)
        return kind is not None and kind.is_addressable

    def __str__(self) -> str:
        return f"{self.kind}:{self.index}"


HOST = Device(HOST_NAME)
CPU = Device(CPU_KIND.name)

FLOAT16, BFLOAT16 = np.dtype("float16"), np.dtype(ml_dtypes.bfloat16)

DTYPES = tuple(
    np.dtype(name)
    for name in (
        *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
        *("float16", "bfloat16", "float32", "float64", "complex64", "complex128"),
    )
)

HALVES = frozenset({FLOAT16, BFLOAT16})


def is_floating(dtype: np.dtype) -> bool:
    """Whether this is a real floating-point dtype, bfloat16 included (whose NumPy kind is "V").

    >>> is_floating(BFLOAT16), is_floating(np.dtype("complex64"))
    (True, False)
    """
    return dtype.kind == "f" or dtype == BFLOAT16


def is_inexact(dtype: np.dtype) -> bool:
    """Whether this is a real or complex floating-point dtype.

    >>> is_inexact(np.dtype("complex64")), is_inexact(np.dtype("int8"))
    (True, False)
    """
    return dtype.kind in "fc" or dtype == BFLOAT16


@functools.cache
def name_of(dtype: np.dtype) -> str:
    """NumPy's name of a dtype, cached because NumPy takes 2 us to compute it."""
    return str(dtype)


@dataclass(slots=True, unsafe_hash=True, init=False)
class ArrayType:
    """Shape, dtype and device of a `Value`. Immutable by convention (see `View`).

    size, nbytes: number of elements and bytes of a C-contiguous array.
    on_host:      whether the value is a number, which is passed in the argument block.
    """

    shape: tuple[int, ...]
    dtype: np.dtype
    device: Device
    size: int = field(repr=False, compare=False)
    nbytes: int = field(repr=False, compare=False)
    on_host: bool = field(repr=False, compare=False)

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype, device: Device = CPU):
        self.shape, self.dtype, self.device = shape, dtype, device
        self.size = math.prod(shape)  # computed once
        self.nbytes = self.size * dtype.itemsize
        self.on_host = device.kind == HOST_NAME

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def __str__(self) -> str:
        where = "" if self.device in (CPU, HOST) else f"@{self.device}"
        dims = "" if self.on_host else f"[{','.join(map(str, self.shape))}]"
        return f"{self.dtype}{dims}{where}"
