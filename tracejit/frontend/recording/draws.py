"""The random numbers that a trace draws, relative to the counters of their streams at the launch.

    x = random.normal(shape=3)       key k, counter c        the stream has drawn 3
    for i in tj.range(n):
        x = f(x, uniform(shape=2))   key k, counter c + 3    in this iteration; it grows by 2 per iteration
                                                             after the loop: 3 + 2 * n

A `Total` is the number of random numbers drawn: an integer, plus the draws of loops whose trip count is a
run-time number. A replay advances the stream by its value.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from tracejit.frontend.recording.number import NumberProxy
from tracejit.frontend.recording.origins import RuntimeNumber
from tracejit.frontend.recording.sources import Computed
from tracejit.ir.graph import Node

WORD = 1 << 64  # counters are unsigned 64-bit integers


class Total(NamedTuple):
    """A number of draws: `fixed`, plus the run-time number `further` if there is one."""

    fixed: int = 0
    further: Computed | None = None

    def plus(self, count: Any) -> Total:
        """Return the sum of this total and an integer or run-time number."""
        if type(count) is not NumberProxy:
            return Total(self.fixed + count, self.further)
        if self.further is not None:
            drawn: Any = NumberProxy(self.further.value, self.further, count._numbers)
            count = drawn + count
        return Total(self.fixed, count._source)

    @property
    def value(self) -> int:
        """The total in the present call."""
        value: int = self.fixed + (0 if self.further is None else self.further.value)
        return value


class DrawKey(NamedTuple):
    """A placeholder for the key of a stream of random numbers, with the stream's index in `Draws.totals`."""

    stream: int


class DrawCounter(NamedTuple):
    """A placeholder for the counter of a stream: its value at the launch, plus the total that the body had
    drawn before.
    """

    stream: int
    fixed: int
    further: Computed | None = None


class Draws:
    """The random numbers that a trace has drawn so far.

    totals:   streams, and the total drawn from each; a stream has an entry for each segment that draws from
              it.
    counters: for the segment that is being recorded: the number, the index of its stream, and the total drawn
              before it.
    taken:    (stream, start, total) of the draws of segments that were launched.
    last:     the last operation before a generator of NumPy drew numbers.
    """

    def __init__(self) -> None:
        self.totals: list[tuple[Any, Total]] = []
        self.counters: list[tuple[RuntimeNumber, int, Total]] = []
        self.taken: list[tuple[Any, int, int]] = []
        self.last: Node | None = None

    def draw(self, stream: Any, count: int) -> tuple[RuntimeNumber, RuntimeNumber]:
        """Return the key and the counter for `count` numbers. Replays use the state of the stream at their
        time.
        """
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
        """Return the counter of a stream after the numbers that were `drawn` from it."""
        source = DrawCounter(index, drawn.fixed, drawn.further)
        number = RuntimeNumber((self.totals[index][0].counter + drawn.value) % WORD, source)
        self.counters.append((number, index, drawn))
        return number

    def take(self) -> range:
        """Advance the streams by the numbers drawn since the last look. Threads that share a stream get
        disjoint ranges of it. Returns the indices of these streams in `totals`.
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

    # -- iterations of a loop --------------------------------------------------------------------------------

    def snapshot(self) -> Sequence[Total]:
        """Return the totals at the start of an iteration."""
        return [total for _, total in self.totals]

    def drawn_since(self, before: Sequence[Total]) -> list[int] | None:
        """Return the number of draws from each stream in an iteration that has ended; None if it differs
        between calls.
        """
        if any(now.further is not then.further for (_, now), then in zip(self.totals, before, strict=True)):
            return None
        return [now.fixed - then.fixed for (_, now), then in zip(self.totals, before, strict=True)]

    def add_iterations(self, draws: Sequence[int], iterations: Any) -> None:
        """Add the draws of further `iterations`, with `draws` numbers of each stream per iteration."""
        for index, count in enumerate(draws):
            if count:
                stream, total = self.totals[index]
                self.totals[index] = stream, total.plus(iterations * count)
