"""Values in the steps of a replay: variables, constants, and values derived from these.

    x.shape[0]     GetItem(GetAttribute(x, "shape"), Literal(0))
    n * 2          Compute(MULTIPLY, n, Literal(2))

Each value has a `key`, which equal values share, and a `root`, the variable or constant from which a replay
reads it. `expression_text` writes them as Python.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Hashable, Iterator
from typing import Any

from tracejit.frontend.recording.operations import Operation


class Expr:
    """A value in an expression; `value` is the object that it was in the recorded call."""

    __slots__ = ()
    value: Any

    @property
    def key(self) -> Any:
        """Equal for operands that have the same value in every call."""
        raise NotImplementedError

    @property
    def root(self) -> Expr:
        """The variable or constant from which a replay reads the value."""
        return self

    @property
    def is_bound(self) -> bool:
        """Whether a replay has bound it already."""
        return True

    def variables(self) -> Iterator[Var]:
        """The variables in it."""
        return iter(())

    def renamed(self, new: Callable[[Var], Var]) -> Expr:
        """The same value in terms of other variables."""
        return self


class Const(Expr):
    """One particular object, which the replay function keeps alive."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    @property
    def key(self) -> Any:
        return "constant", id(self.value)


class Literal(Expr):
    """A literal: a number, a string, or a tuple of these."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    @property
    def key(self) -> Any:
        return "literal", type(self.value), repr(self.value)


class Word(Expr):
    """A name that every replay function has: a parameter, a built-in type, a class of arrays."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    @property
    def key(self) -> Any:
        return "word", self.name


ARGS, KWARGS = Word("args"), Word("kwargs")


class Var(Expr):
    """A variable of the replay function.

    value:  the object that it was in the recorded call.
    path:   the name by which users know it.
    prefix: the start of its name: v (argument), n and m (number), s (storage), h (read by name), o (offset),
            t (output), r (written back), l (looked at), c (variable of a loop's state).
    bound:  whether a step has bound it.
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

    def variables(self) -> Iterator[Var]:
        yield self

    def renamed(self, new: Callable[[Var], Var]) -> Var:
        return new(self)


class Derived(Expr):
    """A value derived from others, its operands. The first operand is the object that it is read from."""

    __slots__ = ("operands",)

    def __init__(self, *operands: Expr) -> None:
        self.operands = operands

    @property
    def what(self) -> Hashable:
        """Equal for values that are derived from their operands in the same way."""
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

    def variables(self) -> Iterator[Var]:
        return (var for operand in self.operands for var in operand.variables())

    def renamed(self, new: Callable[[Var], Var]) -> Derived:
        result = copy.copy(self)
        result.operands = tuple(operand.renamed(new) for operand in self.operands)
        return result


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
    """An item of a container: the first operand is the container, the second one the key."""

    __slots__ = ()
    what = "item"


class Result(Derived):
    """The result of calling a function with the operands."""

    __slots__ = ("function",)

    def __init__(self, function: Word | Const, *operands: Expr) -> None:
        super().__init__(*operands)
        self.function = function

    @property
    def what(self) -> Hashable:
        return "result", self.function.key


class Compute(Derived):
    """An operation on Python numbers.

    value: its result in the recorded call, if a launch takes it as an input.
    """

    __slots__ = ("operation", "value")

    def __init__(self, operation: Operation, *operands: Expr, value: Any = None) -> None:
        super().__init__(*operands)
        self.operation, self.value = operation, value

    @property
    def what(self) -> Hashable:
        return "operation", self.operation


def attribute(holder: Expr, *names: str) -> Expr:
    """``holder.name``, or ``holder.name.further``."""
    for name in names:
        holder = GetAttribute(holder, name)
    return holder


def item(holder: Expr, key: Any) -> GetItem:
    """``holder[key]``."""
    return GetItem(holder, Literal(key) if type(key) in (str, int, bool) else Const(key))
