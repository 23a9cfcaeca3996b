"""The compiler's target for GPUs: the front end of `tracejit.kernels.compiler.target`, with another machine.

A kernel is a Python function of one argument, a pointer to the slots of its argument block, which a launch
passes by value:

    library, = translate(kernel, "kernel")       # LLVM IR for LLVM's NVPTX back end, not optimised

`entry_point` is the text of the function that a driver launches; it has the block as its parameter.
`indirect_entry_point` is the one for graphs, where blocks lie in the device's memory.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import llvmlite.binding as llvm
from numba import types
from numba.core.target_extension import dispatcher_registry, target_registry

from tracejit.kernels.compiler import target as host
from tracejit.kernels.compiler.code import KernelCodegen, Library
from tracejit.kernels.executor.layout import NEVER

NAME = "tracejit gpu"
"""The name of this target in Numba's registry."""

TRIPLE = "nvptx64-nvidia-cuda"
"""LLVM's name for GPUs of NVIDIA and their driver."""

KERNEL = types.void(types.CPointer(types.int64))
"""Signature of every kernel: ``kernel(block)``."""

BODY = ".body"
"""The suffix of the name of a kernel's own function."""


PROCESSORS = (75, 80, 86, 87, 89, 90, 100, 120)
"""Kinds of GPUs that LLVM knows, by their compute capability; the driver takes PTX for earlier ones, too."""


def nearest(processor: str) -> str:
    """The latest kind of GPU in `PROCESSORS` whose PTX runs on `processor`.

    >>> nearest("sm_90"), nearest("sm_88"), nearest("sm_131")
    ('sm_90', 'sm_87', 'sm_120')
    """
    capability = int(processor.removeprefix("sm_"))
    return f"sm_{max(known for known in PROCESSORS if known <= capability)}"


class GpuKernels(host.Kernels):
    """The target's place in Numba's hierarchy."""


@functools.cache
def machine(processor: str) -> llvm.TargetMachine:
    """LLVM's machine for a kind of GPU, ``"sm_90"``."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    return llvm.Target.from_triple(TRIPLE).create_target_machine(cpu=processor, opt=3)


class GpuCodegen(KernelCodegen):
    """Makes empty modules for GPUs."""

    triple = TRIPLE

    def machine(self) -> llvm.TargetMachine:
        return machine("sm_75")  # the layout of data is one for all of them


class GpuLowering(host.Lowering):
    """The lowering context."""

    def init(self) -> None:
        super().init()
        self.code = GpuCodegen()


class GpuTyping(host.Typing):
    """The typing context: a subroutine is compiled again, for GPUs."""

    def __init__(self) -> None:
        super().__init__()
        self.twins: dict[host.Subroutine, host.Subroutine] = {}

    def resolve_value_type(self, val: Any) -> Any:
        """The type of a value that a kernel refers to."""
        if isinstance(val, host.Subroutine):
            val = self.twin(val)
        return super().resolve_value_type(val)

    def twin(self, function: host.Subroutine) -> host.Subroutine:
        """A subroutine whose compiled versions are those of GPUs."""
        if function.targetdescr is TARGET:
            return function
        if function not in self.twins:
            kind = type(function)
            made = type(kind.__name__, (kind,), {"targetdescr": TARGET})
            self.twins[function] = made(
                function.py_func, targetoptions=host.FLAGS, pipeline_class=host.Compiler
            )
        return self.twins[function]


class GpuTarget(host.CompilerTarget):
    """The two contexts, made when first used."""

    @functools.cached_property
    def typing_context(self) -> GpuTyping:
        return GpuTyping()

    @functools.cached_property
    def target_context(self) -> GpuLowering:
        return GpuLowering(self.typing_context, NAME)


TARGET = GpuTarget(NAME)

target_registry[NAME] = GpuKernels
dispatcher_registry[GpuKernels] = host.Subroutine


def translate(function: Callable[..., Any], symbol: str) -> list[Library]:
    """LLVM IR of a kernel named `symbol`, without its entry point."""
    return host.translate(function, KERNEL, symbol + BODY, TARGET)


def entry_point(symbol: str, slots: int) -> str:
    """LLVM IR of the function that is launched: it calls the kernel with the block, its parameter."""
    return f"""target triple = "{TRIPLE}"
declare void @"{symbol}{BODY}"(ptr)
define ptx_kernel void @"{symbol}"(ptr byval([{slots} x i64]) align 8 %block) {{
  call void @"{symbol}{BODY}"(ptr %block)
  ret void
}}
"""


def indirect_entry_point(symbol: str) -> str:
    """LLVM IR of the function that a graph launches: it calls the kernel with the address of its block,
    unless one of some words says that an earlier kernel has failed.
    """
    return f"""target triple = "{TRIPLE}"
declare void @"{symbol}{BODY}"(ptr)
define ptx_kernel void @"{symbol}"(i64 %block, i64 %words, i64 %count) {{
  %first = inttoptr i64 %words to ptr addrspace(1)
  %none = icmp eq i64 %count, 0
  br i1 %none, label %run, label %check
check:
  %i = phi i64 [ 0, %0 ], [ %next, %on ]
  %place = getelementptr i64, ptr addrspace(1) %first, i64 %i
  %word = load volatile i64, ptr addrspace(1) %place
  %failed = icmp ne i64 %word, {NEVER}
  br i1 %failed, label %end, label %on
on:
  %next = add i64 %i, 1
  %more = icmp ult i64 %next, %count
  br i1 %more, label %check, label %run
run:
  %global = inttoptr i64 %block to ptr addrspace(1)
  %generic = addrspacecast ptr addrspace(1) %global to ptr
  call void @"{symbol}{BODY}"(ptr %generic)
  br label %end
end:
  ret void
}}
"""
