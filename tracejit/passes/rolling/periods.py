"""Finding runs that repeat in a row of tokens.

>>> periods = Periods([7, 1, 2, 1, 2, 1, 2, 9])
>>> list(periods.at(1, least=3, below=9))
[(2, 3)]
>>> list(periods.at(0, least=3, below=9))
[]
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

TRIES = 8
"""The most equal tokens that are tried, at each position, as the start of the next round."""

PERIODS = 256
"""The most different periods that are tried in a graph: each takes a pass over its tokens."""


class Periods:
    """The periodic runs of a row of tokens; equal integers are equal tokens."""

    def __init__(self, tokens: Sequence[int]):
        self._tokens = np.array(tokens, np.int64)
        self._row = list(tokens)
        self._next = [-1] * len(self._row)
        last: dict[int, int] = {}
        for i in range(len(self._row) - 1, -1, -1):
            self._next[i] = last.get(self._row[i], -1)
            last[self._row[i]] = i
        self._ends: dict[int, np.ndarray] = {}

    def at(self, start: int, least: int, below: int) -> Iterator[tuple[int, int]]:
        """(period, rounds) of the runs of at least `least` rounds that begin at `start`, short periods
        first, and only those `below` a bound.
        """
        row, count = self._row, len(self._row)
        other = self._next[start]
        for _ in range(TRIES):
            period = other - start
            if other < 0 or period >= below or start + least * period > count:
                return
            some = min(period, 4)
            if (
                row[start : start + some] == row[other : other + some]
                and row[start : start + least * period : period].count(row[start]) == least
            ):
                rounds = self._run(start, period) // period + 1
                if rounds >= least:
                    yield period, rounds
            other = self._next[other]

    def _run(self, start: int, period: int) -> int:
        """The number of tokens from `start` on that are equal to those a period later."""
        ends = self._ends.get(period)
        if ends is None:
            if len(self._ends) >= PERIODS:
                return 0
            differ = np.flatnonzero(self._tokens[:-period] != self._tokens[period:])
            ends = self._ends[period] = np.append(differ, len(self._row) - period)
        return int(ends[ends.searchsorted(start)]) - start
