"""Files in NumPy's format ``.npz``, which NumPy can read.

Each array is an entry named by its path in the tree (``tree['layers'][0]['w']``). The entry ``structure`` is
a JSON text with the structure of the tree and all leaves that are not arrays (see `tree_data`). ZIP stores a
checksum for each entry.
"""

from __future__ import annotations

import json
import math
import os
import zipfile
from collections.abc import Callable
from typing import Any, BinaryIO, cast

import numpy as np

from tracejit.frontend.arrays.functions.creation import asarray
from tracejit.frontend.arrays.io.tree_data import TreeDescription, path_of, restore
from tracejit.ir.types import BFLOAT16

STRUCTURE = "structure"
MAGIC = b"\x93NUMPY"
TWO_BYTES = np.dtype("V2")
"""The dtype as which bfloat16 is stored in NumPy's format; no other dtype is stored in this way."""


def writer(tree: Any) -> Callable[[BinaryIO], None]:
    """Return a function that writes the tree to a file."""
    description = TreeDescription(path_of)
    structure = json.dumps(description.describe(tree))
    arrays: dict[str, Any] = {**description.arrays, STRUCTURE: np.array(structure)}
    return lambda file: np.savez(file, **arrays)  # without pickle: `TreeDescription` refuses objects


def read(handle: BinaryIO) -> Any:
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
        return restore(json.loads(str(structure)), arrays.take)


class _Entries:
    """The arrays of an archive.

    Each is read at most once, so that in total they are no larger than the file.
    """

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
        """Read and remove the array with this name."""
        entry = self.entries.pop(name, None)
        if entry is None:
            raise ValueError(f"it has no array {name!r}, or names it twice")
        with self.archive.open(entry) as content:
            return _read_array(cast(BinaryIO, content), entry.file_size)


def _read_array(content: BinaryIO, size: int) -> np.ndarray:
    """Read an array in NumPy's format. Raises ValueError unless its header describes exactly `size` bytes."""
    version = np.lib.format.read_magic(content)
    header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = header(content)
    fits = min(shape, default=0) >= 0 and math.prod(shape) * dtype.itemsize == size - content.tell()
    if not fits and not dtype.hasobject:  # NumPy refuses objects, and says why
        raise ValueError(f"an array of shape {shape} and dtype {dtype} has another number of bytes")
    content.seek(0)
    array: np.ndarray = np.lib.format.read_array(content, allow_pickle=False)
    return array.view(BFLOAT16) if array.dtype == TWO_BYTES else array
