"""Vectors in kernels over images: masked loads and stores, copies of chunks of rows, sums of products.

A *chunk* is a number of neighbouring output positions, at most a vector of them; it is copied for many rows
with masks that are computed once. Long rows are copied one after another, in the order of memory.
"""

from contextlib import contextmanager

from llvmlite import ir
from numba import int64, types
from numba.core import cgutils
from numba.extending import intrinsic

from tracejit.kernels.compiler.memory import I64, vector_type
from tracejit.kernels.gemm.plan import VECTOR_BYTES

I32 = ir.IntType(32)


class VectorBuilder:
    """Builder of operations on vectors of elements at addresses, masked or not."""

    def __init__(self, context, builder, element):
        self.builder, self.itemsize = builder, context.get_abi_sizeof(element)
        self.count = VECTOR_BYTES // self.itemsize
        self.vector = vector_type(context, element, self.count)
        self.suffix = f"v{self.count}f{8 * self.itemsize}"

    def mask_between(self, first, last, start=0):
        """The mask of the lanes i for which ``first <= start + i < last``."""
        numbers = ir.Constant(ir.VectorType(I32, self.count), list(range(start, start + self.count)))
        low, high = (self._broadcast(self.builder.trunc(bound, I32)) for bound in (first, last))
        below = self.builder.icmp_signed("<", numbers, high)
        return self.builder.and_(self.builder.icmp_signed(">=", numbers, low), below)

    def mask_below(self, last):
        """The mask of the lanes i for which ``i < last``."""
        numbers = ir.Constant(ir.VectorType(I32, self.count), list(range(self.count)))
        return self.builder.icmp_signed("<", numbers, self._broadcast(self.builder.trunc(last, I32)))

    @contextmanager
    def each_vector(self, count):
        """A loop over the vectors of `count` elements. Yields (elements before the vector, bytes
        before it).
        """
        rounded_up = self.builder.add(count, I64(self.count - 1))
        vector_count = self.builder.sdiv(rounded_up, I64(self.count))
        with cgutils.for_range(self.builder, vector_count, intp=I64) as loop:
            done = self.builder.mul(loop.index, I64(self.count))
            yield done, self.builder.mul(loop.index, I64(VECTOR_BYTES))

    def _broadcast(self, number):
        vector, first = ir.VectorType(number.type, self.count), ir.VectorType(I32, self.count)
        one = self.builder.insert_element(ir.Constant(vector, ir.Undefined), number, I32(0))
        return self.builder.shuffle_vector(one, one, ir.Constant(first, None))

    def load(self, address, mask):
        zero = ir.Constant(self.vector, None)
        return self._call("load", self.vector, [self._pointer_to(address), I32(self.itemsize), mask, zero])

    def store(self, value, address, mask):
        self._call("store", ir.VoidType(), [value, self._pointer_to(address), I32(self.itemsize), mask])

    def read(self, address):
        return self.builder.load(self._pointer_to(address), align=self.itemsize)

    def write(self, value, address):
        self.builder.store(value, self._pointer_to(address), align=self.itemsize)

    def word(self, address, index):
        """The integer at position `index` of an array of int64 at an address."""
        array = self.builder.inttoptr(address, I64.as_pointer())
        return self.builder.load(self.builder.gep(array, [index]))

    def broadcast_number(self, address):
        """The number at an address, broadcast to all lanes."""
        scalar = self.builder.inttoptr(address, self.vector.element.as_pointer())
        return self._broadcast(self.builder.load(scalar))

    def fma(self, x, y, z):
        """The fused multiply-add ``x * y + z``."""
        kind = ir.FunctionType(self.vector, [self.vector] * 3)
        function = cgutils.get_or_insert_function(self.builder.module, kind, f"llvm.fma.{self.suffix}")
        return self.builder.call(function, [x, y, z])

    def prefetch(self, address, write):
        """Prefetch the cache line at an address, for a read or a write."""
        byte = ir.IntType(8).as_pointer()
        kind = ir.FunctionType(ir.VoidType(), [byte, I32, I32, I32])
        function = cgutils.get_or_insert_function(self.builder.module, kind, "llvm.prefetch.p0")
        location = self.builder.inttoptr(address, byte)
        self.builder.call(function, [location, I32(write), I32(2), I32(1)])

    def _pointer_to(self, address):
        return self.builder.inttoptr(address, self.vector.as_pointer())

    def _call(self, operation, result, args):
        kind = ir.FunctionType(result, [a.type for a in args])
        name = f"llvm.masked.{operation}.{self.suffix}.p0"
        return self.builder.call(cgutils.get_or_insert_function(self.builder.module, kind, name), args)


