"""Rewrites that make every node of a graph computable by a kernel, before fusion.

Long reductions with little parallelism become two: partial results of pieces, then their combination. How
many pieces depends on the shape alone, so the result does not depend on how many workers there are.

    loss = sum(x, axes=(0,))          # float32[4194304]
    part = sum(x, axes=(0,), pieces=64)
    loss = sum(part, axes=(0,))

An update that moves elements of an array onto others of them (``x[1:] = x[:-1]``) reads a copy of them.
"""

from __future__ import annotations

import math

from tracejit import ops
from tracejit.ir.graph import Builder, Effect, Graph, Node, Value
from tracejit.ir.op import Trait
from tracejit.ir.view import View
from tracejit.passes.regions import disjoint, same

PIECE = 65536
"""Elements that one piece should have at least: some 10 us of work."""

UNITS = 64
"""A reduction that has this many units is not split."""

COLUMNS = 128
"""Kept elements along the last dimension that one unit takes at a time."""


def prepare(graph: Graph) -> Graph:
    """`graph` with long reductions in pieces and no update that overlaps what it reads."""
    builder = Builder()
    builder.inputs = list(graph.inputs)
    producers = {value: node for node in graph.nodes for value in node.outputs}
    values: dict[Value, Value] = {value: value for value in graph.inputs}
    for node in graph.nodes:
        inputs = [values[v] for v in node.inputs]
        pieces = pieces_of(node)
        if node.op is ops.update and _overlaps(node, producers):
            inputs[1] = builder.emit(ops.copy, inputs[1], location=node.location)
        outputs = (
            builder.copy(node, inputs) if pieces < 2 else (_in_pieces(builder, node, inputs[0], pieces),)
        )
        values.update(zip(node.outputs, outputs, strict=True))
    effects = [Effect(e.target, values[e.value]) for e in graph.effects]
    return builder.graph([values[v] for v in graph.outputs], effects)


def _overlaps(update: Node, producers: dict[Value, Node]) -> bool:
    """Whether an update reads, through views, elements of its base other than those it writes."""
    base, x = update.inputs
    view: View | None = View.of_shape(x.type.shape)
    while x is not base and x in producers and producers[x].op is ops.view:
        view = None if view is None else producers[x].attrs["view"].compose(view)
        (x,) = producers[x].inputs
    target: View = update.attrs["view"]
    if x is not base or (view is not None and same(view, target)):
        return False
    return view is None or not disjoint(view, target, base.type.shape)


def _in_pieces(builder: Builder, node: Node, x: Value, pieces: int) -> Value:
    """Partial results of `pieces` pieces, combined."""
    axes = node.attrs["axes"]
    shape = x.type.shape
    if shape[axes[0]] % pieces:  # as one axis, pieces may end anywhere
        flat = (*shape[: axes[0]], math.prod(shape[a] for a in axes), *shape[axes[-1] + 1 :])
        x = builder.emit(ops.view, x, view=View.of_shape(flat), location=node.location)
        axes = (axes[0],)
    partial = builder.emit(node.op, x, axes=axes, pieces=pieces, location=node.location)
    return builder.emit(node.op, partial, axes=(partial.type.ndim - 1,), location=node.location)


def pieces_of(node: Node) -> int:
    """Into how many pieces a node should be split; 0 or 1: not at all.

    Pieces that end between two indices of the first reduced axis keep all fusions possible; else
    neighbouring axes are taken as one, and axes that are no neighbours are not split.
    """
    if not node.op.has(Trait.REDUCTION) or node.attrs.get("pieces", 0) or not node.attrs["axes"]:
        return 0
    shape, axes = node.inputs[0].type.shape, node.attrs["axes"]
    units = _units(shape, axes)
    if not units or units >= UNITS:
        return 0
    wanted = min(math.prod(shape) // units // PIECE, UNITS // units)
    even = max((d for d in range(1, wanted + 1) if shape[axes[0]] % d == 0), default=0)
    if 2 * even > wanted or axes != tuple(range(axes[0], axes[-1] + 1)):
        return even
    return wanted


def _units(shape: tuple[int, ...], axes: tuple[int, ...]) -> int:
    """Units of the reduction as it stands: one for each result, or for each tile of them."""
    kept = [n for a, n in enumerate(shape) if a not in axes]
    if not kept or axes[-1] == len(shape) - 1:
        return math.prod(kept)
    return math.prod(kept[:-1]) * -(-kept[-1] // COLUMNS)
