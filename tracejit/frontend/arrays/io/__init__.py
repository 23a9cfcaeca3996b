"""Saving and loading trees of arrays, atomically, as ``.npz`` or ``.safetensors`` files.

`tree_data` writes a tree as plain data and arrays with names; `archive` and `safetensors` are the formats.
There is no pickle in a file, and none is read.

>>> import os, tempfile, tracejit as tj
>>> with tempfile.TemporaryDirectory() as folder:
...     path = os.path.join(folder, "model.npz")
...     tj.save(path, {"w": [tj.ones(2), 0.5]})
...     tj.load(path)
{'w': [NDArray([1., 1.], dtype=float32), 0.5]}
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

Path = str | os.PathLike[str]


def save(path: Path, tree: Any) -> None:
    """Write a tree of dicts, lists, tuples, arrays, generators and plain values to a file, atomically.

    A name that ends in ``.safetensors`` gives a file in that format, which other libraries read: a dict of
    arrays is what they see, too; of other trees they see the arrays under names such as ``layers.0.w``. Other
    names give NumPy's ``.npz``. The file is written beside the old one, flushed to the disk and renamed;
    both formats have check sums.
    Looks at all arrays. Raises ArgumentError for anything else in the tree, and for dtypes that the format
    does not have.

    >>> import os, tempfile, tracejit as tj
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "state.safetensors")
    ...     tj.save(path, {"w": tj.ones((2, 3)), "rng": tj.random.Generator(7), "epoch": 4})
    ...     tj.load(path)["epoch"]
    4
    """
    target = os.fspath(path)
    form = safetensors if str(target).endswith(safetensors.SUFFIX) else archive
    write_whole(target, form.writer(tree))


def write_whole(target: str, write: Callable[[BinaryIO], None]) -> None:
    """Have a file written beside `target`, flushed to the disk, and renamed to it."""
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
        os.fsync(parent)  # the new name
    finally:
        os.close(parent)


def load(path: Path) -> Any:
    """The tree that `save` wrote to a file; of a file that NumPy or safetensors wrote, a dict of its arrays.

    Raises FileNotFoundError, or ArgumentError if the file has neither format, is damaged, is compressed,
    holds pickled objects or a dtype that arrays here do not have. It takes no more memory than the file has
    bytes, and a copy.

    >>> import os, tempfile, numpy as np, tracejit as tj
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "numpy.npz")
    ...     np.savez(path, x=np.arange(3))
    ...     tj.load(path)
    {'x': NDArray([0, 1, 2], dtype=int64)}
    """
    with open(path, "rb") as file:
        form = safetensors if safetensors.looks_like_it(file) else archive
        try:
            return form.read(file)
        except Exception as error:  # damaged files make NumPy, zipfile and json raise all kinds
            raise refuse(f"load: {os.fspath(path)} is no file that save wrote ({message(error)})") from error


__all__ = ["load", "save"]
