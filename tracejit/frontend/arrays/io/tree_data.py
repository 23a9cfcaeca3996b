"""Conversion of trees to JSON data and named arrays, and back.

`describe` returns data that JSON can represent: each node of the tree is a dict with one item, whose key is
the kind of the node.

    {"w": [x, 0.5]}    ->    {"dict": [["w", {"list": [{"array": "w.0", "numpy": false}, {"value": 0.5}]}]]}

`restore` accepts only such data, so that the content of a file is never trusted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tracejit.errors import ArgumentError, TracejitError, locate
from tracejit.frontend.arrays.core import ArrayCore
from tracejit.frontend.arrays.functions.creation import asarray
from tracejit.frontend.arrays.random.generator import Generator, with_state
from tracejit.frontend.recording.location import user_location
from tracejit.frontend.recording.number import concrete

ROOT = "tree"


def refuse(message: str) -> TracejitError:
    """Return an error about a saved or loaded tree, with the user's line."""
    return locate(ArgumentError(message), user_location())


class TreeDescription:
    """The description of one tree; `arrays` collects its arrays, under names that `name_of` returns."""

    def __init__(self, name_of: Callable[[tuple[Any, ...]], str]) -> None:
        self.name_of = name_of
        self.arrays: dict[str, np.ndarray] = {}

    def describe(self, tree: Any, keys: tuple[Any, ...] = ()) -> Any:
        """Describe `tree`, the subtree at the path `keys`.

        Raises ArgumentError for a value that cannot be saved.
        """
        tree = concrete(tree)
        if isinstance(tree, ArrayCore | np.ndarray | np.generic):
            array = tree.numpy() if isinstance(tree, ArrayCore) else np.asarray(tree)
            return {"array": self._add(array, keys), "numpy": not isinstance(tree, ArrayCore)}
        if isinstance(tree, Generator):
            return {"generator": self._add(tree.state.numpy(), keys)}
        if tree is None or isinstance(tree, bool | int | float | str):
            return {"value": tree}
        if type(tree) is dict:
            for key in tree:
                if not isinstance(key, str | int):
                    path = path_of(keys)
                    raise refuse(
                        f"save: {path} has the key {key!r}; keys of saved dicts are strings or integers"
                    )
            return {"dict": [[key, self.describe(child, (*keys, key))] for key, child in tree.items()]}
        if type(tree) in (list, tuple):
            return {type(tree).__name__: [self.describe(child, (*keys, i)) for i, child in enumerate(tree)]}
        remedy = "; save its state_dict()" if hasattr(tree, "state_dict") else ""
        raise refuse(
            f"save: {path_of(keys)} is a {type(tree).__name__}; trees of dicts, lists, tuples, arrays, "
            f"generators and plain values can be saved{remedy}"
        )

    def _add(self, array: np.ndarray, keys: tuple[Any, ...]) -> str:
        """Add an array, and return its unique name."""
        if array.dtype.hasobject:
            raise refuse(
                f"save: {path_of(keys)} is an array of Python objects, which cannot be saved without pickle"
            )
        name = self.name_of(keys)
        if name in self.arrays:
            name = path_of(keys)  # unique
        self.arrays[name] = array
        return name


def path_of(keys: tuple[Any, ...]) -> str:
    """Return the path of a leaf in the tree as a Python expression."""
    return ROOT + "".join(f"[{key!r}]" for key in keys)


def restore(data: Any, take: Callable[[Any], np.ndarray]) -> Any:
    """Rebuild a tree from its description; `take` returns the array with a name.

    Raises ValueError or TypeError for data that `describe` does not produce.
    """
    kind, content = next(iter(data.items()))
    if kind == "array":
        if set(data) != {"array", "numpy"} or not isinstance(data["numpy"], bool):
            raise ValueError(f"an array is described as {data}")
        array = take(content)
        return array if data["numpy"] else asarray(array)
    if len(data) != 1:
        raise ValueError(f"the structure has {len(data)} items in one place")
    if kind == "generator":
        return _generator(take(content))
    if kind == "value" and (content is None or isinstance(content, bool | int | float | str)):
        return content
    if kind not in ("dict", "list", "tuple") or not isinstance(content, list):
        raise ValueError(f"the structure has the part {kind!r}")
    if kind == "dict":
        tree = {key: restore(child, take) for key, child in content}
        if len(tree) != len(content) or not all(type(key) in (str, int) for key in tree):
            raise ValueError("the structure has a dict with keys that save does not write")
        return tree
    children = [restore(child, take) for child in content]
    return children if kind == "list" else tuple(children)


def _generator(state: np.ndarray) -> Generator:
    if state.shape != (2,) or state.dtype != np.uint64:
        raise ValueError(f"the state of a generator has shape {state.shape} and dtype {state.dtype}")
    return with_state(asarray(state))
