"""The contents of a module, by name: arrays and submodules, in attributes, containers and generators.

A module is recognised by its method ``__tree__``. A traced function guards all attributes of such an object,
so this code may iterate over them (see `kinds.is_seen_as_tree`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tracejit.frontend.arrays.core import ArrayCore
from tracejit.frontend.arrays.random import Generator
from tracejit.frontend.python.content import Attributes
from tracejit.frontend.python.kinds import is_seen_as_tree
from tracejit.ir.types import is_inexact


def _children(holder: Any) -> Iterator[tuple[str, Any]]:
    """Return names and values of the attributes of an object, or of the items of a container."""
    if isinstance(holder, (list, tuple)):
        return ((str(i), item) for i, item in enumerate(holder))
    namespace = holder if isinstance(holder, dict) else Attributes(holder).namespace()
    return ((str(name), item) for name, item in namespace.items())


def _contents(holder: Any, name: str) -> Iterator[tuple[str, Any, str]]:
    """Yield the arrays and submodules of a module, including those in containers: path, value, last name."""
    for key, value in _children(holder):
        path = f"{name}.{key}" if name else key
        if isinstance(value, ArrayCore) or is_seen_as_tree(value):
            yield path, value, key
        elif isinstance(value, (list, tuple, dict, Generator)):
            yield from _contents(value, path)


def modules_of(module: Any) -> list[tuple[str, Any]]:
    """Return a module and all its submodules with their names, each once."""
    modules: list[tuple[str, Any]] = []
    seen: set[int] = set()
    pending: list[tuple[str, Any]] = [("", module)]
    while pending:
        name, module = pending.pop()
        if id(module) not in seen:
            seen.add(id(module))
            modules.append((name, module))
            submodules = [
                (path, value) for path, value, _ in _contents(module, name) if is_seen_as_tree(value)
            ]
            pending += reversed(submodules)
    return modules


def arrays_of(module: Any) -> list[tuple[str, Any, bool]]:
    """Return all arrays of a module with their names, each once, and whether they are buffers."""
    arrays: list[tuple[str, Any, bool]] = []
    seen: set[int] = set()
    for name, holder in modules_of(module):
        for path, value, key in _contents(holder, name):
            if isinstance(value, ArrayCore) and id(value) not in seen:
                seen.add(id(value))
                arrays.append((path, value, key in type(holder).buffers or not is_inexact(value.dtype)))
    return arrays
