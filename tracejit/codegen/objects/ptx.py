"""Numba functions to PTX, the text that a GPU's driver compiles.

Imports Numba, as `tracejit.codegen.objects.build` does; the two halves are the same.

    text = finish(draft("kernel", function, slots=12), "sm_90")
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import llvmlite.binding as llvm

from tracejit.codegen.objects.build import Draft, linked, optimise
from tracejit.kernels.gpu.target import entry_point, indirect_entry_point, machine, nearest, translate


def draft(name: str, function: Callable[..., Any], slots: int) -> Draft:
    """Numba's part: LLVM IR of a kernel whose block has so many slots; 0: the block's address is given."""
    libraries = translate(function, name)
    defined = [name for library in libraries for name in library.defined]
    texts = [library.text for library in libraries]
    entry = entry_point(name, slots) if slots else indirect_entry_point(name)
    return Draft((name,), (*texts, entry), tuple(defined))


def finish(draft: Draft, processor: str) -> str:
    """LLVM's part: PTX for GPUs of this kind (``"sm_90"``) and later ones."""
    module = linked(draft)
    target = machine(processor)
    module.data_layout = str(target.target_data)
    tuning = llvm.create_pipeline_tuning_options(3)
    tuning.loop_vectorization = tuning.slp_vectorization = False
    optimise(module, target, tuning)
    return str(target.emit_assembly(module))


def image(source: str, slots: int, processor: str, driver: Any) -> bytes:
    """The image of a module for `driver`: PTX, or its own compilation of LLVM IR (`Driver.image`)."""
    namespace: dict[str, Any] = {}
    exec(compile(source, "<kernel>", "exec"), namespace)
    drafted = draft("kernel", namespace["kernel"], slots)
    if driver.image is not None:
        return bytes(driver.image(drafted))
    return finish(drafted, nearest(processor)).encode()
