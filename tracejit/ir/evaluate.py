"""The reference evaluator: a graph's meaning in NumPy, one node after the other.

Slow and obvious on purpose: it is the oracle for every pass, for code generation and for `TRACEJIT_CHECK`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tracejit.errors import TracejitError, locate
from tracejit.ir.graph import Graph, Node, Value

Observer = Callable[[Node, tuple[np.ndarray, ...]], None]


def evaluate(
    graph: Graph, inputs: Sequence[np.ndarray], observe: Observer | None = None
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Outputs and effect values of `graph` on `inputs` (arrays or NumPy scalars, in the order of
    graph.inputs).

    `observe(node, outputs)` is called after every node.
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
    """The outputs of one node, with the dtypes and shapes its typing rule promised."""
    try:
        results = node.op.evaluate(*inputs, **node.attrs)
    except TracejitError as error:
        raise locate(error, node.location) from None
    several = results if isinstance(results, tuple) else (results,)
    arrays = []
    for value, result in zip(node.outputs, several, strict=True):
        array = np.asarray(result)
        if array.dtype != value.type.dtype or array.shape != value.type.shape:
            raise AssertionError(
                f"{node.op.name}: NumPy gives {array.dtype}{array.shape}, rule says {value.type}"
            )
        arrays.append(array)
    return tuple(arrays)
