"""Kept graphs in files: one safetensors file with the text in its metadata and the parameters as tensors.

Any reader of safetensors shows the parameters. The metadata says what the file is, holds the text of the
graph, and a checksum of all other bytes. Nothing in a file is run; a file that is not what `save` writes,
byte for byte, is refused, and no more memory is taken than it has bytes.

    8 bytes       n, the length of the header, little endian
    n bytes       header: JSON with __metadata__ (format, version, graph, sha256) and, by name, dtype, shape
                  and data_offsets of each tensor; spaces fill it up to a multiple of 8
    the rest      tensors, one after the other

Complex tensors are written as real ones with an axis of two more.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import struct
import tempfile
from collections.abc import Mapping
from typing import Any, BinaryIO

import numpy as np

from tracejit.errors import ArgumentError, message
from tracejit.frontend.arrays.ndarray import NDArray
from tracejit.graphs.contract import FORMAT, VERSION, read_contract, refuse
from tracejit.graphs.kept import KeptGraph
from tracejit.ir.text import write_type
from tracejit.ir.types import ArrayType

Path = str | os.PathLike[str]

BITS = (8, 16, 32, 64)
NAMES = {
    "bool": "BOOL",
    **{f"int{bits}": f"I{bits}" for bits in BITS},
    **{f"uint{bits}": f"U{bits}" for bits in BITS},
    **{f"float{bits}": f"F{bits}" for bits in BITS[1:]},
}
"""Names of dtypes in such files."""
BLANK = "0" * 64  # stands for the checksum where it is computed
LONGEST = 100_000_000  # bytes of a header, as for other readers of such files


def save_graph(path: Path, text: str, parameters: Mapping[str, NDArray]) -> None:
    """Write a graph to a file, atomically."""
    arrays = {name: _real(array.numpy()) for name, array in parameters.items()}
    head = _header(text, arrays, BLANK)
    digest = hashlib.sha256(head)
    for array in arrays.values():
        digest.update(array.data)
    target = os.fspath(path)
    handle, temporary = tempfile.mkstemp(dir=os.path.dirname(target) or ".", suffix=".safetensors")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(_header(text, arrays, digest.hexdigest()))
            for array in arrays.values():
                file.write(array.data)
        os.replace(temporary, target)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise


def _real(array: np.ndarray) -> np.ndarray:
    """An array as it is written: contiguous, and complex numbers as pairs."""
    array = np.ascontiguousarray(array).reshape(array.shape)
    if array.dtype.kind == "c":
        array = array.view(f"float{4 * array.dtype.itemsize}").reshape(*array.shape, 2)
    return array


def _header(text: str, arrays: Mapping[str, np.ndarray], checksum: str) -> bytes:
    """Length and header."""
    header: dict[str, Any] = {
        "__metadata__": {"format": FORMAT, "version": str(VERSION), "graph": text, "sha256": checksum}
    }
    offset = 0
    for name, array in arrays.items():
        if str(array.dtype) not in NAMES:
            raise refuse(
                f"save: the parameter {name} is of the dtype {array.dtype}, which the file cannot hold"
            )
        end = offset + array.nbytes
        header[name] = {
            "dtype": NAMES[str(array.dtype)], "shape": list(array.shape), "data_offsets": [offset, end]
        }  # fmt: skip
        offset = end
    encoded = json.dumps(header, separators=(",", ":")).encode()
    encoded += b" " * (-len(encoded) % 8)
    return struct.pack("<Q", len(encoded)) + encoded


def load_graph(path: Path) -> KeptGraph:
    """The graph that `KeptGraph.save` wrote to a file.

    Neither the function nor its source is needed. Raises FileNotFoundError, or ArgumentError if the file is
    no such file, is damaged, or is of another version (the message says what to do).

    >>> import os, tempfile, tracejit as tj
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "double.safetensors")
    ...     tj.export(lambda x: x * 2, tj.spec(("batch", 2))).save(path)
    ...     graph = tj.load_graph(path)
    >>> graph(tj.ones((1, 2)))
    NDArray([[2., 2.]], dtype=float32)
    """
    with open(path, "rb") as file:
        try:
            return _read(file)
        except Exception as error:  # of a crafted text, typing rules may raise anything
            raise refuse(f"load_graph: {os.fspath(path)}: {message(error)}") from error


def _read(file: BinaryIO) -> KeptGraph:
    size = os.fstat(file.fileno()).st_size
    start = file.read(8)
    if len(start) < 8:
        raise ArgumentError("the file is cut off")
    (length,) = struct.unpack("<Q", start)
    if length > min(size - 8, LONGEST):
        raise ArgumentError("this is no safetensors file, or it is cut off")
    encoded = file.read(length)
    header = _parsed(encoded)
    metadata = header.pop("__metadata__", None)
    if not isinstance(metadata, dict) or metadata.get("format") != FORMAT:
        raise ArgumentError(
            "the file holds no graph; tj.export(...).save(path) writes such files (tj.load reads arrays)"
        )
    if metadata.get("version") != str(VERSION):
        raise ArgumentError(
            f"the file is of version {metadata.get('version')!r} of its format, and this version of tracejit "
            f"reads {VERSION}; load it with the version that wrote it, or export the function again"
        )
    text, checksum = metadata.get("graph"), metadata.get("sha256")
    if not isinstance(text, str) or not isinstance(checksum, str):
        raise ArgumentError("the file is damaged: its header lacks the graph or the checksum")
    arrays = _tensors(file, header, size - 8 - length)
    if _header(text, arrays, checksum) != start + encoded:
        raise ArgumentError("the file is damaged: its header is not as it was written")
    digest = hashlib.sha256(_header(text, arrays, BLANK))
    for array in arrays.values():
        digest.update(array.data)
    if digest.hexdigest() != checksum:
        raise ArgumentError("the file is damaged: its checksum differs")
    return kept_of(text, arrays)


def _parsed(encoded: bytes) -> dict[str, Any]:
    """The header as data."""
    try:
        header = json.loads(encoded.decode())
    except (ValueError, RecursionError) as error:
        raise ArgumentError(
            f"the file is damaged, or no safetensors file: its header cannot be read ({message(error)})"
        ) from error
    if not isinstance(header, dict):
        raise ArgumentError("this is no safetensors file: its header is no object")
    return header


def _tensors(file: BinaryIO, header: Mapping[str, Any], size: int) -> dict[str, np.ndarray]:
    """The tensors, which lie one after the other and take all of `size` bytes."""
    dtypes = {name: np.dtype(dtype) for dtype, name in NAMES.items()}
    offset, found = 0, {}
    for name, entry in header.items():
        shape, dtype = entry["shape"], dtypes[entry["dtype"]]
        if not all(type(n) is int and n >= 0 for n in shape):
            raise ArgumentError(f"the file is damaged: the tensor {name} has the shape {shape}")
        end = offset + math.prod(shape) * dtype.itemsize
        if entry["data_offsets"] != [offset, end] or end > size:
            raise ArgumentError(f"the file is damaged or cut off: the tensor {name} is not where it belongs")
        data = file.read(end - offset)
        found[name] = np.frombuffer(data, dtype).reshape(shape)
        offset = end
    if offset != size:
        raise ArgumentError(f"the file is damaged: {size - offset} bytes follow its last tensor")
    return found


def kept_of(text: str, arrays: Mapping[str, np.ndarray]) -> KeptGraph:
    """The graph of a text with these parameters, which must be those that the text names."""
    contract, _ = read_contract(text)
    parameters = {}
    for name, kind in contract.parameters:
        if name not in arrays or not isinstance(kind, ArrayType):
            raise ArgumentError(f"the file has no parameter {name}")
        array = arrays[name]
        if kind.dtype.kind == "c":
            array = array.view(kind.dtype)[..., 0]
        if array.dtype != kind.dtype or array.shape != kind.shape:
            raise ArgumentError(f"the parameter {name} of the file is no {write_type(kind)}")
        parameters[name] = NDArray.from_numpy(array).to(kind.device)
    if len(parameters) != len(arrays):
        raise ArgumentError("the file has tensors that are no parameters")
    return KeptGraph(text, parameters, is_foreign=True)
