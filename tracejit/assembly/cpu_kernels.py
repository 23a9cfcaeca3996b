"""Recipes of CPU kernels, generated and handwritten."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracejit.codegen.objects.loader import Recipe
from tracejit.codegen.spec import KernelSpec, Lowered

if TYPE_CHECKING:
    from tracejit.loopnest.statements import LoweredSerial, SerialProgram


def generated_kernel(name: str, lowered: Lowered) -> Recipe:
    """Return the recipe of the kernel that is generated for this structure."""
    return Recipe(name, lowered.spec, lambda: source_of(lowered.spec))


def serial_kernel(name: str, lowered: LoweredSerial) -> Recipe:
    """Return the recipe of a serial kernel."""
    program, slot_count = lowered.program, len(lowered.slots)
    return Recipe(name, ("serial", repr(program), slot_count), lambda: _serial_source(program, slot_count))


def _serial_source(program: SerialProgram, slot_count: int) -> str:
    from tracejit.codegen.cpu.serial import emit_serial  # not needed if all kernels are in the store

    return emit_serial(program, slot_count)


def source_of(spec: KernelSpec) -> str:
    """Return the source of a generated kernel: ``kernel(block, lo, hi, scratch) -> status``."""
    from tracejit.codegen.cpu.emit import (
        emit_cpu,  # not needed if all kernels are in the store
    )

    return emit_cpu(spec)


def library_kernel(name: str, dtype: str, table: str = "LIBRARY") -> Recipe:
    """Return the recipe of a handwritten kernel in a table of `tracejit.kernels`."""
    source = (
        f"from tracejit.kernels.{table.lower()}.table import {table}\n\n"
        f'kernel = {table}["{name}", "{dtype}"]\n'
    )
    title = name if name == "copy" else f"{name} {dtype}"
    return Recipe(title, ("library", name, dtype), lambda: source, handwritten=True)
