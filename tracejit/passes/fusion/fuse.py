"""The fusion pass: forms groups of nodes and replaces each by a `fused` node, one kernel and one task.

Fusion is greedy, in the user's order, in a single pass. A node joins the groups that compute its operands (as
many of them as possible, the latest first) if the resulting group is

- computable as one loop nest: `loopnest.build.trace` and `loopnest.schedule` accept the body,
- parallel: a product does not have to wait for readers of a storage that its epilogue would overwrite, and
  does not become a single large unit of work,
- convex: no path leaves the group and returns to it (see `groups`); reading a storage before it is
  overwritten counts as a path, so fusion never makes an in-place write impossible,
- small: at most `MAX_NODES` operators, `MAX_OPERANDS` arrays and `MAX_RECOMPUTED` recomputed operators,
- safe: a node that can fail does not share a kernel with a write that must not happen after a failure.

When all groups are formed, values that a kernel also stores in an array are read from the array (see
`stored`).

Groups without dataflow between them are not merged, because they can run in parallel. Views, fills and index
ranges cost nothing inside a kernel, so each group has a copy of those it uses. A matrix product starts a new
group (kind `panel`), which the consumers of its rows join as an epilogue. A large product of a matrix and its
transpose has no epilogue, because only half of it is computed (`kernels.gemm`).

    g = x.T @ dy;  v = mu * v + g;  w = w - lr * v        one panel kernel: product, then v and w in place
"""

# No `from __future__ import annotations`: a named tuple compiles every annotation that is a string.

from collections import OrderedDict
from collections.abc import Container, Hashable, Sequence
from typing import NamedTuple

from tracejit import ops
from tracejit.ir.graph import Builder, Effect, Graph, Node, Value
from tracejit.ir.op import CAN_FAIL, ELEMENTWISE, REDUCTION
from tracejit.ir.view import View
from tracejit.loopnest.analysis import Analysis, analyse, computed
from tracejit.loopnest.layout import Rows, is_fold, keeps_order, rows_of
from tracejit.loopnest.program import APPLY, SCAN, Domain, LoopProgram, Unfusable
from tracejit.loopnest.sweep import copy_edges
from tracejit.passes.fusion.bodies import Keys, attributes, gather
from tracejit.passes.fusion.free import FreeNodes, in_kernel
from tracejit.passes.fusion.groups import FusionGroup, Partition
from tracejit.passes.fusion.stored import ReadBack, check_stores
from tracejit.passes.products import would_be_one_unit
from tracejit.tuning import tuning_of

MAX_NODES = 64
"""The greatest number of operators in a kernel: more take long to compile and spill registers."""

MAX_OPERANDS = 24
"""The greatest number of arrays that a kernel accesses: each needs a pointer and run-time alias checks."""

MAX_RECOMPUTED = 16
"""The greatest number of operators that a kernel recomputes for other elements. In iterations of
``x - x[k] * x[:, k, None]``, the result of each iteration is needed at more indices than that of the next.
"""

CACHE_SIZE = 256
"""The number of kernel bodies that are cached for later graphs, each as a program and as an analysis."""

_PROGRAMS: OrderedDict[Hashable, tuple[Graph, LoopProgram] | str] = OrderedDict()
_ANALYSES: OrderedDict[Hashable, Analysis] = OrderedDict()
"""Caches by the structure of a body, which alone determines program and analysis."""

_NUMBERS: dict[Hashable, int] = {}
"""The integers that represent nodes and types in keys of bodies (see `Keys`)."""


class GroupProperties(NamedTuple):
    """The properties of a group as one kernel.

    operands: an upper bound of the number of arrays. shape: the shape of all values, if the group is
    elementwise.
    domain: that of a kernel to which further nodes may be added (see `follows`); rows: those that it reduces.
    """

    operands: int
    shape: tuple[int, ...] | None
    domain: Domain | None = None
    rows: Rows | None = None


class MissedFusion(NamedTuple):
    """A fusion that would save memory traffic but is not possible; `explain()` reports it."""

    kind: str  # "reduction" or "epilogue"
    location: str | None
    reason: str


def fuse(graph: Graph, missed: list[MissedFusion] | None = None) -> Graph:
    """Replace the nodes of `graph`, which `prepare` has rewritten, by `fused` nodes; append missed fusions to
    `missed`.
    """
    fused = _Fuser(graph, [] if missed is None else missed).run()
    _evict()
    return fused


