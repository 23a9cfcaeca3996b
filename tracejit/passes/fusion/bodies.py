"""The bodies of kernels: the graph inside a `fused` node, from a set of nodes, and the node's attributes.

body = gather(nodes, ...)         # inputs: outer values the nodes use; outputs: values used outside
attributes(analyse(body), ...)    # kind, inplace, result: the attributes of the fused node
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Hashable, Sequence
from typing import Any

from tracejit import ops
from tracejit.ir.graph import Graph, Node, Value
from tracejit.ir.structure import facts, type_facts
from tracejit.loopnest.analysis import Analysis
from tracejit.loopnest.schedule import in_place
from tracejit.loopnest.sweep import with_edges
from tracejit.passes.fusion.free import FreeNodes


def gather(nodes: Sequence[Node], free: FreeNodes, is_output: Callable[[Value], bool]) -> Graph:
    """The body of `nodes`, in order, with all free nodes that they use, on the values of the outer graph.
    Constants stay outside.
    """
    inputs: dict[Value, None] = {}
    made: set[Value] = set()
    inner: list[Node] = []
    producers, recomputed = free.producers, free.nodes
    pending = list(reversed(nodes))
    while pending:
        node = pending[-1]
        for value in node.inputs:
            if value in made or value in inputs:
                continue
            source = producers.get(value)
            if source in recomputed and source.op is not ops.constant:
                pending.append(source)  # first its own operands, then this one
                break
            inputs[value] = None
        else:
            inner.append(pending.pop())
            made.update(node.outputs)
    outputs = tuple([v for node in nodes for v in node.outputs if is_output(v)])
    return Graph(tuple(inputs), tuple(inner), outputs)


_numbers = itertools.count(1)  # none is used twice, even if its key was evicted


class Keys:
    """Keys of the bodies that are made of one graph's nodes; equal for all of one structure, with locations.

    Fusion looks up the bodies of a growing group again and again. So a node, apart from its operands, is
    compared once in a graph, and is a small number from then on.
    """

    def __init__(self, known: dict[Hashable, int]):
        """`known`: the numbers of all graphs whose keys are compared."""
        self._known = known
        self._nodes: dict[Node, int] = {}
        self._types: dict[int, int] = {}  # by identity: most equal ones are one object

    def of(self, body: Graph) -> Hashable:
        """The key of `body`."""
        number: dict[Value, int] = {}
        parts = [len(body.inputs)]
        for value in body.inputs:
            number[value] = len(number)
            parts.append(self._types.get(id(value.type)) or self._of_type(value))
        for node in body.nodes:
            parts.append(self._nodes.get(node) or self._of_node(node))
            for value in node.inputs:
                parts.append(number[value])
            for value in node.outputs:
                number[value] = len(number)
        parts.append(len(body.outputs))
        for value in body.outputs:
            parts.append(number[value])
        return tuple(parts)

    def _of_node(self, node: Node) -> int:
        found = self._nodes[node] = self._numbered((node.op, *facts(node), node.location))
        return found

    def _of_type(self, value: Value) -> int:
        found = self._types[id(value.type)] = self._numbered(type_facts(value))
        return found

    def _numbered(self, what: Hashable) -> int:
        return self._known.setdefault(what, next(_numbers))


def attributes(
    analysis: Analysis, reserved: Collection[int], dying: Collection[int] = ()
) -> dict[str, Any] | None:
    """The attributes of the fused node; None if a matrix product needs an output of its own.

    Without ``result``, an output whose memory holds the product, its panels lie in the scratch memory of the
    workers. `reserved`: outputs that are better written over an input (a weight that is updated). So are a
    sum to which a product is added, and outputs that can be written over one of the inputs `dying`, whose
    readers are done.
    """
    free = in_place(analysis.program, analysis.plan)
    sharing = analysis.sharing(free)
    if analysis.program.matmul is None:
        kind, sweep = analysis.plan.orientation.value, analysis.sweep
        if sweep is None:
            return {"body": analysis.body, "kind": kind, "inplace": tuple(sharing)}
        body = with_edges(analysis.body, analysis.program, sweep)
        return {"body": body, "kind": kind, "inplace": tuple(sharing), "sweep": sweep}
    is_sum = analysis.addend() in [position for _, position in sharing]
    over_inputs = {output for output, _ in sharing if is_sum or output in reserved}
    if analysis.program.matmul.output not in analysis.body.outputs and analysis.fits_scratch():
        over_inputs |= {output for output, position in sharing if position in dying}
    outputs = [n for n in analysis.product_outputs(free) if n not in over_inputs]
    if not outputs and analysis.fits_scratch():
        return {"body": analysis.body, "kind": "panel", "inplace": tuple(sharing)}
    if not outputs:
        return None
    result = outputs[0]
    pairs = tuple(pair for pair in sharing if pair[0] != result)
    return {"body": analysis.body, "kind": "panel", "inplace": pairs, "result": result}
