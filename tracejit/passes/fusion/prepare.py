"""Rewrites before fusion, after which kernels can compute every node of a graph.

*Long reductions* with little parallelism are split in two: partial results of chunks, then their reduction.
The number of chunks depends only on the shape, so the result does not depend on the number of workers.

    loss = sum(x, axes=(0,))          # float32[4194304]
    part = sum(x, axes=(0,), pieces=64)
    loss = sum(part, axes=(0,))

*Updates.* An update that moves elements within an array (``x[1:] = x[:-1]``) reads a copy of them. Every
update of a fill gets its own fill. Sums of updates of zeros at disjoint positions, which gradients of slices
produce, become one chain of updates; if they cover the array, it is not filled.

    add(update(0, a; left), update(0, b; right))   ->   update(update(empty, a + 0; left), b + 0; right)

*Transposed factors* that several products of few rows share, such as the weights of a recurrent network in
the backward pass, are copied to transposed order once, so that the products do not each have to pack them.
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

MIN_SHARERS = 4
"""The least number of products that share a transposed factor for a copy to be profitable: the copy costs
about as much as the packing in two of them.
"""

Updates = list[tuple[Value, View]]


def prepare(graph: Graph) -> Graph:
    """Rewrite the long reductions, the updates and the transposed factors of `graph`."""
    return _Preparation(graph).run()


class _Preparation:
    """The state of the rewrite. values: the new value for each old value."""

    def __init__(self, graph: Graph):
        self.graph = graph
        self.builder = Builder()
        self.builder.inputs = list(graph.inputs)
        self.values: dict[Value, Value] = {value: value for value in graph.inputs}
        self.producers: dict[Value, Node] = {}  # of new values
        self.uses: dict[Value, int] = dict.fromkeys(
            graph.results(), 2
        )  # number of uses of old values; results count twice
        for node in graph.nodes:
            for value in node.inputs:
                self.uses[value] = self.uses.get(value, 0) + 1
        transposed = {
            n.output for n in graph.nodes if n.op is ops.view and n.attrs["view"].strides[:1] == (1,)
        }
        products = [n for n in graph.nodes if n.op is ops.matmul and n.inputs[1] in transposed]
        self.sharers = Counter(n.inputs[1] for n in products if would_be_tiled(n))
        self.chains: dict[Value, DisjointUpdates] = {}  # by last value, the chains of updates emitted here
        self.factor_copies: dict[Value, Value] = {}  # by factor, the copies of transposed factors

    def run(self) -> Graph:
        """Rewrite the graph."""
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
        """Emit nodes that replace `node`; return the values that replace its outputs. May modify `inputs`."""
        if node.op is ops.add:
            updates = self.disjoint_updates(node, inputs)
            if updates:
                return (self.chain(node, *updates),)
        if node.op is ops.update:
            self.separate(node, inputs)
        if node.op is ops.matmul and self.sharers[node.inputs[1]] >= MIN_SHARERS and would_be_tiled(node):
            inputs[1] = self.copy_of(inputs[1], node)
        pieces = pieces_of(node)
        if pieces > 1:
            return (_split_reduction(self.builder, node, inputs[0], pieces),)
        if inputs == list(node.inputs):
            self.builder.nodes.append(node)
            return node.outputs
        return self.builder.copy(node, inputs)

    def copy_of(self, factor: Value, node: Node) -> Value:
        """The copy of a transposed factor of the product `node`; emitted on first use."""
        if factor not in self.factor_copies:
            self.factor_copies[factor] = self.builder.emit(ops.copy, factor, location=node.location)
        return self.factor_copies[factor]

    # ---- updates

    def separate(self, node: Node, inputs: list[Value]) -> None:
        """Give an update its own fill as base, and a copy of elements that it moves within the base."""
        base_producer = self.producers.get(inputs[0])
        if base_producer is not None and base_producer.op is ops.full and self.uses[node.inputs[0]] > 1:
            (inputs[0],) = self.builder.copy(base_producer, base_producer.inputs)
        if self.overlaps(inputs, node.attrs["view"]):
            inputs[1] = self.builder.emit(ops.copy, inputs[1], location=node.location)

    def overlaps(self, inputs: list[Value], target: View) -> bool:
        """Whether an update reads, through views, elements of its base that it does not overwrite."""
        base, x = inputs
        view: View | None = View.of_shape(x.type.shape)
        while x is not base and x in self.producers and self.producers[x].op is ops.view:
            view = None if view is None else self.producers[x].attrs["view"].compose(view)
            (x,) = self.producers[x].inputs
        if x is not base or (view is not None and same(view, target)):
            return False
        return view is None or not disjoint(view, target, base.type.shape)

    def disjoint_updates(
        self, node: Node, inputs: list[Value]
    ) -> tuple[DisjointUpdates, Value | None, Updates] | None:
        """The arguments of `chain` if `node` adds disjoint updates of zeros, else None.

        They are all updates, the existing array with most of them, if there is one, and the updates that are
        missing in this array.
        """
        if any(self.uses[v] > 1 for v in node.inputs):
            return None
        sides = [(v, updates) for v in inputs if (updates := self.updates_of_zeros(v)) is not None]
        if len(sides) < 2:
            return None
        (base, larger), (_, smaller) = sorted(sides, key=lambda side: -len(side[1].items))
        has_array = larger.started
        missing = smaller.items if has_array else larger.items + smaller.items
        if not all(itertools.starmap(larger.add, smaller.items)):
            return None
        return larger, base if has_array else None, missing

    def updates_of_zeros(self, value: Value) -> DisjointUpdates | None:
        """The updates that produce `value` from zeros, if it is a chain of such updates; else None."""
        if value in self.chains:
            return self.chains.pop(value)
        stores: Updates = []
        node = self.producers.get(value)
        while node is not None and node.op is ops.update:
            if len(stores) == NEIGHBOURS:
                return None
            stores.append((node.inputs[1], node.attrs["view"]))
            value = node.inputs[0]
            node = self.producers.get(value)
        updates = DisjointUpdates(value.type.shape)
        if node is None or not stores or not all(itertools.starmap(updates.add, reversed(stores))):
            return None
        return updates if updates.size == value.type.size or is_zero(self.producers, value) else None

    def chain(self, node: Node, updates: DisjointUpdates, base: Value | None, missing: Updates) -> Value:
        """Emit a chain of updates. Adding 0 preserves the bits of the sum: it turns -0.0 into 0.0."""
        emit, location, output = self.builder.emit, node.location, node.output.type
        zero = emit(ops.constant, value=0 if output.dtype.kind in "iu" else 0.0, dtype=output.dtype)
        updates.started = updates.size < output.size
        if not updates.started:
            base, missing = (
                emit(ops.empty, shape=output.shape, dtype=output.dtype, device=output.device),
                updates.items,
            )
        elif base is None:
            base = emit(ops.full, zero, shape=output.shape, device=output.device, location=location)
        for x, view in missing:
            producer = self.producers.get(x)
            if (
                producer is None
                or producer.op is not ops.add
                or not is_zero(self.producers, producer.inputs[1])
            ):
                x = emit(ops.add, x, zero, location=location)
            base = emit(ops.update, base, x, view=view, location=location)
        self.chains[base] = updates
        return base


class DisjointUpdates:
    """Disjoint updates of one array.

    size: the number of updated elements. started: whether the updates have been emitted, on zeros.
    """

    def __init__(self, shape: tuple[int, ...]):
        self.size, self.started = 0, False
        self.items: Updates = []
        self._written = Regions(shape)

    def add(self, x: Value, view: View) -> bool:
        """Add the update of `view` by `x`; return False if it may overlap another update."""
        if not self._written.are_apart(view):
            return False
        self._written.add(view)
        self.items.append((x, view))
        self.size += view.size
        return True


def _split_reduction(builder: Builder, node: Node, x: Value, pieces: int) -> Value:
    """Emit a reduction of `x` to `pieces` partial results, and the reduction of these."""
    axes = node.attrs["axes"]
    shape = x.type.shape
    if shape[axes[0]] % pieces:  # merge the axes, so that pieces may end at any index
        flat = (*shape[: axes[0]], math.prod(shape[a] for a in axes), *shape[axes[-1] + 1 :])
        x = builder.emit(ops.view, x, view=View.of_shape(flat), location=node.location)
        axes = (axes[0],)
    partial = builder.emit(node.op, x, axes=axes, pieces=pieces, location=node.location)
    return builder.emit(node.op, partial, axes=(partial.type.ndim - 1,), location=node.location)


def pieces_of(node: Node) -> int:
    """The number of pieces into which a reduction should be split; 0 or 1 if it should not be split.

    Pieces that end between two indices of the first reduced axis do not restrict fusion. Otherwise adjacent
    axes are merged and split; axes that are not adjacent are not split.
    """
    if REDUCTION not in node.op.traits or node.attrs.get("pieces", 0) or not node.attrs["axes"]:
        return 0
    shape, axes = node.inputs[0].type.shape, node.attrs["axes"]
    tuning = tuning_of(node.inputs[0].type.device)
    if axes == (0,) and len(shape) > 1 and node.inputs[0].type.nbytes > tuning.caches.last:
        return max(d for d in range(1, tuning.units.row_pieces + 1) if shape[0] % d == 0)
    units, enough_units = _units(shape, axes, tuning.units.unit_columns), tuning.units.enough_units
    if not units or units >= enough_units:
        return 0
    n_pieces = min(math.prod(shape) // units // tuning.units.min_piece, enough_units // units)
    n_even = max((d for d in range(1, n_pieces + 1) if shape[axes[0]] % d == 0), default=0)
    if 2 * n_even > n_pieces or axes != tuple(range(axes[0], axes[-1] + 1)):
        return n_even
    return n_pieces


def _units(shape: tuple[int, ...], axes: tuple[int, ...], unit_columns: int) -> int:
    """The number of work units of an unsplit reduction: one for each result, or for each
    `unit_columns` results if the last axis is kept.
    """
    kept = [n for a, n in enumerate(shape) if a not in axes]
    if not kept or axes[-1] == len(shape) - 1:
        return math.prod(kept)
    return math.prod(kept[:-1]) * -(-kept[-1] // unit_columns)
