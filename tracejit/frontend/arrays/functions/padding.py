"""`pad`: extension of arrays at the ends of their axes, in NumPy's modes, one axis after the other.

Modes that repeat elements gather with an integer index, which NumPy's own `pad` computes from the positions.
All other modes join blocks to both ends.

>>> import tracejit as tj
>>> tj.pad(tj.asarray([1, 2, 3]), 2, "reflect")
NDArray([3, 2, 1, 2, 3, 2, 1], dtype=int64)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from tracejit.errors import ArgumentError, ShapeError, locate
from tracejit.frontend.arrays import dispatch
from tracejit.frontend.arrays.axes import integer, normalize_axis
from tracejit.frontend.arrays.core import ArrayCore
from tracejit.frontend.arrays.functions import reductions
from tracejit.frontend.arrays.functions.creation import asarray, empty
from tracejit.frontend.arrays.functions.elementwise import round as rounded
from tracejit.frontend.arrays.functions.manipulation import flip
from tracejit.frontend.arrays.functions.movement import concat, take
from tracejit.frontend.arrays.functions.quantiles import median
from tracejit.frontend.arrays.functions.ranges import linspace
from tracejit.frontend.arrays.public import public
from tracejit.frontend.arrays.views import broadcasted, selected, sliced
from tracejit.frontend.recording.location import user_location

if TYPE_CHECKING:
    from tracejit.frontend.arrays.ndarray import NDArray

BlockMaker = Callable[[Any, int, bool, int, Any], Any]
"""A function that creates the padding at one end from an array, an axis, whether it is the front, the
width, and an option."""


def _at_end(x: Any, axis: int, front: bool, count: int) -> Any:
    """Return the `count` elements at one end of an axis."""
    extent = x.shape[axis]
    return sliced(x, axis, 0, count) if front else sliced(x, axis, extent - count, extent)


def _with_extent(x: Any, axis: int, count: int) -> tuple[int, ...]:
    return (*x.shape[:axis], count, *x.shape[axis + 1 :])


# -- blocks --------------------------------------------------------------------------------------------------


def _constant(x: Any, axis: int, front: bool, count: int, value: Any) -> Any:
    shape = _with_extent(x, axis, count)
    content = asarray(value) if isinstance(value, np.ndarray | list) else value
    if isinstance(content, ArrayCore):
        content = dispatch.cast(content, x.dtype)
    return dispatch.full(content, shape, x.dtype, x.device, "pad")


def _empty(x: Any, axis: int, front: bool, count: int, option: Any) -> Any:
    return empty(_with_extent(x, axis, count), x.dtype, device=x.device)


def _linear_ramp(x: Any, axis: int, front: bool, count: int, value: Any) -> Any:
    edge = selected(x, axis, 0 if front else x.shape[axis] - 1)
    end = value if isinstance(value, ArrayCore) else np.asarray(value)
    ramp = linspace(end, edge, count, endpoint=False, dtype=x.dtype, axis=axis)
    return ramp if front else flip(ramp, axis)


def _statistic(compute: Callable[..., Any], *, rounds: bool) -> BlockMaker:
    """Return the function for blocks of a statistic of the outermost elements, by default of all elements."""

    def block(x: Any, axis: int, front: bool, count: int, length: int | None) -> Any:
        extent = x.shape[axis]
        outermost = _at_end(x, axis, front, extent if length is None else min(length, extent))
        value = compute(outermost, axis=axis, keepdims=True)
        if rounds and x.dtype.kind in "iu":
            value = rounded(value)
        value = dispatch.cast(value, x.dtype)
        return broadcasted(value, _with_extent(x, axis, count))

    return block


BLOCKS: dict[str, tuple[BlockMaker, str, Any]] = {
    "constant": (_constant, "constant_values", 0),
    "empty": (_empty, "", None),
    "linear_ramp": (_linear_ramp, "end_values", 0),
    "maximum": (_statistic(reductions.max, rounds=False), "stat_length", None),
    "mean": (_statistic(reductions.mean, rounds=True), "stat_length", None),
    "median": (_statistic(median, rounds=True), "stat_length", None),
    "minimum": (_statistic(reductions.min, rounds=False), "stat_length", None),
}
"""Modes that join blocks to the ends: the function, the name of its option, and the default of the option."""

REPEATING = {"edge": (), "reflect": ("reflect_type",), "symmetric": ("reflect_type",), "wrap": ()}
"""Modes that repeat elements, and their options."""


# -- reflections of odd type ---------------------------------------------------------------------------------


def _reflected_oddly(x: Any, axis: int, before: int, after: int, *, with_edge: bool) -> Any:
    """Extend both ends by twice the edge minus the reflected elements, repeatedly up to the widths."""
    while before or after:
        maximum = x.shape[axis] - (0 if with_edge else 1)
        if maximum < 1:
            raise locate(ShapeError("pad: one element cannot be reflected"), user_location())
        front, back = min(before, maximum), min(after, maximum)
        ends = [
            2 * _at_end(x, axis, is_front, 1) - flip(_reflected(x, axis, is_front, count, with_edge), axis)
            for is_front, count in ((True, front), (False, back))
        ]
        x = concat([ends[0], x, ends[1]], axis, dtype=x.dtype)
        before, after = before - front, after - back
    return x


def _reflected(x: Any, axis: int, front: bool, count: int, with_edge: bool) -> Any:
    """Return the elements at one end that are reflected."""
    skipped, extent = 0 if with_edge else 1, x.shape[axis]
    if front:
        return sliced(x, axis, skipped, skipped + count)
    return sliced(x, axis, extent - skipped - count, extent - skipped)


# -- pad -----------------------------------------------------------------------------------------------------


def _pairs(what: str, option: Any, ndim: int) -> list[tuple[Any, Any]]:
    """Return an option of `pad` for the front and the back of each axis."""
    try:
        pairs = np.broadcast_to(np.asarray(option, dtype=object), (ndim, 2))
    except ValueError:
        raise locate(
            ShapeError(f"pad: {what} {option} does not broadcast to a pair for each of {ndim} axes"),
            user_location(),
        ) from None
    return [(front, back) for front, back in pairs.tolist()]


def _widths(pad_width: Any, ndim: int) -> list[tuple[int, int]]:
    """Return the widths before and after each axis, checked."""
    if isinstance(pad_width, dict):
        by_axis: list[Any] = [(0, 0)] * ndim
        for axis, width in pad_width.items():
            by_axis[normalize_axis("pad", axis, ndim)] = np.broadcast_to(width, 2).tolist()
        pad_width = by_axis
    widths = [
        (integer("pad: width", front), integer("pad: width", back))
        for front, back in _pairs("pad_width", pad_width, ndim)
    ]
    if any(width < 0 for pair in widths for width in pair):
        raise locate(ShapeError(f"pad: widths must not be negative, got {pad_width}"), user_location())
    return widths


def _check_options(mode: Any, options: dict[str, Any]) -> None:
    if mode in BLOCKS:
        known: tuple[str, ...] = (BLOCKS[mode][1],)
    elif mode in REPEATING:
        known = REPEATING[mode]
    else:
        modes = ", ".join([*BLOCKS, *REPEATING])
        raise locate(ArgumentError(f"pad: mode is one of {modes}, not {mode!r}"), user_location())
    unknown = [name for name in options if name not in known]
    if unknown:
        raise locate(ArgumentError(f"pad: mode {mode!r} does not take {', '.join(unknown)}"), user_location())


@public
def pad(x: Any, pad_width: Any, /, mode: str = "constant", **options: Any) -> NDArray:
    """The array extended at both ends of its axes; the result is a new array.

    pad_width: the number of added elements: an integer, a pair (before, after), a pair for each axis, or a
    dict of these by axis. mode, with its option:

    - "constant": `constant_values` (0), cast to the dtype; "empty": undefined elements
    - "edge": the outermost element; "wrap": the elements of the other end
    - "reflect", "symmetric": reflected at the outermost element or beyond it; `reflect_type` "odd" continues
      the slope: twice the outermost element minus the reflected one
    - "linear_ramp": evenly spaced down to `end_values` (0)
    - "maximum", "minimum", "mean", "median" of the `stat_length` outermost elements, by default of all

    Options have the forms of pad_width. Functions as modes are not supported.
    Raises ArgumentError for other modes and options, ShapeError for negative widths, and for axes without
    elements if the mode needs some.

    >>> import tracejit as tj
    >>> tj.pad(tj.asarray([[1, 2]]), ((1, 0), (0, 2)))
    NDArray([[0, 0, 0, 0],
             [1, 2, 0, 0]], dtype=int64)
    """
    array: Any = asarray(x)
    _check_options(mode, options)
    widths = _widths(pad_width, array.ndim)
    result = array.copy() if not any(map(any, widths)) else array
    if mode in REPEATING:
        kind = options.get("reflect_type", "even")
        if kind not in ("even", "odd"):
            raise locate(
                ArgumentError(f'pad: reflect_type is "even" or "odd", not {kind!r}'), user_location()
            )
        for axis, width in enumerate(widths):
            result = _repeated(result, axis, width, mode, kind == "odd") if any(width) else result
        return result
    block, name, default = BLOCKS[mode]
    option_pairs = _pairs(name, options.get(name, default), array.ndim)
    for axis, (width, option) in enumerate(zip(widths, option_pairs, strict=True)):
        if any(width):
            _check_elements(result, axis, mode)
            ends = [block(result, axis, front, width[i], option[i]) for i, front in enumerate((True, False))]
            result = concat([ends[0], result, ends[1]], axis, dtype=result.dtype)
    return result


def _check_elements(x: Any, axis: int, mode: str) -> None:
    if not x.shape[axis] and mode not in ("constant", "empty"):
        raise locate(
            ShapeError(f"pad: axis {axis} has no elements for mode {mode!r}; use constant or empty"),
            user_location(),
        )


def _repeated(x: Any, axis: int, width: tuple[int, int], mode: str, odd: bool) -> Any:
    """Pad one axis with its own elements."""
    _check_elements(x, axis, mode)
    if odd and mode in ("reflect", "symmetric") and x.shape[axis] > 1:
        return _reflected_oddly(x, axis, *width, with_edge=mode == "symmetric")
    order = np.pad(np.arange(x.shape[axis]), width, mode=mode)  # type: ignore[call-overload]
    return take(x, order, axis=axis)
