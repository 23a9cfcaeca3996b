"""The leaves of trees with respect to which a transformation differentiates: floating and complex arrays."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tracejit.frontend.arrays import trees
from tracejit.frontend.arrays.ndarray import NDArray
from tracejit.ir.types import ArrayType, is_inexact


def is_differentiable(leaf: Any) -> bool:
    """Return whether a leaf has derivatives, or derivatives can be taken with respect to it."""
    return isinstance(leaf, NDArray) and is_inexact(leaf.dtype)


def type_of(array: NDArray) -> ArrayType:
    """Return the shape, dtype and device of an array."""
    return ArrayType(array.shape, array.dtype, array.device)


def types_of(leaves: Iterable[Any]) -> list[ArrayType | None]:
    """Return the types of leaves, with None for leaves without derivatives."""
    return [type_of(x) if is_differentiable(x) else None for x in leaves]


def matched(structure: trees.Structure, tree: Any) -> list[Any] | None:
    """Return the leaves of `tree`, whose structure must be `structure` except that None may replace any
    subtree (and all of its leaves); return None if the structures differ.

    >>> matched(trees.flatten({"w": [1, 2], "b": 3})[1], {"w": None, "b": 4})
    [None, None, 4]
    """
    if structure.kind is None:
        return [tree]
    if tree is None:
        return [None] * structure.leaves
    children = trees.children_of(tree)
    if children is None or children[:2] != (structure.kind, structure.keys):
        return None
    leaves: list[Any] = []
    for substructure, child in zip(structure.children, children[2], strict=True):
        child_leaves = matched(substructure, child)
        if child_leaves is None:
            return None
        leaves += child_leaves
    return leaves
