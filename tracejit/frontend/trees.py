"""Trees: nested dicts, lists, tuples, named tuples, dataclasses and None, with anything else as a leaf.

A leaf's path is written as one would in Python: ``params['w1']``, ``state.velocity[0]``.

>>> leaves, structure = flatten({"b": 1, "a": [2, (3, None)]})
>>> leaves
[1, 2, 3]
>>> unflatten(structure, [10, 20, 30])
{'b': 10, 'a': [20, (30, None)]}
>>> map(lambda x, y: x + y, {"w": 1}, {"w": 2})
{'w': 3}
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, cast

from tracejit.errors import ArgumentError
from tracejit.frontend.unwatched import unwatched


class Structure(NamedTuple):
    """The shape of a tree: its container type, the keys in it, and the structures of its children (None: a
    leaf)."""

    kind: type | None
    keys: tuple[Any, ...] = ()
    children: tuple[Structure, ...] = ()

    @property
    def leaves(self) -> int:
        """How many leaves the tree has."""
        count, pending = 0, [self]
        for structure in pending:
            count += structure.kind is None
            pending += structure.children
        return count


LEAF = Structure(None)


def children_of(tree: Any) -> tuple[type, tuple[Any, ...], list[Any]] | None:
    """Container type, keys and children of a tree; None for a leaf."""
    kind = type(tree)
    if tree is None:
        return kind, (), []
    if isinstance(tree, dict):
        return kind, tuple(tree), list(tree.values())
    if kind is list or kind is tuple:
        return kind, tuple(range(len(tree))), list(tree)
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return kind, tuple(tree._fields), list(tree)
    if hasattr(kind, "__dataclass_fields__"):
        names = tuple(f.name for f in dataclasses.fields(tree))
        return kind, names, [getattr(tree, n) for n in names]
    return None


def build(kind: type, keys: Sequence[Any], children: Sequence[Any]) -> Any:
    """A container of `kind` with these children."""
    if kind is type(None):
        return None
    if issubclass(kind, dict):
        mapping = kind()
        mapping.update(zip(keys, children, strict=True))
        return mapping
    if kind is list or kind is tuple:
        return kind(children)
    if issubclass(kind, tuple):
        return kind(*children)
    made: Any = object.__new__(cast(Any, kind))
    for name, child in zip(keys, children, strict=True):
        object.__setattr__(made, name, child)
    return made


def step(kind: type, key: Any) -> str:
    """How a child is written after its container: ``['w']``, ``[0]``, ``.name``."""
    if issubclass(kind, dict) or kind in (list, tuple):
        return f"[{key!r}]"
    return f".{key}"


@unwatched
def flatten(tree: Any) -> tuple[list[Any], Structure]:
    """Leaves in order, and the structure that `unflatten` needs."""
    leaves: list[Any] = []
    return leaves, _flatten(tree, leaves)


def _flatten(tree: Any, leaves: list[Any]) -> Structure:
    """The structure of a tree, whose leaves are appended."""
    found = children_of(tree)
    if found is None:
        leaves.append(tree)
        return LEAF
    kind, keys, children = found
    return Structure(kind, keys, tuple([_flatten(child, leaves) for child in children]))


def unflatten(structure: Structure, leaves: Iterable[Any]) -> Any:
    """The tree of this structure with these leaves."""
    given = list(leaves)
    if len(given) != structure.leaves:
        raise ArgumentError(f"unflatten: got {len(given)} leaves for a tree with {structure.leaves}")
    return _unflatten(structure, iter(given))


def _unflatten(structure: Structure, leaves: Iterator[Any]) -> Any:
    """The tree of this structure with the next leaves."""
    if structure.kind is None:
        return next(leaves)
    children = [_unflatten(child, leaves) for child in structure.children]
    return build(structure.kind, structure.keys, children)


@unwatched
def leaves_with_paths(tree: Any, root: str = "") -> list[tuple[str, Any]]:
    """Every leaf with its path."""
    found: list[tuple[str, Any]] = []
    _name_leaves(tree, root, found)
    return found


def _name_leaves(tree: Any, path: str, leaves: list[tuple[str, Any]]) -> None:
    """Append the leaves of the tree that stands at `path`."""
    found = children_of(tree)
    if found is None:
        leaves.append((path, tree))
        return
    kind, keys, children = found
    for key, child in zip(keys, children, strict=True):
        _name_leaves(child, path + step(kind, key), leaves)


def map(function: Callable[..., Any], tree: Any, *others: Any) -> Any:
    """`function` applied to corresponding leaves of trees with one structure."""
    leaves, structure = flatten(tree)
    columns = [leaves]
    for other in others:
        more, other_structure = flatten(other)
        if other_structure != structure:
            raise ArgumentError(f"tree.map: trees differ in structure: {structure} and {other_structure}")
        columns.append(more)
    return unflatten(structure, [function(*row) for row in zip(*columns, strict=True)])


def leaves(tree: Any) -> list[Any]:
    """The leaves in order."""
    return flatten(tree)[0]
