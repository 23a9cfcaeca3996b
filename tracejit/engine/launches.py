"""Launches in flight, and the work at their end.

A launch refers to its `keep` (buffers, variables, closures) until it has ended; no other deletion is
deferred. The executor lists ended launches, and `reap` drops their references: at every entry into the
engine.

An interrupt (Ctrl-C) may come at any call here, and loses nothing: CPython looks for signals when a function
is entered, after the call of a C function and at backward jumps. So a C function stores its result where it
can be found again (`_ended`, and `Program.launch`), and every step may be repeated.
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
        """Return a function that makes the exception of a failed task."""

    def call(self, task: int, instance: Any, keep: object) -> Any:
        """The `hosts.HostCall` of a Python task."""

    def recycle(self, instance: Any) -> None:
        """Reuse an instance whose launch has ended."""


IN_FLIGHT: dict[int, tuple[Launcher, Record, object]] = {}
"""Launches in flight, by address of the instance: its program, the instance, its `keep`."""

_ended: list[int] = []
"""Lists of ended launches still to be handled: the address of the first instance of each, or 0."""

_take = iter(_ended.pop, None)


def reap() -> None:
    """Forget the launches that have ended."""
    if ENGINE.words[ENGINE_FINISHED >> 3]:
        native.calls().take_finished(ENGINE.address, _ended)
    elif not _ended:
        return
    address = 0
    try:
        for address in _take:
            while address:
                program, instance, keep = IN_FLIGHT[address]
                following = instance.words[INSTANCE_NEXT_FINISHED >> 3]
                if instance.words[INSTANCE_ERROR >> 3]:
                    note_failure(program, instance)
                del IN_FLIGHT[address], keep
                address = following
                program.recycle(instance)
            if not _ended:
                return
    except IndexError:
        return  # another thread has taken the last list
    except BaseException:
        _ended.append(address)
        raise


def note_failure(program: Launcher, instance: Record) -> None:
    """Record the failure of a launch, unless it only read the poisoned result of another one."""
    words = instance.words
    sequence = words[INSTANCE_SEQUENCE >> 3]
    if words[INSTANCE_ERROR >> 3] == sequence and not failures.known(sequence):
        task, status = words[INSTANCE_FAILED_TASK >> 3], words[INSTANCE_STATUS >> 3]
        failures.record(sequence, program.describe(task, status, instance))


def find_failure(sequence: int) -> BaseException:
    """The exception of launch `sequence`, which has failed but may not have ended."""
    note_running(sequence)
    return failures.tell(sequence)


def failure_of(sequence: int) -> BaseException | None:
    """The exception of launch `sequence`, without counting as raised; None if no launch has that number."""
    if sequence == 0:
        return None
    note_running(sequence)
    return failures.peek(sequence)


def note_running(sequence: int) -> None:
    """Record a failure before its launch has ended."""
    if not failures.known(sequence):
        for program, instance, _ in list(IN_FLIGHT.values()):
            if instance.words[INSTANCE_SEQUENCE >> 3] == sequence:
                note_failure(program, instance)
