"""The launch of a call that was recorded."""

from __future__ import annotations

from typing import Any

from tracejit import engine
from tracejit.frontend.recording import eager
from tracejit.frontend.recording.storage import Storage
from tracejit.frontend.recording.trace import Trace
from tracejit.ir.graph import Graph


def launch(trace: Trace, graph: Graph, schedule: Any, outputs: list[Storage], *, awaited: bool) -> None:
    """Compute the recorded `graph` into `outputs`.

    awaited: it may fail, and what depends on its success follows: wait for it, and raise its failure.
    """
    written = [window.storage for window in trace.written()] if awaited else []
    engine.wait(*(storage.variable for storage in written))  # older failures are not this call's
    trace.take_draws()
    eager.run(graph, trace.bound, outputs, schedule)
    if awaited:
        engine.wait(*(storage.variable for storage in (*outputs, *written)))