def _chunk(step):
    """Return the intrinsic ``copy(source, target, inside, count, dtype)``, which copies a chunk of positions
    from `count` planes; the inputs of neighbouring positions are `step` elements (1 or 2) apart.

    source: address of the input of the first position (perhaps beyond the image), bytes to the next plane
    target: address of the first position, bytes to the same position in the next plane
    inside: first and last position whose inputs are inside the image, and the number of positions
    """

    @intrinsic
    def copy(typingctx, source, target, inside, count, dtype):
        def codegen(context, builder, signature, args):
            (x, plane), (y, down), (first, last, positions) = (
                cgutils.unpack_tuple(builder, argument) for argument in args[:3]
            )
            vectors = VectorBuilder(context, builder, context.get_data_type(dtype.dtype))
            in_chunk = vectors.mask_between(I64(0), positions)
            low, high = (builder.mul(edge, I64(step)) for edge in (first, last))
            high = builder.sub(high, I64(step - 1))  # exclude the bytes after the last element
            masks = [vectors.mask_between(low, high, half * vectors.count) for half in range(step)]
            with cgutils.for_range(builder, args[3], intp=I64) as loop:
                start = builder.add(x, builder.mul(loop.index, plane))
                loaded = [
                    vectors.load(builder.add(start, I64(half * VECTOR_BYTES)), mask)
                    for half, mask in enumerate(masks)
                ]
                value = loaded[0]
                if step == 2:
                    even = ir.Constant(
                        ir.VectorType(I32, vectors.count), list(range(0, 2 * vectors.count, 2))
                    )
                    value = builder.shuffle_vector(*loaded, even)
                vectors.store(value, builder.add(y, builder.mul(loop.index, down)), in_chunk)
            return context.get_dummy_value()

        words = [types.UniTuple(int64, size) for size in (2, 2, 3)]
        return types.void(*words, int64, dtype), codegen

    return copy


copy_neighbours, copy_every_second = _chunk(1), _chunk(2)


def _rows(step):
    """Return the intrinsic ``copy(source, target, inside, count, dtype)``, which copies `count` rows of
    positions; as the copies of chunks, for any number of positions.
    """

    @intrinsic
    def copy(typingctx, source, target, inside, count, dtype):
        def codegen(context, builder, signature, args):
            (x, plane), (y, down), (first, last, positions) = (
                cgutils.unpack_tuple(builder, argument) for argument in args[:3]
            )
            vectors = VectorBuilder(context, builder, context.get_data_type(dtype.dtype))
            low, high = (builder.mul(edge, I64(step)) for edge in (first, last))
            high = builder.sub(high, I64(step - 1))  # exclude the bytes after the last element
            with cgutils.for_range(builder, args[3], intp=I64) as loop:
                row = builder.add(x, builder.mul(loop.index, plane))
                out = builder.add(y, builder.mul(loop.index, down))
                with vectors.each_vector(positions) as (done, offset):
                    source_start = builder.mul(done, I64(step))
                    bounds = [builder.sub(edge, source_start) for edge in (low, high)]
                    start = builder.add(row, builder.mul(offset, I64(step)))
                    loaded = [
                        vectors.load(
                            builder.add(start, I64(half * VECTOR_BYTES)),
                            vectors.mask_between(*bounds, half * vectors.count),
                        )
                        for half in range(step)
                    ]
                    value = loaded[0]
                    if step == 2:
                        even = list(range(0, 2 * vectors.count, 2))
                        even = ir.Constant(ir.VectorType(I32, vectors.count), even)
                        value = builder.shuffle_vector(*loaded, even)
                    vectors.store(
                        value, builder.add(out, offset), vectors.mask_below(builder.sub(positions, done))
                    )
            return context.get_dummy_value()

        words = [types.UniTuple(int64, size) for size in (2, 2, 3)]
        return types.void(*words, int64, dtype), codegen

    return copy


copy_rows, copy_rows_of_every_second = _rows(1), _rows(2)


