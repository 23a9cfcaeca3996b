"""Patterns: groups of nodes that are recorded repeatedly, each time on other values.

    %6 = multiply(%1, %5)      on %2, %3 instead of %0, %1      %8 = multiply(%3, %5)
    %7 = subtract(%0, %6)                   =>                  %9 = subtract(%2, %8)

The values of a copy are one tuple: the operands of the copy, the other values that the nodes use, then all
results. Operands and results of the nodes are selected from it by index, so that a copy takes few steps of
Python.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any

from tracejit.ir.graph import Copied, Node, Value

Selector = Callable[[tuple[Value, ...]], tuple[Value, ...]]


class Pattern:
    """Nodes to be copied. `others`: values that all copies use and none computes."""

    def __init__(self, nodes: Sequence[Node], before: Sequence[Value]):
        """`before`: the operands that copies replace. Of duplicates, copies use the last one."""
        results = [value for node in nodes for value in node.outputs]
        computed = set(results)
        self._used = tuple(dict.fromkeys([v for node in nodes for v in node.inputs if v not in computed]))
        self.others = [value for value in self._used if value not in before]
        self._indices = {value: index for index, value in enumerate([*before, *self.others, *results])}
        self._first_result = len(before) + len(self.others)
        self._types = [value.type for value in results]
        self._pick_used = self._selector(self._used)
        self._inputs = [self._selector(node.inputs) for node in nodes]
        self._outputs = [self._selector(node.outputs) for node in nodes]
        self._constant_fields: list[Sequence[Any]] = [
            [node.attrs for node in nodes],
            [node.location for node in nodes],
        ]
        self._ops = [node.op for node in nodes]

    def _selector(self, values: Sequence[Value]) -> Selector:
        """Return a function that selects, from the values of a copy, those that correspond to `values`."""
        indices = [self._indices[value] for value in values]
        if len(indices) > 1:
            return itemgetter(*indices)
        return itemgetter(slice(indices[0], indices[0] + 1) if indices else slice(0))

    def place(self, value: Value) -> int | None:
        """Return the index of a value; None for a value that the nodes do not use."""
        return self._indices.get(value)

    def copy(self, before: Sequence[Value]) -> tuple[Copied, tuple[Value, ...]]:
        """Return a copy on other values of the same types, and all its values."""
        values = (*before, *self.others, *map(Value, self._types))
        inputs = [pick(values) for pick in self._inputs]
        outputs = [pick(values) for pick in self._outputs]
        nodes = list(map(Node, self._ops, inputs, outputs, *self._constant_fields))
        return Copied(self, nodes, self._pick_used(values), values[self._first_result :]), values

    def known(self, nodes: list[Node], values: dict[Value, Value]) -> Copied:
        """Describe existing nodes as a copy, in which `values` replace the original operands."""
        outputs = tuple([value for node in nodes for value in node.outputs])
        return Copied(self, nodes, tuple([values.get(value, value) for value in self._used]), outputs)
