"""The GPU target of the compiler: the front end of `tracejit.kernels.compiler.target` for another machine.

A kernel is a Python function of one argument, a pointer to the slots of its argument block, which a launch
passes by value:

    library, = translate(kernel, "kernel")       # LLVM IR for LLVM's NVPTX back end, not optimised

`entry_point` returns the text of the function that a driver launches, whose parameter is the block.
`indirect_entry_point` is its counterpart for graphs, whose blocks are in device memory.
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
"""LLVM's target triple for NVIDIA GPUs and the CUDA driver."""

KERNEL = types.void(types.CPointer(types.int64))
"""The signature of every kernel: ``kernel(block)``."""

BODY = ".body"
"""The suffix of the name of the function with a kernel's body."""


PROCESSORS = (75, 80, 86, 87, 89, 90, 100, 120)
"""The compute capabilities of the GPUs that LLVM supports. The driver also accepts PTX for earlier GPUs."""


def nearest(processor: str) -> str:
    """Return the latest architecture in `PROCESSORS` whose PTX runs on `processor`.

    >>> nearest("sm_90"), nearest("sm_88"), nearest("sm_131")
    ('sm_90', 'sm_87', 'sm_120')
    """
    capability = int(processor.removeprefix("sm_"))
    return f"sm_{max(supported for supported in PROCESSORS if supported <= capability)}"


class GpuKernels(host.Kernels):
    """The target's class in Numba's target hierarchy."""


@functools.cache
def machine(processor: str) -> llvm.TargetMachine:
    """Return LLVM's target machine for a GPU architecture, ``"sm_90"``."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    return llvm.Target.from_triple(TRIPLE).create_target_machine(cpu=processor, opt=3)


class GpuCodegen(KernelCodegen):
    """Creates empty modules for GPUs."""

    triple = TRIPLE

    def machine(self) -> llvm.TargetMachine:
        return machine("sm_75")  # all GPUs have the same data layout


class GpuLowering(host.Lowering):
    """The lowering context."""

    def init(self) -> None:
        super().init()
        self.code = GpuCodegen()


class GpuTyping(host.Typing):
    """The typing context. Subroutines are compiled separately for GPUs."""

    def __init__(self) -> None:
        super().__init__()
        self.twins: dict[host.Subroutine, host.Subroutine] = {}

    def resolve_value_type(self, val: Any) -> Any:
        """Return the type of a value that a kernel refers to."""
        if isinstance(val, host.Subroutine):
            val = self.twin(val)
        return super().resolve_value_type(val)

    def twin(self, function: host.Subroutine) -> host.Subroutine:
        """Return a subroutine with the same Python function whose compiled versions are for GPUs."""
        if function.targetdescr is TARGET:
            return function
        if function not in self.twins:
            kind = type(function)
            twin_class = type(kind.__name__, (kind,), {"targetdescr": TARGET})
            self.twins[function] = twin_class(
                function.py_func, targetoptions=host.FLAGS, pipeline_class=host.Compiler
            )
        return self.twins[function]


class GpuTarget(host.CompilerTarget):
    """The typing and the lowering context, created at their first use."""

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
    """Return the LLVM IR of a kernel named `symbol`, without its entry point."""
    return host.translate(function, KERNEL, symbol + BODY, TARGET)


def entry_point(symbol: str, slots: int) -> str:
    """Return the LLVM IR of the function that is launched. It calls the kernel with its parameter, the
    block.
    """
    return f"""target triple = "{TRIPLE}"
declare void @"{symbol}{BODY}"(ptr)
define ptx_kernel void @"{symbol}"(ptr byval([{slots} x i64]) align 8 %block) {{
  call void @"{symbol}{BODY}"(ptr %block)
  ret void
}}
"""


def indirect_entry_point(symbol: str) -> str:
    """Return the LLVM IR of the function that a graph launches. It calls the kernel with the address of
    its block, unless one of the status words reports that an earlier kernel has failed.
    """
    return f"""target triple = "{TRIPLE}"
declare void @"{symbol}{BODY}"(ptr)
define ptx_kernel void @"{symbol}"(i64 %block, i64 %words, i64 %count) {{
  %first = inttoptr i64 %words to ptr addrspace(1)
  %none = icmp eq i64 %count, 0
  br i1 %none, label %run, label %check
check:
  %i = phi i64 [ 0, %0 ], [ %next, %on ]
  %address = getelementptr i64, ptr addrspace(1) %first, i64 %i
  %word = load volatile i64, ptr addrspace(1) %address
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
