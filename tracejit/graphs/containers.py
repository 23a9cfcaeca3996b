"""The kinds of containers in a contract, whose text is what files and contracts hold.

    dict, list, tuple, None
    record Point    a named tuple
    object Model    an object of a class of the user's, by its fields

>>> read_kind("record Point").make(("x", "y"), [1, 2])
Point(x=1, y=2)
>>> print(kind_of(dict), read_kind("set"))
dict None
"""

from __future__ import annotations

import collections
import functools
from collections.abc import Sequence
from typing import Any

BUILTIN = {dict: "dict", list: "list", tuple: "tuple", type(None): "None"}
RECORD, OBJECT = "record", "object"


class ContainerKind:
    """The kind of a container.

    word: one of `BUILTIN`, or `RECORD` or `OBJECT`.
    name: of the class of a record or an object.
    """

    __slots__ = ("name", "word")

    def __init__(self, word: str, name: str = "") -> None:  # no dataclass: its code is not of this package
        self.word, self.name = word, name

    def __str__(self) -> str:
        return f"{self.word} {self.name}" if self.name else self.word

    @property
    def is_record(self) -> bool:
        return self.word == RECORD

    @property
    def is_object(self) -> bool:
        return self.word == OBJECT

    def admits(self, given: type) -> bool:
        """Whether a container of a class may stand where one of this kind was exported."""
        if self.word == "dict":
            return issubclass(given, dict)
        if self.word in (RECORD, OBJECT):
            return given not in (list, tuple)
        return BUILTIN.get(given) == self.word

    def make(self, keys: Sequence[Any], parts: list[Any]) -> Any:
        """A container of this kind; a record is a named tuple, an object the dict of its fields."""
        if self.word == "None":
            return None
        if self.word == "list":
            return parts
        if self.word == "tuple":
            return tuple(parts)
        if self.word == RECORD:
            return _record(self.name, tuple(keys))(*parts)
        return dict(zip(keys, parts, strict=True))


def kind_of(container: type) -> ContainerKind:
    """The kind of containers of a class."""
    word = BUILTIN.get(container)
    if word is not None:
        return ContainerKind(word)
    return ContainerKind(RECORD if issubclass(container, tuple) else OBJECT, container.__name__)


@functools.cache
def read_kind(text: str) -> ContainerKind | None:
    """The kind that a text says; None if it says none."""
    word, _, name = text.partition(" ")
    if text in BUILTIN.values() or (word in (RECORD, OBJECT) and name.isidentifier()):
        return ContainerKind(word, name)
    return None


@functools.cache
def _record(name: str, keys: tuple[str, ...]) -> Any:
    return collections.namedtuple(name, keys)
