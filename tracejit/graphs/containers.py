"""The kinds of containers in a contract, and their text in contracts and files.

    dict, list, tuple, None
    record Point    a named tuple
    object Model    an instance of a user's class, by its fields

>>> read_kind("record Point").build(("x", "y"), [1, 2])
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

    word: one of the values of `BUILTIN`, or `RECORD` or `OBJECT`.
    name: the class name of a record or an object.
    """

    __slots__ = ("name", "word")

    def __init__(self, word: str, name: str = "") -> None:  # a dataclass's code is not ours
        self.word, self.name = word, name

    def __str__(self) -> str:
        return f"{self.word} {self.name}" if self.name else self.word

    @property
    def is_record(self) -> bool:
        return self.word == RECORD

    @property
    def is_object(self) -> bool:
        return self.word == OBJECT

    def admits(self, cls: type) -> bool:
        """Whether an instance of a class is accepted in place of an exported container of this kind."""
        if self.word == "dict":
            return issubclass(cls, dict)
        if self.word in (RECORD, OBJECT):
            return cls not in (list, tuple)
        return BUILTIN.get(cls) == self.word

    def build(self, keys: Sequence[Any], items: list[Any]) -> Any:
        """Build a container of this kind; a record is a named tuple, an object the dict of its fields."""
        if self.word == "None":
            return None
        if self.word == "list":
            return items
        if self.word == "tuple":
            return tuple(items)
        if self.word == RECORD:
            return _record(self.name, tuple(keys))(*items)
        return dict(zip(keys, items, strict=True))


def kind_of(container: type) -> ContainerKind:
    """Return the kind of a container's class."""
    word = BUILTIN.get(container)
    if word is not None:
        return ContainerKind(word)
    return ContainerKind(RECORD if issubclass(container, tuple) else OBJECT, container.__name__)


@functools.cache
def read_kind(text: str) -> ContainerKind | None:
    """Parse the text of a kind; return None if it is invalid."""
    word, _, name = text.partition(" ")
    if text in BUILTIN.values() or (word in (RECORD, OBJECT) and name.isidentifier()):
        return ContainerKind(word, name)
    return None


@functools.cache
def _record(name: str, keys: tuple[str, ...]) -> Any:
    return collections.namedtuple(name, keys)
