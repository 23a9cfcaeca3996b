"""Object code to addresses, through LLVM's linker, without Numba.

The linker is that of llvmlite's library, called directly where its functions are known (`orc`), which saves
the import of llvmlite, and through llvmlite elsewhere (`machine`). `anticipate` announces that a kernel will
be loaded soon: the system then loads the library while Python goes on.

Code that `load` returns can be called as long as somebody refers to it. Unreferenced code is unloaded when
the next object is loaded; no garbage collection ever calls LLVM.

>>> link("empty", b"", [])
Traceback (most recent call last):
...
ValueError: no object code for 'empty'
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib
import itertools
import os
import pathlib
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tracejit.codegen.objects.entry import environment, version
from tracejit.codegen.objects.orc import KNOWN, Linker, library_of_llvmlite
from tracejit.forking import make_lock, make_rlock

_SERIAL = itertools.count()
_LOCK = make_rlock()
_STARTING = make_lock()
PATIENCE = 2.0  # seconds that a fork waits for LLVM's linker and the system's loader
_coming: threading.Thread | None = None  # loads the library
_dropped: deque[Any] = deque()  # trackers of code that nobody refers to any more
_forever: list[Code] = []


@functools.cache
def _library() -> pathlib.Path | None:
    """The library whose functions are known; None if there is none."""
    return library_of_llvmlite() if version("llvmlite").startswith(KNOWN) else None


@functools.cache
def _linker() -> Any:
    """The provider of `host`, `link` and `unload`; there is one in a process."""
    path = _library()
    return importlib.import_module("tracejit.codegen.objects.machine") if path is None else Linker(path)


def anticipate() -> None:
    """Begin to load LLVM, and to read what keys of the store are made of, as a kernel will be loaded soon.
    Most of that is done by the system and by LLVM, without Python's lock.
    """
    global _coming
    if _coming is None:
        with _STARTING:
            if _coming is None and (path := _library()) is not None:
                thread = threading.Thread(target=_come, args=(path,), name="tracejit loader")
                with contextlib.suppress(RuntimeError):  # no more threads: it is loaded when it is needed
                    thread.start()
                    _coming = thread


def _come(path: pathlib.Path) -> None:
    _open(path)
    with contextlib.suppress(Exception), _LOCK:  # a failure is raised when the library is needed
        environment(_host())


def _open(path: pathlib.Path) -> None:
    opened = ctypes.CDLL(None).dlopen  # `ctypes.CDLL(path)` would keep Python's lock
    opened.argtypes, opened.restype = (ctypes.c_char_p, ctypes.c_int), ctypes.c_void_p
    opened(os.fsencode(path), os.RTLD_NOW)


_holding: set[int] = set()  # threads for which nothing is being linked


def hold() -> None:
    """Wait until nothing is being loaded or linked, and block both: a fork must not interrupt them.

    A thread that does not finish in time waits for a lock of Python, which the forking thread may have; it is
    not inside the linker or the loader.
    """
    coming = _coming
    if coming is not None:
        coming.join(PATIENCE)
    if _LOCK.acquire(timeout=PATIENCE):
        _holding.add(threading.get_ident())


def let_go() -> None:
    """Release the lock that `hold` took."""
    if threading.get_ident() in _holding:
        _holding.discard(threading.get_ident())
        _LOCK.release()


def start_anew() -> None:
    """Release the locks of `hold` in a forked child."""
    let_go()
    _holding.clear()


@functools.cache
def _host() -> tuple[str, str, str]:
    triple, cpu, features = _linker().host()
    return triple, cpu, features


def host() -> tuple[str, str, str]:
    """Triple, processor name and feature string of this machine: part of every store key."""
    with _LOCK:
        return _host()


class Code:
    """Machine code in the process, with the addresses of its symbols: valid as long as this object lives."""

    __slots__ = ("__weakref__", "_tracker", "addresses")

    def __init__(self, addresses: Mapping[str, int], tracker: Any) -> None:
        self.addresses = addresses
        self._tracker = tracker

    def __del__(self, drop: Callable[[Any], None] = _dropped.append) -> None:
        drop(self._tracker)


def load(name: str, object_code: bytes, symbols: Iterable[str]) -> Code:
    """Load an object into the process, and unload those that nobody refers to any more.

    Undefined symbols are looked up in the process (the C library).
    """
    if not object_code:
        raise ValueError(f"no object code for {name!r}")
    with _LOCK:
        linker = _linker()
        while _dropped:
            linker.unload(_dropped.popleft())
        return Code(*linker.link(f"{name}.{next(_SERIAL)}", object_code, list(symbols)))


def link(name: str, object_code: bytes, symbols: Iterable[str]) -> Mapping[str, int]:
    """Load an object for good; the addresses of `symbols`."""
    code = load(name, object_code, symbols)
    _forever.append(code)
    return code.addresses
