"""The target for NVIDIA GPUs: kernels are PTX, which the engine issues to a stream."""

from __future__ import annotations

from collections.abc import Mapping

from tracejit.assembly.words import Job
from tracejit.codegen.objects.loader import Recipe, load
from tracejit.codegen.spec import KernelSpec
from tracejit.passes.memory.plan import PlannedTask
from tracejit.targets.record import Target
from tracejit.tuning import gpu


def emit(spec: KernelSpec) -> str:
    """Return the source of ``kernel(block)``."""
    from tracejit.codegen.gpu.emit import emit_gpu  # only needed with a GPU

    return emit_gpu(spec)


def open_device(index: int) -> object:
    """Return the driver's device, with its memory and its lane."""
    from tracejit.engine.cuda import device  # likewise

    device.install(native_functions)
    return device.open_device(index)


def job(task: PlannedTask) -> Job:
    """Return the job of a task."""
    from tracejit.assembly import gpu_jobs

    return gpu_jobs.job(task)


def native_functions() -> Mapping[str, int]:
    """Return the addresses of the executor's functions for GPUs."""
    module = "tracejit.kernels.executor.devices"
    recipe = Recipe(
        "executor of GPUs",
        ("executor", module),
        lambda: f"from {module} import ENTRIES\n",
        entries=(module, "ENTRIES"),
    )
    ((kernel, _),) = load([recipe])
    _kept.append(kernel)
    return kernel.addresses


_kept: list[object] = []  # the engine calls them until the process ends

TARGET = Target(gpu.TUNING, emit, open_device, job)
