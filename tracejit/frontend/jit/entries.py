"""Entries of traced functions: what is kept of a recorded call for later ones, by signature or by path."""

# No `from __future__ import annotations`: a named tuple compiles every annotation that is a string.

from collections.abc import Callable, Hashable, Mapping, Sequence, Set
from dataclasses import dataclass
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
    """The record of recorded calls that later calls of the same signature use.

    replay:       the function that serves a call; it returns `MISS` for one of another signature.
    requirements: what its calls have in common, by path, for people.
    graph:        what was recorded last; of a call that looks at values, the part after the last look.
    pinned:       the integers among the requirements, by their `number_key`.
    text:         the source of the replay function.
    used:         when it served last.
    """

    replay: Callable[..., Any]
    requirements: dict[str, str]
    graph: Graph
    pinned: Mapping[Hashable, int]
    text: str = ""
    replays: int = 0
    used: int = 0

    @property
    def paths(self) -> "Sequence[Path]":
        """The replay functions that launch something: one, none, or one for each outcome of looks."""
        raise NotImplementedError


@dataclass(eq=False, repr=False)
class Path(Signature):
    """A replay function that launches what one call recorded.

    schedule: that of `graph`.
    names:    of the graph's inputs.
    segments: what is launched before `graph`, and what is asked of the numbers that are found then, with the
              answers.
    loops:    the rounds between looks.
    timing:   that of the first call.
    """

    schedule: Any = None
    names: tuple[str, ...] = ()
    segments: tuple[tuple[PathPlace, tuple[Answer, ...]], ...] = ()
    loops: tuple[LoopReport, ...] = ()
    timing: Timing | None = None

    @property
    def paths(self) -> "Sequence[Path]":
        return (self,)

    @property
    def schedules(self) -> list[Any]:
        """The schedules of all that it launches, in order."""
        known = [place.segment.schedule for place, _answers in self.segments]
        known += [told.segment.schedule for told in self.loops if told.segment is not None]
        return [*known, self.schedule]


@dataclass(eq=False, repr=False)
class PiecewiseSignature(Signature):
    """Calls that run the body; `replay` only recognises them.

    reason:   why, and the line if one is known.
    pieces:   how many calls ran piecewise since one was recorded.
    interval: how many may, before one is recorded again: the reason may be gone.
    """

    reason: tuple[str, str | None] = ("", None)
    pieces: int = 0
    interval: int = 1

    @property
    def paths(self) -> "Sequence[Path]":
        return ()


class RecordedCall(NamedTuple):
    """The outcome of recording a call: its result, the entry for later calls (None: record again), and
    storages that have to enter whole.
    """

    result: Any
    entry: Path | PiecewiseSignature | None
    aliased: Set[Storage] = frozenset()
