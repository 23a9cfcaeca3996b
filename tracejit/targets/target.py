"""The record of a target."""

# No `from __future__ import annotations`: a named tuple compiles every annotation that is a string.

from collections.abc import Callable
from typing import NamedTuple

from tracejit.codegen.spec import KernelSpec
from tracejit.schedule import Planned, Schedule
from tracejit.tuning import Tuning


class Target(NamedTuple):
    """All that is decided for one kind of device.

    tuning: numbers, which lower floors find by the device (`tracejit.tuning.tuning_of`).
    emit:   the source of a kernel.
    launch: the schedule of a planned graph; None for a target whose kernels are written, but not run yet.
    """

    tuning: Tuning
    emit: Callable[[KernelSpec], str]
    launch: Callable[[Planned], Schedule] | None
