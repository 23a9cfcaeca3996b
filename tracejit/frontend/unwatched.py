"""Functions that call no code of the user's: the watcher of a trace need not hear of what they do.

While code of this package runs, each call of a Python function is still reported (see `watch`), as it may be
the user's: a method of an operand, a container of a class of his own. Where the types of all arguments are
known, there is nothing to hear.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from tracejit.frontend.number import NumberProxy
from tracejit.frontend.recording import thread

MANY = 256
"""Containers in an argument; one that holds itself has more."""

P = ParamSpec("P")
R = TypeVar("R")

KNOWN: set[type] = {NumberProxy, bool, int, float, str, type(None)}
"""Types without code of the user's, not counting subclasses. `NDArray` is added where it is defined."""


def unwatched(function: Callable[P, R]) -> Callable[P, R]:
    """`function`, which calls nobody unless its arguments do: a trace that knows them does not watch it."""

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        trace = thread.trace
        if trace is None:
            return function(*args, **kwargs)
        for x in (*args, *kwargs.values()):
            if type(x) not in KNOWN and not _holds_known(x):
                return function(*args, **kwargs)
        return trace.alone(function, *args, **kwargs)

    return call


def _holds_known(x: Any) -> bool:
    """Whether `x` is a dict, list or tuple of what is known, or of such. One call: it is reported, too."""
    pending = [x]
    for container in pending:
        if len(pending) > MANY:
            return False
        kind = type(container)
        if kind is dict:
            parts = (*container, *container.values())
        elif kind is list or kind is tuple:
            parts = container
        else:
            return False
        for part in parts:
            if type(part) not in KNOWN:
                pending.append(part)
    return True
