"""Files in the format ``.safetensors``: a length, a header in JSON, and the bytes of all arrays.

    8 bytes         length of the header, little-endian
    header          {"w": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, "__metadata__": {...}}
    bytes           of the arrays, one after the other, without gaps

The format is that of the safetensors project. The metadata are texts. Ours are the ``structure`` of the
tree (see the module of that name), unless it is a dict of arrays, and a check sum of header and bytes.
What is read is strict: lengths, offsets and shapes must agree, and the header's length is bounded.
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
LENGTH = 8  # bytes of the header's length
LARGEST = 100_000_000  # bytes of a header, as in the reference implementation
ALIGNMENT = 8
METADATA, STRUCTURE, CHECKSUM = "__metadata__", "tracejit.structure", "tracejit.crc32"
FORMAT = {"tracejit.format": "1"}  # with a check sum

DTYPES = {
    name: np.dtype(text)
    for name, text in {
        "BOOL": "bool", "U8": "u1", "I8": "i1", "U16": "<u2", "I16": "<i2", "F16": "<f2", "U32": "<u4",
        "I32": "<i4", "F32": "<f4", "U64": "<u8", "I64": "<i8", "F64": "<f8", "C64": "<c8",
    }.items()
}  # fmt: skip
DTYPES["BF16"] = BFLOAT16
NAMES = {dtype: name for name, dtype in DTYPES.items()}


def looks_like_it(file: BinaryIO) -> bool:
    """Whether a header in JSON follows eight bytes; the file is at its start again."""
    start = file.read(LENGTH + 1)
    file.seek(0)
    return start[LENGTH:] == b"{"


# -- writing -------------------------------------------------------------------------------------------------


def writer(tree: Any) -> Callable[[BinaryIO], None]:
    """A function that writes the tree to a file. Raises ArgumentError for dtypes that the format lacks."""
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
    """Whether the tree is what a file without a structure gives."""
    return type(tree) is dict and all(type(k) is str and isinstance(x, ArrayCore) for k, x in tree.items())


def _little(dtype: np.dtype) -> np.dtype:
    return dtype.newbyteorder("<")


def _write(file: BinaryIO, arrays: dict[str, np.ndarray], metadata: dict[str, str]) -> None:
    header: dict[str, Any] = {}
    position = 0
    for name, array in arrays.items():
        place = [position, position := position + array.nbytes]
        header[name] = {"dtype": NAMES[array.dtype], "shape": list(array.shape), "data_offsets": place}
    header[METADATA] = metadata
    contents = [array.reshape(-1).view(np.uint8).data for array in arrays.values()]
    total = _checksum(header)
    for content in contents:
        total = zlib.crc32(content, total)
    text = json.dumps({**header, METADATA: {**metadata, CHECKSUM: f"{total:08x}"}}).encode()
    text += b" " * (-len(text) % ALIGNMENT)
    if len(text) > LARGEST:
        raise refuse(f"save: the header of a {SUFFIX} file would have {len(text):,} bytes; use .npz")
    file.write(len(text).to_bytes(LENGTH, "little") + text)
    for content in contents:
        file.write(content)


def _checksum(header: dict[str, Any]) -> int:
    """The check sum of a header, as it is without the check sum."""
    return zlib.crc32(json.dumps(header, sort_keys=True).encode())


# -- reading -------------------------------------------------------------------------------------------------


class _Place(NamedTuple):
    """An array's entry in the header."""

    dtype: np.dtype
    shape: tuple[int, ...]
    start: int
    end: int


def read(file: BufferedReader) -> Any:
    """The tree in a file."""
    size = os.fstat(file.fileno()).st_size
    length = int.from_bytes(file.read(LENGTH), "little")
    if length > min(size - LENGTH, LARGEST):
        raise ValueError(f"its header would have {length:,} bytes of a file of {size:,}")
    header = json.loads(file.read(length).decode(), object_pairs_hook=_unique)
    metadata = header.pop(METADATA, {})
    if not isinstance(metadata, dict) or not all(isinstance(text, str) for text in metadata.values()):
        raise ValueError("its metadata are no texts")
    places = {name: _place(name, entry) for name, entry in header.items()}
    _check_places(places, size - LENGTH - length)
    total = metadata.pop(CHECKSUM, None)
    found = _checksum({**header, METADATA: metadata})
    arrays = {}
    for name, place in sorted(places.items(), key=lambda item: item[1].start):
        content = np.empty(place.end - place.start, np.uint8)
        if file.readinto(content.data) != len(content):
            raise ValueError("it ends too early")
        found = zlib.crc32(content.data, found)
        arrays[name] = content.view(place.dtype).reshape(place.shape)
    if total != f"{found:08x}" and (total is not None or not FORMAT.keys().isdisjoint(metadata)):
        raise ValueError("its check sum is another one")
    if STRUCTURE not in metadata:
        return {name: asarray(arrays[name]) for name in header}
    return restore(json.loads(metadata[STRUCTURE]), lambda name: arrays.pop(name))


def _unique(items: list[tuple[str, Any]]) -> dict[str, Any]:
    """A dict of an object in JSON, in which no name comes twice."""
    found = dict(items)
    if len(found) != len(items):
        raise ValueError("its header names something twice")
    return found


def _is_count(x: Any) -> bool:
    return type(x) is int and x >= 0


def _place(name: str, entry: Any) -> _Place:
    """Check an entry of the header, and return it. Raises ValueError."""
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
    return _Place(DTYPES[kind], tuple(shape), *offsets)


def _check_places(places: dict[str, _Place], size: int) -> None:
    """Raise ValueError unless the places follow one another and are all of `size` bytes."""
    position = 0
    for place in sorted(places.values(), key=lambda place: (place.start, place.end)):
        if place.start != position:
            raise ValueError("its arrays overlap, or leave gaps")
        position = place.end
    if position != size:
        raise ValueError(f"its arrays have {position:,} bytes, but it has {size:,}")
