"""Compilation of Numba functions to object code with plain C entry points.

This module imports Numba; only the lazy import in `tracejit.codegen.objects.loader` may load it.

Compilation has two halves, which can run concurrently for different kernels: `draft` runs Numba's front end
(Python code, one function after the other), and `finish` runs LLVM. All functions of a draft and the
subroutines they call form one module, which is optimised once. The module exports only the functions
themselves, under their names as C functions. `tracejit.codegen.objects.linker` turns the object into
addresses.

    built = finish(draft([EntryPoint("kernel", function)]))        # or build_object([...])
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import llvmlite.binding as llvm
from llvmlite.binding.newpassmanagers import NewPassManager
from numba import types

from tracejit.codegen.objects.machine import initialize
from tracejit.kernels.compiler import words
from tracejit.kernels.compiler.target import translate
from tracejit.kernels.gemm import tiles as gemm_tiles
from tracejit.kernels.streams import prefetch, quotient

KERNEL = types.int64(types.int64, types.int64, types.int64, types.int64)
"""The signature of every kernel: ``status = kernel(block, lo, hi, scratch)``."""

SOURCES: list[tuple[frozenset[str], Callable[[], str]]] = [
    (prefetch.FUNCTIONS, prefetch.definitions),
    *(
        (names, partial(module.definitions, scalar))
        for module in (gemm_tiles, quotient)
        for scalar, names in module.FUNCTIONS.items()
    ),
]
"""Functions that the optimiser sees as declarations only, and the functions that generate their
definitions.
"""

SPEED = 2
"""LLVM's optimisation level. Level 3 duplicates loops without a gain in speed."""


@dataclass(frozen=True)
class EntryPoint:
    """A function to compile: its C name, the Python function, and its Numba signature (int64 and void
    only).
    """

    name: str
    function: Callable[..., Any]
    signature: Any = KERNEL


@dataclass(frozen=True)
class Draft:
    """Functions as unoptimised LLVM IR: the names to export, the texts of the modules, and the names of
    all other functions defined in the modules, which are internal. `has_rows`: whether they contain the same
    statements for several neighbouring elements, of which vectors can be made.
    """

    names: tuple[str, ...]
    modules: tuple[str, ...]
    hidden: tuple[str, ...]
    has_rows: bool = False


@dataclass(frozen=True)
class Built:
    """The result of a compilation: object code for the host, and the optimised LLVM IR it was generated
    from.
    """

    object_code: bytes
    llvm_ir: str


def build_object(entries: Sequence[EntryPoint]) -> Built:
    """Compile `entries` into one object file for this machine."""
    return finish(draft(entries))


def draft(entries: Sequence[EntryPoint]) -> Draft:
    """Run Numba's half of a compilation."""
    libraries: dict[Any, None] = {}
    for entry in entries:
        if isinstance(entry.function, words.WordFunction):
            translated = words.translate(entry.function, entry.name)
        else:
            translated = translate(entry.function, entry.signature, entry.name)
        libraries.update(dict.fromkeys(translated))
    names = [entry.name for entry in entries]
    defined = [name for library in libraries for name in library.defined]
    return Draft(
        names=tuple(names),
        modules=tuple(library.text for library in libraries),
        hidden=tuple(name for name in defined if name not in names),
        has_rows=any(getattr(entry.function, "has_rows", False) for entry in entries),
    )


def finish(draft: Draft) -> Built:
    """Run LLVM's half of a compilation, in few calls, since each call may have to wait for the GIL."""
    machine, module = initialize(), linked(draft)
    _define(module, optimise(module, machine, _tuning(has_rows=draft.has_rows)))
    return Built(machine.emit_object(module), str(module))


def linked(draft: Draft) -> Any:
    """Return the linked module of a draft, in which only the exported functions are visible."""
    module, *others = map(llvm.parse_assembly, draft.modules)
    for other in others:
        module.link_in(other)
    for name in draft.hidden:
        module.get_function(name).linkage = llvm.Linkage.internal
    module.verify()
    return module


def optimise(module: Any, machine: Any, tuning: Any) -> Any:
    """Run LLVM's standard passes, and return the pass builder for further passes."""
    builder = llvm.create_pass_builder(machine, tuning)
    _run(builder.getModulePassManager(), module, builder)
    return builder


def _define(module: Any, builder: Any) -> None:
    """Define the functions that the optimiser knew by their declarations only."""
    declared = {function.name for function in module.functions if function.is_declaration}
    missing = [(functions, text) for functions, text in SOURCES if not declared.isdisjoint(functions)]
    if not missing:
        return
    for functions, text in missing:
        module.link_in(llvm.parse_assembly(text()))
        for name in functions:
            module.get_function(name).linkage = llvm.Linkage.internal
    passes = llvm.create_new_module_pass_manager()
    passes.add_always_inliner_pass()
    passes.add_global_dead_code_eliminate_pass()
    _run(passes, module, builder)


def _run(passes: Any, module: Any, builder: Any) -> None:
    """Run passes and free the pass manager. `ModulePassManager` does not free it because of the order of
    its base classes; each compilation would leak 75 KiB.
    """
    try:
        passes.run(module, builder)
    finally:
        NewPassManager._dispose(passes)
        passes.detach()


def _tuning(*, has_rows: bool) -> Any:
    """Return the settings of LLVM's optimiser: loops are vectorised, and straight-line code if it has rows.
    The loop vectoriser itself interleaves several vectors; unrolling would double the compile time for the
    sake of remainder loops.
    """
    tuning = llvm.create_pipeline_tuning_options(SPEED)
    tuning.loop_vectorization = True
    tuning.slp_vectorization = has_rows
    tuning.loop_unrolling = False
    return tuning
