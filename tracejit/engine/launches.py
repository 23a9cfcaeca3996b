"""Launches in flight, and what happens when they end.

A launch keeps alive what it was given (`keep`: buffers, variables, closures) until it has ended; that is the
whole of deferred deletion. The executor lists ended launches, and `reap` drops what they kept: at every entry
into the engine.

An interrupt (Ctrl-C) may come at any call here, and loses nothing: CPython looks for signals when a function
is entered, after the call of a C function and at backward jumps. So what a C function gives is put where it
can be found again inside that very call (`_ended`, and `Program.launch`), and every step may be done twice.
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
    """What this module needs of a program."""

    def describe(self, task: int, status: int, instance: Any) -> Callable[[], BaseException]:
        """How to make the exception for a failed task."""

    def call(self, task: int, instance: Any, keep: object) -> Any:
        """What a Python task runs: a `hosts.Call`."""

    def recycle(self, instance: Any) -> None:
        """Take back an instance whose launch has ended."""


IN_FLIGHT: dict[int, tuple[Launcher, Record, object]] = {}
"""By address of the instance: its program, the instance, what it keeps."""

_ended: list[int] = []
"""Lists of ended launches that nobody has looked at yet: the address of the first instance of each, or 0."""

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
    """If this launch failed by itself (it did not just read what another left), remember how."""
    words = instance.words
    sequence = words[INSTANCE_SEQUENCE >> 3]
    if words[INSTANCE_ERROR >> 3] == sequence and not failures.known(sequence):
        task, status = words[INSTANCE_FAILED_TASK >> 3], words[INSTANCE_STATUS >> 3]
        failures.record(sequence, program.describe(task, status, instance))


def find_failure(sequence: int) -> BaseException:
    """The exception of launch `sequence`, which has failed but may not have ended."""
    note_running(sequence)
    return failures.tell(sequence)


def note_running(sequence: int) -> None:
    """Remember a failure before its launch has ended."""
    if not failures.known(sequence):
        for program, instance, _ in list(IN_FLIGHT.values()):
            if instance.words[INSTANCE_SEQUENCE >> 3] == sequence:
                note_failure(program, instance)
