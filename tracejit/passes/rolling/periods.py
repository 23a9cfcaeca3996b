"""Detection of periodic runs in a sequence of tokens.

>>> periods = Periods([7, 1, 2, 1, 2, 1, 2, 9])
>>> list(periods.at(1, least=3, below=9))
[(2, 3)]
>>> list(periods.at(0, least=3, below=9))
[]
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

MAX_TRIES = 8
"""The greatest number of equal tokens tried, at each position, as the start of the next repetition."""

MAX_PERIODS = 256
"""The greatest number of different periods tried in a graph: each needs a pass over its tokens."""


class Periods:
    """The periodic runs of a sequence of tokens, which are integers."""

    def __init__(self, tokens: Sequence[int]):
        self._tokens = np.array(tokens, np.int64)
        self._list = list(tokens)
        self._next = [-1] * len(self._list)
        last: dict[int, int] = {}
        for i in range(len(self._list) - 1, -1, -1):
            self._next[i] = last.get(self._list[i], -1)
            last[self._list[i]] = i
        self._ends: dict[int, np.ndarray] = {}

    def at(self, start: int, least: int, below: int) -> Iterator[tuple[int, int]]:
        """Yield (period, repetitions) of the runs that begin at `start`, by increasing period.

        Runs have at least `least` repetitions and a period less than `below`.
        """
        tokens, n_tokens = self._list, len(self._list)
        next_start = self._next[start]
        for _ in range(MAX_TRIES):
            period = next_start - start
            if next_start < 0 or period >= below or start + least * period > n_tokens:
                return
            n_compared = min(period, 4)
            if (
                tokens[start : start + n_compared] == tokens[next_start : next_start + n_compared]
                and tokens[start : start + least * period : period].count(tokens[start]) == least
            ):
                repetitions = self._run(start, period) // period + 1
                if repetitions >= least:
                    yield period, repetitions
            next_start = self._next[next_start]

    def _run(self, start: int, period: int) -> int:
        """The number of tokens from `start` on that are equal to the tokens one period later."""
        ends = self._ends.get(period)
        if ends is None:
            if len(self._ends) >= MAX_PERIODS:
                return 0
            differ = np.flatnonzero(self._tokens[:-period] != self._tokens[period:])
            ends = self._ends[period] = np.append(differ, len(self._list) - period)
        return int(ends[ends.searchsorted(start)]) - start
