"""The kernel store: object code on disk, so that a second process loads what a first one compiled.

Needs no Numba. One entry (see `tracejit.codegen.objects.entry`) is one file named by its key and never
changed once written, ``<key>.kernel``. Beside it ``<key>.hits`` has one byte for each time the entry was
loaded, and its mtime says when that was last.

What always holds:

- Object code is executed only from a private folder (ours, not writable by others), from such a file, whose
  checksum and key are right. Anything else is a miss, with its reason in `misses`, and is removed.
- Only the store's own files are removed, in a private folder: files (or links) of this user with the store's
  names. What cannot be removed stays a miss.
- Files appear by rename, so readers in other processes see a complete entry or none. Two that compile the
  same kernel at the same time both write it; either file is good.
- If the disk cannot be written, or there is no folder, entries stay in memory, with one warning.

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

LARGEST = 1 << 26  # bytes of an entry; kernels have a few thousand
REMEMBERED = 4096  # misses, and entries in memory where there is no folder: the newest ones

REMEDY = "set TRACEJIT_CACHE_DIR to a private folder that can be written"
NOWHERE = f"there is no home folder to store kernels in; {REMEDY}"
OURS = re.compile(rf"[0-9a-f]{{{DIGEST}}}\.(kernel|hits)|[0-9a-f]{{16}}\.partial")
"""Names of files that a store makes."""

ABANDONED = 3600.0  # seconds after which another process's unfinished file counts as abandoned


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
    """The bad entries that `Store.verify` found: key to reason."""

    removed: dict[str, str]
    left: dict[str, str]


def _exposure(status: os.stat_result) -> str | None:
    """The reason why what `status` describes could have been written by someone else, or None."""
    if status.st_uid != os.geteuid():
        return "it belongs to another user"
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return "others may write to it (chmod go-w)"
    return None


def _difference(there: Mapping[str, str]) -> str:
    """A readable list of changes from the environment `there` to ours; the target is not known here."""
    here = environment(())
    changed = [name for name in here if name != "target" and here[name] != there.get(name)]
    text = ["sources changed" if n == "sources" else f"{n} {there.get(n)} is now {here[n]}" for n in changed]
    return ", ".join(text) or "another machine"


class Store:
    """A folder of compiled kernels, shared by the processes of one user; see the module's text.

    path:    the folder; None: there is none.
    hits:    how many entries this process loaded.
    misses:  key to reason, for every key that was requested and not found.
    problem: why the folder is not used, or not written; None if all is well.
    """

    def __init__(self, path: pathlib.Path | None, limit: int = 1 << 30) -> None:
        self.path = path
        self.limit = limit
        self.hits = 0
        self.misses: dict[str, str] = {}
        self.problem: str | None = None
        self._memory: dict[str, Entry] = {}
        self._lock = make_lock()

    # Reading

    def get(self, key: str) -> Entry | None:
        """The entry of `key`, checked, or None; the reason of a miss stands in `misses`."""
        entry, reason = self._memory.get(key), "absent"
        if entry is None:
            try:
                entry = self._read(key)
                self._count_use(key)
            except DamagedEntryError as error:
                reason = str(error)
                if left := self._remove(key):
                    self._report(left)
                    reason += f"; not removed: {left}"
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
        """Whether there is an entry of `key`, good or bad. Counts as no use of it."""
        return key in self._memory or (self.path is not None and os.path.exists(self._file(key)))

    def reject(self, key: str, reason: str) -> None:
        """Count the entry of `key`, which `get` returned, as a miss, and remove it."""
        left = self._remove(key)
        with self._lock:
            self._memory.pop(key, None)
            self.hits -= 1
            self._note_miss(key, reason)
        if left:
            self._report(left)

    def _note_miss(self, key: str, reason: str) -> None:
        self.misses[key] = reason
        if len(self.misses) > REMEMBERED:
            del self.misses[next(iter(self.misses))]

    def why(self, key: str) -> str | None:
        """The reason why `key` was not found, as far as the store can tell; None if it was not missed.

        Where the same kernel is there for another environment the answer names the difference.
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
        """All good entries, most recently used first."""
        found = []
        for name in self._keys():
            try:
                found.append(self._read(name))
            except (DamagedEntryError, FileNotFoundError):
                continue  # `verify` and `get` report these
            except OSError as error:
                self._report(error)
        found += self._memory.values()
        return sorted(found, key=lambda entry: (-entry.last_used, entry.key))

    def stats(self) -> Stats:
        """The contents of the store, and its use by this process."""
        entries = self.entries()
        nbytes = sum(entry.nbytes for entry in entries)
        return Stats(self.path, len(entries), nbytes, self.limit, self.hits, dict(self.misses), self.problem)

    # Writing

    def put(self, key: str, entry: Entry) -> None:
        """Store `entry` under `key`; in memory only, with one warning, if the disk cannot be written."""
        data = encode(key, entry)
        try:
            self._write(key, data)
            self._evict()
        except OSError as error:
            self._report(error)
            with self._lock:
                self._memory[key] = decode(key, data)
                if len(self._memory) > REMEMBERED:
                    del self._memory[next(iter(self._memory))]

    def verify(self) -> Verified:
        """Check every entry; the damaged and foreign ones are removed, as far as they are ours."""
        bad = Verified({}, {})
        for name in self._keys():
            try:
                self._read(name)
            except DamagedEntryError as error:
                if left := self._remove(name):
                    bad.left[name] = f"{error}; not removed: {left}"
                else:
                    bad.removed[name] = str(error)
            except FileNotFoundError:
                continue  # another process removed it
            except OSError as error:
                self._report(error)
        return bad

    def clear(self) -> int:
        """Remove all entries and return how many; nothing else in the folder is touched."""
        count = len(self._memory)
        self._memory.clear()
        for name in self._keys():
            if left := self._remove(name):
                self._report(left)
            else:
                count += 1
        return count

    # The folder

    def _file(self, key: str, suffix: str = ".kernel") -> str:
        """The name of a file, as text: a load needs three, and `pathlib` would take half of its time in
        Python.
        """
        if self.path is None:
            raise OSError(NOWHERE)
        return f"{self.path}{os.sep}{key}{suffix}"

    def _keys(self) -> list[str]:
        """Keys of all files, good or bad."""
        try:
            if self.path is None:
                raise OSError(NOWHERE)
            names = [name for name in os.listdir(self.path) if OURS.fullmatch(name)]
            return sorted(name[:DIGEST] for name in names if name.endswith(".kernel"))
        except FileNotFoundError:
            return []  # nothing was stored yet
        except OSError as error:
            self._report(error)
            return []

    def _check_folder(self) -> None:
        if self.path is None:
            raise OSError(NOWHERE)
        if exposure := _exposure(os.stat(self.path)):
            raise PermissionError(f"the folder is not private: {exposure}")

    def _read(self, key: str) -> Entry:
        """The entry in the file of `key`, checked, with its uses."""
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
            if exposure := _exposure(status):
                raise DamagedEntryError(f"foreign: {exposure}")
            if status.st_size > LARGEST:
                raise DamagedEntryError(
                    f"damaged: {status.st_size:,} bytes, entries have {LARGEST:,} at most"
                )
            with open(handle, "rb", closefd=False) as file:
                data = file.read(LARGEST)
        finally:
            os.close(handle)
        entry = decode(key, data)
        try:
            uses = os.stat(self._file(key, ".hits"))
        except FileNotFoundError:
            return entry
        return entry._replace(hits=uses.st_size, last_used=uses.st_mtime)

    def _write(self, key: str, data: bytes) -> None:
        """Put a file in place in one step."""
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
        """Remove what there is of an entry; why the entry itself is still there, or None."""
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
        """Remove a file that is ours."""
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
        """Remove the least recently used entries above the limit, and what dead processes left behind."""
        sizes: dict[str, int] = {}
        used: dict[str, int] = {}
        user = os.geteuid()
        with os.scandir(self.path) as files:
            for file in files:
                if not OURS.fullmatch(file.name):
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
                    used[name] = max(used.get(name, 0), status.st_mtime_ns)
                elif suffix == ".partial" and time.time() - status.st_mtime > ABANDONED:
                    self._unlink(file.path)
        total = sum(sizes.values())
        for name in sorted(used, key=lambda name: (used[name], name)):
            if name in sizes and total <= self.limit:
                break
            total -= sizes.get(name, 0)  # without a size: uses of an entry that is gone
            if left := self._remove(name):
                self._report(left)

    # Bookkeeping

    def _report(self, problem: Exception | str) -> None:
        """Note that the folder cannot be used, and warn once."""
        with self._lock:
            first, self.problem = self.problem is None, str(problem)
        if first:
            why = NOWHERE if self.path is None else f"{self.path} cannot be used: {problem}\n  {REMEDY}"
            warnings.warn(
                f"tracejit keeps compiled kernels in memory only, {why}", RuntimeWarning, stacklevel=3
            )
