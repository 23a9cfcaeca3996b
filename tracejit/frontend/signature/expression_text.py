"""Expressions of replay functions: values, conditions and results as Python.

    Compute(MULTIPLY, n, Literal(2))                 (n3 * (2))
    Check(Rule.LENGTH, (v, Literal(2)))              len(v0) == 2
    Container(list, (0,), (ArrayOn(t, view),))       [NDArray(t5, K8)]

An object has a name (``K8``). A variable of the program is a variable of the function (``n3``), or an item of
a list (``a1[7]``).
"""

# No `from __future__ import annotations`: a named tuple compiles every annotation that is a string.

import itertools
import operator
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from tracejit.frontend.arrays import trees
from tracejit.frontend.recording.sources import source_of
from tracejit.frontend.signature.expressions import (
    Compute,
    Const,
    Derived,
    Expr,
    GetAttribute,
    GetItem,
    Literal,
    Result,
    Var,
    Word,
)
from tracejit.frontend.signature.program import ArrayOn, Check, CopyOf, Known, Make, Rule
from tracejit.frontend.signature.runtime import HELPERS

CONDITIONS = {
    Rule.IS: "{} is {}",
    Rule.IS_NOT: "{} is not {}",
    Rule.NOT_AMONG: "id({}) not in {}",
    Rule.EQUAL: "{} == {}",
    Rule.EMPTY: "not {}",
    Rule.TYPE: "type({}) is {}",
    Rule.OF_TYPE: "type({0}) is {1} and {0} == {2}",
    Rule.ALIKE: "type({0}) is type({1}) and {0} == {1}",
    Rule.SHOWN_ALIKE: "type({0}) is type({1}) and repr({0}) == {2}",
    Rule.WITHIN: "-{1} < {0} < {1}",
    Rule.LENGTH: "len({}) == {}",
    Rule.KEYS: "tuple({}) == {}",
    Rule.SAME_KEYS: "tuple({0}) == {1} and same_parts(tuple({0}), {1})",
    Rule.KEYS_IN_ANY_ORDER: "{}.keys() == {}",
    Rule.NONE_OF_KEYS: "{}.keys().isdisjoint({})",
    Rule.NO_ATTRIBUTE: "Attributes({}).get({}) is GONE",
    Rule.SAME_ITEMS: "same_items({}, {})",
    Rule.SAME_ARRAY: "same_array({}, {})",
    Rule.FUNCTION: "{0}.__code__ is {1} and {0}.__globals__ is {2} and ({0}.__name__, {0}.__qualname__)"
    " == {3}",
    Rule.STORAGE: "type({0}) is NDArray and {0}._storage is {1}",
    Rule.VIEW: "{0}._view is {1} or {0}._view == {1}",
    Rule.VIEW_BUT_OFFSET: "{0}.shape == {1} and {0}.strides == {2} and {0}.writable is {3}",
    Rule.DTYPE_AND_DEVICE: "{0}.dtype == {1} and {0}.device == {2}",
    Rule.SHAPE_AND_STRIDES: "{0}.shape == {1} and {0}.strides == {2}",
    Rule.SHAPE_AND_DTYPE: "{0}.shape == {1} and {0}.dtype == {2}",
    Rule.DEVICE: "{}.device is {}",
    Rule.DEVICE_IF_CHOSEN: "not {} or {}.device is {}",
}
"""The condition of each rule, with a field for each operand."""


class ListOfMany(NamedTuple):
    """A list of many values in a replay function, which are in no variables."""

    name: str
    length: int


Location = str | tuple[ListOfMany, int]
"""The location of a value in a replay function: a variable, or a list and the position in it."""


def text_of(location: Location) -> str:
    """Return a location as Python."""
    if isinstance(location, str):
        return location
    items, position = location
    return f"{items.name}[{position}]"


def display(locations: Sequence[Location]) -> tuple[str, Callable[[Any], Any] | None]:
    """Return a tuple or list as Python that contains the values at these locations, and a function that
    selects them from it. The function is None if that consists of exactly these, in order.

    >>> a1, a2 = ListOfMany("a1", 2), ListOfMany("a2", 2)
    >>> display([(a1, 0), (a1, 1), (a2, 0), (a2, 1), "s3"])
    ('(*a1, *a2, s3)', None)
    >>> items, getter = display([(a1, 1), (a2, 1)])
    >>> items, getter("abcd")
    ('(*a1, *a2)', ('b', 'd'))
    """
    variables = [each for each in locations if isinstance(each, str)]
    lists = list(dict.fromkeys(each[0] for each in locations if not isinstance(each, str)))
    *starts, size = itertools.accumulate([each.length for each in lists], initial=0)
    start = dict(zip(lists, starts, strict=True))
    after_lists = itertools.count(size)
    selected = [
        next(after_lists) if isinstance(each, str) else start[each[0]] + each[1] for each in locations
    ]
    parts = [*(f"*{each.name}" for each in lists), *variables]
    items = f"({', '.join(parts)})" if len(parts) > 1 else lists[0].name if lists else f"({variables[0]},)"
    if selected == list(range(size + len(variables))):
        return items, None
    return items, operator.itemgetter(*selected)


