"""Legalisation: inserts the copies that are needed for a correct assignment of memory to values.

The IR is pure, memory is not. After this pass, every value can have exactly one location, all writes happen
in node order, and the memory plan is correct:

- An *output* is a new buffer, written by a node: it is not an input, not a host number, and not shared with
  another result.
- An *overwritten operand* (the base of an `update`) has no later readers, so it can be overwritten in place.
- The *value of an effect* is either written directly into the storage of its input, or computed elsewhere and
  copied there at the very end. The former is possible if, from the first write on, no node reads the old
  contents of the storage, and no index check follows (the commit point: a call that fails changes nothing).

        %2 = negative(%0)                           %2 = negative(%0)
        %3 = update(%0, %1) [view=...]      =>      %4 = copy(%0)              # %0 is no target of an effect
        return %2, %3                               %3 = update(%4, %1) [view=...]
                                                    return %2, %3

Nodes are reordered only if that saves a copy: readers of the old contents of a storage, and index checks,
move before the node that overwrites the storage, if they do not depend on it.
"""

from __future__ import annotations

import heapq
import math
from collections import defaultdict
from collections.abc import Sequence

from tracejit import ops
from tracejit.ir.graph import Effect, Graph, Node, Value
from tracejit.ir.op import Trait
from tracejit.ir.types import CPU
from tracejit.ops.communicate import agree, token
from tracejit.passes.memory.aliases import (
    Span,
    alias_groups,
    can_fail,
    contents,
    fills_buffer,
    is_alias,
    may_share,
    overwrites,
    roots,
)

Aliases = Sequence[Sequence[int]]


def legalize(graph: Graph, aliases: Aliases = ()) -> Graph:
    """Insert the necessary copies in `graph`; `aliases`: groups of positions of inputs that share storage."""
    graph = _copy_unowned_outputs(with_changes(graph))
    graph = _write_late(graph)
    graph = _protect_overwritten(graph, aliases)
    return _write_effects(graph, aliases)


def with_changes(graph: Graph) -> Graph:
    """Remove the effects of `graph` that change nothing."""
    effects = tuple(e for e in graph.effects if e.value is not e.target)
    return Graph(graph.inputs, graph.nodes, graph.outputs, effects)


def is_legal(graph: Graph) -> bool:
    """Whether `legalize` would not change the nodes of `graph`, if its inputs share no storage."""
    used = {value for node in graph.nodes for value in node.inputs}.union(graph.results())
    used.update(effect.target for effect in graph.effects)
    inputs = tuple([v for v in graph.inputs if v in used])
    return legalize(Graph(inputs, graph.nodes, graph.outputs, graph.effects)).nodes == graph.nodes


# --------------------------------------------------------------------------------------------------- outputs


def _copy_unowned_outputs(graph: Graph) -> Graph:
    """Copy the outputs that are not separate buffers, as soon as they are computed."""
    spans, inputs = contents(graph), set(graph.inputs)
    claimed = {spans[e.value].root for e in graph.effects}
    copies: dict[Value, list[Node]] = defaultdict(list)
    outputs = []
    for value in graph.outputs:
        span = spans.get(value)
        if span is None or span.root in inputs or span.root in claimed or not fills_buffer(value, span):
            node = _copy(value)
            copies[value].append(node)
            value = node.output
        else:
            claimed.add(span.root)
        outputs.append(value)
    if not copies:
        return graph
    nodes = [copy for value in graph.inputs for copy in copies[value]]
    for node in graph.nodes:
        nodes += [node, *(copy for value in node.outputs for copy in copies[value])]
    return Graph(graph.inputs, tuple(nodes), tuple(outputs), graph.effects)


def _copy(value: Value, location: str | None = None) -> Node:
    """Create a node that copies `value` into a new buffer; a host number becomes an array."""
    if value.type.on_host:
        attrs = {"shape": (), "device": CPU}
        return Node(ops.full, (value,), (Value(ops.full.infer(value.type, **attrs)),), attrs, location)
    return Node(ops.copy, (value,), (Value(value.type),), {}, location)


# ----------------------------------------------------------------------------------------------------- order


