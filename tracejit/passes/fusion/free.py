"""Free nodes, which have no kernel of their own: every kernel that uses them recomputes them.

- *Free* operators cost nothing inside a kernel: views, fills, index ranges, and arithmetic on numbers.
- *Light* nodes are a few cheap operators on one array that is materialised anyway: reading it again and
  recomputing costs no more than reading the result, and saves writing it. (`1 - y * y` of a backward pass,
  with `y` materialised in the forward pass.)

A free value that must be materialised is *solid*, and its node becomes a kernel: results, operands of nodes
without kernel, bases of updates, operands that BLAS cannot read in place, and views of views that are not
one view.
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
from tracejit.passes.remask import lasting

FREE = frozenset({ops.view, ops.full, ops.iota})
MOVES = frozenset({ops.update, ops.gather, ops.matmul})

DEPTH = 3
"""The most operators in a chain that stays light."""


def is_fusible(node: Node) -> bool:
    """Whether the node can be in a kernel, other than as a free value."""
    if ORDERED in node.op.traits or any(v.type.on_host for v in node.outputs):
        return False
    return ELEMENTWISE in node.op.traits or is_fold(node) or node.op in MOVES


def in_kernel(node: Node) -> bool:
    """Whether the node is computed by a generated kernel (or the panel kernel of a product)."""
    return is_fusible(node) or node.op in FREE


def _is_number(node: Node) -> bool:
    """Whether the node computes numbers only."""
    return bool(node.outputs) and all(v.type.on_host for v in node.outputs)


class FreeNodes:
    """The free nodes of a graph, `nodes`; light ones are added while the groups grow."""

    def __init__(self, graph: Graph):
        self.producers = producers_of(graph.nodes)
        self.results = frozenset(graph.results())
        self.users: dict[Value, dict[Node, None]] = {}
        for node in graph.nodes:
            for value in node.inputs:
                self.users.setdefault(value, {})[node] = None
        self.written = {effect.target for effect in graph.effects}
        self.written |= {node.inputs[0] for node in graph.nodes if node.op is ops.update}
        self.lasting = lasting(graph)  # reading them again takes less memory than a smaller array
        self.light: dict[Node, int] = {}  # with depth
        self.viewed: set[Node] = set()  # light nodes that read through a view
        self.solid: set[Value] = set()
        self.nodes = {node for node in graph.nodes if node.op in FREE or _is_number(node)}
        self._solidify(self.results)
        for node in graph.nodes:
            self._solidify(self.needs_memory(node))

    def _solidify(self, values: Iterable[Value]) -> None:
        """Mark `values` as materialised."""
        for value in values:
            self.solid.add(value)
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
        """Whether `value` comes from a free node."""
        return self.producers.get(value) in self.nodes

    def through_view(self, value: Value) -> bool:
        """Whether a view, or another node that moves elements, is among the free nodes behind an array."""
        node = self.producers.get(value)
        if node is None or value.type.on_host or node not in self:
            return False
        return node not in self.light or any(self.through_view(v) for v in node.inputs)

    # ---- what needs memory

    def needs_memory(self, node: Node) -> Iterable[Value]:
        """The values that must lie in memory because of `node`."""
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
        """The operands that must be copied before BLAS can read them."""
        views = [self.base_of(value)[1] for value in matmul.inputs]
        identity = [View.of_shape(value.type.shape) for value in matmul.inputs]
        for chosen in ((), (0,), (1,), (0, 1)):
            a, b = (identity[n] if n in chosen else views[n] for n in range(2))
            if a and b and gemm_layout(a.shape, a.strides, b.shape, b.strides) is not None:
                return [matmul.inputs[n] for n in chosen]
        raise AssertionError("BLAS reads contiguous operands")

    def base_of(self, value: Value) -> tuple[Value, View | None]:
        """The base of a chain of free views, and the chain as one view (None if it is not one)."""
        view: View | None = View.of_shape(value.type.shape)
        while self.produces(value) and self.producers[value].op is ops.view:
            node = self.producers[value]
            inner: View = node.attrs["view"]
            view = None if view is None else inner.compose(view)
            (value,) = node.inputs
        return value, view

    def is_gram(self, matmul: Node) -> bool:
        """Whether only half of a product is computed, and mirrored: an array times its own transpose."""
        (a, seen), (b, turned) = map(self.base_of, matmul.inputs)
        if a is not b or seen is None or turned is None or not is_floating(a.type.dtype):
            return False
        layout = gemm_layout(seen.shape, seen.strides, turned.shape, turned.strides)
        return layout is not None and is_gram(layout) and seen.offset == turned.offset

    # ---- walks

    def origins(self, values: Iterable[Value]) -> list[Value]:
        """The inputs of the graph and values of groups from which free nodes compute `values`."""
        found: dict[Value, None] = {}
        pending = list(values)
        for value in pending:
            node = self.producers.get(value)
            if node in self.nodes and node is not None:
                pending.extend(node.inputs)
            else:
                found[value] = None
        return list(found)

    def readers(self, node: Node) -> list[Node]:
        """`node` and the free nodes that compute its operands."""
        found = {node: None}
        pending = [node]
        for reader in pending:
            for value in reader.inputs:
                made = self.producers.get(value)
                if made in self.nodes and made is not None and made not in found:
                    found[made] = None
                    pending.append(made)
        return list(found)

    def leaves(self, value: Value, members: set[Node]) -> bool:
        """Whether a node outside `members` needs `value`."""
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

    def lighten(self, node: Node, groups: Sequence[Iterable[Node]]) -> bool:
        """Make `node` light if possible; `groups`: those that compute its operands, which it would join."""
        if ELEMENTWISE not in node.op.traits or EXPENSIVE in node.op.traits or CAN_FAIL in node.op.traits:
            return False
        if node.output in self.solid:
            return False
        operands = {v for v in node.inputs if not v.type.on_host}
        sources = [v for v in self.origins(operands) if not v.type.on_host]
        if len(operands) != 1 or len(sources) != 1 or sources[0] in self.written:
            return False
        (operand,), (source,) = operands, sources
        depth = 1 + (self.light.get(self.producers[operand], 0) if operand in self.producers else 0)
        smaller = node.output.type.dtype.itemsize < source.type.dtype.itemsize and source not in self.lasting
        if depth > DEPTH or smaller or source.type.size != node.output.type.size:
            return False
        below = self.producers.get(operand)
        viewed = below is not None and (below.op is ops.view or below in self.viewed)
        if not self.only_for_kernels(node.output, through_views=not viewed):
            return False
        if source in self.producers and not self.leaves(source, {node}.union(*groups)):
            return False
        self.light[node] = depth
        self.nodes.add(node)
        self.viewed.update([node] * viewed)
        return True

    def only_for_kernels(self, value: Value, through_views: bool) -> bool:
        """Whether all users of `value` are elementwise or reductions, perhaps through views."""
        return all(
            ELEMENTWISE in user.op.traits
            or is_fold(user)
            or (through_views and user.op is ops.view and self.is_seen_by_kernels(user))
            for user in self.users.get(value, {})
        )

    def is_seen_by_kernels(self, view: Node) -> bool:
        return view in self and self.only_for_kernels(view.output, through_views=True)
