"""LLVM's target machine and linker, through llvmlite's Python modules.

A process that compiles imports these modules with Numba. A process that only loads kernels does not need
them: `tracejit.codegen.objects.linker` uses this module only for versions of llvmlite unknown to `orc`.

    built = initialize().emit_object(module)
    addresses, tracker = link("add.1", built, ["kernel"])     # {"kernel": address}
    unload(tracker)
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import llvmlite.binding as llvm

from tracejit.codegen.objects.orc import JIT_LINK


def host() -> tuple[str, str, str]:
    """Return the host's triple, processor name and features, like `tracejit.codegen.objects.linker.host`."""
    return (
        llvm.get_process_triple(),
        llvm.get_host_cpu_name(),
        llvm.get_host_cpu_features().flatten(),
    )


@functools.cache
def initialize() -> llvm.TargetMachine:
    """Return the target machine for this host. Its code is position-independent, so that objects can be
    stored.
    """
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    triple, cpu, features = host()
    return llvm.Target.from_triple(triple).create_target_machine(
        cpu=cpu, features=features + vector_width_feature(features), opt=3, reloc="pic", codemodel="default"
    )


def vector_width_feature(features: str) -> str:
    """Return the feature to append to a processor's features so that LLVM uses 64-byte vectors where
    available.

    For Intel processors LLVM prefers 32 bytes, because the first processors with AVX-512 ran slower with
    64. Those with AVX512-VBMI2 (Ice Lake and later) do not.
    """
    return ",-prefer-256-bit" if "+avx512vbmi2" in features.split(",") else ""


@functools.cache
def _compiler() -> Any:
    initialize()
    return llvm.create_lljit_compiler(use_jit_link=JIT_LINK)


def link(name: str, object_code: bytes, symbols: Sequence[str]) -> tuple[dict[str, int], Any]:
    """Return the addresses of `symbols`, and a tracker for `unload`. `name` becomes the name of a new
    library.
    """
    library = llvm.JITLibraryBuilder().add_object_img(object_code).add_current_process()
    for symbol in symbols:
        library.export_symbol(symbol)
    tracker = library.link(_compiler(), name)
    return {symbol: tracker[symbol] for symbol in symbols}, tracker


def unload(tracker: Any) -> None:
    """Unload a library. Its addresses become invalid."""
    tracker.close()
