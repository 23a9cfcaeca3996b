"""Fusion: the nodes of a graph into `fused` nodes, each of which becomes one kernel and one task.

Greedy, in the user's order, one pass. A node joins the groups that compute its operands (all of them if it
can, else the latest that takes it) where that is

- computable as one loop nest: `trace` and `schedule` accept the body (see `domain`, `phases`),
- convex: no path leaves the group and comes back (see `groups`); reading a storage before it is overwritten
  counts as a path, so fusion never makes an in-place write impossible,
- small: at most `NODES` operators and `OPERANDS` arrays,
- safe: what can fail does not share a kernel with a write that must not happen then.

Groups without dataflow between them are left apart: they can run at the same time. Views, fills and index
ranges cost nothing inside a kernel, so each group that uses one has a copy. A matrix product starts a group
of its own (kind `panel`), which the consumers of its rows then join as an epilogue.

    g = x.T @ dy;  v = mu * v + g;  w = w - lr * v        one panel kernel: product, then v and w in place
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tracejit import ops
from tracejit.ir.graph import Builder, Effect, Graph, Node, Value
from tracejit.ir.op import Trait
from tracejit.ir.view import View
from tracejit.kernels.blas import gemm_layout
from tracejit.passes.bodies import Body, analyse, assemble, attributes
from tracejit.passes.dce import dce
from tracejit.passes.domain import Unfusable
from tracejit.passes.groups import Group, Partition
from tracejit.passes.prepare import prepare
from tracejit.passes.trace import is_fold

NODES = 64
"""Most operators in a kernel: more take long to compile and spill registers."""

OPERANDS = 24
"""Most arrays that a kernel reads and writes: each has a pointer and run-time alias checks."""

FREE = (ops.view, ops.full, ops.iota)
"""Operators that every kernel computes for itself."""

MOVES = (ops.update, ops.gather, ops.matmul)
"""Operators besides elementwise ones and reductions that kernels take."""


@dataclass(frozen=True, slots=True)
class Missed:
    """A fusion that would have saved memory traffic and could not be made; `explain()` shows it."""

    kind: str  # "reduction" or "epilogue"
    location: str | None
    reason: str


def fuse(graph: Graph, missed: list[Missed] | None = None) -> Graph:
    """`graph` with kernels as `fused` nodes; appends what could not be fused to `missed`."""
    return _Fuser(dce(prepare(graph)), [] if missed is None else missed).run()


def is_fusible(node: Node) -> bool:
    """Whether the node can be in a kernel, other than as a free value."""
    if node.op.has(Trait.ORDERED) or any(v.type.on_host for v in node.outputs):
        return False
    return node.op.has(Trait.ELEMENTWISE) or is_fold(node) or node.op in MOVES


class _Fuser:
    """The state of one pass over a graph."""

    def __init__(self, graph: Graph, missed: list[Missed]):
        self.graph, self.missed = graph, missed
        self.partition = Partition()
        self.producers = {value: node for node in graph.nodes for value in node.outputs}
        self.group_of: dict[Node, Group] = {}
        self.results = set(graph.results())
        self.targets = {effect.value: effect.target for effect in graph.effects}
        self.users: dict[Value, list[Node]] = {}
        for node in graph.nodes:
            for value in node.inputs:
                self.users.setdefault(value, []).append(node)
        self.readers: dict[Value, list[Node]] = {}  # of what is written over later
        self.solid: set[Value] = set()
        self.solid = self.materialized()

    def run(self) -> Graph:
        """Form the groups, then write the graph of kernels."""
        for position, node in enumerate(self.graph.nodes):
            if not self.is_free(node):
                self.place(position, node)
        builder = Builder()
        builder.inputs = list(self.graph.inputs)
        values: dict[Value, Value] = {value: value for value in self.graph.inputs}
        for group in self.partition.ordered():
            self.write(builder, group, values)
        outputs = [self.written(builder, v, values) for v in self.graph.outputs]
        effects = [Effect(e.target, self.written(builder, e.value, values)) for e in self.graph.effects]
        return builder.graph(outputs, effects)

    # ---- free values

    def is_free(self, node: Node) -> bool:
        """Whether each user computes the node for itself."""
        if node.outputs and all(v.type.on_host for v in node.outputs):
            return not node.op.has(Trait.ORDERED)
        return node.op in FREE and node.output not in self.solid

    def materialized(self) -> set[Value]:
        """Views, fills and ranges that must lie in memory: for results, and for users that need memory."""
        solid = self.solid = set(self.results)
        for node in self.graph.nodes:
            if node.op is ops.view:
                if self.base_of(node.output)[1] is None:
                    solid.add(node.inputs[0])
            elif node.op is ops.matmul:
                solid.update(self.unreadable(node))
            elif node.op is ops.update:
                solid.add(node.inputs[0])
            elif node.op is ops.gather:
                base, _ = self.base_of(node.inputs[0])
                if base in self.producers and self.is_free(self.producers[base]):
                    solid.add(base)
            elif not is_fusible(node) and node.op not in FREE:
                solid.update(node.inputs)
        return solid

    def unreadable(self, matmul: Node) -> Sequence[Value]:
        """The operands that must be copied before BLAS can read them."""
        views = [self.base_of(value)[1] for value in matmul.inputs]
        whole = [View.of_shape(value.type.shape) for value in matmul.inputs]
        for chosen in ((), (0,), (1,), (0, 1)):
            a, b = (whole[n] if n in chosen else views[n] for n in range(2))
            if a and b and gemm_layout(a.shape, a.strides, b.shape, b.strides) is not None:
                return [matmul.inputs[n] for n in chosen]
        raise AssertionError("BLAS reads contiguous operands")

    def base_of(self, value: Value) -> tuple[Value, View | None]:
        """What a chain of free views starts from, and the chain as one view (None if it is not one)."""
        view: View | None = View.of_shape(value.type.shape)
        while (node := self.producers.get(value)) is not None and node.op is ops.view and self.is_free(node):
            inner: View = node.attrs["view"]
            view = None if view is None else inner.compose(view)
            (value,) = node.inputs
        return value, view

    # ---- groups

    def origins(self, values: Iterable[Value]) -> list[Value]:
        """What `values` are computed from, behind free nodes: inputs of the graph and values of groups."""
        found: dict[Value, None] = {}
        pending = list(values)
        while pending:
            value = pending.pop(0)
            node = self.producers.get(value)
            if node is not None and self.is_free(node):
                pending.extend(node.inputs)
            else:
                found[value] = None
        return list(found)

    def place(self, position: int, node: Node) -> None:
        """Let `node` join groups, or start one."""
        origins = self.origins(node.inputs)
        needed = dict.fromkeys(self.group_of[self.producers[v]] for v in origins if v in self.producers)
        earlier = [*needed, *self.overwritten(node)]
        chosen: list[Group] = []
        if node.op is not ops.matmul and in_kernel(node):
            for group in sorted(needed, key=lambda g: -g.last):
                if group.is_kernel and self.fits([*chosen, group], node, earlier):
                    chosen.append(group)
        if chosen:
            shape = node.output.type.shape if is_plain(chosen, node) else None
            group = self.partition.join(chosen, position, node, earlier)
        else:
            group = self.partition.start(position, node, earlier)
            group.is_kernel = in_kernel(node)
            simple = node.op is ops.matmul or node.op.has(Trait.ELEMENTWISE)
            shape = node.output.type.shape if simple else None
        group.shape = shape
        for joined in group.members.values():
            self.group_of[joined] = group
        for value in origins:
            self.readers.setdefault(value, []).append(node)

    def overwritten(self, node: Node) -> list[Group]:
        """Groups that read what `node` may write over: they should run before it."""
        storages = [self.targets[v] for v in node.outputs if v in self.targets]
        if node.op is ops.update:
            storages.append(node.inputs[0])
        return [self.group_of[reader] for storage in storages for reader in self.readers.get(storage, [])]

    def fits(self, groups: Sequence[Group], node: Node, earlier: Sequence[Group]) -> bool:
        """Whether `groups` and `node` together are one kernel."""
        nodes = [m for _, m in sorted(item for g in groups for item in g.members.items())] + [node]
        if len(nodes) > NODES or not self.is_safe(nodes) or not self.partition.is_convex(groups, earlier):
            return False
        body = self.body(nodes)
        arrays = [v for v in (*body.inputs, *body.outputs) if not v.type.on_host]
        if len(arrays) > OPERANDS or len({v.type.device for v in arrays}) > 1:
            return False
        readers = [node] if len(groups) == 1 else nodes
        if is_plain(groups, node) and not any(self.looks_inside(nodes, reader) for reader in readers):
            return True
        try:
            analyse(body.graph)
        except Unfusable as error:
            self.miss(nodes, node, str(error))
            return False
        return True

    def looks_inside(self, nodes: Sequence[Node], node: Node) -> bool:
        """Whether `node` reaches a value of `nodes` through views."""
        free = [v for v in node.inputs if v in self.producers and self.is_free(self.producers[v])]
        return any(self.producers.get(v) in nodes for v in self.origins(free))

    def is_safe(self, nodes: Sequence[Node]) -> bool:
        """No operand of a product is made inside; what can fail writes nothing that existed before the
        call.
        """
        members = set(nodes)
        products = [m for m in nodes if m.op is ops.matmul]
        factors = [v for m in products for v in self.origins(m.inputs)]
        if len(products) > 1 or any(self.producers.get(v) in members for v in factors):
            return False
        if not any(m.op.has(Trait.CAN_FAIL) for m in nodes):
            return True
        return not any(m.op is ops.update or v in self.targets for m in nodes for v in m.outputs)

    def miss(self, nodes: Sequence[Node], node: Node, reason: str) -> None:
        """Remember a fusion that was refused, if it involves a reduction or a product."""
        kinds = ["epilogue"] if any(m.op is ops.matmul for m in nodes) else []
        kinds += ["reduction"] if any(map(is_fold, nodes)) else []
        if kinds:
            self.missed.append(Missed(kinds[0], node.location, f"{node.op.name}: {reason}"))

    # ---- bodies

    def body(self, nodes: Sequence[Node]) -> Body:
        """The body of a kernel of `nodes`."""
        members = set(nodes)
        return assemble(nodes, self.producers, self.is_free, lambda v: self.leaves(v, members))

    def leaves(self, value: Value, members: set[Node]) -> bool:
        """Whether a node outside `members` needs `value`."""
        if value in self.results or (
            self.producers[value].op.has(Trait.CAN_FAIL) and not self.users.get(value)
        ):
            return True
        outside = [user for user in self.users.get(value, []) if user not in members]
        return any(not self.is_free(u) or any(self.leaves(v, members) for v in u.outputs) for u in outside)

    # ---- the new graph

    def write(self, builder: Builder, group: Group, values: dict[Value, Value]) -> None:
        """Append the node of a group: `fused`, or the node itself if it is no kernel."""
        nodes = group.nodes
        if not group.is_kernel:
            (node,) = nodes
            outputs = builder.copy(node, [self.written(builder, v, values) for v in node.inputs])
            values.update(zip(node.outputs, outputs, strict=True))
            return
        body = self.body(nodes)
        reserved = [n for n, v in enumerate(body.outputs) if v in self.targets]
        found = attributes(analyse(body.graph), reserved)
        if found is None:  # nothing can take the product: it becomes an output itself
            members = set(nodes)
            products = {m.output for m in nodes if m.op is ops.matmul}
            body = assemble(
                nodes, self.producers, self.is_free, lambda v: v in products or self.leaves(v, members)
            )
            reserved = [n for n, v in enumerate(body.outputs) if v in self.targets]
            found = attributes(analyse(body.graph), reserved)
        assert found is not None
        inputs = [self.written(builder, v, values) for v in body.inputs]
        outputs = builder.emit(ops.fused, *inputs, location=nodes[-1].location, **found)
        values.update(zip(body.outputs, outputs, strict=True))

    def written(self, builder: Builder, value: Value, values: dict[Value, Value]) -> Value:
        """`value` in the new graph; numbers are copied to it when they are first needed."""
        if value not in values:
            node = self.producers[value]
            outputs = builder.copy(node, [self.written(builder, v, values) for v in node.inputs])
            values.update(zip(node.outputs, outputs, strict=True))
        return values[value]


def in_kernel(node: Node) -> bool:
    """Whether the node is computed by a generated kernel (or the panel kernel of a product)."""
    return is_fusible(node) or node.op in FREE


def is_plain(groups: Sequence[Group], node: Node) -> bool:
    """Whether groups and node are elementwise over one shape: then they fit without analysis."""
    shapes = {group.shape for group in groups} | {node.output.type.shape}
    return node.op.has(Trait.ELEMENTWISE) and len(shapes) == 1
