"""Helpers of generated kernels besides the scalar functions: accumulators, and indices.

They are functions of typed values, like the scalar functions (see `tracejit.kernels.compiler.typed_values`).
`add_reassoc`, `multiply_reassoc` and `multiply_add_reassoc` carry fast-math flags, and no other functions do:
LLVM may reassociate and so vectorise them; nan and infinities keep their meaning.

    total = add_reassoc(total, x)                       # inside a block
    error = error + sum_error(total, block)             # the rounding error of the next line
    total = total + block

    best = maximum(best, rank_float32(x))               # uint32: floats in order, nan above all
    largest = float_of_rank_float32(best)               # equals `maximum` of floats, and is faster
"""

from llvmlite import ir

from tracejit.kernels.compiler.intrinsics import bitcast, bits, floating, select
from tracejit.kernels.compiler.typed_values import WIDTH, TypedValue, compiled, dtype_of
from tracejit.kernels.scalar.building_blocks import two_sum

FLAGS = ("reassoc", "nsz")


def _reordered(instruction, on_scalars):
    """Return a float operation that LLVM may reassociate; `on_scalars` is the operation on Python numbers."""

    def function(x, y):
        if not isinstance(x, TypedValue):
            return on_scalars(x, y)
        return x.like(getattr(x.builder, instruction)(x.value, x.lift(y).value, flags=FLAGS))

    function.__name__ = f"{instruction}_reordered"
    return compiled(function)


def _multiply_add_reordered(x, y, total):
    """``x * y + total``, whose additions LLVM may reassociate; the product is rounded only if the processor
    has no fused multiply-add.
    """
    if not isinstance(x, TypedValue):
        return x * y + total
    kind, module = x.value.type, x.builder.module
    name = f"llvm.fmuladd.f{WIDTH[x.dtype]}"
    function = module.globals.get(name) or ir.Function(module, ir.FunctionType(kind, [kind] * 3), name)
    factors = [x.value, x.lift(y).value, x.lift(total).value]
    return x.like(x.builder.call(function, factors, fastmath=FLAGS))


def _sum_error(total, x):
    """The exact rounding error of ``total + x``."""
    return two_sum(total, x)[1]


def _compensated(total, error):
    """The sum plus its error; after an overflow the error is nan and is ignored."""
    return select(error == error, total + error, total)


def _wrapped_index(index, extent):
    """The index, a negative one counted from the end; 0 if it is out of range, so that memory accesses are
    safe until the kernel fails.
    """
    wrapped = select(index < 0, index + extent, index)
    return select((wrapped >= 0) & (wrapped < extent), wrapped, 0)


def _out_of_range(index, extent):
    """Whether an index is out of range; negative ones count from the end."""
    return (index >= extent) | (index < 0 - extent)


def _first_failure(status, failed, position):
    """The status of a kernel: 1 + `position` of the first failure."""
    return select(failed & (status == 0), position + 1, status)


def _is_extreme(value, extreme):
    """Whether argmax or argmin may select this element: the extreme, or a nan."""
    return (value == extreme) | (value != value)


def _in_order(i):
    """Map the bits of a float to an integer in the same order, or back."""
    width = WIDTH[dtype_of(i)]
    return i ^ ((i >> (width - 1)) & (2 ** (width - 1) - 1))


def _lowest(width):
    """The integer of minus infinity in that order, as an unsigned one."""
    return {32: 0x807FFFFF, 64: 0x800FFFFFFFFFFFFF}[width]


def _rank(x):
    """The position of a float in the order of all floats, from 0 for minus infinity; nan of either sign is
    above infinity.
    """
    width = WIDTH[dtype_of(x)]
    return bitcast(_in_order(bits(x)), f"uint{width}") - _lowest(width)


def _float_of_rank(rank):
    width = WIDTH[dtype_of(rank)]
    return floating(_in_order(bitcast(rank + _lowest(width), f"int{width}")))


rank_float32, rank_float64 = compiled(_rank, "uint32"), compiled(_rank, "uint64")
float_of_rank_float32 = compiled(_float_of_rank, "float32")
float_of_rank_float64 = compiled(_float_of_rank, "float64")
add_reassoc = _reordered("fadd", lambda x, y: x + y)
multiply_reassoc = _reordered("fmul", lambda x, y: x * y)
multiply_add_reassoc = compiled(_multiply_add_reordered)
sum_error = compiled(_sum_error)
compensated = compiled(_compensated)
wrapped_index = compiled(_wrapped_index)
out_of_range = compiled(_out_of_range, "bool")
first_failure = compiled(_first_failure)
is_extreme = compiled(_is_extreme, "bool")
