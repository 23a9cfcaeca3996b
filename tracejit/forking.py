"""Locks that are free in a forked child, whichever threads of its parent held them.

A fork waits for no thread: that thread may need a lock which a fork hook of another library, such as
`logging`, already holds. So a fork may happen while other threads, which the child does not have, hold locks.
Locks made here are free in the child, except those of the thread that forked.

>>> lock = make_lock()
>>> lock.acquire()
True
>>> renew()
>>> lock.locked()
False
"""

from __future__ import annotations

import os
import threading
from typing import Any
from weakref import WeakSet

_locks: WeakSet[Any] = WeakSet()


def make_lock() -> threading.Lock:
    """A `threading.Lock` that is free in a forked child."""
    lock = threading.Lock()
    _locks.add(lock)
    return lock


def make_rlock() -> Any:
    """A `threading.RLock` that is free in a forked child, unless the thread that forked holds it."""
    lock = threading.RLock()
    _locks.add(lock)
    return lock


def renew() -> None:
    """Free the locks of threads that are gone, as `threading` does with its own."""
    for lock in list(_locks):
        owned = getattr(lock, "_is_owned", None)
        if owned is None or not owned():
            lock._at_fork_reinit()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=renew)
