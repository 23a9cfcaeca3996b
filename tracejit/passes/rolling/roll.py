"""The pass `roll`: runs of equal rounds in a recorded graph become `loop` nodes.

    for i in range(1000):            %3 = loop(%count, %x, %b) [moves=..., rounds=1000] graph {
        x = tanh(x + b[i])          =>   %2 = add(%0, %1)
                                         %3 = tanh(%2)
                                         %0 <- %3 }

A recording is a row of nodes. Where it is periodic (`periods`: the same operators, types, attributes and
lines, whatever the offsets of views), `rounds_of` proves how many rounds are wired alike, and what each
operand is (see `Wiring`); `make_loop` writes the node. Short periods come first, so that inner loops are
rolled before outer ones; the pass is repeated until nothing is found.

A run that is too short, or has rounds of much work, stays as it is: unrolled, its tasks run on all workers.
So does whatever is not proved equal. The recorded graph's note ``unrolled`` says why.
"""

from __future__ import annotations

from collections.abc import Hashable

from tracejit import ops
from tracejit.ir.graph import Effect, Graph, Node, Value
from tracejit.ir.op import Trait
from tracejit.ir.structure import structure
from tracejit.passes.cse import attributes_key
from tracejit.passes.rolling.body import make_loop
from tracejit.passes.rolling.periods import Periods
from tracejit.passes.rolling.wiring import Recorded, Unlike, rounds_of

ROUNDS = 16
"""The least rounds of a loop: fewer are cheap to compile, and may fuse with one another."""

WORK = 1 << 18
"""The most bytes that the results of a round may have: a loop runs on one thread."""

PRODUCTS = 1 << 19
"""The most multiplications of products in a round."""

REGISTERS = {Trait.ELEMENTWISE, Trait.VIEW}
"""Operators of these traits join kernels whose values stay in registers."""

SHORT = 16
"""Of rounds with at most so many operators, all elementwise, one kernel computes several."""

CHAIN = 1024
"""So many operators in such rounds are a few kernels; more are faster compiled as a loop."""

DEPTH = 4
"""How deep loops nest."""


def roll(graph: Graph) -> Graph:
    """`graph` with runs of equal rounds as loops."""
    bodies: dict[Hashable, Graph] = {}
    recorded = graph
    reasons: dict[str, str | None] = dict(graph.notes.get("unrolled", {}))
    for _ in range(DEPTH):
        if len(graph.nodes) < ROUNDS:
            break
        rolled = _roll_once(graph, bodies, reasons)
        if rolled is graph:
            break
        graph = rolled
    recorded.notes["unrolled"] = reasons
    return graph


def _roll_once(graph: Graph, bodies: dict[Hashable, Graph], reasons: dict[str, str | None]) -> Graph:
    """`graph` with the innermost runs as loops; itself if there are none. Adds to `reasons` why not."""
    constants = [node for node in graph.nodes if node.op is ops.constant]
    nodes = [node for node in graph.nodes if node.op is not ops.constant]
    recorded = Recorded(graph, nodes)
    tokens = _Tokens()
    periods = Periods([tokens(node) for node in nodes])
    new: list[Node] = list(constants)
    renamed: dict[Value, Value] = {}
    failed: dict[int, tuple[int, int]] = {}  # by period: the first start that failed, and the run's end
    position, found = 0, False
    while position < len(nodes):
        made = None
        # What fails at all places of two rounds fails in all of the run, and so do several rounds as one.
        barred = [p for p, (first, end) in failed.items() if first + 2 * p < position < end]
        for period, rounds in periods.at(position, ROUNDS, min(barred, default=len(nodes))):
            try:
                _check_work(nodes[position : position + period], rounds)
                rounds_of(recorded, position, period, ROUNDS, ROUNDS)  # most runs that fail do so early
                wiring = rounds_of(recorded, position, period, rounds, ROUNDS)
                made = make_loop(recorded, wiring, renamed, bodies)
                break
            except Unlike as error:
                reasons.setdefault(str(error), error.location)
                if position >= failed.get(period, (0, 0))[1]:
                    failed[period] = position, position + period * rounds
        if made is None:
            new.append(_renamed(nodes[position], renamed))
            position += 1
        else:
            new += [_renamed(node, renamed) for node in made]
            position = wiring.end
            found = True
    if not found:
        return graph
    return Graph(
        graph.inputs,
        tuple(new),
        tuple(renamed.get(v, v) for v in graph.outputs),
        tuple(Effect(e.target, renamed.get(e.value, e.value)) for e in graph.effects),
    )


def _check_work(body: list[Node], rounds: int) -> None:
    """Refuse rounds that are worth several workers, and those that are better in registers."""
    made = [n for n in body if n.op is not ops.view and n.op is not ops.update]
    products = (n.op.work([v.type.shape for v in n.inputs + n.outputs], n.attrs) for n in made if n.op.work)
    if sum(v.type.nbytes for n in made for v in n.outputs) > WORK or sum(products) > PRODUCTS:
        raise Unlike("a round is long enough for several workers", body[0].location)
    if len(body) <= SHORT and rounds * len(body) <= CHAIN and all(n.op.traits & REGISTERS for n in body):
        raise Unlike("some kernels compute several rounds each", body[0].location)


def _renamed(node: Node, renamed: dict[Value, Value]) -> Node:
    inputs = tuple([renamed.get(v, v) for v in node.inputs])
    return node if inputs == node.inputs else Node(node.op, inputs, node.outputs, node.attrs, node.location)


class _Tokens:
    """Numbers nodes: equal ones may be the same node of two rounds, but for their wiring and offsets."""

    def __init__(self) -> None:
        self._numbers: dict[Hashable, int] = {}

    def __call__(self, node: Node) -> int:
        attrs = node.attrs
        what: Hashable
        if node.op is ops.view or node.op is ops.update:
            seen = attrs["view"]
            what = seen.shape, seen.strides
        elif node.op is ops.loop:
            what = structure(attrs["body"]), attrs["moves"], attrs["rounds"]
        else:
            what = attributes_key(attrs)
        shapes = tuple([v.type for v in node.inputs])
        return self._numbers.setdefault((node.op, node.location, what, shapes), len(self._numbers))
