"""One entry of the kernel store: its key, and its form as a file. Needs no Numba.

A key is content-addressed. Its first half is a digest of the kernel's structure, its second half of the
*environment*: target machine, versions, and the sources of `kernels/` and `codegen/`, from which the
structure becomes object code. So a structure that was stored in another environment can be distinguished from
a new one.

A file is a line of magic, a line with the checksum of all that follows, one line of JSON (interface,
environment, sizes), the source and the object code. No pickle, no locations of user code.

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

try:  # what `hashlib` has under this name; importing that would load OpenSSL, which takes 4 ms
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
"""Fields of an entry's line of JSON, besides the key, and their types."""

VERSION = re.compile(r'"?version"?\s*[:=]\s*["\'](\S+)["\']')


class DamagedEntryError(TracejitError, ValueError):
    """A file of the store is not the entry of its name; the message is the reason."""


class Entry(NamedTuple):
    """One stored kernel.

    `target` is what it was compiled for (`link.host()`), `seconds` what that took, `metadata` plain JSON for
    the interface and for people (symbols, vector width). `environment`, `hits` and the times (in seconds
    since the epoch) are filled in by the store.
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


def _digest(*parts: bytes) -> str:
    """BLAKE2b of the parts, each with its length."""
    total = blake2b(digest_size=DIGEST // 2)
    for part in parts:
        total.update(b"%d:" % len(part))
        total.update(part)
    return total.hexdigest()


@functools.cache
def sources_digest() -> str:
    """Digest of the sources that turn a structure into object code: `kernels/` and `codegen/`."""
    spec = importlib.util.find_spec("tracejit.kernels")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    parts: list[bytes] = []
    codegen = os.path.dirname(os.path.dirname(__file__))
    for folder in (spec.submodule_search_locations[0], codegen):
        found = [os.path.join(where, name) for where, _, names in os.walk(folder) for name in names]
        for file in sorted(name for name in found if name.endswith(".py")):
            parts += (file.removeprefix(folder).encode(), pathlib.Path(file).read_bytes())
    return _digest(*parts)


def version(package: str) -> str:
    """The version of Numba or llvmlite, without importing it; `importlib.metadata` alone would take 15 ms."""
    spec = importlib.util.find_spec(package)
    assert spec is not None
    assert spec.submodule_search_locations is not None
    text = (pathlib.Path(spec.submodule_search_locations[0]) / "_version.py").read_text()
    return found[1] if (found := VERSION.search(text)) else _digest(text.encode())


@functools.cache
def environment(target: tuple[str, ...]) -> Mapping[str, str]:
    """Everything that object code depends on besides the kernel's structure."""
    return {
        "format": str(FORMAT),
        "target": " ".join(target),
        "python": f"{sys.version_info.major}.{sys.version_info.minor}",
        **{package: version(package) for package in ("numba", "llvmlite")},
        "sources": sources_digest(),
    }


def key(structure: str, target: Sequence[str]) -> str:
    """The key of the kernel that `structure`, a canonical text, describes, compiled here for `target`."""
    surroundings = json.dumps(environment(tuple(target)), sort_keys=True)
    half = DIGEST // 2
    return _digest(structure.encode())[:half] + _digest(surroundings.encode())[:half]


def structure_of(key: str) -> str:
    """The part of a key for the structure; the rest is for the target and the versions of the compiler."""
    return key[: DIGEST // 2]


def encode(key: str, entry: Entry) -> bytes:
    """The file of an entry."""
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
    """The entry in a file; raises `DamagedEntryError` unless it is what was written under this key."""
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
    """The entry of a file with this header. Raises TypeError for fields of other types than `HEADER`'s."""
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
