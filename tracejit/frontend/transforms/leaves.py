"""Leaves of trees that a transformation follows: floating and complex arrays."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tracejit.frontend.arrays import trees
from tracejit.frontend.arrays.ndarray import NDArray
from tracejit.ir.types import ArrayType, is_inexact


def is_differentiable(leaf: Any) -> bool:
    """Whether derivatives with respect to a leaf, or of one, exist."""
    return isinstance(leaf, NDArray) and is_inexact(leaf.dtype)


def type_of(array: NDArray) -> ArrayType:
    """Shape, dtype and device of an array."""
    return ArrayType(array.shape, array.dtype, array.device)


def types_of(leaves: Iterable[Any]) -> list[ArrayType | None]:
    """The types of leaves; None where there are no derivatives."""
    return [type_of(x) if is_differentiable(x) else None for x in leaves]


def matched(structure: trees.Structure, given: Any) -> list[Any] | None:
    """The leaves of `given`, a tree of `structure` in which None may stand for any part (and for each of its
    leaves); None if it is another tree.

    >>> matched(trees.flatten({"w": [1, 2], "b": 3})[1], {"w": None, "b": 4})
    [None, None, 4]
    """
    if structure.kind is None:
        return [given]
    if given is None:
        return [None] * structure.leaves
    found = trees.children_of(given)
    if found is None or found[:2] != (structure.kind, structure.keys):
        return None
    leaves: list[Any] = []
    for below, child in zip(structure.children, found[2], strict=True):
        part = matched(below, child)
        if part is None:
            return None
        leaves += part
    return leaves
