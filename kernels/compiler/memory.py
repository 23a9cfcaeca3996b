"""Typed access to raw memory, atomics, and calls by address: the intrinsics beneath all kernels and the
executor.

Addresses are ``int64``. Dtypes are passed as Numba types and are compile-time constants.

    block = ...                            # the address of an argument block: an array of 8-byte slots
    n = slot(block, 0)                     # an integer
    c = number_slot(block, 1, float32)
    x = pointer_slot(block, 2, float32)    # the same as pointer(load(block + 16, int64), float32)
    x[i] = x[j] + c                        # typed pointers index without checks and let LLVM vectorise
"""

from __future__ import annotations

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from tracejit.kernels.compiler.code import on_gpu

I64 = ir.IntType(64)
LINE = 64  # bytes of a cache line


BLOCK = types.CPointer(types.int64)
"""The type of an argument block that is passed by value, on a GPU; elsewhere a block is an int64 address."""

GLOBAL_SPACE = 1
"""LLVM's number for the address space of a GPU's global memory."""


def _block(argument):
    """The type of a block parameter to which `argument` is passed."""
    return BLOCK if argument == BLOCK else types.int64


def element_type(argument):
    """The Numba type that a type argument such as `float32` stands for."""
    if isinstance(argument, types.NumberClass):
        return argument.dtype
    raise TypeError(f"expected a Numba number type, got {argument}")


@intrinsic
def pointer(typingctx, address, dtype):
    """Convert `address` to a typed pointer, which can be indexed."""
    result = types.CPointer(element_type(dtype))

    def codegen(context, builder, signature, args):
        return _typed(builder, args[0], context.get_value_type(result))

    return result(types.int64, dtype), codegen


def _typed(builder, address, kind):
    """Convert an address to a pointer; on a GPU, by way of the address space of global memory."""
    if not on_gpu(builder):
        return builder.inttoptr(address, kind)
    return builder.addrspacecast(builder.inttoptr(address, kind.pointee.as_pointer(GLOBAL_SPACE)), kind)


def _slot_address(context, builder, signature, args):
    """The address of slot ``args[1]`` of the block at ``args[0]``; slots may be members of an IntEnum."""
    index = context.cast(builder, args[1], signature.args[1], types.int64)
    if signature.args[0] == BLOCK:
        return builder.gep(args[0], [index])
    is_constant = isinstance(index, ir.Constant)
    return builder.add(args[0], I64(8 * index.constant) if is_constant else builder.shl(index, I64(3)))


@intrinsic
def slot(typingctx, block, index):
    """The integer in a slot of an argument block."""

    def codegen(context, builder, signature, args):
        return builder.load(_slot(builder, _slot_address(context, builder, signature, args)))

    return types.int64(_block(block), index), codegen


def _opaque(builder, value):
    """Return an int64 whose two top bits are equal, in a form that LLVM does not analyse: shifted left and
    right by one bit, which leaves it unchanged.
    """
    return builder.ashr(builder.shl(value, I64(1)), I64(1))


@intrinsic
def stride_slot(typingctx, block, index):
    """The stride in a slot of an argument block, for an operand that is not contiguous along the loop.

    LLVM speculates that an unknown stride is 1: it vectorises the loop for that case and runs a scalar loop
    in all others. It does not see that an opaque value is an unmodified load, and vectorises the loop for any
    stride.
    """

    def codegen(context, builder, signature, args):
        stride = builder.load(_slot(builder, _slot_address(context, builder, signature, args)))
        return stride if on_gpu(builder) else _opaque(builder, stride)

    return types.int64(_block(block), index), codegen


@intrinsic
def opaque(typingctx, offset):
    """`offset`, for an index in a loop over many arrays.

    LLVM's strength reduction derives several formulas for each address in a loop from the terms of its
    offset, and chooses among those of all addresses together. With offsets that have one term, it takes half
    the time.
    """

    def codegen(context, builder, signature, args):
        return _opaque(builder, args[0])

    return types.int64(types.int64), codegen


@intrinsic
def number_slot(typingctx, block, index, dtype):
    """The number in a slot of an argument block."""
    element = element_type(dtype)

    def codegen(context, builder, signature, args):
        address = _slot_address(context, builder, signature, args)
        slot_pointer = _slot(builder, address, context.get_data_type(element))
        return context.unpack_value(builder, element, slot_pointer)

    return element(_block(block), index, dtype), codegen


@intrinsic
def pointer_slot(typingctx, block, index, dtype):
    """The address in a slot of an argument block, as a typed pointer."""
    result = types.CPointer(element_type(dtype))

    def codegen(context, builder, signature, args):
        address = builder.load(_slot(builder, _slot_address(context, builder, signature, args)))
        return _typed(builder, address, context.get_value_type(result))

    return result(_block(block), index, dtype), codegen


