"""Sources of the run-time numbers of a traced call: what identifies each number.

lr = 0.1 among the arguments    the variable in which a replay stores it (`signature.expressions.Var`)
float(x) of an array            `Source`
lr * 2                          `Computed`: an operation on the source of `lr` and 2
if lr > 1                       `Question`: the operation, and the answer; recorded like a number
i of ``for i in tj.range(n)``   `Progression`: its value in the present iteration, and its increment
1 / (i + 1)                     `Varying`: a float that each iteration computes
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np

from tracejit.frontend.python.interned import interned
from tracejit.frontend.recording.operations import IDENTITY_FUNCTION, Operation

LITERALS = (bool, int, float, np.generic)
"""The types of operands that are no sources."""

MAX_SHOWN_CHARACTERS = 60  # the maximum number of characters of an expression in messages


class Source:
    """A number `value` that the body read from an array by a look; `path` describes it in messages."""

    __slots__ = ("path", "value")

    def __init__(self, path: str, value: Any = None) -> None:
        self.path, self.value = path, value


class Evaluation:
    """An operation on operands, and the `value` that it has in this call.

    operands: sources of numbers, and literals.
    path:     the expression, as messages show it.
    key:      see `number_key`.
    """

    __slots__ = ("key", "operands", "operation", "path", "value")

    def __init__(self, operation: Operation, operands: tuple[Any, ...], value: Any) -> None:
        self.operation, self.operands, self.value = operation, operands, value
        self.path = shown(operation, operands)
        keys = tuple(map(number_key, operands))
        self.key = keys[0] if operation is IDENTITY_FUNCTION else interned(operation, *keys)


class Computed(Evaluation):
    """A number that the body computed."""

    __slots__ = ()


class Question(Evaluation):
    """A question that the body asked about its numbers, and the answer: a guard."""

    __slots__ = ()


class Progression:
    """A number of a loop that is `base` in the iteration `iteration`, and grows by `slope` in each: an
    induction variable.

    base:  an integer, or a `NumberProxy` of one that belongs to the call or to an enclosing loop.
    value: the present integer value of `base`.
    """

    __slots__ = ("base", "iteration", "loop", "path", "slope", "value")

    def __init__(self, loop: Any, slope: int, base: Any, value: int) -> None:
        self.loop, self.slope, self.base, self.value = loop, slope, base, value
        self.iteration = loop.iteration
        self.path = "the loop variable"


class Varying(Evaluation):
    """A float that a loop computes in each iteration from literals, loop-invariant numbers, induction
    variables and other such floats.
    """

    __slots__ = ("iteration", "loop")

    def __init__(self, loop: Any, operation: Operation, operands: tuple[Any, ...], value: float) -> None:
        super().__init__(operation, operands, value)
        self.loop, self.iteration = loop, loop.iteration


OF_LOOPS = (Progression, Varying)
"""Sources of numbers that differ between the iterations of a loop."""


def number_key(source: Any) -> Hashable:
    """Return a key that identifies a number in all calls of a function: the name of an argument, for
    instance, or the interned key of a computation.
    """
    if isinstance(source, Evaluation):
        return source.key
    return getattr(source, "path", source)


def shown(operation: Operation, operands: tuple[Any, ...]) -> str:
    """Return an expression as messages show it."""
    text = operation.written(*(getattr(o, "path", None) or source_of(o) for o in operands))
    return text if len(text) <= MAX_SHOWN_CHARACTERS else text[: MAX_SHOWN_CHARACTERS - 3] + "..."


def source_of(value: Any) -> str:
    """Return the text of an expression with exactly the value of a number, in a scope that defines ``np``,
    ``nan`` and ``inf``.
    """
    if isinstance(value, (np.generic, bool)):
        return f"({value!r})"
    return f"({int.__repr__(value) if isinstance(value, int) else float.__repr__(value)})"


def identity(operand: Any) -> Any:
    """Return a key that is equal for operands of equal meaning. The keys of 1 and 1.0 differ, and so do those
    of 0.0 and -0.0.
    """
    return (type(operand), repr(operand)) if isinstance(operand, LITERALS) else id(operand)
