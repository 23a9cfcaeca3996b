"""Memory that the ranks of one machine share: each rank writes its own segment and reads all segments.

    offsets = window.store({1: slice, 2: other})   # of the copies for ranks 1 and 2 in this rank's segment
    window.notices.send(1, key, offsets[1])
    ...
    array = window.view(0, offset, like)           # on rank 1: an array in rank 0's segment
    window.mark_read(0, offset)                    # after it has been read

    exchange = window.exchange(array, "sum", members, key, replicated=False)     # a complete exchange

A segment begins with rings of notices, followed by *blocks*. One call of `store` uses one block. The *head*
of a block has a flag for each rank of the machine, which that rank sets after it has read the block. A block
whose flags are all set is free. Only a few blocks are used in rotation: writing to cache lines that another
processor has just read costs several times as much as after its cache has evicted them, but many blocks would
not fit this processor's cache. If no block is free, or the arrays are larger than a block, `store` returns no
offsets and the arrays are sent as messages. No rank waits for memory, so ranks that begin exchanges in
different orders cannot deadlock.

An exchange of a large array needs no block. If a thread waits for it, it passes in tiles through a *stage*;
otherwise, where the system lets processes read one another's memory, arrays are combined without copies.

MPI allocates the memory. The `board` records its state; native code advances the exchanges of common dtypes
when it polls the board, and passes their notices to an emulated link if there is one.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from tracejit.distributed.board import Board
from tracejit.distributed.native_exchange import KINDS, NativeExchange
from tracejit.distributed.notices import Notices
from tracejit.distributed.plans import ExchangePlan
from tracejit.kernels.ranks.layout import DIRECT, IN_BLOCKS, LINE, STAGED, head_bytes, start_bytes

BLOCK = 4 << 20
"""Bytes of a block, without its head."""

STAGED_BYTES, STAGED_RANKS = 1 << 17, 32
"""Minimum bytes and maximum ranks of an exchange through the stage, if a thread waits for it. The tiles of a
stage get smaller with the number of ranks.
"""

DIRECT_BYTES = (1 << 20) + 1
"""Minimum bytes of other arrays that are read directly from the memory of their process, where permitted.
Below, two copies are cheaper than the system calls and one additional notice, whose handling is delayed by
concurrent kernels.
"""

ROTATION = 4
"""Blocks that are used in rotation as long as they suffice."""

CONCURRENT = 2
"""Exchanges of a task that can be in flight simultaneously, of different launches."""


class SharedWindow:
    """The shared memory of `ranks` of the world, one of which is this rank, `rank`.

    mpi:       the window of mpi4py that owns the memory; it is kept alive.
    memory:    the segment of each rank, of equal sizes, initially zero.
    processes: the process identifier of each rank if they may read one another's memory.
    blocks:    number of blocks of a segment.
    reads:     whether large arrays are read from the memory of their process; the same on all ranks.
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
        self._board = Board(memory, seat, start, self._head + BLOCK, ROTATION, processes)
        self.reads = bool(processes)
        self.notices = Notices(self._board, self._seats)
        self.blocks = self._board.blocks
        self.attach_link = self._board.attach_link
        self._in_flight: set[NativeExchange] = set()  # kept alive: native code accesses their memory
        self._free: dict[tuple[int, ...], list[NativeExchange]] = {}  # records for reuse, by members
        self._plans: WeakValueDictionary[int, ExchangePlan] = (
            WeakValueDictionary()
        )  # by address of an exchange

    @classmethod
    def allocate(cls, world: Any, nbytes: int, *, direct: bool = True) -> SharedWindow | None:
        """Allocate the window of the ranks of `world` on this machine. All ranks must call it.

        nbytes: for the blocks of each rank.
        direct: whether to read large arrays from the memory of their process if the system permits it.
        Returns None if this rank is the only one of its machine, or `nbytes` is less than a block.
        """
        from mpi4py import MPI  # `world` exists, so MPI is initialised

        local = world.Split_type(MPI.COMM_TYPE_SHARED)
        blocks = nbytes // BLOCK
        if local.size == 1 or blocks == 0:
            local.Free()
            return None
        start = start_bytes(local.size)
        size = start + blocks * (BLOCK + head_bytes(local.size))
        mpi = MPI.Win.Allocate_shared(size, 1, MPI.INFO_NULL, local)
        mpi.Lock_all(MPI.MODE_NOCHECK)
        segments: list[Any] = [mpi.Shared_query(seat)[0] for seat in range(local.size)]
        memory = [np.frombuffer(memoryview(segment), np.uint8) for segment in segments]
        memory[local.rank][:start] = 0
        mpi.Sync()
        local.Barrier()
        ranks = local.Get_group().Translate_ranks(range(local.size), world.Get_group())
        window = cls(mpi, list(ranks), world.rank, memory, local.allgather(os.getpid()))
        window.reads = local.allreduce(direct and window._can_read(local), MPI.LAND)
        return window

    def _can_read(self, local: Any) -> bool:
        """Whether this process can read the memory of the other processes, all of which must call this."""
        token, buffer = np.frombuffer(os.urandom(16), np.uint8).copy(), np.zeros(16, np.uint8)
        tokens = local.allgather((token.ctypes.data, token.tobytes()))
        readable = True
        for seat, (address, expected) in enumerate(tokens):
            readable &= (
                self._board.read(seat, buffer.ctypes.data, address, 16) and buffer.tobytes() == expected
            )
        local.Barrier()  # the tokens must exist until all ranks have read them
        return readable

    # -- this rank's segment ---------------------------------------------------------------------------------

    def store(self, arrays: Mapping[int, np.ndarray]) -> dict[int, int]:
        """Copy arrays into a block, each for the rank that is its key; return the offsets by rank.

        An array for several ranks is copied once. The result is empty if the arrays exceed a block, or if no
        block is free.
        """
        sizes = {id(array): _round_to_lines(array.nbytes) for array in arrays.values()}
        if sum(sizes.values()) > BLOCK:
            return {}
        block = self._board.acquire_block()
        if block is None:
            return {}
        offset = block + self._head
        offset_of: dict[int, int] = {}
        offsets: dict[int, int] = {}
        for reader, array in arrays.items():
            self._board.add_reader(block, self._seats[reader])
            identity = id(array)
            if identity not in offset_of:
                self._mine[offset : offset + array.nbytes] = array.view(np.uint8)
                offset_of[identity] = offset
                offset += sizes[identity]
            offsets[reader] = offset_of[identity]
        return offsets

    def exchange(
        self,
        array: np.ndarray,
        combine: str,
        members: tuple[int, ...],
        key: int,
        priority: int = 0,
        *,
        replicated: bool,
        in_order: bool = False,
        patience: float = 0.0,
    ) -> NativeExchange | None:
        """Begin to combine a contiguous array, in place, with those of the other members.

        members:  ranks that have a segment of this memory.
        priority: of its notices on an emulated link.
        replicated: whether each member combines the complete array, instead of one slice of it.
        in_order: whether a thread waits for it, and all ranks begin such exchanges in the same order.
        patience: seconds for which to advance all exchanges, until none is in flight.
        Returns None if native code does not implement the reduction, or no block is free.
        """
        kind = KINDS.get((array.dtype, combine))
        mode = self._mode(array.nbytes, len(members), in_order=in_order)
        if kind is None or (array.nbytes > BLOCK and mode == IN_BLOCKS):
            return None
        free = self._free.setdefault(members, [])
        exchange = (
            free.pop() if free else NativeExchange(self._board, members, [self._seats[m] for m in members])
        )
        self._in_flight.add(exchange)
        begun = False
        try:
            begun = exchange.begin(
                array, kind, key, priority, replicated=replicated, mode=mode, patience=patience
            )
        finally:
            if not begun:
                self.retire(exchange)
        return exchange if begun else None

    def _mode(self, nbytes: int, members: int, *, in_order: bool) -> int:
        """The transfer mode of an array of `nbytes`; the same on all ranks."""
        if in_order and nbytes >= STAGED_BYTES and members <= STAGED_RANKS:
            return STAGED
        return DIRECT if self.reads and nbytes >= DIRECT_BYTES else IN_BLOCKS

    def retire(self, exchange: NativeExchange) -> None:
        """Cancel an exchange unless it has ended, and keep its record for reuse."""
        exchange.cancel()
        if exchange.prepared:
            self._plans[exchange.address].release(exchange)
        else:
            self._in_flight.discard(exchange)
            self._free[exchange.members].append(exchange)

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
        replicated: bool,
    ) -> ExchangePlan | None:
        """The plan by which tasks begin exchanges of arrays of so many elements.

        Returns None if native code does not implement the reduction, if the arrays need a block and exceed
        it, or if a member has no segment of this memory.
        """
        kind = KINDS.get((dtype, combine))
        nbytes = sum(sizes) * dtype.itemsize
        mode = self._mode(nbytes, len(members), in_order=False)
        if kind is None or (mode == IN_BLOCKS and (not self.blocks or nbytes > BLOCK)):
            return None
        if not self.ranks.issuperset(members):
            return None
        seats = [self._seats[m] for m in members]
        exchanges = [NativeExchange(self._board, members, seats) for _ in range(CONCURRENT)]
        plan = ExchangePlan(
            exchanges, sizes, dtype, kind, priority, first, tag, replicated=replicated, mode=mode
        )
        for exchange in exchanges:
            self._plans[exchange.address] = plan
        return plan

    @property
    def is_busy(self) -> bool:
        """Whether exchanges are in flight, or have stopped and wait for Python to take over."""
        return self._board.is_busy

    def begin_in_python(self) -> None:
        """Stop native code from beginning tasks."""
        self._board.begin_in_python()

    def take_over(self, deadline: float) -> tuple[int, NativeExchange] | None:
        """Take over the next exchange of a task that has stopped, or was begun before `deadline` (seconds).

        Returns the address of its task, which native code will not end any more, and the exchange; None if
        there is none.
        """
        address = self._board.take_over(deadline)
        if address == 0:
            return None
        exchange = self._plans[address].exchanges[address]
        task = exchange.task
        exchange.take_over()
        return task, exchange

    def tasks(self) -> list[int]:
        """The addresses of the tasks that native code has begun and not ended."""
        plans = list(self._plans.items())
        return [task for address, plan in plans if (task := plan.exchanges[address].task)]

    # -- the segments of other ranks -------------------------------------------------------------------------

    def view(self, rank: int, notice: int, like: np.ndarray) -> np.ndarray:
        """View the array, of the size and dtype of `like`, whose offset is in a notice of `rank`."""
        offset = notice & ~1  # the lowest bit is the phase
        return self._memory[rank][offset : offset + like.nbytes].view(like.dtype)

    def mark_read(self, rank: int, notice: int) -> None:
        """Note that this rank has read the array whose offset is in a notice of `rank`."""
        self._board.mark_read(self._seats[rank], notice)


def _round_to_lines(nbytes: int) -> int:
    return -(-nbytes // LINE) * LINE
