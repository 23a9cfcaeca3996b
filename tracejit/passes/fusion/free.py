"""Free nodes, which belong to no group: every kernel that uses a free node recomputes it.

- *Free* operators cost nothing inside a kernel: views, fills, index ranges, and arithmetic on host numbers.
- *Light* nodes are short chains of cheap operators on one array that is materialised anyway: reading that
  array and recomputing costs no more than reading the result, and saves writing it. (An example is `1 - y *
  y` in a backward pass, with `y` materialised in the forward pass.)

Some values of free nodes must be materialised, and their nodes get kernels: results, operands of nodes
without a generated kernel, bases of updates, operands that BLAS cannot read in place, and views of views that
are not a single view.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tracejit import ops
from tracejit.ir.graph import Graph, Node, Value, producers_of
from tracejit.ir.op import CAN_FAIL, ELEMENTWISE, EXPENSIVE, ORDERED
from tracejit.ir.types import is_floating
from tracejit.ir.view import View
from tracejit.kernels.gemm.plan import gemm_layout, is_gram
from tracejit.loopnest.layout import is_fold
from tracejit.passes.remask import long_lived

FREE = frozenset({ops.view, ops.full, ops.iota})
MOVES = frozenset({ops.update, ops.gather, ops.matmul})

MAX_DEPTH = 3
"""The greatest number of operators in a chain of light nodes."""


def is_fusible(node: Node) -> bool:
    """Whether the node can belong to a group that becomes a kernel."""
    if ORDERED in node.op.traits or any(v.type.on_host for v in node.outputs):
        return False
    return ELEMENTWISE in node.op.traits or is_fold(node) or node.op in MOVES


def in_kernel(node: Node) -> bool:
    """Whether the node is computed by a generated kernel (or the panel kernel of a product)."""
    return is_fusible(node) or node.op in FREE


def _is_number(node: Node) -> bool:
    """Whether the node computes host numbers only."""
    return bool(node.outputs) and all(v.type.on_host for v in node.outputs)


class FreeNodes:
    """The free nodes of a graph, `nodes`; light nodes are added while groups are formed."""

    def __init__(self, graph: Graph):
        self.producers = producers_of(graph.nodes)
        self.results = frozenset(graph.results())
        self.users: dict[Value, dict[Node, None]] = {}
        for node in graph.nodes:
            for value in node.inputs:
                self.users.setdefault(value, {})[node] = None
        self.written = {effect.target for effect in graph.effects}
        self.written |= {node.inputs[0] for node in graph.nodes if node.op is ops.update}
        self.long_lived = long_lived(graph)  # rereading these saves the memory of a smaller array
        self.light: dict[Node, int] = {}  # light nodes, with their depth
        self.viewed: set[Node] = set()  # light nodes that read through a view
        self.materialised: set[Value] = set()
        self.nodes = {node for node in graph.nodes if node.op in FREE or _is_number(node)}
        self._mark_materialised(self.results)
        for node in graph.nodes:
            self._mark_materialised(self.needs_memory(node))

    def _mark_materialised(self, values: Iterable[Value]) -> None:
        """Mark `values` as materialised."""
        for value in values:
            self.materialised.add(value)
            node = self.producers.get(value)
            if node is not None and node.op in FREE:
                self.nodes.discard(node)

    def __contains__(self, node: Node) -> bool:
        return node in self.nodes

    def add(self, node: Node) -> None:
        """Add a free node to the graph."""
        self.nodes.add(node)
        self._define(node)

    def replace(self, old: Node, new: Node) -> None:
        """Replace `old` by `new`, which has the same outputs."""
        for value in {*old.inputs}:
            del self.users[value][old]
        if old in self.nodes:
            self.nodes.remove(old)
            self.nodes.add(new)
        self._define(new)

    def _define(self, node: Node) -> None:
        for value in node.outputs:
            self.producers[value] = node
        for value in node.inputs:
            self.users.setdefault(value, {})[node] = None

    def produces(self, value: Value) -> bool:
        """Whether a free node computes `value`."""
        return self.producers.get(value) in self.nodes

    def through_view(self, value: Value) -> bool:
        """Whether free nodes that include a view, or another node that moves elements, compute an array."""
        node = self.producers.get(value)
        if node is None or value.type.on_host or node not in self:
            return False
        return node not in self.light or any(self.through_view(v) for v in node.inputs)

    # ---- what needs memory

    def needs_memory(self, node: Node) -> Iterable[Value]:
        """The operands and their bases that must be in memory because of `node`."""
        if node.op is ops.view:
            view = self.base_of(node.inputs[0])[1]
            composed = None if view is None else view.compose(node.attrs["view"])
            return [node.inputs[0]] if composed is None else []
        if node.op is ops.matmul:
            bases = [self.base_of(value)[0] for value in node.inputs]
            return [*self.unreadable(node), *filter(self.produces, bases)]
        if node.op is ops.update:
            return [node.inputs[0]]
        if node.op is ops.gather:
            base, _ = self.base_of(node.inputs[0])
            return [base] if self.produces(base) else []
        return [] if in_kernel(node) else node.inputs

    def unreadable(self, matmul: Node) -> Sequence[Value]:
        """The operands of a product that must be copied before BLAS can read them."""
        views = [self.base_of(value)[1] for value in matmul.inputs]
        identity = [View.of_shape(value.type.shape) for value in matmul.inputs]
        for chosen in ((), (0,), (1,), (0, 1)):
            a, b = (identity[n] if n in chosen else views[n] for n in range(2))
            if a and b and gemm_layout(a.shape, a.strides, b.shape, b.strides) is not None:
                return [matmul.inputs[n] for n in chosen]
        raise AssertionError("BLAS reads contiguous operands")

    def base_of(self, value: Value) -> tuple[Value, View | None]:
        """The base of a chain of free views, and the composed view, or None if it is not a single view."""
        view: View | None = View.of_shape(value.type.shape)
        while self.produces(value) and self.producers[value].op is ops.view:
            node = self.producers[value]
            inner: View = node.attrs["view"]
            view = None if view is None else inner.compose(view)
            (value,) = node.inputs
        return value, view

    def is_gram(self, matmul: Node) -> bool:
        """Whether a product is that of an array and its transpose; half of it is computed, then mirrored."""
        (a, first), (b, second) = map(self.base_of, matmul.inputs)
        if a is not b or first is None or second is None or not is_floating(a.type.dtype):
            return False
        layout = gemm_layout(first.shape, first.strides, second.shape, second.strides)
        return layout is not None and is_gram(layout) and first.offset == second.offset

    # ---- traversals

    def origins(self, values: Iterable[Value]) -> list[Value]:
        """The inputs of the graph and the values of groups from which free nodes compute `values`."""
        origins: dict[Value, None] = {}
        pending = list(values)
        for value in pending:
            node = self.producers.get(value)
            if node in self.nodes and node is not None:
                pending.extend(node.inputs)
            else:
                origins[value] = None
        return list(origins)

    def readers(self, node: Node) -> list[Node]:
        """`node` and the free nodes that compute its operands, transitively."""
        readers = {node: None}
        pending = [node]
        for reader in pending:
            for value in reader.inputs:
                producer = self.producers.get(value)
                if producer in self.nodes and producer is not None and producer not in readers:
                    readers[producer] = None
                    pending.append(producer)
        return list(readers)

    def leaves(self, value: Value, members: set[Node]) -> bool:
        """Whether `value` is a result, or is used outside `members`, directly or through free nodes."""
        users = self.users.get(value, {})
        if value in self.results or (not users and CAN_FAIL in self.producers[value].op.traits):
            return True
        for user in users:
            if user not in members:
                if user not in self.nodes:
                    return True
                for output in user.outputs:
                    if self.leaves(output, members):
                        return True
        return False

    # ---- light nodes

    def make_light(self, node: Node, groups: Sequence[Iterable[Node]]) -> bool:
        """Make `node` light if possible; return whether it is.

        groups: the members of the groups that compute its operands, which `node` would join otherwise.
        """
        if ELEMENTWISE not in node.op.traits or EXPENSIVE in node.op.traits or CAN_FAIL in node.op.traits:
            return False
        if node.output in self.materialised:
            return False
        operands = {v for v in node.inputs if not v.type.on_host}
        sources = [v for v in self.origins(operands) if not v.type.on_host]
        if len(operands) != 1 or len(sources) != 1 or sources[0] in self.written:
            return False
        (operand,), (source,) = operands, sources
        depth = 1 + (self.light.get(self.producers[operand], 0) if operand in self.producers else 0)
        is_smaller = (
            node.output.type.dtype.itemsize < source.type.dtype.itemsize and source not in self.long_lived
        )
        if depth > MAX_DEPTH or is_smaller or source.type.size != node.output.type.size:
            return False
        producer = self.producers.get(operand)
        is_viewed = producer is not None and (producer.op is ops.view or producer in self.viewed)
        if not self.only_for_kernels(node.output, through_views=not is_viewed):
            return False
        if source in self.producers and not self.leaves(source, {node}.union(*groups)):
            return False
        self.light[node] = depth
        self.nodes.add(node)
        self.viewed.update([node] * is_viewed)
        return True

    def only_for_kernels(self, value: Value, through_views: bool) -> bool:
        """Whether all users of `value` are elementwise operators or reductions, directly or through views."""
        return all(
            ELEMENTWISE in user.op.traits
            or is_fold(user)
            or (through_views and user.op is ops.view and self.is_read_by_kernels(user))
            for user in self.users.get(value, {})
        )

    def is_read_by_kernels(self, view: Node) -> bool:
        return view in self and self.only_for_kernels(view.output, through_views=True)
