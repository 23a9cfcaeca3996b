"""The reference evaluator: executes a graph with NumPy, node by node.

It is deliberately simple and slow: the oracle for every pass, for code generation and for `TRACEJIT_CHECK`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tracejit.errors import TracejitError, locate
from tracejit.ir.graph import Graph, Node, Value
from tracejit.ir.op import Op
from tracejit.ir.types import HALVES, ArrayType

Observer = Callable[[Node, tuple[np.ndarray, ...]], None]


def evaluate(
    graph: Graph, inputs: Sequence[np.ndarray], observe: Observer | None = None
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Evaluate `graph`; return its outputs and the values of its effects.

    inputs:  arrays or NumPy scalars, in the order of ``graph.inputs``.
    observe: called as ``observe(node, outputs)`` after every node.
    """
    values: dict[Value, np.ndarray] = {
        v: np.asarray(array, dtype=v.type.dtype) for v, array in zip(graph.inputs, inputs, strict=True)
    }
    with np.errstate(all="ignore"):
        for node in graph.nodes:
            results = evaluate_node(node, [values[v] for v in node.inputs])
            for value, array in zip(node.outputs, results, strict=True):
                values[value] = array
            if observe is not None:
                observe(node, results)
    return [values[v] for v in graph.outputs], [values[e.value] for e in graph.effects]


def evaluate_node(node: Node, inputs: Sequence[np.ndarray]) -> tuple[np.ndarray, ...]:
    """Evaluate one node; raise AssertionError if dtypes or shapes differ from its typing rule."""
    types = [value.type for value in node.outputs]
    try:
        results = evaluate_operator(node.op, inputs, node.attrs, types)
    except TracejitError as error:
        raise locate(error, node.location) from None
    for type, array in zip(types, results, strict=True):
        if array.dtype != type.dtype or array.shape != type.shape:
            raise AssertionError(
                f"{node.op.name}: NumPy returns {array.dtype}{array.shape}, rule says {type}"
            )
    return results


def evaluate_operator(
    op: Op, inputs: Sequence[np.ndarray], attrs: Mapping[str, Any], types: Sequence[ArrayType]
) -> tuple[np.ndarray, ...]:
    """Evaluate `op` with NumPy; its results have the given types.

    An operator that `widens` half-precision operands is computed in float32, and its results rounded once.
    """
    widened = op.widens and any(x.dtype in HALVES for x in inputs)
    if widened:
        inputs = [x.astype(np.float32) if x.dtype in HALVES else x for x in inputs]
    computed = op.evaluate(*inputs, **attrs)
    results = tuple(map(np.asarray, computed if isinstance(computed, tuple) else (computed,)))
    if widened:
        return tuple(
            r.astype(t.dtype) if t.dtype in HALVES else r for r, t in zip(results, types, strict=True)
        )
    return results
