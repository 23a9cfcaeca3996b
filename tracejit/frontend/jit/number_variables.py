"""The numbers of a recorded call in its replay program: a variable for each that the body computed or found.

The trace notes what the body did with numbers (`recording.sources`): what it computed, and what it asked. A
replay does the same, in the same order:

    n0: the argument, an operand as it is          n0 = args[1]
    Computed: MULTIPLY of n0 and 2                 m1 = (n0 * (2))
    Question: GREATER of m1 and 1.0, True          if not ((m1 > (1.0)) is True): return MISS
"""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence
from typing import Any

from tracejit.frontend.recording.segments import Cut
from tracejit.frontend.recording.sources import Computed, Question, Source
from tracejit.frontend.signature.expressions import (
    Compute,
    Expr,
    Literal,
    Var,
)
from tracejit.frontend.signature.program import ReplayProgram

Variables = MutableMapping[Computed | Source, Var]
"""The variables of numbers that the body computed, or found in arrays."""


def variables_of(steps: Sequence[Any]) -> dict[Computed | Source, Var]:
    """A variable for each number that is made in the steps of a trace."""
    found: dict[Computed | Source, Var] = {}
    for step in steps:
        if isinstance(step, Computed):
            found[step] = Var("m", step.value, step.path)
        elif isinstance(step, Cut):
            found[step.source] = Var("l", step.source.value, step.source.path)
    return found


def operand(number: Any, variables: Variables) -> Expr:
    """The expression for a number: its variable, an operand as it is, or the plain number written down."""
    if isinstance(number, Computed | Source):
        return variables[number]
    return number if isinstance(number, Expr) else Literal(number)


def emit(step: Computed | Question, variables: Variables, program: ReplayProgram) -> None:
    """Append what the body computed, or the check of what it asked."""
    value = Compute(step.operation, *(operand(each, variables) for each in step.operands))
    if isinstance(step, Computed):
        program.define(variables[step], value)
    else:
        program.same(value, step.value, (step.path, repr(step.value)), step.key)
