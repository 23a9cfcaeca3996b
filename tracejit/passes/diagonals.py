"""Matrices that change at one diagonal, as causal masks do, found in the nodes that compute them.

    tj.where(tj.arange(n)[:, None] >= tj.arange(n), 0, -inf)      Diagonal(at=0, below=-inf, above=0.0)

Element (i, j) is `above` where ``i - j >= at``, else `below`. Indices are linear functions of i and j; a
comparison of two of them is such a matrix, and so is what elementwise operators make of it and of numbers.
Views are pushed inwards: the walk always looks for the elements that the matrix sees.

No element is computed, so it takes no time for large matrices.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from tracejit import ops
from tracejit.ir.graph import Node, Value
from tracejit.ir.op import ELEMENTWISE, Op
from tracejit.ir.view import View

MOST = 16
"""Most nodes on a path from a matrix to its indices."""


class Diagonal(NamedTuple):
    """A matrix whose element (i, j) is `above` where ``i - j >= at``, else `below`."""

    at: int
    below: Any
    above: Any


def diagonal(producers: Mapping[Value, Node], value: Value, view: View, depth: int = MOST) -> Diagonal | None:
    """The matrix of the elements of `value` at a view of two dimensions; None if it is not known as one."""
    node = producers.get(value)
    if node is None or not depth:
        return None
    if node.op is ops.constant:
        number = node.output.type.dtype.type(node.attrs["value"])
        return Diagonal(0, number, number)
    if node.op is ops.full:
        return diagonal(producers, node.inputs[0], view, depth - 1)
    if node.op is ops.view:
        seen = node.attrs["view"].compose(view)
        return None if seen is None else diagonal(producers, node.inputs[0], seen, depth - 1)
    if ELEMENTWISE not in node.op.traits or any(
        v.type.shape not in ((), value.type.shape) for v in node.inputs
    ):
        return None
    compared = _comparison(producers, node, view, depth) if node.op in _COMPARISONS else None
    if compared is not None:
        return compared
    parts = [diagonal(producers, v, view, depth - 1) for v in node.inputs]
    return _combined(node, [part for part in parts if part is not None]) if None not in parts else None


def _combined(node: Node, parts: list[Diagonal]) -> Diagonal | None:
    """The result of an elementwise operator on matrices that change at the same diagonal; None otherwise."""
    changes = {part.at for part in parts if part.below is not part.above}
    if len(changes) > 1:
        return None
    with np.errstate(all="ignore"):
        below = node.op.evaluate(*[part.below for part in parts], **node.attrs)
        above = node.op.evaluate(*[part.above for part in parts], **node.attrs)
    return Diagonal(changes.pop(), below, above) if changes else Diagonal(0, below, below)


_COMPARISONS: dict[Op, tuple[bool, int]] = {
    ops.greater_equal: (False, 0),
    ops.greater: (False, 1),
    ops.less_equal: (True, 0),
    ops.less: (True, 1),
}
"""Comparisons: whether operands are exchanged, so that the first is larger; and by how much at least."""


def _comparison(producers: Mapping[Value, Node], node: Node, view: View, depth: int) -> Diagonal | None:
    """A comparison of indices: ``x - y >= least``."""
    exchanged, least = _COMPARISONS[node.op]
    x, y = (_index(producers, v, view, depth - 1) for v in node.inputs)
    if x is None or y is None:
        return None
    x, y = (y, x) if exchanged else (x, y)
    down, across, rest = (a - b for a, b in zip(x, y, strict=True))
    if (down, across) == (1, -1):
        return Diagonal(least - rest, np.False_, np.True_)
    if (down, across) == (-1, 1):
        return Diagonal(rest - least + 1, np.True_, np.False_)
    return None


def _index(
    producers: Mapping[Value, Node], value: Value, view: View, depth: int
) -> tuple[int, int, int] | None:
    """(a, b, c), if element (i, j) of an array of integers is ``a * i + b * j + c``."""
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
        seen = node.attrs["view"].compose(view)
        return None if seen is None else _index(producers, node.inputs[0], seen, depth - 1)
    if node.op not in (ops.add, ops.subtract):
        return None
    x, y = (_index(producers, v, view, depth - 1) for v in node.inputs)
    if x is None or y is None:
        return None
    sign = 1 if node.op is ops.add else -1
    a, b, c = (m + sign * n for m, n in zip(x, y, strict=True))
    return a, b, c