def _evict() -> None:
    """Evict the oldest cache entries. Called between graphs, because the steps of a loop share entries."""
    if len(_NUMBERS) > MAX_NODES * CACHE_SIZE:
        for cache in (_PROGRAMS, _ANALYSES, _NUMBERS):
            cache.clear()
    for entries in (_PROGRAMS, _ANALYSES):
        while len(entries) > CACHE_SIZE:
            entries.popitem(last=False)


class _Fuser:
    """The state of the fusion of one graph."""

    def __init__(self, graph: Graph, missed: list[MissedFusion]):
        self.graph, self.missed = graph, missed
        self.free = FreeNodes(graph)
        self.keys = Keys(_NUMBERS)
        self.partition = Partition()
        self.group_of: dict[Node, FusionGroup] = {}
        self.targets = {effect.value: effect.target for effect in graph.effects}
        # The readers of each value, which must run before a node that overwrites it.
        self.readers: dict[Value, list[Node]] = {}

    def run(self) -> Graph:
        """Form the groups, then emit the graph of kernels."""
        for position, node in enumerate(self.graph.nodes):
            if node not in self.free:
                self.add_node(position, node)
        ReadBack(self.free, self.partition, self.group_of, self.is_kernel).run(self.graph)
        builder = Builder()
        builder.inputs = list(self.graph.inputs)
        values: dict[Value, Value] = {value: value for value in self.graph.inputs}
        for group in self.partition.ordered():
            self.write(builder, group, values)
        outputs = [self.written(builder, v, values) for v in self.graph.outputs]
        effects = [Effect(e.target, self.written(builder, e.value, values)) for e in self.graph.effects]
        return builder.graph(outputs, effects)

    # ---- groups

    def producer_group(self, value: Value) -> FusionGroup | None:
        """The group that computes `value`; None for inputs of the graph."""
        node = self.free.producers.get(value)
        return None if node is None else self.group_of[node]

    def add_node(self, position: int, node: Node) -> None:
        """Add `node` to existing groups, start a group with it, or let its users recompute it."""
        origins = self.free.origins(node.inputs)
        needed = {group: None for group in map(self.producer_group, origins) if group is not None}
        if self.free.make_light(node, [group.members.values() for group in needed]):
            return
        readers = self.overwritten(node)
        earlier = [*needed, *readers]
        chosen: list[FusionGroup] = []
        fit: GroupProperties | None = None
        is_kernel = in_kernel(node) and not self.is_alias(node)
        if is_kernel and node.op is not ops.matmul:
            for group in sorted(needed, key=lambda g: -g.last):
                if (
                    group.is_kernel
                    and not group.is_complete
                    and not (group.products and self.serialises(group, readers, needed))
                    and not (node.op is ops.rounded and has_reduction(group))
                    and (joined_fit := self.fits([*chosen, group], node, origins, earlier)) is not None
                ):
                    chosen.append(group)
                    fit = joined_fit
        if fit is not None:
            group = self.partition.merge(chosen, position, node, earlier)
        else:
            fit = self.single(node, origins)
            group = self.partition.new_group(position, node, earlier)
            group.is_kernel = is_kernel
        group.operands, group.shape, group.domain, group.rows = fit
        if node.op is ops.matmul:
            group.products += (node,)
            group.is_complete = self.takes_no_epilogue(node)
        group.can_fail |= CAN_FAIL in node.op.traits
        group.writes |= self.writes(node)
        group.touched.update(origins, node.outputs)
        self.group_of[node] = group
        for other in chosen[1:]:
            self.group_of.update(dict.fromkeys(other.members.values(), group))
        for value in origins:
            self.readers.setdefault(value, []).append(node)

    def single(self, node: Node, origins: Sequence[Value]) -> GroupProperties:
        """The fit of a group of `node` only. The kernel of a reduction iterates over its operand."""
        count = len(origins) + len(node.outputs)
        if node.op is ops.matmul or ELEMENTWISE in node.op.traits:
            return GroupProperties(count, node.outputs[0].type.shape)
        rows = rows_of(node) if REDUCTION in node.op.traits and not node.attrs.get("pieces", 0) else None
        return (
            GroupProperties(count, None)
            if rows is None
            else GroupProperties(count, None, rows.domain(), rows)
        )

    def is_alias(self, node: Node) -> bool:
        """Whether `node` is a view that need not be copied: a contiguous part of an array that is
        materialised, because it is an input, has other users, or is stored in an input.
        """
        if node.op is not ops.view or not node.attrs["view"].is_contiguous():
            return False
        source = node.inputs[0]
        return source not in self.free.producers or len(self.free.users[source]) > 1 or source in self.targets

    def overwritten(self, node: Node) -> list[FusionGroup]:
        """The groups that read a storage which `node` may overwrite, and that should run before it."""
        storages = [self.targets[v] for v in node.outputs if v in self.targets]
        if node.op is ops.update:
            storages.append(node.inputs[0])
        return [self.group_of[reader] for storage in storages for reader in self.readers.get(storage, [])]

    def takes_no_epilogue(self, product: Node) -> bool:
        """Whether a product must not have an epilogue: with one, it would be a single large unit of work, or
        be computed entirely where half is sufficient.
        """
        return self.free.is_gram(product) or would_be_one_unit(product)

    def serialises(
        self, group: FusionGroup, readers: Sequence[FusionGroup], needed: Container[FusionGroup]
    ) -> bool:
        """Whether the product of `group` would have to wait for `readers` of an overwritten storage.

        Groups in `needed`, for which it waits anyway, are ignored. This keeps the gradients of a layer's
        weights and of its input independent.
        """
        return any(r is not group and r not in needed and not r.bits & group.before for r in readers)

    def fits(
        self,
        groups: Sequence[FusionGroup],
        node: Node,
        origins: Sequence[Value],
        earlier: Sequence[FusionGroup],
    ) -> GroupProperties | None:
        """The fit of `groups` and `node`, computed from `origins`, as one kernel; None if there is none."""
        if sum(len(g.members) for g in groups) >= MAX_NODES or not self.partition.is_convex(groups, earlier):
            return None
        if not self.is_safe(groups, node) or (count := self.operands(groups, node, origins)) > MAX_OPERANDS:
            return None
        if is_elementwise(groups, node) and not self.views_values_of(groups, node):
            return GroupProperties(count, node.output.type.shape)
        nodes = merged_nodes(groups, node)
        try:
            check_stores(groups, node, origins, self.free, self.group_of)
            if len(groups) == 1 and self.follows(groups[0], node, origins):
                return GroupProperties(count, None, groups[0].domain, groups[0].rows)
            if is_fold(node) and not keeps_order(node) and is_elementwise_product(groups):
                raise Unfusable("an epilogue reads the product at its own index only")
            fold = next(filter(is_fold, nodes), None)
            body, program = self.program(self.body(nodes))
            if n_recomputed(program) > MAX_RECOMPUTED:
                raise Unfusable(f"more than {MAX_RECOMPUTED} operators would be recomputed")
            domain = open_domain(body, program)
            return GroupProperties(count, None, domain, None if fold is None else rows_of(fold))
        except Unfusable as error:
            self.record_miss(nodes, node, str(error))
            return None

    def operands(self, groups: Sequence[FusionGroup], node: Node, origins: Sequence[Value]) -> int:
        """The number of arrays that a kernel of `groups` and `node` accesses, or an upper bound.

        The number is exact if it exceeds the limit.
        """
        added = [v for v in (*origins, *node.outputs) if not any(v in g.touched for g in groups)]
        bound = len(added) + sum(g.operands for g in groups)
        if bound <= MAX_OPERANDS:
            return bound
        producers, members = self.free.producers, {node}.union(*(g.members.values() for g in groups))
        return sum(
            not v.type.on_host and (producers.get(v) not in members or self.free.leaves(v, members))
            for v in set(added).union(*(g.touched for g in groups))
        )

    def follows(self, group: FusionGroup, node: Node, origins: Sequence[Value]) -> bool:
        """Whether the kernel of `group` can also compute `node`, if this can be decided without analysis.

        It can if every operand is needed at the index of the result, which is also the index at which the
        operand is stored: then there are no new index maps, and all terms keep their loops. This holds for an
        elementwise node that reads arrays (or values of light nodes) at its own index, or results of
        reductions at all elements that contributed to them; and for a reduction over the same rows. None of
        them may read an array that the group updates. Raises `Unfusable` for a shape other than the two that
        a kernel with a reduction stores.
        """
        domain, rows = group.domain, group.rows
        if domain is None or any(
            member.op is ops.update and member.inputs[0] in origins for member in group.members.values()
        ):
            return False
        viewed = [v for v in node.inputs if self.free.through_view(v)]
        if viewed and (rows is None or node.output.type.shape != rows.shape):
            return False
        if rows is not None and not all(self.is_spread(v, group, rows.broadcast_view()) for v in viewed):
            return False
        if rows is not None and rows.reduces(node):
            return True
        is_simple = ELEMENTWISE in node.op.traits and CAN_FAIL not in node.op.traits
        if domain.reduced and (is_simple or is_fold(node)):
            domain.check_size(node.output.type)
        return is_simple

    def is_spread(self, value: Value, group: FusionGroup, view: View) -> bool:
        """Whether `value` is the view `view` of a result of `group`."""
        node = self.free.producers[value]
        is_view = node.op is ops.view and node.attrs["view"] == view
        source = node.inputs[0] if is_view else None
        return source is not None and not self.free.produces(source) and self.producer_group(source) is group

    def program(self, body: Graph) -> tuple[Graph, LoopProgram]:
        """The loop program of a kernel of `body`, and the body of the same structure whose values it
        contains; raises `Unfusable`. Bodies of one structure, such as those of loop steps, or of weight
        updates for different batch sizes, are traced once.
        """
        key = self.keys.of(body)
        cached = _PROGRAMS.get(key)
        if cached is None:
            try:
                cached = body, computed(body)
            except Unfusable as error:
                cached = str(error)  # the error itself would keep its frames alive
            _PROGRAMS[key] = cached
        if isinstance(cached, str):
            raise Unfusable(cached)
        return cached

    def analysis(self, body: Graph) -> Analysis:
        """The analysis of `body` as one kernel; bodies of one structure share an analysis and its graph."""
        key = self.keys.of(body)
        cached = _ANALYSES.get(key)
        if cached is None:
            traced = _PROGRAMS.get(key)
            cached = analyse(*traced) if isinstance(traced, tuple) else analyse(body)
            _ANALYSES[key] = cached
        return cached

    def is_kernel(self, group: FusionGroup) -> bool:
        """Whether the nodes of `group` can be computed by one kernel."""
        try:
            self.analysis(self.body(group.nodes))
        except Unfusable:
            return False
        return True

    def views_values_of(self, groups: Sequence[FusionGroup], node: Node) -> bool:
        """Whether `node`, or a member of several groups, reads a value of the groups through views."""
        readers = [node] if len(groups) == 1 else merged_nodes(groups, node)
        views = [v for reader in readers for v in reader.inputs if self.free.through_view(v)]
        return any(self.producer_group(v) in groups for v in self.free.origins(views))

    def is_safe(self, groups: Sequence[FusionGroup], node: Node) -> bool:
        """Whether the constraints on a kernel hold.

        All values are on one device. There is at most one product, whose operands are computed outside, on a
        device that supports epilogues. A kernel that can fail writes no storage that existed before the call.
        """
        device = node.outputs[0].type.device
        for group in groups:
            other = group.members[group.last].outputs[0].type.device
            if other is not device and other != device:
                return False
        products = [product for group in groups for product in group.products]
        if len(products) > 1 or (products and not tuning_of(device).panels):
            return False
        if products and any(self.producer_group(v) in groups for v in self.free.origins(products[0].inputs)):
            return False
        fails = CAN_FAIL in node.op.traits or any(group.can_fail for group in groups)
        return not fails or not (self.writes(node) or any(group.writes for group in groups))

    def writes(self, node: Node) -> bool:
        """Whether `node` overwrites memory that existed before the call."""
        return node.op is ops.update or any(v in self.targets for v in node.outputs)

    def record_miss(self, nodes: Sequence[Node], node: Node, reason: str) -> None:
        """Record a missed fusion if it involves a reduction or a product."""
        kinds = ["epilogue"] if any(m.op is ops.matmul for m in nodes) else []
        kinds += ["reduction"] if any(map(is_fold, nodes)) else []
        if kinds:
            self.missed.append(MissedFusion(kinds[0], node.location, f"{node.op.name}: {reason}"))

    def body(self, nodes: Sequence[Node]) -> Graph:
        """The body of a kernel of `nodes`, on the values of the outer graph."""
        members = set(nodes)
        return gather(nodes, self.free, lambda v: self.free.leaves(v, members))

    # ---- emission of the new graph

    def write(self, builder: Builder, group: FusionGroup, values: dict[Value, Value]) -> None:
        """Append the `fused` node of a group, or its only node if it is not a kernel, to `builder`."""
        nodes = group.nodes
        if not group.is_kernel:
            (node,) = nodes
            outputs = builder.copy(node, [self.written(builder, v, values) for v in node.inputs])
            values.update(zip(node.outputs, outputs, strict=True))
            return
        body = self.body(nodes)
        reserved = [n for n, v in enumerate(body.outputs) if v in self.targets]
        dying = [n for n, v in enumerate(body.inputs) if group.products and self.dies_in(group, v)]
        analysis = self.analysis(body)
        attrs = attributes(analysis, reserved, dying)
        if attrs is None:  # no output can store the product, so the product becomes an output
            members = set(nodes)
            products = {m.output for m in nodes if m.op is ops.matmul}
            body = gather(nodes, self.free, lambda v: v in products or self.free.leaves(v, members))
            reserved = [n for n, v in enumerate(body.outputs) if v in self.targets]
            attrs = attributes(self.analysis(body), reserved)
        assert attrs is not None
        inputs = [self.written(builder, v, values) for v in body.inputs]
        location = nodes[-1].location
        outputs = builder.emit(ops.fused, *inputs, location=location, **attrs)
        if analysis.sweep is not None:
            outputs = copy_edges(builder, analysis.program, analysis.sweep, outputs, location)
        values.update(zip(body.outputs, outputs, strict=True))

    def dies_in(self, group: FusionGroup, value: Value) -> bool:
        """Whether `value` dies in `group`: it is not a result, and all other readers run before."""
        if value not in self.free.producers or value in self.free.results or value.type.on_host:
            return False
        others = map(self.group_of.__getitem__, reversed(self.readers.get(value, [])))  # the latest first
        return all(other is group or other.bits & group.before for other in others)

    def written(self, builder: Builder, value: Value, values: dict[Value, Value]) -> Value:
        """The value in the new graph that replaces `value`; host numbers are copied on first use."""
        if value not in values:
            node = self.free.producers[value]
            outputs = builder.copy(node, [self.written(builder, v, values) for v in node.inputs])
            values.update(zip(node.outputs, outputs, strict=True))
        return values[value]


