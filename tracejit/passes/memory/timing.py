"""The earliest start of tasks, and the order that follows from it.

Tasks stand in the user's order, in which a backward pass computes all cotangents before the optimizer uses
the first gradient, so that all of them live at once. The engine would run a gradient as soon as its operands
are there. `earliest` computes that time for unlimited workers and tasks that take their cost;
`in_order_of_start` is the order of these moments, ties in the user's order:

    user's order        dx3, dx2, dx1, dw3, dw2, dw1
    order of start      dx3, dw3, dx2, dw2, dx1, dw1

Both are functions of the graph. A task may wait for tasks that have finished before its earliest start
without delay: such edges lengthen no path, and `pack` adds them where they free a buffer. The duration of a
Python task is unknown, so its successors never count as finished.
"""

from __future__ import annotations

from collections.abc import Sequence

from tracejit import ops
from tracejit.ir.graph import Node
from tracejit.ir.moving import most
from tracejit.ir.op import Trait
from tracejit.passes.memory.aliases import is_task
from tracejit.tuning import tuning_of_values

NEVER = 1 << 60
"""Duration of a task that may take any time."""


def cost(node: Node) -> int:
    """The estimated cost of a task in units of 0.1 ns, the time for a byte of memory traffic."""
    if node.op is ops.loop:
        return most(node.attrs["rounds"]) * work(node)
    arrays = [v for v in (*node.inputs, *node.outputs) if not v.type.on_host]
    costs = tuning_of_values(arrays).costs
    total = sum(most(v.type.nbytes) for v in arrays)
    for inner in node.attrs["body"].nodes if node.op is ops.fused else (node,):
        if inner.op.work is not None:
            shapes = [v.type.shape for v in (*inner.inputs, *inner.outputs)]
            total += 2 * most(inner.op.work(shapes, inner.attrs)) // costs.flops
        elif Trait.EXPENSIVE in inner.op.traits:
            total += most(inner.output.type.size) * costs.transcendental
    return total


def work(node: Node) -> int:
    """The cost of what a node with a nested graph computes; of its operands, it reads parts. Of a loop: one
    round.
    """
    if "body" not in node.attrs:
        return cost(node)
    inner = [n for n in node.attrs["body"].nodes if Trait.VIEW not in n.op.traits and is_task(n)]
    return sum(cost(n) for n in inner if n.op is not ops.update)


def earliest(
    nodes: Sequence[Node], costs: Sequence[int], after: Sequence[Sequence[int]]
) -> list[tuple[int, int]]:
    """The earliest (start, end) of each task; `after`: the earlier tasks that it waits for.

    >>> earliest([], [], [])
    []
    """
    times: list[tuple[int, int]] = []
    for node, cost, waits in zip(nodes, costs, after, strict=True):
        start = max((times[t][1] for t in waits), default=0)
        starting = tuning_of_values((*node.inputs, *node.outputs)).costs.starting
        times.append((start, start + (NEVER if Trait.ORDERED in node.op.traits else cost + starting)))
    return times


def in_order_of_start(times: Sequence[tuple[int, int]]) -> list[int]:
    """The tasks in the order in which they could start; each comes after all that it waits for.

    >>> in_order_of_start([(0, 5), (5, 9), (0, 7)])
    [0, 2, 1]
    """
    return sorted(range(len(times)), key=lambda task: times[task][0])


def reordered(after: Sequence[Sequence[int]], order: Sequence[int]) -> list[tuple[int, ...]]:
    """`after` for the tasks in another order, by their new numbers.

    >>> reordered([(), (0,), (), (1, 2)], [2, 0, 1, 3])
    [(), (), (1,), (0, 2)]
    """
    number = {task: new for new, task in enumerate(order)}
    return [tuple(sorted(number[t] for t in after[task])) for task in order]


def direct(waits: set[int], ancestors: Sequence[int]) -> tuple[tuple[int, ...], int]:
    """The tasks of `waits` that are no ancestors of others among them, and all ancestors, as bits.

    >>> direct({0, 1, 2}, [0b0, 0b1, 0b0])
    ((1, 2), 7)
    """
    found, covered = [], 0
    for task in sorted(waits, reverse=True):
        if not covered >> task & 1:
            found.append(task)
            covered |= ancestors[task] | 1 << task
    return tuple(reversed(found)), covered
