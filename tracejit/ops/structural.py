"""Structural operators: `fused`, a nested graph compiled to one kernel, and `callback`, a Python call."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

from tracejit.errors import ArgumentError, VerificationError
from tracejit.ir.evaluate import evaluate
from tracejit.ir.graph import Graph
from tracejit.ir.op import Trait, register
from tracejit.ir.types import ArrayType
from tracejit.ops.batching import refusing
from tracejit.ops.rules import describe_types
from tracejit.ops.symbolic import Operator


def _infer_fused(*types: ArrayType, body: Graph, **attrs: Any) -> tuple[ArrayType, ...]:
    expected = tuple(v.type for v in body.inputs)
    if types != expected:
        raise VerificationError(
            f"fused got {describe_types(types)}, its body takes {describe_types(expected)}"
        )
    if body.effects:
        raise VerificationError("the body of fused has effects; only the outer graph may")
    return tuple(v.type for v in body.outputs)


def _evaluate_fused(*arrays: np.ndarray, body: Graph, **attrs: Any) -> tuple[np.ndarray, ...]:
    return tuple(evaluate(body, arrays)[0])


fused = Operator(
    "fused",
    _infer_fused,
    _evaluate_fused,
    traits=frozenset({Trait.COMPILED}),
    doc="A nested graph that becomes one kernel; its outputs are always a tuple.",
)
register(fused)

# Attributes are data, so a `callback` node refers to its function by the function's key in this table.
CALLBACKS: dict[int, Callable[..., object]] = {}
_numbers = itertools.count()


def keep_callback(function: Callable[..., object]) -> int:
    """Store `function` in `CALLBACKS`; return its key, the attribute `id` of a `callback` node."""
    number = next(_numbers)
    CALLBACKS[number] = function
    return number


def _infer_callback(*types: ArrayType, id: int) -> tuple[ArrayType, ...]:
    if id not in CALLBACKS:
        raise ArgumentError(f"callback {id} is unknown; keep its function with keep_callback first")
    return ()


def _evaluate_callback(*arrays: np.ndarray, id: int) -> tuple[np.ndarray, ...]:
    CALLBACKS[id](*arrays)
    return ()


callback = Operator(
    "callback",
    _infer_callback,
    _evaluate_callback,
    traits=frozenset({Trait.ORDERED}),
    doc="Calls a Python function with the operands, in order with all other callbacks; no outputs.",
    batch=refusing("a callback would have to be called for each example separately, which no operator does"),
)
register(callback)
