"""Groups of nodes that grow into kernels, kept convex: no path leaves a group and comes back.

A `Partition` starts empty. `start` opens a group with one node, `join` unites groups and a new node. For
every group it keeps `before`, the set of groups that must run earlier, as the bits of an integer;
`is_convex` uses only these sets, and `join` propagates new ancestors to all later groups.

    a -> b -> c        with b in a group of its own, {a, c} is not convex: b must run after a and before c
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import dataclass, field

from tracejit.ir.graph import Node, Value
from tracejit.loopnest.layout import Rows
from tracejit.loopnest.program import Domain


@dataclass(eq=False, repr=False, slots=True)
class FusionGroup:
    """Nodes of one kernel, by position in the graph.

    last: the position of its last node.
    bits: those of every group that went into it; before: those of all groups that must run earlier; behind:
    those of the groups in `after`, which wait for it, and perhaps its own.
    is_kernel: whether it is a generated kernel, and is_complete: one that takes no more nodes;
    shape: of all its values, if they have one;
    domain, rows: of its kernel, if more may follow over it; touched: values that its nodes read and write;
    operands: the most of these that its kernel reads and writes;
    products: the matrix products in it; can_fail, writes: whether a node can, or writes over older memory.
    """

    last: int
    bits: int
    members: dict[int, Node]
    before: int = 0
    behind: int = 0
    after: set[FusionGroup] = field(default_factory=set)
    is_kernel: bool = True
    is_complete: bool = False
    shape: tuple[int, ...] | None = None
    domain: Domain | None = None
    rows: Rows | None = None
    touched: set[Value] = field(default_factory=set)
    operands: int = 0
    products: tuple[Node, ...] = ()
    can_fail: bool = False
    writes: bool = False

    @property
    def nodes(self) -> list[Node]:
        """The members in the graph's order."""
        return [self.members[position] for position in sorted(self.members)]


class Partition:
    """Groups, and the order between them."""

    def __init__(self) -> None:
        self.groups: dict[FusionGroup, None] = {}
        self._count = 0
        self._preceding: dict[
            FusionGroup, set[FusionGroup]
        ] = {}  # those after which a group stands; no cycle this way

    def start(self, position: int, node: Node, earlier: Iterable[FusionGroup]) -> FusionGroup:
        """A new group of one node that needs the groups `earlier`."""
        group = FusionGroup(position, 1 << self._count, {position: node})
        self._count += 1
        self.groups[group] = None
        self._preceding[group] = set()
        self.order(earlier, group)
        return group

    def order(self, earlier: Iterable[FusionGroup], group: FusionGroup) -> None:
        """Order `group` after all of `earlier`."""
        ancestors = 0
        for other in earlier:
            if other is not group:
                other.after.add(group)
                other.behind |= group.bits
                self._preceding[group].add(other)
                ancestors |= other.before | other.bits
        self._spread(group, ancestors)

    def _spread(self, group: FusionGroup, ancestors: int) -> None:
        """Add ancestors to a group and to all that run after it."""
        pending = [group]
        while pending:
            current = pending.pop()
            if ancestors & ~current.before:
                current.before |= ancestors
                pending.extend(current.after)

    def is_convex(self, chosen: Iterable[FusionGroup], earlier: Iterable[FusionGroup]) -> bool:
        """Whether `chosen` may become one group with a node that needs the groups `earlier`."""
        chosen = set(chosen)
        inside = ancestors = leaving = 0
        for group in chosen:
            inside |= group.bits
            ancestors |= group.before
            leaving |= group.behind
        if leaving & ancestors & ~inside:
            return False
        return not any(other.before & inside for other in set(earlier) - chosen)

    def join(
        self, chosen: Iterable[FusionGroup], position: int, node: Node, earlier: Iterable[FusionGroup]
    ) -> FusionGroup:
        """Unite `chosen` and a new node that needs the groups `earlier`. Its position is the last so far."""
        first, *rest = chosen
        for other in rest:
            first.members.update(other.members)
            first.bits |= other.bits
            first.before |= other.before
            first.behind |= other.behind
            first.after |= other.after
            self._preceding[first] |= self._preceding.pop(other)
            first.touched |= other.touched
            first.products += other.products
            first.is_complete |= other.is_complete
            first.can_fail |= other.can_fail
            first.writes |= other.writes
            del self.groups[other]
        if rest:
            self._replace({first, *rest}, first)
        first.members[position] = node
        first.last = position
        self.order([g for g in earlier if g not in rest], first)
        return first

    def _replace(self, united: set[FusionGroup], first: FusionGroup) -> None:
        """Replace all of `united` by `first`."""
        first.before &= ~first.bits
        self._preceding[first] -= united
        for group in self._preceding[first]:
            group.after -= united
            group.after.add(first)
            group.behind |= first.bits
        first.after -= united
        for later in first.after:
            self._preceding[later] -= united
            self._preceding[later].add(first)
            self._spread(later, first.before | first.bits)

    def ordered(self) -> list[FusionGroup]:
        """All groups in an order that respects `before`; where it is free, by their last node."""
        waiting = dict.fromkeys(self.groups, 0)
        for group in self.groups:
            for later in group.after:
                waiting[later] += 1
        ready = {group.last: group for group, count in waiting.items() if not count}
        heap = list(ready)  # last positions are distinct: a node has one group
        heapq.heapify(heap)
        result: list[FusionGroup] = []
        while heap:
            group = ready[heapq.heappop(heap)]
            result.append(group)
            for later in group.after:
                waiting[later] -= 1
                if not waiting[later]:
                    ready[later.last] = later
                    heapq.heappush(heap, later.last)
        assert len(result) == len(self.groups), "the groups wait for one another"
        return result
