"""The CPU: kernels of plain loops, which the engine runs on its worker threads."""

from __future__ import annotations

from tracejit.codegen.spec import KernelSpec
from tracejit.launch import launch
from tracejit.targets.target import Target
from tracejit.tuning import cpu


def emit(spec: KernelSpec) -> str:
    """The source of ``kernel(block, lo, hi, scratch) -> status``."""
    from tracejit.codegen.cpu.emit import (
        emit_cpu,  # where all kernels are in the store, nothing writes source
    )

    return emit_cpu(spec)


TARGET = Target(cpu.TUNING, emit, launch)
