"""Targets: one record for each kind of device, with all that depends on it.

    target = target_of(Device("cpu"))
    target.tuning.caches.last     # numbers; lower floors ask `tracejit.tuning` for them
    target.emit(spec)             # the source of a kernel
    target.open(0)                # the device is ready, or DeviceError says what is missing
    target.job(task)              # the job of a planned task

A further target is a record in `tracejit.device_kinds`, a module here and one in `tracejit.tuning`, each with
a line in the table beside it, and an emitter. Emitters do not know one another, and nothing but these modules
knows two of them.

>>> from tracejit.ir.types import CPU
>>> target_of(CPU).tuning.kind
'cpu'
"""

from __future__ import annotations

from tracejit.assembly.words import Job
from tracejit.codegen.spec import KernelSpec
from tracejit.ir.types import CPU, Device
from tracejit.passes.memory.plan import PlannedTask
from tracejit.targets import cpu, gpu
from tracejit.targets.record import Target
from tracejit.tuning import tuning_of

TARGETS: dict[str, Target] = {target.tuning.kind: target for target in (cpu.TARGET, gpu.TARGET)}
"""The target of each kind of device."""


def target_of(device: Device) -> Target:
    """The target of `device`; raises `DeviceError` if there is none."""
    return TARGETS[tuning_of(device).kind]


def emit(spec: KernelSpec, kind: str = "cpu") -> str:
    """The source of the kernel `spec` for a kind of device: readable Python for Numba, which imports what it
    uses, so it can be pasted into a file and read, changed or compiled there.
    """
    return target_of(Device(kind)).emit(spec)


def job(task: PlannedTask) -> Job:
    """The job of a planned task, made by the target of its device. A copy between a CPU and a device of
    another kind is that device's.
    """
    node = task.node
    devices = {v.type.device for v in (*node.outputs, *node.inputs) if not v.type.on_host}
    kinds = {device.kind for device in devices} - {CPU.kind}
    return TARGETS[min(kinds, default=CPU.kind)].job(task)


__all__ = ["TARGETS", "Target", "emit", "job", "target_of"]
