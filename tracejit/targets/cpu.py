"""The CPU target: kernels are loops, which the engine runs on its worker threads."""

from __future__ import annotations

from tracejit.assembly.cpu_jobs import job
from tracejit.assembly.cpu_kernels import source_of
from tracejit.targets.record import Target
from tracejit.tuning import cpu


def open_device(index: int) -> None:
    """Do nothing: the engine creates lanes and memory at their first use."""


TARGET = Target(cpu.TUNING, source_of, open_device, job)
