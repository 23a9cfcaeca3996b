"""Memory that the ranks of one machine share: each writes into a part of its own, all read all parts.

    place = window.store({1: slice, 2: other})     # where ranks 1 and 2 find what this one gives them
    window.notices.tell(1, key, place[1])
    ...
    part = window.look(0, place, like)             # on rank 1: an array on rank 0's memory
    window.leave(0, place)                         # it has been read

    near = window.exchange(array, "sum", members, key, whole=False)     # the same for a whole exchange

A rank's part begins with notices; the rest are *blocks*. One is lent for what is stored at once; its *head*
has a word for each rank of the machine, which that rank sets when it has read. When all words are set the
block is free. A few are lent in turn: to write where another processor has just read costs several times as
much as where its cache has forgotten what it read, and many blocks would not stay in this one's. Where all
are lent or arrays are larger than one, `store` says that there is no place, and they travel as messages: no
rank waits for memory, so ranks that exchange in different orders cannot wait for one another.

An exchange of a large array needs no block. One that a thread waits for goes piece by piece through a
*stage*; others, where the system lets processes read one another's memory, are combined where they lie.

MPI allocates the memory. What is known of it lies on a `board`, where machine code moves exchanges of common
dtypes from step to step while it polls, and gives their notices to an imitated link if there is one.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from tracejit.distributed.board import Board
from tracejit.distributed.near import KINDS, Near
from tracejit.distributed.notices import Notices
from tracejit.distributed.plans import ExchangePlan
from tracejit.kernels.ranks.layout import DIRECT, IN_BLOCKS, LINE, STAGED, head_bytes, start_bytes

BLOCK = 4 << 20
"""Bytes of arrays in a block."""

LARGE, MOST_RANKS = 1 << 17, 32
"""Bytes of an array from which on it goes piece by piece if a thread waits for it, and up to how many ranks:
pieces are the smaller the more there are.
"""

READ = (1 << 20) + 1
"""Bytes from which on other arrays are read where they lie, where processes may. To read takes calls of the
system and one more notice, and beside kernels also a turn for that notice, which outweighs two copies up to
here.
"""

TURN = 4
"""Blocks that are lent in turn, as long as they are enough."""

PREPARED = 2
"""Exchanges of a task that can be under way at once, of different launches."""


class SharedWindow:
    """The shared memory of `ranks`, which are numbers in the world; `rank`: this one.

    mpi:    what keeps the memory, a window of mpi4py.
    memory: the part of each rank, of equal sizes; zero at first.
    processes: the numbers of theirs, if they may read one another's memory.
    blocks: how many a rank has. reads: whether large arrays are read where they lie; the same on all ranks.
    """

    def __init__(
        self,
        mpi: Any,
        ranks: Sequence[int],
        rank: int,
        memory: Sequence[np.ndarray],
        processes: Sequence[int] = (),
    ) -> None:
        self.ranks = frozenset(ranks)
        self.peers = self.ranks - {rank}
        self._keep = mpi
        self._memory = dict(zip(ranks, memory, strict=True))
        self._mine = self._memory[rank]
        self._seats = {number: seat for seat, number in enumerate(ranks)}
        self._head = head_bytes(len(ranks))
        seat, start = self._seats[rank], start_bytes(len(ranks))
        self._board = Board(memory, seat, start, self._head + BLOCK, TURN, processes)
        self.reads = bool(processes)
        self.notices = Notices(self._board, self._seats)
        self.blocks = self._board.blocks
        self.imitate = self._board.imitate
        self._begun: set[Near] = set()  # machine code writes to their memory
        self._ended: dict[tuple[int, ...], list[Near]] = {}  # exchanges that have ended, by members
        self._plans: WeakValueDictionary[int, ExchangePlan] = (
            WeakValueDictionary()
        )  # by address of an exchange

    @classmethod
    def allocate(cls, world: Any, nbytes: int, *, direct: bool = True) -> SharedWindow | None:
        """The window of the ranks of `world` on this machine, with blocks in `nbytes` for each; None where
        this one is alone, or no block has room. All ranks call it.

        direct: whether large arrays are read where they lie, if the system lets ranks do that.
        """
        from mpi4py import MPI  # which has been started

        local = world.Split_type(MPI.COMM_TYPE_SHARED)
        blocks = nbytes // BLOCK
        if local.size == 1 or blocks == 0:
            local.Free()
            return None
        start = start_bytes(local.size)
        size = start + blocks * (BLOCK + head_bytes(local.size))
        mpi = MPI.Win.Allocate_shared(size, 1, MPI.INFO_NULL, local)
        mpi.Lock_all(MPI.MODE_NOCHECK)
        parts: list[Any] = [mpi.Shared_query(seat)[0] for seat in range(local.size)]
        memory = [np.frombuffer(memoryview(part), np.uint8) for part in parts]
        memory[local.rank][:start] = 0
        mpi.Sync()
        local.Barrier()
        ranks = local.Get_group().Translate_ranks(range(local.size), world.Get_group())
        window = cls(mpi, list(ranks), world.rank, memory, local.allgather(os.getpid()))
        window.reads = local.allreduce(direct and window._can_read(local), MPI.LAND)
        return window

    def _can_read(self, local: Any) -> bool:
        """Whether this process can read the memory of the others, which call this, too."""
        mark, found = np.frombuffer(os.urandom(16), np.uint8).copy(), np.zeros(16, np.uint8)
        marks = local.allgather((mark.ctypes.data, mark.tobytes()))
        good = True
        for seat, (address, expected) in enumerate(marks):
            good &= self._board.read(seat, found.ctypes.data, address, 16) and found.tobytes() == expected
        local.Barrier()  # until then the marks stay
        return good

    # -- of this rank's memory -------------------------------------------------------------------------------

    def store(self, arrays: Mapping[int, np.ndarray]) -> dict[int, int]:
        """Copy each array for the rank that shall read it; the places by rank, none without room. An array
        for several ranks is copied once.
        """
        sizes = {id(array): _whole_lines(array.nbytes) for array in arrays.values()}
        if sum(sizes.values()) > BLOCK:
            return {}
        block = self._board.lend()
        if block is None:
            return {}
        at = block + self._head
        stored: dict[int, int] = {}
        places: dict[int, int] = {}
        for reader, array in arrays.items():
            self._board.expect(block, self._seats[reader])
            number = id(array)
            if number not in stored:
                self._mine[at : at + array.nbytes] = array.view(np.uint8)
                stored[number] = at
                at += sizes[number]
            places[reader] = stored[number]
        return places

    def exchange(
        self,
        array: np.ndarray,
        combine: str,
        members: tuple[int, ...],
        key: int,
        priority: int = 0,
        *,
        whole: bool,
        in_order: bool = False,
        patience: float = 0.0,
    ) -> Near | None:
        """Begin to combine a contiguous array, where it lies, with those of other ranks; all `members` have a
        part of this memory.

        priority: on an imitated link. whole: all combine the whole array; else each a slice.
        in_order: whether a thread waits for it, and all ranks begin such exchanges in the same order.
        patience: seconds to go on with it, and all others, until none is under way.
        None for what machine code does not combine, and where no block is free.
        """
        kind = KINDS.get((array.dtype, combine))
        way = self._way(array.nbytes, len(members), in_order=in_order)
        if kind is None or (array.nbytes > BLOCK and way == IN_BLOCKS):
            return None
        ended = self._ended.setdefault(members, [])
        near = ended.pop() if ended else Near(self._board, members, [self._seats[m] for m in members])
        self._begun.add(near)
        begun = False
        try:
            begun = near.begin(array, kind, key, priority, whole=whole, way=way, patience=patience)
        finally:
            if not begun:
                self.forget(near)
        return near if begun else None

    def _way(self, nbytes: int, members: int, *, in_order: bool) -> int:
        """The way of an array of so many bytes; the same on all ranks."""
        if in_order and nbytes >= LARGE and members <= MOST_RANKS:
            return STAGED
        return DIRECT if self.reads and nbytes >= READ else IN_BLOCKS

    def forget(self, near: Near) -> None:
        """Cancel an exchange, unless it has ended; the object stands for another one later."""
        near.cancel()
        if near.prepared:
            self._plans[near.address].release(near)
        else:
            self._begun.discard(near)
            self._ended[near.members].append(near)

    # -- exchanges of tasks ----------------------------------------------------------------------------------

    def plan(
        self,
        sizes: Sequence[int],
        dtype: np.dtype,
        combine: str,
        members: tuple[int, ...],
        priority: int,
        first: int,
        tag: int,
        *,
        whole: bool,
    ) -> ExchangePlan | None:
        """The plan by which tasks begin exchanges of arrays of so many elements; None where
        machine code does not combine them, or some of `members` have no part of this memory.
        """
        kind = KINDS.get((dtype, combine))
        nbytes = sum(sizes) * dtype.itemsize
        way = self._way(nbytes, len(members), in_order=False)
        if kind is None or (way == IN_BLOCKS and (not self.blocks or nbytes > BLOCK)):
            return None
        if not self.ranks.issuperset(members):
            return None
        seats = [self._seats[m] for m in members]
        nears = [Near(self._board, members, seats) for _ in range(PREPARED)]
        plan = ExchangePlan(nears, sizes, dtype, kind, priority, first, tag, whole=whole, way=way)
        for near in nears:
            self._plans[near.address] = plan
        return plan

    @property
    def is_busy(self) -> bool:
        """Whether exchanges are under way, or have stopped and are not taken over."""
        return self._board.is_busy

    def begin_in_python(self) -> None:
        """Have machine code begin no more tasks."""
        self._board.begin_in_python()

    def take_over(self, before: float) -> tuple[int, Near] | None:
        """The next exchange of a task that has stopped, or was begun before a time in seconds: the address of
        its task, which machine code does not end any more, and the exchange. None if there is none.
        """
        address = self._board.take_over(before)
        if address == 0:
            return None
        near = self._plans[address].nears[address]
        task = near.task
        near.take_over()
        return task, near

    def tasks(self) -> list[int]:
        """The addresses of the tasks that machine code has begun and not ended."""
        plans = list(self._plans.items())
        return [task for address, plan in plans if (task := plan.nears[address].task)]

    # -- of the others' memory -------------------------------------------------------------------------------

    def look(self, rank: int, place: int, like: np.ndarray) -> np.ndarray:
        """The array that `rank` has stored at `place`, of the size and dtype of `like`."""
        at = place & ~1  # without the phase
        return self._memory[rank][at : at + like.nbytes].view(like.dtype)

    def leave(self, rank: int, place: int) -> None:
        """Note that this rank has read what `rank` has stored there."""
        self._board.leave(self._seats[rank], place)


def _whole_lines(nbytes: int) -> int:
    return -(-nbytes // LINE) * LINE
