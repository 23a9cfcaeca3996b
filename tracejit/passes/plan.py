"""The memory plan: where every value lies, and which task waits for which.

It decides on a legal graph (see `legalize`):

1. *Buffers.* Values that overwrite one another, and views of them, share a root (see `memory`). A root's
buffer is
   the storage of an input (its own, or that of the effect whose value it holds), a new output, or part of
   the arena.
2. *Dependencies* are read/write hazards on buffers in node order: a reader waits for the last writer, a
writer for
   the last writer and for all readers since. Writers of existing storage also wait for all tasks that can
   fail. Callbacks keep their order. Only edges that no other path implies are kept.
3. *Arena.* In node order: a new buffer takes over the memory of an operand that dies at its first writer,
if the
   kernel allows it (``inplace``) and the sizes agree; else it gets the best fit among the memory that is
   free along dependencies (see `arena`).

    task 0   %3 arena+0      = fused(%0, %1)
    task 1   %4 arena+0      = fused(%3, %2)           after 0     in place
    task 2   %5 input 0      = fused(%0, %4)           after 1     an effect, straight into the storage

Bytes: *planned* is the size of the arena. *Naive* is what MXNet's paper compares with (Chen et al. 2015):
one buffer for each internal result of the operators as they stood before fusion, where views, fills and
index ranges count nothing. Inputs, outputs and the storages that effects write count on neither side.
"""

from __future__ import annotations

import enum
import functools
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from tracejit import ops
from tracejit.errors import VerificationError
from tracejit.ir.graph import Graph, Node, Value
from tracejit.ir.op import Trait
from tracejit.passes.arena import Arena
from tracejit.passes.memory import Span, alias_groups, can_fail, is_task, is_whole, may_share, roots


class Kind(enum.Enum):
    """What a buffer is part of."""

    INPUT = "input"
    OUTPUT = "output"
    ARENA = "arena"


@dataclass(frozen=True, slots=True)
class Place:
    """`offset` bytes into the storage of input or output number `index`, or into the arena (index 0)."""

    kind: Kind
    index: int
    offset: int

    def __str__(self) -> str:
        where = "arena" if self.kind is Kind.ARENA else f"{self.kind.value} {self.index}"
        return f"{where}+{self.offset}" if self.offset or self.kind is Kind.ARENA else where


@dataclass(frozen=True, slots=True)
class PlannedTask:
    """A node that runs, the tasks it waits for, and which (output, operand) pairs are one memory."""

    node: Node
    after: tuple[int, ...]
    shared: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class MemoryPlan:
    """Where the array values of `graph` lie, and its tasks in an order in which they could run."""

    graph: Graph
    places: dict[Value, Place]
    tasks: tuple[PlannedTask, ...]
    arena_bytes: int


def plan(graph: Graph, aliases: Sequence[Sequence[int]] = ()) -> MemoryPlan:
    """The memory plan of a legal graph; `aliases`: groups of positions of inputs that share storage."""
    nodes = [node for node in graph.nodes if is_task(node)]
    spans = roots(graph)
    buffers = _claimed(graph, spans)
    after, ancestors = _dependencies(graph, nodes, spans, buffers, aliases)
    arena = Arena()
    buffers.update(_pack(arena, nodes, spans, buffers, after, ancestors))
    places = {}
    for value, span in spans.items():
        start = buffers[span.root]
        places[value] = Place(start.kind, start.index, start.offset + span.offset)
    tasks = [PlannedTask(node, a, _shared(node, places)) for node, a in zip(nodes, after, strict=True)]
    return MemoryPlan(graph, places, tuple(tasks), arena.size)


def naive_bytes(graph: Graph) -> int:
    """Bytes of the internal results of `graph`, each in a buffer of its own."""
    free = {ops.constant, ops.full, ops.iota, ops.empty, ops.copy, ops.stop_gradient}
    results = set(graph.results())
    return sum(
        value.type.nbytes
        for node in graph.nodes
        for value in node.outputs
        if node.op not in free
        and not node.op.has(Trait.VIEW)
        and not value.type.on_host
        and value not in results
    )


def _claimed(graph: Graph, spans: dict[Value, Span]) -> dict[Value, Place]:
    """The buffers outside the arena, by root: inputs, outputs, and what effects put into inputs."""
    position = {value: i for i, value in enumerate(graph.inputs)}
    buffers = {v: Place(Kind.INPUT, i, 0) for v, i in position.items() if not v.type.on_host}
    claims = [(e.value, Place(Kind.INPUT, position[e.target], 0)) for e in graph.effects]
    claims += [(value, Place(Kind.OUTPUT, k, 0)) for k, value in enumerate(graph.outputs)]
    for value, place in claims:
        span = spans.get(value)
        if span is None or not is_whole(value, span) or buffers.setdefault(span.root, place) != place:
            raise VerificationError(f"plan: the result {value.type} has no buffer of its own; legalize first")
    return buffers


# ---------------------------------------------------------------------------------------------- dependencies


@dataclass(slots=True)
class _Accesses:
    """Who used a piece of memory: the last writer, and the readers since."""

    writer: int | None = None
    readers: list[int] = field(default_factory=list)


