"""Corresponding leaves of trees, over which every optimizer iterates.

>>> import tracejit as tj
>>> w = tj.ones(2)
>>> [row[0] is w for row in rows("sgd", {"w": w, "scale": 3}, {"w": tj.ones(2), "scale": None})]
[True]
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tracejit.errors import ArgumentError, ShapeError, TracejitError, locate
from tracejit.frontend.arrays import trees
from tracejit.frontend.arrays.core import ArrayCore
from tracejit.frontend.recording.location import user_location
from tracejit.frontend.recording.recording import quiet
from tracejit.optim.alike import each


def rows(name: str, params: Any, grads: Any, *others: Any) -> Iterator[tuple[Any, ...]]:
    """Yield rows (parameter, gradient, corresponding leaves of other trees) where there is a gradient, for a
    loop with the same body for each row (see `alike`).

    Raises ArgumentError for trees of different structure and parameters that are not arrays, ShapeError for
    gradients of other shapes.
    """
    leaves, structure = trees.flatten(params)
    columns = [leaves, *(aligned(name, structure, tree) for tree in (grads, *others))]
    matched = [row for row in zip(*columns, strict=True) if row[1] is not None]
    with quiet:
        mismatch = next((row for row in matched if not _agree(*row)), None)
    if mismatch is None:
        return each(matched)
    p, g, *_ = mismatch
    path = next(path for path, leaf in trees.leaves_with_paths(params, "params") if leaf is p)
    error: TracejitError = ArgumentError(f"optim.{name}: {path} is a {type(p).__name__}, expected an NDArray")
    if isinstance(p, ArrayCore):
        error = ShapeError(f"optim.{name}: {path} has shape {p.shape}, its gradient {g.shape}")
    raise locate(error, user_location())


def _agree(p: Any, g: Any, *others: Any) -> bool:
    """Return whether a parameter is an array, and its gradient has its shape."""
    return isinstance(p, ArrayCore) and (not isinstance(g, ArrayCore) or g.shape == p.shape)


def check_state(name: str, state: Any, *keys: str) -> None:
    """Raise ArgumentError if the state of an optimizer lacks one of these keys."""
    if not isinstance(state, Mapping) or not all(key in state for key in keys):
        raise locate(
            ArgumentError(
                f"optim.{name}: the state has no {' and '.join(keys)}, got {type(state).__name__}; make it "
                "once, with the function of tj.optim whose name ends in _state"
            ),
            user_location(),
        )


def aligned(name: str, structure: trees.Structure, tree: Any) -> list[Any]:
    """Return the leaves of a tree, aligned with those of a structure, with None where the tree has None.

    Raises ArgumentError, naming the optimizer `name`, if the trees differ.
    """
    leaves, actual = trees.flatten(tree)
    if actual == structure:
        return leaves
    result: list[Any] = []
    if not _align(structure, actual, iter(leaves), result):
        raise locate(
            ArgumentError(f"optim.{name}: the trees differ: params are {structure}, given was {actual}"),
            user_location(),
        )
    return result


def _align(structure: trees.Structure, actual: trees.Structure, leaves: Any, result: list[Any]) -> bool:
    """Append leaves in the order of a structure, and None where it has a leaf and `actual` has None. Return
    whether the structures match.
    """
    if structure.kind is None:
        result.append(next(leaves) if actual.kind is None else None)
        return actual.kind in (None, type(None))
    same = structure.kind is actual.kind and structure.keys == actual.keys
    pairs = zip(structure.children, actual.children, strict=False)
    return same and all(
        _align(substructure, actual_child, leaves, result) for substructure, actual_child in pairs
    )
