"""Saving and loading trees of arrays, atomically, as ``.npz`` or ``.safetensors`` files.

Pickle is neither written nor read.

>>> import os, tempfile, tracejit as tj
>>> with tempfile.TemporaryDirectory() as folder:
...     path = os.path.join(folder, "model.npz")
...     tj.save(path, {"w": [tj.ones(2), 0.5]})
...     tj.load(path)
{'w': [NDArray([1., 1.], dtype=float32), 0.5]}

Modules; each imports only modules to its right and below:

    archive, safetensors  the two formats
    tree_data             a tree as JSON data and named arrays

The package imports `core`, `functions`, `ir`, `random` and `recording`.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Callable
from typing import Any, BinaryIO

from tracejit.errors import message
from tracejit.frontend.arrays.io import archive, safetensors
from tracejit.frontend.arrays.io.tree_data import refuse

FilePath = str | os.PathLike[str]


def save(path: FilePath, tree: Any) -> None:
    """Write a tree of dicts, lists, tuples, arrays, generators, numbers, strings and None to a file.

    A path that ends in ``.safetensors`` selects this format, which other libraries can read: a dict of arrays
    as such, of other trees the arrays under names such as ``layers.0.w``. Other paths select NumPy's
    ``.npz``. The write is atomic: the data are written to a temporary file in the same folder and flushed to
    the disk, and the file is renamed. Both formats have checksums. This is a look at all arrays.
    Raises ArgumentError for other objects in the tree, and for dtypes that the format does not support.

    >>> import os, tempfile, tracejit as tj
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "state.safetensors")
    ...     tj.save(path, {"w": tj.ones((2, 3)), "rng": tj.random.Generator(7), "epoch": 4})
    ...     tj.load(path)["epoch"]
    4
    """
    target = os.fspath(path)
    form = safetensors if str(target).endswith(safetensors.SUFFIX) else archive
    write_atomically(target, form.writer(tree))


def write_atomically(target: str, write: Callable[[BinaryIO], None]) -> None:
    """Call `write` with a temporary file beside `target`, flush it to the disk, and rename it to `target`."""
    target = os.path.realpath(target)
    folder = os.path.dirname(target)
    temporary = os.path.join(folder, f".{os.path.basename(target)}.{secrets.token_hex(6)}.tmp")
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0), 0o666)
    try:
        with os.fdopen(handle, "wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise
    parent = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(parent)  # makes the new name durable
    finally:
        os.close(parent)


def load(path: FilePath) -> Any:
    """Read the tree that `save` wrote to a file; for a file by NumPy or safetensors, a dict of its arrays.

    Raises FileNotFoundError, or ArgumentError if the file has neither format, is damaged or compressed,
    contains pickled objects, or has an unsupported dtype. The memory used is at most the size of the file
    plus a copy.

    >>> import os, tempfile, numpy as np, tracejit as tj
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "numpy.npz")
    ...     np.savez(path, x=np.arange(3))
    ...     tj.load(path)
    {'x': NDArray([0, 1, 2], dtype=int64)}
    """
    with open(path, "rb") as file:
        form = safetensors if safetensors.is_safetensors(file) else archive
        try:
            return form.read(file)
        except Exception as error:  # NumPy, zipfile and json raise various errors for damaged files
            raise refuse(f"load: {os.fspath(path)} is no file that save wrote ({message(error)})") from error


__all__ = ["load", "save"]
