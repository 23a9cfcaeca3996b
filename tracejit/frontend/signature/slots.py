"""Variables that a body can access by name: an attribute, an item, a closure cell, a container's content.

A `Slot` records its value before the body ran (`value`), and the value that the body accesses instead
(`given`: a stand-in, for example a proxy for a run-time number, or `value` itself). `read` returns the
present value, `put` assigns a value. With these, a recording undoes the changes of the body, and repeats them
when its arrays have been computed.
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
    """A variable that a body can access by name.

    holder, key: the object that contains it, and the attribute's name or the item's key.
    place:       the expression for the value in a replay.
    path:        the expression by which users know it.
    value:       the value before the body ran; `GONE` if there was none.
    var:         the expression that a replay binds to the value, if other slots are read from it.
    given:       the value that the body accesses.
    alias:       the expression for the same object, which was reached by another path before.
    guarded:     whether a replay has to check the value.
    refusal:     why a replay cannot check it, and the remedy; None if it can.
    """

    holder: Any
    key: Any
    place: Expr
    path: str
    value: Any
    var: Expr | None = None
    given: Any = None
    alias: Expr | None = None
    guarded: bool = True
    refusal: tuple[str, str] | None = None

    assignable = False

    def __post_init__(self) -> None:
        self.given = self.value

    def read(self) -> Any:
        """Return the present value; `GONE` if there is none."""
        return self.given

    def put(self, value: Any) -> None:
        """Assign `value`; `GONE` deletes the attribute or item."""
        raise AssertionError(f"{self.path} cannot be assigned")

    def replace(self, value: Any) -> None:
        """Assign a stand-in, which the body accesses instead of the value."""
        self.given = value
        self.put(value)

    def refuse(self, what: str, remedy: str = OUTSIDE) -> Self:
        """Note that a replay cannot check the slot, or a recording cannot undo its changes: the reason and
        the remedy. Return the slot.
        """
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
            attributes = Attributes(self.holder)
            if value is GONE:
                attributes.remove(self.key)
            else:
                attributes[self.key] = value
        elif value is GONE:
            if self.key in vars(self.holder):  # the deletion may be repeated
                delattr(self.holder, self.key)
        else:
            setattr(self.holder, self.key, value)


class ClassItem(Slot):
    """A descriptor in the namespace of a class, which access to the attribute does not return."""

    def read(self) -> Any:
        return vars(self.holder).get(self.key, GONE)


class Item(Slot):
    """An item of a dict, list or deque."""

    assignable = True

    def read(self) -> Any:
        if isinstance(self.holder, dict):
            return self.holder.get(self.key, GONE)  # does not insert a default
        return self.holder[self.key] if self.key < len(self.holder) else GONE

    def put(self, value: Any) -> None:
        if value is not GONE:
            self.holder[self.key] = value
        elif isinstance(self.holder, dict):  # items of lists are deleted by replacing the content
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
    """The keys or length of a container, or all of its content (`deep`). `value` is a copy of the content."""

    def __init__(self, *fields: Any, deep: bool):
        super().__init__(*fields)
        self.deep = deep

    def read(self) -> Any:
        content = content_of(self.holder)
        if self.deep:
            same = same_items(content, self.value)
        elif isinstance(content, dict):
            same = list(content) == list(self.value)
        else:
            same = len(content) == len(self.value)
        return self.value if same else content

    def put(self, value: Any) -> None:
        """Replace the content by `value`."""
        fill(self.holder, value)
