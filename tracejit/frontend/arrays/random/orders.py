"""Random permutations of the elements along an axis, and choices among them.

A permutation sorts random 64-bit keys: the probability that two of n keys are equal is below n**2 / 2**65.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracejit import ops
from tracejit.errors import ShapeError
from tracejit.frontend.arrays import dispatch
from tracejit.frontend.arrays.axes import integer, new_shape, normalize_axis
from tracejit.frontend.arrays.core import ArrayCore
from tracejit.frontend.arrays.functions import scans
from tracejit.frontend.arrays.functions.elementwise import clip
from tracejit.frontend.arrays.functions.movement import take
from tracejit.frontend.arrays.functions.sorting import argsort, searchsorted
from tracejit.frontend.arrays.random.discrete import integers
from tracejit.frontend.arrays.random.request import FLOAT64, Draw, accepts_size, refuse
from tracejit.frontend.arrays.random.vectors import check_probabilities
from tracejit.frontend.recording.number import concrete

if TYPE_CHECKING:
    from tracejit.frontend.arrays.ndarray import NDArray
    from tracejit.frontend.arrays.random.generator import Generator


def _order(name: str, count: int, device: Any, generator: Generator | None) -> Any:
    """Return the integers below `count` in random order."""
    return argsort(Draw(name, count, None, device, generator).bits())


def permutation(x: Any, axis: int = 0, *, device: Any = None, generator: Generator | None = None) -> NDArray:
    """The slices of an array along an axis in random order; for an integer n, the integers below n.

    Raises ArgumentError for a negative integer, AxisError for an axis out of range.

    >>> import tracejit as tj
    >>> sorted(tj.random.permutation(4).tolist())
    [0, 1, 2, 3]
    """
    name = "random.permutation"
    operand = dispatch.as_operand(name, concrete(x))
    if not isinstance(operand, ArrayCore):
        count = integer(name, operand)
        if count < 0:
            raise refuse(f"{name}: expected an array or an integer of at least 0, got {count}")
        return _order(name, count, device, generator)
    along = normalize_axis(name, axis, operand.ndim)
    return take(operand, _order(name, operand.shape[along], device, generator), axis=along)


def shuffle(x: Any, axis: int = 0, *, device: Any = None, generator: Generator | None = None) -> None:
    """Shuffle the slices of an array along an axis in place.

    Raises ArgumentError for an object that is not an NDArray (use NumPy's `shuffle` for NumPy arrays),
    AxisError for an axis out of range.

    >>> import tracejit as tj
    >>> x = tj.arange(4)
    >>> tj.random.shuffle(x)
    >>> sorted(x.tolist())
    [0, 1, 2, 3]
    """
    if not isinstance(x, ArrayCore):
        raise refuse(f"random.shuffle: expected an NDArray to shuffle in place, got {type(x).__name__}")
    x[...] = permutation(x, axis, device=device, generator=generator)  # type: ignore[index]


@accepts_size
def choice(
    a: Any,
    shape: Any = (),
    replace: bool = True,
    p: Any = None,
    axis: int = 0,
    *,
    device: Any = None,
    generator: Generator | None = None,
) -> NDArray:
    """Randomly chosen slices of an array along an axis; for an integer n, integers below n.

    shape: the shape of the choices, which replaces the axis in the result.
    replace: whether a slice may be chosen repeatedly. Without replacement the slices are in random order.
    p: the probabilities of the slices (None: uniform), shape (n,).
    Method with `p`: inversion of the distribution function; without replacement, the slices with the largest
    log(p) plus Gumbel noise (Efraimidis and Spirakis 2006).
    Raises ArgumentError if there are no slices, for more choices than slices without replacement, for
    negative probabilities or a sum that is not 1; ShapeError for a `p` of another shape, AxisError for an
    axis out of range.

    >>> import tracejit as tj
    >>> tj.random.choice(tj.asarray([3, 5, 7]), 2, p=tj.asarray([0.0, 1.0, 0.0]))
    NDArray([5, 5], dtype=int64)
    """
    name = "random.choice"
    operand = dispatch.as_operand(name, concrete(a))
    is_array = isinstance(operand, ArrayCore)
    along = normalize_axis(name, axis, operand.ndim) if is_array else 0
    count = operand.shape[along] if is_array else integer(name, operand)
    extents = new_shape(name, shape)
    number = 1
    for n in extents:
        number *= n
    if count <= 0 and number:
        raise refuse(f"{name}: cannot choose from {count} elements")
    if not replace and number > count:
        raise refuse(f"{name}: cannot choose {number} of {count} elements without replacement")
    options = {"device": device, "generator": generator}
    probabilities = None if p is None else check_probabilities(name, "p", p)
    if probabilities is not None and probabilities.shape != (count,):
        raise refuse(f"{name}: p has shape {probabilities.shape} for {count} elements", ShapeError)
    indices = _chosen(name, count, number, replace, probabilities, options).reshape(extents)
    return take(operand, indices, axis=along) if is_array else indices


def _chosen(name: str, count: int, number: int, replace: bool, p: Any, options: Any) -> Any:
    """Choose `number` integers below `count`."""
    if p is None:
        if replace:
            return integers(0, max(count, 1), number, **options)
        return _order(name, count, **options)[:number]
    draw = Draw(name, number if replace else count, FLOAT64, **options)
    if replace:
        ends = scans.cumulative_sum(p)
        return clip(searchsorted(ends, draw.unit() * ends[-1], side="right"), None, count - 1)
    noise = -dispatch.apply(ops.log, -dispatch.apply(ops.log, draw.open_unit()))
    return argsort(dispatch.apply(ops.log, p) + noise, descending=True)[:number]


__all__ = ["choice", "permutation", "shuffle"]
