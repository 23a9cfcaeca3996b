"""Files in the format ``.safetensors``: a length, a header in JSON, and the bytes of all arrays.

    8 bytes         length of the header, little-endian
    header          {"w": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, "__metadata__": {...}}
    data            of the arrays, in sequence, without gaps

The format is that of the safetensors project. The metadata are strings. tracejit stores the structure of the
tree (see `tree_data`), unless it is a dict of arrays, and a checksum of header and data. The reader is
strict: lengths, offsets and shapes must be consistent, and the length of the header is bounded.
"""

from __future__ import annotations

import json
import math
import os
import zlib
from collections.abc import Callable
from io import BufferedReader
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from tracejit.frontend.arrays.core import ArrayCore
from tracejit.frontend.arrays.functions.creation import asarray
from tracejit.frontend.arrays.io.tree_data import TreeDescription, path_of, refuse, restore
from tracejit.ir.types import BFLOAT16

SUFFIX = ".safetensors"
LENGTH = 8  # size of the header's length in bytes
MAX_HEADER_BYTES = 100_000_000  # maximum size of a header in bytes, as in the reference implementation
ALIGNMENT = 8
METADATA, STRUCTURE, CHECKSUM = "__metadata__", "tracejit.structure", "tracejit.crc32"
FORMAT = {"tracejit.format": "1"}  # files with a checksum

DTYPES = {
    name: np.dtype(text)
    for name, text in {
        "BOOL": "bool", "U8": "u1", "I8": "i1", "U16": "<u2", "I16": "<i2", "F16": "<f2", "U32": "<u4",
        "I32": "<i4", "F32": "<f4", "U64": "<u8", "I64": "<i8", "F64": "<f8", "C64": "<c8",
    }.items()
}  # fmt: skip
DTYPES["BF16"] = BFLOAT16
NAMES = {dtype: name for name, dtype in DTYPES.items()}


def is_safetensors(file: BinaryIO) -> bool:
    """Whether a JSON header follows the first eight bytes. The position of the file is reset to its start."""
    start = file.read(LENGTH + 1)
    file.seek(0)
    return start[LENGTH:] == b"{"


# -- writing -------------------------------------------------------------------------------------------------


def writer(tree: Any) -> Callable[[BinaryIO], None]:
    """Return a function that writes the tree to a file. Raises ArgumentError for unsupported dtypes."""
    description = TreeDescription(lambda keys: ".".join(map(str, keys)) or path_of(keys))
    structure = description.describe(tree)
    metadata = FORMAT if _is_flat(tree) else {**FORMAT, STRUCTURE: json.dumps(structure)}
    for name, array in description.arrays.items():
        if name == METADATA:
            raise refuse(f"save: {name} is no name of an array in a {SUFFIX} file")
        if _little(array.dtype) not in NAMES:
            raise refuse(f"save: {name} has the dtype {array.dtype}, which {SUFFIX} files lack; use .npz")
    arrays = {
        name: np.ascontiguousarray(array, _little(array.dtype)).reshape(array.shape)
        for name, array in sorted(description.arrays.items(), key=lambda item: -item[1].dtype.itemsize)
    }
    return lambda file: _write(file, arrays, metadata)


def _is_flat(tree: Any) -> bool:
    """Whether the tree is a dict of arrays, which is the result of reading a file without a structure."""
    return type(tree) is dict and all(type(k) is str and isinstance(x, ArrayCore) for k, x in tree.items())


def _little(dtype: np.dtype) -> np.dtype:
    return dtype.newbyteorder("<")


def _write(file: BinaryIO, arrays: dict[str, np.ndarray], metadata: dict[str, str]) -> None:
    header: dict[str, Any] = {}
    position = 0
    for name, array in arrays.items():
        offsets = [position, position := position + array.nbytes]
        header[name] = {"dtype": NAMES[array.dtype], "shape": list(array.shape), "data_offsets": offsets}
    header[METADATA] = metadata
    contents = [array.reshape(-1).view(np.uint8).data for array in arrays.values()]
    checksum = _checksum(header)
    for content in contents:
        checksum = zlib.crc32(content, checksum)
    text = json.dumps({**header, METADATA: {**metadata, CHECKSUM: f"{checksum:08x}"}}).encode()
    text += b" " * (-len(text) % ALIGNMENT)
    if len(text) > MAX_HEADER_BYTES:
        raise refuse(f"save: the header of a {SUFFIX} file would have {len(text):,} bytes; use .npz")
    file.write(len(text).to_bytes(LENGTH, "little") + text)
    for content in contents:
        file.write(content)


