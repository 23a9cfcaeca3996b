"""Failures, by the sequence number of the launch that failed first.

The native executor represents a failure by that number: it poisons variables with it and propagates it to
launches that read them. This module maps the number to the exception until a wait has raised it. Each wait
raises a new exception object, so that tracebacks do not grow.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from copy import copy

from tracejit.engine.native import LOCK
from tracejit.errors import EngineError

CAPACITY = 256  # failures stored; a variable poisoned by an older one raises an error without details


class Failure:
    """A function that creates the exception, and whether a wait has raised it."""

    def __init__(self, create: Callable[[], BaseException]):
        self.create, self.was_raised = create, False


_failures: OrderedDict[int, Failure] = OrderedDict()


def without_traceback(error: BaseException) -> BaseException:
    """Return a copy of the exception without its traceback; the exception itself if it cannot be copied."""
    try:
        new = copy(error)
    except Exception:
        return error.with_traceback(None)
    new.__cause__ = error.__cause__
    return new


def record(sequence: int, create: Callable[[], BaseException]) -> None:
    """Store the failure of launch `sequence`, unless one is stored already."""
    with LOCK:
        _failures.setdefault(sequence, Failure(create))
        while len(_failures) > CAPACITY:
            _failures.popitem(last=False)


def is_recorded(sequence: int) -> bool:
    """Whether a failure of launch `sequence` is stored."""
    return sequence in _failures


def was_raised(sequence: int) -> bool:
    """Whether a wait has raised the failure of launch `sequence`."""
    failure = _failures.get(sequence)
    return failure is not None and failure.was_raised


def take(sequence: int) -> BaseException:
    """Return the exception of a failure, and mark it as raised."""
    failure = _failures.get(sequence)
    if failure is None:
        return EngineError(
            "an earlier task failed, and more than 256 failures have come since: see the first one"
        )
    failure.was_raised = True
    return failure.create()


def peek(sequence: int) -> BaseException | None:
    """Return the exception of a failure without marking it as raised; None if none is stored."""
    failure = _failures.get(sequence)
    return failure.create() if failure else None


def take_unraised() -> list[BaseException]:
    """Return the exceptions that no wait has raised, oldest first, and mark them as raised."""
    if not _failures:
        return []
    with LOCK:
        unraised = [sequence for sequence, failure in sorted(_failures.items()) if not failure.was_raised]
    return [take(sequence) for sequence in unraised]
