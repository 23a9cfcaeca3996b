"""Array specifications: a shape and a dtype in place of an array, to compile ahead of time.

>>> spec((2, 3), "float32")
spec((2, 3), float32)
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tracejit import compile
from tracejit.compile import Planned
from tracejit.errors import ArgumentError, locate
from tracejit.frontend.arrays import promotion, trees
from tracejit.frontend.arrays.axes import new_shape
from tracejit.frontend.arrays.devices import chosen_device
from tracejit.frontend.arrays.ndarray import NDArray
from tracejit.frontend.jit import record
from tracejit.frontend.jit.entries import Path
from tracejit.frontend.recording.location import user_location
from tracejit.frontend.recording.storage import Storage
from tracejit.ir.structure import structure
from tracejit.ir.types import CPU, ArrayType, Device
from tracejit.ir.view import View

if TYPE_CHECKING:
    from tracejit.frontend.jit.signatures import Signatures


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


def plan_for(jitted: Signatures, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Planned:
    """Return the memory plan of a call. The call is recorded for it; nothing is run, compiled or cached."""
    args, kwargs = trees.map(_stand_in, (args, kwargs))
    recorded = record.record(
        jitted.__wrapped__, args, kwargs, set(jitted._aliased), strict=True, launch=False, compiled=False
    )
    return compile.plan_graph(recorded.result.graph)


def entry_for(jitted: Signatures, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Path:
    """Return the path of `jitted` for these arguments. A new one is recorded and compiled; nothing is run."""
    if any(isinstance(leaf, Spec) for leaf in trees.leaves((args, kwargs))):
        args, kwargs = trees.map(_stand_in, (args, kwargs))
    with jitted._lock:
        function = jitted.__wrapped__
        recorded = record.record(function, args, kwargs, set(jitted._aliased), strict=True, launch=False)
        entry = recorded.entry
        assert isinstance(entry, Path), "a body that cannot be replayed raises"
        paths = [path for path in jitted._entries if isinstance(path, Path)]
        known = next((path for path in paths if _is_same(path, entry)), None)
        if known is not None:
            return known
        jitted._traces += 1
        jitted._add(entry)
        return entry


def _is_same(known: Path, entry: Path) -> bool:
    """Whether two paths serve the same calls with the same graph."""
    same_calls = known.requirements == entry.requirements and known.pinned == entry.pinned
    return same_calls and structure(known.graph) == structure(entry.graph)
