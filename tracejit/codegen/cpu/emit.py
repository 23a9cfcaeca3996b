"""CPU kernels: loops over typed pointers, which LLVM vectorises.

Each orientation has a module that emits its loops over units; `tracejit.codegen.cpu.loops` contains what
they share.
"""

from __future__ import annotations

from tracejit.codegen.cpu.columns import emit_columns
from tracejit.codegen.cpu.loops import LoopText
from tracejit.codegen.cpu.map import emit_map
from tracejit.codegen.cpu.rows import emit_rows
from tracejit.codegen.spec import KernelSpec


def emit_cpu(spec: KernelSpec) -> str:
    """Return the source of ``kernel(block, lo, hi, scratch) -> status``."""
    kernel = LoopText(spec)
    kernel.depth = 1
    kernel.load_slots(skip=["scratch_bytes"])
    kernel.scratch_pointers()
    for step in spec.prologue:
        kernel.step(step)
    if any(s.kind == "check" for section in spec.sections for s in section.steps):
        kernel.line(f"status = {kernel.type('int64')}(0)")
        result = "status"
    else:
        result = f"{kernel.type('int64')}(0)"
    {"map": emit_map, "rows": emit_rows, "columns": emit_columns}[spec.orientation](kernel)
    if spec.stages:
        kernel.line(f"{kernel.use('store_fence', 'tracejit.kernels.streams.stream')}()")
    kernel.line(f"return {result}")
    return kernel.finish(["def kernel(block, lo, hi, scratch):"])
