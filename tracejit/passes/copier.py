"""Segments of a recording as lists of nodes and gradient steps: their inputs, their outputs, and copies."""

from __future__ import annotations

from tracejit.ir.graph import Builder, Node, Value
from tracejit.passes.gradient import Items, ReverseStep


def defined_by(items: Items) -> list[Value]:
    """The values that nodes and steps define, in order."""
    return list(dict.fromkeys(value for item in items for value in item.outputs))


def read_from_outside(items: Items) -> list[Value]:
    """The values that nodes and steps read but do not define, in order of first use."""
    inside = set(defined_by(items))
    return list(dict.fromkeys(v for item in items for v in item.inputs if v not in inside))


class Copier:
    """Appends copies of nodes to `builder`, whose operands are the copies of the original operands.

    replaced: the copy of each copied value; item_copies: the copies of each node or step.
    """

    def __init__(self, builder: Builder):
        self.builder = builder
        self.replaced: dict[Value, Value] = {}
        self.item_copies: dict[Node | ReverseStep, list[Node | ReverseStep]] = {}

    def copy_of(self, value: Value) -> Value:
        """The copy of a value, or the value itself if it was not copied."""
        return self.replaced.get(value, value)

    def copies(self, items: Items) -> list[Node | ReverseStep]:
        """Copy nodes and steps, in order; return their copies."""
        for item in items:
            self.item_copies[item] = list(
                self.copy_node(item) if isinstance(item, Node) else self.copy_step(item)
            )
        return self.copied(items)

    def copied(self, items: Items) -> list[Node | ReverseStep]:
        """The copies of nodes and steps that have been copied by `copies`."""
        return [copy for item in items for copy in self.item_copies[item]]

    def copy_node(self, node: Node) -> Items:
        """Append a copy of a node; return the appended nodes."""
        start = len(self.builder.nodes)
        inputs = [self.copy_of(v) for v in node.inputs]
        results = self.builder.emit(node.op, *inputs, location=node.location, **node.attrs)
        results = results if isinstance(results, tuple) else (results,)
        self.replaced.update(zip(node.outputs, results, strict=True))
        return self.builder.nodes[start:]

    def copy_step(self, step: ReverseStep) -> Items:
        """Copy a step, on the copies of its values."""
        assert isinstance(step, CopiedStep)
        return [step.copy_for(self)]


class CopiedStep(ReverseStep):
    """A step that can be copied together with the nodes around it.

    calls_python: whether its rule is a Python function, which may refer to arrays of the recording.
    """

    calls_python = False

    def copy_for(self, copier: Copier) -> ReverseStep:
        """Copy the step, on the copies of its values; may have to copy the nodes that it represents, too."""
        raise NotImplementedError
