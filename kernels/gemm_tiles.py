"""Products where nothing is copied: tiles of the result in registers, operands read where they lie.

BLAS first copies its operands into an order of its own, which takes a sixth of the time of a product of few
rows (32 x 128 @ 128 x 512, a step of a recurrent network), and again in each panel of rows. Here a tile of C
stays in registers while A is read element by element and B row by row, a piece of a row at a time:

    for k in range(depth):
        for r in range(rows): tile[r, :] += A[r, k] * B[k, j : j + columns]

B must be contiguous along its rows, and these close together: with far strides each piece is in another page
of memory, and BLAS is the faster (`tracejit.kernels.blas.is_tiled` decides).

Each element of C is a chain of fused multiply-adds in the order of `k`, whatever tile or panel it lies in,
cut after every `DEPTH` of them, so the result does not depend on how C is split.
"""

from __future__ import annotations

from llvmlite import ir
from numba import int64, types
from numba.core import cgutils
from numba.extending import intrinsic

from tracejit.kernels.blas import TILE_BYTES
from tracejit.kernels.code import features
from tracejit.kernels.target import subroutine

DEPTH = 512
"""Rows of B that are multiplied before the tile is written: they fit the cache, and sums stay short."""

I64 = ir.IntType(64)
LETTER = {"float": "f32", "double": "f64"}


def vector_bytes() -> int:
    """Bytes of this machine's vectors."""
    return 64 if features().get("avx512f") else 32 if features().get("avx2") else 16


def are_worth_it() -> bool:
    """Whether tiles are large enough to pay: those of two rows use a row of B for so few products that BLAS,
    which keeps it in the first cache, should be faster. Measured with vectors of 64 bytes only.
    """
    return tile_rows() >= 8


def tile_rows() -> int:
    """Rows of a tile: it takes half of the vector registers (those of 32 bytes are 16, others 32)."""
    size = vector_bytes()
    return (8 if size == 32 else 16) * size // TILE_BYTES


@intrinsic
def tile(typingctx, a, a_down, a_across, b, b_down, c, c_down, rows, depth, add, dtype):
    """One tile: addresses, strides in bytes, and whether the product is added to what C holds. `depth` is at
    least 1. If there are fewer `rows` than a tile has, those left over repeat the last one.
    """

    def codegen(context, builder, signature, args):
        itemsize = dtype.dtype.bitwidth // 8
        _Tile(builder, context.get_data_type(dtype.dtype), itemsize).emit(*args[:-1])
        return context.get_dummy_value()

    return types.void(*[int64] * 9, types.boolean, dtype), codegen


class _Tile:
    """The instructions of a tile."""

    def __init__(self, builder, scalar, itemsize):
        self.builder, self.scalar, self.itemsize = builder, scalar, itemsize
        self.lanes = vector_bytes() // itemsize
        self.vector = ir.VectorType(scalar, self.lanes)
        self.offsets = [I64(offset) for offset in range(0, TILE_BYTES, vector_bytes())]
        kind = ir.FunctionType(self.vector, [self.vector] * 3)
        name = f"llvm.fma.v{self.lanes}{LETTER[str(scalar)]}"
        self.multiply_add = cgutils.get_or_insert_function(builder.module, kind, name)

    def emit(self, a, a_down, a_across, b, b_down, c, c_down, rows, depth, add):
        """A loop over `depth` that carries the tile; then C."""
        builder = self.builder
        left, target = self.row_starts(a, a_down, rows), self.row_starts(c, c_down, rows)
        before, loop = builder.block, builder.append_basic_block("depth")
        after = builder.append_basic_block("tile")
        builder.branch(loop)
        builder.position_at_end(loop)
        k = builder.phi(I64)
        sums = [[builder.phi(self.vector) for _ in self.offsets] for _ in left]
        step, row = builder.mul(k, a_across), builder.add(b, builder.mul(k, b_down))
        pieces = [self.load(builder.add(row, offset), self.vector) for offset in self.offsets]
        totals = []
        for start, old in zip(left, sums, strict=True):
            factor = self.spread(self.load(builder.add(start, step), self.scalar))
            pairs = zip(pieces, old, strict=True)
            totals.append([builder.call(self.multiply_add, [factor, piece, s]) for piece, s in pairs])
        following = builder.add(k, I64(1))
        builder.cbranch(builder.icmp_signed("<", following, depth), loop, after)
        carry = [(k, I64(0), following)]
        for old, new in zip(sums, totals, strict=True):
            carry += [(s, self.constant(0.0), t) for s, t in zip(old, new, strict=True)]
        for carried, start, then in carry:
            carried.add_incoming(start, before)
            carried.add_incoming(then, loop)
        builder.position_at_end(after)
        self.write(totals, target, add)

    def write(self, totals, target, add):
        """The tile to C, all of which is read before, so that a row may be written twice. What is not to be
        added to C is added to -0, which changes nothing.
        """
        builder = self.builder
        places = [
            [self.at(builder.add(row, offset), self.vector) for offset in self.offsets] for row in target
        ]
        old = [[builder.load(place, align=self.itemsize) for place in row] for row in places]
        for row, values, stored in zip(places, totals, old, strict=True):
            for place, value, before in zip(row, values, stored, strict=True):
                more = builder.select(add, before, self.constant(-0.0))
                builder.store(builder.fadd(value, more), place, align=self.itemsize)

    def row_starts(self, base, down, rows):
        """Where the rows of a tile begin."""
        builder, last = self.builder, self.builder.sub(rows, I64(1))
        numbers = [I64(r) for r in range(tile_rows())]
        known = [builder.select(builder.icmp_signed("<", n, last), n, last) for n in numbers]
        return [builder.add(base, builder.mul(down, n)) for n in known]

    def constant(self, number):
        return ir.Constant(self.vector, [self.scalar(number)] * self.lanes)

    def at(self, address, kind):
        return self.builder.inttoptr(address, kind.as_pointer())

    def load(self, address, kind):
        return self.builder.load(self.at(address, kind), align=self.itemsize)

    def spread(self, value):
        """A vector of one number."""
        nothing = ir.Constant(self.vector, ir.Undefined)
        first = self.builder.insert_element(nothing, value, ir.IntType(32)(0))
        places = ir.Constant(ir.VectorType(ir.IntType(32), self.lanes), [0] * self.lanes)
        return self.builder.shuffle_vector(first, nothing, places)


def make_tiled_product(dtype, itemsize):
    """``tiled(a, a_down, a_across, b, b_down, c, c_down, rows, columns, depth, add)``: a panel, its strides
    in elements. `columns` is a multiple of TILE_BYTES / itemsize, `depth` at least 1; `add`: to what C holds.
    """
    most = tile_rows()

    @subroutine
    def tiled(a, a_down, a_across, b, b_down, c, c_down, rows, columns, depth, add):
        left_down, across = a_down * itemsize, a_across * itemsize
        down, target_down, width = b_down * itemsize, c_down * itemsize, columns * itemsize
        for k in range(0, depth, DEPTH):
            left, right = a + k * across, b + k * down
            some, more = min(k + DEPTH, depth) - k, add | (k > 0)
            for j in range(0, width, TILE_BYTES):
                for i in range(0, rows, most):
                    place, target = left + i * left_down, c + i * target_down + j
                    count = rows - i
                    tile(
                        place,
                        left_down,
                        across,
                        right + j,
                        down,
                        target,
                        target_down,
                        count,
                        some,
                        more,
                        dtype,
                    )

    return tiled
