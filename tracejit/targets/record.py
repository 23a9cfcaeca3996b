"""The record of a target."""

# No `from __future__ import annotations`: a named tuple compiles every annotation that is a string.

from collections.abc import Callable
from typing import NamedTuple

from tracejit.assembly.words import Job
from tracejit.codegen.spec import KernelSpec
from tracejit.passes.memory.plan import PlannedTask
from tracejit.tuning import Tuning


class Target(NamedTuple):
    """Everything that depends on the kind of a device.

    tuning: sizes and costs, which lower layers look up by the device (`tracejit.tuning.tuning_of`).
    emit:   returns the source of a kernel.
    open:   initialises the device with an index, its memory and its lane; raises DeviceError if it cannot.
    job:    returns the job of a planned task.
    """

    tuning: Tuning
    emit: Callable[[KernelSpec], str]
    open: Callable[[int], object]
    job: Callable[[PlannedTask], Job]
