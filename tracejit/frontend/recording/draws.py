"""The random numbers that a trace draws, relative to the counters of their streams at the launch.

    x = random.normal(shape=3)       key k, counter c        the stream has drawn 3
    for i in tj.range(n):
        x = f(x, uniform(shape=2))   key k, counter c + 3    in this round; it grows by 2 each round
                                                             behind the loop: 3 + 2 * n

A `Total` counts the numbers drawn: an integer, plus the draws of loops of a run-time count. A replay advances
the stream by its value.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from tracejit.frontend.recording.number import NumberProxy
from tracejit.frontend.recording.origins import RuntimeNumber
from tracejit.frontend.recording.sources import Computed

WORD = 1 << 64


class Total(NamedTuple):
    """A count: `fixed`, plus the run-time number `further` if there is one."""

    fixed: int = 0
    further: Computed | None = None

    def plus(self, count: Any) -> Total:
        """The sum of this total and a count."""
        if type(count) is not NumberProxy:
            return Total(self.fixed + count, self.further)
        if self.further is not None:
            drawn: Any = NumberProxy(self.further.value, self.further, count._numbers)
            count = drawn + count
        return Total(self.fixed, count._source)

    @property
    def value(self) -> int:
        """The total of this call."""
        value: int = self.fixed + (0 if self.further is None else self.further.value)
        return value


class DrawKey(NamedTuple):
    """Stands for the key of a stream of random numbers, by its number in `Draws.totals`."""

    stream: int


class DrawCounter(NamedTuple):
    """Stands for the counter of a stream at the launch, plus the total of what the body had drawn by then."""

    stream: int
    fixed: int
    further: Computed | None = None


class Draws:
    """The random numbers that a trace has drawn so far.

    totals:   streams, and how much was drawn of each, for each segment anew.
    counters: of the segment that is being recorded: the number, its stream, and the total drawn before it.
    taken:    (stream, start, count) of segments that were launched.
    """

    def __init__(self) -> None:
        self.totals: list[tuple[Any, Total]] = []
        self.counters: list[tuple[RuntimeNumber, int, Total]] = []
        self.taken: list[tuple[Any, int, int]] = []

    def draw(self, stream: Any, count: int) -> tuple[RuntimeNumber, RuntimeNumber]:
        """Key and counter for `count` numbers; replays take them from the stream as it is then."""
        first = len(self.taken)
        index = next(
            (i for i, (s, _) in enumerate(self.totals[first:], first) if s is stream), len(self.totals)
        )
        if index == len(self.totals):
            self.totals.append((stream, Total()))
        drawn = self.totals[index][1]
        self.totals[index] = stream, drawn.plus(count)
        return RuntimeNumber(stream.key, DrawKey(index)), self.counter(index, drawn)

    def counter(self, index: int, drawn: Total) -> RuntimeNumber:
        """The counter of a stream after what was `drawn` from it."""
        source = DrawCounter(index, drawn.fixed, drawn.further)
        made = RuntimeNumber((self.totals[index][0].counter + drawn.value) % WORD, source)
        self.counters.append((made, index, drawn))
        return made

    def take(self) -> range:
        """Take the numbers drawn since the last look from their streams; threads that share one get other
        positions. Returns the positions of these streams in `totals`.
        """
        first = len(self.taken)
        for stream, total in self.totals[first:]:
            self.taken.append((stream, stream.advance(total.value), total.value))
        for number, index, drawn in self.counters:
            number.value = (self.taken[index][1] + drawn.value) % WORD
        return range(first, len(self.totals))

    def give_back(self) -> None:
        """Return the numbers taken to their streams: the call is recorded again, or runs piecewise."""
        while self.taken:
            stream, start, count = self.taken.pop()
            stream.give_back(start, count)

    # -- rounds of a loop ------------------------------------------------------------------------------------

    def begin(self) -> Sequence[Total]:
        """The totals before a round."""
        return [total for _, total in self.totals]

    def of_round(self, before: Sequence[Total]) -> list[int] | None:
        """How many numbers of each stream were drawn in a round that is over; None if that differs from call
        to call.
        """
        if any(now.further is not then.further for (_, now), then in zip(self.totals, before, strict=True)):
            return None
        return [now.fixed - then.fixed for (_, now), then in zip(self.totals, before, strict=True)]

    def go_on(self, of_round: Sequence[int], rounds: Any) -> None:
        """Count the draws of further `rounds`, each of which draws so many numbers of each stream."""
        for index, count in enumerate(of_round):
            if count:
                stream, total = self.totals[index]
                self.totals[index] = stream, total.plus(rounds * count)
