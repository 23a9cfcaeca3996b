"""Pieces of a recording as lists of nodes and steps: what they read and define, and copies of them."""

from __future__ import annotations

from tracejit.ir.graph import Builder, Node, Value
from tracejit.passes.gradient import Items, ReverseStep


def defined_by(items: Items) -> list[Value]:
    """The values that nodes and steps define, in order."""
    return list(dict.fromkeys(value for item in items for value in item.outputs))


def read_from_outside(items: Items) -> list[Value]:
    """The values that nodes and steps read and do not define, in order."""
    inside = set(defined_by(items))
    return list(dict.fromkeys(v for item in items for v in item.inputs if v not in inside))


class Copier:
    """Appends nodes to `builder` again, on the copies of their operands.

    replaced: the copy of a value; made: the copies of a node or step.
    """

    def __init__(self, builder: Builder):
        self.builder = builder
        self.replaced: dict[Value, Value] = {}
        self.made: dict[Node | ReverseStep, list[Node | ReverseStep]] = {}

    def found(self, value: Value) -> Value:
        """The copy of a value; the value itself, if it was not copied."""
        return self.replaced.get(value, value)

    def copies(self, items: Items) -> list[Node | ReverseStep]:
        """Copies of nodes and steps, in order."""
        for item in items:
            self.made[item] = list(self.copy_node(item) if isinstance(item, Node) else self.copy_step(item))
        return self.copied(items)

    def copied(self, items: Items) -> list[Node | ReverseStep]:
        """The copies of nodes and steps that were copied before."""
        return [copy for item in items for copy in self.made[item]]

    def copy_node(self, node: Node) -> Items:
        """Append a copy of a node; the appended nodes."""
        start = len(self.builder.nodes)
        inputs = [self.found(v) for v in node.inputs]
        results = self.builder.emit(node.op, *inputs, location=node.location, **node.attrs)
        results = results if isinstance(results, tuple) else (results,)
        self.replaced.update(zip(node.outputs, results, strict=True))
        return self.builder.nodes[start:]

    def copy_step(self, step: ReverseStep) -> Items:
        """A copy of a step, for the copies of its values."""
        assert isinstance(step, CopiedStep)
        return [step.copy_for(self)]


class CopiedStep(ReverseStep):
    """A step that can be copied with the nodes around it.

    calls_python: whether its rule is a Python function, which may have kept arrays of the recording.
    """

    calls_python = False

    def copy_for(self, copier: Copier) -> ReverseStep:
        """The step for copies of its values; the nodes that it stands for may have to be copied, too."""
        raise NotImplementedError
