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
import math
import os
import tempfile
import zipfile
from typing import Any, BinaryIO, cast

import numpy as np

from tracejit.errors import ArgumentError, TracejitError, locate, message
from tracejit.frontend.arrays.core import ArrayCore
from tracejit.frontend.arrays.functions.creation import asarray
from tracejit.frontend.recording.location import user_location
from tracejit.frontend.recording.number import plain
from tracejit.ir.types import BFLOAT16

ROOT = "tree"
STRUCTURE = "structure"
MAGIC = b"\x93NUMPY"
TWO_BYTES = np.dtype("V2")
"""What NumPy's format says of bfloat16; no other dtype of arrays is written so."""
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


def _restore(data: Any, arrays: _Entries) -> Any:
    """The tree that `_describe` described. Raises ValueError or TypeError for what it does not write."""
    kind, content = next(iter(data.items()))
    if kind == "array":
        if set(data) != {"array", "numpy"} or not isinstance(data["numpy"], bool):
            raise ValueError(f"an array is described as {data}")
        array = arrays.take(content)
        return array if data["numpy"] else asarray(array)
    if len(data) != 1:
        raise ValueError(f"the structure has {len(data)} items in one place")
    if kind == "value" and (content is None or isinstance(content, bool | int | float | str)):
        return content
    if kind not in ("dict", "list", "tuple") or not isinstance(content, list):
        raise ValueError(f"the structure has the part {kind!r}")
    if kind == "dict":
        tree = {key: _restore(child, arrays) for key, child in content}
        if len(tree) != len(content) or not all(type(key) in (str, int) for key in tree):
            raise ValueError("the structure has a dict with keys that save does not write")
        return tree
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
    arrays: dict[str, Any] = {}
    structure = json.dumps(_describe(tree, ROOT, arrays))
    arrays[STRUCTURE] = np.array(structure)
    target = os.fspath(path)
    handle, temporary = tempfile.mkstemp(dir=os.path.dirname(target) or ".", suffix=".npz")
    try:
        with os.fdopen(handle, "wb") as file:
            np.savez(file, **arrays)  # of no objects, see `_describe`
        os.replace(temporary, target)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise


def load(path: Path) -> Any:
    """The tree that `save` wrote to a file; of a file that NumPy wrote, a dict of its arrays.

    Raises FileNotFoundError, or ArgumentError if the file is no ``.npz`` file, is damaged, is compressed or
    holds pickled objects. It takes no more memory than the file has bytes, and a copy.

    >>> import os, tempfile, numpy as np, tracejit as tj
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "numpy.npz")
    ...     np.savez(path, x=np.arange(3))
    ...     tj.load(path)
    {'x': NDArray([0, 1, 2], dtype=int64)}
    """
    with open(path, "rb") as handle:
        try:
            return _read(handle)
        except Exception as error:  # damaged files make NumPy, zipfile and json raise all kinds
            raise _refuse(f"load: {os.fspath(path)} is no file that save wrote ({message(error)})") from error


def _read(handle: BinaryIO) -> Any:
    """Read the tree in a file."""
    size = os.fstat(handle.fileno()).st_size
    if handle.read(len(MAGIC)) == MAGIC:
        handle.seek(0)
        return asarray(_read_array(handle, size))
    with zipfile.ZipFile(handle) as archive:
        arrays = _Entries(archive, size)
        if STRUCTURE not in arrays.entries:
            return {name: asarray(arrays.take(name)) for name in list(arrays.entries)}
        structure = arrays.take(STRUCTURE)
        if structure.shape or structure.dtype.kind != "U":
            raise ValueError("its structure is no text")
        return _restore(json.loads(str(structure)), arrays)


class _Entries:
    """The arrays of an archive; each is taken once, so that together they are no larger than the file."""

    def __init__(self, archive: zipfile.ZipFile, size: int) -> None:
        self.archive = archive
        self.entries: dict[str, zipfile.ZipInfo] = {}
        for entry in archive.infolist():
            if entry.compress_type != zipfile.ZIP_STORED:
                raise ValueError(f"the entry {entry.filename} is compressed: read such files with np.load")
            self.entries[entry.filename.removesuffix(".npy")] = entry
        if sum(entry.file_size for entry in archive.infolist()) > size:
            raise ValueError("its entries are larger than the file")

    def take(self, name: str) -> np.ndarray:
        """The array of this name."""
        entry = self.entries.pop(name, None)
        if entry is None:
            raise ValueError(f"it has no array {name!r}, or names it twice")
        with self.archive.open(entry) as content:
            return _read_array(cast(BinaryIO, content), entry.file_size)


def _read_array(content: BinaryIO, size: int) -> np.ndarray:
    """An array in NumPy's format that takes all of `size` bytes: what its header asks for is there."""
    version = np.lib.format.read_magic(content)
    header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = header(content)
    fits = min(shape, default=0) >= 0 and math.prod(shape) * dtype.itemsize == size - content.tell()
    if not fits and not dtype.hasobject:  # NumPy refuses objects, and says why
        raise ValueError(f"an array of shape {shape} and dtype {dtype} has another number of bytes")
    content.seek(0)
    array: np.ndarray = np.lib.format.read_array(content, allow_pickle=False)
    return array.view(BFLOAT16) if array.dtype == TWO_BYTES else array


__all__ = ["load", "save"]
