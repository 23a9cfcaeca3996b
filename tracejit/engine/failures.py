"""Failures, by the number of the launch that failed first.

The native side knows a failure only as that number: it poisons variables with it and passes it on to launches
that read them. This module maps the number to the exception, until a wait has raised it. Each wait raises a
new exception, so that tracebacks do not grow.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from copy import copy

from tracejit.engine.native import LOCK
from tracejit.errors import EngineError

KEPT = 256  # failures kept; a variable poisoned by an older one raises an error without details


class Failure:
    """A function that makes the exception, and whether a wait has raised it."""

    def __init__(self, make: Callable[[], BaseException]):
        self.make, self.told = make, False


_failures: OrderedDict[int, Failure] = OrderedDict()


def renew(error: BaseException) -> BaseException:
    """A copy of the exception, without its traceback.

    One that cannot be copied is returned itself.
    """
    try:
        new = copy(error)
    except Exception:
        return error.with_traceback(None)
    new.__cause__ = error.__cause__
    return new


def record(sequence: int, make: Callable[[], BaseException]) -> None:
    """Keep the failure of launch `sequence`, once."""
    with LOCK:
        _failures.setdefault(sequence, Failure(make))
        while len(_failures) > KEPT:
            _failures.popitem(last=False)


def known(sequence: int) -> bool:
    """Whether the failure of launch `sequence` is kept."""
    return sequence in _failures


def told(sequence: int) -> bool:
    """Whether a wait has raised the failure of launch `sequence`."""
    failure = _failures.get(sequence)
    return failure is not None and failure.told


def tell(sequence: int) -> BaseException:
    """The exception of a failure, which counts as raised from now on."""
    failure = _failures.get(sequence)
    if failure is None:
        return EngineError(
            "an earlier task failed, and more than 256 failures have come since: see the first one"
        )
    failure.told = True
    return failure.make()


def peek(sequence: int) -> BaseException | None:
    """The exception of a failure, which does not count as raised."""
    failure = _failures.get(sequence)
    return failure.make() if failure else None


def untold() -> list[BaseException]:
    """The exceptions that no wait has raised, oldest first; they count as raised from now on."""
    if not _failures:
        return []
    with LOCK:
        waiting = [sequence for sequence, failure in sorted(_failures.items()) if not failure.told]
    return [tell(sequence) for sequence in waiting]
