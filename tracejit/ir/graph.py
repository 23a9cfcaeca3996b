"""The IR: small immutable records with identity, in the user's order.

- `Value`: a result computed once; compared by identity, named only by the printer.
- `Node`: one application of an operator. `attrs` is never mutated.
- `Graph`: ``inputs``, ``nodes`` in the user's order (every value is defined before it is used),
  ``outputs``, and ``effects``: "after this call the storage bound to input `target` holds `value`".

What always holds (checked by `verify`): every value has one definition, uses come after definitions, types
are what the operator's typing rule says, an effect's target is an input and has its value's shape and dtype.

`Builder` appends nodes; recording, gradients and every rewriting pass use it.

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

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from tracejit.errors import TracejitError, locate
from tracejit.ir.op import Op
from tracejit.ir.printer import print_graph
from tracejit.ir.types import ArrayType


class Value:
    """A result that is computed once. Values of one type differ only by identity."""

    __slots__ = ("__weakref__", "type")

    def __init__(self, type: ArrayType):
        self.type = type

    def __repr__(self) -> str:
        return f"<Value {self.type} at {id(self):#x}>"


@dataclass(eq=False, slots=True)
class Node:
    """One application of `op`. `location` is the user's ``file:line`` and never part of a key.

    It is immutable, which is not enforced: construction would take four times as long.
    """

    op: Op
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    attrs: Mapping[str, Any] = field(default_factory=dict)
    location: str | None = None

    @property
    def output(self) -> Value:
        """The only output."""
        (value,) = self.outputs
        return value


class Copied(NamedTuple):
    """Nodes that are known to be copies: all with one `kind`, an object, do the same in the same order, each
    to its own `inputs`, which are what they use and do not compute. `outputs` are all that they compute.
    """

    kind: object
    nodes: list[Node]
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]


@dataclass(eq=False, repr=False, slots=True)
class Effect:
    """The content of a storage after the call: that bound to input `target` holds `value`."""

    target: Value
    value: Value


@dataclass(eq=False)
class Graph:
    """A pure function in single-assignment form, plus effects on the storages of its inputs.

    notes: what any floor has worked out of this graph, by name: a cache, but for ``runs``, ``cuts``,
           ``ranges`` and ``unrolled``, which passes read, and ``copied``, a list of `Copied`, which spares
           them a search; those nodes stand in a row, apart from constants, or are not in the graph. Nothing
           there refers to the graph itself: such a cycle could keep large arrays alive until a garbage
           collection.
    """

    inputs: tuple[Value, ...]
    nodes: tuple[Node, ...]
    outputs: tuple[Value, ...]
    effects: tuple[Effect, ...] = ()
    notes: dict[str, Any] = field(init=False, repr=False, default_factory=dict)

    def __str__(self) -> str:
        return print_graph(self)

    def results(self) -> tuple[Value, ...]:
        """Everything that must be computed: outputs, then the values of the effects."""
        return self.outputs + tuple(effect.value for effect in self.effects)


class Builder:
    """Appends nodes to a graph under construction; types are inferred, errors carry the location."""

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
        """Append one node, like `emit`, with its inputs and attributes as containers."""
        try:
            types = op.infer(*[v.type for v in inputs], **attrs)
        except TracejitError as error:
            raise locate(error, location) from None
        several = isinstance(types, tuple)
        outputs = tuple([Value(t) for t in types]) if several else (Value(types),)
        self.nodes.append(Node(op, inputs, outputs, attrs, location))
        return outputs if several else outputs[0]

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
        """The finished graph."""
        return Graph(tuple(self.inputs), tuple(self.nodes), tuple(outputs), tuple(effects))


def producers_of(nodes: Iterable[Node]) -> dict[Value, Node]:
    """The nodes by the values that they make."""
    return {value: node for node in nodes for value in node.outputs}


def constant_of(value: Any, dtype: np.dtype) -> dict[str, Any]:
    """Attributes of a `constant` node: a Python number that prints and hashes the same everywhere."""
    return {"value": np.dtype(dtype).type(value).item(), "dtype": np.dtype(dtype)}
