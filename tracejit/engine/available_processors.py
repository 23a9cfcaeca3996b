"""The processors that this process may use according to affinity and cgroup, and their memory model.

>>> processors() >= 1
True
"""

from __future__ import annotations

import ctypes
import math
import os
import pathlib
import sys

LOADS_ACQUIRE = os.uname().machine == "x86_64"
"""Whether an ordinary load has acquire semantics."""

PAGE = os.sysconf("SC_PAGE_SIZE")  # bytes

SPIN = 50_000  # nanoseconds for which an idle thread spins before it sleeps

POPULATE = 23  # Linux: MADV_POPULATE_WRITE

SCHEDULING = {"x86_64": (315, 314), "aarch64": (275, 274)}  # Linux: sched_getattr, sched_setattr

TIME_SLICE = 100_000  # nanoseconds, the minimum that Linux accepts

_CGROUP = pathlib.Path("/sys/fs/cgroup")


def _first_line(path: pathlib.Path) -> str:
    try:
        return path.read_text().splitlines()[0]
    except (OSError, IndexError):  # no such controller on this machine
        return ""


def _quota() -> float:
    """Number of processors that the cgroup permits (version 2, else version 1); infinity without a limit."""
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
    if quota.isdigit() and period.isdigit():  # -1: no limit
        bounds.append(int(quota) / int(period))
    return min(bounds)


def _lines(path: pathlib.Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:  # not Linux
        return []


def processors() -> int:
    """The number of processors that this process may use.

    >>> import tracejit as tj
    >>> tj.engine.processors() >= 1
    True
    """
    affine = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    count = affine or 1
    return max(1, min(count, math.ceil(min(_quota(), count))))


def spare_processors() -> int:
    """The number of processors besides the calling thread's: the default number of workers."""
    return processors() - 1


_sharing = [1]


def share_processors(n_processes: int) -> None:
    """Record that `n_processes` processes, including this one, share the processors."""
    _sharing[0] = n_processes


def spin_time(workers: int) -> int:
    """Nanoseconds for which idle threads spin: 0 if this process has more threads than processors."""
    return SPIN if workers < processors() // _sharing[0] else 0


def crowded(workers: int) -> bool:
    """Whether computing threads other than these workers would take processors from other processes."""
    return _sharing[0] > 1 and workers * _sharing[0] >= processors()


def request_short_time_slices() -> None:
    """Request a short time slice for the calling thread, so that it runs soon after it wakes up.

    Otherwise, if all processors are busy, it waits milliseconds for the end of another thread's time slice.
    Has an effect on Linux 6.12 or newer.
    """
    numbers = SCHEDULING.get(os.uname().machine) if sys.platform == "linux" else None
    if numbers is None:
        return
    getattr_number, setattr_number = numbers
    # struct sched_attr: size and policy, flags, nice and priority, nanoseconds of a time slice, ...
    attributes = (ctypes.c_uint64 * 7)()
    size = ctypes.sizeof(attributes)
    if _syscall(getattr_number, 0, ctypes.byref(attributes), size, 0) == 0 and attributes[0] >> 32 == 0:
        attributes[3] = TIME_SLICE
        _syscall(setattr_number, 0, ctypes.byref(attributes), 0)


def populate(address: int, nbytes: int) -> None:
    """Map all pages of memory that will be written soon in a single system call.

    Individual page faults, in several threads, take longer. Has no effect on systems without this call.
    """
    if sys.platform == "linux":
        first, end = address + -address % PAGE, address + nbytes
        _madvise(first, max(0, end - first) // PAGE * PAGE, POPULATE)


_syscall = ctypes.CDLL(None).syscall

_madvise = ctypes.CDLL(None).madvise
_madvise.argtypes = (ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int)
