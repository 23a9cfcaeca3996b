"""Tasks, the steps of a program, and the modes in which a launch uses its arguments."""

# No `from __future__ import annotations`: a named tuple compiles every annotation that is a string.

from collections.abc import Callable, Sequence
from typing import NamedTuple

from tracejit.device_kinds import kind_of
from tracejit.kernels.executor import layout

# Modes of arguments.
NUMBER = layout.NUMBER  # a value; has no variable
READ = layout.READS
WRITE = layout.READS | layout.WRITES  # existing storage, updated; a failing launch preserves its contents
OVERWRITE = layout.WRITES  # existing storage, completely overwritten and not read; clears its poison
FRESH = layout.WRITES | layout.POISONS  # new storage, completely written; a failing launch leaves it poisoned

ARENA = -1
"""The argument of a patch that denotes the instance's arena on device 0; ``ARENA - i``: on device i."""

# Lanes of Python tasks. The lanes of kernels are device numbers.
HOST = layout.HOST
COMMUNICATION = layout.COMMUNICATION

CHUNK_COST = 1 << 14  # estimated cost of a chunk of a task without `cost`


class Task(NamedTuple):
    """One step of a program: a kernel over `units` in chunks of `chunk` units, or a Python callable.

    function: address of ``status = kernel(block, lo, hi, scratch)``. For a Python task 0, or the address of a
              record with which native code that serves its lane runs the task (see `HostPool.take`)
    block:    index of the first slot of its argument block in the program's template
    chunk:    units per call of the kernel; threads process different chunks
    after:    indices of earlier tasks on which it depends
    uses:     indices of the arguments whose variables it uses
    callable: for a Python task; called with the address of its argument block
    priority: among several ready tasks, those of higher priority run first
    cost:     estimated bytes of memory traffic, or equivalent time (0.1 ns each); None: estimated from the
              number of chunks
    lane:     the queue: for a kernel the number of the device whose workers run or issue it; for a Python
              task HOST or COMMUNICATION. None: 0, or HOST
    always:   run this Python task even if its launch has failed; it receives the exception, or None, as an
              additional argument
    asynchronous: the Python task receives `on_complete` as last argument, and ends when that is called
    plain:    the Python task calls no function of the user: it records nothing, and waits for nothing
    prepare:  for a task of a GPU: called with the address of its argument block when an instance is created;
              the instance keeps the result alive
    """

    name: str
    location: str | None
    function: int
    block: int
    units: int
    chunk: int
    after: Sequence[int] = ()
    uses: Sequence[int] = ()
    can_fail: bool = False
    callable: Callable[..., object] | None = None
    priority: int = 0
    cost: int | None = None
    lane: int | None = None
    always: bool = False
    asynchronous: bool = False
    plain: bool = False
    prepare: Callable[[int], object] | None = None

    @property
    def is_issued(self) -> bool:
        """Whether it is issued to a device that executes asynchronously."""
        return self.queue >= 0 and kind_of(self.queue).is_issued

    @property
    def chunks(self) -> int:
        """The number of kernel calls; 0 for a Python task."""
        return 0 if self.callable else -(-self.units // self.chunk)

    @property
    def queue(self) -> int:
        """The number of the task's lane."""
        if self.lane is None:
            return HOST if self.callable else 0
        return self.lane

    @property
    def estimate(self) -> int:
        """The cost: `cost`, or an estimate from the number of chunks."""
        return self.chunks * CHUNK_COST if self.cost is None else self.cost
