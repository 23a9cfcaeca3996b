"""Dead code elimination: remove the nodes that no result needs, and stores of elements that nobody reads.

Live nodes are those that an output or an effect depends on, and those with side effects:
`Trait.ORDERED` (callbacks) and `Trait.CAN_FAIL` (an index out of range is an error even if nobody
reads the element). The graph is linear and every value is defined before it is used, so one walk backwards
sees each value's uses before its definition.

The readers of an array with a dead store read the array before it, which the next store overwrites. The
gradient of a concatenation leaves such stores: each part sets its elements of a cotangent to zero, and the
others read other elements.

    %1 = update(%0, %2) [view=left]
    %3 = view(%1) [view=right]                  =>      %3 = view(%0) [view=right]
"""

from __future__ import annotations

from tracejit import ops
from tracejit.ir.graph import Graph, Node, Value
from tracejit.ir.op import CAN_FAIL, ORDERED
from tracejit.ir.view import View
from tracejit.loopnest.regions import Regions, same


def dce(graph: Graph) -> Graph:
    """`graph` without its dead nodes."""
    needed = set(graph.results())
    seen = _Seen(graph)
    kept: list[Node] = []
    dead: list[Node] = []
    for node in reversed(graph.nodes):
        if needed.isdisjoint(node.outputs) and not _has_side_effect(node):
            continue
        if node.op is ops.update and seen.beside(node):
            seen.pass_on(node)
            needed.add(node.inputs[0])
            dead.append(node)
        else:
            if node.op is ops.loop and node.attrs.get("until") is None:
                node = _without_dead_results(node, needed)
            seen.note(node)
            needed.update(node.inputs)
            kept.append(node)
    kept.reverse()
    return Graph(graph.inputs, _rewired(kept, dead), graph.outputs, graph.effects)


def _without_dead_results(node: Node, needed: set[Value]) -> Node:
    """A loop without results that neither its rounds nor later nodes read: values that it keeps for a
    gradient that is not taken.
    """
    body: Graph = node.attrs["body"]
    read = {value for inner in body.nodes for value in inner.inputs}
    read.update(effect.value for effect in body.effects)
    dead = {
        effect.target
        for effect, output in zip(body.effects, node.outputs, strict=True)
        if output not in needed and effect.target not in read
    }
    if not dead:
        return node
    rows = zip(body.inputs, node.inputs[1:], node.attrs["moves"], strict=True)
    inputs, operands, moves = zip(*[row for row in rows if row[0] not in dead], strict=True)
    effects = tuple([effect for effect in body.effects if effect.target not in dead])
    outputs = [v for e, v in zip(body.effects, node.outputs, strict=True) if e.target not in dead]
    fewer = Graph(inputs, body.nodes, (), effects)
    if "runs" in body.notes:  # other notes are of the nodes of `body`
        fewer.notes["runs"] = body.notes["runs"]
    attrs = {**node.attrs, "body": fewer, "moves": moves}
    return Node(node.op, (node.inputs[0], *operands), tuple(outputs), attrs, node.location)


def _has_side_effect(node: Node) -> bool:
    return ORDERED in node.op.traits or CAN_FAIL in node.op.traits


class _Seen:
    """The elements that are read of each array made by a store, by the nodes noted so far: those in `parts`,
    and all but what the next store overwrites, if there is one. An array that is read wholly is in neither.
    """

    def __init__(self, graph: Graph):
        self.parts = {n.output: Regions(n.output.type.shape) for n in graph.nodes if n.op is ops.update}
        self.overwritten: dict[Value, View] = {}
        for value in graph.results():
            self.parts.pop(value, None)

    def note(self, node: Node) -> None:
        """Note what `node` reads."""
        for position, value in enumerate(node.inputs):
            if value not in self.parts:
                continue
            if node.op is ops.view:
                self.parts[value].add(node.attrs["view"])
            elif node.op is ops.update and position == 0 and value not in self.overwritten:
                self.overwritten[value] = node.attrs["view"]
            else:
                del self.parts[value]

    def beside(self, store: Node) -> bool:
        """Whether no element that `store` stores is read."""
        value, view = store.output, store.attrs["view"]
        if value not in self.parts or not self.parts[value].are_apart(view):
            return False
        return value not in self.overwritten or same(self.overwritten[value], view)

    def pass_on(self, store: Node) -> None:
        """Have the readers of what `store` makes read its base."""
        (base, _), parts = store.inputs, self.parts.pop(store.output)
        over = self.overwritten.pop(store.output, None)
        if base not in self.parts:
            return
        if over is not None and base in self.overwritten:
            del self.parts[base]
            return
        if over is not None:
            self.overwritten[base] = over
        fewer, more = sorted((parts, self.parts[base]), key=len)
        more.update(fewer)
        self.parts[base] = more


def _rewired(nodes: list[Node], dead: list[Node]) -> tuple[Node, ...]:
    """`nodes` without the stores that are `dead`, given in reverse order."""
    if not dead:
        return tuple(nodes)
    bases: dict[Value, Value] = {}
    for store in reversed(dead):
        base = store.inputs[0]
        bases[store.output] = bases.get(base, base)
    return tuple([_on(bases, node) for node in nodes])


def _on(bases: dict[Value, Value], node: Node) -> Node:
    """`node` on other operands."""
    if bases.keys().isdisjoint(node.inputs):
        return node
    inputs = tuple([bases.get(v, v) for v in node.inputs])
    return Node(node.op, inputs, node.outputs, node.attrs, node.location)
