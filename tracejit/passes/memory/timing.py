"""The earliest start of tasks, and the order that follows from it.

Tasks are in the user's order, in which a backward pass computes all cotangents before the optimizer uses the
first gradient, so all of them are live simultaneously. The engine, however, runs a task as soon as its
operands are available. `earliest` computes this time for unlimited workers and for tasks whose duration is
their cost; `in_order_of_start` sorts tasks by this time, and keeps the user's order for ties:

    user's order        dx3, dx2, dx1, dw3, dw2, dw1
    order of start      dx3, dw3, dx2, dw2, dx1, dw1

Both depend on the graph only. A task may wait, without delay, for tasks that end before its earliest start:
such dependencies lengthen no path, and `pack` adds them where memory can be reused. The duration of a Python
task is unknown, so no task may wait for it or its successors in this way.
"""

from __future__ import annotations

from collections.abc import Sequence

from tracejit import ops
from tracejit.ir.graph import Graph, Node
from tracejit.ir.moving import most
from tracejit.ir.op import Trait
from tracejit.passes.memory.aliases import is_task
from tracejit.tuning import tuning_of_values

NEVER = 1 << 60
"""The duration of a task whose duration is unknown."""


def cost(node: Node) -> int:
    """The estimated cost of a task in units of 0.1 ns, the time of one byte of memory traffic."""
    if node.op is ops.loop:
        return most(node.attrs["rounds"]) * work(node)
    if node.op is ops.case:
        return max(map(_inside, node.attrs["branches"]))
    arrays = [v for v in (*node.inputs, *node.outputs) if not v.type.on_host]
    if node.op is ops.gather:  # it reads as many elements as it writes
        arrays = [*node.inputs[1:], node.output, node.output]
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
    """The cost of the computation in a node, for a loop of one iteration.

    The operands of a node with a nested graph are not counted, because it reads parts of them only.
    """
    if "body" not in node.attrs:
        return cost(node)
    return _inside(node.attrs["body"])


def _inside(graph: Graph) -> int:
    """The cost of the tasks of a nested graph, which change arrays in place."""
    tasks = [node for node in graph.nodes if Trait.VIEW not in node.op.traits and is_task(node)]
    written = [v for node in tasks if node.op is ops.scatter for v in node.inputs[1:]]
    others = [node for node in tasks if node.op not in (ops.update, ops.scatter)]
    return sum(most(v.type.nbytes) for v in written) + sum(map(cost, others))


def earliest(
    nodes: Sequence[Node], costs: Sequence[int], after: Sequence[Sequence[int]]
) -> list[tuple[int, int]]:
    """The earliest (start, end) of each task; `after`: the earlier tasks for which it waits.

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
    """Sort tasks by their earliest start; each comes after all tasks for which it waits.

    >>> in_order_of_start([(0, 5), (5, 9), (0, 7)])
    [0, 2, 1]
    """
    return sorted(range(len(times)), key=lambda task: times[task][0])


def reordered(after: Sequence[Sequence[int]], order: Sequence[int]) -> list[tuple[int, ...]]:
    """Convert `after` to another order of the tasks, with their new numbers.

    >>> reordered([(), (0,), (), (1, 2)], [2, 0, 1, 3])
    [(), (), (1,), (0, 2)]
    """
    number = {task: new for new, task in enumerate(order)}
    return [tuple(sorted(number[t] for t in after[task])) for task in order]


def direct_dependencies(waits: set[int], ancestors: Sequence[int]) -> tuple[tuple[int, ...], int]:
    """The tasks in `waits` that are not ancestors of others in it, and the bit set of all ancestors.

    >>> direct_dependencies({0, 1, 2}, [0b0, 0b1, 0b0])
    ((1, 2), 7)
    """
    result, covered = [], 0
    for task in sorted(waits, reverse=True):
        if not covered >> task & 1:
            result.append(task)
            covered |= ancestors[task] | 1 << task
    return tuple(reversed(result)), covered
