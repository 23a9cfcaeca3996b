"""Saving and loading trees of arrays as ``.npz`` files, which NumPy reads too.

Each array is an entry named by its path in the tree (``tree['layers'][0]['w']``). One more entry,
``structure``, is a JSON text that says how dicts, lists and tuples nest and holds the plain leaves (numbers,
strings, None). There is no pickle in a file, and none is read.

>>> import os, tempfile, tracejit as tj
>>> with tempfile.TemporaryDirectory() as folder:
...     path = os.path.join(folder, "model.npz")
...     tj.save(path, {"w": [tj.ones(2), 0.5]})
...     tj.load(path)
{'w': [NDArray([1., 1.], dtype=float32), 0.5]}
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
import zipfile
from typing import Any

import numpy as np

from tracejit.errors import ArgumentError, TracejitError, locate
from tracejit.frontend.array import ArrayCore
from tracejit.frontend.functions.creation import asarray
from tracejit.frontend.location import user_location
from tracejit.frontend.number import plain

ROOT = "tree"
STRUCTURE = "structure"
Path = str | os.PathLike[str]


def _refuse(message: str) -> TracejitError:
    return locate(ArgumentError(message), user_location())


# -- trees to and from plain data ----------------------------------------------------------------------------


def _describe(tree: Any, path: str, arrays: dict[str, np.ndarray]) -> Any:
    """The structure of `tree` as JSON data; its arrays go into `arrays` under their paths."""
    tree = plain(tree)
    if isinstance(tree, ArrayCore | np.ndarray | np.generic):
        arrays[path] = tree.numpy() if isinstance(tree, ArrayCore) else np.asarray(tree)
        if arrays[path].dtype.hasobject:
            raise _refuse(f"save: {path} is an array of Python objects, which cannot be saved without pickle")
        return {"array": path, "numpy": not isinstance(tree, ArrayCore)}
    if tree is None or isinstance(tree, bool | int | float | str):
        return {"value": tree}
    if type(tree) is dict:
        for key in tree:
            if not isinstance(key, str | int):
                raise _refuse(
                    f"save: {path} has the key {key!r}; keys of saved dicts are strings or integers"
                )
        items = [[key, _describe(child, path + f"[{key!r}]", arrays)] for key, child in tree.items()]
        return {"dict": items}
    if type(tree) in (list, tuple):
        items = [_describe(child, path + f"[{i}]", arrays) for i, child in enumerate(tree)]
        return {type(tree).__name__: items}
    raise _refuse(
        f"save: {path} is a {type(tree).__name__}; trees of dicts, lists, tuples, arrays and plain values "
        "can be saved"
    )


def _restore(data: Any, arrays: Any) -> Any:
    """The tree that `_describe` described."""
    ((kind, content), *_) = data.items()
    if kind == "array":
        return arrays[content] if data["numpy"] else asarray(arrays[content])
    if kind == "value":
        return content
    if kind == "dict":
        return {key: _restore(child, arrays) for key, child in content}
    children = [_restore(child, arrays) for child in content]
    return children if kind == "list" else tuple(children)


# -- files ---------------------------------------------------------------------------------------------------


def save(path: Path, tree: Any) -> None:
    """Write a tree of dicts, lists, tuples, arrays and plain values to an ``.npz`` file, whole or not at all.

    Looks at all arrays. Raises ArgumentError for anything else in the tree.

    >>> import os, tempfile, tracejit as tj
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "params.npz")
    ...     tj.save(path, {"w": tj.ones((2, 3)), "epoch": 4})
    ...     tj.load(path)["epoch"]
    4
    """
    arrays: dict[str, np.ndarray] = {}
    structure = json.dumps(_describe(tree, ROOT, arrays))
    arrays[STRUCTURE] = np.array(structure)
    target = os.fspath(path)
    handle, temporary = tempfile.mkstemp(dir=os.path.dirname(target) or ".", suffix=".npz")
    try:
        with os.fdopen(handle, "wb") as file:
            np.savez(file, allow_pickle=False, **arrays)
        os.replace(temporary, target)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise


def load(path: Path) -> Any:
    """The tree that `save` wrote to a file; of a file that NumPy wrote, a dict of its arrays.

    Raises FileNotFoundError, or ArgumentError if the file is no ``.npz`` file or holds pickled objects.

    >>> import os, tempfile, numpy as np, tracejit as tj
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "numpy.npz")
    ...     np.savez(path, x=np.arange(3))
    ...     tj.load(path)
    {'x': NDArray([0, 1, 2], dtype=int64)}
    """
    try:
        with open(path, "rb") as handle:
            file = np.load(handle, allow_pickle=False)
            if isinstance(file, np.ndarray):
                return asarray(file)
            if STRUCTURE not in file.files:
                return {name: asarray(file[name]) for name in file.files}
            return _restore(json.loads(str(file[STRUCTURE])), file)
    except (ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise _refuse(f"load: {os.fspath(path)} is no file that save wrote ({error})") from error


__all__ = ["load", "save"]