@intrinsic
def items_in_line(typingctx, pointer):
    """The number of elements of a typed pointer that fit in a cache line."""

    def codegen(context, builder, signature, args):
        return I64(LINE // context.get_abi_sizeof(args[0].type.pointee))

    return types.int64(pointer), codegen


def vector_type(context, element, count):
    """The LLVM vector type to move `count` elements; complex numbers are moved as integers of their size."""
    if isinstance(element, ir.BaseStructType):
        element = ir.IntType(8 * context.get_abi_sizeof(element))
    return ir.VectorType(element, count)


@intrinsic
def load(typingctx, address, dtype):
    """The element of type `dtype` at `address`."""
    element = element_type(dtype)

    def codegen(context, builder, signature, args):
        slot = builder.inttoptr(args[0], context.get_data_type(element).as_pointer())
        return context.unpack_value(builder, element, slot)

    return element(types.int64, dtype), codegen


@intrinsic
def store(typingctx, address, value):
    """Write `value` at `address`."""

    def codegen(context, builder, signature, args):
        slot = builder.inttoptr(args[0], context.get_data_type(value).as_pointer())
        context.pack_value(builder, value, args[1], slot)
        return context.get_dummy_value()

    return types.void(types.int64, value), codegen


def _slot(builder, address, kind=I64):
    """Return a pointer to a slot, given its address or a pointer into a block."""
    if isinstance(address.type, ir.PointerType):
        return builder.bitcast(address, kind.as_pointer())
    return builder.inttoptr(address, kind.as_pointer())


@intrinsic
def load_acquire(typingctx, address):
    """Load an int64 with acquire ordering: writes before the `store_release` that it reads are visible."""

    def codegen(context, builder, signature, args):
        return builder.load_atomic(_slot(builder, args[0]), "acquire", 8)

    return types.int64(types.int64), codegen


@intrinsic
def store_release(typingctx, address, value):
    """Store an int64 with release ordering: it publishes all earlier writes of this thread."""

    def codegen(context, builder, signature, args):
        builder.store_atomic(args[1], _slot(builder, args[0]), "release", 8)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), codegen


@intrinsic
def atomic_add(typingctx, address, amount):
    """Add to an int64 (acquire and release) and return its previous value."""

    def codegen(context, builder, signature, args):
        return builder.atomic_rmw("add", _slot(builder, args[0]), args[1], "acq_rel")

    return types.int64(types.int64, types.int64), codegen


@intrinsic
def compare_exchange(typingctx, address, expected, value):
    """Atomically replace the int64 at `address` by `value` if it equals `expected`; return whether it did.

    The ordering is acquire and release; acquire if the comparison fails.
    """

    def codegen(context, builder, signature, args):
        pair = builder.cmpxchg(_slot(builder, args[0]), args[1], args[2], "acq_rel", "acquire")
        return builder.extract_value(pair, 1)

    return types.boolean(types.int64, types.int64, types.int64), codegen


@intrinsic
def pause(typingctx):
    """Hint to the processor that this is a spin loop (x86 ``pause``; nothing elsewhere)."""

    def codegen(context, builder, signature, args):
        if builder.module.triple.startswith("x86_64"):
            hint = cgutils.get_or_insert_function(
                builder.module, ir.FunctionType(ir.VoidType(), []), "llvm.x86.sse2.pause"
            )
            builder.call(hint, [])
        return context.get_dummy_value()

    return types.void(), codegen


@intrinsic
def copy_bytes(typingctx, target, source, count):
    """Copy `count` bytes; source and target do not overlap."""

    def codegen(context, builder, signature, args):
        target, source = (builder.inttoptr(args[i], cgutils.voidptr_t) for i in (0, 1))
        cgutils.raw_memcpy(builder, target, source, args[2], 1)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), codegen


@intrinsic
def call_kernel(typingctx, function, block, lo, hi, scratch):
    """Call the kernel at address `function`: ``status = kernel(block, lo, hi, scratch)``."""
    signature = types.int64(*[types.int64] * 5)

    def codegen(context, builder, signature, args):
        kind = ir.FunctionType(I64, [I64] * 4)
        return builder.call(builder.inttoptr(args[0], kind.as_pointer()), args[1:])

    return signature, codegen


@intrinsic
def call_c(typingctx, function, arguments):
    """Call the C function at an address, which returns a 32-bit int, with a tuple of int64 arguments."""

    def codegen(context, builder, signature, args):
        words = cgutils.unpack_tuple(builder, args[1])
        words = [
            context.cast(builder, w, kind, types.int64)
            for w, kind in zip(words, signature.args[1].types, strict=True)
        ]
        kind = ir.FunctionType(ir.IntType(32), [I64] * len(words))
        return builder.sext(builder.call(builder.inttoptr(args[0], kind.as_pointer()), words), I64)

    return types.int64(types.int64, arguments), codegen


def external(name, signature):
    """Declare a C function of the process, for kernels to call: ``external("pthread_self", int64())``."""
    return types.ExternalFunction(name, signature)
