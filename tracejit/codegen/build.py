"""Numba functions to object code with plain C entry points.

Imports Numba, so nothing but the lazy gate in `tracejit.compile` may import this module.

`build_object` compiles Python functions with Numba's front end (``error_model="numpy"``, no Python objects,
no reference counting), adds for each a C entry point under a name of our choice (Numba's own convention
returns through a pointer), and emits one relocatable object. `tracejit.codegen.link` turns such an object
into addresses.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import llvmlite.binding as llvm
from numba import types
from numba.core import compiler
from numba.core.compiler_lock import global_compiler_lock
from numba.core.registry import cpu_target

from tracejit.codegen.link import initialize

KERNEL = types.int64(types.int64, types.int64, types.int64, types.int64)
"""Signature of every kernel: ``status = kernel(block, lo, hi, scratch)``."""


@dataclass(frozen=True)
class Entry:
    """One function to compile: its C name, the Python function and its Numba signature (int64 and void
    only)."""

    name: str
    function: Callable[..., Any]
    signature: Any = KERNEL


@dataclass(frozen=True)
class Built:
    """What a compilation gives: object code for the host, and the optimised LLVM IR it came from."""

    object_code: bytes
    llvm_ir: str


def _flags() -> Any:
    flags: Any = compiler.Flags()
    flags.error_model = "numpy"
    flags.nrt = False
    flags.enable_pyobject = False
    flags.no_cpython_wrapper = True
    flags.no_cfunc_wrapper = True
    return flags


def _entry_point(name: str, mangled: str, arity: int, returns: bool) -> str:
    """LLVM text of a C function that calls Numba's `mangled` function."""
    parameters = ", ".join(f"i64 %a{i}" for i in range(arity))
    rest = ", ".join(["ptr %result", "ptr %error", *[f"i64 %a{i}" for i in range(arity)]])
    tail = "%value = load i64, ptr %result\n  ret i64 %value" if returns else "ret void"
    return (
        f'declare i32 @"{mangled}"(ptr, ptr{", i64" * arity})\n'
        f"define {'i64' if returns else 'void'} @{name}({parameters}) {{\n"
        f"  %result = alloca i64\n  %error = alloca ptr\n"
        f'  %status = call i32 @"{mangled}"({rest})\n  {tail}\n}}\n'
    )


@global_compiler_lock
def build_object(entries: Sequence[Entry]) -> Built:
    """Compile `entries` into one object file for this machine."""
    typing, target = cpu_target.typing_context, cpu_target.target_context
    typing.refresh()
    target.refresh()
    module = None
    for entry in entries:
        result = compiler.compile_extra(
            typing, target, entry.function, entry.signature.args, entry.signature.return_type, _flags(), {}
        )
        if module is None:
            module = llvm.parse_assembly(result.library.get_llvm_str())
        else:
            module.link_in(llvm.parse_assembly(result.library.get_llvm_str()))
        mangled = result.fndesc.llvm_func_name
        wrapper = llvm.parse_assembly(
            _entry_point(
                entry.name,
                mangled,
                len(entry.signature.args),
                entry.signature.return_type != types.void,
            )
        )
        wrapper.triple, wrapper.data_layout = module.triple, module.data_layout
        module.link_in(wrapper)
    assert module is not None
    module.verify()
    return Built(initialize().emit_object(module), str(module))
