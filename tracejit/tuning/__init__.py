"""Sizes, units and costs of each kind of device, which passes, loop nests and code generation use.

A body is on one device, whose `Tuning` decides what fits a cache, how work is cut and what is worth fusing:

>>> from tracejit.ir.types import CPU, Device
>>> tuning_of(CPU).caches.line
64
>>> tuning_of(Device("tpu"))
Traceback (most recent call last):
tracejit.errors.DeviceError: there is no target for tpu:0; arrays live on devices of the kinds cpu and gpu
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
    """The tuning of `device`; raises `DeviceError` if there is no target for its kind."""
    found = TUNINGS.get(device.kind)
    if found is None:
        kinds = " and ".join(TUNINGS)
        raise DeviceError(f"there is no target for {device}; arrays live on devices of the kinds {kinds}")
    return found


def tuning_of_values(values: Iterable[Value]) -> Tuning:
    """The tuning for values whose arrays are all on one device; that of the CPU if all are numbers."""
    return next((tuning_of(v.type.device) for v in values if not v.type.on_host), tuning_of(CPU))


__all__ = ["TUNINGS", "Caches", "Tuning", "Units", "WorkCosts", "tuning_of", "tuning_of_values"]
