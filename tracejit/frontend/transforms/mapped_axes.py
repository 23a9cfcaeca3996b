"""The mapped axis of each array of a tree: ``in_axes`` and ``out_axes`` of `vmap`.

Axes are an int (of all arrays below), None (nothing below is mapped), or a container like that of the tree
with axes for its children:

    in_axes=(0, None)                  the first argument along its first axes, the second as it is
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
    """Every leaf of a tree with its path and its axis.

    Raises ArgumentError where axes and tree do not fit.

    >>> list(with_axes("in_axes", (0, None), ({"w": 1}, 2), "args"))
    [("args[0]['w']", 1, 0), ('args[1]', 2, None)]
    """
    if what == "out_axes" and hasattr(type(tree), "__tree__") and axes is not None:
        tree = tree.__tree__()
    found = parts_of(tree) if axes is not None else trees.children_of(tree)
    if found is None:
        yield path, tree, _checked(what, axes, path)
        return
    kind, keys, children = found
    for key, child, below in zip(keys, children, axes_below(what, axes, tree, path), strict=True):
        yield from with_axes(what, below, child, path + trees.step(kind, key))


def parts_of(tree: Any) -> tuple[type, tuple[Any, ...], list[Any]] | None:
    """Type, keys and children of a container; of an object that counts as a tree, such as a module, its
    attributes. None for a leaf.
    """
    kind = type(tree)
    if not hasattr(kind, "__tree__") or not is_made_plainly(kind):
        return trees.children_of(tree)
    held = Attributes(tree)
    names = tuple(held.names())
    return kind, names, [held[name] for name in names]


def array_axes(tree: Any, axis: int) -> Any:
    """Axes that map all arrays of a tree that have some, and nothing else."""
    if hasattr(type(tree), "__tree__"):
        return axis
    found = trees.children_of(tree)
    if found is None:
        return axis if is_array(tree) and tree.ndim else None
    kind, keys, children = found
    return trees.build(kind, keys, [array_axes(child, axis) for child in children])


def axes_below(what: str, axes: Any, tree: Any, path: str) -> list[Any]:
    """The axes of each child of a container. An int means the arrays of an object, and nothing else there."""
    found = parts_of(tree)
    assert found is not None
    if isinstance(axes, int) and hasattr(found[0], "__tree__"):
        return [array_axes(child, axes) for child in found[2]]
    if axes is None or isinstance(axes, int):
        return [axes] * len(found[1])
    given = trees.children_of(axes)
    if given is None or given[1] != found[1] or _kind(given[0]) is not _kind(found[0]):
        raise locate(
            ArgumentError(
                f"vmap: {what} {axes!r} do not fit {path}, a {found[0].__name__} with "
                f"{len(found[1])} children; give an int, None, or a container of the same structure"
            ),
            user_location(),
        )
    return given[2]


def _kind(kind: type) -> type:
    """Lists and tuples of axes stand for one another."""
    return tuple if kind is list else dict if issubclass(kind, dict) else kind


def _checked(what: str, axis: Any, path: str) -> int | None:
    if axis is None or (isinstance(axis, int) and not isinstance(axis, bool)):
        return axis
    raise locate(
        ArgumentError(f"vmap: {what} {axis!r} for {path}, which is no container; give an int or None"),
        user_location(),
    )


def normal_axis(what: str, axis: int, ndim: int, path: str) -> int:
    """An axis counted from the first; raises AxisError if there is none such."""
    if not -ndim <= axis < ndim:
        raise locate(
            AxisError(f"vmap: {what} {axis} of {path}, which has {ndim} dimensions"), user_location()
        )
    return axis % ndim


def is_array(leaf: Any) -> bool:
    """Whether a leaf has axes."""
    if isinstance(leaf, NDArray):
        return True
    return not is_number(leaf) and hasattr(leaf, "ndim") and hasattr(leaf, "shape")