def _write_late(graph: Graph) -> Graph:
    """Move readers of old contents of storages, and index checks, before the nodes that overwrite them."""
    definition = {value: p for p, node in enumerate(graph.nodes) for value in node.outputs}
    spans = contents(graph)
    readers: dict[Value, list[int]] = defaultdict(list)
    checks = []
    for p, node in enumerate(graph.nodes):
        if can_fail(node):
            checks.append(p)
        if is_alias(node):
            continue
        for value in node.inputs:
            if value in spans:
                readers[spans[value].root].append(p)
    order = _Order(graph, definition)
    for effect in graph.effects:
        writer = _first_writer(graph, definition, effect.value)
        if writer is not None:
            order.delay([p for p in (*readers[effect.target], *checks) if p > writer], writer)
    return order.sorted()


def _first_writer(graph: Graph, definition: dict[Value, int], value: Value) -> int | None:
    """The first node that writes the final buffer of `value`; None if it is an unmodified input."""
    writer = None
    while value in definition:
        position = definition[value]
        node = graph.nodes[position]
        operand = 0 if is_alias(node) else dict(overwrites(node)).get(node.outputs.index(value))
        if not is_alias(node):
            writer = position
        if operand is None:
            break
        value = node.inputs[operand]
    return writer


class _Order:
    """The nodes of a graph with data dependencies and additional dependencies.

    after: the successors of each node.
    """

    def __init__(self, graph: Graph, definition: dict[Value, int]):
        self.graph = graph
        self.after: list[set[int]] = [set() for _ in graph.nodes]
        self.moved = False
        ordered: dict[str, int] = {}
        checks: list[int] = []
        for p, node in enumerate(graph.nodes):
            for value in node.inputs:
                if value in definition:
                    self.after[definition[value]].add(p)
            if Trait.ORDERED in node.op.traits and (name := token(node)) is not None:
                if name in ordered:
                    self.after[ordered[name]].add(p)
                ordered[name] = p
            if node.op is agree:
                for check in checks:
                    self.after[check].add(p)
            if can_fail(node):
                checks.append(p)

    def delay(self, late: Sequence[int], writer: int) -> None:
        """Add dependencies of `writer` on all nodes in `late`, unless one of these depends on it."""
        if late and not self._has_path(writer, set(late)):
            self.moved = True
            for position in late:
                self.after[position].add(writer)

    def _has_path(self, start: int, targets: set[int]) -> bool:
        visited, stack = {start}, [start]
        while stack:
            for position in self.after[stack.pop()] - visited:
                if position in targets:
                    return True
                visited.add(position)
                stack.append(position)
        return False

    def sorted(self) -> Graph:
        """The graph in the topological order that is closest to the present order."""
        if not self.moved:
            return self.graph
        n_predecessors = [0] * len(self.after)
        for successors in self.after:
            for position in successors:
                n_predecessors[position] += 1
        ready = [p for p, count in enumerate(n_predecessors) if count == 0]
        nodes = []
        while ready:
            position = heapq.heappop(ready)
            nodes.append(self.graph.nodes[position])
            for successor in self.after[position]:
                n_predecessors[successor] -= 1
                if n_predecessors[successor] == 0:
                    heapq.heappush(ready, successor)
        return Graph(self.graph.inputs, tuple(nodes), self.graph.outputs, self.graph.effects)


# ----------------------------------------------------------------------------------------------- overwriting


class _Uses:
    """The last use of each content, and the contents that are stored in the storage of an input.

    last: the position of the last use of each content. storage: the input in whose storage a content is.
    latest: for each input, the last use of its storage, and the contents that are used there.
    """

    def __init__(self, graph: Graph, aliases: Aliases):
        self.graph = graph
        self.spans = contents(graph)
        self.groups = alias_groups(graph, aliases)
        self.last: dict[Value, float] = dict.fromkeys(graph.inputs, -1)
        self.last_check = -1
        self.storage = {v: v for v in graph.inputs}
        for p, node in enumerate(graph.nodes):
            if can_fail(node):
                self.last_check = p
            if is_alias(node):
                continue
            for value in (*node.inputs, *node.outputs):
                if value in self.spans:
                    self.last[self.spans[value].root] = p
        for value in graph.results():
            self.last[self.spans[value].root] = math.inf
        self.latest = {v: (self.last[v], [v]) for v in graph.inputs}

    def assign(self, content: Value, storage: Value) -> None:
        """Record that `content` is in the storage of the input `storage`."""
        self.storage[content] = storage
        last, contents = self.latest[storage]
        if self.last[content] > last:
            self.latest[storage] = self.last[content], [content]
        elif self.last[content] == last:
            contents.append(content)

    def is_free_from(self, position: int, k: int, storage: Value) -> bool:
        """Whether output `k` of the node at `position` may overwrite `storage`: no later node reads it."""
        node = self.graph.nodes[position]
        for alias in self.groups[storage]:
            last, contents = self.latest[alias]
            if last > position:
                return False
            if last == position and not (
                alias is storage and all(self.may_replace(node, k, content) for content in contents)
            ):
                return False
        return True

    def may_replace(self, node: Node, k: int, content: Value) -> bool:
        """Whether the kernel of `node` may write output `k` into the memory from which it reads `content`."""
        allowed = {*may_share(node), *overwrites(node)}
        return all(
            (k, j) in allowed and fills_buffer(value, self.spans[value])
            for j, value in enumerate(node.inputs)
            if value in self.spans and self.spans[value].root is content
        )


