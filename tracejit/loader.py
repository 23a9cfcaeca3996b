"""Kernels as addresses: from memory, from the kernel store, or from the compiler.

A `Recipe` says what a kernel is (its structure, whose text the store's key hashes) and how its source comes
about. `load` turns recipes into `Kernel`s. What always holds:

- A structure is compiled once, however many threads ask for it: the first one makes a future, the others
  wait for it. A compile that fails leaves nothing behind, so the next request tries again.
- Numba is imported only when something must be compiled, by `_numba_side`, the one lazy gate of the package
  (a second process that finds its kernels in the store never pays for it).

    (kernel, origin), = load([Recipe("add", spec, lambda: emit(spec))])
    kernel.addresses["kernel"], origin       # "compiled", "loaded" (from the store) or "memory"
"""

from __future__ import annotations

import importlib
import os
import sys
import threading
import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tracejit.codegen.entry import Entry, key
from tracejit.codegen.link import host, link
from tracejit.codegen.store import Store
from tracejit.config import config

SLOW = 1.0
"""Seconds after which a compile says that it runs."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """What a kernel is. `source` gives executable Python that defines the functions `symbols`.

    Equal `structure`s are one kernel; ``repr(structure)`` is canonical. `entries` is for functions with
    another signature than a kernel's: a module and an attribute, a list of (name, function, signature).
    """

    name: str
    structure: Hashable
    source: Callable[[], str]
    symbols: tuple[str, ...] = ("kernel",)
    entries: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Kernel:
    """Machine code in this process. `seconds`: to compile it; `width`: elements in its widest vector."""

    name: str
    key: str
    source: str
    origin: str
    seconds: float
    width: int
    addresses: Mapping[str, int]


_lock = threading.Lock()
_kernels: dict[Hashable, Future[Kernel]] = {}
_store: Store | None = None


def store() -> Store:
    """The process's kernel store, at `config.store`."""
    global _store
    with _lock:
        if _store is None or _store.path != config.store:
            _store = Store(config.store, config.store_limit)
        return _store


def forget() -> None:
    """Forget the kernels in memory, so that they are looked up in the store again; addresses stay valid."""
    with _lock:
        _kernels.clear()


def _start_anew_after_fork() -> None:
    """In a forked child, the threads that promised kernels or held the lock are gone."""
    global _lock
    _lock = threading.Lock()
    for structure, future in list(_kernels.items()):
        if not future.done():
            del _kernels[structure]


os.register_at_fork(after_in_child=_start_anew_after_fork)


def load(recipes: Sequence[Recipe]) -> list[tuple[Kernel, str]]:
    """The kernels of `recipes`, and where each came from this time."""
    mine: list[tuple[Recipe, Future[Kernel]]] = []
    futures = []
    with _lock:
        for recipe in recipes:
            future = _kernels.get(recipe.structure)
            if future is None:
                future = _kernels[recipe.structure] = Future()
                mine.append((recipe, future))
            futures.append(future)
    if mine:
        _fulfil(mine)
    kernels = [future.result() for future in futures]
    first = {future: recipe for recipe, future in mine}
    origins = []
    for future, kernel in zip(futures, kernels, strict=True):
        origins.append("memory" if first.pop(future, None) is None else kernel.origin)
    return list(zip(kernels, origins, strict=True))


def _fulfil(promised: Sequence[tuple[Recipe, Future[Kernel]]]) -> None:
    """Load or compile what this thread has promised to all that ask."""
    missing = []
    try:
        for recipe, future in promised:
            entry = store().get(_key(recipe))
            if entry is None:
                missing.append((recipe, future))
            else:
                future.set_result(_linked(entry, "loaded"))
        with _announced(len(missing)):
            for recipe, future in missing:
                future.set_result(_compiled(recipe))
    except BaseException as error:
        for recipe, future in promised:
            if not future.done():
                with _lock:
                    _kernels.pop(recipe.structure, None)
                future.set_exception(error)
        raise


def _key(recipe: Recipe) -> str:
    return key(repr(recipe.structure), host())


def _linked(entry: Entry, origin: str) -> Kernel:
    addresses = link(entry.name, entry.object_code, entry.metadata["symbols"])
    width = entry.metadata["width"]
    return Kernel(entry.name, entry.key, entry.source, origin, entry.seconds, width, addresses)


def _compiled(recipe: Recipe) -> Kernel:
    """Compile, and put the result into the store."""
    start = time.perf_counter()
    source = recipe.source()
    listing = _numba_side("tracejit.codegen.listing")
    functions = _functions(recipe, source, listing.build.Entry)
    built = listing.build.build_object(functions)
    entry = Entry(
        name=recipe.name,
        source=source,
        object_code=built.object_code,
        target=host(),
        seconds=time.perf_counter() - start,
        metadata={"symbols": [f.name for f in functions], "width": listing.vector_width(built.llvm_ir)},
        key=_key(recipe),
    )
    store().put(entry.key, entry)
    return _linked(entry, "compiled")


def _functions(recipe: Recipe, source: str, entry: Callable[..., Any]) -> list[Any]:
    """The functions to compile."""
    if recipe.entries is not None:
        module, attribute = recipe.entries
        return [entry(*item) for item in getattr(_numba_side(module), attribute)]
    namespace: dict[str, Any] = {}
    exec(compile(source, f"<kernel {recipe.name}>", "exec"), namespace)
    return [entry(symbol, namespace[symbol]) for symbol in recipe.symbols]


def _numba_side(module: str) -> Any:
    """Import a module that imports Numba: the gate."""
    return importlib.import_module(module)


@contextmanager
def _announced(count: int) -> Iterator[None]:
    """Say that kernels are compiled if it takes long and somebody watches."""
    if not count or not (config.verbose or sys.stderr.isatty()):
        yield
        return
    text = f"tracejit: compiling {count} kernel{'s' * (count != 1)} ..."
    timer = threading.Timer(SLOW, print, [text], {"file": sys.stderr, "flush": True})
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
