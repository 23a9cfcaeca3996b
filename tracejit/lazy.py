"""Lazy imports: attributes of packages whose modules are imported at their first use.

The modules are imported in a separate thread. Bodies are watched in the thread that traces them, and the
code executed by an import is not part of the body that happens to use the module first.
"""

from __future__ import annotations

import functools
import importlib
import sys
import threading
from collections.abc import Mapping
from types import ModuleType
from typing import Any


@functools.cache
def import_module(name: str) -> ModuleType:
    """Import a module in a separate thread, or in this one if the interpreter starts no more threads."""
    outcome: list[ModuleType | BaseException] = []

    def run() -> None:
        try:
            outcome.append(importlib.import_module(name))
        except BaseException as error:
            outcome.append(error)

    thread = threading.Thread(target=run, name="tracejit import")
    try:
        thread.start()
    except RuntimeError:  # the interpreter shuts down
        run()
    else:
        thread.join()
    if isinstance(outcome[0], BaseException):
        raise outcome[0]
    return outcome[0]


def attribute(
    package: str, name: str, origins: Mapping[str, str], modules: Mapping[str, str] | None = None
) -> Any:
    """Import an attribute of a package at its first use.

    origins: by name: the module that defines the attribute.
    modules: by name: the module that is the attribute.
    """
    namespace = sys.modules[package]
    if modules and name in modules:
        value: Any = import_module(modules[name])
    elif name in origins:
        value = getattr(import_module(origins[name]), name)
    else:
        # With `name` and `obj`, Python adds suggestions to the error.
        raise AttributeError(f"module {package!r} has no attribute {name!r}", name=name, obj=namespace)
    setattr(namespace, name, value)
    return value
