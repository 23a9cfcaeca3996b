"""Numbers of a recorded call in its replay program: a variable for each that the body computed or read.

The trace records the operations of the body on run-time numbers (`recording.sources`): computations and
questions. A replay performs them in the same order:

    n0: the argument, already an expression        n0 = args[1]
    Computed: MULTIPLY of n0 and 2                 m1 = (n0 * (2))
    Question: GREATER of m1 and 1.0, True          if not ((m1 > (1.0)) is True): return MISS
"""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence
from typing import Any

from tracejit.frontend.recording.segments import Cut
from tracejit.frontend.recording.sources import Computed, Question, Source
from tracejit.frontend.signature.expressions import Compute, Expr, Literal, Var
from tracejit.frontend.signature.program import ReplayProgram

Variables = MutableMapping[Computed | Source, Var]
"""The variables of numbers that the body computed, or read from arrays."""


def variables_of(steps: Sequence[Any]) -> dict[Computed | Source, Var]:
    """Return a variable for each number that the steps of a trace compute or read from arrays."""
    variables: dict[Computed | Source, Var] = {}
    for step in steps:
        if isinstance(step, Computed):
            variables[step] = Var("m", step.value, step.path)
        elif isinstance(step, Cut):
            variables[step.source] = Var("l", step.source.value, step.source.path)
    return variables


def operand(number: Any, variables: Variables) -> Expr:
    """Return the expression for a number: its variable, the number if it is an expression, or a literal."""
    if isinstance(number, Computed | Source):
        return variables[number]
    return number if isinstance(number, Expr) else Literal(number)


def emit(step: Computed | Question, variables: Variables, program: ReplayProgram) -> None:
    """Append a computation of the body, or the check of the answer to a question."""
    value = Compute(step.operation, *(operand(each, variables) for each in step.operands))
    if isinstance(step, Computed):
        program.define(variables[step], value)
    else:
        program.same(value, step.value, (step.path, repr(step.value)), step.key)
