"""The machine that LLVM compiles for, and its linker, through llvmlite's own Python modules.

A process that compiles imports these modules anyway, with Numba. One that only loads kernels does not need
them: `tracejit.codegen.objects.linker` uses this module for versions of llvmlite that it does not know.

    built = initialize().emit_object(module)
    addresses, tracker = link("add.1", built, ["kernel"])     # {"kernel": address}
    unload(tracker)
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import llvmlite.binding as llvm


def host() -> tuple[str, str, str]:
    """The host's triple, processor and features, as in `tracejit.codegen.objects.linker.host`."""
    return (
        llvm.get_process_triple(),
        llvm.get_host_cpu_name(),
        llvm.get_host_cpu_features().flatten(),
    )


@functools.cache
def initialize() -> llvm.TargetMachine:
    """The target machine for this host; position-independent, so that objects can be stored."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    triple, cpu, features = host()
    return llvm.Target.from_triple(triple).create_target_machine(
        cpu=cpu, features=features + width(features), opt=3, reloc="pic", codemodel="default"
    )


def width(features: str) -> str:
    """The feature to add to a processor's so that LLVM uses vectors of 64 bytes where there are some.

    For Intel's it prefers 32, as the first of them ran slower with 64. Those that have AVX512-VBMI2, Ice Lake
    and later, do not.
    """
    return ",-prefer-256-bit" if "+avx512vbmi2" in features.split(",") else ""


@functools.cache
def _compiler() -> Any:
    initialize()
    return llvm.create_lljit_compiler()


def link(name: str, object_code: bytes, symbols: Sequence[str]) -> tuple[dict[str, int], Any]:
    """Addresses of `symbols`, and what `unload` takes; `name` is that of a new library."""
    library = llvm.JITLibraryBuilder().add_object_img(object_code).add_current_process()
    for symbol in symbols:
        library.export_symbol(symbol)
    tracker = library.link(_compiler(), name)
    return {symbol: tracker[symbol] for symbol in symbols}, tracker


def unload(tracker: Any) -> None:
    """Unload a library; its addresses are invalid from then on."""
    tracker.close()
