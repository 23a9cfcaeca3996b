"""One entry of the kernel store: its key and its file format. This module does not need Numba.

A key is content-addressed. Its first half is a digest of the kernel's structure, its second half a digest of
the *environment*: the target machine, versions, and the sources of `kernels/` and `codegen/`, which determine
the object code of a structure. A structure that was stored in another environment can therefore be
distinguished from a new one.

A file consists of a magic line, a line with the checksum of the rest, one line of JSON (interface,
environment, sizes), the source and the object code. It contains no pickled data and no locations of user
code.

>>> k = key("add f32", ("x86_64", "znver4"))
>>> decode(k, encode(k, Entry("add", "def kernel(): ...", b"object", ("x86_64", "znver4"), 0.1))).object_code
b'object'
>>> decode(key("mul f32", ("x86_64", "znver4")), encode(k, Entry("add", "", b"object", (), 0.1)))
Traceback (most recent call last):
...
tracejit.codegen.objects.entry.DamagedEntryError: foreign: written under another key
"""

# No `from __future__ import annotations`: a named tuple compiles every annotation that is a string.

import functools
import importlib.util
import json
import os
import pathlib
import re
import sys
import time
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from tracejit.errors import TracejitError

try:  # the implementation behind `hashlib.blake2b`; importing `hashlib` loads OpenSSL, which takes 4 ms
    from _blake2 import blake2b
except ImportError:
    from hashlib import blake2b

FORMAT = 2
MAGIC = b"tracejit kernel %d\n" % FORMAT
DIGEST = 64  # hex digits of a checksum and of a key
HEADER: dict[str, type | tuple[type, ...]] = {
    "name": str,
    "target": list,
    "seconds": (int, float),
    "metadata": dict,
    "environment": dict,
    "created": (int, float),
    "sizes": list,
}
"""The fields of an entry's line of JSON, except the key, and their types."""

VERSION = r'"?version"?\s*[:=]\s*["\'](\S+)["\']'  # compiled at its first use


class DamagedEntryError(TracejitError, ValueError):
    """A file of the store is not the entry that its name promises; the message is the reason."""


class Entry(NamedTuple):
    """One stored kernel.

    `target` is the machine it was compiled for (`link.host()`), `seconds` the compile time, `metadata`
    JSON data for the interface and for users (symbols, vector width). The store fills in `environment`,
    `hits` and the times, which are in seconds since the epoch.
    """

    name: str
    source: str
    object_code: bytes
    target: tuple[str, ...]
    seconds: float
    metadata: Mapping[str, Any] = MappingProxyType({})
    key: str = ""
    environment: Mapping[str, str] = MappingProxyType({})
    hits: int = 0
    created: float = 0.0
    last_used: float = 0.0
    nbytes: int = 0


def _digest(*chunks: bytes) -> str:
    """Return the BLAKE2b digest of the chunks, each prefixed with its length."""
    digest = blake2b(digest_size=DIGEST // 2)
    for chunk in chunks:
        digest.update(b"%d:" % len(chunk))
        digest.update(chunk)
    return digest.hexdigest()


@functools.cache
def sources_digest() -> str:
    """Return the digest of the sources that turn a structure into object code: `kernels/` and `codegen/`."""
    spec = importlib.util.find_spec("tracejit.kernels")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    chunks: list[bytes] = []
    codegen = os.path.dirname(os.path.dirname(__file__))
    for folder in (spec.submodule_search_locations[0], codegen):
        paths = [os.path.join(directory, name) for directory, _, names in os.walk(folder) for name in names]
        for file in sorted(name for name in paths if name.endswith(".py")):
            chunks += (file.removeprefix(folder).encode(), pathlib.Path(file).read_bytes())
    return _digest(*chunks)


def version(package: str) -> str:
    """Return the version of Numba or llvmlite without importing it. Importing `importlib.metadata` would
    take 15 ms.
    """
    spec = importlib.util.find_spec(package)
    assert spec is not None
    assert spec.submodule_search_locations is not None
    text = (pathlib.Path(spec.submodule_search_locations[0]) / "_version.py").read_text()
    return match[1] if (match := re.search(VERSION, text)) else _digest(text.encode())


@functools.cache
def environment(target: tuple[str, ...]) -> Mapping[str, str]:
    """Return everything that object code depends on besides the kernel's structure."""
    return {
        "format": str(FORMAT),
        "target": " ".join(target),
        "python": f"{sys.version_info.major}.{sys.version_info.minor}",
        **{package: version(package) for package in ("numba", "llvmlite")},
        "sources": sources_digest(),
    }


def key(structure: str, target: Sequence[str]) -> str:
    """Return the key of the kernel that the canonical text `structure` describes, compiled here for
    `target`.
    """
    environment_text = json.dumps(environment(tuple(target)), sort_keys=True)
    half = DIGEST // 2
    return _digest(structure.encode())[:half] + _digest(environment_text.encode())[:half]


def structure_of(key: str) -> str:
    """Return the half of a key that identifies the structure. The other half identifies the environment."""
    return key[: DIGEST // 2]


def encode(key: str, entry: Entry) -> bytes:
    """Return the content of an entry's file."""
    source = entry.source.encode()
    header = {
        "key": key,
        "name": entry.name,
        "target": entry.target,
        "seconds": entry.seconds,
        "metadata": dict(entry.metadata),
        "environment": environment(entry.target),
        "created": time.time(),
        "sizes": [len(source), len(entry.object_code)],
    }
    body = json.dumps(header).encode() + b"\n" + source + entry.object_code
    return MAGIC + _digest(body).encode() + b"\n" + body


def decode(key: str, data: bytes) -> Entry:
    """Return the entry in a file. Raise `DamagedEntryError` unless it is the one that was written under
    this key.
    """
    if not data.startswith(MAGIC):
        raise DamagedEntryError("foreign: not an entry of this format")
    start = len(MAGIC) + DIGEST + 1
    checksum, body = data[len(MAGIC) : start - 1], data[start:]
    if _digest(body).encode() != checksum:
        raise DamagedEntryError("damaged: wrong checksum")
    line, _, content = body.partition(b"\n")
    try:
        return _entry(key, json.loads(line), content, len(data))
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        if isinstance(error, DamagedEntryError):
            raise
        raise DamagedEntryError(f"damaged: not as it was written ({type(error).__name__}: {error})") from None


def _entry(key: str, header: Any, content: bytes, nbytes: int) -> Entry:
    """Return the entry of a file with this header. Raise TypeError if a field's type differs from
    `HEADER`.
    """
    if header["key"] != key:
        raise DamagedEntryError("foreign: written under another key")
    for name, kind in HEADER.items():
        if not isinstance(header[name], kind):
            raise TypeError(f"{name} is {header[name]!r}")
    texts = (*header["target"], *header["environment"], *header["environment"].values())
    source_size, code_size = header["sizes"]
    if not all(isinstance(text, str) for text in texts) or min(header["sizes"]) < 0:
        raise TypeError("target, environment or sizes")
    if source_size + code_size != len(content):
        raise ValueError("sizes")
    return Entry(
        name=header["name"],
        source=content[:source_size].decode(),
        object_code=content[source_size:],
        target=tuple(header["target"]),
        seconds=header["seconds"],
        metadata=header["metadata"],
        key=key,
        environment=header["environment"],
        created=header["created"],
        last_used=header["created"],
        nbytes=nbytes,
    )
