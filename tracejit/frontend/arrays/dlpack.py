"""DLPack exchange of bfloat16, which NumPy's reader and writer do not know: as uint16, with the code changed.

A capsule holds a `DLTensor` (dlpack.h): data 8 bytes, device 8, number of dimensions 4, then the dtype, of
which the first byte is the code. Capsules of version 1 hold it behind 32 bytes of a header.

>>> import tracejit as tj
>>> read(tj.ones(2, dtype=tj.bfloat16)).dtype
dtype(bfloat16)
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from tracejit.ir.types import BFLOAT16

UNSIGNED, BFLOAT = 1, 4
"""Codes of DLPack."""

CODE = {b"dltensor": 20, b"dltensor_versioned": 52}
"""The place of the code in what a capsule of this name points to."""

_is_valid = ctypes.pythonapi.PyCapsule_IsValid
_is_valid.argtypes, _is_valid.restype = [ctypes.py_object, ctypes.c_char_p], ctypes.c_int
_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.argtypes, _pointer.restype = [ctypes.py_object, ctypes.c_char_p], ctypes.c_void_p


def code_of(capsule: Any) -> ctypes.c_uint8:
    """The code of the dtype in a capsule, to be read or changed."""
    name = next(name for name in CODE if _is_valid(capsule, name))
    return ctypes.c_uint8.from_address(_pointer(capsule, name) + CODE[name])


def export(array: np.ndarray, options: dict[str, Any]) -> Any:
    """The capsule of an array on memory that somebody may share."""
    if array.dtype != BFLOAT16:
        return array.__dlpack__(**options)
    capsule = array.view(np.uint16).__dlpack__(**options)
    code_of(capsule).value = BFLOAT
    return capsule


class _AsBits:
    """An exporter of bfloat16, for NumPy's reader: its capsules say uint16."""

    def __init__(self, exporter: Any):
        self.exporter = exporter
        self.found = False

    def __dlpack_device__(self) -> Any:
        return self.exporter.__dlpack_device__()

    def __dlpack__(self, **options: Any) -> Any:
        capsule = self.exporter.__dlpack__(**options)
        code = code_of(capsule)
        if code.value == BFLOAT:
            code.value, self.found = UNSIGNED, True
        return capsule


def read(exporter: Any) -> np.ndarray:
    """The array that `exporter` exports, as a NumPy array on the same memory."""
    asking = _AsBits(exporter)
    array = np.from_dlpack(asking)
    return array.view(BFLOAT16) if asking.found else array
