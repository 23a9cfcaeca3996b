"""Object code to addresses, through llvmlite's ORC, without Numba.

>>> link("empty", b"", [])
Traceback (most recent call last):
...
ValueError: no object code for 'empty'
"""

from __future__ import annotations

import functools
import itertools
import threading
from collections.abc import Iterable
from typing import Any

import llvmlite.binding as llvm

_LINKED: list[Any] = []  # a linked library lives as long as the process: its addresses are in use
_SERIAL = itertools.count()
_LOCK = threading.Lock()


@functools.cache
def host() -> tuple[str, str, str]:
    """Triple, processor name and feature string of this machine: part of every store key."""
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
        cpu=cpu, features=features, opt=3, reloc="pic", codemodel="default"
    )


@functools.cache
def _compiler() -> Any:
    initialize()
    return llvm.create_lljit_compiler()


def link(name: str, object_code: bytes, symbols: Iterable[str]) -> dict[str, int]:
    """Load an object into the process and return the addresses of `symbols`.

    Undefined symbols are looked up in the process (the C library).
    """
    if not object_code:
        raise ValueError(f"no object code for {name!r}")
    library = llvm.JITLibraryBuilder().add_object_img(object_code).add_current_process()
    symbols = list(symbols)
    for symbol in symbols:
        library.export_symbol(symbol)
    with _LOCK:
        tracker = library.link(_compiler(), f"{name}.{next(_SERIAL)}")
        _LINKED.append(tracker)
    return {symbol: tracker[symbol] for symbol in symbols}
