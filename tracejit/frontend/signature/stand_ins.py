"""Errors of a recorded body, without what stands for numbers, NumPy arrays and containers of the caller's.

Nobody outside of a recording knows stand-ins, and an error that the body raises may hold some: in its
arguments, attributes, causes, and in containers there.
"""

from __future__ import annotations

from typing import Any

from tracejit.frontend.arrays import trees
from tracejit.frontend.python.content import Attributes
from tracejit.frontend.recording import numpy_views
from tracejit.frontend.recording.number import NumberProxy
from tracejit.frontend.signature.arguments import Arguments


def without_stand_ins(error: BaseException, arguments: Arguments) -> None:
    """Put into an error, and its causes, what the caller knows."""
    pending: list[BaseException | None] = [error]
    seen: set[int] = set()
    for each in pending:
        if each is None or id(each) in seen:
            continue
        seen.add(id(each))
        each.args = known(each.args, arguments)
        held = Attributes(each)
        for name in held.names():
            if (after := known(held[name], arguments)) is not held[name]:
                held[name] = after
        pending += [each.__cause__, each.__context__, *getattr(each, "exceptions", ())]


def known(value: Any, arguments: Arguments) -> Any:
    """A value as the caller knows it; containers that hold stand-ins are made again."""
    if type(value) is NumberProxy:
        return value._value
    if isinstance(value, numpy_views.Watched):
        return numpy_views.original_of(value)
    rebuilt = arguments.containers.get(id(value))
    if rebuilt is not None:
        return rebuilt.original
    handle = arguments.handles.get(id(value))
    if handle is not None:
        return handle[1].value
    if type(value) not in (dict, list, tuple):
        return value
    kind, keys, parts = trees.children_of(value) or (type(value), (), [])
    given = [known(part, arguments) for part in parts]
    if all(a is b for a, b in zip(given, parts, strict=True)):
        return value
    return trees.build(kind, [known(key, arguments) for key in keys], given)
