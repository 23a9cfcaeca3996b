"""Array specifications: a shape and a dtype where an array would stand, to compile ahead of time.

>>> spec((2, 3), "float32")
spec((2, 3), float32)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tracejit.compile import Planned
from tracejit.frontend.arrays import promotion, trees
from tracejit.frontend.arrays.axes import new_shape
from tracejit.frontend.arrays.ndarray import NDArray
from tracejit.frontend.jit import record
from tracejit.frontend.recording.storage import Storage
from tracejit.ir.types import CPU, ArrayType, Device
from tracejit.ir.view import View

if TYPE_CHECKING:
    from tracejit.frontend.jit.jit import Jitted


class Spec:
    """An array that is not there: what `warm`, `graph`, `schedule` and `kernels` need to know of it.

    Make one with `tj.spec`.

    >>> import tracejit as tj
    >>> tj.spec((2, 3)).dtype
    dtype('float32')
    """

    __slots__ = ("device", "dtype", "shape")

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype, device: Device = CPU):
        self.shape, self.dtype, self.device = shape, dtype, device

    def __repr__(self) -> str:
        return f"spec({self.shape}, {self.dtype})"


def spec(shape: Any, dtype: Any = np.float32, device: Device = CPU) -> Spec:
    """The specification of an array of `shape` (an integer or a sequence) and `dtype` on `device`.

    Raises ShapeError for a negative extent, ArgumentError for extents that are no integers, DTypeError for an
    unsupported dtype.

    >>> import tracejit as tj
    >>> total = tj.jit(lambda x: x.sum())
    >>> total.warm(tj.spec((2, 3)))
    >>> float(total(tj.ones((2, 3)))), total.cache_info().traces
    (6.0, 1)
    """
    return Spec(new_shape("spec", shape), promotion.supported("spec", dtype), device)


def _stand_in(leaf: Any) -> Any:
    """An array without memory for a spec; anything else stays."""
    if not isinstance(leaf, Spec):
        return leaf
    storage = Storage(ArrayType(leaf.shape, leaf.dtype, leaf.device))
    return NDArray(storage, View.of_shape(leaf.shape))


def plan_for(jitted: Jitted[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Planned:
    """The memory plan of a call, recorded anew; nothing is run, compiled or kept."""
    args, kwargs = trees.map(_stand_in, (args, kwargs))
    recorded = record.record(
        jitted.__wrapped__, args, kwargs, set(jitted._whole), strict=True, launch=False, compiled=False
    )
    plan: Planned = recorded.result
    return plan


def entry_for(jitted: Jitted[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> record.Signature:
    """The entry of `jitted` for these arguments, recorded and compiled without running anything if it is
    new."""
    if any(isinstance(leaf, Spec) for leaf in trees.leaves((args, kwargs))):
        args, kwargs = trees.map(_stand_in, (args, kwargs))
    with jitted._lock:
        function = jitted.__wrapped__
        recorded = record.record(function, args, kwargs, set(jitted._whole), strict=True, launch=False)
        entry = recorded.entry
        assert entry is not None
        known = next((e for e in jitted._entries if e.requirements == entry.requirements), None)
        if known is not None:
            return known
        jitted._traces += 1
        jitted._add(entry)
        return entry
