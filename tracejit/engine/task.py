"""The parts of a program: tasks, and the modes in which a launch uses its arguments."""

# No `from __future__ import annotations`: a named tuple compiles every annotation that is a string.

from collections.abc import Callable, Sequence
from typing import NamedTuple

from tracejit.device_kinds import kind_of
from tracejit.kernels.executor import layout

# Modes of arguments.
NUMBER = layout.NUMBER  # a value; has no variable
READ = layout.READS
WRITE = layout.READS | layout.WRITES  # existing storage, updated; a failing launch keeps its content
OVERWRITE = layout.WRITES  # existing storage, completely overwritten and not read: ends its poison
FRESH = layout.WRITES | layout.POISONS  # new storage, completely written; a failing launch leaves it poisoned

ARENA = -1
"""The argument of a patch that stands for the instance's arena on device 0; ``ARENA - i``: on device i."""

# Lanes of Python tasks; those of kernels are the numbers of devices.
HOST = layout.HOST
COMMUNICATION = layout.COMMUNICATION

CHUNK_COST = 1 << 14  # cost of a chunk of a task without `cost`


class Task(NamedTuple):
    """One step of a program: a kernel over `units` in pieces of `chunk`, or a Python callable.

    function: address of ``status = kernel(block, lo, hi, scratch)``; of a Python task, 0, or that of a record
              by which machine code that takes tasks of its lane runs it (see `Hosts.take`)
    block:    index of the first slot of its argument block in the program's template
    chunk:    units per call of the kernel; different threads take different chunks
    after:    indices of earlier tasks that must have ended
    uses:     indices of the arguments whose variables it needs
    callable: for a Python task, called with the address of its argument block
    priority: tasks of higher priority run first, when several are ready
    cost:     estimated bytes of memory traffic, or as much time (0.1 ns each); None: estimated by the chunks
    lane:     where it queues: the number of the device whose workers run or issue a kernel; HOST or
              COMMUNICATION for a Python task. None: 0, or HOST
    always:   a Python task runs although its launch has failed; it gets the exception, or None, as one more
              argument
    asynchronous: a Python task gets `on_complete` as a last argument, and ends when that is called
    prepare:  of a GPU's task: called with the address of its argument block when an instance is made; the
              instance refers to what it returns
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
    prepare: Callable[[int], object] | None = None

    @property
    def is_issued(self) -> bool:
        """Whether it runs on a device with a clock of its own."""
        return self.queue >= 0 and kind_of(self.queue).is_issued

    @property
    def chunks(self) -> int:
        """The number of calls of the kernel."""
        return 0 if self.callable else -(-self.units // self.chunk)

    @property
    def queue(self) -> int:
        """The number of its lane."""
        if self.lane is None:
            return HOST if self.callable else 0
        return self.lane

    @property
    def estimate(self) -> int:
        """The cost: `cost`, or an estimate by the chunks."""
        return self.chunks * CHUNK_COST if self.cost is None else self.cost
