"""Runs a memory plan on real bytes, in any order that its dependencies allow, with the nastiest kernels.

A kernel may write garbage to its outputs before it reads its operands, except where the plan has it share
memory with an operand; there it must be allowed to, either because it overwrites the operand or by its
attribute ``inplace``. A sweep with edges leaves garbage at their locations, for the update that follows.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tracejit import ops
from tracejit.ir.evaluate import evaluate_node
from tracejit.ir.graph import Value
from tracejit.passes.memory.aliases import may_share, overwrites
from tracejit.passes.memory.plan import BufferKind, MemoryLocation, MemoryPlan


def run_plan(
    plan: MemoryPlan,
    inputs: Sequence[np.ndarray],
    rng: np.random.Generator,
    aliases: Sequence[Sequence[int]] = (),
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Outputs, and the inputs' storages afterwards; the inputs of one group of `aliases` are one memory."""
    graph = plan.graph

    def garbage(nbytes: int) -> np.ndarray:
        return rng.integers(0, 256, nbytes, dtype=np.uint8)

    memory = {
        (BufferKind.INPUT, i): np.frombuffer(bytearray(np.ascontiguousarray(a).tobytes()), np.uint8)
        for i, a in enumerate(inputs)
    }
    for group in aliases:
        for i in group:
            memory[BufferKind.INPUT, i] = memory[BufferKind.INPUT, group[0]]
    for k, value in enumerate(graph.outputs):
        memory[BufferKind.OUTPUT, k] = garbage(value.type.nbytes)
    for device, nbytes in plan.arenas.items():
        memory[BufferKind.ARENA, device] = garbage(nbytes)
    numbers = {v: np.asarray(a) for v, a in zip(graph.inputs, inputs, strict=True) if v.type.on_host}
    for node in graph.nodes:
        if node.outputs and node.outputs[0].type.on_host:
            (numbers[node.outputs[0]],) = evaluate_node(node, [numbers[v] for v in node.inputs])

    def at(value: Value, location: MemoryLocation) -> np.ndarray:
        raw = memory[location.kind, location.number][location.offset : location.offset + value.type.nbytes]
        assert raw.size == value.type.nbytes
        return raw.view(value.type.dtype).reshape(value.type.shape)

    for t in random_order(plan, rng):
        task = plan.tasks[t]
        node = task.node
        permitted = {*may_share(node), *overwrites(node)}
        assert set(task.shared) <= permitted, f"{node.op.name} may not share {task.shared}"
        for k, j in overwrites(node):
            assert plan.locations[node.outputs[k]] == plan.locations[node.inputs[j]]
        sharing = {k for k, _ in task.shared} | {k for k, _ in overwrites(node)}
        for k, value in enumerate(node.outputs):
            if k not in sharing:
                raw = at(value, plan.locations[value]).reshape(-1).view(np.uint8)
                raw[...] = garbage(raw.size) % 2  # a bool is 0 or 1
        operands = [numbers[v] if v.type.on_host else at(v, plan.locations[v]).copy() for v in node.inputs]
        with np.errstate(all="ignore"):
            results = evaluate_node(node, operands)
        for value, result in zip(node.outputs, results, strict=True):
            at(value, plan.locations[value])[...] = result
        sweep = node.attrs.get("sweep")
        if sweep is not None and sweep.has_edges:
            (update,) = (n for n in graph.nodes if n.op is ops.update and node.outputs[-1] in n.inputs)
            left_out = update.attrs["view"].read(at(update.inputs[0], plan.locations[update.inputs[0]]))
            left_out.view(np.uint8)[...] = garbage(left_out.nbytes).reshape(*left_out.shape[:-1], -1) % 2
    outputs = [at(v, plan.locations[v]).copy() for v in graph.outputs]
    storages = [
        memory[BufferKind.INPUT, i].view(v.type.dtype).reshape(v.type.shape)
        for i, v in enumerate(graph.inputs)
    ]
    return outputs, storages


def random_order(plan: MemoryPlan, rng: np.random.Generator) -> list[int]:
    """The tasks in a random order in which each comes after those it waits for."""
    waiting = {t: set(task.after) for t, task in enumerate(plan.tasks)}
    order = []
    while waiting:
        ready = [t for t, after in waiting.items() if not after]
        chosen = ready[int(rng.integers(len(ready)))]
        order.append(chosen)
        del waiting[chosen]
        for after in waiting.values():
            after.discard(chosen)
    return order
