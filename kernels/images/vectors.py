"""Vectors in kernels over images: loads and stores by masks, copies of chunks of rows, sums of products.

A *chunk* is some neighbouring places, at most a vector of them; its copies go over many rows with masks that
are worked out once. Whole rows are read and written in the order in which they lie, as memory likes it.
"""

from contextlib import contextmanager

from llvmlite import ir
from numba import int64, types
from numba.core import cgutils
from numba.extending import intrinsic

from tracejit.kernels.compiler.memory import I64, vector_type
from tracejit.kernels.gemm.plan import VECTOR_BYTES

I32 = ir.IntType(32)


class Lanes:
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

    def below(self, last):
        """The mask of the lanes i for which ``i < last``."""
        numbers = ir.Constant(ir.VectorType(I32, self.lanes), list(range(self.lanes)))
        return self.builder.icmp_signed("<", numbers, self._spread(self.builder.trunc(last, I32)))

    @contextmanager
    def vectors(self, count):
        """A loop over the vectors of `count` elements: (elements before one, bytes before it)."""
        whole = self.builder.add(count, I64(self.lanes - 1))
        number = self.builder.sdiv(whole, I64(self.lanes))
        with cgutils.for_range(self.builder, number, intp=I64) as loop:
            done = self.builder.mul(loop.index, I64(self.lanes))
            yield done, self.builder.mul(loop.index, I64(VECTOR_BYTES))

    def _spread(self, number):
        vector, first = ir.VectorType(number.type, self.lanes), ir.VectorType(I32, self.lanes)
        one = self.builder.insert_element(ir.Constant(vector, ir.Undefined), number, I32(0))
        return self.builder.shuffle_vector(one, one, ir.Constant(first, None))

    def load(self, address, mask):
        zero = ir.Constant(self.vector, None)
        return self._call("load", self.vector, [self._place(address), I32(self.itemsize), mask, zero])

    def store(self, value, address, mask):
        self._call("store", ir.VoidType(), [value, self._place(address), I32(self.itemsize), mask])

    def read(self, address):
        return self.builder.load(self._place(address), align=self.itemsize)

    def write(self, value, address):
        self.builder.store(value, self._place(address), align=self.itemsize)

    def word(self, address, index):
        """Number `index` of the integers at an address."""
        place = self.builder.inttoptr(address, I64.as_pointer())
        return self.builder.load(self.builder.gep(place, [index]))

    def repeated(self, address):
        """The number at an address, in all lanes."""
        place = self.builder.inttoptr(address, self.vector.element.as_pointer())
        return self._spread(self.builder.load(place))

    def fma(self, x, y, z):
        """``x * y + z``, rounded once."""
        kind = ir.FunctionType(self.vector, [self.vector] * 3)
        function = cgutils.get_or_insert_function(self.builder.module, kind, f"llvm.fma.{self.suffix}")
        return self.builder.call(function, [x, y, z])

    def prefetch(self, address, write):
        """Prefetch the line at an address, to be read or written soon."""
        byte = ir.IntType(8).as_pointer()
        kind = ir.FunctionType(ir.VoidType(), [byte, I32, I32, I32])
        function = cgutils.get_or_insert_function(self.builder.module, kind, "llvm.prefetch.p0")
        place = self.builder.inttoptr(address, byte)
        self.builder.call(function, [place, I32(write), I32(2), I32(1)])

    def _place(self, address):
        return self.builder.inttoptr(address, self.vector.as_pointer())

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
            work = Lanes(context, builder, context.get_data_type(dtype.dtype))
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


