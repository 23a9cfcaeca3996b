"""Stand-ins for a module of C code and functions of it, which a traced body finds in their place.

In a recording that uses them, the functions are ours. In all others, and for other threads, they are the
module's own, as everything else in the stand-in is.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from typing import Any


class _Module(types.ModuleType):
    """Stands for the module `_stands_for`."""

    _stands_for: types.ModuleType
    _functions: Mapping[str, Any]
    _is_used: Callable[[], bool]

    def __getattr__(self, name: str) -> Any:
        if name in self._functions and self._is_used():
            return self._functions[name]
        return getattr(self._stands_for, name)


class StandIns:
    """Stand-ins for a module and those of its functions that are replaced.

    functions: ours, by the module's names.
    is_used:   whether this thread is recording a trace that uses them.

    >>> import math
    >>> shouting = StandIns(math, {"floor": lambda x: "floor!"}, is_used=lambda: True)
    >>> stand_in = shouting.stand_in(math)
    >>> stand_in.floor(1.5), stand_in.ceil(1.5), shouting.original(stand_in) is math
    ('floor!', 2, True)
    """

    def __init__(
        self, module: types.ModuleType, functions: Mapping[str, Any], is_used: Callable[[], bool]
    ) -> None:
        calls = {name: _either(ours, getattr(module, name), is_used) for name, ours in functions.items()}
        made = _Module(module.__name__)
        made._stands_for, made._functions, made._is_used = module, calls, is_used
        self._stand_ins = {id(module): made} | {id(getattr(module, n)): call for n, call in calls.items()}
        self._originals = {id(made): module} | {id(call): getattr(module, n) for n, call in calls.items()}

    def stand_in(self, value: Any) -> Any:
        """The stand-in for `value`, if that is the module or one of the functions; else None."""
        return self._stand_ins.get(id(value))

    def original(self, value: Any) -> Any:
        """The original of a stand-in; other values as they are."""
        return self._originals.get(id(value), value)


def _either(ours: Callable[..., Any], theirs: Callable[..., Any], is_used: Callable[[], bool]) -> Any:
    def call(*args: Any, **options: Any) -> Any:
        return (ours if is_used() else theirs)(*args, **options)

    return call
