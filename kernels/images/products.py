"""Matrix products within kernels over images: in packed register tiles if the machine has them, or by BLAS.

    product(entry, left, right, target, extents, add, room)             # C = A @ B, or C += A @ B
    products(entry, left, right, target, extents, batch, add, room)     # C[n] = A @ B[n], or C[n] += A @ B[n]

left, right: address, leading stride, whether the operand is transposed
target: address, leading stride; extents: rows, columns, depth
batch: number of products, distances of their right operands and of their targets (`ONE`: a single product)
entry: address of `?gemm`; room: address of scratch memory, `tracejit.kernels.images.windows.PACKING` bytes

Strides count elements.
"""

from tracejit.kernels.compiler.target import subroutine
from tracejit.kernels.gemm.calls import NOT_TRANSPOSED, ROW_MAJOR, TRANSPOSED, add_gemm, call_gemm
from tracejit.kernels.gemm.packed import ONE, make_packed_product
from tracejit.kernels.gemm.plan import NEAR_BYTES, TILED, WIDE_BYTES
from tracejit.kernels.gemm.tiles import are_worth_it


@subroutine
def strided(operand, itemsize):
    """(address, stride down, across) of an operand, in bytes."""
    address, leading, transposed = operand
    if transposed:
        return address, itemsize, leading * itemsize
    return address, leading * itemsize, itemsize


def make_blas_product(dtype):
    """The product by BLAS; it takes no room."""

    @subroutine
    def by_blas(entry, left, right, target, extents, add):
        (a, a_leading, a_turned), (b, b_leading, b_turned) = left, right
        (c, c_leading), (rows, columns, depth) = target, extents
        flags = (
            TRANSPOSED if a_turned else NOT_TRANSPOSED,
            TRANSPOSED if b_turned else NOT_TRANSPOSED,
        )
        operands = (a, a_leading, b, b_leading, c, c_leading)
        call = (ROW_MAJOR, *flags, rows, columns, depth, *operands)
        if add:
            add_gemm(entry, call, dtype)
        else:
            call_gemm(entry, call, dtype)

    return by_blas


def make_products(dtype, itemsize):
    """Make ``products``, which share their left operand; see the module."""
    by_blas = make_blas_product(dtype)

    @subroutine
    def one_by_one(entry, left, right, target, extents, batch, add):
        (b, b_leading, turned), (c, leading), (count, b_apart, c_apart) = right, target, batch
        for n in range(count):
            of_product = (b + n * b_apart * itemsize, b_leading, turned)
            by_blas(entry, left, of_product, (c + n * c_apart * itemsize, leading), extents, add)

    if not are_worth_it():

        @subroutine
        def plain(entry, left, right, target, extents, batch, add, room):
            one_by_one(entry, left, right, target, extents, batch, add)

        return plain

    packed = make_packed_product(dtype, itemsize)

    @subroutine
    def products(entry, left, right, target, extents, batch, add, room):
        (rows, columns, depth), (c, leading), (count, b_apart, c_apart) = extents, target, batch
        if min(rows, columns) < TILED or depth < 2:
            one_by_one(entry, left, right, target, extents, batch, add)
            return
        wide, (_, _, turned) = columns * itemsize, left
        copied = (rows * depth * itemsize > NEAR_BYTES) & ((count * wide >= WIDE_BYTES) | turned)
        packed(
            strided(left, itemsize),
            strided(right, itemsize),
            (c, leading * itemsize),
            (rows, wide, depth),
            add,
            copied,
            room,
            (count, b_apart * itemsize, c_apart * itemsize),
        )

    return products


def make_product(dtype, itemsize):
    """Make ``product``, a single one of `make_products`; see the module."""
    products = make_products(dtype, itemsize)

    @subroutine
    def product(entry, left, right, target, extents, add, room):
        products(entry, left, right, target, extents, ONE, add, room)

    return product
