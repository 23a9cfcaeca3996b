"""Rest for Python's garbage collector while a call is recorded, planned and compiled.

All that makes many objects that live on, and hardly any cycles: looking for garbage among them takes a sixth
of Numba's time and a tenth of that of the passes. What the collector calls while a body is recorded
(finalizers, ``gc.callbacks``) would moreover look like calls of the body.

When the rest ends, the collector goes through what is new: after a call has launched its work, or, while
LLVM works on a kernel, when `collect_young` is called.
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
    """Look for no garbage meanwhile. Does nothing if somebody has turned the collector off."""
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
    """End a rest before its time: what follows may be long."""
    global _rests
    if _rests:
        _rests = False
        gc.enable()


def collect_young() -> None:
    """During a rest, look for garbage among new objects."""
    if _rests:
        gc.collect(YOUNG)