def _checksum(header: dict[str, Any]) -> int:
    """Return the checksum of a header that does not contain the checksum."""
    return zlib.crc32(json.dumps(header, sort_keys=True).encode())


# -- reading -------------------------------------------------------------------------------------------------


class _Entry(NamedTuple):
    """The entry of an array in the header, with the offsets of its data."""

    dtype: np.dtype
    shape: tuple[int, ...]
    start: int
    end: int


def read(file: BufferedReader) -> Any:
    """Read the tree in a file."""
    size = os.fstat(file.fileno()).st_size
    length = int.from_bytes(file.read(LENGTH), "little")
    if length > min(size - LENGTH, MAX_HEADER_BYTES):
        raise ValueError(f"its header would have {length:,} bytes of a file of {size:,}")
    header = json.loads(file.read(length).decode(), object_pairs_hook=_unique)
    metadata = header.pop(METADATA, {})
    if not isinstance(metadata, dict) or not all(isinstance(text, str) for text in metadata.values()):
        raise ValueError("its metadata are no texts")
    entries = {name: _checked_entry(name, entry) for name, entry in header.items()}
    _check_offsets(entries, size - LENGTH - length)
    expected = metadata.pop(CHECKSUM, None)
    checksum = _checksum({**header, METADATA: metadata})
    arrays = {}
    for name, entry in sorted(entries.items(), key=lambda item: item[1].start):
        content = np.empty(entry.end - entry.start, np.uint8)
        if file.readinto(content.data) != len(content):
            raise ValueError("it ends too early")
        checksum = zlib.crc32(content.data, checksum)
        arrays[name] = content.view(entry.dtype).reshape(entry.shape)
    if expected != f"{checksum:08x}" and (expected is not None or not FORMAT.keys().isdisjoint(metadata)):
        raise ValueError("its check sum is another one")
    if STRUCTURE not in metadata:
        return {name: asarray(arrays[name]) for name in header}
    return restore(json.loads(metadata[STRUCTURE]), lambda name: arrays.pop(name))


def _unique(items: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object as a dict. Raises ValueError for repeated names."""
    mapping = dict(items)
    if len(mapping) != len(items):
        raise ValueError("its header names something twice")
    return mapping


def _is_count(x: Any) -> bool:
    return type(x) is int and x >= 0


def _checked_entry(name: str, entry: Any) -> _Entry:
    """Return an entry of the header, checked. Raises ValueError if it is malformed or inconsistent."""
    if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
        raise ValueError(f"it describes {name!r} as {str(entry)[:80]}")
    kind, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(kind, str) or kind not in DTYPES:
        raise ValueError(f"{name!r} has the dtype {kind}, which is not supported")
    if not isinstance(shape, list) or not all(map(_is_count, shape)) or len(shape) > 64:
        raise ValueError(f"{name!r} has the shape {str(shape)[:80]}")
    if not isinstance(offsets, list) or len(offsets) != 2 or not all(map(_is_count, offsets)):
        raise ValueError(f"{name!r} has the offsets {str(offsets)[:80]}")
    if math.prod(shape) * DTYPES[kind].itemsize != offsets[1] - offsets[0]:
        raise ValueError(f"{name!r} has another number of bytes than its shape")
    return _Entry(DTYPES[kind], tuple(shape), *offsets)


def _check_offsets(entries: dict[str, _Entry], size: int) -> None:
    """Raise ValueError unless the data of all arrays are adjacent and fill `size` bytes."""
    position = 0
    for entry in sorted(entries.values(), key=lambda entry: (entry.start, entry.end)):
        if entry.start != position:
            raise ValueError("its arrays overlap, or leave gaps")
        position = entry.end
    if position != size:
        raise ValueError(f"its arrays have {position:,} bytes, but it has {size:,}")
