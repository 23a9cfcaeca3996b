"""Columns of images in slivers, gathered right where a product reads them.

    packed = make_packed_product(dtype, itemsize, make_gathered_slivers(dtype, itemsize))
    packed(weights, (block, x, place), target, ...)       # columns of the image x from the place on

The right operand of a convolution's product has a column for each place and a row for each element of the
window in each channel. A sliver is as many neighbouring places as a tile is wide; it is put together from
*chunks*: some places of one row, at most a vector of them. What a chunk sees in one channel, it sees in all,
a plane further; so addresses and masks are worked out once for each chunk and element of the window, and a
loop over channels is a few instructions. Places beyond the image are zeros by the mask.

Rows of some length are worth that (`are_gathered`); other columns are gathered as whole panels.
"""

from llvmlite import ir
from numba import int64, types
from numba.core import cgutils
from numba.extending import intrinsic

from tracejit.kernels.compiler.memory import I64, slot, vector_type
from tracejit.kernels.compiler.target import subroutine
from tracejit.kernels.gemm.plan import TILE_BYTES, VECTOR_BYTES
from tracejit.kernels.images.window_blocks import Convolution as C

I32 = ir.IntType(32)

LEAST_CHANNELS = 3
"""Channels below which masks and addresses take longer than what they save (one: 1.3 of the time)."""

LEAST_PLACES = 14
"""Places in a row below which too many lanes of a chunk are idle (7: 1.15 of the time)."""


class _Lanes:
    """Vectors of elements at addresses, by masks."""

    def __init__(self, context, builder, element):
        self.builder, self.itemsize = builder, context.get_abi_sizeof(element)
        self.lanes = VECTOR_BYTES // self.itemsize
        self.vector = vector_type(context, element, self.lanes)
        self.suffix = f"v{self.lanes}f{8 * self.itemsize}"

    def between(self, first, last, start=0):
        """The mask of the lanes i for which ``first <= start + i < last``."""
        numbers = ir.Constant(ir.VectorType(I32, self.lanes), list(range(start, start + self.lanes)))
        low, high = (self._spread(self.builder.trunc(bound, I32)) for bound in (first, last))
        below = self.builder.icmp_signed("<", numbers, high)
        return self.builder.and_(self.builder.icmp_signed(">=", numbers, low), below)

    def _spread(self, number):
        vector = ir.VectorType(I32, self.lanes)
        one = self.builder.insert_element(ir.Constant(vector, ir.Undefined), number, I32(0))
        return self.builder.shuffle_vector(one, one, ir.Constant(vector, None))

    def load(self, address, mask):
        place, zero = self.builder.inttoptr(address, self.vector.as_pointer()), ir.Constant(self.vector, None)
        return self._call("load", self.vector, [place, I32(self.itemsize), mask, zero])

    def store(self, value, address, mask):
        place = self.builder.inttoptr(address, self.vector.as_pointer())
        self._call("store", ir.VoidType(), [value, place, I32(self.itemsize), mask])

    def _call(self, what, result, args):
        kind = ir.FunctionType(result, [a.type for a in args])
        name = f"llvm.masked.{what}.{self.suffix}.p0"
        return self.builder.call(cgutils.get_or_insert_function(self.builder.module, kind, name), args)


