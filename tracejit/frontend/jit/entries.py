"""Entries of traced functions: records of recorded calls, by signature or by path, that later calls use."""

# No `from __future__ import annotations`: a named tuple compiles every annotation that is a string.

from collections.abc import Callable, Hashable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from tracejit.frontend.recording.segments import TreeNode
from tracejit.frontend.recording.storage import Storage
from tracejit.frontend.signature.requirements import Requirements
from tracejit.ir.graph import Graph
from tracejit.ir.structure import structure

if TYPE_CHECKING:
    from tracejit.frontend.jit.state_loops.adoption import KnownTransitions
    from tracejit.frontend.jit.state_loops.loop_steps import LoopReport


class Timing(NamedTuple):
    """Seconds of a first call: recording the body, compiling (or loading) kernels, running them."""

    record: float
    compile: float
    run: float

    @property
    def total(self) -> float:
        return self.record + self.compile + self.run


class Answer(NamedTuple):
    """A question that a path asks about a number that it has looked at, and its answer there.

    says:     the path and the requirement on it, for `explain()`; None if it is not shown.
    question: the meaning of the number, which paths share.
    value:    the rule, and the meanings of its other operands.
    """

    says: tuple[str, str] | None
    question: Hashable
    value: Any


class LoopEnd(NamedTuple):
    """How a path leaves a loop over looks.

    state: the key of the state in which it leaves the loop.
    known: keys of the transitions that the loop may perform; None if the path performs some of those that it
           knows after the loop.
    """

    state: Hashable
    known: frozenset[Hashable] | None


@dataclass(eq=False, repr=False)
class Signature:
    """The record of recorded calls that later calls of the same signature use.

    replay:       the function that serves a call; it returns `MISS` for a call of another signature.
    requirements: the requirements on its calls, by path, for `explain()`, and to detect that a path compiled
                  ahead of time serves the same calls as a known one (`specs`).
    graph:        the last recorded graph; for a call with looks, the part after the last look.
    pinned:       the integers among the requirements, by their `number_key`.
    text:         the source of the replay function.
    replays:      how many calls it has served.
    used:         the time at which it last served a call (`runtime.CLOCK`).
    """

    replay: Callable[..., Any]
    requirements: Requirements
    graph: Graph
    pinned: Mapping[Hashable, int]
    text: str = ""
    replays: int = 0
    used: int = 0

    @property
    def paths(self) -> "Sequence[Path]":
        """The paths: one, none if the calls are piecewise, or one for each outcome of looks."""
        raise NotImplementedError


@dataclass(eq=False, repr=False)
class Path(Signature):
    """The record of one recorded call, whose replay launches its graphs.

    schedule: the schedule of `graph`.
    names:    names of the graph's inputs.
    segments: the segments that are launched before `graph`, each with the questions after it and their
              answers.
    loops:    how the loops over looks run.
    loop_ends: by the loops' nodes: how the path leaves them.
    timing:   the timing of the first call.
    transitions: those of its loops over looks, which other paths may adopt.
    """

    schedule: Any = None
    names: tuple[str, ...] = ()
    segments: tuple[tuple[TreeNode, tuple[Answer, ...]], ...] = ()
    loops: "tuple[LoopReport, ...]" = ()
    loop_ends: Mapping[TreeNode, LoopEnd] = field(default_factory=dict)
    timing: Timing | None = None
    transitions: "KnownTransitions | None" = None

    @property
    def paths(self) -> "Sequence[Path]":
        return (self,)

    def is_same(self, other: "Path") -> bool:
        """Whether two paths without looks serve the same calls with the same graph."""
        same_calls = self.requirements == other.requirements and self.pinned == other.pinned
        return same_calls and structure(self.graph) == structure(other.graph)

    @property
    def launches(self) -> list[tuple[Graph, Any]]:
        """The graphs of all launches and their schedules, in order."""
        segments = [node.segment for node, _answers in self.segments]
        segments += [loop.segment for loop in self.loops if loop.segment is not None]
        return [*((each.graph, each.schedule) for each in segments), (self.graph, self.schedule)]

    @property
    def schedules(self) -> list[Any]:
        """The schedules of all launches, in order."""
        return [schedule for _graph, schedule in self.launches]


@dataclass(eq=False, repr=False)
class PiecewiseSignature(Signature):
    """Calls that run the body as eager code; `replay` only recognises them.

    reason:   why they are piecewise, and the line if it is known.
    pieces:   the number of piecewise calls since a call was last recorded.
    interval: the number of piecewise calls after which a call is recorded again, in case the reason is gone.
    """

    reason: tuple[str, str | None] = ("", None)
    pieces: int = 0
    interval: int = 1

    @property
    def paths(self) -> "Sequence[Path]":
        return ()


class RecordedCall(NamedTuple):
    """The outcome of recording a call.

    result:  what the call returns.
    entry:   the entry for later calls; None: the call must be recorded again.
    aliased: storages that enter the trace in full when a call of the function is recorded again.
    """

    result: Any
    entry: Path | PiecewiseSignature | None
    aliased: Set[Storage] = frozenset()
