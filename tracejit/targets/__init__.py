"""Targets: one record per kind of device, with everything that depends on the kind.

    target = target_of(Device("cpu"))
    target.tuning.caches.last     # sizes and costs; lower layers obtain them from `tracejit.tuning`
    target.emit(spec)             # the source of a kernel
    target.open(0)                # initialises the device; DeviceError states what is missing
    target.job(task)              # the job of a planned task

Adding a target requires a record in `tracejit.device_kinds`, a module here and one in `tracejit.tuning`
(each with a line in the adjacent table), a module of jobs in `tracejit.assembly`, and an emitter. Emitters
do not depend on one another, and only these modules depend on more than one of them.

>>> from tracejit.ir.types import CPU
>>> target_of(CPU).tuning.kind
'cpu'

Modules; each imports only modules to its right and below:

    cpu     the CPU: kernels are loops, which worker threads run
    gpu     NVIDIA GPUs: kernels are PTX, which is issued to a stream
    record  `Target`, the record of a kind of device

The package imports `assembly`, `codegen`, `engine`, `ir`, `passes` and `tuning`. Of `passes` it uses
planned tasks.
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
    """Return the target of `device`. Raise `DeviceError` if there is none."""
    return TARGETS[tuning_of(device).kind]


def emit(spec: KernelSpec, kind: str = "cpu") -> str:
    """Return the source of the kernel `spec` for a kind of device: readable Python for Numba. The source
    imports everything it uses, so it can be pasted into a file and read, changed or compiled there.
    """
    return target_of(Device(kind)).emit(spec)


def job(task: PlannedTask) -> Job:
    """Return the job of a planned task, built by the target of its device. A copy between a CPU and a
    device of another kind belongs to that device.
    """
    node = task.node
    devices = {v.type.device for v in (*node.outputs, *node.inputs) if not v.type.on_host}
    kinds = {device.kind for device in devices} - {CPU.kind}
    return TARGETS[min(kinds, default=CPU.kind)].job(task)


__all__ = ["TARGETS", "Target", "emit", "job", "target_of"]
