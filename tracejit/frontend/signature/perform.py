"""The steps of a replay after its launch, done for the call that is recorded: make, write back, return.

The values of the recorded call are held by the program's variables. What the caller gets are its own objects,
without the stand-ins that the body was given.
"""

from __future__ import annotations

from typing import Any

from tracejit.frontend.arrays import trees
from tracejit.frontend.arrays.ndarray import NDArray
from tracejit.frontend.python.content import GONE, fill
from tracejit.frontend.signature.program import (
    ArrayOn,
    Const,
    Container,
    CopyOf,
    Effect,
    Expr,
    Known,
    Literal,
    Make,
    Rebind,
    ReplayProgram,
    Var,
)


def write_back(program: ReplayProgram) -> None:
    """Make what is written back or used more than once, and write it back."""
    for var, value in program.values:
        var.value = make(value)
    for effect in program.effects:
        _perform(effect)


def _perform(effect: Effect) -> None:
    if isinstance(effect, Rebind):
        effect.slot.put(GONE if effect.value is GONE else make(effect.value))
    elif isinstance(container := effect.container.value, dict):
        fill(container, make(effect.value))
    else:
        container[:] = make(effect.value)


def make(value: Make) -> Any:
    """A value of the result."""
    if isinstance(value, Known):
        return _known(value.operand)
    if isinstance(value, ArrayOn):
        view = value.view if value.offset is None else value.view.moved(value.offset.value)
        return NDArray(value.storage.value, view)
    if isinstance(value, CopyOf):
        return value.array.copy("K")
    assert isinstance(value, Container)
    factory = None if value.factory is None else make(value.factory)
    return trees.build(value.kind, value.keys, [make(part) for part in value.parts], factory)


def _known(operand: Expr) -> Any:
    assert isinstance(operand, (Var, Const, Literal)), "numbers that are computed have variables"
    return operand.value
