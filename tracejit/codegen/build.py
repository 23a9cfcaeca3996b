"""Numba functions to object code with plain C entry points.

Imports Numba, so nothing but the lazy gate in `tracejit.loader` may import this module.

Two halves, so that one can run beside the other: `draft` runs Numba's front end (Python, one function after
the other), `finish` is LLVM's work. All functions of a draft, and the subroutines they call, become one
module, which is optimised once; for each function it has a C entry point under a name of our choice (Numba's
own convention returns through a pointer), and nothing else is visible from outside.
`tracejit.codegen.link` turns the object into addresses.

    built = finish(draft([Entry("kernel", function)]))        # or build_object([...])
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import llvmlite.binding as llvm
from numba import types

from tracejit.codegen.link import initialize
from tracejit.kernels.target import translate

KERNEL = types.int64(types.int64, types.int64, types.int64, types.int64)
"""Signature of every kernel: ``status = kernel(block, lo, hi, scratch)``."""

SPEED = 3
"""LLVM's level of optimisation."""


@dataclass(frozen=True)
class Entry:
    """One function to compile: its C name, the Python function and its Numba signature (int64 and void
    only)."""

    name: str
    function: Callable[..., Any]
    signature: Any = KERNEL


@dataclass(frozen=True)
class Draft:
    """Functions as LLVM IR before it is optimised: the names to export, the texts of modules, and the names
    of all other functions in them.
    """

    names: tuple[str, ...]
    modules: tuple[str, ...]
    hidden: tuple[str, ...]


@dataclass(frozen=True)
class Built:
    """What a compilation gives: object code for the host, and the optimised LLVM IR it came from."""

    object_code: bytes
    llvm_ir: str


def build_object(entries: Sequence[Entry]) -> Built:
    """Compile `entries` into one object file for this machine."""
    return finish(draft(entries))


def draft(entries: Sequence[Entry]) -> Draft:
    """Numba's part of a compilation."""
    libraries: dict[Any, None] = {}
    entry_points = []
    for entry in entries:
        needed = translate(entry.function, entry.signature)
        libraries.update(dict.fromkeys(needed))
        entry_points.append(_entry_point(entry, needed[0].symbol))
    return Draft(
        names=tuple(entry.name for entry in entries),
        modules=(*(library.text for library in libraries), "\n".join(entry_points)),
        hidden=tuple(name for library in libraries for name in library.defined),
    )


def finish(draft: Draft) -> Built:
    """LLVM's part of a compilation: few calls, as each may have to wait for Python's lock."""
    machine = initialize()
    module, *others = map(llvm.parse_assembly, draft.modules)
    for other in others:
        module.link_in(other)
    for name in draft.hidden:
        module.get_function(name).linkage = llvm.Linkage.internal
    module.verify()
    builder = llvm.create_pass_builder(machine, _tuning())
    builder.getModulePassManager().run(module, builder)
    return Built(machine.emit_object(module), str(module))


def _tuning() -> Any:
    """Settings of LLVM's optimiser: loops become vectors, straight code does not."""
    tuning = llvm.create_pipeline_tuning_options(SPEED)
    tuning.loop_vectorization = True
    tuning.slp_vectorization = False
    return tuning


def _entry_point(entry: Entry, mangled: str) -> str:
    """LLVM text of a C function that calls Numba's `mangled` function."""
    arity = len(entry.signature.args)
    returns = entry.signature.return_type != types.void
    parameters = ", ".join(f"i64 %a{i}" for i in range(arity))
    rest = ", ".join(["ptr %result", "ptr %error", *[f"i64 %a{i}" for i in range(arity)]])
    tail = "%value = load i64, ptr %result\n  ret i64 %value" if returns else "ret void"
    return (
        f'declare i32 @"{mangled}"(ptr, ptr{", i64" * arity})\n'
        f"define {'i64' if returns else 'void'} @{entry.name}({parameters}) {{\n"
        f"  %result = alloca i64\n  %error = alloca ptr\n"
        f'  %status = call i32 @"{mangled}"({rest})\n  {tail}\n}}\n'
    )
