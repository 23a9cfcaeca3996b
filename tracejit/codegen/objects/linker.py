"""Linking of object code to addresses with LLVM's linker, without Numba.

The linker is part of llvmlite's shared library. It is called directly for versions of llvmlite whose C
functions are known (`orc`), which saves the import of llvmlite, and through llvmlite otherwise (`machine`).
`anticipate` announces that a kernel will be loaded soon: a thread then loads the library while Python
continues.

Code that `load` returns can be called as long as it is referenced. Unreferenced code is unloaded when the
next object is loaded; garbage collection never calls LLVM.

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
PATIENCE = 2.0  # seconds that a fork waits for LLVM's linker and the dynamic loader
_preloader: threading.Thread | None = None  # loads the library
_dropped: deque[Any] = deque()  # trackers of unreferenced code
_permanent: list[Code] = []


@functools.cache
def _library() -> pathlib.Path | None:
    """Return the path of llvmlite's library if its functions are known, else None."""
    return library_of_llvmlite() if version("llvmlite").startswith(KNOWN) else None


@functools.cache
def _linker() -> Any:
    """Return the provider of `host`, `link` and `unload`, which is unique in a process."""
    path = _library()
    return importlib.import_module("tracejit.codegen.objects.machine") if path is None else Linker(path)


def anticipate() -> None:
    """Begin to load LLVM and to read the inputs of store keys, since a kernel will be loaded soon. Most of
    this work runs in the system and in LLVM, without the GIL.
    """
    global _preloader
    if _preloader is None:
        with _STARTING:
            if _preloader is None and (path := _library()) is not None:
                thread = threading.Thread(target=_preload, args=(path,), name="tracejit loader")
                with contextlib.suppress(RuntimeError):  # no more threads: the library is loaded on demand
                    thread.start()
                    _preloader = thread


def _preload(path: pathlib.Path) -> None:
    _open(path)
    with contextlib.suppress(Exception), _LOCK:  # errors are raised when the library is used
        environment(_host())


def _open(path: pathlib.Path) -> None:
    opened = ctypes.CDLL(None).dlopen  # `ctypes.CDLL(path)` would hold the GIL
    opened.argtypes, opened.restype = (ctypes.c_char_p, ctypes.c_int), ctypes.c_void_p
    opened(os.fsencode(path), os.RTLD_NOW)


_holders: set[int] = set()  # threads that hold `_LOCK` around a fork


def block() -> None:
    """Wait until nothing is being loaded or linked, and block both: a fork must not interrupt them.

    A loading thread that does not finish in time waits for a lock of Python that the forking thread may
    hold; it is not inside the linker or the dynamic loader.
    """
    preloader = _preloader
    if preloader is not None:
        preloader.join(PATIENCE)
    if _LOCK.acquire(timeout=PATIENCE):
        _holders.add(threading.get_ident())


def unblock() -> None:
    """Release the lock that `block` acquired."""
    if threading.get_ident() in _holders:
        _holders.discard(threading.get_ident())
        _LOCK.release()


def reset_in_child() -> None:
    """Reset the locks of `block` in a forked child."""
    unblock()
    _holders.clear()


@functools.cache
def _host() -> tuple[str, str, str]:
    triple, cpu, features = _linker().host()
    return triple, cpu, features


def host() -> tuple[str, str, str]:
    """Return the triple, processor name and feature string of this machine, which are part of every store
    key.
    """
    with _LOCK:
        return _host()


class Code:
    """Machine code in this process, with the addresses of its symbols. It is valid as long as this object
    lives.
    """

    __slots__ = ("__weakref__", "_tracker", "addresses")

    def __init__(self, addresses: Mapping[str, int], tracker: Any) -> None:
        self.addresses = addresses
        self._tracker = tracker

    def __del__(self, drop: Callable[[Any], None] = _dropped.append) -> None:
        drop(self._tracker)


def load(name: str, object_code: bytes, symbols: Iterable[str]) -> Code:
    """Load an object into the process, and unload unreferenced ones.

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
    """Load an object permanently, and return the addresses of `symbols`."""
    code = load(name, object_code, symbols)
    _permanent.append(code)
    return code.addresses
