"""Alias analysis: values that share memory according to the semantics of nodes, for `legalize` and `plan`.

Four kinds of nodes allocate no new buffer:

- a *contiguous view* is a range of its operand's memory, and needs no task;
- a node that *overwrites* writes an output into the memory of an operand and leaves other elements unchanged:
  `update`, `scatter`, a fused kernel whose output is an `update` of one of its inputs, and communication in
  place;
- a `loop` writes loop-carried values into the memory of its operands;
- `empty` is uninitialised memory, and needs no task either.

`contents` follows views only: values with one content are the same bytes at the same time. `roots` follows
overwriting, too: values with one root occupy the same buffer, one after the other.

In addition, a fused kernel may share memory between an output and an operand that dies there (attribute
``inplace``); the memory plan decides whether it does.
"""

# No `from __future__ import annotations`: a named tuple compiles every annotation that is a string.

from collections.abc import Callable, Sequence
from typing import NamedTuple

from tracejit.ir.graph import Graph, Node, Value
from tracejit.ir.op import CAN_FAIL
from tracejit.ops import constant, empty, fused, loop, scatter, update, view
from tracejit.ops.communicate import IN_PLACE
from tracejit.ops.loops import graph_can_fail, targets

AliasPairs = tuple[tuple[int, int], ...]


class Span(NamedTuple):
    """The location of a value: `offset` bytes into the buffer of `root`."""

    root: Value
    offset: int


def is_alias(node: Node) -> bool:
    """Whether the output is a range of the operand's memory."""
    return node.op is view and node.attrs["view"].is_contiguous()


def is_task(node: Node) -> bool:
    """Whether this node needs a task."""
    return node.op is not constant and node.op is not empty and not is_alias(node)


def overwrites(node: Node) -> AliasPairs:
    """The pairs (output, operand) for which the node writes the output into the operand's memory."""
    if node.op is fused:
        return _properties_of(node.attrs["body"]).overwrites
    if node.op in IN_PLACE:
        return tuple((k, k) for k in range(len(node.outputs)))
    if node.op is loop:
        return tuple((k, 1 + i) for k, i in enumerate(targets(node.attrs["body"])))
    return ((0, 0),) if node.op is update or node.op is scatter else ()


class BodyProperties(NamedTuple):
    """The aliasing and failure properties of a kernel, computed from its body."""

    overwrites: AliasPairs
    can_fail: bool


def _properties_of(body: Graph) -> BodyProperties:
    properties: BodyProperties | None = body.notes.get("inside")
    if properties is None:
        properties = body.notes["inside"] = BodyProperties(_overwritten(body), any(map(can_fail, body.nodes)))
    return properties


def _overwritten(body: Graph) -> AliasPairs:
    """The pairs (output, input) of a body for which updates write the output into the input."""
    stores = {n.outputs[0]: n for n in body.nodes if n.op is update}
    pairs = []
    for k, value in enumerate(body.outputs):
        base = value
        while base in stores:
            base = stores[base].inputs[0]
        if base is not value and base in body.inputs:
            pairs.append((k, body.inputs.index(base)))
    return tuple(pairs)


def may_share(node: Node) -> AliasPairs:
    """The pairs (output, operand) that the kernel allows to share memory."""
    return tuple(node.attrs.get("inplace", ()))


def can_fail(node: Node) -> bool:
    """Whether the node's task may report an error at run time."""
    if node.op is fused:
        return _properties_of(node.attrs["body"]).can_fail
    if node.op is loop:
        return graph_can_fail(node.attrs["body"])
    return CAN_FAIL in node.op.traits


def contents(graph: Graph) -> dict[Value, Span]:
    """Map each array value to its span in the value of which it is a view. Cached in the graph's notes."""
    spans: dict[Value, Span] | None = graph.notes.get("contents")
    if spans is None:
        spans = graph.notes["contents"] = _spans(graph, lambda node: ())
    return spans


def roots(graph: Graph) -> dict[Value, Span]:
    """Map each array value to its span in the first value of its buffer; the graph is legal."""
    spans: dict[Value, Span] | None = graph.notes.get("roots")
    if spans is None:
        spans = graph.notes["roots"] = _spans(graph, overwrites)
    return spans


def _spans(graph: Graph, pairs_of: Callable[[Node], AliasPairs]) -> dict[Value, Span]:
    spans = {value: Span(value, 0) for value in graph.inputs if not value.type.on_host}
    for node in graph.nodes:
        if is_alias(node):
            base, view_of_base = spans[node.inputs[0]], node.attrs["view"]
            output = node.outputs[0]
            offset = view_of_base.offset * output.type.dtype.itemsize if view_of_base.size else 0
            spans[output] = Span(base.root, base.offset + offset)
            continue
        for value in node.outputs:
            if not value.type.on_host:
                spans[value] = Span(value, 0)
        for k, j in pairs_of(node):
            spans[node.outputs[k]] = spans[node.inputs[j]]
    return spans


def fills_buffer(value: Value, span: Span) -> bool:
    """Whether a value with this span occupies its entire buffer."""
    return span.offset == 0 and value.type.nbytes == span.root.type.nbytes


def alias_groups(graph: Graph, aliases: Sequence[Sequence[int]]) -> dict[Value, frozenset[Value]]:
    """Map each input to the inputs whose memory may overlap its memory, including itself.

    `aliases` are groups of positions of inputs that share storage.
    """
    groups = {value: frozenset([value]) for value in graph.inputs}
    for group in aliases:
        union = frozenset().union(*(groups[graph.inputs[i]] for i in group))
        groups.update(dict.fromkeys(union, union))
    return groups
