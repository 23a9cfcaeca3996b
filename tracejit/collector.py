"""Suspension of Python's garbage collector while a call is recorded, planned and compiled.

These stages create many long-lived objects and hardly any cycles: collections would take a sixth of Numba's
time and a tenth of the time of the passes. In addition, functions that the collector calls while a body is
recorded (finalizers, ``gc.callbacks``) would be mistaken for calls of the body.

The new objects are collected at the end of the suspension, after a call has launched its work, or when
`collect_young` is called while LLVM compiles a kernel.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

YOUNG = 0
"""The collector's youngest generation."""

_is_suspended = False


@contextmanager
def suspended() -> Iterator[None]:
    """Suspend collections in a ``with`` block. Do nothing if the collector is already disabled."""
    global _is_suspended
    ours = gc.isenabled()
    try:
        if ours:
            gc.disable()
            _is_suspended = True
        yield
    finally:
        if ours:
            wake()


def wake() -> None:
    """End a suspension early, before a long operation."""
    global _is_suspended
    if _is_suspended:
        _is_suspended = False
        gc.enable()


def collect_young() -> None:
    """Collect the youngest generation during a suspension."""
    if _is_suspended:
        gc.collect(YOUNG)
