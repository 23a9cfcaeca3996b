"""Merges the graphs of loop iterations that differ in integers only, and extracts those of some iterations.

    merge([View(0, (2,), (1,)), View(60, (3,), (1,))], [1, 1])  =>  View(0..60, (2..3,), (1,))

Integers that differ become `Moving`, in types, views and other attributes. A merged item may itself represent
several iterations, like the body of a nested loop: `runs` contains the number of iterations of each item.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tracejit.ir.graph import Effect, Graph, Node, Value
from tracejit.ir.moving import Moving, before, from_values, total
from tracejit.ir.types import ArrayType
from tracejit.ir.view import View


class NotRollable(Exception):
    """Raised for nodes or graphs that cannot be iterations of a loop; the message is the reason.

    location: the user's source line of the node at fault, if it is known.
    """

    def __init__(self, message: str, location: str | None):
        super().__init__(message)
        self.location = location


def merge(items: Sequence[Any], runs: Sequence[int]) -> Any:
    """Merge `items` into one object; raise `NotRollable` if more than integers differ."""
    first = items[0]
    if isinstance(first, int | Moving) and not isinstance(first, bool):
        return _number(items, runs)
    if isinstance(first, Graph):
        return _graph(items, runs)
    if isinstance(first, tuple) and len(set(map(len, items))) == 1:
        return tuple([merge(column, runs) for column in zip(*items, strict=True)])
    if isinstance(first, View):
        return View(*[merge([getattr(v, name) for v in items], runs) for name in _VIEW])
    if isinstance(first, ArrayType):
        shape = merge([t.shape for t in items], runs)
        return ArrayType(shape, first.dtype, first.device)
    if any(item is not first and repr(item) != repr(first) for item in items):
        raise NotRollable("an attribute differs", None)
    return first


_VIEW = ("offset", "shape", "strides")


def _number(items: Sequence[Any], runs: Sequence[int]) -> Any:
    if len(items) == sum(runs) and Moving not in set(map(type, items)):
        return from_values(items)
    per_item = [x.values if type(x) is Moving else np.full(n, x) for x, n in zip(items, runs, strict=True)]
    return from_values(np.concatenate(per_item))


def merge_attributes(nodes: Sequence[Node], runs: Sequence[int]) -> dict[str, Any]:
    """Merge the attributes of one node from several iterations."""
    attrs = {name: merge([n.attrs[name] for n in nodes], runs) for name in nodes[0].attrs if name != "body"}
    if "body" in nodes[0].attrs:
        inner = [total(n.attrs["rounds"], count) for n, count in zip(nodes, runs, strict=True)]
        attrs["body"] = merge([n.attrs["body"] for n in nodes], inner)
    return attrs


def _graph(graphs: Sequence[Graph], runs: Sequence[int]) -> Graph:
    """Merge graphs with the same operators and data flow."""
    first = graphs[0]
    if all(graph is first for graph in graphs) and not varies(first):
        return first
    new: dict[Value, Value] = {}

    def values(column: Sequence[Sequence[Value]]) -> tuple[Value, ...]:
        new_values = [Value(merge([v.type for v in same], runs)) for same in zip(*column, strict=True)]
        new.update(zip(column[0], new_values, strict=True))
        return tuple(new_values)

    inputs = values([graph.inputs for graph in graphs])
    nodes = []
    for column in zip(*[graph.nodes for graph in graphs], strict=True):
        node = column[0]
        operands = tuple([new[v] for v in node.inputs])
        outputs = values([n.outputs for n in column])
        nodes.append(Node(node.op, operands, outputs, merge_attributes(column, runs), node.location))
    return Graph(
        inputs, tuple(nodes), (), tuple([Effect(new[e.target], new[e.value]) for e in first.effects])
    )


def varies(graph: Graph) -> bool:
    """Whether a body contains numbers that vary over the iterations."""
    known = graph.notes.get("moves")
    if known is None:
        types = [v.type for v in graph.inputs] + [v.type for n in graph.nodes for v in n.outputs]
        known = any(map(_varies, types)) or any(_varies(a) for n in graph.nodes for a in n.attrs.values())
        graph.notes["moves"] = known
    return bool(known)


def _varies(item: Any) -> bool:
    if isinstance(item, tuple):
        return any(map(_varies, item))
    if isinstance(item, View):
        return any(map(_varies, (item.offset, item.shape, item.strides)))
    if isinstance(item, ArrayType):
        return any(map(_varies, item.shape))
    return varies(item) if isinstance(item, Graph) else type(item) is Moving


def restrict(item: Any, start: int, stop: int) -> Any:
    """Restrict `item` to its iterations from `start` to `stop`."""
    if type(item) is Moving:
        return from_values(item.values[start:stop])
    if not _varies(item):
        return item
    if isinstance(item, tuple):
        return tuple([restrict(x, start, stop) for x in item])
    if isinstance(item, View):
        return View(*[restrict(getattr(item, name), start, stop) for name in _VIEW])
    if isinstance(item, ArrayType):
        return ArrayType(restrict(item.shape, start, stop), item.dtype, item.device)
    return _restrict_graph(item, start, stop)


def _restrict_graph(graph: Graph, start: int, stop: int) -> Graph:
    new: dict[Value, Value] = {}

    def values(old_values: Sequence[Value]) -> tuple[Value, ...]:
        new_values = tuple([Value(restrict(v.type, start, stop)) for v in old_values])
        new.update(zip(old_values, new_values, strict=True))
        return new_values

    inputs = values(graph.inputs)
    nodes = []
    for node in graph.nodes:
        operands = tuple([new[v] for v in node.inputs])
        attrs = {name: restrict(item, start, stop) for name, item in node.attrs.items() if name != "body"}
        if "body" in node.attrs:
            runs = node.attrs["rounds"]
            attrs["body"] = restrict(node.attrs["body"], before(runs, start), before(runs, stop))
        nodes.append(Node(node.op, operands, values(node.outputs), attrs, node.location))
    return Graph(
        inputs, tuple(nodes), (), tuple([Effect(new[e.target], new[e.value]) for e in graph.effects])
    )
