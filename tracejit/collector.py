"""Suspension of Python's garbage collector while a call is recorded, planned and compiled.

These stages create many objects that live on, and hardly any cycles: collections would take a sixth of
Numba's time and a tenth of that of the passes. Functions that the collector calls while a body is recorded
(finalizers, ``gc.callbacks``) would also look like calls of the body.

At the end, the collector examines the new objects: after a call has launched its work, or, while LLVM
compiles a kernel, when `collect_young` is called.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

YOUNG = 0
"""The collector's generation of new objects."""

_rests = False


@contextmanager
def at_rest() -> Iterator[None]:
    """Suspend collections in a ``with`` block. Does nothing if the collector is disabled."""
    global _rests
    ours = gc.isenabled()
    try:
        if ours:
            gc.disable()
            _rests = True
        yield
    finally:
        if ours:
            wake()


def wake() -> None:
    """End a suspension early, before a long operation."""
    global _rests
    if _rests:
        _rests = False
        gc.enable()


def collect_young() -> None:
    """Collect the youngest generation during a suspension."""
    if _rests:
        gc.collect(YOUNG)
