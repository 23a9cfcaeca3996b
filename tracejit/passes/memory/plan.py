"""The memory plan: the location of every value, and the dependencies of tasks.

Given a legal graph (see `legalize`), it determines:

1. *Buffers.* Values that overwrite one another, and views of them, share a root (see `aliases`). The buffer
   of a root is the storage of an input (if the root is the input, or is the value of an effect on it), a new
   output, or a part of the arena.
2. *Dependencies* are read/write hazards on buffers in node order: a reader waits for the last writer, a
   writer for the last writer and for all readers since. Writers of existing storage also wait for all tasks
   that can fail. Nodes of one token (callbacks) keep their order. Edges that are implied by other paths are
   removed.
3. *Arena.* Buffers share its memory along dependencies (see `pack`). If it saves a sixteenth of the arena,
   tasks are instead sorted by their earliest start (see `timing`), and memory is also reused by time.

    task 0   %3 arena+0      = fused(%0, %1)
    task 1   %4 arena+0      = fused(%3, %2)           after 0     in place
    task 2   %5 input 0      = fused(%0, %4)           after 1     an effect, written directly

Sizes: the *planned* size is that of the arena. The *naive* size is the baseline of the MXNet paper (Chen et
al. 2015): one buffer for each internal result of the operators before fusion, except views, fills and index
ranges. Neither includes inputs, outputs and storages that effects write.
"""

# No `from __future__ import annotations`: a named tuple compiles every annotation that is a string.

import enum
from collections import defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import NamedTuple

from tracejit import ops
from tracejit.errors import VerificationError
from tracejit.ir.graph import Graph, Node, Value
from tracejit.ir.op import Trait
from tracejit.ops.communicate import agree, token
from tracejit.passes.memory.aliases import Span, alias_groups, can_fail, fills_buffer, is_task, roots
from tracejit.passes.memory.pack import LARGE, Packed, pack
from tracejit.passes.memory.timing import cost, direct_dependencies, earliest, in_order_of_start, reordered

SAVING = 16
"""The reciprocal of the fraction of the arena that reordering the tasks has to save."""


class BufferKind(enum.Enum):
    """The kinds of memory that contain buffers."""

    INPUT = "input"
    OUTPUT = "output"
    ARENA = "arena"


class MemoryLocation(NamedTuple):
    """A location: `offset` bytes into input or output `number`, or into the arena of device `number`."""

    kind: BufferKind
    number: int
    offset: int

    def moved(self, nbytes: int) -> "MemoryLocation":
        """The location that is `nbytes` bytes further."""
        return MemoryLocation(self.kind, self.number, self.offset + nbytes)

    def __str__(self) -> str:
        if self.kind is BufferKind.ARENA:
            return f"arena{f' {self.number}' if self.number else ''}+{self.offset}"
        return f"{self.kind.value} {self.number}{f'+{self.offset}' if self.offset else ''}"


class PlannedTask(NamedTuple):
    """A task: its node, the tasks it waits for, (output, operand) pairs that share memory, and its cost.

    can_fail:    whether it may report an error at run time.
    subdivision: the factor by which its units of work are smaller than usual.
    """

    node: Node
    after: tuple[int, ...]
    shared: tuple[tuple[int, int], ...]
    cost: int
    can_fail: bool
    subdivision: int = 1


class MemoryPlan(NamedTuple):
    """The locations of the array values of `graph`, and its tasks in an order in which they can run.

    spans: the location of each array value in its buffer.
    locations: the location of each array value in memory.
    arenas: the size in bytes of the arena of each device, by the number of the device.
    """

    graph: Graph
    spans: dict[Value, Span]
    locations: dict[Value, MemoryLocation]
    tasks: tuple[PlannedTask, ...]
    arenas: dict[int, int]

    @property
    def arena_bytes(self) -> int:
        """The total size of all arenas in bytes."""
        return sum(self.arenas.values())


def plan(graph: Graph, aliases: Sequence[Sequence[int]] = ()) -> MemoryPlan:
    """Compute the memory plan of a legal graph; `aliases`: positions of inputs that share storage."""
    nodes = [node for node in graph.nodes if is_task(node)]
    spans = roots(graph)
    buffers = _claimed(graph, spans)
    costs = [cost(node) for node in nodes]
    after = _dependencies(graph, nodes, spans, buffers, aliases)
    arenas: dict[int, int] = {}
    for device, on_others in _by_device(spans):
        packed, order = _packed(nodes, spans, {**on_others, **buffers}, after, costs)
        buffers |= {
            root: MemoryLocation(BufferKind.ARENA, device, offset) for root, offset in packed.offsets.items()
        }
        nodes, costs, after = [nodes[t] for t in order], [costs[t] for t in order], packed.after
        arenas[device] = packed.size
    locations = {}
    for value, span in spans.items():
        start = buffers[span.root]
        locations[value] = start.moved(span.offset) if span.offset else start
    tasks = [
        PlannedTask(node, waits, _shared(node, locations), cost, can_fail(node))
        for node, waits, cost in zip(nodes, after, costs, strict=True)
    ]
    return MemoryPlan(graph, spans, locations, tuple(tasks), arenas)


def _by_device(spans: dict[Value, Span]) -> Iterator[tuple[int, dict[Value, MemoryLocation | None]]]:
    """Yield the number of each device, with the roots that are on other devices."""
    roots = dict.fromkeys(span.root for span in spans.values())
    for device in sorted({root.type.device.number for root in roots}):
        yield device, {root: None for root in roots if root.type.device.number != device}


