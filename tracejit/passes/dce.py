"""Dead code elimination: removes nodes that no result needs, and stores of elements that are never read.

A node is live if an output or an effect depends on it, or if it has side effects: `Trait.ORDERED` (callbacks)
or `Trait.CAN_FAIL` (an index out of range is an error even if the element is never read). The nodes are in
sequence and every value is defined before it is used, so a single backward pass visits all uses of a value
before its definition.

If a store is dead, the readers of its result read its base instead, which the next store then overwrites. The
gradient of a concatenation produces such stores: each operand sets its elements of a cotangent to zero, and
the other operands read other elements.

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
    """Remove the dead nodes of `graph`."""
    needed = set(graph.results())
    reads = _Reads(graph)
    live: list[Node] = []
    dead: list[Node] = []
    for node in reversed(graph.nodes):
        if needed.isdisjoint(node.outputs) and not _has_side_effect(node):
            continue
        if node.op is ops.update and reads.is_dead(node):
            reads.forward(node)
            needed.add(node.inputs[0])
            dead.append(node)
        else:
            if node.op is ops.loop and node.attrs.get("until") is None:
                node = _without_dead_results(node, needed)
            reads.note(node)
            needed.update(node.inputs)
            live.append(node)
    live.reverse()
    return Graph(graph.inputs, _rewired(live, dead), graph.outputs, graph.effects)


def _without_dead_results(node: Node, needed: set[Value]) -> Node:
    """Remove results of a loop that are read neither in its iterations nor by later nodes.

    Such results are values that are stored for a gradient which is not taken.
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
    if "runs" in body.notes:  # other notes refer to the nodes of `body`
        fewer.notes["runs"] = body.notes["runs"]
    attrs = {**node.attrs, "body": fewer, "moves": moves}
    return Node(node.op, (node.inputs[0], *operands), tuple(outputs), attrs, node.location)


def _has_side_effect(node: Node) -> bool:
    return ORDERED in node.op.traits or CAN_FAIL in node.op.traits


class _Reads:
    """The elements of stored arrays that the nodes noted so far read.

    regions: for the result of each store, the elements that views read. An array that is read in full is
    removed.
    overwritten: for the result of a store that is the base of a later store, the elements that the later
    store overwrites; all other elements are read through its result.
    """

    def __init__(self, graph: Graph):
        self.regions = {n.output: Regions(n.output.type.shape) for n in graph.nodes if n.op is ops.update}
        self.overwritten: dict[Value, View] = {}
        for value in graph.results():
            self.regions.pop(value, None)

    def note(self, node: Node) -> None:
        """Record the elements that `node` reads."""
        for position, value in enumerate(node.inputs):
            if value not in self.regions:
                continue
            if node.op is ops.view:
                self.regions[value].add(node.attrs["view"])
            elif node.op is ops.update and position == 0 and value not in self.overwritten:
                self.overwritten[value] = node.attrs["view"]
            else:
                del self.regions[value]

    def is_dead(self, store: Node) -> bool:
        """Whether no element that `store` writes is read."""
        value, view = store.output, store.attrs["view"]
        if value not in self.regions or not self.regions[value].are_apart(view):
            return False
        return value not in self.overwritten or same(self.overwritten[value], view)

    def forward(self, store: Node) -> None:
        """Transfer the reads of the result of `store` to its base."""
        (base, _), regions = store.inputs, self.regions.pop(store.output)
        overwritten = self.overwritten.pop(store.output, None)
        if base not in self.regions:
            return
        if overwritten is not None and base in self.overwritten:
            del self.regions[base]
            return
        if overwritten is not None:
            self.overwritten[base] = overwritten
        smaller, larger = sorted((regions, self.regions[base]), key=len)
        larger.update(smaller)
        self.regions[base] = larger


def _rewired(nodes: list[Node], dead: list[Node]) -> tuple[Node, ...]:
    """Replace the results of `dead` stores, given in reverse order, by their bases in `nodes`."""
    if not dead:
        return tuple(nodes)
    bases: dict[Value, Value] = {}
    for store in reversed(dead):
        base = store.inputs[0]
        bases[store.output] = bases.get(base, base)
    return tuple([_with_bases(bases, node) for node in nodes])


def _with_bases(bases: dict[Value, Value], node: Node) -> Node:
    """Replace operands of `node` according to `bases`."""
    if bases.keys().isdisjoint(node.inputs):
        return node
    inputs = tuple([bases.get(v, v) for v in node.inputs])
    return Node(node.op, inputs, node.outputs, node.attrs, node.location)
