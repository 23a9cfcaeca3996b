"""Locks that are released in a forked child, even if other threads of the parent held them.

A fork cannot wait for other threads to release their locks: such a thread may need a lock that a fork hook of
another library, such as `logging`, already holds. A fork may therefore happen while locks are held by threads
that do not exist in the child. Locks created here are released in the child, except those of the thread that
forked.

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
    """Create a `threading.Lock` that is released in a forked child."""
    lock = threading.Lock()
    _locks.add(lock)
    return lock


def make_rlock() -> Any:
    """Create a `threading.RLock` that is released in a forked child, unless the forking thread holds it."""
    lock = threading.RLock()
    _locks.add(lock)
    return lock


def renew() -> None:
    """Release the locks of threads that no longer exist, as `threading` does with its own locks."""
    for lock in list(_locks):
        owned = getattr(lock, "_is_owned", None)
        if owned is None or not owned():
            lock._at_fork_reinit()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=renew)
