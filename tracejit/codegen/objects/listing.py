"""LLVM IR and assembly of a stored kernel, regenerated from its source for this machine.

This module imports Numba through `build` and is loaded at its first use.

    print(assembly(store.get(key)))
"""

from __future__ import annotations

import re
from typing import Any

import llvmlite.binding as llvm

from tracejit.codegen.objects import build
from tracejit.codegen.objects.entry import Entry
from tracejit.codegen.objects.machine import initialize
from tracejit.errors import ArgumentError

VECTOR = re.compile(r"<(\d+) x (?:float|double|i(?:8|16|32|64))>")


def vector_width(llvm_ir: str) -> int:
    """Return the number of elements in the widest vector that LLVM IR computes with, or 1 for scalar code.

    LLVM chooses the width and prints it only in the text of its IR.

    >>> vector_width("%5 = fadd <16 x float> %3, %4"), vector_width("%5 = fadd float %3, %4")
    (16, 1)
    """
    return max(map(int, VECTOR.findall(llvm_ir)), default=1)


def llvm_ir(entry: Entry) -> str:
    """Return the optimised LLVM IR of the functions that the source of `entry` defines."""
    namespace: dict[str, Any] = {}
    exec(compile(entry.source, f"<{entry.name}>", "exec"), namespace)
    symbols = entry.metadata.get("symbols", ["kernel"])
    missing = [symbol for symbol in symbols if symbol not in namespace]
    if missing:
        raise ArgumentError(f"{entry.name}: the stored source does not define {', '.join(missing)}")
    return build.build_object([build.EntryPoint(symbol, namespace[symbol]) for symbol in symbols]).llvm_ir


def assembly(entry: Entry) -> str:
    """Return the assembly of `entry` for this machine."""
    module = llvm.parse_assembly(llvm_ir(entry))
    return initialize().emit_assembly(module)
