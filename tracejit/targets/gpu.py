"""CUDA GPUs: kernels are written, and run in tests, but no engine launches them yet."""

from __future__ import annotations

from tracejit.codegen.spec import KernelSpec
from tracejit.targets.target import Target
from tracejit.tuning import gpu


def emit(spec: KernelSpec) -> str:
    """The source of ``kernel(block)``."""
    from tracejit.codegen.gpu.emit import emit_gpu  # nobody needs it who has no GPU

    return emit_gpu(spec)


TARGET = Target(gpu.TUNING, emit, launch=None)
