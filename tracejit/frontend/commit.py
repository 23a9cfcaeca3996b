"""The launch of a call that was recorded, and what the body rebound: both or neither.

An interrupt (Ctrl-C) may come at any time. If the launch has not been made, everything is left as it was
before the call; else the interrupt is raised when the call has happened wholly. Replays do the same, see
`actions`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tracejit import engine
from tracejit.frontend import eager
from tracejit.frontend.recording import Place
from tracejit.frontend.storage import Storage
from tracejit.frontend.trace import Trace
from tracejit.ir.graph import Graph


def launch(
    trace: Trace,
    graph: Graph,
    schedule: Any,
    outputs: list[Storage],
    write_back: Callable[[], None],
    *,
    fallible: bool,
) -> None:
    """Compute the recorded `graph` into `outputs`, and then `write_back`, which may be called twice.

    fallible: the launch may fail, and nothing is to be written back then; its failure is raised.
    """
    written = [window.storage for window in trace.written()] if fallible else []
    engine.wait(*(storage.variable for storage in written))  # older failures are not this call's
    used = [bound.storage for bound in trace.bound if isinstance(bound, Place)]
    shared = [storage.variable for storage in used if storage.shared]
    checked = [*outputs, *written] if fallible else []  # outputs get their variables with the launch
    started: list[int] = []

    def finish() -> None:
        if engine.succeeded(*(storage.variable for storage in checked)):
            write_back()
        engine.succeeded(*shared, exclusive=True)

    try:
        trace.take_draws()
        eager.run(graph, trace.bound, outputs, schedule, started=started)
        finish()
    except BaseException:
        if started:
            finish()
        else:
            trace.give_back_draws()
        raise
    engine.wait(*shared, exclusive=True)
    engine.wait(*(storage.variable for storage in checked))
