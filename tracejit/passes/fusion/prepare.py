"""Rewrites that make every node of a graph computable by a kernel, before fusion.

*Long reductions* with little parallelism become two: partial results of pieces, then their combination.
The number of pieces depends only on the shape, so the result does not depend on the number of workers.

    loss = sum(x, axes=(0,))          # float32[4194304]
    part = sum(x, axes=(0,), pieces=64)
    loss = sum(part, axes=(0,))

*Updates.* One that moves elements of an array onto others of them (``x[1:] = x[:-1]``) reads a copy of
them. Every update of a fill has a fill of its own. Sums of updates of zeros at different places, which
the gradients of slices leave behind, become one chain of updates; where they cover the array, nothing
is filled.

    add(update(0, a; left), update(0, b; right))   ->   update(update(empty, a + 0; left), b + 0; right)

*Transposed factors* that several products of few rows share, as the weights of a recurrent network in its
backward pass, are transposed once: the products then need not pack them each time.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter

from tracejit import ops
from tracejit.ir.graph import Builder, Effect, Graph, Node, Value
from tracejit.ir.op import REDUCTION
from tracejit.ir.view import View
from tracejit.loopnest.regions import NEIGHBOURS, Regions, disjoint, same
from tracejit.passes.producers import is_zero
from tracejit.passes.products import would_be_tiled
from tracejit.tuning import tuning_of

SHARERS = 4
"""The least products that share a transposed factor, and their most rows, for a copy to pay off: it costs
about as much as the packing in two of them.
"""

Parts = list[tuple[Value, View]]


def prepare(graph: Graph) -> Graph:
    """`graph` with long reductions in pieces, and updates that kernels can do."""
    return _Preparation(graph).run()


class _Preparation:
    """The state of the rewrite: `values` from old to new, and facts about new values."""

    def __init__(self, graph: Graph):
        self.graph = graph
        self.builder = Builder()
        self.builder.inputs = list(graph.inputs)
        self.values: dict[Value, Value] = {value: value for value in graph.inputs}
        self.producers: dict[Value, Node] = {}  # of new values
        self.uses: dict[Value, int] = dict.fromkeys(graph.results(), 2)  # old values; results count twice
        for node in graph.nodes:
            for value in node.inputs:
                self.uses[value] = self.uses.get(value, 0) + 1
        lying = {n.output for n in graph.nodes if n.op is ops.view and n.attrs["view"].strides[:1] == (1,)}
        products = [n for n in graph.nodes if n.op is ops.matmul and n.inputs[1] in lying]
        self.sharers = Counter(n.inputs[1] for n in products if would_be_tiled(n))
        self.places: dict[Value, Places] = {}  # of the chains of updates made here
        self.upright: dict[Value, Value] = {}  # copies of transposed factors

    def run(self) -> Graph:
        """The rewritten graph."""
        for node in self.graph.nodes:
            before = len(self.builder.nodes)
            outputs = self.rewrite(node, [self.values[v] for v in node.inputs])
            for new in self.builder.nodes[before:]:
                for value in new.outputs:
                    self.producers[value] = new
            self.values.update(zip(node.outputs, outputs, strict=True))
        effects = [Effect(e.target, self.values[e.value]) for e in self.graph.effects]
        return self.builder.graph([self.values[v] for v in self.graph.outputs], effects)

    def rewrite(self, node: Node, inputs: list[Value]) -> tuple[Value, ...]:
        """The values that replace the outputs of `node`."""
        if node.op is ops.add:
            parts = self.parts(node, inputs)
            if parts:
                return (self.chain(node, *parts),)
        if node.op is ops.update:
            self.separate(node, inputs)
        if node.op is ops.matmul and self.sharers[node.inputs[1]] >= SHARERS and would_be_tiled(node):
            inputs[1] = self.turned(inputs[1], node)
        pieces = pieces_of(node)
        if pieces > 1:
            return (_in_pieces(self.builder, node, inputs[0], pieces),)
        if inputs == list(node.inputs):
            self.builder.nodes.append(node)
            return node.outputs
        return self.builder.copy(node, inputs)

    def turned(self, factor: Value, node: Node) -> Value:
        """The copy of a transposed factor of the product `node`, made once."""
        if factor not in self.upright:
            self.upright[factor] = self.builder.emit(ops.copy, factor, location=node.location)
        return self.upright[factor]

    # ---- updates

    def separate(self, node: Node, inputs: list[Value]) -> None:
        """Make an update use a fill of its own as base, and a copy of elements it moves within its base."""
        made = self.producers.get(inputs[0])
        if made is not None and made.op is ops.full and self.uses[node.inputs[0]] > 1:
            (inputs[0],) = self.builder.copy(made, made.inputs)
        if self.overlaps(inputs, node.attrs["view"]):
            inputs[1] = self.builder.emit(ops.copy, inputs[1], location=node.location)

    def overlaps(self, inputs: list[Value], target: View) -> bool:
        """Whether an update reads, through views, elements of its base other than those it writes."""
        base, x = inputs
        view: View | None = View.of_shape(x.type.shape)
        while x is not base and x in self.producers and self.producers[x].op is ops.view:
            view = None if view is None else self.producers[x].attrs["view"].compose(view)
            (x,) = self.producers[x].inputs
        if x is not base or (view is not None and same(view, target)):
            return False
        return view is None or not disjoint(view, target, base.type.shape)

    def parts(self, node: Node, inputs: list[Value]) -> tuple[Places, Value | None, Parts] | None:
        """The operands of `chain` for a sum of updates of zeros in places that do not overlap: the updates,
        the array made here with most of them, if any, and the updates missing in it. None if it is no such
        sum.
        """
        if any(self.uses[v] > 1 for v in node.inputs):
            return None
        sides = [(v, places) for v in inputs if (places := self.written_on_zeros(v)) is not None]
        if len(sides) < 2:
            return None
        (base, most), (_, fewer) = sorted(sides, key=lambda side: -len(side[1].parts))
        started = most.started
        new = fewer.parts if started else most.parts + fewer.parts
        if not all(itertools.starmap(most.add, fewer.parts)):
            return None
        return most, base if started else None, new

    def written_on_zeros(self, value: Value) -> Places | None:
        """The places of a chain of updates that starts with zeros; None if `value` is not one."""
        if value in self.places:
            return self.places.pop(value)
        parts: Parts = []
        node = self.producers.get(value)
        while node is not None and node.op is ops.update:
            if len(parts) == NEIGHBOURS:
                return None
            parts.append((node.inputs[1], node.attrs["view"]))
            value = node.inputs[0]
            node = self.producers.get(value)
        places = Places(value.type.shape)
        if node is None or not parts or not all(itertools.starmap(places.add, reversed(parts))):
            return None
        return places if places.size == value.type.size or is_zero(self.producers, value) else None

    def chain(self, node: Node, places: Places, base: Value | None, parts: Parts) -> Value:
        """Append one update after the other. Adding 0 keeps the sum exact: it turns -0.0 into 0.0."""
        emit, place, output = self.builder.emit, node.location, node.output.type
        zero = emit(ops.constant, value=0 if output.dtype.kind in "iu" else 0.0, dtype=output.dtype)
        places.started = places.size < output.size
        if not places.started:
            base, parts = (
                emit(ops.empty, shape=output.shape, dtype=output.dtype, device=output.device),
                places.parts,
            )
        elif base is None:
            base = emit(ops.full, zero, shape=output.shape, device=output.device, location=place)
        for x, view in parts:
            made = self.producers.get(x)
            if made is None or made.op is not ops.add or not is_zero(self.producers, made.inputs[1]):
                x = emit(ops.add, x, zero, location=place)
            base = emit(ops.update, base, x, view=view, location=place)
        self.places[base] = places
        return base


class Places:
    """Updates of one array that write no element twice; `started` when they have been made, on zeros."""

    def __init__(self, shape: tuple[int, ...]):
        self.size, self.started = 0, False
        self.parts: Parts = []
        self._written = Regions(shape)

    def add(self, x: Value, view: View) -> bool:
        """Add the update of `view` by `x`; false if it may write what another writes."""
        if not self._written.are_apart(view):
            return False
        self._written.add(view)
        self.parts.append((x, view))
        self.size += view.size
        return True


def _in_pieces(builder: Builder, node: Node, x: Value, pieces: int) -> Value:
    """Partial results of `pieces` pieces, combined."""
    axes = node.attrs["axes"]
    shape = x.type.shape
    if shape[axes[0]] % pieces:  # one axis: pieces may end anywhere
        flat = (*shape[: axes[0]], math.prod(shape[a] for a in axes), *shape[axes[-1] + 1 :])
        x = builder.emit(ops.view, x, view=View.of_shape(flat), location=node.location)
        axes = (axes[0],)
    partial = builder.emit(node.op, x, axes=axes, pieces=pieces, location=node.location)
    return builder.emit(node.op, partial, axes=(partial.type.ndim - 1,), location=node.location)


def pieces_of(node: Node) -> int:
    """The number of pieces into which a node should be split; 0 or 1: none.

    Pieces that end between two indices of the first reduced axis keep all fusions possible; else
    neighbouring axes are taken as one, and axes that are no neighbours are not split.
    """
    if REDUCTION not in node.op.traits or node.attrs.get("pieces", 0) or not node.attrs["axes"]:
        return 0
    shape, axes = node.inputs[0].type.shape, node.attrs["axes"]
    tuning = tuning_of(node.inputs[0].type.device)
    if axes == (0,) and len(shape) > 1 and node.inputs[0].type.nbytes > tuning.caches.last:
        return max(d for d in range(1, tuning.units.row_pieces + 1) if shape[0] % d == 0)
    units, enough = _units(shape, axes, tuning.units.part), tuning.units.enough
    if not units or units >= enough:
        return 0
    wanted = min(math.prod(shape) // units // tuning.units.piece, enough // units)
    even = max((d for d in range(1, wanted + 1) if shape[axes[0]] % d == 0), default=0)
    if 2 * even > wanted or axes != tuple(range(axes[0], axes[-1] + 1)):
        return even
    return wanted


def _units(shape: tuple[int, ...], axes: tuple[int, ...], part: int) -> int:
    """Units of the reduction as it stands: one for each result, or for each `part` of them."""
    kept = [n for a, n in enumerate(shape) if a not in axes]
    if not kept or axes[-1] == len(shape) - 1:
        return math.prod(kept)
    return math.prod(kept[:-1]) * -(-kept[-1] // part)
