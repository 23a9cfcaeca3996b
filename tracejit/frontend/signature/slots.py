"""Places that hold a value: an attribute, an item, a closure cell, or all of a container's content.

A `Slot` remembers what it held before the body ran (`value`) and what the body was given there (`given`: a
proxy where the value is a run-time number). `read` tells what it holds now, `put` writes. So a
recording can take back everything the body rebound, and do it again once its arrays are computed.
"""

from __future__ import annotations

import types
from dataclasses import dataclass
from typing import Any, Self

from tracejit.frontend.python.content import GONE, Attributes, content_of, fill, same_items
from tracejit.frontend.signature.expressions import Expr

OUTSIDE = "use it outside and pass the result as an argument"


@dataclass(eq=False, repr=False)
class Slot:
    """Somewhere a value is held.

    holder, key: the object, and the attribute's name or the item's key.
    place:       finds the value in a replay; `var` is bound to it there if others are found through it.
    path:        how people write it.
    """

    holder: Any
    key: Any
    place: Expr
    path: str
    value: Any
    var: Expr | None = None
    given: Any = None
    alias: Expr | None = None  # stands for the same object, found before on another way
    guarded: bool = True  # whether replays have to check the value
    refusal: tuple[str, str] | None = None  # why a replay cannot check it, and the remedy

    assignable = False

    def __post_init__(self) -> None:
        self.given = self.value

    def read(self) -> Any:
        """The present value; `GONE` if there is none."""
        return self.given

    def put(self, value: Any) -> None:
        """Make it hold `value`; `GONE` removes it."""
        raise AssertionError(f"{self.path} cannot be assigned")

    def replace(self, value: Any) -> None:
        """Put a stand-in there, which the body finds instead of the value."""
        self.given = value
        self.put(value)

    def refuse(self, what: str, remedy: str = OUTSIDE) -> Self:
        """Note what a replay cannot check, nor a recording take back: why not, and what to do."""
        self.refusal = f"{self.path} {what}", remedy
        return self


class Attribute(Slot):
    """An attribute of an object or class."""

    assignable = True

    def read(self) -> Any:
        if isinstance(self.holder, type | types.ModuleType):
            return getattr(self.holder, self.key, GONE)
        return Attributes(self.holder).get(self.key)

    def put(self, value: Any) -> None:
        if not isinstance(self.holder, type):
            held = Attributes(self.holder)
            if value is GONE:
                held.remove(self.key)
            else:
                held[self.key] = value
        elif value is GONE:
            if self.key in vars(self.holder):  # this may be done twice
                delattr(self.holder, self.key)
        else:
            setattr(self.holder, self.key, value)


class ClassItem(Slot):
    """A descriptor in the namespace of a class; its attribute shows something else."""

    def read(self) -> Any:
        return vars(self.holder).get(self.key, GONE)


class Item(Slot):
    """An item of a dict, list or deque."""

    assignable = True

    def read(self) -> Any:
        if isinstance(self.holder, dict):
            return self.holder.get(self.key, GONE)  # makes no default
        return self.holder[self.key] if self.key < len(self.holder) else GONE

    def put(self, value: Any) -> None:
        if value is not GONE:
            self.holder[self.key] = value
        elif isinstance(self.holder, dict):  # of a list, the content goes as a whole
            self.holder.pop(self.key, None)


class Global(Item):
    """A global of a module."""


class ClosureCell(Slot):
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


class Content(Slot):
    """Keys or length of a container, or (`deep`) its content; `value` is a copy."""

    def __init__(self, *fields: Any, deep: bool):
        super().__init__(*fields)
        self.deep = deep

    def read(self) -> Any:
        held = content_of(self.holder)
        if self.deep:
            same = same_items(held, self.value)
        elif isinstance(held, dict):
            same = list(held) == list(self.value)
        else:
            same = len(held) == len(self.value)
        return self.value if same else held

    def put(self, value: Any) -> None:
        """Make the content `value`."""
        fill(self.holder, value)
