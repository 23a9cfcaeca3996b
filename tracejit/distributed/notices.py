"""Short notices between ranks of one machine, through memory that they share.

    notices.tell(1, key, word)      # on rank 0
    notices.poll()                  # on both, again and again
    notices.next_of(0, key)         # on rank 1: the word, or None before it has come

For each pair of ranks the sender's part of the memory holds a ring of (key, word) and counts what it has
written; the reader's part counts what has been read. So each word has one writer. What finds the ring full
waits in the sender. Notices with the same key keep their order. A *fence* stands between what is counted and
the count.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping

import numpy as np

ROOM = 64
"""Notices in a ring."""

LINE = 8
"""Words of a cache line, which a count has for itself."""


def words_of(ranks: int) -> int:
    """How many words each of so many ranks needs."""
    return ranks * (2 * LINE + 2 * ROOM)


class Notices:
    """The notices of rank `rank`.

    parts: the memory of each rank, `words_of` int64 each, all zero before the first notice; in the same order
           on all ranks.
    fence: orders what was written or read before it against what is after it.
    """

    def __init__(self, rank: int, parts: Mapping[int, np.ndarray], fence: Callable[[], object]) -> None:
        seats = {number: seat for seat, number in enumerate(parts)}
        self._fence = fence
        self._out, self._in = {}, {}
        for peer in parts:
            if peer != rank:
                self._out[peer] = _Ring(parts[rank], parts[peer], seats[peer], seats[rank])
                self._in[peer] = _Ring(parts[peer], parts[rank], seats[rank], seats[peer])
        self._waiting: dict[int, deque[tuple[int, int]]] = {peer: deque() for peer in self._out}
        self._heard: dict[tuple[int, int], deque[int]] = {}

    def tell(self, peer: int, key: int, word: int) -> None:
        """Have `peer` read a word."""
        ring, waiting = self._out[peer], self._waiting[peer]
        if waiting or ring.count - ring.read[0] >= ROOM:
            waiting.append((key, word))
            return
        ring.put(key, word)
        self._fence()
        ring.written[0] = ring.count

    def _flush(self, peer: int) -> None:
        ring, waiting = self._out[peer], self._waiting[peer]
        room = ROOM - (ring.count - ring.read[0])
        if waiting and room:
            for _ in range(min(room, len(waiting))):
                ring.put(*waiting.popleft())
            self._fence()
            ring.written[0] = ring.count

    def poll(self) -> None:
        """Read what has come, and write what waits for room."""
        for peer, ring in self._in.items():
            count = ring.written[0]
            if count != ring.count:
                self._fence()
                while ring.count < count:
                    key, word = ring.get()
                    self._heard.setdefault((peer, key), deque()).append(word)
                self._fence()
                ring.read[0] = count
        for peer, waiting in self._waiting.items():
            if waiting:
                self._flush(peer)

    def next_of(self, peer: int, key: int) -> int | None:
        """The next word that `peer` has told with this key, or None."""
        heard = self._heard.get((peer, key))
        if heard is None:
            return None
        word = heard.popleft()
        if not heard:
            del self._heard[peer, key]
        return word


class _Ring:
    """What one rank tells another. written, read: one word each, the counts of both. count: this side's."""

    __slots__ = ("_entries", "count", "read", "written")

    def __init__(self, sender: np.ndarray, reader: np.ndarray, to: int, by: int) -> None:
        """The ring in the memory of `sender` for the one with seat `to`; `by`: the seat of the sender."""
        size = LINE + 2 * ROOM
        start = to * size
        self.written = sender[start : start + 1].data
        self._entries = sender[start + LINE : start + size].data
        counts = len(reader) // (size + LINE) * size + by * LINE  # behind the rings
        self.read = reader[counts : counts + 1].data
        self.count = 0

    def put(self, key: int, word: int) -> None:
        at = self.count % ROOM * 2
        self._entries[at], self._entries[at + 1] = key, word
        self.count += 1

    def get(self) -> tuple[int, int]:
        at = self.count % ROOM * 2
        self.count += 1
        return self._entries[at], self._entries[at + 1]
