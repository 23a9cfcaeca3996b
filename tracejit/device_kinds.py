"""The kinds of devices: what all floors know about them. The rest is in `tracejit.tuning` and
`tracejit.targets`, by the names of these kinds.

A further kind of device is a record here, a tuning and a target.

>>> device_name(GPU_KIND.first + 1), device_name(0)
('gpu:1', 'cpu:0')
"""

from __future__ import annotations

MOST = 1 << 16
"""The most devices of one kind."""

HOST_NAME = "host"
"""The place of numbers, in the text of a graph: no device, as they travel in argument blocks."""


class DeviceKind:  # no named tuple: declaring one takes longer, and every import of the package does
    """One kind of device.

    name:           the word before the colon, as in ``gpu:0``
    first:          the number of its device 0 among those of the engine
    is_addressable: Python and kernels of a CPU read its memory; other memory needs copies
    is_issued:      tasks are issued to a stream and complete later; others run on the engine's workers
    """

    __slots__ = ("first", "is_addressable", "is_issued", "name")

    def __init__(self, name: str, *, first: int, is_addressable: bool, is_issued: bool) -> None:
        self.name, self.first = name, first
        self.is_addressable, self.is_issued = is_addressable, is_issued


CPU_KIND = DeviceKind("cpu", first=0, is_addressable=True, is_issued=False)
GPU_KIND = DeviceKind("gpu", first=MOST, is_addressable=False, is_issued=True)

_IN_ORDER = (CPU_KIND, GPU_KIND)  # kind `i` has the numbers from `i * MOST` on
KINDS = {kind.name: kind for kind in _IN_ORDER}
"""All kinds by name."""


def kind_of(number: int) -> DeviceKind:
    """The kind of the device with this number of the engine.

    >>> kind_of(3).name
    'cpu'
    """
    return _IN_ORDER[number // MOST]


def device_name(number: int) -> str:
    """The name of the device with this number of the engine."""
    kind = kind_of(number)
    return f"{kind.name}:{number - kind.first}"
