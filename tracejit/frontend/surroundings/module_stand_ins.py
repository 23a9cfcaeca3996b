"""Stand-ins for a module written in C and for its functions, which a traced body finds instead of them.

In a recording that uses the stand-ins, their functions are replaced by ours. In all other recordings, and in
other threads, they are the module's own functions, like all other attributes of the stand-in.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from typing import Any

from tracejit.frontend.recording.look_loops.frames import STAND_INS
from tracejit.frontend.recording.recording import thread


class _Module(types.ModuleType):
    """Stands for the module `_stands_for`."""

    _stands_for: types.ModuleType
    _functions: Mapping[str, Any]
    _objects: dict[str, Any]
    _is_used: Callable[[], bool]

    def __getattr__(self, name: str) -> Any:
        if name in self._functions and self._is_used():
            return self._functions[name]
        if name in self._objects and thread.trace is not None:
            return self._objects[name]
        return getattr(self._stands_for, name)


class StandIns:
    """Stand-ins for a module and for the functions of it that are replaced.

    functions: the replacements, by the module's names.
    is_used:   returns whether this thread is recording a trace that uses the stand-ins.
    objects:   stand-ins for other attributes of the module, by name, in all recordings of this thread.

    >>> import math
    >>> shouting = StandIns(math, {"floor": lambda x: "floor!"}, is_used=lambda: True)
    >>> stand_in = shouting.stand_in(math)
    >>> stand_in.floor(1.5), stand_in.ceil(1.5), shouting.original(stand_in) is math
    ('floor!', 2, True)
    """

    def __init__(
        self,
        module: types.ModuleType,
        functions: Mapping[str, Any],
        is_used: Callable[[], bool],
        objects: Mapping[str, Any] | None = None,
    ) -> None:
        calls = {name: _either(ours, getattr(module, name), is_used) for name, ours in functions.items()}
        stand_in = _Module(module.__name__)
        stand_in._stands_for, stand_in._functions, stand_in._is_used = module, calls, is_used
        stand_in._objects = dict(objects or {})
        self._module = stand_in
        STAND_INS[stand_in] = calls
        replaced = [(getattr(module, n), new) for n, new in {**calls, **stand_in._objects}.items()]
        self._stand_ins = {id(module): stand_in} | {id(old): new for old, new in replaced}
        self._originals = {id(stand_in): module} | {id(new): old for old, new in replaced}

    def add(self, name: str, stand_in: Any) -> None:
        """Add the stand-in for another attribute of the module."""
        self._module._objects[name] = stand_in
        original = getattr(self._module._stands_for, name)
        self._stand_ins[id(original)], self._originals[id(stand_in)] = stand_in, original

    def stand_in(self, value: Any) -> Any:
        """Return the stand-in for `value` if it is the module or a replaced function, else None."""
        return self._stand_ins.get(id(value))

    def original(self, value: Any) -> Any:
        """Return the original of a stand-in, and any other value unchanged."""
        return self._originals.get(id(value), value)


NO_STAND_INS = StandIns(types.ModuleType("none"), {}, lambda: False)
"""No stand-ins."""


def _either(ours: Callable[..., Any], theirs: Callable[..., Any], is_used: Callable[[], bool]) -> Any:
    def call(*args: Any, **options: Any) -> Any:
        return (ours if is_used() else theirs)(*args, **options)

    call.__name__ = theirs.__name__
    return call
