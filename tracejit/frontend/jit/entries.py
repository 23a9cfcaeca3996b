"""Entries of traced functions: what is kept of a recorded call for later ones, by signature or by path."""

# No `from __future__ import annotations`: a named tuple compiles every annotation that is a string.

from collections.abc import Callable, Hashable, Mapping, Set
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tracejit.frontend.jit.look_steps import LoopReport
from tracejit.frontend.recording.segments import PathPlace
from tracejit.frontend.recording.storage import Storage
from tracejit.ir.graph import Graph


class Timing(NamedTuple):
    """Seconds that the parts of a first call took: recording the body, compiling (or loading), running."""

    record: float
    compile: float
    run: float

    @property
    def total(self) -> float:
        return self.record + self.compile + self.run


class Answer(NamedTuple):
    """A question that a path asks of the numbers that it has found, and the answer that it has.

    says:     the path and what is required there, for people; None: nothing is told.
    question: equal for equal questions about the same numbers.
    value:    the answer.
    """

    says: tuple[str, str] | None
    question: Hashable
    value: Any


@dataclass(eq=False, repr=False)
class Signature:
    """A signature of a traced function, or a path of one, with its replay function.

    requirements: what its calls have in common, by path, for people.
    pinned:   the integers among them, by their `number_key`.
    schedule: that of `graph`, the last part of the call; None if the calls run piecewise.
    reason:   why they do, and the line.
    text:     the source of the replay function.
    timing:   that of the first call.
    paths:    of a signature whose calls look at values: a path for each outcome (see `TraceTree`).
    segments: of a path: what it launches before its last part, and what it asks of the numbers that were
              found then, with the answers.
    """

    replay: Callable[..., Any]
    requirements: dict[str, str]
    graph: Graph
    schedule: Any
    reason: tuple[str, str | None] | None = None
    text: str = ""
    replays: int = 0
    used: int = 0  # when it served last
    pieces: int = 0  # how many calls ran piecewise since one was recorded
    interval: int = 1  # how many may, before one is recorded again: the reason may be gone
    timing: Timing | None = None
    names: tuple[str, ...] = ()  # of the graph's inputs
    segments: tuple[tuple[PathPlace, tuple[Answer, ...]], ...] = ()
    pinned: Mapping[Hashable, int] = field(default_factory=dict)
    paths: "list[Signature]" = field(default_factory=list)
    loops: tuple[LoopReport, ...] = ()  # rounds between the looks of a path

    @property
    def schedules(self) -> list[Any]:
        """The schedules of all that it launches, in order."""
        known = [place.segment.schedule for place, _answers in self.segments]
        known += [told.segment.schedule for told in self.loops if told.segment is not None]
        return known + ([self.schedule] if self.schedule is not None else [])


class RecordedCall(NamedTuple):
    """The outcome of recording a call: its result, the entry for later calls (None: record again), and
    storages that have to enter whole.
    """

    result: Any
    entry: Signature | None
    aliased: Set[Storage] = frozenset()
