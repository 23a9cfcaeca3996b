"""The kernels for GPUs that no fused group makes, but for products (`tracejit.codegen.gpu.product`).

    make("max_pool", "float32")        # a Python function for Numba: kernel(block)

Their blocks and launches are in `tracejit.kernels.gpu.plan`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numba import boolean, from_dtype, uint8

from tracejit.kernels.compiler.target import subroutine
from tracejit.kernels.gpu import fourier, images, reflections, rotations, sorting, systems
from tracejit.kernels.gpu.threads import for_each
from tracejit.kernels.library import table as library
from tracejit.kernels.library.blocks import ScatterAdd

MAKERS = {
    **sorting.MAKERS,
    **images.MAKERS,
    **systems.MAKERS,
    **reflections.MAKERS,
    **rotations.MAKERS,
    **fourier.MAKERS,
}


def scatter_add(dtype: str) -> Callable[[int], None]:
    """The CPU's kernel, a unit for each thread: a thread for some rows of a column."""
    of_units = subroutine(library.make("scatter_add", dtype))

    @subroutine
    def one(block, unit):
        of_units(block, unit, unit + 1, 0)

    return for_each(ScatterAdd.OUT + 1, one)


def make(name: str, dtype: str) -> Callable[[int], None]:
    """The kernel of an operator for `dtype`, a NumPy name."""
    if name == "scatter_add":
        return scatter_add(dtype)
    scalar = from_dtype(np.dtype(dtype))
    return MAKERS[name](uint8 if scalar == boolean else scalar, np.dtype(dtype).itemsize)
