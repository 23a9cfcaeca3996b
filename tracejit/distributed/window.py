"""Memory that the ranks of one machine share: each writes into a part of its own, all read all parts.

    place = window.store({1: slice, 2: other})     # where ranks 1 and 2 find what this one gives them
    window.notices.tell(1, key, place[1])
    ...
    part = window.look(0, place, like)             # on rank 1: an array on rank 0's memory
    window.leave(0, place)                         # it has been read

A rank's part begins with notices; the rest are *blocks*. One is lent for what is stored at once; its *head*
has a byte for each rank of the machine, which that rank sets when it has read. When all bytes are set the
block is free. A few are lent in turn: to write where another processor has just read costs several times as
much as where its cache has forgotten what it read, and many blocks would not stay in this one's. Where all
are lent or arrays are larger than one, `store` says that there is no place, and they travel as messages: no
rank waits for memory, so ranks that exchange in different orders cannot wait for one another.

MPI allocates the memory, and its `Sync` is the fence that orders what processors do to it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tracejit.distributed.notices import Notices, words_of

BLOCK = 4 << 20
"""Bytes of arrays in a block."""

TURN = 4
"""Blocks that are lent in turn, as long as they are enough."""

LINE = 64


class Window:
    """The shared memory of `ranks`, which are numbers in the world; `rank`: this one.

    mpi:    a window of mpi4py, for `Sync`.
    memory: the part of each rank, of equal sizes; zero at first.
    blocks: how many a rank has.
    """

    def __init__(self, mpi: Any, ranks: Sequence[int], rank: int, memory: Sequence[np.ndarray]) -> None:
        self.peers = frozenset(ranks) - {rank}
        self._fence = mpi.Sync
        self._keep = mpi
        self._memory = dict(zip(ranks, memory, strict=True))
        self._mine = self._memory[rank]
        self._seats = {number: seat for seat, number in enumerate(ranks)}  # of the bytes of a head
        self._seat = self._seats[rank]
        self._head, self._start = _whole_lines(len(ranks)), 8 * words_of(len(ranks))
        words = {number: part[: self._start].view(np.int64) for number, part in self._memory.items()}
        self.notices = Notices(rank, words, self._fence)
        self._size = self._head + BLOCK
        self._bytes = self._mine.data
        self._all_read = bytes([1]) * self._head
        blocks = list(range(self._start, len(self._mine) - self._size + 1, self._size))
        self._free, self._spare = deque(blocks[:TURN]), blocks[TURN:]
        self._lent: list[int] = []
        self.blocks = len(blocks)

    @classmethod
    def allocate(cls, world: Any, nbytes: int) -> Window | None:
        """The window of the ranks of `world` on this machine, with blocks in `nbytes` for each; None where
        this one is alone, or no block has room. All ranks call it.
        """
        from mpi4py import MPI  # which has been started

        local = world.Split_type(MPI.COMM_TYPE_SHARED)
        blocks = nbytes // BLOCK
        if local.size == 1 or blocks == 0:
            local.Free()
            return None
        size = 8 * words_of(local.size) + blocks * (BLOCK + _whole_lines(local.size))
        mpi = MPI.Win.Allocate_shared(size, 1, MPI.INFO_NULL, local)
        mpi.Lock_all(MPI.MODE_NOCHECK)
        parts: list[Any] = [mpi.Shared_query(seat)[0] for seat in range(local.size)]
        memory = [np.frombuffer(memoryview(part), np.uint8) for part in parts]
        memory[local.rank][: 8 * words_of(local.size)] = 0
        mpi.Sync()
        local.Barrier()
        ranks = local.Get_group().Translate_ranks(range(local.size), world.Get_group())
        return cls(mpi, list(ranks), world.rank, memory)

    # -- of this rank's memory -------------------------------------------------------------------------------

    def store(self, arrays: Mapping[int, np.ndarray]) -> dict[int, int]:
        """Copy each array for the rank that shall read it; the places by rank, none without room. An array
        for several ranks is copied once. The fence is that of a notice.
        """
        sizes = {id(array): _whole_lines(array.nbytes) for array in arrays.values()}
        if sum(sizes.values()) > BLOCK:
            return {}
        block = self._take()
        if block is None:
            return {}
        mine, seats = self._mine, self._seats
        head, at = bytearray(self._all_read), block + self._head
        stored: dict[int, int] = {}
        places: dict[int, int] = {}
        for reader, array in arrays.items():
            head[seats[reader]] = 0
            number = id(array)
            if number not in stored:
                mine[at : at + array.nbytes] = array.view(np.uint8)
                stored[number] = at
                at += sizes[number]
            places[reader] = stored[number]
        self._bytes[block : block + self._head] = head
        self._lent.append(block)
        return places

    def _take(self) -> int | None:
        """A block that nobody reads any more."""
        if not self._free:
            read = [
                block for block in self._lent if self._bytes[block : block + self._head] == self._all_read
            ]
            self._fence()
            self._lent = [block for block in self._lent if block not in read]
            self._free.extend(read)
        if self._free:
            return self._free.popleft()
        return self._spare.pop() if self._spare else None

    # -- of the others' memory -------------------------------------------------------------------------------

    def look(self, rank: int, place: int, like: np.ndarray) -> np.ndarray:
        """What `rank` has stored there, of the size and dtype of `like`."""
        return self._memory[rank][place : place + like.nbytes].view(like.dtype)

    def leave(self, rank: int, place: int) -> None:
        """Note that this rank has read what `rank` has stored there."""
        self._fence()
        block = place - (place - self._start) % self._size
        self._memory[rank][block + self._seat] = 1


def _whole_lines(nbytes: int) -> int:
    return -(-nbytes // LINE) * LINE
