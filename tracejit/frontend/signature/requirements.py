"""Requirements of a signature on the values of its calls, as data that two signatures can be compared by.

A replay program checks, step by step, whether a call is of its signature. `requirements_of` collects these
checks by the path of the value that they are about:

    if not (type(v0) is K1): return MISS      "f": Requirement("function step", ((Rule.TYPE, ...),
    if not (v0.__code__ is K2): return MISS                                     (Rule.FUNCTION, ...)))

`explain()` shows a requirement in words, and compares the conditions: two functions of one name differ.
"""

from __future__ import annotations

from collections.abc import Hashable
from datetime import date, time, timedelta
from typing import Any, NamedTuple

import numpy as np

from tracejit.frontend.python.identity import Identity
from tracejit.frontend.signature.expressions import Const, Expr, Literal, Var
from tracejit.frontend.signature.program import (
    ArrayCheck,
    Check,
    ManyArrays,
    ReplayProgram,
    Rule,
    RunSegment,
    StateLoop,
)
from tracejit.ir.types import ArrayType, Device
from tracejit.ir.view import View

BY_IDENTITY = frozenset({Rule.IS, Rule.IS_NOT, Rule.TYPE, Rule.FUNCTION})
"""Rules that require an object itself. Others require an equal one, of which the signature has a copy."""

BY_VALUE = (
    *(ArrayType, Device, View, np.dtype, np.generic, range, date, time, timedelta),
    *(type(None), bool, int, float, complex, str, bytes),
)


class Requirement(NamedTuple):
    """The requirement of a signature on one value.

    shown:      the requirement in words; empty for one that is not shown.
    conditions: the checks, comparable with those of other signatures.
    is_answer:  whether the value is a number that the body has looked at, so that paths differ in it.
    """

    shown: str
    conditions: tuple[Hashable, ...]
    is_answer: bool = False


def requirements_of(program: ReplayProgram) -> dict[str, Requirement]:
    """Return the requirements of a program, by path. Those that are not shown have the path ``""``.

    >>> from tracejit.frontend.signature.expressions import ARGS, item
    >>> program = ReplayProgram()
    >>> n = program.bind(item(ARGS, 0), path="n")
    >>> program.require(Rule.TYPE, n, Const(int), says=("n", "int"))
    >>> requirements_of(program)["n"].shown
    'int'
    """
    shown: dict[str, str] = {"": ""}
    conditions: dict[str, list[Hashable]] = {"": []}
    answers: set[str] = set()
    after_look = False

    def add(path: str, words: str, *condition: Hashable) -> None:
        if after_look:
            answers.add(path)
        shown[path] = words
        conditions.setdefault(path, []).append(condition)

    for step in program.steps:
        if isinstance(step, RunSegment | StateLoop):
            after_look = True
        elif isinstance(step, ManyArrays):
            for array in step.arrays:
                add(array.path, step.shown, step.type, step.view)
        elif isinstance(step, ArrayCheck):
            add(*(step.says or ("", "")), step.type, step.view)
        elif isinstance(step, Check):
            operands = (_comparable(operand, step.rule) for operand in step.operands[1:])
            add(*(step.says or ("", "")), step.rule, *operands)
    return {
        path: Requirement(words, tuple(conditions[path]), path in answers) for path, words in shown.items()
    }


def _comparable(operand: Expr, rule: Rule) -> Hashable:
    """Return a key for an operand of a check, which is equal for operands that require the same."""
    if isinstance(operand, Var):
        return operand.path
    if not isinstance(operand, Const | Literal):
        return operand.key
    return _key_of(operand.value, rule)


def _key_of(value: Any, rule: Rule) -> Hashable:
    if type(value) is tuple:
        return tuple(_key_of(each, rule) for each in value)
    if isinstance(value, BY_VALUE):
        return type(value), repr(value) if isinstance(value, float | complex | np.generic) else value
    return Identity(value if rule in BY_IDENTITY else type(value))


def differences(old: dict[str, Requirement], new: dict[str, Requirement]) -> list[tuple[str, str, str]]:
    """Return the requirements that differ and are shown: (path, old, new)."""
    result = []
    for path in dict.fromkeys([*new, *old]):
        before, after = old.get(path), new.get(path)
        if path == "" or before == after:
            continue
        was = "absent" if before is None else before.shown
        now = "absent" if after is None else after.shown
        result.append((path, was, f"another {now}" if was == now else now))
    return result
