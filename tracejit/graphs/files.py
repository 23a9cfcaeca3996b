"""Exported graphs in files: one safetensors file with the text in its metadata and the parameters as tensors.

Any reader of safetensors can read the parameters. The metadata contain the format, the text of the graph, and
a checksum of all other bytes. No code in a file is executed. A file that differs from what `save` would write
in any byte is rejected, and loading allocates no more memory than the file has bytes.

    8 bytes       n, the length of the header, little endian
    n bytes       header: JSON with __metadata__ (format, version, graph, sha256) and, by name, dtype, shape
                  and data_offsets of each tensor; padded with spaces to a multiple of 8
    the rest      tensors, contiguously

Complex tensors are written as real ones with an additional last axis of length two.
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

FilePath = str | os.PathLike[str]

BITS = (8, 16, 32, 64)
NAMES = {
    "bool": "BOOL",
    **{f"int{bits}": f"I{bits}" for bits in BITS},
    **{f"uint{bits}": f"U{bits}" for bits in BITS},
    **{f"float{bits}": f"F{bits}" for bits in BITS[1:]},
}
"""The names of dtypes in safetensors files."""
BLANK = "0" * 64  # replaces the checksum while it is computed
MAX_HEADER_BYTES = 100_000_000  # maximum bytes of a header, as in other readers of such files


def save_graph(path: FilePath, text: str, parameters: Mapping[str, NDArray]) -> None:
    """Write a graph to a file, atomically."""
    arrays = {name: _storable(array.numpy()) for name, array in parameters.items()}
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


def _storable(array: np.ndarray) -> np.ndarray:
    """Convert an array to its form in the file: contiguous, with complex numbers as pairs."""
    array = np.ascontiguousarray(array).reshape(array.shape)
    if array.dtype.kind == "c":
        array = array.view(f"float{4 * array.dtype.itemsize}").reshape(*array.shape, 2)
    return array


def _header(text: str, arrays: Mapping[str, np.ndarray], checksum: str) -> bytes:
    """Encode the header, preceded by its length."""
    header: dict[str, Any] = {
        "__metadata__": {"format": FORMAT, "version": str(VERSION), "graph": text, "sha256": checksum}
    }
    offset = 0
    for name, array in arrays.items():
        if str(array.dtype) not in NAMES:
            raise refuse(
                f"save: the parameter {name} is of the dtype {array.dtype}, which the file cannot hold"
            )
        stop = offset + array.nbytes
        header[name] = {
            "dtype": NAMES[str(array.dtype)], "shape": list(array.shape), "data_offsets": [offset, stop]
        }  # fmt: skip
        offset = stop
    encoded = json.dumps(header, separators=(",", ":")).encode()
    encoded += b" " * (-len(encoded) % 8)
    return struct.pack("<Q", len(encoded)) + encoded


def load_graph(path: FilePath) -> KeptGraph:
    """Load a graph from a file that `KeptGraph.save` wrote.

    Neither the function nor its source is needed. Raises FileNotFoundError, or ArgumentError if the file is
    not such a file, is damaged, or has a different format version (the message suggests a remedy).

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
        except Exception as error:  # with a crafted text, typing rules may raise any exception
            raise refuse(f"load_graph: {os.fspath(path)}: {message(error)}") from error


def _read(file: BinaryIO) -> KeptGraph:
    size = os.fstat(file.fileno()).st_size
    start = file.read(8)
    if len(start) < 8:
        raise ArgumentError("the file is cut off")
    (length,) = struct.unpack("<Q", start)
    if length > min(size - 8, MAX_HEADER_BYTES):
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
    """Parse the JSON of the header."""
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
    """Read the tensors, which must be contiguous and occupy exactly `size` bytes."""
    dtypes = {name: np.dtype(dtype) for dtype, name in NAMES.items()}
    offset, tensors = 0, {}
    for name, entry in header.items():
        shape, dtype = entry["shape"], dtypes[entry["dtype"]]
        if not all(type(n) is int and n >= 0 for n in shape):
            raise ArgumentError(f"the file is damaged: the tensor {name} has the shape {shape}")
        end = offset + math.prod(shape) * dtype.itemsize
        if entry["data_offsets"] != [offset, end] or end > size:
            raise ArgumentError(f"the file is damaged or cut off: the tensor {name} is not where it belongs")
        data = file.read(end - offset)
        tensors[name] = np.frombuffer(data, dtype).reshape(shape)
        offset = end
    if offset != size:
        raise ArgumentError(f"the file is damaged: {size - offset} bytes follow its last tensor")
    return tensors


def kept_of(text: str, arrays: Mapping[str, np.ndarray]) -> KeptGraph:
    """Create the graph of a text from a file; raise ArgumentError unless the arrays are its parameters."""
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
