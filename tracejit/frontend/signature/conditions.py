"""Conditions of a recorded call, in a form that other calls can check.

The first steps of a program read and check arguments and surroundings. What a path does afterwards is right
for all calls that pass these checks, so a path that uses a part of another one (`jit.state_loops.adoption`)
must check the same.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence, Set
from dataclasses import replace
from typing import Any

import numpy as np

from tracejit.frontend.python.identity import Identity
from tracejit.frontend.signature.expressions import Const, Expr, Literal, Var
from tracejit.frontend.signature.meanings import Meanings
from tracejit.frontend.signature.program import (
    ArrayCheck,
    Bind,
    Check,
    Distinct,
    ManyArrays,
    ProgramStep,
    ReplayProgram,
    Separate,
)

MAX_MISSING = 32
"""The largest number of further checks that a path takes on."""

BY_VALUE = (bool, int, float, complex, str, bytes, type(None), frozenset, np.generic)


class Conditions:
    """The steps of a program that reads and checks arguments and surroundings, but computes nothing yet.
    Their variables do not refer to objects of the recorded call, which they would keep alive.

    bound: the meanings of the variables that they bind.
    """

    def __init__(self, program: ReplayProgram) -> None:
        variables: dict[Var, Var] = {}
        self.steps = [renamed(step, variables) for step in _checks_of(program)]
        meanings = Meanings()
        for step in self.steps:
            meanings.add(step)
        self.bound = {meanings[step.var] for step in self.steps if isinstance(step, Bind)}

    def missing(self, program: ReplayProgram, needed: Set[Hashable]) -> list[ProgramStep] | None:
        """Return the steps that a program needs so that it checks these conditions, too, and binds variables
        with the meanings `needed`; None if it cannot: the conditions concern arrays that it does not check,
        or they are too many.
        """
        meanings, own = Meanings.of(program), Meanings()
        known = {meanings[step.var]: step.var for step in program.steps if isinstance(step, Bind)}
        present = {_key(step, meanings) for step in program.steps}
        variables: dict[Var, Var] = {}
        binds: dict[Var, Bind] = {}
        steps: list[ProgramStep] = []
        count = 0

        def add_binds(values: Iterable[Expr]) -> None:
            """Bind the variables in these values, and the variables that they depend on."""
            for var in (var for value in values for var in value.variables() if var in binds):
                bind = binds.pop(var)
                add_binds([bind.value])
                steps.append(renamed(bind, variables, keep=True))

        for step in self.steps:
            own.add(step)
            if isinstance(step, Bind):
                meaning = own[step.var]
                if meaning in known:
                    variables[step.var] = known[meaning]
                    continue
                binds[step.var] = step
                if meaning in needed:
                    add_binds([step.var])
            elif _key(step, own) not in present:
                count += 1
                if count > MAX_MISSING or isinstance(step, ArrayCheck | ManyArrays):
                    return None
                add_binds(_operands(step))
                steps.append(renamed(step, variables, keep=True))
        return steps


def _checks_of(program: ReplayProgram) -> list[ProgramStep]:
    """Return the steps that bind or require something. That storages do not overlap is left out: each path
    requires it of all storages that it uses.
    """
    return [step for step in program.steps if not isinstance(step, Separate)]


def renamed(step: ProgramStep, variables: dict[Var, Var], *, keep: bool = False) -> Any:
    """Return a copy of a step with other variables. Those that `variables` does not contain are kept, or
    replaced by new ones, which `variables` gains.
    """

    def new(var: Var) -> Var:
        if var not in variables and not keep:
            variables[var] = Var(var.prefix, None, var.path)
            variables[var].bound = var.bound
        return variables.get(var, var)

    def expr(value: Any) -> Any:
        return value.renamed(new)

    if isinstance(step, Bind):
        return Bind(new(step.var), expr(step.value))
    if isinstance(step, Check):
        return replace(step, operands=tuple(map(expr, step.operands)))
    if isinstance(step, Distinct):
        return Distinct(tuple(map(new, step.vars)))
    if isinstance(step, ArrayCheck):
        return replace(step, array=new(step.array), storage=new(step.storage))
    assert isinstance(step, ManyArrays)
    arrays, storages = tuple(map(new, step.arrays)), tuple(map(new, step.storages))
    return replace(step, container=new(step.container), arrays=arrays, storages=storages)


def _key(step: ProgramStep, meanings: Meanings) -> Hashable:
    """Return a key that is equal for steps of two programs that require the same."""
    if isinstance(step, Check):
        return step.rule, *(_operand(each, meanings) for each in step.operands)
    if isinstance(step, Distinct):
        return frozenset(meanings[var] for var in step.vars)
    if isinstance(step, ArrayCheck):
        return meanings[step.array], step.type, step.view
    if isinstance(step, ManyArrays):
        return meanings[step.container], len(step.arrays), step.type, step.view
    return None


def _operand(operand: Expr, meanings: Meanings) -> Hashable:
    is_constant = isinstance(operand, Const | Literal)
    return _constant(operand.value) if is_constant else meanings[operand]


def _constant(value: Any) -> Hashable:
    if type(value) is tuple:
        return tuple(map(_constant, value))
    if isinstance(value, BY_VALUE):
        return type(value), value if isinstance(value, frozenset) else repr(value)
    return Identity(value)


def _operands(step: ProgramStep) -> Sequence[Expr]:
    if isinstance(step, Check):
        return step.operands
    assert isinstance(step, Distinct)
    return step.vars
