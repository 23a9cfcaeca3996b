"""Normalisation of the devices that users pass, and the default device of new arrays.

    with tj.device(tj.cpu(1)):
        w = tj.zeros(3)             # on cpu:1

A traced function creates its arrays on the default device of its caller. A body that reads the default device
depends on it as on the number of a branch: the signature is then valid only for calls under the same device
(`Trace.uses_device`).
"""

from __future__ import annotations

from typing import Any

from tracejit.device_kinds import CPU_KIND, GPU_KIND, KINDS
from tracejit.errors import DeviceError, locate
from tracejit.frontend.arrays.axes import integer
from tracejit.frontend.recording.location import user_location
from tracejit.frontend.recording.recording import device_contexts, thread
from tracejit.ir.types import CPU, Device
from tracejit.targets import target_of

_devices: dict[Device, Device] = {CPU: CPU}


def one_device(device: Device) -> Device:
    """Return the canonical object of a device. Types compare devices by identity first."""
    return _devices.setdefault(device, device)


def cpu(index: int = 0) -> Device:
    """The CPU device with this index; each one is created at its first use.

    Each has its own workers, memory and stream of random numbers; the processors are shared.
    Raises DeviceError for a negative index, ArgumentError for an index that is not an integer.

    >>> import tracejit as tj
    >>> print(tj.zeros(2, device=tj.cpu(1)).device)
    cpu:1
    """
    return _numbered(CPU_KIND.name, index)


def gpu(index: int = 0) -> Device:
    """The NVIDIA GPU with this index.

    Supported are the operators that become generated kernels: elementwise operators, reductions, indexing and
    copies. Others raise an error. Kernels run on a stream of the GPU; a look copies to the host.
    Raises DeviceError if the driver or the GPU is missing, ArgumentError for an index that is not an integer.

    >>> import tracejit as tj
    >>> try:
    ...     where = tj.gpu(0)
    ... except tj.errors.DeviceError:
    ...     where = tj.cpu(0)
    >>> float(tj.ones(3, device=where).sum())
    3.0
    """
    return _numbered(GPU_KIND.name, index)


def _numbered(kind: str, index: int) -> Device:
    """Return the device of a kind with this index; the kind is also the caller's name in errors."""
    number = integer(kind, index)
    if number < 0:
        what = f"{kind}: there is no device {kind}:{number}; devices are numbered from 0"
        raise locate(DeviceError(what), user_location())
    return _ready(kind, Device(kind, number))


def _ready(name: str, device: Device) -> Device:
    """Open `device`, and return its canonical object.

    Raises DeviceError, from its target, if it is unusable.
    """
    known = _devices.get(device)
    if known is not None:
        return known
    try:
        target_of(device).open(device.index)
    except DeviceError as error:
        raise locate(DeviceError(f"{name}: {error}"), user_location()) from None
    return one_device(device)


def as_device(name: str, device: Any, default: Device) -> Device:
    """Return a device given as a `Device`, as text (``"cpu"``, ``"gpu:1"``), or as None for `default`."""
    if device is None:
        return default
    candidate = device
    if isinstance(device, str):
        kind, _, index = device.partition(":")
        candidate = Device(kind, int(index)) if index.isdecimal() else Device(device)
    if isinstance(candidate, Device) and candidate.kind in KINDS and candidate.index >= 0:
        return _ready(name, candidate)
    text = str(device) if isinstance(device, (str, Device)) else repr(device)
    others = "".join(f', and on tj.{kind}(0), "{kind}:0", ...' for kind in KINDS if kind != CPU.kind)
    raise locate(
        DeviceError(
            f"{name}: there is no device {text} here; arrays live on tj.cpu(0), tj.cpu(1), ..., "
            f'written "cpu" or "cpu:0", "cpu:1", ...{others}'
        ),
        user_location(),
    )


def chosen_device(name: str, device: Any) -> Device:
    """Return `device` as a `Device`, or the default device for None."""
    return default_device() if device is None else as_device(name, device, CPU)


def default_device() -> Device:
    """The device of new arrays on this thread."""
    if thread.trace is not None:
        thread.trace.note_device()
    return thread.device


class device:
    """A context manager that sets the default device of new arrays.

    `place` is a device or its text (``tj.cpu(1)``, ``"cpu:1"``). Existing arrays are not moved. The context
    applies to the current thread, including jitted functions that are called in it.

    Raises DeviceError for an unknown device.

    >>> import tracejit as tj
    >>> with tj.device(tj.cpu(1)):
    ...     x = tj.zeros(3)
    >>> print(x.device)
    cpu:1
    """

    __slots__ = ("_outer", "place")

    def __init__(self, place: Device | str) -> None:
        self.place = as_device("device", place, CPU)
        self._outer: list[Device] = []

    def __enter__(self) -> Device:
        device_contexts.append(self.place)
        self._outer.append(thread.device)
        thread.device = self.place
        return self.place

    def __exit__(self, *exception: object) -> None:
        thread.device = self._outer.pop()
        device_contexts.remove(self.place)
