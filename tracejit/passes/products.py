"""Predictions about kernels of matrix products: whether a factor is read in place, whether work is split."""

from __future__ import annotations

from tracejit.ir.graph import Node
from tracejit.ir.types import is_floating
from tracejit.kernels.gemm.plan import is_better_unfused, is_tiled

MAX_ROWS = 64


def would_be_tiled(node: Node) -> bool:
    """Whether the kernel of a product of few rows would read a contiguous second factor in place."""
    if node.output.type.ndim != 2 or not is_floating(node.output.type.dtype):
        return False
    (m, k), (_, n) = (v.type.shape for v in node.inputs)
    return m <= MAX_ROWS and is_tiled(m, n, k)


def would_be_one_unit(product: Node) -> bool:
    """Whether a product of two matrices with an epilogue would be a single large unit of work."""
    x, y = (value.type for value in product.inputs)
    if x.ndim != 2 or not all(isinstance(n, int) for n in (*x.shape, *y.shape)):
        return False  # extents that are not integers differ between the iterations of a loop
    return is_better_unfused(x.shape[0], y.shape[1], x.shape[1], x.dtype.itemsize)