def _dependencies(
    graph: Graph,
    nodes: Sequence[Node],
    spans: dict[Value, Span],
    buffers: dict[Value, Place],
    aliases: Sequence[Sequence[int]],
) -> tuple[list[tuple[int, ...]], list[int]]:
    """For each task: the tasks it waits for directly, and all of them as a bit set."""
    accesses = _accesses(graph, buffers, aliases)
    after: list[tuple[int, ...]] = []
    ancestors: list[int] = []
    checks: list[int] = []
    ordered: list[int] = []
    last_check = max((t for t, node in enumerate(nodes) if can_fail(node)), default=-1)
    for task, node in enumerate(nodes):
        reads = {spans[v].root for v in node.inputs if v in spans}
        writes = {spans[v].root for v in node.outputs if v in spans}
        waits = {w for root in reads | writes if (w := accesses[root].writer) is not None}
        waits.update(reader for root in writes for reader in accesses[root].readers)
        if any(root in buffers and buffers[root].kind is Kind.INPUT for root in writes):
            if last_check >= task:
                raise VerificationError(f"plan: {node.op.name} writes storage before an index check")
            waits.update(checks)
        if node.op.has(Trait.ORDERED):
            waits.update(ordered)
            ordered = [task]
        if can_fail(node):
            checks.append(task)
        for root in reads:
            accesses[root].readers.append(task)
        for root in writes:
            accesses[root].writer, accesses[root].readers = task, []
        direct, covered = _without_implied(waits, ancestors)
        after.append(direct)
        ancestors.append(covered)
    return after, ancestors


def _accesses(
    graph: Graph, buffers: dict[Value, Place], aliases: Sequence[Sequence[int]]
) -> dict[Value, _Accesses]:
    """One record for each root, shared by the roots that may be the same memory."""
    groups = alias_groups(graph, aliases)
    shared = {group: _Accesses() for group in set(groups.values())}
    accesses: dict[Value, _Accesses] = defaultdict(_Accesses)
    for root, place in buffers.items():
        if place.kind is Kind.INPUT:
            accesses[root] = shared[groups[graph.inputs[place.index]]]
    return accesses


def _without_implied(waits: set[int], ancestors: list[int]) -> tuple[tuple[int, ...], int]:
    """The tasks of `waits` that are no ancestors of others among them, and the union of all ancestors."""
    direct, covered = [], 0
    for task in sorted(waits, reverse=True):
        if not covered >> task & 1:
            direct.append(task)
            covered |= ancestors[task] | 1 << task
    return tuple(reversed(direct)), covered


# ----------------------------------------------------------------------------------------------------- arena


def _pack(
    arena: Arena,
    nodes: Sequence[Node],
    spans: dict[Value, Span],
    buffers: dict[Value, Place],
    after: Sequence[Sequence[int]],
    ancestors: Sequence[int],
) -> dict[Value, Place]:
    """Places in the arena for the roots that have no place yet."""
    users: dict[Value, list[int]] = {}
    first: dict[int, list[Value]] = defaultdict(list)
    for task, node in enumerate(nodes):
        for value in (*node.inputs, *node.outputs):
            if value in spans and (root := spans[value].root) not in buffers:
                if root not in users:
                    first[task].append(root)
                users.setdefault(root, []).append(task)
    dying: dict[int, list[Value]] = defaultdict(list)
    for root, tasks in users.items():
        dying[tasks[-1]].append(root)
    latest = _latest_heirs(after, first)
    places: dict[Value, Place] = {}
    for task, node in enumerate(nodes):
        inherited: set[Value] = set()
        for root in first[task]:
            known = ancestors[task] | 1 << task
            heirs = (
                v for v in dying[task] if v in places and v not in inherited and _within(users[v], known)
            )
            dead = next((v for v in heirs if _may_inherit(node, spans, root, v)), None)
            if dead is not None:
                inherited.add(dead)
                places[root] = places[dead]
            else:
                offset = arena.allocate(task, root.type.nbytes, ancestors[task])
                places[root] = Place(Kind.ARENA, 0, offset)
        for root in dying[task]:
            until = min(latest[t] for t in users[root])
            if root not in inherited and until > task:
                bits = functools.reduce(lambda bits, t: bits | 1 << t, users[root], 0)
                arena.release(places[root].offset, root.type.nbytes, bits, until)
    unused = {s.root for s in spans.values()} - buffers.keys() - places.keys()
    return {**places, **dict.fromkeys(unused, Place(Kind.ARENA, 0, 0))}


def _within(tasks: Sequence[int], known: int) -> bool:
    """Whether all `tasks` are in the set `known`."""
    return all(known >> task & 1 for task in tasks)


def _latest_heirs(after: Sequence[Sequence[int]], first: dict[int, list[Value]]) -> list[int]:
    """For each task: its last descendant that writes something new; -1 if there is none."""
    latest = [-1] * len(after)
    for task in range(len(after) - 1, -1, -1):
        here = max(latest[task], task if first.get(task) else -1)
        for earlier in after[task]:
            latest[earlier] = max(latest[earlier], here)
    return latest


def _may_inherit(node: Node, spans: dict[Value, Span], root: Value, dead: Value) -> bool:
    """Whether the kernel may write `root` into the memory of `dead`, which it reads for the last time."""
    if root.type.nbytes != dead.type.nbytes:
        return False
    allowed = may_share(node)
    outputs = [k for k, v in enumerate(node.outputs) if v in spans and spans[v].root is root]
    operands = [j for j, v in enumerate(node.inputs) if v in spans and spans[v].root is dead]
    return (
        bool(outputs and operands)
        and all(is_whole(node.inputs[j], spans[node.inputs[j]]) for j in operands)
        and all((k, j) in allowed for k in outputs for j in operands)
    )


def _shared(node: Node, places: dict[Value, Place]) -> tuple[tuple[int, int], ...]:
    """The (output, operand) pairs that are one memory."""
    return tuple(
        (k, j)
        for k, output in enumerate(node.outputs)
        for j, operand in enumerate(node.inputs)
        if output in places
        and places.get(operand) == places[output]
        and output.type.nbytes * operand.type.nbytes
    )
