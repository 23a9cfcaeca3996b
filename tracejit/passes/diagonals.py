"""Detection of matrices with one value on each side of a diagonal, such as causal masks.

    tj.where(tj.arange(n)[:, None] >= tj.arange(n), 0, -inf)      Diagonal(at=0, below=-inf, above=0.0)

Element (i, j) is `above` if ``i - j >= at``, else `below`. Indices are linear functions of i and j. A
comparison of two indices is such a matrix, and so is the result of an elementwise operator on such matrices
and numbers. Views are composed on the way to the operands, so each step considers only the elements that the
matrix contains.

No element is computed, so the cost does not depend on the size of the matrix.
"""

# No `from __future__ import annotations`: a named tuple compiles every annotation that is a string.

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from tracejit import ops
from tracejit.ir.graph import Node, Value
from tracejit.ir.op import ELEMENTWISE, Op
from tracejit.ir.view import View

MAX_DEPTH = 16
"""The greatest number of nodes on a path from a matrix to its indices."""


class Diagonal(NamedTuple):
    """A matrix whose element (i, j) is `above` if ``i - j >= at``, else `below`."""

    at: int
    below: Any
    above: Any


def diagonal(
    producers: Mapping[Value, Node], value: Value, view: View, depth: int = MAX_DEPTH
) -> Diagonal | None:
    """The `Diagonal` of a two-dimensional `view` of `value`; None if it is not known to be one."""
    node = producers.get(value)
    if node is None or not depth:
        return None
    if node.op is ops.constant:
        number = node.output.type.dtype.type(node.attrs["value"])
        return Diagonal(0, number, number)
    if node.op is ops.full:
        return diagonal(producers, node.inputs[0], view, depth - 1)
    if node.op is ops.view:
        composed = node.attrs["view"].compose(view)
        return None if composed is None else diagonal(producers, node.inputs[0], composed, depth - 1)
    if ELEMENTWISE not in node.op.traits or any(
        v.type.shape not in ((), value.type.shape) for v in node.inputs
    ):
        return None
    comparison = _comparison(producers, node, view, depth) if node.op in _COMPARISONS else None
    if comparison is not None:
        return comparison
    operands = [diagonal(producers, v, view, depth - 1) for v in node.inputs]
    return (
        _apply(node, [operand for operand in operands if operand is not None])
        if None not in operands
        else None
    )


def _apply(node: Node, operands: list[Diagonal]) -> Diagonal | None:
    """The result of an elementwise operator on matrices with the same diagonal; None if diagonals differ."""
    diagonals = {operand.at for operand in operands if operand.below is not operand.above}
    if len(diagonals) > 1:
        return None
    with np.errstate(all="ignore"):
        below = node.op.evaluate(*[operand.below for operand in operands], **node.attrs)
        above = node.op.evaluate(*[operand.above for operand in operands], **node.attrs)
    return Diagonal(diagonals.pop(), below, above) if diagonals else Diagonal(0, below, below)


_COMPARISONS: dict[Op, tuple[bool, int]] = {
    ops.greater_equal: (False, 0),
    ops.greater: (False, 1),
    ops.less_equal: (True, 0),
    ops.less: (True, 1),
}
"""Comparisons as ``x - y >= least``: whether the operands are exchanged, and the value of `least`."""


def _comparison(producers: Mapping[Value, Node], node: Node, view: View, depth: int) -> Diagonal | None:
    """The `Diagonal` of a comparison of two indices, ``x - y >= least``; None if it is not one."""
    exchanged, least = _COMPARISONS[node.op]
    x, y = (_index(producers, v, view, depth - 1) for v in node.inputs)
    if x is None or y is None:
        return None
    x, y = (y, x) if exchanged else (x, y)
    down, across, constant = (a - b for a, b in zip(x, y, strict=True))
    if (down, across) == (1, -1):
        return Diagonal(least - constant, np.False_, np.True_)
    if (down, across) == (-1, 1):
        return Diagonal(constant - least + 1, np.True_, np.False_)
    return None


def _index(
    producers: Mapping[Value, Node], value: Value, view: View, depth: int
) -> tuple[int, int, int] | None:
    """(a, b, c) if element (i, j) of an array of integers is ``a * i + b * j + c``; else None."""
    node = producers.get(value)
    if node is None or not depth or value.type.dtype.kind != "i":
        return None
    if node.op is ops.constant:
        return 0, 0, node.attrs["value"]
    if node.op is ops.iota:
        down, across = view.strides
        return down, across, view.offset
    if node.op is ops.full:
        return _index(producers, node.inputs[0], view, depth - 1)
    if node.op is ops.view:
        composed = node.attrs["view"].compose(view)
        return None if composed is None else _index(producers, node.inputs[0], composed, depth - 1)
    if node.op not in (ops.add, ops.subtract):
        return None
    x, y = (_index(producers, v, view, depth - 1) for v in node.inputs)
    if x is None or y is None:
        return None
    sign = 1 if node.op is ops.add else -1
    a, b, c = (m + sign * n for m, n in zip(x, y, strict=True))
    return a, b, c
