"""Launches in flight, and their retirement.

A launch keeps its `keep` (buffers, variables, closures) alive until it has ended; no other deletion is
deferred. The executor lists ended launches, and `reap`, which every entry into the engine calls, drops their
references.

An interrupt (Ctrl-C) may occur at any call in this module without losing state. CPython checks for signals
when a function is entered, after the call of a C function and at backward jumps. Therefore C functions store
their results in objects that survive the interrupt (`_ended`, and in `Program.launch`), and every step may be
repeated.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from tracejit.engine import failures, native
from tracejit.engine.native import ENGINE, Record
from tracejit.kernels.executor.layout import (
    ENGINE_FINISHED,
    INSTANCE_ERROR,
    INSTANCE_FAILED_TASK,
    INSTANCE_NEXT_FINISHED,
    INSTANCE_SEQUENCE,
    INSTANCE_STATUS,
)


class Launcher(Protocol):
    """The interface of a program for this module."""

    def describe(self, task: int, status: int, instance: Any) -> Callable[[], BaseException]:
        """Return a function that creates the exception of a failed task."""

    def call(self, task: int, instance: Any, keep: object) -> Any:
        """The `hosts.HostCall` of a Python task."""

    def recycle(self, instance: Any) -> None:
        """Reuse an instance whose launch has ended."""


IN_FLIGHT: dict[int, tuple[Launcher, Record, object]] = {}
"""The launches in flight by address of the instance: the program, the instance, and `keep`."""

_ended: list[int] = []
"""Linked lists of ended launches to retire: the address of the first instance of each, or 0."""

_take = iter(_ended.pop, None)


def reap() -> None:
    """Retire the launches that have ended: record failures, drop references, recycle instances."""
    if ENGINE.words[ENGINE_FINISHED >> 3]:
        native.calls().take_finished(ENGINE.address, _ended)
    elif not _ended:
        return
    address = 0
    try:
        for address in _take:
            while address:
                program, instance, keep = IN_FLIGHT[address]
                next_address = instance.words[INSTANCE_NEXT_FINISHED >> 3]
                if instance.words[INSTANCE_ERROR >> 3]:
                    note_failure(program, instance)
                del IN_FLIGHT[address], keep
                address = next_address
                program.recycle(instance)
            if not _ended:
                return
    except IndexError:
        return  # another thread has taken the last list
    except BaseException:
        _ended.append(address)
        raise


def note_failure(program: Launcher, instance: Record) -> None:
    """Record the failure of a launch, unless it merely read a poisoned variable."""
    words = instance.words
    sequence = words[INSTANCE_SEQUENCE >> 3]
    if words[INSTANCE_ERROR >> 3] == sequence and not failures.is_recorded(sequence):
        task, status = words[INSTANCE_FAILED_TASK >> 3], words[INSTANCE_STATUS >> 3]
        failures.record(sequence, program.describe(task, status, instance))


def find_failure(sequence: int) -> BaseException:
    """Return the exception of the failed launch `sequence`, which may not have ended; mark it as raised."""
    note_running(sequence)
    return failures.take(sequence)


def failure_of(sequence: int) -> BaseException | None:
    """Return the exception of launch `sequence` without marking it as raised; None if none is stored."""
    if sequence == 0:
        return None
    note_running(sequence)
    return failures.peek(sequence)


def note_running(sequence: int) -> None:
    """Record the failure of a launch that may still be in flight."""
    if not failures.is_recorded(sequence):
        for program, instance, _ in list(IN_FLIGHT.values()):
            if instance.words[INSTANCE_SEQUENCE >> 3] == sequence:
                note_failure(program, instance)
