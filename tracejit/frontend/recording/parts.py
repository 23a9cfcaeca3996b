"""Parts of a recorded graph that are launched one after the other: only what depends on a failure fails.

A launch fails as a whole. So results that depend on different operators that can fail (`Trait.CAN_FAIL`) are
computed by launches of their own:

    a = x[i]            # part 1
    b = y[j] + 1        # part 2
    c = x + y           # part 0: no operator that can fail
    d = a * c           # part 1, which reads c from part 0

Most recordings have one part. Each part is launched before another one writes what it reads.
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
    """Results that are computed together: positions of outputs, effects, and operators without readers."""

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
class Piece:
    """A part as a graph. Its outputs are those of the whole graph at `outputs`, then the values `shared` with
    later parts.
    """

    graph: Graph
    outputs: list[int]
    shared: list[Value]


def by_failure(graph: Graph) -> list[Part]:
    """Parts whose results depend on the same operators that can fail."""
    causes: dict[Value, Cause] = dict.fromkeys(graph.inputs, frozenset())
    parts: dict[Cause, Part] = {}
    fallible: list[tuple[Cause, Node]] = []
    for number, node in enumerate(graph.nodes):
        found = frozenset[int]().union(*(causes[v] for v in node.inputs))
        if Trait.CAN_FAIL in node.op.traits:
            found |= {number}
            fallible.append((found, node))
        causes.update(dict.fromkeys(node.outputs, found))
    for position, value in enumerate(graph.outputs):
        parts.setdefault(causes[value], Part(causes[value])).outputs.append(position)
    for effect in graph.effects:
        parts.setdefault(causes[effect.value], Part(causes[effect.value])).effects.append(effect)
    for found, node in fallible:
        if not any(found <= part for part in parts):
            parts.setdefault(found, Part(found)).checks.append(node)
    return sorted(parts.values(), key=lambda part: len(part.causes))


def by_result(graph: Graph) -> list[Part]:
    """A part for each result."""
    outputs = [Part(frozenset((i,)), outputs=[i]) for i in range(len(graph.outputs))]
    effects = [Part(frozenset((-i,)), effects=[e]) for i, e in enumerate(graph.effects, 1)]
    return outputs + effects


def cut(graph: Graph, parts: Sequence[Part]) -> list[Piece]:
    """The parts as graphs, in the order in which they are launched.

    Parts that cannot be ordered, as each writes what another one reads, become one.
    """
    ordered = _in_order(graph, parts)
    needed = [_needed(graph, part, ()) for part in ordered]
    pieces: list[Piece] = []
    available: list[dict[Value, None]] = []  # of each part, the values that others have computed for it
    for i, part in enumerate(ordered):
        here = {
            value: None
            for earlier in range(i)
            if ordered[earlier].causes <= part.causes
            for node in needed[earlier]
            if node in needed[i] and _is_worth_memory(node)
            for value in node.outputs
        }
        available.append(here)
    for i, part in enumerate(ordered):
        nodes = _needed(graph, part, available[i])
        needed[i] = nodes
        uses = [v for node in nodes for v in node.inputs]
        uses += [graph.outputs[o] for o in part.outputs] + [e.value for e in part.effects]
        uses += [e.target for e in part.effects]
        inputs = dict.fromkeys(v for v in uses if v in available[i] or v in graph.inputs)
        made = {v for node in nodes for v in node.outputs}
        followers = [j for j in range(i + 1, len(ordered)) if part.causes <= ordered[j].causes]
        shared = [v for v in dict.fromkeys(v for j in followers for v in available[j]) if v in made]
        outputs = (*(graph.outputs[o] for o in part.outputs), *shared)
        piece = Graph(tuple(inputs), tuple(nodes), outputs, tuple(part.effects))
        pieces.append(Piece(piece, part.outputs, shared))
    return pieces


def _is_worth_memory(node: Node) -> bool:
    """Whether parts share the results of a node; views and numbers are computed again."""
    return Trait.VIEW not in node.op.traits and not any(v.type.on_host for v in node.outputs)


def _needed(graph: Graph, part: Part, available: Sequence[Value] | dict[Value, None]) -> dict[Node, None]:
    """The nodes that compute a part, in the graph's order; `available` values need none."""
    wanted = {graph.outputs[o] for o in part.outputs} | {e.value for e in part.effects}
    found: list[Node] = []
    for node in reversed(graph.nodes):
        if node in part.checks or any(v in wanted and v not in available for v in node.outputs):
            found.append(node)
            wanted.update(node.inputs)
    return dict.fromkeys(reversed(found))


def _in_order(graph: Graph, parts: Sequence[Part]) -> list[Part]:
    """An order in which no part writes what a later one reads; parts for which there is none are joined."""
    waiting = list(parts)
    reads = {id(part): _reads(graph, part) for part in parts}
    ordered: list[Part] = []
    while waiting:
        for part in waiting:
            written = {e.target for e in part.effects}
            if not any(other is not part and written & reads[id(other)] for other in waiting):
                ordered.append(part)
                waiting.remove(part)
                break
        else:
            first, *others = waiting
            for other in others:
                first.join(other)
            ordered.append(first)
            break
    return ordered


def _reads(graph: Graph, part: Part) -> set[Value]:
    values = {v for node in _needed(graph, part, ()) for v in node.inputs}
    values |= {graph.outputs[o] for o in part.outputs} | {e.value for e in part.effects}
    return values & set(graph.inputs)
