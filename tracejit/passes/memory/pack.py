"""Assignment of offsets in the arena to buffers: the last step of the memory plan.

In the order of the tasks, a new buffer inherits the memory of an operand that dies at its first writer, if
the kernel allows it (``inplace``) and the sizes are equal. Otherwise it gets the best fit among the memory
whose users the writer *knows* to be done. These are its ancestors, so reuse never makes one task wait for
another:

    task 0   %3 arena+0      = fused(%0, %1)
    task 1   %4 arena+0      = fused(%3, %2)           after 0     in place
    task 2   %5 arena+4096   = fused(%0)                           does not wait for task 1: new memory

Given estimated times (see `timing`), buffers of at least LARGE bytes may also reuse memory of tasks that end
before the earliest start of their first writer; the writer then waits for these tasks. This lengthens no
path.
"""

# No `from __future__ import annotations`: a named tuple compiles every annotation that is a string.

import functools
import heapq
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from tracejit.ir.graph import Node, Value
from tracejit.ir.moving import most
from tracejit.passes.memory.aliases import Span, fills_buffer, may_share
from tracejit.passes.memory.arena import ArenaLayout, tasks_of
from tracejit.passes.memory.timing import direct_dependencies

LARGE = 1 << 16
"""The least size in bytes of a buffer for which an additional dependency is profitable."""

Times = Sequence[tuple[int, int]]


class Packed(NamedTuple):
    """The offsets of buffers by root, the total size in bytes, and the tasks for which each task waits."""

    offsets: dict[Value, int]
    size: int
    after: list[tuple[int, ...]]


def pack(
    nodes: Sequence[Node],
    spans: Mapping[Value, Span],
    elsewhere: Mapping[Value, object],
    after: Sequence[tuple[int, ...]],
    times: Times = (),
) -> Packed:
    """Assign offsets in the arena to all roots except those in `elsewhere`.

    after: the earlier tasks for which each of `nodes` waits. times: the earliest (start, end) of each task,
    if memory may also be reused by time; the tasks are then in order of their start.
    """
    return _Packer(nodes, spans, elsewhere, after, times).run()


class _Packer:
    """The state of the assignment. Sets of tasks are bits of integers."""

    def __init__(
        self,
        nodes: Sequence[Node],
        spans: Mapping[Value, Span],
        elsewhere: Mapping[Value, object],
        after: Sequence[tuple[int, ...]],
        times: Times,
    ):
        self.nodes, self.spans, self.elsewhere = nodes, spans, elsewhere
        self.after = list(after)
        self.ancestors: list[int] = []
        self.users: dict[Value, int] = {}  # the tasks that access a buffer
        self.first: dict[int, list[Value]] = defaultdict(list)
        for task, node in enumerate(nodes):
            for value in (*node.inputs, *node.outputs):
                if value in spans and (root := spans[value].root) not in elsewhere:
                    if root not in self.users:
                        self.first[task].append(root)
                    self.users[root] = self.users.get(root, 0) | 1 << task
        self.dying: dict[int, list[Value]] = defaultdict(list)
        for root, users in self.users.items():
            self.dying[users.bit_length() - 1].append(root)
        self.bytes = {root: most(root.type.nbytes) for root in self.users}
        self.latest = [len(nodes)] * len(nodes) if times else _latest_reusers(after, self.first)
        self.ended = _ended_tasks(times) if times else iter([0] * len(nodes))
        self.arena = ArenaLayout()
        self.offsets: dict[Value, int] = {}

    def run(self) -> Packed:
        """Assign offsets to all buffers, in the order of the tasks."""
        for task, ended in enumerate(self.ended):
            self.ancestors.append(self.all_ancestors(task))
            inherited: set[Value] = set()
            for root in self.first[task]:
                self.assign(task, root, ended if self.bytes[root] >= LARGE else 0, inherited)
            for root in self.dying[task]:
                until = min(self.latest[t] for t in tasks_of(self.users[root]))
                if root not in inherited and until > task:
                    self.arena.release(self.offsets[root], self.bytes[root], self.users[root], until)
        unused = {span.root for span in self.spans.values()} - self.offsets.keys() - self.elsewhere.keys()
        return Packed({**dict.fromkeys(unused, 0), **self.offsets}, self.arena.size, self.after)

    def all_ancestors(self, task: int) -> int:
        return functools.reduce(lambda bits, t: bits | self.ancestors[t] | 1 << t, self.after[task], 0)

    def assign(self, task: int, root: Value, ended: int, inherited: set[Value]) -> None:
        """Assign an offset to `root`, first written by `task`, which has overwritten `inherited`."""
        known = self.ancestors[task] | ended
        dead = self.inheritable(task, root, known, inherited)
        if dead is not None:
            inherited.add(dead)
            self.offsets[root] = self.offsets[dead]
            self.wait(task, self.users[dead] & ~(1 << task))
        else:
            self.offsets[root], users = self.arena.allocate(task, self.bytes[root], known)
            self.wait(task, users)

    def inheritable(self, task: int, root: Value, known: int, inherited: set[Value]) -> Value | None:
        """A buffer that dies in `task` and whose memory `root` may inherit, or None."""
        for dead in self.dying[task]:
            fits = self.bytes[dead] == self.bytes[root] and dead in self.offsets and dead not in inherited
            is_safe = fits and not self.users[dead] & ~(known | 1 << task)
            if is_safe and _may_inherit(self.nodes[task], self.spans, root, dead):
                return dead
        return None

    def wait(self, task: int, users: int) -> None:
        """Add dependencies of `task` on all `users`."""
        new_users = users & ~self.ancestors[task]
        if new_users:
            waits = {*self.after[task], *tasks_of(new_users)}
            self.after[task], self.ancestors[task] = direct_dependencies(waits, self.ancestors)


def _ended_tasks(times: Times) -> Iterator[int]:
    """Yield, for each task, the tasks that have ended when it starts, if all start as early as possible."""
    running: list[tuple[int, int]] = []
    ended = 0
    for task, (start, end) in enumerate(times):
        while running and running[0][0] <= start:
            ended |= 1 << heapq.heappop(running)[1]
        yield ended
        heapq.heappush(running, (end, task))


def _latest_reusers(after: Sequence[Sequence[int]], first: Mapping[int, Sequence[Value]]) -> list[int]:
    """Return, for each task, the last of itself and its descendants that writes a new buffer, or -1."""
    latest = [-1] * len(after)
    for task in range(len(after) - 1, -1, -1):
        last = max(latest[task], task if first.get(task) else -1)
        for earlier in after[task]:
            latest[earlier] = max(latest[earlier], last)
    return latest


def _may_inherit(node: Node, spans: Mapping[Value, Span], root: Value, dead: Value) -> bool:
    """Whether the kernel of `node` may write `root` into the memory of `dead`.

    The node is the last reader of `dead`, which has the same size.
    """
    allowed = may_share(node)
    outputs = [k for k, v in enumerate(node.outputs) if v in spans and spans[v].root is root]
    operands = [j for j, v in enumerate(node.inputs) if v in spans and spans[v].root is dead]
    return (
        bool(outputs and operands)
        and all(fills_buffer(node.inputs[j], spans[node.inputs[j]]) for j in operands)
        and all((k, j) in allowed for k in outputs for j in operands)
    )
