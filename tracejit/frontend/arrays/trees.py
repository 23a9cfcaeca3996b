"""Trees: nested dicts, lists, tuples, named tuples, dataclasses and None. All other objects are leaves.

An object whose class has a method ``__tree__`` is treated as the tree that the method returns (see
`tj.nn.Module`). The path of a leaf is written as a Python expression: ``params['w1']``,
``state.velocity[0]``.

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
from typing import Any, cast

from tracejit.errors import ArgumentError, locate
from tracejit.frontend.python.content import (
    Attributes,
    base_of,
    content_of,
    factory_of,
    fill,
    is_made_plainly,
)
from tracejit.frontend.recording.location import user_location


class Structure:
    """The structure of a tree: the type of its container, its keys, and the structures of its children.

    The container type of a leaf is None. The factory of a defaultdict is stored, but equality ignores it. A
    structure must not be modified, which is not enforced.

    >>> import tracejit as tj
    >>> tj.tree.flatten([1, (2, 3)])[1].leaves
    3
    """

    __slots__ = ("children", "factory", "keys", "kind")

    def __init__(
        self,
        kind: type | None,
        keys: tuple[Any, ...] = (),
        children: tuple[Structure, ...] = (),
        factory: Any = None,
    ) -> None:
        self.kind, self.keys, self.children, self.factory = kind, keys, children, factory

    def _identity(self) -> tuple[Any, ...]:
        return self.kind, self.keys, self.children

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Structure) and self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash(self._identity())

    def __repr__(self) -> str:
        return f"Structure{self._identity()}"

    @property
    def leaves(self) -> int:
        """The number of leaves.

        >>> import tracejit as tj
        >>> tj.tree.flatten([1, (2, 3)])[1].leaves
        3
        """
        count, pending = 0, [self]
        for structure in pending:
            count += structure.kind is None
            pending += structure.children
        return count


LEAF = Structure(None)


def children_of(tree: Any) -> tuple[type, tuple[Any, ...], list[Any]] | None:
    """Return the container type, keys and children of a tree; None for a leaf."""
    kind = type(tree)
    if tree is None:
        return kind, (), []
    if isinstance(tree, dict):
        content = content_of(tree)
        return kind, tuple(content), list(content.values())
    if kind is list or kind is tuple:
        return kind, tuple(range(len(tree))), list(tree)
    if isinstance(tree, tuple) and hasattr(kind, "_fields"):
        return kind, tuple(kind._fields), content_of(tree)
    if hasattr(kind, "__dataclass_fields__") and is_made_plainly(kind) and not hasattr(kind, "__tree__"):
        names, attributes = tuple(f.name for f in dataclasses.fields(tree)), Attributes(tree)
        return kind, names, [attributes[n] for n in names]
    return None


def build(kind: type, keys: Sequence[Any], children: Sequence[Any], factory: Any = None) -> Any:
    """Create a container of `kind` with these children; a defaultdict with this factory."""
    if kind is type(None):
        return None
    if issubclass(kind, dict):
        mapping: Any = base_of(kind).__new__(kind)  # a user's `__init__` may need arguments
        if factory is not None:
            mapping.default_factory = factory
        fill(mapping, dict(zip(keys, children, strict=True)))
        return mapping
    if kind is list or kind is tuple:
        return kind(children)
    if issubclass(kind, tuple):
        return tuple.__new__(kind, children)
    instance: Any = object.__new__(cast(Any, kind))
    attributes = Attributes(instance)
    for name, child in zip(keys, children, strict=True):
        attributes[name] = child
    return instance


def rebuilt(tree: Any, kind: type, keys: Sequence[Any], children: Sequence[Any]) -> Any:
    """Create a container like `tree`, of `kind`, with these children, its factory and its attributes."""
    if not issubclass(kind, dict) or kind is dict:
        return build(kind, keys, children)
    copy = build(kind, keys, children, factory_of(tree))
    target, source = Attributes(copy), Attributes(tree)
    for name in source.names():
        target[name] = source[name]
    return copy


def step(kind: type, key: Any) -> str:
    """Return the component of a path for a child of a container: ``['w']``, ``[0]``, ``.name``."""
    if issubclass(kind, dict) or kind in (list, tuple):
        return f"[{key!r}]"
    return f".{key}"


def flatten(tree: Any) -> tuple[list[Any], Structure]:
    """The leaves in order, and the structure that `unflatten` needs.

    A leaf is any object that is not a dict, list, tuple, named tuple, dataclass or None.

    >>> import tracejit as tj
    >>> tj.tree.flatten({"w": [1, 2]})[0]
    [1, 2]
    """
    leaves: list[Any] = []
    return leaves, _flatten(tree, leaves)


def _flatten(tree: Any, leaves: list[Any]) -> Structure:
    """Return the structure of a tree, and append its leaves to `leaves`."""
    container = children_of(tree)
    if container is None:
        if hasattr(type(tree), "__tree__"):
            return _flatten(tree.__tree__(), leaves)
        leaves.append(tree)
        return LEAF
    kind, keys, children = container
    if len({type(child) for child in children}) == 1 and _is_leaf(
        children[0]
    ):  # then all children are leaves
        leaves += children
        child_structures: tuple[Structure, ...] = (LEAF,) * len(children)
    else:
        child_structures = tuple([_flatten(child, leaves) for child in children])
    return Structure(kind, keys, child_structures, factory_of(tree) if issubclass(kind, dict) else None)


def _is_leaf(tree: Any) -> bool:
    """Whether a tree is a leaf, which depends only on its type."""
    return children_of(tree) is None and not hasattr(type(tree), "__tree__")


def unflatten(structure: Structure, leaves: Iterable[Any]) -> Any:
    """The tree with this structure and these leaves.

    Raises ArgumentError if there are more or fewer leaves than the structure has.

    >>> import tracejit as tj
    >>> leaves, structure = tj.tree.flatten({"w": [1, 2]})
    >>> tj.tree.unflatten(structure, [10, 20])
    {'w': [10, 20]}
    """
    leaf_list = list(leaves)
    if len(leaf_list) != structure.leaves:
        raise ArgumentError(f"unflatten: got {len(leaf_list)} leaves for a tree with {structure.leaves}")
    return _unflatten(structure, iter(leaf_list))


def _unflatten(structure: Structure, leaves: Iterator[Any]) -> Any:
    """Build the tree with this structure from the next leaves."""
    if structure.kind is None:
        return next(leaves)
    children = [_unflatten(child, leaves) for child in structure.children]
    return build(structure.kind, structure.keys, children, structure.factory)


def leaves_with_paths(tree: Any, root: str = "") -> list[tuple[str, Any]]:
    """All leaves with their paths.

    >>> import tracejit as tj
    >>> tj.tree.leaves_with_paths({"w": [1, 2]}, "params")
    [("params['w'][0]", 1), ("params['w'][1]", 2)]
    """
    result: list[tuple[str, Any]] = []
    _name_leaves(tree, root, result)
    return result


def _name_leaves(tree: Any, path: str, leaves: list[tuple[str, Any]]) -> None:
    """Append the leaves, with their paths, of the tree at `path`."""
    container = children_of(tree)
    if container is None:
        if hasattr(type(tree), "__tree__"):
            _name_leaves(tree.__tree__(), path, leaves)
        else:
            leaves.append((path, tree))
        return
    kind, keys, children = container
    for key, child in zip(keys, children, strict=True):
        _name_leaves(child, path + step(kind, key), leaves)


def map(function: Callable[..., Any], tree: Any, *others: Any) -> Any:
    """Apply `function` to corresponding leaves of trees with the same structure.

    Raises ArgumentError for trees of different structures.

    >>> import tracejit as tj
    >>> tj.tree.map(lambda x, y: x + y, {"w": 1}, {"w": 2})
    {'w': 3}
    """
    leaves, structure = flatten(tree)
    columns = [leaves]
    for other in others:
        other_leaves, other_structure = flatten(other)
        if other_structure != structure:
            raise locate(
                ArgumentError(f"tree.map: trees differ in structure: {structure} and {other_structure}"),
                user_location(),
            )
        columns.append(other_leaves)
    return unflatten(structure, [function(*row) for row in zip(*columns, strict=True)])


def leaves(tree: Any) -> list[Any]:
    """The leaves in order.

    >>> import tracejit as tj
    >>> tj.tree.leaves({"b": 1, "a": (2, None)})
    [1, 2]
    """
    return flatten(tree)[0]


__all__ = ["Structure", "flatten", "leaves", "leaves_with_paths", "map", "unflatten"]
