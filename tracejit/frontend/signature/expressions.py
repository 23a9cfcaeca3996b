"""Values in the steps of a replay: variables, constants, and what is derived from them.

    x.shape[0]     GetItem(GetAttribute(x, "shape"), Literal(0))
    n * 2          Compute(MULTIPLY, n, Literal(2))

Each has the `key` by which equal ones are found, and the `root` in which a replay begins to look for it. They
are written as Python by `text`, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from tracejit.frontend.recording.operations import Operation


class Expr:
    """A value that stands in an expression; `value` is what it was in the recorded call."""

    __slots__ = ()
    value: Any

    @property
    def key(self) -> Any:
        """Equal for operands that mean the same."""
        raise NotImplementedError

    @property
    def root(self) -> Expr:
        """The variable or constant from which the value is found."""
        return self

    @property
    def is_bound(self) -> bool:
        """Whether a replay knows it by now."""
        return True


class Const(Expr):
    """This very object; the replay function keeps it alive."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    @property
    def key(self) -> Any:
        return "constant", id(self.value)


class Literal(Expr):
    """A value that is written down: a number, a string, a tuple of such."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    @property
    def key(self) -> Any:
        return "literal", type(self.value), repr(self.value)


class Word(Expr):
    """A name that every replay knows: a parameter of its function, a built-in type, a class of arrays."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    @property
    def key(self) -> Any:
        return "word", self.name


ARGS, KWARGS = Word("args"), Word("kwargs")


class Var(Expr):
    """A variable of the replay; `value` is what it held in the recorded call, `path` how people call it.

    prefix: what its name begins with: v (argument), n and m (numbers), s (storage), h (found by name),
            o (offset), t (output), r (written back), l (found in an array), c (state of a loop).
    """

    __slots__ = ("bound", "path", "prefix", "value")

    def __init__(self, prefix: str, value: Any = None, path: str = "") -> None:
        self.prefix, self.value, self.path = prefix, value, path
        self.bound = False

    @property
    def key(self) -> Any:
        return id(self)

    @property
    def is_bound(self) -> bool:
        return self.bound


class Derived(Expr):
    """A value that is found by means of others, its operands; the first one is where it is found."""

    __slots__ = ("operands",)

    def __init__(self, *operands: Expr) -> None:
        self.operands = operands

    @property
    def what(self) -> Hashable:
        """Equal for those that do the same with their operands."""
        raise NotImplementedError

    @property
    def key(self) -> Any:
        return (self.what, *(operand.key for operand in self.operands))

    @property
    def root(self) -> Expr:
        return self.operands[0].root

    @property
    def is_bound(self) -> bool:
        return all(operand.is_bound for operand in self.operands)


class GetAttribute(Derived):
    """An attribute of an object."""

    __slots__ = ("name",)

    def __init__(self, holder: Expr, name: str) -> None:
        super().__init__(holder)
        self.name = name

    @property
    def what(self) -> Hashable:
        return "attribute", self.name


class GetItem(Derived):
    """An item of a container; its key is the second operand."""

    __slots__ = ()
    what = "item"


class Result(Derived):
    """The result of a function for the operands."""

    __slots__ = ("function",)

    def __init__(self, function: Word | Const, *operands: Expr) -> None:
        super().__init__(*operands)
        self.function = function

    @property
    def what(self) -> Hashable:
        return "result", self.function.key


class Compute(Derived):
    """An operation on Python's numbers.

    value: what it gave in the recorded call, if a launch takes it.
    """

    __slots__ = ("operation", "value")

    def __init__(self, operation: Operation, *operands: Expr, value: Any = None) -> None:
        super().__init__(*operands)
        self.operation, self.value = operation, value

    @property
    def what(self) -> Hashable:
        return "operation", self.operation.text


def attribute(holder: Expr, *names: str) -> Expr:
    """``holder.name``, or ``holder.name.further``."""
    for name in names:
        holder = GetAttribute(holder, name)
    return holder


def item(holder: Expr, key: Any) -> GetItem:
    """``holder[key]``."""
    return GetItem(holder, Literal(key) if type(key) in (str, int, bool) else Const(key))


def meaning(operand: Expr, known: dict[Expr, int]) -> int:
    """Equal for operands that are computed alike, where variables mean what is `known`."""
    if isinstance(operand, Derived):
        return hash((operand.what, *(meaning(each, known) for each in operand.operands)))
    return known.get(operand) or hash(operand.key)
