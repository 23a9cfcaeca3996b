"""The kinds of devices, with the properties that all layers need. `tracejit.tuning` and `tracejit.targets`
contain further properties, by the names of these kinds.

An additional kind of device needs a record here, a tuning and a target.

>>> device_name(GPU_KIND.first + 1), device_name(0)
('gpu:1', 'cpu:0')
"""

from __future__ import annotations

MAX_DEVICES = 1 << 16
"""The maximum number of devices of one kind."""

HOST_NAME = "host"
"""The location of numbers in the text of a graph. It is not a device: numbers are in argument blocks."""


class DeviceKind:  # not a named tuple, whose declaration would slow every import of the package
    """One kind of device.

    name:           the word before the colon, as in ``gpu:0``
    first:          the engine's number of device 0 of this kind
    is_addressable: whether Python and CPU kernels can access its memory; other memory needs copies
    is_issued:      whether tasks are issued to a stream and complete later, not run on the engine's workers
    """

    __slots__ = ("first", "is_addressable", "is_issued", "name")

    def __init__(self, name: str, *, first: int, is_addressable: bool, is_issued: bool) -> None:
        self.name, self.first = name, first
        self.is_addressable, self.is_issued = is_addressable, is_issued


CPU_KIND = DeviceKind("cpu", first=0, is_addressable=True, is_issued=False)
GPU_KIND = DeviceKind("gpu", first=MAX_DEVICES, is_addressable=False, is_issued=True)

_IN_ORDER = (CPU_KIND, GPU_KIND)  # the numbers of kind `i` start at `i * MAX_DEVICES`
KINDS = {kind.name: kind for kind in _IN_ORDER}
"""All kinds by name."""


def kind_of(number: int) -> DeviceKind:
    """Return the kind of the device with this engine number.

    >>> kind_of(3).name
    'cpu'
    """
    return _IN_ORDER[number // MAX_DEVICES]


def device_name(number: int) -> str:
    """Return the name of the device with this engine number."""
    kind = kind_of(number)
    return f"{kind.name}:{number - kind.first}"
