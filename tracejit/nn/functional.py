"""Layers as functions: products with weights, embedding tables, one-hot encoding and dropout.

Weights of products have PyTorch's layout, (outputs, inputs).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tracejit import lazy, ops
from tracejit.errors import ArgumentError, DTypeError, locate
from tracejit.frontend.arrays import dispatch, promotion
from tracejit.frontend.arrays.axes import integer, normalize_axis
from tracejit.frontend.arrays.core import ArrayCore
from tracejit.frontend.arrays.functions.linear import matmul
from tracejit.frontend.arrays.functions.manipulation import matrix_transpose
from tracejit.frontend.arrays.functions.ranges import positions
from tracejit.frontend.arrays.ndarray import NDArray
from tracejit.frontend.recording.location import user_location
from tracejit.nn.common import check_dimensions, check_shape, floating, floats

if TYPE_CHECKING:
    from tracejit.frontend.arrays.random import Generator


def linear(x: Any, weight: Any, bias: Any = None, /) -> NDArray:
    """Multiply the vectors along the last dimension by the transpose of `weight`, and add `bias`.

    x: (..., inputs); weight: (outputs, inputs); bias: (outputs,), or None.
    Returns (..., outputs) in the common floating dtype.
    Raises ShapeError if a shape does not match, ArgumentError for an operand that is not an array or a
    number.

    >>> import tracejit as tj
    >>> tj.nn.linear(tj.asarray([1.0, 2.0]), tj.asarray([[1.0, 1.0], [0.0, 1.0]]), tj.ones(2))
    NDArray([4., 3.], dtype=float32)
    """
    array, matrix, shift = floats("nn.linear", x, weight, bias)
    check_dimensions("nn.linear", "weight", matrix, 2, "(outputs, inputs)")
    result = matmul(array, matrix_transpose(matrix))
    if shift is None:
        return result
    check_shape("nn.linear", "bias", shift, matrix.shape[:1], "one number for each output")
    return result + shift


# ---- labels and tables


def class_numbers(name: str, labels: Any) -> Any:
    """Convert class numbers to an int64 array."""
    array = dispatch.as_array(name, labels)
    if array.dtype.kind not in "iu":
        raise locate(DTypeError(f"{name}: labels must be integers, not {array.dtype}"), user_location())
    return dispatch.cast(array, np.dtype("int64"))


def in_range(name: str, labels: Any, classes: int, axis: int) -> Any:
    """Return `labels` with a run-time check of their range; negative labels do not count from the end."""
    outside = dispatch.apply(ops.where, labels < 0, labels - classes, labels)
    what = f"{name}: label {{label}} is out of range; expected 0 to {{last}}"
    return dispatch.emit(ops.check_index, outside, extent=classes, axis=axis, what=what)


def hits(labels: Any, classes: int, axis: int) -> Any:
    """Return a mask, true where the index along the new dimension `axis` of extent `classes` is the label."""
    shape = (*labels.shape[:axis], classes, *labels.shape[axis:])
    broadcast = ArrayCore.new(labels._storage, labels._view.expand(axis).broadcast(shape))
    return positions(shape, axis, labels.device) == broadcast


def one_hot(labels: Any, num_classes: int, /, *, dtype: Any = None, axis: int = -1) -> NDArray:
    """Return an array with a new dimension of extent `num_classes`, 1 at each label and 0 elsewhere (float32
    by default).

    The row of a label outside 0 .. num_classes - 1 is zero.
    labels: integers of any shape.
    Raises DTypeError for other labels, AxisError for an axis out of range.

    >>> import tracejit as tj
    >>> tj.nn.one_hot(tj.asarray([1, 0]), 2)
    NDArray([[0., 1.],
             [1., 0.]], dtype=float32)
    """
    numbers = class_numbers("nn.one_hot", labels)
    position = normalize_axis("nn.one_hot", axis, numbers.ndim + 1)
    result_dtype = np.dtype("float32") if dtype is None else promotion.supported("nn.one_hot", dtype)
    return dispatch.cast(
        hits(numbers, integer("nn.one_hot: num_classes", num_classes), position), result_dtype
    )


def embedding(labels: Any, table: Any, /) -> NDArray:
    """Return the rows of a table at the labels; gradients of rows read several times are summed.

    labels: integers of any shape, from 0 to the number of rows - 1; table: (rows, features).
    Returns an array of shape (*labels.shape, features) in the dtype of the table.
    Raises OutOfBoundsError for a label out of range, DTypeError for labels that are not integers, ShapeError
    for a table of other dimensions.

    >>> import tracejit as tj
    >>> tj.nn.embedding(tj.asarray([1, 1]), tj.asarray([[1.0, 2.0], [3.0, 4.0]]))
    NDArray([[3., 4.],
             [3., 4.]], dtype=float32)
    """
    rows = dispatch.as_array("nn.embedding", table)
    check_dimensions("nn.embedding", "table", rows, 2, "(rows, features)")
    checked = in_range("nn.embedding", class_numbers("nn.embedding", labels), rows.shape[0], 0)
    return dispatch.emit(ops.gather, rows, checked, axis=0)


# ---- dropout


def dropout(x: Any, rate: Any, /, *, training: bool = True, generator: Generator | None = None) -> NDArray:
    """Set each element to 0 with probability `rate` and divide the others by 1 - rate; x if not `training`.

    0 <= rate < 1. Random numbers come from the stream of x's device, or from a generator (see `tj.random`).
    Srivastava et al., Dropout, 2014. Preserves the shape and floating dtypes; integers become floating.
    Raises ArgumentError for a rate outside [0, 1).

    >>> import tracejit as tj
    >>> tj.nn.dropout(tj.ones(3), 0.0)
    NDArray([1., 1., 1.], dtype=float32)
    """
    if not 0 <= rate < 1:
        raise locate(ArgumentError(f"nn.dropout: rate must be in [0, 1), got {rate}"), user_location())
    array = floating("nn.dropout", x)
    if not training:
        return array
    random = lazy.import_module("tracejit.frontend.arrays.random")  # few functions need it
    kept = random.uniform(shape=array.shape, device=array.device, generator=generator) >= rate
    return dispatch.apply(ops.where, kept, array * (1 / (1 - rate)), 0)


__all__ = ["dropout", "embedding", "linear", "one_hot"]
