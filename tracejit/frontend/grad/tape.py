"""Tapes: the nodes recorded while a gradient is being taken, and where rules that are no operator's apply.

A `Tape` is opened on the recording of the thread. It keeps the nodes that a launch forgets, so a function may
be longer than a recording. Parts of it that have a rule of their own
(`tracejit.passes.gradient.ReverseStep`) are marked on all open tapes of the recording while they run;
`Tape.nodes` puts the steps in their places:

    with part(recording) as opened:
        result = function(*args)                        # records nodes
        opened.arrange = lambda nodes: [Summary(nodes)]  # the list's items in their place
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
    """Nodes number `begin` to `end` of a tape, and what stands in the list in their place."""

    __slots__ = ("arrange", "begin", "end")

    def __init__(self, begin: int, end: int, arrange: Arrange):
        self.begin, self.end, self.arrange = begin, end, arrange


class Tape:
    """The nodes recorded on this thread since the tape began, also those of recordings flushed meanwhile.

    marks: in the order in which they ended, so inner ones come first.
    """

    def __init__(self, recording: EagerRecording):
        self.recording = recording
        self.start = len(recording.nodes)
        self.earlier: list[Node] = []
        self.marks: list[Mark] = []

    def position(self) -> int:
        """The number of nodes."""
        return len(self.earlier) + len(self.recording.nodes) - self.start

    def nodes(self) -> list[Node | ReverseStep]:
        """The nodes, with the steps that stand for some of them."""
        found: list[Node | ReverseStep] = list(self.earlier + self.recording.nodes[self.start :])
        return arranged(found, self.marks)

    def since(self, begin: int) -> list[Node | ReverseStep]:
        """The nodes of the recording from number `begin` on, with the steps that stand for some of them."""
        first = self._position_of(begin)
        marks = [Mark(m.begin - first, m.end - first, m.arrange) for m in self.marks if m.begin >= first]
        return arranged(self.recording.nodes[begin:], marks)

    def forget(self, begin: int) -> None:
        """The nodes of the recording from number `begin` on are about to leave it."""
        first = self._position_of(begin)
        self.marks = [m for m in self.marks if m.begin < first]

    def stand(self, step: ReverseStep, begin: int) -> None:
        """Let a step stand for the nodes of the recording from number `begin` on."""
        self.marks.append(Mark(self._position_of(begin), self.position(), lambda _: [step]))

    def _position_of(self, number: int) -> int:
        return len(self.earlier) + number - self.start

    def flushed(self) -> None:
        """The recording is about to forget its nodes: keep those of this tape."""
        self.earlier += self.recording.nodes[self.start :]
        self.start = 0


def arranged(nodes: Items, marks: Sequence[Mark]) -> list[Node | ReverseStep]:
    """`nodes` with what stands in the place of the marked ones.

    >>> arranged(["a", "b", "c", "d"], [Mark(1, 2, list), Mark(1, 3, lambda part: ["".join(part)])])
    ['a', 'bc', 'd']
    """
    found: list[Node | ReverseStep] = []
    places: list[int] = []  # the number of the first node of each of `found`
    done = 0
    for mark in marks:
        found += nodes[done : mark.end]
        places += range(done, mark.end)
        done = mark.end
        cut = bisect_left(places, mark.begin)
        found[cut:] = mark.arrange(found[cut:])
        places[cut:] = [mark.begin] * (len(found) - cut)
    return [*found, *nodes[done:]]


class OpenPart:
    """A part of a recording that is being recorded: `arrange` is to be set before it ends."""

    arrange: Arrange | None = None


@contextmanager
def part(recording: Recording) -> Iterator[OpenPart]:
    """Record a part with a rule of its own within. Without `arrange` nothing is marked."""
    begins = [(tape, tape.position()) for tape in recording.tapes]
    opened = OpenPart()
    yield opened
    if opened.arrange is not None:
        for tape, begin in begins:
            tape.marks.append(Mark(begin, tape.position(), opened.arrange))


@contextmanager
def recorded() -> Iterator[Tape]:
    """A tape on the open recording of this thread, while it is used."""
    tape = Tape(eager.current())
    tape.recording.tapes.append(tape)
    try:
        yield tape
    finally:
        tape.recording.tapes.remove(tape)


@contextmanager
def recording_operators() -> Iterator[None]:
    """Record operators that are no user's call within: no other thread comes in between."""
    with lock, quiet:
        yield
