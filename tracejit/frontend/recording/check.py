"""`TRACEJIT_CHECK=1`: every launch is compared with the NumPy evaluator, and the first wrong operator is
named.

A checked launch waits for its inputs, copies them, runs, waits again, and compares every output and effect
with the evaluation of the graph in NumPy: bit for bit if all operators are exact, within a tolerance
otherwise. If they differ, the graph is run again, truncated after its first node, its second, ..., and the
error names the first node whose result differs, with the user's line. The setting is read when a function is
recorded.

The evaluator repeats exchanges between ranks, so all ranks must have the setting. Launches that send or
receive messages are not checked, since each message exists only once.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tracejit import compile, engine
from tracejit.config import config
from tracejit.errors import CheckError, DeviceError
from tracejit.frontend.recording.storage import Storage, memory_at
from tracejit.ir.evaluate import evaluate
from tracejit.ir.graph import Graph, Node, Value
from tracejit.ir.op import Trait
from tracejit.ir.types import BFLOAT16, FLOAT16, HALVES, ArrayType, is_floating
from tracejit.ops import receive, send
from tracejit.ops.communicate import COLLECTIVE

TOLERANCE = {FLOAT16: 4e-3, BFLOAT16: 3e-2, np.dtype("float32"): 2e-4, np.dtype("float64"): 1e-9}
"""Tolerances, as a fraction of the largest magnitude: the order of terms changes sums by that much."""

LaunchFunction = Callable[..., bool | None]


def launcher(schedule: Any, graph: Graph, *, commits: bool = False) -> LaunchFunction:
    """Return the schedule's own `launch` or `commit`, or the checked launch. `graph` is the graph as it was
    recorded.
    """
    if not config.check or any(node.op in (send, receive) for node in graph.nodes):
        return schedule.commit if commits else schedule.launch
    for value in (*graph.inputs, *graph.outputs):
        if not value.type.on_host and not value.type.device.is_addressable:
            raise DeviceError(
                f"TRACEJIT_CHECK=1 compares memory of CPUs only, not of {value.type.device}; run without it"
            )
    return functools.partial(_checked, schedule, graph)


def _checked(schedule: Any, graph: Graph, packed: bytes, keep: Any, started: list[int] | None = None) -> None:
    variables = [storage.variable for storage in keep]
    engine.wait(*variables, exclusive=True)
    values = [_argument(packed, i, v.type, keep) for i, v in enumerate((*graph.inputs, *graph.outputs))]
    n_inputs = len(graph.inputs)
    before = [np.array(v) for v in values[:n_inputs]]
    schedule.launch(packed, keep, started)
    engine.wait(*variables)
    inputs = dict(zip(graph.inputs, values[:n_inputs], strict=True))
    results = [*values[n_inputs:], *(inputs[e.target] for e in graph.effects)]
    outputs, effects = evaluate(_without_callbacks(graph), before)
    compared = [*graph.outputs, *(e.value for e in graph.effects)]
    for value, result, expected in zip(compared, results, [*outputs, *effects], strict=True):
        if not _same(result, expected, _is_exact(graph, value), _tolerance(graph, value)):
            raise _find(graph, value, before, result, expected)


def _argument(packed: bytes, index: int, type: ArrayType, keep: Any) -> np.ndarray:
    raw = packed[8 * index : 8 * index + 8]
    if type.on_host:
        return np.frombuffer(raw[: type.dtype.itemsize], type.dtype)[0]
    return memory_at(int(np.frombuffer(raw, np.int64)[0]), type, keep)


def _without_callbacks(graph: Graph) -> Graph:
    nodes = tuple(n for n in graph.nodes if n.outputs or Trait.ORDERED not in n.op.traits)
    return Graph(graph.inputs, nodes, graph.outputs, graph.effects)


def _is_exact(graph: Graph, value: Value) -> bool:
    """Whether all operators that `value` depends on compute the same bits as NumPy."""
    needed = {value}
    for node in reversed(graph.nodes):
        if needed.intersection(node.outputs):
            if not node.op.is_exact(v.type.dtype for v in node.inputs):
                return False
            needed.update(node.inputs)
    return True


def _tolerance(graph: Graph, value: Value) -> float:
    """Return the tolerance of the narrowest dtype that `value` depends on: it may be a sum in float32, cast
    to a wider dtype.
    """
    needed = {value}
    for node in reversed(graph.nodes):
        if needed.intersection(node.outputs):
            needed.update(node.inputs)
    return max(TOLERANCE.get(v.type.dtype, 0.0) for v in needed)


def _same(result: np.ndarray, expected: np.ndarray, exact: bool, tolerance: float = 0.0) -> bool:
    if expected.dtype.kind == "c":
        return _same(result.real, expected.real, False) and _same(result.imag, expected.imag, False)
    if exact or not is_floating(expected.dtype):
        differs = (result != expected) & ((result == result) | (expected == expected))
        return not differs.any()
    tolerance = max(tolerance, TOLERANCE[expected.dtype])
    if expected.dtype in HALVES:
        result, expected = result.astype(np.float32), expected.astype(np.float32)
    finite = np.isfinite(expected)
    if not np.array_equal(np.isfinite(result), finite):
        return False
    scale = np.abs(expected[finite]).max(initial=0.0)
    if not np.array_equal(result[~finite], expected[~finite], equal_nan=True):
        return False
    return bool((np.abs(result[finite] - expected[finite]) <= tolerance * scale).all())


def _find(graph: Graph, value: Value, inputs: Sequence[Any], result: Any, expected: Any) -> CheckError:
    """Return the error for a difference at `value`. It names the first node whose result is wrong if the
    graph ends there.
    """
    is_local = not any(node.op in COLLECTIVE for node in graph.nodes)  # other ranks may see no difference
    for position, node in enumerate(graph.nodes if is_local else ()):
        arrays = [v for v in node.outputs if not v.type.on_host]
        if Trait.ORDERED in node.op.traits or not arrays:
            continue
        nodes = tuple(n for n in graph.nodes[: position + 1] if Trait.ORDERED not in n.op.traits)
        prefix = Graph(graph.inputs, nodes, tuple(arrays))
        for v, ours, theirs in zip(arrays, _run(prefix, inputs), evaluate(prefix, inputs)[0], strict=True):
            if not _same(ours, theirs, _is_exact(prefix, v), _tolerance(prefix, v)):
                return _error(node, ours, theirs, "")
    node = next(n for n in graph.nodes if value in n.outputs)
    return _error(node, result, expected, " (only where the whole graph is fused and planned)")


def _run(graph: Graph, inputs: Sequence[Any]) -> list[np.ndarray]:
    """Return the outputs of a graph on NumPy inputs, computed by a separate schedule."""
    schedule = compile.compile_graph(graph)
    values: list[Any] = []
    variables: list[int] = []
    storages = []
    arguments = [*inputs, *[None] * len(graph.outputs)]
    for v, array in zip((*graph.inputs, *graph.outputs), arguments, strict=True):
        if v.type.on_host:
            values.append(array.item())
            variables.append(0)
            continue
        storage = Storage(v.type)
        storage.materialise()
        if array is not None:
            storage.memory()[...] = array
        storages.append(storage)
        values.append(storage.address)
        variables.append(storage.variable.address)
    schedule.launch(schedule.pack.pack(*values, *variables), tuple(storages))
    outputs = storages[len(storages) - len(graph.outputs) :]
    for storage in outputs:
        engine.wait(storage.variable)
    return [storage.memory().copy() for storage in outputs]


def _error(node: Node, result: np.ndarray, expected: np.ndarray, note: str) -> CheckError:
    wrong = np.flatnonzero(~((result == expected) | ((result != result) & (expected != expected))))
    first = int(wrong[0]) if wrong.size else 0
    ours, theirs = result.reshape(-1)[first], expected.reshape(-1)[first]
    message = (
        f"check: {node.op.name} gives {ours!r} at element {first} of {node.output.type}, the NumPy evaluator "
        f"{theirs!r}; {wrong.size} of {result.size} elements differ{note}"
    )
    return CheckError(message if node.location is None else f"{message}\n  at {node.location}")
