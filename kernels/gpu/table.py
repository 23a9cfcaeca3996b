"""Handwritten GPU kernels, except matrix products (`tracejit.codegen.gpu.product`).

    make("max_pool", "float32")        # a Python function for Numba: kernel(block)

Their blocks and launches are defined in `tracejit.kernels.gpu.plan`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numba import boolean, from_dtype, int64, uint8

from tracejit.kernels.compiler.memory import pointer, slot
from tracejit.kernels.compiler.target import subroutine
from tracejit.kernels.gpu import fourier, images, reflections, rotations, sorting, systems
from tracejit.kernels.gpu.threads import for_each
from tracejit.kernels.library import table as library
from tracejit.kernels.library.blocks import Pairs, Scatter, ScatterAdd, Search

MAKERS = {
    **sorting.MAKERS,
    **images.MAKERS,
    **systems.MAKERS,
    **reflections.MAKERS,
    **rotations.MAKERS,
    **fourier.MAKERS,
}


ON_EACH_THREAD = {
    "scatter_add": ScatterAdd.OUT + 1,
    "search_sorted": Search.OUT + 1,
    "gcd": Pairs.OUT + 1,
}
"""Operators whose CPU kernel serves GPUs too, and the slot with the number of units. A unit of
``scatter_add`` is some rows of a column.
"""


def on_each_thread(name: str, dtype: str) -> Callable[[int], None]:
    """Return the kernel of an operator in `ON_EACH_THREAD`: the CPU's kernel with one unit per thread."""
    cpu_kernel = subroutine(library.make(name, dtype))

    @subroutine
    def body(block, unit):
        cpu_kernel(block, unit, unit + 1, 0)

    return for_each(ON_EACH_THREAD[name], body)


def scatter(dtype: str) -> Callable[[int], None]:
    """Return the kernel of ``scatter``, which moves elements of `dtype`."""
    word, itemsize = from_dtype(np.dtype(dtype)), np.dtype(dtype).itemsize

    @subroutine
    def body(block, unit):
        n_bytes = slot(block, Scatter.BYTES)
        n_columns = n_bytes // itemsize
        row, column = unit // n_columns, unit % n_columns * itemsize
        index = pointer(slot(block, Scatter.INDEX), int64)
        source = slot(block, Scatter.X) + row * slot(block, Scatter.COUNT) * n_bytes + column
        target = slot(block, Scatter.OUT) + row * slot(block, Scatter.EXTENT) * n_bytes + column
        for p in range(slot(block, Scatter.COUNT)):
            pointer(target + index[p] * n_bytes, word)[0] = pointer(source + p * n_bytes, word)[0]

    return for_each(Scatter.OUT + 1, body)


def make(name: str, dtype: str) -> Callable[[int], None]:
    """Return the kernel of an operator for `dtype`, a NumPy dtype name."""
    if name == "scatter":
        return scatter(dtype)
    if name in ON_EACH_THREAD:
        return on_each_thread(name, dtype)
    scalar = from_dtype(np.dtype(dtype))
    return MAKERS[name](uint8 if scalar == boolean else scalar, np.dtype(dtype).itemsize)
