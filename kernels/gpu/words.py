"""Intrinsics of kernels for GPUs beside loads and stores: indices of threads, barriers, shared memory.

    at = block_x() * threads_x() + thread_x()
    box = shared(0, float32)          # memory of the block of threads; how much there is, the launch says
    box[thread_x()] = total
    barrier()                         # all threads of the block have come here, and see what was written
    lower(failure, status)            # the smallest that any thread says

All numbers are int64. `tracejit.kernels.gpu.target` makes PTX of them; LLVM's names for them here are also
what a simulator defines otherwise.
"""

from __future__ import annotations

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from tracejit.kernels.compiler.memory import I64, element_type

SHARED = "tracejit_shared"
"""The name of a block's shared memory in LLVM IR."""

SHARED_SPACE = 3
"""LLVM's number of the address space of shared memory."""

BARRIER = "llvm.nvvm.barrier.cta.sync.aligned.all"

REGISTERS = {
    "thread_x": "tid.x",
    "thread_y": "tid.y",
    "threads_x": "ntid.x",
    "threads_y": "ntid.y",
    "block_x": "ctaid.x",
    "block_y": "ctaid.y",
    "blocks_x": "nctaid.x",
    "blocks_y": "nctaid.y",
}
"""Words and the registers they read."""


def _reading(word, meaning):
    """The word that reads one of `REGISTERS`."""

    def typed(typingctx):
        def codegen(context, builder, signature, args):
            kind = ir.FunctionType(ir.IntType(32), [])
            name = f"llvm.nvvm.read.ptx.sreg.{REGISTERS[word]}"
            read = cgutils.get_or_insert_function(builder.module, kind, name)
            return builder.zext(builder.call(read, []), I64)

        return types.int64(), codegen

    typed.__name__ = typed.__qualname__ = word
    typed.__doc__ = meaning
    return intrinsic(typed)


thread_x = _reading("thread_x", "The number of this thread in its block, along x.")
thread_y = _reading("thread_y", "The number of this thread in its block, along y.")
threads_x = _reading("threads_x", "How many threads a block has along x.")
threads_y = _reading("threads_y", "How many threads a block has along y.")
block_x = _reading("block_x", "The number of this thread's block, along x.")
block_y = _reading("block_y", "The number of this thread's block, along y.")
blocks_x = _reading("blocks_x", "How many blocks there are along x.")
blocks_y = _reading("blocks_y", "How many blocks there are along y.")


@intrinsic
def barrier(typingctx):
    """A barrier of the block's threads: all see afterwards what each wrote before."""

    def codegen(context, builder, signature, args):
        kind = ir.FunctionType(ir.VoidType(), [ir.IntType(32)])
        function = cgutils.get_or_insert_function(builder.module, kind, BARRIER)
        function.attributes.add("convergent")
        builder.call(function, [ir.Constant(ir.IntType(32), 0)])
        return context.get_dummy_value()

    return types.void(), codegen


@intrinsic
def shared(typingctx, offset, dtype):
    """The block's shared memory from byte `offset` on, as a typed pointer."""
    result = types.CPointer(element_type(dtype))

    def codegen(context, builder, signature, args):
        memory = builder.module.globals.get(SHARED)
        if memory is None:
            kind = ir.ArrayType(ir.IntType(8), 0)
            memory = ir.GlobalVariable(builder.module, kind, SHARED, addrspace=SHARED_SPACE)
            memory.linkage, memory.align = "external", 16
        start = builder.gep(memory, [ir.Constant(I64, 0), args[0]])
        pointer = context.get_value_type(result)
        near = builder.bitcast(start, pointer.pointee.as_pointer(SHARED_SPACE))
        return builder.addrspacecast(near, pointer)

    return result(types.int64, dtype), codegen


@intrinsic
def lower(typingctx, address, value):
    """Write the smaller of `value` and the int64 at `address` there, whoever else does the same meanwhile."""

    def codegen(context, builder, signature, args):
        place = builder.inttoptr(args[0], I64.as_pointer(1))
        builder.atomic_rmw("min", place, args[1], "monotonic")
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), codegen
