"""The profiler: one event per task and thread, recorded natively in a ring buffer while a profile is open.

with engine.profile() as profile:
    step(x)
for event in profile.events:
    print(event.name, event.thread, event.end - event.start)
profile.save("trace.json")            # for chrome://tracing or https://ui.perfetto.dev
"""

# No `from __future__ import annotations`: a named tuple compiles every annotation that is a string.

import json
import os
import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from tracejit.device_kinds import device_name
from tracejit.engine import native
from tracejit.engine.instance import LABEL
from tracejit.engine.native import ENGINE, LOCK, Record
from tracejit.engine.threads import THREADS, current
from tracejit.errors import EngineError
from tracejit.kernels.executor.layout import (
    COMMUNICATION,
    ENGINE_EVENT_CAPACITY,
    ENGINE_EVENT_COUNT,
    ENGINE_EVENTS,
    EVENT_BYTES,
    HOST,
)

CAPACITY = 1 << 16  # events in the ring buffer; the oldest are overwritten


class Event(NamedTuple):
    """The execution of a task on one thread; start and end in nanoseconds of `time.monotonic_ns`.

    launch: the sequence number of its launch.
    lane:   the name of a device, such as ``"cpu:0"`` or ``"gpu:1"``, or ``"host"`` or ``"communication"``.
    nbytes: estimated bytes of memory traffic; 0 for Python tasks.
    label:  the number of its program, a key of `Profile.programs`, times `LABEL`, plus the task's index.

    >>> import tracejit as tj
    >>> tj.engine.Event._fields
    ('name', 'location', 'thread', 'start', 'end', 'launch', 'lane', 'nbytes', 'label')
    """

    name: str
    location: str | None
    thread: str
    start: int
    end: int
    launch: int = 0
    lane: str = "cpu:0"
    nbytes: int = 0
    label: int = 0


def lane_name(number: int) -> str:
    """The name of a lane."""
    return {HOST: "host", COMMUNICATION: "communication"}.get(number) or device_name(number)


class TaskDescription(NamedTuple):
    """The description of a task in a profile."""

    name: str
    location: str | None = None
    lane: int = 0
    nbytes: int = 0
    program: object = None


class Profile:
    """A profile, as created by `tj.profile`.

    events:   the recorded events in order of time.
    dropped:  number of events that were overwritten in the ring buffer.
    programs: the programs that ran, by number.

    >>> import tracejit as tj
    >>> with tj.profile() as profile:
    ...     tj.engine.push(lambda: None, name="nothing")
    >>> [event.name for event in profile.events]
    ['nothing']
    """

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.dropped = 0
        self.programs: dict[int, object] = {}

    def chrome_trace(self) -> str:
        """Return the events as JSON in Chrome's trace format.

        >>> import tracejit as tj
        >>> tj.engine.Profile().chrome_trace()
        '{"traceEvents": []}'
        """
        names = sorted({event.thread for event in self.events})
        rows: list[dict[str, object]] = [
            {"ph": "M", "name": "thread_name", "pid": os.getpid(), "tid": i, "args": {"name": name}}
            for i, name in enumerate(names)
        ]
        for event in self.events:
            rows.append(
                {
                    "ph": "X",
                    "name": event.name,
                    "pid": os.getpid(),
                    "tid": names.index(event.thread),
                    "ts": event.start / 1000,
                    "dur": (event.end - event.start) / 1000,
                    "cat": event.lane,
                    "args": {
                        "location": event.location,
                        "launch": event.launch,
                        "lane": event.lane,
                        "bytes": event.nbytes,
                    },
                }
            )
        return json.dumps({"traceEvents": rows})

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the Chrome trace to a file.

        Raises OSError if it cannot be written.

        >>> import os, tempfile, tracejit as tj
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     tj.engine.Profile().save(os.path.join(folder, "trace.json"))
        """
        with open(path, "w", encoding="utf-8") as file:
            file.write(self.chrome_trace())


_kept_programs: list[object] | None = None
"""The programs created while a profile is open, which describes their tasks when it ends."""

_host_events: list[Event] | None = None


def record_host(name: str, location: str | None, start: int, launch: int, lane: int, label: int = 0) -> None:
    """Record an event for a Python task that ends now."""
    host_events = _host_events
    if host_events is not None:
        end, lane_name_ = time.monotonic_ns(), lane_name(lane)
        host_events.append(Event(name, location, current().name, start, end, launch, lane_name_, 0, label))


def keep(program: object) -> None:
    """Keep a program alive until the current profile ends, if there is one."""
    if _kept_programs is not None:
        _kept_programs.append(program)


class OpenProfile:
    """An open profile; see `tracejit.engine.profile`."""

    def __init__(self, describe: Callable[[int], TaskDescription], drain: Callable[[], object]) -> None:
        self._describe, self._drain = describe, drain
        self._profile = Profile()
        self._ring: Record | None = None

    def __enter__(self) -> Profile:
        global _host_events, _kept_programs
        native.calls()
        self._drain()
        with LOCK:
            if _host_events is not None:
                raise EngineError("a profile is open already; profiles do not nest")
            _host_events, _kept_programs = [], []
            self._ring = Record(CAPACITY * EVENT_BYTES)
            ENGINE.words[ENGINE_EVENT_COUNT >> 3] = 0
            ENGINE.words[ENGINE_EVENT_CAPACITY >> 3] = CAPACITY
            ENGINE.words[ENGINE_EVENTS >> 3] = self._ring.address
        return self._profile

    def __exit__(self, *exception: object) -> None:
        global _host_events, _kept_programs
        self._drain()
        with LOCK:
            ENGINE.words[ENGINE_EVENTS >> 3] = 0
            host_events, _host_events = _host_events or [], None
        assert self._ring is not None
        count = ENGINE.words[ENGINE_EVENT_COUNT >> 3]
        self._profile.dropped = max(0, count - CAPACITY)
        rows = np.frombuffer(self._ring.words, np.int64).reshape(CAPACITY, EVENT_BYTES // 8)[
            : min(count, CAPACITY)
        ]
        events = host_events
        for label, thread_number, start, end, launch in rows.tolist():
            task, thread_record = self._describe(label), THREADS.get(thread_number)
            lane, name = (
                lane_name(task.lane),
                thread_record.name if thread_record else f"thread {thread_number}",
            )
            if task.program is not None:
                self._profile.programs[label // LABEL] = task.program
            events.append(Event(task.name, task.location, name, start, end, launch, lane, task.nbytes, label))
        _kept_programs = None
        self._profile.events[:] = sorted(events, key=lambda event: (event.start, event.end))
