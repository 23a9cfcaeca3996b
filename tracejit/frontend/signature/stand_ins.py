"""Removes stand-ins for numbers, NumPy arrays and containers of the caller from errors of a recorded body.

Stand-ins must not leave a recording. An error that the body raises may refer to some: in its arguments and
attributes, in containers there, and in its causes.
"""

from __future__ import annotations

from typing import Any

from tracejit.frontend.arrays import trees
from tracejit.frontend.python.content import Attributes
from tracejit.frontend.recording import numpy_views
from tracejit.frontend.recording.number import NumberProxy
from tracejit.frontend.signature.arguments import Arguments


def without_stand_ins(error: BaseException, arguments: Arguments) -> None:
    """Replace the stand-ins in an error, its causes and its contexts by the caller's values."""
    pending: list[BaseException | None] = [error]
    seen: set[int] = set()
    for each in pending:
        if each is None or id(each) in seen:
            continue
        seen.add(id(each))
        each.args = callers_value(each.args, arguments)
        attributes = Attributes(each)
        for name in attributes.names():
            if (value := callers_value(attributes[name], arguments)) is not attributes[name]:
                attributes[name] = value
        pending += [each.__cause__, each.__context__, *getattr(each, "exceptions", ())]


def callers_value(value: Any, arguments: Arguments) -> Any:
    """Return the caller's value for one of the body. Dicts, lists and tuples with stand-ins are rebuilt."""
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
    originals = [callers_value(part, arguments) for part in parts]
    if all(a is b for a, b in zip(originals, parts, strict=True)):
        return value
    return trees.build(kind, [callers_value(key, arguments) for key in keys], originals)
