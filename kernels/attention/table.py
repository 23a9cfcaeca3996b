"""The table of attention kernels.

    ATTENTION["attention", "float32"]   # a Python function for Numba: status = kernel(block, lo, hi, scratch)

Their interface is that of the kernels of `tracejit.kernels.library.table`; `tracejit.kernels.attention.plan`
creates their argument blocks.
"""

from __future__ import annotations

from collections.abc import Callable

from numba import float32, float64

from tracejit.kernels.attention.blockwise import make_attention, make_attention_gradient

ATTENTION: dict[tuple[str, str], Callable[[int, int, int, int], int]] = {
    (name, str(dtype)): make(dtype, itemsize)
    for name, make in (("attention", make_attention), ("attention_gradient", make_attention_gradient))
    for dtype, itemsize in ((float32, 4), (float64, 8))
}
"""Both kernels by operator and dtype; these names are part of the keys of the kernel store."""
