"""Runs a schedule on NumPy arrays, as the frontend would on storages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tracejit import engine
from tracejit.assembly.schedule import Schedule


def launch(schedule: Schedule, inputs: Sequence[Any]) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Outputs, and what the array inputs (copies of `inputs`) hold afterwards."""
    graph = schedule.graph
    arrays = [np.array(a, v.type.dtype, order="C") for a, v in zip(inputs, graph.inputs, strict=True)]
    start(schedule, arrays, outputs := [_garbage(v.type) for v in graph.outputs])
    engine.wait_all()
    return outputs, [a for a, v in zip(arrays, graph.inputs, strict=True) if not v.type.on_host]


def start(schedule: Schedule, arrays: Sequence[np.ndarray], outputs: Sequence[np.ndarray]) -> None:
    """Launch on this memory, with new variables, without waiting."""
    values, variables = [], []
    types = [v.type for v in (*schedule.graph.inputs, *schedule.graph.outputs)]
    for type, array in zip(types, (*arrays, *outputs), strict=True):
        values.append(array.item() if type.on_host else array.ctypes.data)
        variables.append(None if type.on_host else engine.Variable())
    addresses = (0 if v is None else v.address for v in variables)
    schedule.launch(schedule.pack.pack(*values, *addresses), (arrays, outputs, variables))


def _garbage(type: Any) -> np.ndarray:
    return np.frombuffer(bytearray(b"\1" * type.nbytes), type.dtype).reshape(type.shape)
