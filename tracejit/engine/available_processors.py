"""The processors that this process may use, by affinity and cgroup, and their memory model.

>>> processors() >= 1
True
"""

from __future__ import annotations

import ctypes
import math
import os
import pathlib
import sys

ORDERED = os.uname().machine == "x86_64"
"""Whether a normal load has acquire order."""

PAGE = os.sysconf("SC_PAGE_SIZE")  # bytes

SPIN = 50_000  # nanoseconds that an idle thread spins before it sleeps

POPULATE = 23  # Linux: MADV_POPULATE_WRITE

SCHEDULING = {"x86_64": (315, 314), "aarch64": (275, 274)}  # Linux: sched_getattr, sched_setattr

TURN = 100_000  # nanoseconds, the least that Linux takes

_CGROUP = pathlib.Path("/sys/fs/cgroup")


def _first_line(path: pathlib.Path) -> str:
    try:
        return path.read_text().splitlines()[0]
    except (OSError, IndexError):  # no such controller on this machine
        return ""


def _quota() -> float:
    """Processors that the cgroup allows (version 2, else version 1); infinity without a bound."""
    folder = _CGROUP
    for line in _lines(pathlib.Path("/proc/self/cgroup")):
        if line.startswith("0::"):
            folder = _CGROUP / line[3:].strip().lstrip("/")
    bounds = [math.inf]
    while folder.is_relative_to(_CGROUP):
        quota, _, period = _first_line(folder / "cpu.max").partition(" ")
        if quota.isdigit() and period.isdigit():
            bounds.append(int(quota) / int(period))
        folder = folder.parent
    quota = _first_line(_CGROUP / "cpu" / "cpu.cfs_quota_us")
    period = _first_line(_CGROUP / "cpu" / "cpu.cfs_period_us")
    if quota.isdigit() and period.isdigit():  # -1: no bound
        bounds.append(int(quota) / int(period))
    return min(bounds)


def _lines(path: pathlib.Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:  # not Linux
        return []


def processors() -> int:
    """Processors that this process may use.

    >>> import tracejit as tj
    >>> tj.engine.processors() >= 1
    True
    """
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    count = allowed or 1
    return max(1, min(count, math.ceil(min(_quota(), count))))


def spare_processors() -> int:
    """Processors besides the one of the calling thread: the default number of workers."""
    return processors() - 1


_sharing = [1]


def share_processors(processes: int) -> None:
    """Note that so many processes, with this one, use the processors."""
    _sharing[0] = processes


def spin_time(workers: int) -> int:
    """Nanoseconds that idle threads spin: 0 when there are more threads than processors for this process."""
    return SPIN if workers < processors() // _sharing[0] else 0


def crowded(workers: int) -> bool:
    """Whether other processes use the processors that threads besides these workers would compute on."""
    return _sharing[0] > 1 and workers * _sharing[0] >= processors()


def take_short_turns() -> None:
    """Ask the system to let the calling thread run soon after it wakes up, and not for long (Linux 6.12 or
    newer). Where all processors compute, it would wait for the end of another thread's turn, milliseconds.
    """
    numbers = SCHEDULING.get(os.uname().machine) if sys.platform == "linux" else None
    if numbers is None:
        return
    get, put = numbers
    # struct sched_attr: size and policy, flags, nice and priority, nanoseconds of a turn, ...
    attributes = (ctypes.c_uint64 * 7)()
    size = ctypes.sizeof(attributes)
    if _syscall(get, 0, ctypes.byref(attributes), size, 0) == 0 and attributes[0] >> 32 == 0:
        attributes[3] = TURN
        _syscall(put, 0, ctypes.byref(attributes), 0)


def populate(address: int, nbytes: int) -> None:
    """Have the system map the pages of memory that will be written soon, all at once: page faults one by one,
    in several threads, take longer. Does nothing on systems without this call.
    """
    if sys.platform == "linux":
        first, stop = address + -address % PAGE, address + nbytes
        _madvise(first, max(0, stop - first) // PAGE * PAGE, POPULATE)


_syscall = ctypes.CDLL(None).syscall

_madvise = ctypes.CDLL(None).madvise
_madvise.argtypes = (ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int)
