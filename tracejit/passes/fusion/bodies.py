"""Construction of `fused` nodes: their body, a graph built from a group of nodes, and their attributes.

body = gather(nodes, ...)         # inputs: outer values that the nodes use; outputs: values used outside
attributes(analyse(body), ...)    # body, kind, inplace, result: the attributes of the fused node
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Hashable, Sequence
from typing import Any

from tracejit import ops
from tracejit.ir.graph import Graph, Node, Value
from tracejit.ir.structure import attribute_items, type_items
from tracejit.loopnest.analysis import Analysis
from tracejit.loopnest.schedule import in_place
from tracejit.loopnest.sweep import with_edges
from tracejit.passes.fusion.free import FreeNodes


def gather(nodes: Sequence[Node], free: FreeNodes, is_output: Callable[[Value], bool]) -> Graph:
    """Return the body of `nodes`, in order, with copies of all free nodes that they use.

    Its inputs and outputs are values of the outer graph. Constants stay outside.
    """
    inputs: dict[Value, None] = {}
    defined: set[Value] = set()
    inner: list[Node] = []
    producers, recomputed = free.producers, free.nodes
    pending = list(reversed(nodes))
    while pending:
        node = pending[-1]
        for value in node.inputs:
            if value in defined or value in inputs:
                continue
            source = producers.get(value)
            if source in recomputed and source.op is not ops.constant:
                pending.append(source)  # its operands come first
                break
            inputs[value] = None
        else:
            inner.append(pending.pop())
            defined.update(node.outputs)
    outputs = tuple([v for node in nodes for v in node.outputs if is_output(v)])
    return Graph(tuple(inputs), tuple(inner), outputs)


_numbers = itertools.count(1)  # numbers are never reused, even if the key was evicted


class Keys:
    """Keys of bodies that consist of one graph's nodes; equal for equal structure and locations.

    Fusion looks up the body of a group each time the group grows. Therefore each node, apart from its
    operands, is hashed once per graph, and is represented by a small integer from then on.
    """

    def __init__(self, known: dict[Hashable, int]):
        """`known`: the table of integers, which is shared by all graphs whose keys are compared."""
        self._known = known
        self._nodes: dict[Node, int] = {}
        self._types: dict[int, int] = {}  # by identity, because most equal types are the same object

    def of(self, body: Graph) -> Hashable:
        """The key of `body`."""
        number: dict[Value, int] = {}
        key = [len(body.inputs)]
        for value in body.inputs:
            number[value] = len(number)
            key.append(self._types.get(id(value.type)) or self._of_type(value))
        for node in body.nodes:
            key.append(self._nodes.get(node) or self._of_node(node))
            for value in node.inputs:
                key.append(number[value])
            for value in node.outputs:
                number[value] = len(number)
        key.append(len(body.outputs))
        for value in body.outputs:
            key.append(number[value])
        return tuple(key)

    def _of_node(self, node: Node) -> int:
        number = self._nodes[node] = self._numbered((node.op, *attribute_items(node), node.location))
        return number

    def _of_type(self, value: Value) -> int:
        number = self._types[id(value.type)] = self._numbered(type_items(value))
        return number

    def _numbered(self, what: Hashable) -> int:
        return self._known.setdefault(what, next(_numbers))


def attributes(
    analysis: Analysis, reserved: Collection[int], dying: Collection[int] = ()
) -> dict[str, Any] | None:
    """Return the attributes of the fused node, or None if a matrix product needs an additional output.

    The attribute ``result`` is the output whose memory contains the product; without it, the panels of the
    product are in the scratch memory of the workers. Some outputs are rather written in place, over an input:
    those in `reserved` (such as an updated weight), a sum to which the product is added, and outputs that can
    overwrite one of the inputs `dying`, which have no later readers.
    """
    free = in_place(analysis.program, analysis.schedule)
    sharing = analysis.sharing(free)
    if analysis.program.matmul is None:
        kind, sweep = analysis.schedule.orientation.value, analysis.sweep
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