def _protect_overwritten(graph: Graph, aliases: Aliases) -> Graph:
    """Copy the operands that a node would overwrite although they are needed later."""
    uses = _Uses(graph, aliases)
    nodes: list[Node] = []
    for p, node in enumerate(graph.nodes):
        inputs = list(node.inputs)
        overwritten: set[Value] = set()
        for k, j in overwrites(node):
            content = uses.spans[inputs[j]].root
            if content in overwritten or not _may_overwrite(uses, p, k, j):
                nodes.append(_copy(inputs[j], node.location))
                inputs[j] = nodes[-1].output
            elif content in uses.storage:
                uses.assign(node.outputs[k], uses.storage[content])
            overwritten.add(content)
        if tuple(inputs) != node.inputs:
            node = Node(node.op, tuple(inputs), node.outputs, node.attrs, node.location)
        nodes.append(node)
    if len(nodes) == len(graph.nodes):
        return graph
    return Graph(graph.inputs, tuple(nodes), graph.outputs, graph.effects)


def _may_overwrite(uses: _Uses, p: int, k: int, j: int) -> bool:
    """Whether output `k` of the node at `p` may be written into operand `j`."""
    graph, node = uses.graph, uses.graph.nodes[p]
    span = uses.spans[node.inputs[j]]
    if not fills_buffer(node.inputs[j], span) or uses.last[span.root] > p:
        return False
    if not uses.may_replace(node, k, span.root):
        return False
    storage = uses.storage.get(span.root)
    if storage is None:
        return True
    return (
        any(e.target is storage for e in graph.effects)
        and all(uses.spans[v].root is not node.outputs[k] for v in graph.outputs)
        and p > uses.last_check
        and uses.is_free_from(p, k, storage)
    )


# --------------------------------------------------------------------------------------------------- effects


def _write_effects(graph: Graph, aliases: Aliases) -> Graph:
    """Append copies of the effects' values that cannot be written directly into their storage."""
    uses, buffers = _Uses(graph, aliases), roots(graph)
    for value, span in buffers.items():
        if span.root in uses.storage and value not in uses.storage and uses.spans[value].root is value:
            uses.assign(value, span.root)
    claimed = {buffers[v].root for v in graph.outputs}
    definition = {value: p for p, node in enumerate(graph.nodes) for value in node.outputs}
    copied: list[Effect] = []
    for effect in graph.effects:
        root = buffers[effect.value].root
        if root in claimed or not _is_direct(uses, buffers, definition, effect):
            copied.append(effect)
        claimed.add(root)
    if not copied:
        return graph
    targets = frozenset().union(*(uses.groups[e.target] for e in copied))
    temporaries = [_copy(e.value) if buffers[e.value].root in targets else None for e in copied]
    final_copies = [
        _copy(e.value if a is None else a.output) for e, a in zip(copied, temporaries, strict=True)
    ]
    values = {e.target: node.output for e, node in zip(copied, final_copies, strict=True)}
    return Graph(
        graph.inputs,
        (*graph.nodes, *(node for node in temporaries if node is not None), *final_copies),
        graph.outputs,
        tuple(Effect(e.target, values.get(e.target, e.value)) for e in graph.effects),
    )


def _is_direct(uses: _Uses, buffers: dict[Value, Span], definition: dict[Value, int], effect: Effect) -> bool:
    """Whether the effect's value can be written directly into the storage of its target."""
    span = buffers[effect.value]
    if not fills_buffer(effect.value, span):
        return False
    first = definition.get(span.root)
    if first is None:  # an input
        return span.root is effect.target  # a chain of updates in place
    k = uses.graph.nodes[first].outputs.index(span.root)
    return first > uses.last_check and uses.is_free_from(first, k, effect.target)
