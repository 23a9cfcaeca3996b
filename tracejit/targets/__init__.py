"""Targets: one record for each kind of device, where all that depends on it meets.

    target = target_of(Device("cpu"))
    target.tuning.caches.far      # numbers; lower floors ask `tracejit.tuning` for them
    target.emit(spec)             # the source of a kernel
    target.launch(planned)        # a schedule that runs on the device

A second target is a module here and one in `tracejit.tuning`, each with a line in the table beside it, and an
emitter. Emitters do not know one another, and nothing but these modules knows two of them.

>>> from tracejit.ir.types import CPU
>>> target_of(CPU).tuning.kind
'cpu'
"""

from __future__ import annotations

from tracejit.codegen.spec import KernelSpec
from tracejit.ir.types import Device
from tracejit.targets import cpu, gpu
from tracejit.targets.target import Target
from tracejit.tuning import tuning_of

TARGETS: dict[str, Target] = {target.tuning.kind: target for target in (cpu.TARGET, gpu.TARGET)}
"""By kind of device."""


def target_of(device: Device) -> Target:
    """The target of `device`; raises `DeviceError` if there is none."""
    return TARGETS[tuning_of(device).kind]


def emit(spec: KernelSpec, kind: str = "cpu") -> str:
    """The source of the kernel `spec` for a kind of device: readable Python for Numba, which imports what it
    uses, so it can be pasted into a file and read, changed or compiled there.
    """
    return target_of(Device(kind)).emit(spec)


__all__ = ["TARGETS", "Target", "emit", "target_of"]
