"""Non-temporal stores, which bypass the caches.

A normal store first reads the cache line that it writes and keeps the line in the cache, which is right for
data that is read again soon. If a kernel moves more data than fits in the last-level cache, its results are
evicted before they are read. Fetching their lines then wastes a third of the memory traffic, and the results
evict the inputs. Such a kernel computes a block of results into scratch memory and stores it by cache lines:

    stream(x, first, stage, begin, count)   # x[first + i] = stage[begin + i]

A line that the block shares with its neighbours is stored normally. Non-temporal stores are weakly ordered: a
kernel calls `store_fence` before it returns. `stream_rows` stores several rows:

    stream_rows(x, first, stride, stage, width, rows, count)    # x[first + r * stride + i] = stage[...]
"""

from __future__ import annotations

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from tracejit.kernels.compiler.memory import I64, LINE, items_in_line, vector_type
from tracejit.kernels.compiler.target import subroutine


@intrinsic
def items_to_line(typingctx, target, first):
    """The number of elements before the first cache line that begins at or after element `first`."""

    def codegen(context, builder, signature, args):
        size = context.get_abi_sizeof(args[0].type.pointee)
        address = builder.ptrtoint(builder.gep(args[0], [args[1]]), I64)
        return builder.udiv(builder.and_(builder.neg(address), I64(LINE - 1)), I64(size))

    return types.int64(target, types.int64), codegen


@intrinsic
def stream_line(typingctx, target, index, stage, start):
    """Store a cache line of elements from ``stage[start]`` at ``target[index]``, which begins a line."""

    def codegen(context, builder, signature, args):
        element = args[0].type.pointee
        size = context.get_abi_sizeof(element)
        line = vector_type(context, element, LINE // size).as_pointer()
        destination, source = (builder.bitcast(builder.gep(args[n], [args[n + 1]]), line) for n in (0, 2))
        store = builder.store(builder.load(source, align=size), destination, align=LINE)
        mark = builder.module.add_metadata([ir.Constant(ir.IntType(32), 1)])
        store.set_metadata("nontemporal", mark)
        return context.get_dummy_value()

    return types.void(target, types.int64, stage, types.int64), codegen


@intrinsic
def store_fence(typingctx):
    """Emit a store fence, which orders non-temporal stores before later stores.

    It is needed only on x86. Elsewhere all stores are weakly ordered, and the executor's lock orders
    non-temporal stores as well.
    """

    def codegen(context, builder, signature, args):
        if builder.module.triple.startswith("x86_64"):
            kind = ir.FunctionType(ir.VoidType(), [])
            name = "llvm.x86.sse.sfence"
            fence = builder.module.globals.get(name) or ir.Function(builder.module, kind, name)
            builder.call(fence, [])
        return context.get_dummy_value()

    return types.void(), codegen


@subroutine
def stream(target, first, stage, begin, count):
    """Move ``stage[begin:begin + count]`` to ``target[first:]`` with non-temporal stores."""
    items = items_in_line(target)
    head = min(count, items_to_line(target, first))
    blocked = head + (count - head) // items * items
    for i in range(head):
        target[first + i] = stage[begin + i]
    for i in range(head, blocked, items):
        stream_line(target, first + i, stage, begin + i)
    for i in range(blocked, count):
        target[first + i] = stage[begin + i]


@subroutine
def stream_rows(target, first, stride, stage, width, rows, count):
    """Move `rows` rows of `count` elements, `width` apart in `stage` and `stride` apart in `target`."""
    for r in range(rows):
        stream(target, first + r * stride, stage, r * width, count)
