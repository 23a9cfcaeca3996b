"""CUDA GPUs: kernels are written, and run in tests, but no engine launches them yet."""

from __future__ import annotations

from tracejit.codegen.spec import KernelSpec
from tracejit.targets.target import Target
from tracejit.tuning import gpu


def emit(spec: KernelSpec) -> str:
    """The source of ``kernel(block, lo, hi, scratch, failure)`` for numba-cuda."""
    from tracejit.codegen.gpu.emit import emit_cuda  # nobody needs it who has no GPU

    return emit_cuda(spec)


TARGET = Target(gpu.TUNING, emit, launch=None)
