"""The IR in static single assignment form: small immutable records that are compared by identity.

- `Value`: the result of a node, or an input; only the printer assigns names.
- `Node`: one application of an operator. `attrs` is never mutated.
- `Graph`: ``inputs``, ``nodes`` in program order, ``outputs``, and ``effects``: "after this call the storage
  bound to input `target` contains `value`".

Invariants, checked by `verify`: every value has one definition, which precedes its uses; types agree with the
operator's typing rule; the target of an effect is an input of the value's shape and dtype.

`Builder` appends nodes. Recording, gradients and all rewriting passes use it.

>>> from tracejit.ops import add
>>> from tracejit.ir.types import ArrayType
>>> b = Builder()
>>> x = b.input(ArrayType((3,), np.dtype("float32")))
>>> print(b.graph(outputs=[b.emit(add, x, x)]))
graph(%0: float32[3]) {
  %1: float32[3] = add(%0, %0)
  return %1
}
"""

# No `from __future__ import annotations`: a named tuple compiles every annotation that is a string.

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from tracejit.errors import TracejitError, locate
from tracejit.ir.op import Op
from tracejit.ir.printer import print_graph
from tracejit.ir.types import ArrayType


class Value:
    """An input of a graph or a result of a node. Values of one type differ only by identity."""

    __slots__ = ("__weakref__", "type")

    def __init__(self, type: ArrayType):
        self.type = type

    def __repr__(self) -> str:
        return f"<Value {self.type} at {id(self):#x}>"


@dataclass(eq=False, slots=True)
class Node:
    """One application of `op`. `location` is the user's ``file:line``, which is never part of a key.

    Immutable by convention: enforcing it would make construction four times slower.
    """

    op: Op
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    attrs: Mapping[str, Any] = field(default_factory=dict)
    location: str | None = None

    @property
    def output(self) -> Value:
        """The output of a node with a single output."""
        (value,) = self.outputs
        return value


class Copied(NamedTuple):
    """A sequence of nodes that is known to be one of several copies.

    kind:    an object; all sequences with the same kind apply the same operations in the same order.
    inputs:  the values that the nodes use but do not compute.
    outputs: all values that the nodes compute.
    """

    kind: object
    nodes: list[Node]
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]


@dataclass(eq=False, repr=False, slots=True)
class Effect:
    """A write: after the call, the storage bound to input `target` contains `value`."""

    target: Value
    value: Value


@dataclass(eq=False)
class Graph:
    """A pure function in single-assignment form, with effects on the storages of its inputs.

    notes: analysis results of any layer by name. They are a cache, except ``runs``, ``cuts``, ``ranges`` and
           ``unrolled``, which passes read, and ``copied``, a list of `Copied`, which saves passes a search;
           the nodes of each are consecutive except for constants, or are not in the graph. Notes do not refer
           to the graph itself: such a cycle could keep large arrays alive until a garbage collection.
    """

    inputs: tuple[Value, ...]
    nodes: tuple[Node, ...]
    outputs: tuple[Value, ...]
    effects: tuple[Effect, ...] = ()
    notes: dict[str, Any] = field(init=False, repr=False, default_factory=dict)

    def __str__(self) -> str:
        return print_graph(self)

    def results(self) -> tuple[Value, ...]:
        """All values that must be computed: the outputs, then the values of the effects."""
        return self.outputs + tuple(effect.value for effect in self.effects)


class Builder:
    """Appends nodes to a graph under construction. Types are inferred; errors contain the location."""

    def __init__(self) -> None:
        self.inputs: list[Value] = []
        self.nodes: list[Node] = []

    def input(self, type: ArrayType) -> Value:
        """Add an input of the graph."""
        value = Value(type)
        self.inputs.append(value)
        return value

    def emit(self, op: Op, *inputs: Value, location: str | None = None, **attrs: Any) -> Any:
        """Append one node and return its output value (a tuple of them if the operator has several)."""
        return self.append(op, inputs, location, attrs)

    def append(
        self, op: Op, inputs: tuple[Value, ...], location: str | None, attrs: Mapping[str, Any]
    ) -> Any:
        """Append one node like `emit`, with inputs and attributes passed as containers."""
        try:
            types = op.infer(*[v.type for v in inputs], **attrs)
        except TracejitError as error:
            raise locate(error, location) from None
        has_several = isinstance(types, tuple)
        outputs = tuple([Value(t) for t in types]) if has_several else (Value(types),)
        self.nodes.append(Node(op, inputs, outputs, attrs, location))
        return outputs if has_several else outputs[0]

    def copy(self, node: Node, inputs: Iterable[Value]) -> tuple[Value, ...]:
        """Append `node` applied to other inputs of the same types; return its new outputs."""
        outputs: tuple[Value, ...]
        if len(node.outputs) == 1:
            outputs = (Value(node.outputs[0].type),)
        else:
            outputs = tuple([Value(v.type) for v in node.outputs])
        self.nodes.append(Node(node.op, tuple(inputs), outputs, node.attrs, node.location))
        return outputs

    def graph(self, outputs: Iterable[Value], effects: Iterable[Effect] = ()) -> Graph:
        """Return the finished graph."""
        return Graph(tuple(self.inputs), tuple(self.nodes), tuple(outputs), tuple(effects))


def producers_of(nodes: Iterable[Node]) -> dict[Value, Node]:
    """Map each value to the node that computes it."""
    return {value: node for node in nodes for value in node.outputs}


def constant_of(value: Any, dtype: np.dtype) -> dict[str, Any]:
    """Return the attributes of a `constant` node, whose value is a Python number rounded to the dtype."""
    return {"value": np.dtype(dtype).type(value).item(), "dtype": np.dtype(dtype)}
