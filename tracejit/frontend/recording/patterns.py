"""Patterns: nodes that are recorded again and again, on other values each time.

    %6 = multiply(%1, %5)      on %2, %3 instead of %0, %1      %8 = multiply(%3, %5)
    %7 = subtract(%0, %6)                   =>                  %9 = subtract(%2, %8)

The values of a copy are one list: those it is on, the others that the nodes use, then all results. Operands
are places in it.
"""

from __future__ import annotations

from collections.abc import Sequence

from tracejit.ir.graph import Copied, Node, Value


class Pattern:
    """Nodes, to be copied. `others`: what they use and do not compute, apart from what they are on."""

    def __init__(self, nodes: Sequence[Node], before: Sequence[Value]):
        """`before`: the values that they are on; of one that occurs twice, copies use the last."""
        made = [value for node in nodes for value in node.outputs]
        self._used = tuple(dict.fromkeys([v for node in nodes for v in node.inputs if v not in set(made)]))
        self.others = [value for value in self._used if value not in before]
        self._places = {value: place for place, value in enumerate([*before, *self.others, *made])}
        self._inputs = [self._places[value] for value in self._used]
        self._nodes = [(node, [self._places[value] for value in node.inputs]) for node in nodes]

    def place(self, value: Value) -> int | None:
        """The place of a value; None for one that the nodes have nothing to do with."""
        return self._places.get(value)

    def copy(self, before: Sequence[Value]) -> tuple[Copied, list[Value]]:
        """A copy on other values of the same types, and the list of its values."""
        values = [*before, *self.others]
        nodes: list[Node] = []
        for node, places in self._nodes:
            inputs = tuple([values[place] for place in places])
            outputs = tuple([Value(value.type) for value in node.outputs])
            nodes.append(Node(node.op, inputs, outputs, node.attrs, node.location))
            values += outputs
        return Copied(self, nodes, tuple([values[place] for place in self._inputs])), values

    def known(self, nodes: list[Node], values: dict[Value, Value]) -> Copied:
        """Nodes that were found to be a copy, on these values in the place of the first ones."""
        return Copied(self, nodes, tuple([values.get(value, value) for value in self._used]))
