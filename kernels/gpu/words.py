"""Intrinsics of GPU kernels besides loads and stores: thread indices, barriers, shared memory.

    index = block_x() * threads_x() + thread_x()
    cells = shared(0, float32)        # memory of the block of threads; the launch determines its size
    cells[thread_x()] = total
    barrier()                         # all threads of the block have arrived, and see each other's writes
    lower(failure, status)            # the minimum over all threads

All numbers are int64. `tracejit.kernels.gpu.target` compiles the intrinsics to PTX. A simulator replaces them
by defining the functions with LLVM's names, which are listed here.
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
"""LLVM's number for the address space of shared memory."""

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
"""The intrinsics that read special registers, and the names of the registers."""


def _reading(word, doc):
    """Return the intrinsic that reads one of `REGISTERS`."""

    def typed(typingctx):
        def codegen(context, builder, signature, args):
            kind = ir.FunctionType(ir.IntType(32), [])
            name = f"llvm.nvvm.read.ptx.sreg.{REGISTERS[word]}"
            read = cgutils.get_or_insert_function(builder.module, kind, name)
            return builder.zext(builder.call(read, []), I64)

        return types.int64(), codegen

    typed.__name__ = typed.__qualname__ = word
    typed.__doc__ = doc
    return intrinsic(typed)


thread_x = _reading("thread_x", "Return the index of this thread in its block, along x.")
thread_y = _reading("thread_y", "Return the index of this thread in its block, along y.")
threads_x = _reading("threads_x", "Return the number of threads of a block along x.")
threads_y = _reading("threads_y", "Return the number of threads of a block along y.")
block_x = _reading("block_x", "Return the index of this thread's block, along x.")
block_y = _reading("block_y", "Return the index of this thread's block, along y.")
blocks_x = _reading("blocks_x", "Return the number of blocks along x.")
blocks_y = _reading("blocks_y", "Return the number of blocks along y.")


@intrinsic
def barrier(typingctx):
    """Wait for all threads of the block. Afterwards all threads see the writes that any of them made
    before.
    """

    def codegen(context, builder, signature, args):
        kind = ir.FunctionType(ir.VoidType(), [ir.IntType(32)])
        function = cgutils.get_or_insert_function(builder.module, kind, BARRIER)
        function.attributes.add("convergent")
        builder.call(function, [ir.Constant(ir.IntType(32), 0)])
        return context.get_dummy_value()

    return types.void(), codegen


@intrinsic
def shared(typingctx, offset, dtype):
    """Return a typed pointer to the block's shared memory at byte `offset`."""
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
    """Replace the int64 at `address` by its minimum with `value`, atomically."""

    def codegen(context, builder, signature, args):
        pointer = builder.inttoptr(args[0], I64.as_pointer(1))
        builder.atomic_rmw("min", pointer, args[1], "monotonic")
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), codegen