@intrinsic
def interleave_rows(typingctx, sources, target, written, count, dtype):
    """Interleave the elements of two rows, for `count` rows.

    sources: addresses of the first rows, bytes to the next ones
    target: address of the first element of the first row, bytes to the next row
    written: first and last element to write
    """

    def codegen(context, builder, signature, args):
        (a, b, down), (y, step), (first, last) = (
            cgutils.unpack_tuple(builder, argument) for argument in args[:3]
        )
        vectors = VectorBuilder(context, builder, context.get_data_type(dtype.dtype))
        n = vectors.count
        shuffles = [
            ir.Constant(ir.VectorType(I32, n), [half * n // 2 + i // 2 + i % 2 * n for i in range(n)])
            for half in range(2)
        ]
        with cgutils.for_range(builder, args[3], intp=I64) as loop:
            row = builder.mul(loop.index, down)
            out = builder.add(y, builder.mul(loop.index, step))
            with vectors.each_vector(builder.lshr(builder.add(last, I64(1)), I64(1))) as (done, offset):
                pair = [vectors.read(builder.add(builder.add(start, row), offset)) for start in (a, b)]
                bounds = [builder.sub(edge, builder.mul(done, I64(2))) for edge in (first, last)]
                destination = builder.add(out, builder.mul(offset, I64(2)))
                for half, shuffle in enumerate(shuffles):
                    address = builder.add(destination, I64(half * VECTOR_BYTES))
                    vectors.store(
                        builder.shuffle_vector(*pair, shuffle),
                        address,
                        vectors.mask_between(*bounds, half * n),
                    )
        return context.get_dummy_value()

    words = [types.UniTuple(int64, size) for size in (3, 2, 2)]
    return types.void(*words, int64, dtype), codegen


def _sums_of_taps(count):
    """Return the intrinsic ``sums(x, out, table, taps, ahead, dtype)`` for `count` neighbouring vectors.

    The vectors at the address `out` are set to the sums, over the entries of a table, of the entry's tap
    times the vectors at the entry's offset from the address `x`.
    table: addresses of offsets in bytes and of numbers of taps, and the number of entries
    taps: address of all taps
    ahead: addresses of as much memory to prefetch, which is read and written next
    """

    @intrinsic
    def sums(typingctx, x, out, table, taps, ahead, dtype):
        def codegen(context, builder, signature, args):
            x, out, table, taps, ahead, _ = args
            offsets, numbers, entries = cgutils.unpack_tuple(builder, table, 3)
            vectors = VectorBuilder(context, builder, context.get_data_type(dtype.dtype))
            totals = [cgutils.alloca_once(builder, vectors.vector) for _ in range(count)]
            for total in totals:
                builder.store(ir.Constant(vectors.vector, None), total)
            for write, address in enumerate(cgutils.unpack_tuple(builder, ahead, 2)):
                for p in range(count):
                    vectors.prefetch(builder.add(address, I64(p * VECTOR_BYTES)), write)
            with cgutils.for_range(builder, entries, intp=I64) as loop:
                offset, number = (vectors.word(address, loop.index) for address in (offsets, numbers))
                tap = vectors.broadcast_number(builder.add(taps, builder.mul(number, I64(vectors.itemsize))))
                start = builder.add(x, offset)
                for p, total in enumerate(totals):
                    value = vectors.read(builder.add(start, I64(p * VECTOR_BYTES)))
                    builder.store(vectors.fma(value, tap, builder.load(total)), total)
            for p, total in enumerate(totals):
                vectors.write(builder.load(total), builder.add(out, I64(p * VECTOR_BYTES)))
            return context.get_dummy_value()

        pair = types.UniTuple(int64, 2)
        return types.void(int64, int64, types.UniTuple(int64, 3), int64, pair, dtype), codegen

    return sums


one_vector, two_vectors, four_vectors, eight_vectors = map(_sums_of_taps, (1, 2, 4, 8))


def _sums_of_positions(count):
    """Return the intrinsic ``sums(out, x, offsets, y, positions, rows, dtype)`` for `count` offsets.

    out: address of a vector for each offset, to which products are added
    x, y: addresses of the first rows, bytes to the next ones; the factors are elements at an offset from x,
        and elements of y
    offsets: address of offsets in bytes; positions: elements of a row; rows: their number
    """

    @intrinsic
    def sums(typingctx, out, x, offsets, y, positions, rows, dtype):
        def codegen(context, builder, signature, args):
            out, x, offsets, y, positions, rows, _ = args
            (x, down), (y, step) = (cgutils.unpack_tuple(builder, operand, 2) for operand in (x, y))
            vectors = VectorBuilder(context, builder, context.get_data_type(dtype.dtype))
            targets = [builder.add(out, I64(t * VECTOR_BYTES)) for t in range(count)]
            starts = [builder.add(x, vectors.word(offsets, I64(t))) for t in range(count)]
            totals = [cgutils.alloca_once(builder, vectors.vector) for _ in range(count)]
            for total, target in zip(totals, targets, strict=True):
                builder.store(vectors.read(target), total)
            vector_count = builder.sdiv(positions, I64(vectors.count))
            tail_mask = vectors.mask_below(
                builder.sub(positions, builder.mul(vector_count, I64(vectors.count)))
            )
            has_tail = builder.icmp_signed("<", builder.mul(vector_count, I64(vectors.count)), positions)

            def add_products(offset, line, row, load):
                value = load(builder.add(builder.add(y, row), offset))
                source_offset = builder.add(line, offset)
                for total, start in zip(totals, starts, strict=True):
                    element = load(builder.add(start, source_offset))
                    builder.store(vectors.fma(value, element, builder.load(total)), total)

            with cgutils.for_range(builder, rows, intp=I64) as loop:
                line, row = (builder.mul(loop.index, row_bytes) for row_bytes in (down, step))
                with cgutils.for_range(builder, vector_count, intp=I64) as inner:
                    add_products(builder.mul(inner.index, I64(VECTOR_BYTES)), line, row, vectors.read)
                with builder.if_then(has_tail):
                    offset = builder.mul(vector_count, I64(VECTOR_BYTES))
                    add_products(offset, line, row, lambda address: vectors.load(address, tail_mask))
            for total, target in zip(totals, targets, strict=True):
                vectors.write(builder.load(total), target)
            return context.get_dummy_value()

        pair = types.UniTuple(int64, 2)
        return types.void(int64, pair, int64, pair, int64, int64, dtype), codegen

    return sums


one_tap, three_taps, nine_taps = map(_sums_of_positions, (1, 3, 9))
