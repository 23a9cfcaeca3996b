"""Matrix products within kernels over images: in packed register tiles if the processor supports them, or by
BLAS.

    product(entry, left, right, target, extents, add, workspace)            # C = A @ B, or C += A @ B
    products(entry, left, right, target, extents, batch, add, workspace)    # C[n] = A @ B[n], or +=

left, right: address, leading stride, whether the operand is transposed
target: address, leading stride; extents: rows, columns, depth
batch: number of products, distances of their right operands and of their targets (`ONE`: a single product)
entry: address of `?gemm`
workspace: address of `tracejit.kernels.images.windows.PACKING` bytes of scratch memory

Strides count elements.
"""

from tracejit.kernels.compiler.target import subroutine
from tracejit.kernels.gemm.calls import NOT_TRANSPOSED, ROW_MAJOR, TRANSPOSED, add_gemm, call_gemm
from tracejit.kernels.gemm.packed import ONE, make_packed_product
from tracejit.kernels.gemm.plan import NEAR_BYTES, TILED, WIDE_BYTES
from tracejit.kernels.gemm.tiles import tiles_are_profitable


@subroutine
def strided(operand, itemsize):
    """The operand as (address, stride between rows, stride between columns), in bytes."""
    address, leading, transposed = operand
    if transposed:
        return address, itemsize, leading * itemsize
    return address, leading * itemsize, itemsize


def make_blas_product(dtype):
    """Return the product by BLAS, which needs no workspace."""

    @subroutine
    def by_blas(entry, left, right, target, extents, add):
        (a, a_leading, a_transposed), (b, b_leading, b_transposed) = left, right
        (c, c_leading), (rows, columns, depth) = target, extents
        flags = (
            TRANSPOSED if a_transposed else NOT_TRANSPOSED,
            TRANSPOSED if b_transposed else NOT_TRANSPOSED,
        )
        operands = (a, a_leading, b, b_leading, c, c_leading)
        call = (ROW_MAJOR, *flags, rows, columns, depth, *operands)
        if add:
            add_gemm(entry, call, dtype)
        else:
            call_gemm(entry, call, dtype)

    return by_blas


def make_products(dtype, itemsize):
    """Return ``products``, which share their left operand; see the module docstring."""
    by_blas = make_blas_product(dtype)

    @subroutine
    def one_by_one(entry, left, right, target, extents, batch, add):
        (b, b_leading, transposed), (c, leading), (count, b_step, c_step) = right, target, batch
        for n in range(count):
            operand = (b + n * b_step * itemsize, b_leading, transposed)
            by_blas(entry, left, operand, (c + n * c_step * itemsize, leading), extents, add)

    if not tiles_are_profitable():

        @subroutine
        def unpacked(entry, left, right, target, extents, batch, add, workspace):
            one_by_one(entry, left, right, target, extents, batch, add)

        return unpacked

    packed = make_packed_product(dtype, itemsize)

    @subroutine
    def products(entry, left, right, target, extents, batch, add, workspace):
        (rows, columns, depth), (c, leading), (count, b_step, c_step) = extents, target, batch
        if min(rows, columns) < TILED or depth < 2:
            one_by_one(entry, left, right, target, extents, batch, add)
            return
        row_bytes, (_, _, transposed) = columns * itemsize, left
        copied = (rows * depth * itemsize > NEAR_BYTES) & ((count * row_bytes >= WIDE_BYTES) | transposed)
        packed(
            strided(left, itemsize),
            strided(right, itemsize),
            (c, leading * itemsize),
            (rows, row_bytes, depth),
            add,
            copied,
            workspace,
            (count, b_step * itemsize, c_step * itemsize),
        )

    return products


def make_product(dtype, itemsize):
    """Return ``product``, a single one of `make_products`; see the module docstring."""
    products = make_products(dtype, itemsize)

    @subroutine
    def product(entry, left, right, target, extents, add, workspace):
        products(entry, left, right, target, extents, ONE, add, workspace)

    return product
