"""Normalisation of users' devices, and the default device of new arrays.

    with tj.device(tj.cpu(1)):
        w = tj.zeros(3)             # on cpu:1

A traced function makes its arrays where its caller would. A body that asks has used a fact of the call, like
a branch on a number: the signature then holds for calls under that device only (`Trace.uses_device`).
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
    """The one object for equal devices: types compare them by identity first."""
    return _devices.setdefault(device, device)


def cpu(index: int = 0) -> Device:
    """The CPU device with this index; there are as many as are used, each made at its first use.

    Each has workers, memory and a stream of random numbers of its own; the processors are shared.
    Raises DeviceError for a negative index, ArgumentError for what is no integer.

    >>> import tracejit as tj
    >>> print(tj.zeros(2, device=tj.cpu(1)).device)
    cpu:1
    """
    return _numbered(CPU_KIND.name, index)


def gpu(index: int = 0) -> Device:
    """The GPU with this index, through the driver of NVIDIA's GPUs.

    Arrays there have the operators that become generated kernels: elementwise ones, reductions, indexing and
    copies; others say that they are missing. What is computed runs on the GPU's stream; a look copies.
    Raises DeviceError where the driver, or such a GPU, is missing, ArgumentError for what is no integer.

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
    """The device of a kind with this index, for the function that is called as the kind."""
    number = integer(kind, index)
    if number < 0:
        what = f"{kind}: there is no device {kind}:{number}; devices are numbered from 0"
        raise locate(DeviceError(what), user_location())
    return _ready(kind, Device(kind, number))


def _ready(name: str, device: Device) -> Device:
    """The one object for `device`, which can be used; its target raises `DeviceError` if it cannot."""
    found = _devices.get(device)
    if found is not None:
        return found
    try:
        target_of(device).open(device.index)
    except DeviceError as error:
        raise locate(DeviceError(f"{name}: {error}"), user_location()) from None
    return one_device(device)


def as_device(name: str, device: Any, default: Device) -> Device:
    """A `Device`, its text (``"cpu"``, ``"gpu:1"``), or None for `default`."""
    if device is None:
        return default
    found = device
    if isinstance(device, str):
        kind, _, index = device.partition(":")
        found = Device(kind, int(index)) if index.isdecimal() else Device(device)
    if isinstance(found, Device) and found.kind in KINDS and found.index >= 0:
        return _ready(name, found)
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
    """`device` if given, else the default one."""
    return default_device() if device is None else as_device(name, device, CPU)


def default_device() -> Device:
    """The device of new arrays on this thread."""
    if thread.trace is not None:
        thread.trace.note_device()
    return thread.device


class device:
    """A context in which arrays are made on a device, where a call names none.

    `place` is a device or its text (``tj.cpu(1)``, ``"cpu:1"``). Arrays that exist stay where they are. It
    holds for this thread, also in a jitted function that is called in the context.

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
