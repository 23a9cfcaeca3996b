"""The mapped axis of each array in a tree: ``in_axes`` and ``out_axes`` of `vmap`.

Axes are an int (for all arrays of the subtree), None (no array of the subtree is mapped), or a container like
that of the tree, with axes for its children:

    in_axes=(0, None)                  map the first argument along its first axis, and not the second
    in_axes=({"w": 0, "b": None}, 1)   of a dict and an array
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tracejit.errors import ArgumentError, AxisError, locate
from tracejit.frontend.arrays import trees
from tracejit.frontend.arrays.ndarray import NDArray
from tracejit.frontend.python.content import Attributes, is_made_plainly
from tracejit.frontend.recording.location import user_location
from tracejit.frontend.recording.number import is_number


def with_axes(what: str, axes: Any, tree: Any, path: str) -> Iterator[tuple[str, Any, int | None]]:
    """Yield each leaf of a tree as (path, leaf, axis).

    Raises ArgumentError if the axes do not match the tree.

    >>> list(with_axes("in_axes", (0, None), ({"w": 1}, 2), "args"))
    [("args[0]['w']", 1, 0), ('args[1]', 2, None)]
    """
    if what == "out_axes" and hasattr(type(tree), "__tree__") and axes is not None:
        tree = tree.__tree__()
    container = parts_of(tree) if axes is not None else trees.children_of(tree)
    if container is None:
        yield path, tree, _checked(what, axes, path)
        return
    kind, keys, children = container
    for key, child, below in zip(keys, children, axes_below(what, axes, tree, path), strict=True):
        yield from with_axes(what, below, child, path + trees.step(kind, key))


def parts_of(tree: Any) -> tuple[type, tuple[Any, ...], list[Any]] | None:
    """Return type, keys and children of a container; for an object that is a pytree node, such as a module,
    these are its attributes. Return None for a leaf.
    """
    kind = type(tree)
    if not hasattr(kind, "__tree__") or not is_made_plainly(kind):
        return trees.children_of(tree)
    attributes = Attributes(tree)
    names = tuple(attributes.names())
    return kind, names, [attributes[name] for name in names]


def array_axes(tree: Any, axis: int) -> Any:
    """Return axes that map all arrays with at least one dimension, and no other leaves of the tree."""
    if hasattr(type(tree), "__tree__"):
        return axis
    container = trees.children_of(tree)
    if container is None:
        return axis if is_array(tree) and tree.ndim else None
    kind, keys, children = container
    return trees.build(kind, keys, [array_axes(child, axis) for child in children])


def axes_below(what: str, axes: Any, tree: Any, path: str) -> list[Any]:
    """Return the axes of each child of a container. For an object, an int applies to its arrays only."""
    container = parts_of(tree)
    assert container is not None
    if isinstance(axes, int) and hasattr(container[0], "__tree__"):
        return [array_axes(child, axes) for child in container[2]]
    if axes is None or isinstance(axes, int):
        return [axes] * len(container[1])
    axes_container = trees.children_of(axes)
    if (
        axes_container is None
        or axes_container[1] != container[1]
        or _kind(axes_container[0]) is not _kind(container[0])
    ):
        raise locate(
            ArgumentError(
                f"vmap: {what} {axes!r} do not fit {path}, a {container[0].__name__} with "
                f"{len(container[1])} children; pass an int, None, or a container of the same structure"
            ),
            user_location(),
        )
    return axes_container[2]


def _kind(kind: type) -> type:
    """Normalise a container type: lists and tuples of axes are interchangeable, as are kinds of dicts."""
    return tuple if kind is list else dict if issubclass(kind, dict) else kind


def _checked(what: str, axis: Any, path: str) -> int | None:
    if axis is None or (isinstance(axis, int) and not isinstance(axis, bool)):
        return axis
    raise locate(
        ArgumentError(f"vmap: {what} {axis!r} for {path}, which is not a container; pass an int or None"),
        user_location(),
    )


def normal_axis(what: str, axis: int, ndim: int, path: str) -> int:
    """Return the axis as a non-negative number. Raise AxisError if it is out of range."""
    if not -ndim <= axis < ndim:
        raise locate(
            AxisError(f"vmap: {what} {axis} of {path}, which has {ndim} dimensions"), user_location()
        )
    return axis % ndim


def is_array(leaf: Any) -> bool:
    """Return whether a leaf is an array, of this package or another, and not a number."""
    if isinstance(leaf, NDArray):
        return True
    return not is_number(leaf) and hasattr(leaf, "ndim") and hasattr(leaf, "shape")
