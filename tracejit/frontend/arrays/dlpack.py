"""DLPack exchange of bfloat16, which NumPy does not know: it exchanges uint16, and the code is patched.

A capsule points to a `DLTensor` (dlpack.h): data (8 bytes), device (8), number of dimensions (4), then the
dtype, whose first byte is the code. In capsules of version 1 the `DLTensor` follows a header of 32 bytes.

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
"""DLPack's type codes."""

CODE_OFFSETS = {b"dltensor": 20, b"dltensor_versioned": 52}
"""Offset of the code in the structure to which a capsule of this name points."""

_is_valid = ctypes.pythonapi.PyCapsule_IsValid
_is_valid.argtypes, _is_valid.restype = [ctypes.py_object, ctypes.c_char_p], ctypes.c_int
_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.argtypes, _pointer.restype = [ctypes.py_object, ctypes.c_char_p], ctypes.c_void_p


def code_of(capsule: Any) -> ctypes.c_uint8:
    """Return the code of the dtype in a capsule, as a reference into its memory."""
    name = next(name for name in CODE_OFFSETS if _is_valid(capsule, name))
    return ctypes.c_uint8.from_address(_pointer(capsule, name) + CODE_OFFSETS[name])


def export(array: np.ndarray, options: dict[str, Any]) -> Any:
    """Export an array on memory that may be shared, as a capsule."""
    if array.dtype != BFLOAT16:
        return array.__dlpack__(**options)
    capsule = array.view(np.uint16).__dlpack__(**options)
    code_of(capsule).value = BFLOAT
    return capsule


class _RelabelledExporter:
    """An exporter for NumPy's reader that relabels capsules of bfloat16 as uint16."""

    def __init__(self, exporter: Any):
        self.exporter = exporter
        self.is_bfloat16 = False

    def __dlpack_device__(self) -> Any:
        return self.exporter.__dlpack_device__()

    def __dlpack__(self, **options: Any) -> Any:
        capsule = self.exporter.__dlpack__(**options)
        code = code_of(capsule)
        if code.value == BFLOAT:
            code.value, self.is_bfloat16 = UNSIGNED, True
        return capsule


def read(exporter: Any) -> np.ndarray:
    """Import the array of `exporter` as a NumPy array on the same memory."""
    relabelling = _RelabelledExporter(exporter)
    array = np.from_dlpack(relabelling)
    return array.view(BFLOAT16) if relabelling.is_bfloat16 else array
