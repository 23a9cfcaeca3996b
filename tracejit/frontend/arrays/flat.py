"""`FlatArray`, the type of ``x.flat``: the elements of an array as one dimension.

Reads return copies, and assignments change the array. Values are repeated if there are fewer than elements.

>>> import tracejit as tj
>>> x = tj.zeros((2, 3))
>>> x.flat[::2] = [1, 2]
>>> x
NDArray([[1., 0., 2.],
         [0., 1., 0.]], dtype=float32)
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tracejit.frontend.arrays.core import ArrayCore
from tracejit.frontend.arrays.functions.creation import asarray
from tracejit.frontend.arrays.functions.placing import cycled, numbered, write_flat


class FlatArray:
    """The elements of an array in C order, as one dimension."""

    __slots__ = ("base",)

    def __init__(self, base: Any) -> None:
        self.base = base

    def __len__(self) -> int:
        size: int = self.base.size
        return size

    def __iter__(self) -> Iterator[Any]:
        return iter(self.base.ravel())

    def __getitem__(self, index: Any) -> Any:
        return self.base.flatten()[index]

    def __setitem__(self, index: Any, values: Any) -> None:
        if isinstance(values, ArrayCore | np.ndarray | list | tuple):
            positions = numbered(self.base).ravel()[index]
            values = cycled(asarray(values), numbered(positions))
        write_flat(self.base, index, values)