def _packed(
    nodes: Sequence[Node],
    spans: dict[Value, Span],
    buffers: Mapping[Value, MemoryLocation | None],
    after: Sequence[tuple[int, ...]],
    costs: Sequence[int],
) -> tuple[Packed, Sequence[int]]:
    """Pack the arena with the tasks in the user's order or, if it saves enough, sorted by their start."""
    in_order = pack(nodes, spans, buffers, after)
    if in_order.size < LARGE:
        return in_order, range(len(nodes))
    times = earliest(nodes, costs, after)
    order = in_order_of_start(times)
    timed = pack(
        [nodes[t] for t in order], spans, buffers, reordered(after, order), [times[t] for t in order]
    )
    if timed.size > in_order.size - in_order.size // SAVING:
        return in_order, range(len(nodes))
    return timed, order


def naive_bytes(graph: Graph, weights: Mapping[Node, int] | None = None) -> int:
    """The size in bytes of the internal results of `graph`, each in a separate buffer.

    weights: the number of nodes that a node represents, if it is more than one.
    """
    free = {ops.constant, ops.full, ops.iota, ops.empty, ops.copy, ops.stop_gradient, ops.without_gradient}
    results = set(graph.results())
    return sum(
        value.type.nbytes * (weights.get(node, 1) if weights else 1)
        for node in graph.nodes
        for value in node.outputs
        if node.op not in free
        and Trait.VIEW not in node.op.traits
        and not value.type.on_host
        and value not in results
    )


def _claimed(graph: Graph, spans: dict[Value, Span]) -> dict[Value, MemoryLocation]:
    """The locations of buffers outside the arena, by root: inputs, outputs, and the values of effects."""
    position = {value: i for i, value in enumerate(graph.inputs)}
    buffers = {v: MemoryLocation(BufferKind.INPUT, i, 0) for v, i in position.items() if not v.type.on_host}
    claims = [(e.value, MemoryLocation(BufferKind.INPUT, position[e.target], 0)) for e in graph.effects]
    claims += [(value, MemoryLocation(BufferKind.OUTPUT, k, 0)) for k, value in enumerate(graph.outputs)]
    for value, location in claims:
        span = spans.get(value)
        if (
            span is None
            or not fills_buffer(value, span)
            or buffers.setdefault(span.root, location) != location
        ):
            raise VerificationError(f"plan: the result {value.type} has no buffer of its own; legalize first")
    return buffers


# ---------------------------------------------------------------------------------------------- dependencies


class _Accesses:
    """The accesses to a buffer: the last writer, and the readers since."""

    def __init__(self) -> None:
        self.writer: int | None = None
        self.readers: list[int] = []


def _dependencies(
    graph: Graph,
    nodes: Sequence[Node],
    spans: dict[Value, Span],
    buffers: dict[Value, MemoryLocation],
    aliases: Sequence[Sequence[int]],
) -> list[tuple[int, ...]]:
    """Return, for each task, the tasks for which it waits, without those implied by others."""
    accesses = _accesses(graph, buffers, aliases)
    after: list[tuple[int, ...]] = []
    ancestors: list[int] = []
    checks: list[int] = []
    ordered: dict[str, int] = {}  # by token, the last node
    last_check = max((t for t, node in enumerate(nodes) if can_fail(node)), default=-1)
    for task, node in enumerate(nodes):
        reads = {spans[v].root for v in node.inputs if v in spans}
        writes = {spans[v].root for v in node.outputs if v in spans}
        waits = {w for root in reads | writes if (w := accesses[root].writer) is not None}
        waits.update(reader for root in writes for reader in accesses[root].readers)
        if any(root in buffers and buffers[root].kind is BufferKind.INPUT for root in writes):
            if last_check >= task:
                raise VerificationError(f"plan: {node.op.name} writes storage before an index check")
            waits.update(checks)
        if Trait.ORDERED in node.op.traits and (name := token(node)) is not None:
            waits.update([ordered[name]] if name in ordered else ())
            ordered[name] = task
        if node.op is agree:
            waits.update(checks)
        if can_fail(node):
            checks.append(task)
        for root in reads:
            accesses[root].readers.append(task)
        for root in writes:
            accesses[root].writer, accesses[root].readers = task, []
        direct_waits, all_ancestors = direct_dependencies(waits, ancestors)
        after.append(direct_waits)
        ancestors.append(all_ancestors)
    return after


def _accesses(
    graph: Graph, buffers: dict[Value, MemoryLocation], aliases: Sequence[Sequence[int]]
) -> dict[Value, _Accesses]:
    """Create one record for each root, shared by the roots whose memory may overlap."""
    groups = alias_groups(graph, aliases) if aliases else {}
    shared: dict[Hashable, _Accesses] = defaultdict(_Accesses)
    accesses: dict[Value, _Accesses] = defaultdict(_Accesses)
    for root, location in buffers.items():
        if location.kind is BufferKind.INPUT:
            accesses[root] = shared[groups.get(graph.inputs[location.number], location.number)]
    return accesses


def _shared(node: Node, locations: dict[Value, MemoryLocation]) -> tuple[tuple[int, int], ...]:
    """The (output, operand) pairs that share memory."""
    operands = [locations.get(operand) for operand in node.inputs]
    return tuple(
        [
            (k, j)
            for k, output in enumerate(node.outputs)
            if (location := locations.get(output)) is not None and location in operands
            for j, operand in enumerate(node.inputs)
            if operands[j] == location and output.type.nbytes * operand.type.nbytes
        ]
    )
