"""Corresponding leaves of trees: what every optimizer walks over.

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
    """A parameter, its gradient, and the leaves of other trees in their place, where there is a gradient; for
    a loop that does the same for each (see `alike`).
    """
    leaves, structure = trees.flatten(params)
    columns = [leaves, *(aligned(name, structure, tree) for tree in (grads, *others))]
    found = [row for row in zip(*columns, strict=True) if row[1] is not None]
    with quiet:
        wrong = next((row for row in found if not _agree(*row)), None)
    if wrong is None:
        return each(found)
    p, g, *_ = wrong
    path = next(path for path, leaf in trees.leaves_with_paths(params, "params") if leaf is p)
    error: TracejitError = ArgumentError(f"optim.{name}: {path} is a {type(p).__name__}, expected an NDArray")
    if isinstance(p, ArrayCore):
        error = ShapeError(f"optim.{name}: {path} has shape {p.shape}, its gradient {g.shape}")
    raise locate(error, user_location())


def _agree(p: Any, g: Any, *others: Any) -> bool:
    """Whether a parameter is an array, and its gradient has its shape."""
    return isinstance(p, ArrayCore) and (not isinstance(g, ArrayCore) or g.shape == p.shape)


def check_state(name: str, state: Any, *keys: str) -> None:
    """Raise if the state of an optimizer has not these keys."""
    if not isinstance(state, Mapping) or not all(key in state for key in keys):
        raise locate(
            ArgumentError(
                f"optim.{name}: the state has no {' and '.join(keys)}, got {type(state).__name__}; make it "
                "once, with the function of tj.optim whose name ends in _state"
            ),
            user_location(),
        )


def aligned(name: str, structure: trees.Structure, tree: Any) -> list[Any]:
    """The leaves of a tree, aligned with those of a structure; None where it has none.

    Raises ArgumentError, for `name`, where the trees differ.
    """
    leaves, found = trees.flatten(tree)
    if found == structure:
        return leaves
    placed: list[Any] = []
    if not _place(structure, found, iter(leaves), placed):
        raise locate(
            ArgumentError(f"optim.{name}: the trees differ: params are {structure}, given was {found}"),
            user_location(),
        )
    return placed


def _place(structure: trees.Structure, found: trees.Structure, leaves: Any, placed: list[Any]) -> bool:
    """Append leaves in the order of a structure, and None where it has a leaf and `found` has None."""
    if structure.kind is None:
        placed.append(next(leaves) if found.kind is None else None)
        return found.kind in (None, type(None))
    same = structure.kind is found.kind and structure.keys == found.keys
    pairs = zip(structure.children, found.children, strict=False)
    return same and all(_place(below, there, leaves, placed) for below, there in pairs)
