"""Groups of nodes that become kernels. Groups are convex: no path leaves a group and returns to it.

A `Partition` starts empty. `new_group` creates a group of one node, `merge` merges groups and a new node. The
set of groups that must run before a group, its ancestors, is `FusionGroup.before`, a bit set in an integer.
`is_convex` needs these sets only, and `add_dependencies` propagates new ancestors to all later groups.

    a -> b -> c        if b is in another group, {a, c} is not convex: b must run after a and before c
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
    """The nodes of one kernel, `members`, by their positions in the graph.

    last: the position of the last node.
    bits: a bit set with one bit for each group that was merged into this one.
    before: the bits of all groups that must run earlier.
    after: the groups that directly depend on this one.
    after_bits: the bits of the groups in `after`; may include the group's own bits.
    is_kernel: whether a generated kernel computes the group.
    is_complete: whether the group accepts no more nodes.
    shape: the shape of all values, if they have the same shape.
    domain, rows: those of the kernel, if further nodes may be added over them.
    touched: the values that the nodes read and write.
    operands: an upper bound of the number of arrays that the kernel reads and writes.
    products: the matrix products in the group.
    can_fail: whether a node may report an error.
    writes: whether a node overwrites memory that existed before the call.
    """

    last: int
    bits: int
    members: dict[int, Node]
    before: int = 0
    after_bits: int = 0
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
        """The members in the order of the graph."""
        return [self.members[position] for position in sorted(self.members)]


class Partition:
    """A partition of nodes into groups, with the dependencies between them."""

    def __init__(self) -> None:
        self.groups: dict[FusionGroup, None] = {}
        self._count = 0
        # The direct predecessors of each group; as a field of the group, they would form reference cycles.
        self._preceding: dict[FusionGroup, set[FusionGroup]] = {}

    def new_group(self, position: int, node: Node, earlier: Iterable[FusionGroup]) -> FusionGroup:
        """Create a group of one node that depends on the groups `earlier`."""
        group = FusionGroup(position, 1 << self._count, {position: node})
        self._count += 1
        self.groups[group] = None
        self._preceding[group] = set()
        self.add_dependencies(earlier, group)
        return group

    def add_dependencies(self, earlier: Iterable[FusionGroup], group: FusionGroup) -> None:
        """Add dependencies of `group` on all groups in `earlier`."""
        ancestors = 0
        for other in earlier:
            if other is not group:
                other.after.add(group)
                other.after_bits |= group.bits
                self._preceding[group].add(other)
                ancestors |= other.before | other.bits
        self._add_ancestors(group, ancestors)

    def _add_ancestors(self, group: FusionGroup, ancestors: int) -> None:
        """Add ancestors to a group and to all its descendants."""
        pending = [group]
        while pending:
            current = pending.pop()
            if ancestors & ~current.before:
                current.before |= ancestors
                pending.extend(current.after)

    def is_convex(self, chosen: Iterable[FusionGroup], earlier: Iterable[FusionGroup]) -> bool:
        """Whether `chosen` and a node that depends on the groups `earlier` can be one convex group."""
        chosen = set(chosen)
        chosen_bits = ancestors = descendants = 0
        for group in chosen:
            chosen_bits |= group.bits
            ancestors |= group.before
            descendants |= group.after_bits
        if descendants & ancestors & ~chosen_bits:
            return False
        return not any(other.before & chosen_bits for other in set(earlier) - chosen)

    def merge(
        self, chosen: Iterable[FusionGroup], position: int, node: Node, earlier: Iterable[FusionGroup]
    ) -> FusionGroup:
        """Merge `chosen` and a new node that depends on the groups `earlier`; return the group.

        The position of the node is greater than those of all members.
        """
        first, *others = chosen
        for other in others:
            first.members.update(other.members)
            first.bits |= other.bits
            first.before |= other.before
            first.after_bits |= other.after_bits
            first.after |= other.after
            self._preceding[first] |= self._preceding.pop(other)
            first.touched |= other.touched
            first.products += other.products
            first.is_complete |= other.is_complete
            first.can_fail |= other.can_fail
            first.writes |= other.writes
            del self.groups[other]
        if others:
            self._replace({first, *others}, first)
        first.members[position] = node
        first.last = position
        self.add_dependencies([g for g in earlier if g not in others], first)
        return first

    def _replace(self, united: set[FusionGroup], first: FusionGroup) -> None:
        """Replace the groups `united` by `first`, which is one of them, in all dependencies."""
        first.before &= ~first.bits
        self._preceding[first] -= united
        for group in self._preceding[first]:
            group.after -= united
            group.after.add(first)
            group.after_bits |= first.bits
        first.after -= united
        for later in first.after:
            self._preceding[later] -= united
            self._preceding[later].add(first)
            self._add_ancestors(later, first.before | first.bits)

    def ordered(self) -> list[FusionGroup]:
        """All groups in topological order; independent groups are ordered by their last node."""
        n_predecessors = dict.fromkeys(self.groups, 0)
        for group in self.groups:
            for later in group.after:
                n_predecessors[later] += 1
        ready = {group.last: group for group, count in n_predecessors.items() if not count}
        heap = list(ready)  # last positions are distinct, as every node belongs to one group
        heapq.heapify(heap)
        result: list[FusionGroup] = []
        while heap:
            group = ready[heapq.heappop(heap)]
            result.append(group)
            for later in group.after:
                n_predecessors[later] -= 1
                if not n_predecessors[later]:
                    ready[later.last] = later
                    heapq.heappush(heap, later.last)
        assert len(result) == len(self.groups), "the groups depend on one another"
        return result
