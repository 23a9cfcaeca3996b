"""Array specifications: a shape and a dtype in place of an array, to compile ahead of time.

>>> spec((2, 3), "float32")
spec((2, 3), float32)
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from tracejit.errors import ArgumentError, locate
from tracejit.frontend.arrays import promotion, trees
from tracejit.frontend.arrays.axes import new_shape
from tracejit.frontend.arrays.devices import chosen_device
from tracejit.frontend.arrays.ndarray import NDArray
from tracejit.frontend.recording.location import user_location
from tracejit.frontend.recording.storage import Storage
from tracejit.ir.types import CPU, ArrayType, Device
from tracejit.ir.view import View


class Spec:
    """The specification of an array, which `warm`, `graph`, `schedule` and `kernels` accept instead of one.

    `tj.spec` creates it.

    >>> import tracejit as tj
    >>> tj.spec((2, 3)).dtype
    dtype('float32')
    """

    __slots__ = ("device", "dtype", "shape")

    def __init__(self, shape: tuple[Any, ...], dtype: np.dtype, device: Device = CPU):
        self.shape, self.dtype, self.device = shape, dtype, device

    def __repr__(self) -> str:
        return f"spec({self.shape}, {self.dtype})"


def spec(shape: Any, dtype: Any = np.float32, device: Any = None) -> Spec:
    """Return the specification of an array of `shape` (an integer or a sequence) and `dtype` on `device`
    (None: the default device).

    For `tj.export`, an extent may be a name, as in ``("batch", 784)``, or computed from one: ``("2*n", 3)``.
    Raises ShapeError for a negative extent, ArgumentError for an extent that is not an integer, DTypeError
    for an unsupported dtype, DeviceError for an unknown device.

    >>> import tracejit as tj
    >>> total = tj.jit(lambda x: x.sum())
    >>> total.warm(tj.spec((2, 3)))
    >>> float(total(tj.ones((2, 3)))), total.cache_info().traces
    (6.0, 1)
    """
    sizes = (shape,) if isinstance(shape, str) else shape
    if isinstance(sizes, Sequence) and any(isinstance(n, str) for n in sizes):
        extents = tuple(_named_extent(n) if isinstance(n, str) else new_shape("spec", (n,))[0] for n in sizes)
    else:
        extents = new_shape("spec", shape)
    return Spec(extents, promotion.supported("spec", dtype), chosen_device("spec", device))


def _named_extent(text: str) -> Any:
    """Return the extent that a text describes in terms of a name. Raises ArgumentError for other text."""
    # imported here, since the module needs `fractions`, which takes 2 ms to import
    extents = importlib.import_module("tracejit.ir.extents")
    extent = extents.parse(text)
    if len(extent.names()) > 1 or extent.terms.get((), 0) < 0 or min(extent.terms.values()) < 0:
        raise locate(
            ArgumentError(f"spec: {text!r} is no extent: write a name such as 'batch', or '2*n + 1'"),
            user_location(),
        )
    return extents.simplest(extent)


def _stand_in(leaf: Any) -> Any:
    """Return an array without memory for a spec, and any other leaf unchanged."""
    if not isinstance(leaf, Spec):
        return leaf
    for extent in leaf.shape:
        if not isinstance(extent, int):
            raise locate(
                ArgumentError(f"the extent {extent} has no length here; names are for tj.export"),
                user_location(),
            )
    storage = Storage(ArrayType(leaf.shape, leaf.dtype, leaf.device))
    return NDArray(storage, View.of_shape(leaf.shape))


def without_specs(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments of a call with arrays without memory for specs. Arguments without specs are the
    same objects.
    """
    has_specs = any(isinstance(leaf, Spec) for leaf in trees.leaves((args, kwargs)))
    return trees.map(_stand_in, (args, kwargs)) if has_specs else (args, kwargs)