def open_domain(body: Graph, program: LoopProgram) -> Domain | None:
    """The domain of a kernel to which nodes may be added; None if the order of its steps matters: if it
    contains a running sum, or reads an array that it updates.
    """
    updated = {body.inputs[store.base] for store in program.stores if store.base is not None}
    if program.domain.pieces or any(t.kind is SCAN or t.value in updated for t in program.terms):
        return None
    return program.domain


def has_reduction(group: FusionGroup) -> bool:
    """Whether a group reduces. The order of its additions may depend on what else its kernel computes, so a
    sum that is `rounded` has a kernel of its own.
    """
    return any(REDUCTION in node.op.traits for node in group.members.values())


def n_recomputed(program: LoopProgram) -> int:
    """The number of operators that a kernel recomputes for other elements."""
    applied = [term.node for term in program.terms if term.kind is APPLY]
    return len(applied) - len(set(applied))


def merged_nodes(groups: Sequence[FusionGroup], node: Node) -> list[Node]:
    """The nodes of `groups`, in the order of the graph, followed by `node`."""
    return [m for _, m in sorted(item for g in groups for item in g.members.items())] + [node]


def is_elementwise_product(groups: Sequence[FusionGroup]) -> bool:
    """Whether `groups` consist of a product and elementwise nodes."""
    return all(group.shape is not None for group in groups) and any(group.products for group in groups)


def is_elementwise(groups: Sequence[FusionGroup], node: Node) -> bool:
    """Whether groups and node are elementwise over one shape, so that they fit without analysis."""
    shapes = {group.shape for group in groups} | {node.output.type.shape}
    return ELEMENTWISE in node.op.traits and len(shapes) == 1