class ExpressionWriter:
    """Writes the expressions of one replay function.

    names: the objects that names in them refer to.
    """

    def __init__(self) -> None:
        self.names: dict[str, Any] = dict(HELPERS)
        self._constants: dict[int, str] = {}  # by identity
        self._locations: dict[Var, Location] = {}
        self._serial = 0

    def new_name(self, prefix: str) -> str:
        """Return an unused name with this prefix."""
        self._serial += 1
        return f"{prefix}{self._serial - 1}"

    def constant(self, value: Any) -> str:
        """Return a name for an object."""
        name = self._constants.get(id(value))
        if name is None:
            name = self._constants[id(value)] = self.new_name("K")
            self.names[name] = value
        return name

    def location(self, var: Var) -> Location:
        """Return the location of a variable, which gets a name when it is first written."""
        location = self._locations.get(var)
        if location is None:
            location = self._locations[var] = self.new_name(var.prefix)
        return location

    def write(self, operand: Expr) -> str:
        """Return an operand as Python."""
        if isinstance(operand, Var):
            return text_of(self.location(operand))
        if isinstance(operand, Const):
            return self.constant(operand.value)
        if isinstance(operand, Literal):
            value = operand.value
            return source_of(value) if type(value) is float else repr(value)
        if isinstance(operand, Word):
            return operand.name
        assert isinstance(operand, Derived)
        return self._derived(operand)

    def _derived(self, value: Derived) -> str:
        if isinstance(value, Compute):
            return value.operation.written(*map(self._number, value.operands))
        operands = list(map(self.write, value.operands))
        if isinstance(value, GetAttribute):
            return f"{operands[0]}.{value.name}"
        if isinstance(value, GetItem):
            return f"{operands[0]}[{operands[1]}]"
        assert isinstance(value, Result)
        return f"{self.write(value.function)}({', '.join(operands)})"

    def _number(self, operand: Expr) -> str:
        """Return an operand of an operation; a negative literal is in parentheses, as in ``(-1) ** x``."""
        return source_of(operand.value) if isinstance(operand, Literal) else self.write(operand)

    def let(self, var: Var, value: Any) -> None:
        """Let a variable be the same object in all replays."""
        self.names[self.write(var)] = value

    def let_items(self, name: str, vars: Sequence[Var]) -> None:
        """Let variables be the items of a list, in order."""
        items = ListOfMany(name, len(vars))
        self._locations |= {var: (items, position) for position, var in enumerate(vars)}

    def display(self, vars: Sequence[Var]) -> str:
        """Return a tuple of many variables as Python."""
        items, getter = display([self.location(var) for var in vars])
        return items if getter is None else f"{self.constant(getter)}({items})"

    def condition(self, check: Check) -> str:
        """Return the condition of a check."""
        return CONDITIONS[check.rule].format(*map(self.write, check.operands))

    def make(self, make: Make) -> str:
        """Return the expression that creates a value of the result."""
        if isinstance(make, Known):
            return self.write(make.operand)
        if isinstance(make, ArrayOn):
            storage, view = self.write(make.storage), make.view
            if make.offset is None:
                return f"NDArray({storage}, {self.constant(view)})"
            start = f"{self.write(make.offset)} + {view.offset}"
            shape, strides = self.constant(view.shape), self.constant(view.strides)
            return f"NDArray({storage}, View({start}, {shape}, {strides}, {view.writable}))"
        if isinstance(make, CopyOf):
            return f"{self.constant(make.array)}.copy('K')"
        parts = [self.make(part) for part in make.parts]
        if make.kind is tuple:
            return f"({', '.join(parts)}{',' if len(parts) == 1 else ''})"
        if make.kind is list:
            return f"[{', '.join(parts)}]"
        if make.kind is dict:
            pairs = [f"{self.constant(k)}: {part}" for k, part in zip(make.keys, parts, strict=True)]
            return "{" + ", ".join(pairs) + "}"
        factory = "None" if make.factory is None else self.make(make.factory)
        kind, keys = self.constant(make.kind), self.constant(make.keys)
        return f"{self.constant(trees.build)}({kind}, {keys}, [{', '.join(parts)}], {factory})"
