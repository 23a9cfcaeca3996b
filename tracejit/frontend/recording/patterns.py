"""Patterns: nodes that are recorded again and again, on other values each time.

    %6 = multiply(%1, %5)      on %2, %3 instead of %0, %1      %8 = multiply(%3, %5)
    %7 = subtract(%0, %6)                   =>                  %9 = subtract(%2, %8)

The values of a copy are one tuple: its own operands, the other values that the nodes use, then all results.
Operands and results of nodes are picked from it, so that a copy takes few steps of Python.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any

from tracejit.ir.graph import Copied, Node, Value

Pick = Callable[[tuple[Value, ...]], tuple[Value, ...]]


class Pattern:
    """Nodes to be copied. `others`: values that all copies use and none computes."""

    def __init__(self, nodes: Sequence[Node], before: Sequence[Value]):
        """`before`: the operands that copies replace; of one that occurs twice, copies use the last."""
        made = [value for node in nodes for value in node.outputs]
        computed = set(made)
        self._used = tuple(dict.fromkeys([v for node in nodes for v in node.inputs if v not in computed]))
        self.others = [value for value in self._used if value not in before]
        self._places = {value: place for place, value in enumerate([*before, *self.others, *made])}
        self._first = len(before) + len(self.others)
        self._types = [value.type for value in made]
        self._pick_used = self._picked(self._used)
        self._inputs = [self._picked(node.inputs) for node in nodes]
        self._outputs = [self._picked(node.outputs) for node in nodes]
        self._rest: list[Sequence[Any]] = [[node.attrs for node in nodes], [node.location for node in nodes]]
        self._ops = [node.op for node in nodes]

    def _picked(self, values: Sequence[Value]) -> Pick:
        """A function that picks the values in the place of these."""
        places = [self._places[value] for value in values]
        if len(places) > 1:
            return itemgetter(*places)
        return itemgetter(slice(places[0], places[0] + 1) if places else slice(0))

    def place(self, value: Value) -> int | None:
        """The place of a value; None for one that the nodes do not use."""
        return self._places.get(value)

    def copy(self, before: Sequence[Value]) -> tuple[Copied, tuple[Value, ...]]:
        """A copy on other values of the same types, and its values."""
        values = (*before, *self.others, *map(Value, self._types))
        inputs = [pick(values) for pick in self._inputs]
        outputs = [pick(values) for pick in self._outputs]
        nodes = list(map(Node, self._ops, inputs, outputs, *self._rest))
        return Copied(self, nodes, self._pick_used(values), values[self._first :]), values

    def known(self, nodes: list[Node], values: dict[Value, Value]) -> Copied:
        """Describe nodes as a copy, with these values in the place of the first ones."""
        outputs = tuple([value for node in nodes for value in node.outputs])
        return Copied(self, nodes, tuple([values.get(value, value) for value in self._used]), outputs)