def _rows(step):
    """Make the intrinsic ``copy(source, target, seen, count, dtype)``: `count` rows of places, `step` (1 or
    2) elements from one place to the next; as the copies of chunks, for any number of places.
    """

    @intrinsic
    def copy(typingctx, source, target, seen, count, dtype):
        def codegen(context, builder, signature, args):
            (x, plane), (y, down), (first, last, places) = (
                cgutils.unpack_tuple(builder, argument) for argument in args[:3]
            )
            work = Lanes(context, builder, context.get_data_type(dtype.dtype))
            low, high = (builder.mul(edge, I64(step)) for edge in (first, last))
            high = builder.sub(high, I64(step - 1))  # nothing behind the last element
            with cgutils.for_range(builder, args[3], intp=I64) as loop:
                row = builder.add(x, builder.mul(loop.index, plane))
                out = builder.add(y, builder.mul(loop.index, down))
                with work.vectors(places) as (done, at):
                    seen_at = builder.mul(done, I64(step))
                    bounds = [builder.sub(edge, seen_at) for edge in (low, high)]
                    start = builder.add(row, builder.mul(at, I64(step)))
                    halves = [
                        work.load(
                            builder.add(start, I64(half * VECTOR_BYTES)),
                            work.between(*bounds, half * work.lanes),
                        )
                        for half in range(step)
                    ]
                    value = halves[0]
                    if step == 2:
                        even = list(range(0, 2 * work.lanes, 2))
                        even = ir.Constant(ir.VectorType(I32, work.lanes), even)
                        value = builder.shuffle_vector(*halves, even)
                    work.store(value, builder.add(out, at), work.below(builder.sub(places, done)))
            return context.get_dummy_value()

        words = [types.UniTuple(int64, size) for size in (2, 2, 3)]
        return types.void(*words, int64, dtype), codegen

    return copy


copy_rows, copy_rows_of_every_second = _rows(1), _rows(2)


