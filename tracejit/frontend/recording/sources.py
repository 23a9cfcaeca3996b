"""Sources of the run-time numbers of a traced call: what identifies each.

lr = 0.1 among the arguments    the variable in which a replay finds it (`signature.expressions.Var`)
float(x) of an array            `Source`
lr * 2                          `Computed`: an operation on the source of `lr` and 2
if lr > 1                       `Question`: the operation, and the answer; no number, but noted like one
i of ``for i in tj.range(n)``   `Progression`: its value in this round, and its growth in each
1 / (i + 1)                     `Varying`: a float that each round computes
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np

from tracejit.frontend.recording.operations import IDENTITY_FUNCTION, Operation

SHOWN = 60  # characters of an expression in messages


class Source:
    """A number `value` that the body found in an array; `path` describes it for people."""

    __slots__ = ("path", "value")

    def __init__(self, path: str, value: Any = None) -> None:
        self.path, self.value = path, value


class Evaluation:
    """An operation on operands, and the `value` that it has in this call.

    operands: sources of numbers, and plain numbers.
    path:     how people write it.
    key:      see `number_key`.
    """

    __slots__ = ("key", "operands", "operation", "path", "value")

    def __init__(self, operation: Operation, operands: tuple[Any, ...], value: Any) -> None:
        self.operation, self.operands, self.value = operation, operands, value
        self.path = shown(operation, operands)
        keys = tuple(map(number_key, operands))
        self.key = keys[0] if operation is IDENTITY_FUNCTION else hash((operation.text, keys))


class Computed(Evaluation):
    """A number that the body computed."""

    __slots__ = ()


class Question(Evaluation):
    """A question that the body asked of its numbers, and the answer: a guard."""

    __slots__ = ()


class Progression:
    """A number of a loop that is `base` in one `round`, and grows by `slope` with each.

    base:  a whole number, or a stand-in for one: of the call, or of a loop around.
    value: what that is now.
    """

    __slots__ = ("base", "loop", "path", "round", "slope", "value")

    def __init__(self, loop: Any, slope: int, base: Any, value: int) -> None:
        self.loop, self.slope, self.base, self.value = loop, slope, base, value
        self.round = loop.round
        self.path = "the loop variable"


class Varying(Evaluation):
    """A float that a loop computes in each round, of numbers that move, vary, or stay."""

    __slots__ = ("loop", "round")

    def __init__(self, loop: Any, operation: Operation, operands: tuple[Any, ...], value: float) -> None:
        super().__init__(operation, operands, value)
        self.loop, self.round = loop, loop.round


OF_LOOPS = (Progression, Varying)
"""Sources of numbers that differ from round to round of a loop."""


def number_key(source: Any) -> Hashable:
    """A key for a number in all calls of a function: the name of an argument, for instance, or a hash of a
    computation on it.
    """
    if isinstance(source, Evaluation):
        return source.key
    return getattr(source, "path", source)


def shown(operation: Operation, operands: tuple[Any, ...]) -> str:
    """An expression as people write it."""
    text = operation.written(*(getattr(o, "path", None) or source_of(o) for o in operands))
    return text if len(text) <= SHOWN else text[: SHOWN - 3] + "..."


def source_of(value: Any) -> str:
    """A number as an expression that gives exactly it, where ``np``, ``nan`` and ``inf`` are known."""
    if isinstance(value, (np.generic, bool)):
        return f"({value!r})"
    return f"({int.__repr__(value) if isinstance(value, int) else float.__repr__(value)})"


def identity(operand: Any) -> Any:
    """A key that is equal for operands of equal meaning; 1 and 1.0 differ, and 0.0 and -0.0."""
    plain = isinstance(operand, (bool, int, float, np.generic))
    return (type(operand), repr(operand)) if plain else id(operand)
