"""Common helpers of `tj.nn`: conversion of operands to a floating dtype, shape checks, reduction of
losses.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tracejit import ops
from tracejit.errors import ArgumentError, ShapeError, locate
from tracejit.frontend.arrays import dispatch, promotion
from tracejit.frontend.arrays.core import ArrayCore
from tracejit.frontend.arrays.functions import reductions
from tracejit.frontend.arrays.views import expanded
from tracejit.frontend.recording.location import user_location
from tracejit.ir.types import HALVES, is_floating


def _floating_dtype(dtype: np.dtype) -> np.dtype:
    """Return the dtype of a layer's result. Small integers give float32, not float16 as in NumPy's
    functions.
    """
    promoted = promotion.floating(dtype)
    return promoted if is_floating(dtype) else max(promoted, np.dtype("float32"))


def floating(name: str, x: Any) -> Any:
    """Convert `x` to an array of a floating dtype."""
    array = dispatch.as_array(name, x)
    return dispatch.cast(array, _floating_dtype(array.dtype))


def floats(name: str, *arrays: Any) -> list[Any]:
    """Convert `arrays` to their common floating dtype; None is preserved."""
    operands = [None if x is None else dispatch.as_array(name, x) for x in arrays]
    dtype = _floating_dtype(promotion.common_dtype(name, tuple(x for x in operands if x is not None)))
    return [None if x is None else dispatch.cast(x, dtype) for x in operands]


def singles(name: str, *arrays: Any) -> tuple[np.dtype, list[Any]]:
    """Return the common floating dtype of `arrays`, and the arrays in it, or in float32 if it is a half
    dtype: squares would overflow there.
    """
    operands = floats(name, *arrays)
    dtype = next(x.dtype for x in operands if x is not None)
    wide = np.dtype("float32") if dtype in HALVES else dtype
    return dtype, [None if x is None else dispatch.cast(x, wide) for x in operands]


def factor(name: str, x: Any) -> Any:
    """Convert `x` to an operand: an array of a floating dtype, or a number, which is weakly typed."""
    operand = dispatch.as_operand(name, x)
    return floating(name, operand) if isinstance(operand, ArrayCore) else operand


def check_shape(name: str, what: str, x: Any, expected: tuple[int, ...], meaning: str) -> None:
    """Raise ShapeError unless `x` has the expected shape."""
    if x.shape != expected:
        raise locate(
            ShapeError(f"{name}: {what} has shape {x.shape}; expected {expected}, {meaning}"), user_location()
        )


def check_dimensions(name: str, what: str, x: Any, count: int, meaning: str) -> None:
    """Raise ShapeError unless `x` has `count` dimensions."""
    if x.ndim != count:
        raise locate(
            ShapeError(f"{name}: {what} has shape {x.shape}; expected {count} dimensions, {meaning}"),
            user_location(),
        )


def check_choice(name: str, what: str, value: Any, choices: Sequence[str]) -> None:
    """Raise ArgumentError unless `value` is one of the choices."""
    if value not in choices:
        shown = ", ".join(f'"{c}"' for c in choices[:-1]) + f' or "{choices[-1]}"'
        raise locate(ArgumentError(f"{name}: {what} is {shown}, not {value!r}"), user_location())


def where(condition: Any, x1: Any, x2: Any) -> Any:
    """Return `x1` where the condition is true, else `x2`."""
    return dispatch.apply(ops.where, condition, x1, x2)


REDUCTIONS = ("mean", "sum", "none")


def reduced(losses: Any, reduction: str) -> Any:
    """Return the mean of losses, their sum, or the losses themselves."""
    if reduction == "none":
        return losses
    return reductions.mean(losses) if reduction == "mean" else reductions.sum(losses)


def by_channel(name: str, what: str, x: Any, images: Any) -> Any:
    """Reshape `x`, with one number per channel, to broadcast against `images`."""
    channels = images.shape[1]
    if x.shape != (channels,):
        raise locate(
            ShapeError(
                f"{name}: {what} has shape {x.shape}; expected ({channels},), one number for each channel"
            ),
            user_location(),
        )
    return expanded(x, *range(1, images.ndim - 1))
