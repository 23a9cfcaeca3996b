"""Tapes: the nodes recorded while a gradient is being taken, and the regions with custom gradient rules.

A `Tape` is opened on the recording of the thread. It retains the nodes that a launch removes from the
recording, so a function may span several recordings. A region of nodes with its own rule
(`tracejit.passes.gradient.ReverseStep`) is marked on all open tapes of the recording when it ends;
`Tape.nodes` replaces the nodes of the region by its steps:

    with region(recording) as opened:
        result = function(*args)                        # records nodes
        opened.arrange = lambda nodes: [Summary(nodes)]  # the items that replace the nodes
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from tracejit.frontend.recording import eager
from tracejit.frontend.recording.eager import EagerRecording
from tracejit.frontend.recording.recording import Recording, lock, quiet
from tracejit.ir.graph import Node
from tracejit.passes.gradient import Items, ReverseStep

Arrange = Callable[[Items], Items]


class Mark:
    """The nodes `begin` to `end` of a tape; `arrange` returns the items that replace them."""

    __slots__ = ("arrange", "begin", "end")

    def __init__(self, begin: int, end: int, arrange: Arrange):
        self.begin, self.end, self.arrange = begin, end, arrange


class Tape:
    """The nodes recorded on this thread since the tape was opened, including those of flushed recordings.

    start:   the index in the recording of the first node that is not in `earlier`.
    earlier: nodes of the tape that have left the recording.
    marks:   the marked regions in the order in which they ended, so nested regions come first.
    """

    def __init__(self, recording: EagerRecording):
        self.recording = recording
        self.start = len(recording.nodes)
        self.earlier: list[Node] = []
        self.marks: list[Mark] = []

    def position(self) -> int:
        """Return the number of nodes on the tape."""
        return len(self.earlier) + len(self.recording.nodes) - self.start

    def nodes(self) -> list[Node | ReverseStep]:
        """Return the nodes, with marked regions replaced by their steps."""
        nodes: list[Node | ReverseStep] = list(self.earlier + self.recording.nodes[self.start :])
        return arranged(nodes, self.marks)

    def since(self, begin: int) -> list[Node | ReverseStep]:
        """Return the recording's nodes from index `begin` on, with marked regions replaced by their steps."""
        first = self._position_of(begin)
        marks = [Mark(m.begin - first, m.end - first, m.arrange) for m in self.marks if m.begin >= first]
        return arranged(self.recording.nodes[begin:], marks)

    def forget(self, begin: int) -> None:
        """Drop the marks of the recording's nodes from index `begin` on, which are about to be removed."""
        first = self._position_of(begin)
        self.marks = [m for m in self.marks if m.begin < first]

    def stand(self, step: ReverseStep, begin: int) -> None:
        """Replace the recording's nodes from index `begin` on by a step."""
        self.marks.append(Mark(self._position_of(begin), self.position(), lambda _: [step]))

    def _position_of(self, index: int) -> int:
        return len(self.earlier) + index - self.start

    def flushed(self) -> None:
        """Retain the nodes of this tape, which the recording is about to remove."""
        self.earlier += self.recording.nodes[self.start :]
        self.start = 0


def arranged(nodes: Items, marks: Sequence[Mark]) -> list[Node | ReverseStep]:
    """Return `nodes` with the marked regions replaced, nested regions first.

    >>> arranged(["a", "b", "c", "d"], [Mark(1, 2, list), Mark(1, 3, lambda nodes: ["".join(nodes)])])
    ['a', 'bc', 'd']
    """
    items: list[Node | ReverseStep] = []
    starts: list[int] = []  # for each item, the index in `nodes` of the first node it replaces
    done = 0
    for mark in marks:
        items += nodes[done : mark.end]
        starts += range(done, mark.end)
        done = mark.end
        cut = bisect_left(starts, mark.begin)
        items[cut:] = mark.arrange(items[cut:])
        starts[cut:] = [mark.begin] * (len(items) - cut)
    return [*items, *nodes[done:]]


class OpenRegion:
    """A region that is being recorded. The caller sets `arrange` before the region ends."""

    arrange: Arrange | None = None


@contextmanager
def region(recording: Recording) -> Iterator[OpenRegion]:
    """Record a region with its own gradient rule while the context is open; without `arrange`, none is
    marked.
    """
    begins = [(tape, tape.position()) for tape in recording.tapes]
    opened = OpenRegion()
    yield opened
    if opened.arrange is not None:
        for tape, begin in begins:
            tape.marks.append(Mark(begin, tape.position(), opened.arrange))


@contextmanager
def recorded() -> Iterator[Tape]:
    """Open a tape on the current recording of this thread."""
    tape = Tape(eager.current())
    tape.recording.tapes.append(tape)
    try:
        yield tape
    finally:
        tape.recording.tapes.remove(tape)


@contextmanager
def recording_operators() -> Iterator[None]:
    """Record internal operators, without a user's call, while the context is open, excluding other
    threads.
    """
    with quiet, lock:
        yield