def _chunk(step):
    """Make the intrinsic ``copy(source, target, seen, count, dtype)``: a chunk of places, `step` (1 or 2)
    elements from one to the next, from `count` planes.

    source: address of what its first place sees (perhaps beyond the image), bytes to the next plane
    target: address of the first place, bytes to the same in the next plane
    seen: first and last place that see the image, and the number of places
    """

    @intrinsic
    def copy(typingctx, source, target, seen, count, dtype):
        def codegen(context, builder, signature, args):
            (x, plane), (y, down), (first, last, places) = (
                cgutils.unpack_tuple(builder, argument) for argument in args[:3]
            )
            work = _Lanes(context, builder, context.get_data_type(dtype.dtype))
            kept = work.between(I64(0), places)
            low, high = (builder.mul(edge, I64(step)) for edge in (first, last))
            high = builder.sub(high, I64(step - 1))  # nothing behind the last element
            masks = [work.between(low, high, half * work.lanes) for half in range(step)]
            with cgutils.for_range(builder, args[3], intp=I64) as loop:
                start = builder.add(x, builder.mul(loop.index, plane))
                halves = [
                    work.load(builder.add(start, I64(half * VECTOR_BYTES)), mask)
                    for half, mask in enumerate(masks)
                ]
                value = halves[0]
                if step == 2:
                    even = ir.Constant(ir.VectorType(I32, work.lanes), list(range(0, 2 * work.lanes, 2)))
                    value = builder.shuffle_vector(*halves, even)
                work.store(value, builder.add(y, builder.mul(loop.index, down)), kept)
            return context.get_dummy_value()

        words = [types.UniTuple(int64, size) for size in (2, 2, 3)]
        return types.void(*words, int64, dtype), codegen

    return copy


copy_neighbours, copy_every_second = _chunk(1), _chunk(2)


@subroutine
def are_gathered(block):
    """Whether slivers are worth it; see the module."""
    strides = slot(block, C.STRIDE_ACROSS) <= 2
    return strides & (slot(block, C.CHANNELS) >= LEAST_CHANNELS) & (slot(block, C.OUT_WIDTH) >= LEAST_PLACES)


@subroutine
def seen_of(left, across, count, width):
    """`inside` for a stride of 1 or 2, without a division."""
    more = across - 1
    start = min(max((-left + more) >> more, 0), count)
    return start, max(min(((width - 1 - left) >> more) + 1, count), start)


def make_gathered_slivers(dtype, itemsize):
    """Make the ``slivers`` of `tracejit.kernels.gemm.packed.make_packed_product`; see the module."""
    lanes = VECTOR_BYTES // itemsize

    @subroutine
    def gather(block, x, place, count, k0, k1, out):
        """Rows `k0` to `k1` of the columns of some places of a row."""
        height, width, places = slot(block, C.HEIGHT), slot(block, C.WIDTH), slot(block, C.OUT_WIDTH)
        across, area = slot(block, C.STRIDE_ACROSS), height * width
        window_width = slot(block, C.WINDOW_WIDTH)
        window = slot(block, C.WINDOW_HEIGHT) * window_width
        top = place // places * slot(block, C.STRIDE_DOWN) - slot(block, C.TOP)
        before = place % places * across - slot(block, C.LEFT)
        begin, end, n = k0 // window, k1 // window, 0
        begin_rest, end_rest = k0 - begin * window, k1 - end * window
        for i in range(slot(block, C.WINDOW_HEIGHT)):
            row = top + i * slot(block, C.DILATION_DOWN)
            for j in range(window_width):
                first = begin + (n < begin_rest)
                channels = end + (n < end_rest) - first
                left = before + j * slot(block, C.DILATION_ACROSS)
                start, stop = seen_of(left, across, count, width)
                if (row < 0) | (row >= height):
                    start, stop = 0, 0
                source = (x + (first * area + row * width + left) * itemsize, area * itemsize)
                target = (out + (first * window + n - k0) * TILE_BYTES, window * TILE_BYTES)
                if across == 1:
                    copy_neighbours(source, target, (start, stop, count), channels, dtype)
                else:
                    copy_every_second(source, target, (start, stop, count), channels, dtype)
                n += 1

    @subroutine
    def slivers(right, at, extents, memory):
        (block, x, place), (j, k, _), (some, wide, _, _) = right, at, extents
        places, done, count = slot(block, C.OUT_WIDTH), 0, wide // itemsize
        while done < count:
            p = place + j // itemsize + done
            size = min(lanes, min(places - p % places, count - done))
            gather(block, x, p, size, k, k + some, memory + done * itemsize)
            done += size
        return (memory, int64(TILE_BYTES), memory), int64(0)

    return slivers
