"""The CPU: kernels of plain loops, which the engine runs on its worker threads."""

from __future__ import annotations

from tracejit.assembly.jobs import job
from tracejit.codegen.spec import KernelSpec
from tracejit.targets.target import Target
from tracejit.tuning import cpu


def emit(spec: KernelSpec) -> str:
    """The source of ``kernel(block, lo, hi, scratch) -> status``."""
    from tracejit.codegen.cpu.emit import (
        emit_cpu,  # where all kernels are in the store, nothing writes source
    )

    return emit_cpu(spec)


def open_device(index: int) -> None:
    """Nothing: the engine makes lanes and memory when they are first used."""


TARGET = Target(cpu.TUNING, emit, open_device, job)
