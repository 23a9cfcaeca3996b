"""Inspection of the namespace as the array API standard defines it: its version, devices and dtypes.

>>> import tracejit as tj
>>> tj.__array_api_version__
'2025.12'
>>> tj.__array_namespace_info__().default_dtypes()["real floating"]
dtype('float32')
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tracejit.errors import ArgumentError, locate
from tracejit.frontend.arrays.devices import chosen_device, default_device
from tracejit.frontend.arrays.functions import dtypes
from tracejit.frontend.recording.location import user_location
from tracejit.ir.types import CPU, DTYPES, HALVES, Device, name_of

VERSIONS = ("2021.12", "2022.12", "2023.12", "2024.12", "2025.12")
VERSION = VERSIONS[-1]

STANDARD = tuple(dtype for dtype in DTYPES if dtype not in HALVES)
DEFAULTS = {
    "real floating": dtypes.float32,
    "complex floating": dtypes.complex64,
    "integral": dtypes.int64,
    "indexing": dtypes.int64,
}


class NamespaceInfo:
    """The result of `tj.__array_namespace_info__`: methods that describe the namespace.

    >>> import tracejit as tj
    >>> [str(device) for device in tj.__array_namespace_info__().devices()]
    ['cpu:0']
    """

    def capabilities(self) -> dict[str, Any]:
        """The supported optional features of the standard.

        >>> import tracejit as tj
        >>> tj.__array_namespace_info__().capabilities()
        {'boolean indexing': True, 'data-dependent shapes': True, 'max dimensions': 64}
        """
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 64}

    def default_device(self) -> Device:
        """The device of new arrays.

        >>> import tracejit as tj
        >>> print(tj.__array_namespace_info__().default_device())
        cpu:0
        """
        return default_device()

    def default_dtypes(self, *, device: Any = None) -> dict[str, np.dtype]:
        """The dtypes of arrays that are created from Python numbers, by kind.

        Raises DeviceError for an unknown device.

        >>> import tracejit as tj
        >>> tj.__array_namespace_info__().default_dtypes()["integral"]
        dtype('int64')
        """
        chosen_device("__array_namespace_info__", device)
        return dict(DEFAULTS)

    def dtypes(self, *, device: Any = None, kind: Any = None) -> dict[str, np.dtype]:
        """The supported dtypes of the standard by name; `kind` selects as in `tj.isdtype`.

        The standard has no half dtypes.

        Raises DeviceError for an unknown device, ArgumentError for an unknown kind.

        >>> import tracejit as tj
        >>> sorted(tj.__array_namespace_info__().dtypes(kind="complex floating"))
        ['complex128', 'complex64']
        """
        chosen_device("__array_namespace_info__", device)
        if kind is None:
            return {name_of(dtype): dtype for dtype in STANDARD}
        try:
            return {name_of(dtype): dtype for dtype in STANDARD if dtypes.isdtype(dtype, kind)}
        except (TypeError, ValueError) as error:
            raise locate(
                ArgumentError(
                    f"dtypes: kind is {kind!r}; expected 'bool', 'signed integer', 'unsigned integer', "
                    f"'integral', 'real floating', 'complex floating', 'numeric', or a tuple of these"
                ),
                user_location(),
            ) from error

    def devices(self) -> tuple[Device, ...]:
        """The devices that always exist; others, such as `tj.cpu(1)`, are created at their first use.

        >>> import tracejit as tj
        >>> len(tj.__array_namespace_info__().devices())
        1
        """
        return (CPU,)


def array_namespace_info() -> NamespaceInfo:
    """The description of this namespace that the array API standard defines: devices, dtypes, capabilities.

    >>> import tracejit as tj
    >>> tj.__array_namespace_info__().capabilities()["boolean indexing"]
    True
    """
    return NamespaceInfo()
