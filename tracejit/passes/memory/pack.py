"""The place of each buffer in the arena: the last step of the memory plan.

In the order of the tasks, a new buffer takes over the memory of an operand that dies at its first writer, if
the kernel allows it (``inplace``) and the sizes agree; else it gets the best fit among the memory whose users
the writer *knows* to be done. Those are its ancestors, so that reuse never makes one task wait for another:

    task 0   %3 arena+0      = fused(%0, %1)
    task 1   %4 arena+0      = fused(%3, %2)           after 0     in place
    task 2   %5 arena+4096   = fused(%0)                           does not wait for task 1: new memory

With a timetable (see `timing`) buffers of at least LARGE bytes may also reuse memory of tasks that end before
their first writer could start anyway; the writer waits for them from then on. No path gets longer by that.
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
from tracejit.passes.memory.timing import direct

LARGE = 1 << 16
"""Bytes from which on a buffer is worth a new edge in the schedule."""

Times = Sequence[tuple[int, int]]


class Packed(NamedTuple):
    """The offsets of the buffers by root, the bytes in all, and the tasks that each task waits for."""

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
    """Places in the arena for all roots but those `elsewhere`.

    `after`: the earlier tasks that each of `nodes` waits for; `times`: when it starts and ends at the
    earliest, if buffers may be reused along time too (the tasks are in order of their start then).
    """
    return _Packing(nodes, spans, elsewhere, after, times).run()


class _Packing:
    """The state of one walk over the tasks. Sets of tasks are bits of integers."""

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
        self.users: dict[Value, int] = {}  # the tasks that touch a buffer
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
        self.latest = [len(nodes)] * len(nodes) if times else _latest_heirs(after, self.first)
        self.ended = _ended(times) if times else iter([0] * len(nodes))
        self.arena = ArenaLayout()
        self.offsets: dict[Value, int] = {}

    def run(self) -> Packed:
        """Place all buffers."""
        for task, ended in enumerate(self.ended):
            self.ancestors.append(self.all_ancestors(task))
            inherited: set[Value] = set()
            for root in self.first[task]:
                self.place(task, root, ended if self.bytes[root] >= LARGE else 0, inherited)
            for root in self.dying[task]:
                until = min(self.latest[t] for t in tasks_of(self.users[root]))
                if root not in inherited and until > task:
                    self.arena.release(self.offsets[root], self.bytes[root], self.users[root], until)
        unused = {span.root for span in self.spans.values()} - self.offsets.keys() - self.elsewhere.keys()
        return Packed({**dict.fromkeys(unused, 0), **self.offsets}, self.arena.size, self.after)

    def all_ancestors(self, task: int) -> int:
        return functools.reduce(lambda bits, t: bits | self.ancestors[t] | 1 << t, self.after[task], 0)

    def place(self, task: int, root: Value, ended: int, inherited: set[Value]) -> None:
        """Place `root`, first written by `task`; `inherited`: buffers whose memory is reused there."""
        known = self.ancestors[task] | ended
        dead = self.heirloom(task, root, known, inherited)
        if dead is not None:
            inherited.add(dead)
            self.offsets[root] = self.offsets[dead]
            self.wait(task, self.users[dead] & ~(1 << task))
        else:
            self.offsets[root], users = self.arena.allocate(task, self.bytes[root], known)
            self.wait(task, users)

    def heirloom(self, task: int, root: Value, known: int, inherited: set[Value]) -> Value | None:
        """A buffer that dies in `task` and whose memory `root` may reuse."""
        for dead in self.dying[task]:
            fits = self.bytes[dead] == self.bytes[root] and dead in self.offsets and dead not in inherited
            safe = fits and not self.users[dead] & ~(known | 1 << task)
            if safe and _may_inherit(self.nodes[task], self.spans, root, dead):
                return dead
        return None

    def wait(self, task: int, users: int) -> None:
        """Order `task` after all `users`."""
        late = users & ~self.ancestors[task]
        if late:
            waits = {*self.after[task], *tasks_of(late)}
            self.after[task], self.ancestors[task] = direct(waits, self.ancestors)


def _ended(times: Times) -> Iterator[int]:
    """Yield for each task the tasks that have ended when it starts, if all run at the earliest."""
    running: list[tuple[int, int]] = []
    ended = 0
    for task, (start, end) in enumerate(times):
        while running and running[0][0] <= start:
            ended |= 1 << heapq.heappop(running)[1]
        yield ended
        heapq.heappush(running, (end, task))


def _latest_heirs(after: Sequence[Sequence[int]], first: Mapping[int, Sequence[Value]]) -> list[int]:
    """Return for each task its last descendant that writes a new buffer; -1 if there is none."""
    latest = [-1] * len(after)
    for task in range(len(after) - 1, -1, -1):
        here = max(latest[task], task if first.get(task) else -1)
        for earlier in after[task]:
            latest[earlier] = max(latest[earlier], here)
    return latest


def _may_inherit(node: Node, spans: Mapping[Value, Span], root: Value, dead: Value) -> bool:
    """Whether the kernel may write `root` into the memory of `dead`, which it is the last to read, and which
    has the same size.
    """
    allowed = may_share(node)
    outputs = [k for k, v in enumerate(node.outputs) if v in spans and spans[v].root is root]
    operands = [j for j, v in enumerate(node.inputs) if v in spans and spans[v].root is dead]
    return (
        bool(outputs and operands)
        and all(fills_buffer(node.inputs[j], spans[node.inputs[j]]) for j in operands)
        and all((k, j) in allowed for k in outputs for j in operands)
    )
