"""Compilation of Numba functions to PTX, the assembly text that a GPU's driver compiles.

This module imports Numba. Compilation has the same two halves as in `tracejit.codegen.objects.build`.

    text = finish(draft("kernel", function, slots=12), "sm_90")
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import llvmlite.binding as llvm

from tracejit.codegen.objects.build import Draft, linked, optimise
from tracejit.kernels.gpu.target import entry_point, indirect_entry_point, machine, nearest, translate


def draft(name: str, function: Callable[..., Any], slots: int) -> Draft:
    """Run Numba's half: return the LLVM IR of a kernel whose block has `slots` slots. With 0 slots, the
    kernel's argument is the address of the block.
    """
    libraries = translate(function, name)
    defined = [name for library in libraries for name in library.defined]
    texts = [library.text for library in libraries]
    entry = entry_point(name, slots) if slots else indirect_entry_point(name)
    return Draft((name,), (*texts, entry), tuple(defined))


def finish(draft: Draft, processor: str) -> str:
    """Run LLVM's half: return PTX for GPUs of the architecture `processor` (``"sm_90"``) and later ones."""
    module = linked(draft)
    target = machine(processor)
    module.data_layout = str(target.target_data)
    tuning = llvm.create_pipeline_tuning_options(3)
    tuning.loop_vectorization = tuning.slp_vectorization = False
    optimise(module, target, tuning)
    return str(target.emit_assembly(module))


def image(source: str, slots: int, processor: str, driver: Any) -> bytes:
    """Return the image of a module for `driver`: PTX, or the result of the driver's own compilation of
    LLVM IR (`Driver.image`).
    """
    namespace: dict[str, Any] = {}
    exec(compile(source, "<kernel>", "exec"), namespace)
    kernel_draft = draft("kernel", namespace["kernel"], slots)
    if driver.image is not None:
        return bytes(driver.image(kernel_draft))
    return finish(kernel_draft, nearest(processor)).encode()
