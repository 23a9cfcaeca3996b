"""Sizes, units and costs of each kind of device, used by passes, loop nests and code generation.

A body is on one device. The `Tuning` of that device determines what fits in a cache, how work is divided and
which fusions are profitable:

>>> from tracejit.ir.types import CPU, Device
>>> tuning_of(CPU).caches.line
64
>>> tuning_of(Device("tpu"))
Traceback (most recent call last):
tracejit.errors.DeviceError: there is no target for tpu:0; arrays live on devices of the kinds cpu and gpu

Modules; each imports only modules to its right and below:

    gpu     CUDA GPUs: the values of the CPU, so far
    cpu     CPUs, measured on x86 servers
    record  `Tuning`, the parameters of a kind of device

The package imports `ir`.
"""

from __future__ import annotations

from collections.abc import Iterable

from tracejit.errors import DeviceError
from tracejit.ir.graph import Value
from tracejit.ir.types import CPU, Device
from tracejit.tuning import cpu, gpu
from tracejit.tuning.record import Caches, Tuning, Units, WorkCosts

TUNINGS: dict[str, Tuning] = {tuning.kind: tuning for tuning in (cpu.TUNING, gpu.TUNING)}
"""The tuning of each kind of device."""


def tuning_of(device: Device) -> Tuning:
    """Return the tuning of `device`. Raise `DeviceError` if there is no target for its kind."""
    tuning = TUNINGS.get(device.kind)
    if tuning is None:
        kinds = " and ".join(TUNINGS)
        raise DeviceError(f"there is no target for {device}; arrays live on devices of the kinds {kinds}")
    return tuning


def tuning_of_values(values: Iterable[Value]) -> Tuning:
    """Return the tuning of the device that all arrays among `values` are on, or that of the CPU if all are
    numbers.
    """
    return next((tuning_of(v.type.device) for v in values if not v.type.on_host), tuning_of(CPU))


__all__ = ["TUNINGS", "Caches", "Tuning", "Units", "WorkCosts", "tuning_of", "tuning_of_values"]
