"""The contents of a module, by name: arrays and other modules, in attributes, containers and generators.

An object is known as a module by its method ``__tree__``. A traced function checks all attributes of such an
object that it reaches, so this code may walk over them (see `kinds.is_seen_as_tree`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tracejit.frontend.arrays.core import ArrayCore
from tracejit.frontend.arrays.random import Generator
from tracejit.frontend.python.content import Attributes
from tracejit.frontend.python.kinds import is_seen_as_tree
from tracejit.ir.types import is_inexact


def _parts(holder: Any) -> Iterator[tuple[str, Any]]:
    """Names and values of attributes, or of items."""
    if isinstance(holder, (list, tuple)):
        return ((str(i), item) for i, item in enumerate(holder))
    held = holder if isinstance(holder, dict) else Attributes(holder).namespace()
    return ((str(name), item) for name, item in held.items())


def _held(holder: Any, name: str) -> Iterator[tuple[str, Any, str]]:
    """Arrays and modules that a module holds itself, or in containers: path, value, name of the last part."""
    for key, value in _parts(holder):
        path = f"{name}.{key}" if name else key
        if isinstance(value, ArrayCore) or is_seen_as_tree(value):
            yield path, value, key
        elif isinstance(value, (list, tuple, dict, Generator)):
            yield from _held(value, path)


def modules_of(module: Any) -> list[tuple[str, Any]]:
    """A module and all modules in it, with their names; each once."""
    found: list[tuple[str, Any]] = []
    seen: set[int] = set()
    pending: list[tuple[str, Any]] = [("", module)]
    while pending:
        name, module = pending.pop()
        if id(module) not in seen:
            seen.add(id(module))
            found.append((name, module))
            inside = [(path, value) for path, value, _ in _held(module, name) if is_seen_as_tree(value)]
            pending += reversed(inside)
    return found


def arrays_of(module: Any) -> list[tuple[str, Any, bool]]:
    """All arrays with their names, each once, and whether they are buffers."""
    found: list[tuple[str, Any, bool]] = []
    seen: set[int] = set()
    for name, holder in modules_of(module):
        for path, value, key in _held(holder, name):
            if isinstance(value, ArrayCore) and id(value) not in seen:
                seen.add(id(value))
                found.append((path, value, key in type(holder).buffers or not is_inexact(value.dtype)))
    return found