@intrinsic
def interleave_rows(typingctx, sources, target, seen, count, dtype):
    """Rows whose elements come from two rows in turn, `count` of them.

    sources: addresses of the first rows, bytes to the next ones
    target: address to which the first element of the first row would go, bytes to the next row
    seen: first and last element that is written
    """

    def codegen(context, builder, signature, args):
        (a, b, down), (y, step), (first, last) = (
            cgutils.unpack_tuple(builder, argument) for argument in args[:3]
        )
        work = Lanes(context, builder, context.get_data_type(dtype.dtype))
        n = work.lanes
        turns = [
            ir.Constant(ir.VectorType(I32, n), [half * n // 2 + i // 2 + i % 2 * n for i in range(n)])
            for half in range(2)
        ]
        with cgutils.for_range(builder, args[3], intp=I64) as loop:
            row = builder.mul(loop.index, down)
            out = builder.add(y, builder.mul(loop.index, step))
            with work.vectors(builder.lshr(builder.add(last, I64(1)), I64(1))) as (done, at):
                pair = [work.read(builder.add(builder.add(start, row), at)) for start in (a, b)]
                bounds = [builder.sub(edge, builder.mul(done, I64(2))) for edge in (first, last)]
                place = builder.add(out, builder.mul(at, I64(2)))
                for half, turn in enumerate(turns):
                    to = builder.add(place, I64(half * VECTOR_BYTES))
                    work.store(builder.shuffle_vector(*pair, turn), to, work.between(*bounds, half * n))
        return context.get_dummy_value()

    words = [types.UniTuple(int64, size) for size in (3, 2, 2)]
    return types.void(*words, int64, dtype), codegen


def _sums_of_taps(count):
    """Make the intrinsic ``sums(x, out, table, taps, ahead, dtype)`` for `count` neighbouring vectors.

    x, out: addresses. The vectors at `out` are the sums, over the entries of a table, of the tap of the entry
    times the vectors at `x` from its offset on. table: addresses of offsets in bytes and of numbers of taps,
    and how many there are; taps: address of all taps. ahead: addresses from which as much is read, and to
    which it is written, next.
    """

    @intrinsic
    def sums(typingctx, x, out, table, taps, ahead, dtype):
        def codegen(context, builder, signature, args):
            x, out, table, taps, ahead, _ = args
            offsets, numbers, entries = cgutils.unpack_tuple(builder, table, 3)
            work = Lanes(context, builder, context.get_data_type(dtype.dtype))
            totals = [cgutils.alloca_once(builder, work.vector) for _ in range(count)]
            for total in totals:
                builder.store(ir.Constant(work.vector, None), total)
            for write, address in enumerate(cgutils.unpack_tuple(builder, ahead, 2)):
                for p in range(count):
                    work.prefetch(builder.add(address, I64(p * VECTOR_BYTES)), write)
            with cgutils.for_range(builder, entries, intp=I64) as loop:
                offset, number = (work.word(address, loop.index) for address in (offsets, numbers))
                tap = work.repeated(builder.add(taps, builder.mul(number, I64(work.itemsize))))
                start = builder.add(x, offset)
                for p, total in enumerate(totals):
                    value = work.read(builder.add(start, I64(p * VECTOR_BYTES)))
                    builder.store(work.fma(value, tap, builder.load(total)), total)
            for p, total in enumerate(totals):
                work.write(builder.load(total), builder.add(out, I64(p * VECTOR_BYTES)))
            return context.get_dummy_value()

        pair = types.UniTuple(int64, 2)
        return types.void(int64, int64, types.UniTuple(int64, 3), int64, pair, dtype), codegen

    return sums


one_vector, two_vectors, four_vectors, eight_vectors = map(_sums_of_taps, (1, 2, 4, 8))


def _sums_of_places(count):
    """Make the intrinsic ``sums(out, x, offsets, y, places, rows, dtype)`` for `count` offsets.

    out: address of a vector for each offset, to which products are added
    x, y: addresses of first rows, bytes to the next ones; what lies at x from an offset on is multiplied by
        what lies at y
    offsets: address of offsets in bytes; places: elements of a row; rows: how many
    """

    @intrinsic
    def sums(typingctx, out, x, offsets, y, places, rows, dtype):
        def codegen(context, builder, signature, args):
            out, x, offsets, y, places, rows, _ = args
            (x, down), (y, step) = (cgutils.unpack_tuple(builder, operand, 2) for operand in (x, y))
            work = Lanes(context, builder, context.get_data_type(dtype.dtype))
            targets = [builder.add(out, I64(t * VECTOR_BYTES)) for t in range(count)]
            starts = [builder.add(x, work.word(offsets, I64(t))) for t in range(count)]
            totals = [cgutils.alloca_once(builder, work.vector) for _ in range(count)]
            for total, target in zip(totals, targets, strict=True):
                builder.store(work.read(target), total)
            whole = builder.sdiv(places, I64(work.lanes))
            rest = work.below(builder.sub(places, builder.mul(whole, I64(work.lanes))))
            has_rest = builder.icmp_signed("<", builder.mul(whole, I64(work.lanes)), places)

            def add_products(at, line, row, load):
                value = load(builder.add(builder.add(y, row), at))
                seen = builder.add(line, at)
                for total, start in zip(totals, starts, strict=True):
                    element = load(builder.add(start, seen))
                    builder.store(work.fma(value, element, builder.load(total)), total)

            with cgutils.for_range(builder, rows, intp=I64) as loop:
                line, row = (builder.mul(loop.index, apart) for apart in (down, step))
                with cgutils.for_range(builder, whole, intp=I64) as inner:
                    add_products(builder.mul(inner.index, I64(VECTOR_BYTES)), line, row, work.read)
                with builder.if_then(has_rest):
                    at = builder.mul(whole, I64(VECTOR_BYTES))
                    add_products(at, line, row, lambda address: work.load(address, rest))
            for total, target in zip(totals, targets, strict=True):
                work.write(builder.load(total), target)
            return context.get_dummy_value()

        pair = types.UniTuple(int64, 2)
        return types.void(int64, pair, int64, pair, int64, int64, dtype), codegen

    return sums


one_tap, three_taps, nine_taps = map(_sums_of_places, (1, 3, 9))
