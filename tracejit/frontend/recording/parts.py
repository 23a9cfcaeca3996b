"""Parts of a recorded graph that are launched one after the other, so that only results that depend on a
failure fail.

A launch fails as a unit. Results that depend on different operators that can fail (`Trait.CAN_FAIL`) are
therefore computed by separate launches:

    a = x[i]            # part 1
    b = y[j] + 1        # part 2
    c = x + y           # part 0: no operator that can fail
    d = a * c           # part 1, which reads c from part 0

Most recordings have one part. Each part is launched before another one writes the arrays that it reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tracejit.ir.graph import Effect, Graph, Node, Value
from tracejit.ir.op import Trait

Cause = frozenset[int]
"""Positions of the operators that may make a part fail."""


@dataclass(eq=False)
class Part:
    """Results that are computed together: positions of outputs, effects, and operators whose results nothing
    reads.
    """

    causes: Cause
    outputs: list[int] = field(default_factory=list)
    effects: list[Effect] = field(default_factory=list)
    checks: list[Node] = field(default_factory=list)

    def join(self, other: Part) -> None:
        """Add the results of another part."""
        self.causes |= other.causes
        self.outputs += other.outputs
        self.effects += other.effects
        self.checks += other.checks


@dataclass(eq=False)
class Subgraph:
    """The graph of a part. Its outputs are the original graph's outputs at the positions `outputs`, then the
    values `shared` with later parts.
    """

    graph: Graph
    outputs: list[int]
    shared: list[Value]


def partition_by_failure(graph: Graph) -> list[Part]:
    """Return parts such that the results of each depend on the same operators that can fail."""
    causes: dict[Value, Cause] = dict.fromkeys(graph.inputs, frozenset())
    parts: dict[Cause, Part] = {}
    fallible: list[tuple[Cause, Node]] = []
    for position, node in enumerate(graph.nodes):
        cause = frozenset[int]().union(*(causes[v] for v in node.inputs))
        if Trait.CAN_FAIL in node.op.traits:
            cause |= {position}
            fallible.append((cause, node))
        causes.update(dict.fromkeys(node.outputs, cause))
    for position, value in enumerate(graph.outputs):
        parts.setdefault(causes[value], Part(causes[value])).outputs.append(position)
    for effect in graph.effects:
        parts.setdefault(causes[effect.value], Part(causes[effect.value])).effects.append(effect)
    for cause, node in fallible:
        if not any(cause <= part for part in parts):
            parts.setdefault(cause, Part(cause)).checks.append(node)
    return sorted(parts.values(), key=lambda part: len(part.causes))


def partition_by_result(graph: Graph) -> list[Part]:
    """Return one part per result."""
    outputs = [Part(frozenset((i,)), outputs=[i]) for i in range(len(graph.outputs))]
    effects = [Part(frozenset((-i,)), effects=[e]) for i, e in enumerate(graph.effects, 1)]
    return outputs + effects


def subgraphs_of(graph: Graph, parts: Sequence[Part]) -> list[Subgraph]:
    """Return the graphs of the parts, in launch order.

    Parts that cannot be ordered, because each writes what another one reads, are merged.
    """
    ordered = _in_order(graph, parts)
    needed = [_needed(graph, part, ()) for part in ordered]
    subgraphs: list[Subgraph] = []
    available: list[dict[Value, None]] = []  # for each part, the values that earlier parts have computed
    for i, part in enumerate(ordered):
        from_earlier = {
            value: None
            for earlier in range(i)
            if ordered[earlier].causes <= part.causes
            for node in needed[earlier]
            if node in needed[i] and _is_worth_memory(node)
            for value in node.outputs
        }
        available.append(from_earlier)
    for i, part in enumerate(ordered):
        nodes = _needed(graph, part, available[i])
        needed[i] = nodes
        uses = [v for node in nodes for v in node.inputs]
        uses += [graph.outputs[o] for o in part.outputs] + [e.value for e in part.effects]
        uses += [e.target for e in part.effects]
        inputs = dict.fromkeys(v for v in uses if v in available[i] or v in graph.inputs)
        computed = {v for node in nodes for v in node.outputs}
        followers = [j for j in range(i + 1, len(ordered)) if part.causes <= ordered[j].causes]
        shared = [v for v in dict.fromkeys(v for j in followers for v in available[j]) if v in computed]
        outputs = (*(graph.outputs[o] for o in part.outputs), *shared)
        subgraph = Graph(tuple(inputs), tuple(nodes), outputs, tuple(part.effects))
        subgraphs.append(Subgraph(subgraph, part.outputs, shared))
    return subgraphs


def _is_worth_memory(node: Node) -> bool:
    """Whether parts share the results of a node. Views and numbers are recomputed."""
    return Trait.VIEW not in node.op.traits and not any(v.type.on_host for v in node.outputs)


def _needed(graph: Graph, part: Part, available: Sequence[Value] | dict[Value, None]) -> dict[Node, None]:
    """Return the nodes that compute a part, in the graph's order. Values in `available` need no nodes."""
    values = {graph.outputs[o] for o in part.outputs} | {e.value for e in part.effects}
    nodes: list[Node] = []
    for node in reversed(graph.nodes):
        if node in part.checks or any(v in values and v not in available for v in node.outputs):
            nodes.append(node)
            values.update(node.inputs)
    return dict.fromkeys(reversed(nodes))


def _in_order(graph: Graph, parts: Sequence[Part]) -> list[Part]:
    """Return the parts in an order in which no part writes what a later one reads. Parts without such an
    order are joined.
    """
    remaining = list(parts)
    reads = {id(part): _reads(graph, part) for part in parts}
    ordered: list[Part] = []
    while remaining:
        for part in remaining:
            written = {e.target for e in part.effects}
            if not any(other is not part and written & reads[id(other)] for other in remaining):
                ordered.append(part)
                remaining.remove(part)
                break
        else:
            first, *others = remaining
            for other in others:
                first.join(other)
            ordered.append(first)
            break
    return ordered


def _reads(graph: Graph, part: Part) -> set[Value]:
    values = {v for node in _needed(graph, part, ()) for v in node.inputs}
    values |= {graph.outputs[o] for o in part.outputs} | {e.value for e in part.effects}
    return values & set(graph.inputs)
