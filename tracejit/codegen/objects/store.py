"""The kernel store: object code on disk, so that a process can load what an earlier one compiled.

This module does not need Numba. An entry (see `tracejit.codegen.objects.entry`) is a file ``<key>.kernel``,
which never changes after it is written. Beside it, ``<key>.hits`` contains one byte for each time the entry
was loaded; its mtime is the time of the last load.

Invariants:

- Object code is executed only from such a file in a private folder (owned by this user, not writable by
  others), and only if its checksum and key are correct. Any other file is a miss, with its reason in
  `misses`, and is removed.
- Only the store's own files are removed, and only in a private folder: files or links of this user with the
  store's names. A file that cannot be removed remains a miss.
- Files appear by rename, so readers in other processes see a complete entry or none. Two processes that
  compile the same kernel at the same time both write it; either file is valid.
- If the disk cannot be written, or there is no folder, entries stay in memory, and one warning is issued.

>>> import tempfile
>>> store = Store(pathlib.Path(tempfile.mkdtemp()))
>>> store.put(key("add f32", ("host",)), Entry("add", "def kernel(): ...", b"\\x7fELF", ("host",), 0.1))
>>> store.get(key("add f32", ("host",))).name
'add'
>>> store.get(key("mul f32", ("host",))), list(store.misses.values())
(None, ['absent'])
"""

# No `from __future__ import annotations`: a named tuple compiles every annotation that is a string.

import errno
import os
import pathlib
import re
import stat
import time
import warnings
from collections.abc import Mapping
from typing import NamedTuple

from tracejit.codegen.objects.entry import DIGEST, DamagedEntryError, Entry, decode, encode, environment, key
from tracejit.forking import make_lock

__all__ = ["DamagedEntryError", "Entry", "Stats", "Store", "key"]

MAX_ENTRY_BYTES = 1 << 26  # maximal size of an entry in bytes; kernels have a few thousand
REMEMBERED = 4096  # number of misses, and of entries in memory without a folder, that are retained

REMEDY = "set TRACEJIT_CACHE_DIR to a private folder that can be written"
NOWHERE = f"there is no home folder to store kernels in; {REMEDY}"
OURS = rf"[0-9a-f]{{{DIGEST}}}\.(kernel|hits)|[0-9a-f]{{16}}\.partial"
"""The names of files that a store creates, as a regular expression."""

ABANDONED = 3600.0  # seconds after which an unfinished file counts as abandoned by its process
MARGIN = 16
"""Eviction frees this part of the limit. A process looks at the folder again when it has written a quarter of
this part, or of what is free: a look takes microseconds for each file, as long as compilation for thousands.
"""


class Stats(NamedTuple):
    """The contents of the store, and its use by this process."""

    path: pathlib.Path | None
    entries: int
    nbytes: int
    limit: int
    hits: int
    misses: Mapping[str, str]
    problem: str | None


class Verified(NamedTuple):
    """The bad entries that `Store.verify` detected, removed and left: key to reason."""

    removed: dict[str, str]
    left: dict[str, str]


def _reason_to_distrust(status: os.stat_result) -> str | None:
    """Return the reason why someone else could have written the file that `status` describes, or None."""
    if status.st_uid != os.geteuid():
        return "it belongs to another user"
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return "others may write to it (chmod go-w)"
    return None


def _difference(other: Mapping[str, str]) -> str:
    """Return a readable list of the changes from the environment `other` to the current one, without the
    target.
    """
    current = environment(())
    changed = [name for name in current if name != "target" and current[name] != other.get(name)]
    text = [
        "sources changed" if n == "sources" else f"{n} {other.get(n)} is now {current[n]}" for n in changed
    ]
    return ", ".join(text) or "another machine"


