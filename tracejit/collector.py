"""Suspension of Python's garbage collector while a call is recorded, planned and compiled.

These stages create many long-lived objects and hardly any cycles: collections would take a sixth of Numba's
time and a tenth of the time of the passes. In addition, functions that the collector calls while a body is
recorded (finalizers, ``gc.callbacks``) would be mistaken for calls of the body.

The new objects are collected at the end of the suspension, after a call has launched its work, or when
`collect_young` is called while LLVM compiles a kernel.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

YOUNG = 0
"""The collector's youngest generation."""

_lock = threading.Lock()
_suspensions = 0


@contextmanager
def suspended() -> Iterator[None]:
    """Suspend collections in a ``with`` block. Do nothing if the user has disabled the collector.

    Several threads may record at the same time: the last one to leave its block enables the collector.
    """
    global _suspensions
    ours = False
    try:
        with _lock:
            if _suspensions or gc.isenabled():
                ours = True
                _suspensions += 1
                gc.disable()
        yield
    finally:
        if ours:
            with _lock:
                _suspensions = max(_suspensions - 1, 0)  # 0 where `wake` has run in the block
                if _suspensions == 0:
                    gc.enable()


def keep() -> None:
    """Count all present objects as old, at the end of a suspension that leaves no garbage: the next
    collection does not visit them. Do nothing if the user has frozen objects.
    """
    if not gc.get_freeze_count():
        gc.freeze()
        gc.unfreeze()  # from the frozen objects to the oldest ones


def wake() -> None:
    """End all suspensions: in a forked child, where the threads that began them do not exist."""
    global _lock, _suspensions
    _lock = threading.Lock()
    if _suspensions:
        _suspensions = 0
        gc.enable()


def collect_young() -> None:
    """Collect the youngest generation during a suspension."""
    if _suspensions:
        gc.collect(YOUNG)
