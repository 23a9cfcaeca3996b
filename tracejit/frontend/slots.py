"""Places that hold a value: an attribute, an item, a closure cell, or all of a container's content.

A `Slot` remembers what it held before the body ran (`value`) and what the body was given there (`given`: a
proxy where the value is a run-time number). `read` tells what it holds now, `put` writes. So a
recording can take back everything the body rebound, and do it again once its arrays are computed.
"""

from __future__ import annotations

import collections
import operator
import types
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any


class _Gone:
    """What a slot holds that does not exist."""

    def __repr__(self) -> str:
        return "GONE"


GONE = _Gone()

Content = dict[Any, Any] | list[Any] | set[Any] | collections.deque[Any]


@dataclass(eq=False, repr=False)
class Slot:
    """Somewhere a value is held.

    holder, key: the object, and the attribute's name or the item's key.
    expression:  finds the value in a replay; `variable` is bound to it there if others are found through it.
    path:        how people write it.
    """

    holder: Any
    key: Any
    expression: str
    path: str
    value: Any
    variable: str | None = None
    given: Any = None
    alias: str | None = None  # the variable of the same object, found before on another way
    guarded: bool = True  # whether replays have to check the value
    code: types.CodeType | None = None  # the code that mentions it
    codes: set[types.CodeType] = field(default_factory=set)  # all such; it matters if one of them reads it
    refusal: tuple[str, str] | None = None  # why a replay cannot check it, and the remedy
    fresh: bool = True  # found just now: the body has not run since

    assignable = False

    def __post_init__(self) -> None:
        self.given = self.value
        if self.code is not None:
            self.codes.add(self.code)

    def found_again(self, other: Slot) -> None:
        """Other code mentions it, too. What no code mentions by name matters in any case."""
        if self.codes:
            self.codes = self.codes | other.codes if other.codes else set()

    def read(self) -> Any:
        """What it holds now; `GONE` if nothing."""
        return self.given

    def put(self, value: Any) -> None:
        """Make it hold `value`; `GONE` removes it."""
        raise AssertionError(f"{self.path} cannot be assigned")

    def give(self, value: Any) -> None:
        """What the body shall find instead of the value."""
        self.given = value
        self.put(value)


class Attribute(Slot):
    """An attribute of an object or class."""

    assignable = True

    def read(self) -> Any:
        return getattr(self.holder, self.key, GONE)

    def put(self, value: Any) -> None:
        namespace = getattr(self.holder, "__dict__", None)
        if isinstance(namespace, dict):
            if value is GONE:
                namespace.pop(self.key, None)
            else:
                namespace[self.key] = value
        elif value is GONE:
            delattr(self.holder, self.key)
        elif isinstance(self.holder, type):
            setattr(self.holder, self.key, value)
        else:
            object.__setattr__(self.holder, self.key, value)


class Item(Slot):
    """An item of a dict, list or deque."""

    assignable = True

    def read(self) -> Any:
        try:
            return self.holder[self.key]
        except LookupError:
            return GONE

    def put(self, value: Any) -> None:
        if value is not GONE:
            self.holder[self.key] = value
        elif isinstance(self.holder, dict):  # of a list, the content goes as a whole
            self.holder.pop(self.key, None)


class Global(Item):
    """A global of a module."""


class Cell(Slot):
    """A variable of an enclosing function."""

    assignable = True

    def read(self) -> Any:
        try:
            return self.holder.cell_contents
        except ValueError:
            return GONE

    def put(self, value: Any) -> None:
        if value is GONE:
            del self.holder.cell_contents
        else:
            self.holder.cell_contents = value


class Whole(Slot):
    """Keys or length of a container, or (`deep`) its content; `value` is a copy."""

    def __init__(self, *fields: Any, deep: bool):
        super().__init__(*fields)
        self.deep = deep

    def read(self) -> Any:
        held = self.holder
        if self.deep:
            same = same_items(held, self.value)
        elif isinstance(held, dict):
            same = list(held) == list(self.value)
        else:
            same = len(held) == len(self.value)
        return self.value if same else content_of(held)

    def put(self, value: Any) -> None:
        """Make the content `value`. What stays is there all the time, for others who look."""
        held = self.holder
        if isinstance(held, list):
            held[:] = value
        elif isinstance(held, dict):
            put_items(held, value)
        elif isinstance(held, set):
            held.intersection_update(value)
            held.update(value)
            if not same_items(held, value):  # 1 and True are equal
                held.clear()
                held.update(value)
        else:
            held.clear()
            held.extend(value)


def put_items(held: Any, value: dict[Any, Any]) -> None:
    """Make the dict `held` equal to `value`, in its order. What stays is there all the time."""
    for key in list(held):
        if key not in value:
            held.pop(key, None)
    held.update(value)
    keys, wanted = [key for key in list(held) if key in value], list(value)
    if keys != wanted or list(map(type, keys)) != list(map(type, wanted)):  # 1 and True are equal
        for key, item in value.items():
            if key in held:
                del held[key]
            held[key] = item  # nobody comes in between, as nothing is called


def content_of(container: Any) -> Any:
    """A plain copy of a container's content."""
    if isinstance(container, dict):
        return dict(container)
    return set(container) if isinstance(container, set | frozenset) else list(container)


def same_items(held: Any, copy: Any) -> bool:
    """Whether a container of plain values has the content of `copy`, types and all."""
    held = content_of(held)  # a handler of signals, or another thread, may change it meanwhile
    if len(held) != len(copy):
        return False
    if isinstance(held, dict):
        return list(held) == list(copy) and _same(held.values(), copy.values())
    if isinstance(held, set | frozenset):
        return bool(held == copy) and sorted(map(repr, held)) == sorted(map(repr, copy))
    return _same(held, copy)


def _same(held: Iterable[Any], copy: Iterable[Any]) -> bool:
    """The very same objects, or equal ones of equal types; nan equals itself, and zeros have a sign."""
    return all(map(operator.is_, held, copy)) or all(
        type(a) is type(b) and (a == b if a == a and a != 0 else repr(a) == repr(b))
        for a, b in zip(held, copy, strict=True)
    )