class Store:
    """A folder of compiled kernels, shared by the processes of one user; see the module's docstring.

    path:    the folder, or None if there is none.
    hits:    the number of entries that this process loaded.
    misses:  for every key that was requested and not found, the reason.
    problem: the reason why the folder is not used or not written, or None.
    """

    def __init__(self, path: pathlib.Path | None, limit: int = 1 << 30) -> None:
        self.path = path
        self.limit = limit
        self.hits = 0
        self.misses: dict[str, str] = {}
        self.problem: str | None = None
        self._memory: dict[str, Entry] = {}
        self._allowance = 0  # bytes that may be written before the folder is looked at
        self._lock = make_lock()

    # Reading

    def get(self, key: str) -> Entry | None:
        """Return the verified entry of `key`, or None. The reason of a miss is stored in `misses`."""
        entry, reason = self._memory.get(key), "absent"
        if entry is None:
            try:
                entry = self._read(key)
                self._count_use(key)
            except DamagedEntryError as error:
                reason = str(error)
                if not_removed := self._remove(key):
                    self._report(not_removed)
                    reason += f"; not removed: {not_removed}"
            except FileNotFoundError:
                pass  # absent
            except OSError as error:
                self._report(error)
                reason = f"unreadable: {error}"
        with self._lock:
            if entry is None:
                self._note_miss(key, reason)
            else:
                self.hits += 1
                self.misses.pop(key, None)
        return entry

    def has(self, key: str) -> bool:
        """Return whether there is an entry of `key`, valid or not. This does not count as a use of the
        entry.
        """
        return key in self._memory or (self.path is not None and os.path.exists(self._file(key)))

    def reject(self, key: str, reason: str) -> None:
        """Count the entry of `key`, which `get` returned, as a miss, and remove it."""
        not_removed = self._remove(key)
        with self._lock:
            self._memory.pop(key, None)
            self.hits -= 1
            self._note_miss(key, reason)
        if not_removed:
            self._report(not_removed)

    def _note_miss(self, key: str, reason: str) -> None:
        self.misses[key] = reason
        if len(self.misses) > REMEMBERED:
            del self.misses[next(iter(self.misses))]

    def why(self, key: str) -> str | None:
        """Return the reason why `key` was not found, as far as the store can tell, or None if it was not
        missed.

        If the same kernel is stored for another environment, the reason states the difference.
        """
        reason = self.misses.get(key)
        if reason != "absent":
            return reason
        half = DIGEST // 2
        for other in self.entries():
            if other.key[:half] == key[:half] and other.key != key:
                return f"compiled for another environment: {_difference(other.environment)}"
        return "never compiled"

    def entries(self) -> list[Entry]:
        """Return all valid entries, most recently used first."""
        entries = []
        for name in self._keys():
            try:
                entries.append(self._read(name))
            except (DamagedEntryError, FileNotFoundError):
                continue  # `verify` and `get` report these
            except OSError as error:
                self._report(error)
        entries += self._memory.values()
        return sorted(entries, key=lambda entry: (-entry.last_used, entry.key))

    def stats(self) -> Stats:
        """Return the contents of the store, and its use by this process."""
        entries = self.entries()
        nbytes = sum(entry.nbytes for entry in entries)
        return Stats(self.path, len(entries), nbytes, self.limit, self.hits, dict(self.misses), self.problem)

    # Writing

    def put(self, key: str, entry: Entry) -> None:
        """Store `entry` under `key`. If the disk cannot be written, keep it in memory and warn once."""
        data = encode(key, entry)
        try:
            self._write(key, data)
            with self._lock:
                self._allowance -= len(data)
                must_look = self._allowance < 0
            if must_look:
                self._evict()
        except OSError as error:
            self._report(error)
            with self._lock:
                self._memory[key] = decode(key, data)
                if len(self._memory) > REMEMBERED:
                    del self._memory[next(iter(self._memory))]

    def verify(self) -> Verified:
        """Check every entry, and remove the damaged and foreign ones if they belong to this user."""
        bad = Verified({}, {})
        for name in self._keys():
            try:
                self._read(name)
            except DamagedEntryError as error:
                if not_removed := self._remove(name):
                    bad.left[name] = f"{error}; not removed: {not_removed}"
                else:
                    bad.removed[name] = str(error)
            except FileNotFoundError:
                continue  # another process removed it
            except OSError as error:
                self._report(error)
        return bad

    def clear(self) -> int:
        """Remove all entries and return their number. Other files in the folder are not touched."""
        n_removed = len(self._memory)
        self._memory.clear()
        for name in self._keys():
            if not_removed := self._remove(name):
                self._report(not_removed)
            else:
                n_removed += 1
        return n_removed

    # The folder

    def _file(self, key: str, suffix: str = ".kernel") -> str:
        """Return the path of a file as a string: a load needs three paths, and `pathlib` would take half
        of its Python time.
        """
        if self.path is None:
            raise OSError(NOWHERE)
        return f"{self.path}{os.sep}{key}{suffix}"

    def _keys(self) -> list[str]:
        """Return the keys of all files, valid or not."""
        try:
            if self.path is None:
                raise OSError(NOWHERE)
            names = [name for name in os.listdir(self.path) if re.fullmatch(OURS, name)]
            return sorted(name[:DIGEST] for name in names if name.endswith(".kernel"))
        except FileNotFoundError:
            return []  # nothing was stored yet
        except OSError as error:
            self._report(error)
            return []

    def _check_folder(self) -> None:
        if self.path is None:
            raise OSError(NOWHERE)
        if exposure := _reason_to_distrust(os.stat(self.path)):
            raise PermissionError(f"the folder is not private: {exposure}")

    def _read(self, key: str) -> Entry:
        """Return the verified entry in the file of `key`, with its number of hits and time of last use."""
        try:
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
            handle = os.open(self._file(key), flags)
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise DamagedEntryError("foreign: a symbolic link") from None
            if error.errno in (errno.ENXIO, errno.ENODEV):
                raise DamagedEntryError("foreign: not a file") from None
            raise
        try:
            self._check_folder()
            status = os.fstat(handle)
            if not stat.S_ISREG(status.st_mode):
                raise DamagedEntryError("foreign: not a file")
            if exposure := _reason_to_distrust(status):
                raise DamagedEntryError(f"foreign: {exposure}")
            if status.st_size > MAX_ENTRY_BYTES:
                raise DamagedEntryError(
                    f"damaged: {status.st_size:,} bytes, entries have {MAX_ENTRY_BYTES:,} at most"
                )
            with open(handle, "rb", closefd=False) as file:
                data = file.read(MAX_ENTRY_BYTES)
        finally:
            os.close(handle)
        entry = decode(key, data)
        try:
            uses = os.stat(self._file(key, ".hits"))
        except FileNotFoundError:
            return entry
        return entry._replace(hits=uses.st_size, last_used=uses.st_mtime)

    def _write(self, key: str, data: bytes) -> None:
        """Write a file atomically."""
        if self.path is not None:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._check_folder()
        partial = self._file(os.urandom(8).hex(), ".partial")
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            with open(os.open(partial, flags, mode=0o600), "wb") as file:
                file.write(data)
            os.replace(partial, self._file(key))
        except BaseException:
            pathlib.Path(partial).unlink(missing_ok=True)
            raise

    def _count_use(self, key: str) -> None:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
        try:
            with open(os.open(self._file(key, ".hits"), flags, mode=0o600), "ab", buffering=0) as file:
                file.write(b".")
        except OSError as error:
            self._report(error)

    def _remove(self, key: str) -> str | None:
        """Remove the files of an entry. Return the reason why the entry still exists, or None."""
        try:
            self._check_folder()
            self._unlink(self._file(key))
            self._unlink(self._file(key, ".hits"))
        except FileNotFoundError:
            pass  # there is no folder
        except OSError as error:
            return str(error)
        return None

    def _unlink(self, path: str) -> None:
        """Remove a file that belongs to this user."""
        try:
            status = os.lstat(path)
            if stat.S_ISDIR(status.st_mode):
                raise IsADirectoryError(f"{path} is a folder")
            if status.st_uid != os.geteuid():
                raise PermissionError(f"{path} belongs to another user")
            os.unlink(path)
        except FileNotFoundError:
            pass  # another process removed it

    def _evict(self) -> None:
        """Remove the least recently used entries if there are more than the limit allows, and unfinished
        files of dead processes.
        """
        sizes: dict[str, int] = {}
        last_used: dict[str, int] = {}
        user = os.geteuid()
        with os.scandir(self.path) as files:
            for file in files:
                if not re.fullmatch(OURS, file.name):
                    continue
                name, suffix = os.path.splitext(file.name)
                try:
                    status = file.stat(follow_symlinks=False)
                except FileNotFoundError:  # another process removed it
                    continue
                if status.st_uid != user or not stat.S_ISREG(status.st_mode):
                    continue
                if suffix == ".kernel":
                    sizes[name] = status.st_size
                if suffix in (".kernel", ".hits"):
                    last_used[name] = max(last_used.get(name, 0), status.st_mtime_ns)
                elif suffix == ".partial" and time.time() - status.st_mtime > ABANDONED:
                    self._unlink(file.path)
        total = sum(sizes.values())
        retained = self.limit if total <= self.limit else self.limit - self.limit // MARGIN
        for name in sorted(last_used, key=lambda name: (last_used[name], name)):
            if name in sizes and total <= retained:
                break
            total -= sizes.get(name, 0)  # without a size: the hits file of a removed entry
            if not_removed := self._remove(name):
                self._report(not_removed)
        with self._lock:
            self._allowance = max(self.limit - total, self.limit // MARGIN) // 4

    # Bookkeeping

    def _report(self, problem: Exception | str) -> None:
        """Record that the folder cannot be used, and warn once."""
        with self._lock:
            first, self.problem = self.problem is None, str(problem)
        if first:
            why = NOWHERE if self.path is None else f"{self.path} cannot be used: {problem}\n  {REMEDY}"
            warnings.warn(
                f"tracejit keeps compiled kernels in memory only, {why}", RuntimeWarning, stacklevel=3
            )
