"""The table of kernels that slide windows over images.

    IMAGES["conv2d", "float32"]        # a Python function for Numba: status = kernel(block, lo, hi, scratch)

Their interface is that of the kernels of `tracejit.kernels.library.table`; `tracejit.kernels.images.windows`
creates their argument blocks.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable

import numpy as np
from numba import from_dtype

from tracejit.kernels.images.windows import WINDOWS

VARIANTS = ("depthwise", "channelwise", "winograd")
"""Modules whose kernels replace others for the shapes that suit them better."""


def _make(dtype: str) -> dict[tuple[str, str], Callable[[int, int, int, int], int]]:
    """The kernels for `dtype`, a NumPy name."""
    scalar, itemsize = from_dtype(np.dtype(dtype)), np.dtype(dtype).itemsize
    names = dict.fromkeys([*(window.module for window in WINDOWS.values()), *VARIANTS])
    modules = [importlib.import_module(f"tracejit.kernels.images.{name}") for name in names]
    makers = [maker for module in modules for maker in module.MAKERS.items()]
    return {(name, dtype): make(scalar, itemsize) for name, make in makers}


IMAGES = _make("float32") | _make("float64")
"""All kernels over images by operator and dtype; these names are part of the keys of the kernel store."""
