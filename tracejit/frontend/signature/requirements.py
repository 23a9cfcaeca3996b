"""Requirements of a signature on the values of its calls, as data that two signatures can be compared by.

A replay program checks, step by step, whether a call is of its signature. `requirements_of` collects these
checks by the path of the value that they are about:

    if not (type(v0) is K1): return MISS      "f": Requirement("function step", ((Rule.TYPE, ...),
    if not (v0.__code__ is K2): return MISS                                     (Rule.FUNCTION, ...)))

`explain()` shows a requirement in words, and compares the conditions: two functions of one name differ.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable
from dataclasses import dataclass, field
from datetime import date, time, timedelta
from typing import Any

import numpy as np

from tracejit.frontend.python.identity import Identity
from tracejit.frontend.python.interned import Interned
from tracejit.frontend.signature.expressions import Const, Expr, Literal
from tracejit.frontend.signature.meanings import Meanings
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


@dataclass(repr=False)
class Requirement:
    """The requirement of a signature on one value. Requirements with the same conditions are equal.

    path:       the name of the value; empty if the requirement is not shown.
    shown:      the requirement in words.
    conditions: the checks, comparable with those of other signatures.
    is_answer:  whether the value is a number that the body has looked at, so that paths differ in it.
    """

    path: str = field(compare=False)
    shown: str = field(compare=False)
    conditions: tuple[Hashable, ...]
    is_answer: bool = False


Requirements = dict[tuple[str, Interned], Requirement]
"""Requirements by path and meaning of the value: two globals of one name may belong to two modules. For one
of many arrays, the meaning is that of their container.
"""


def requirements_of(program: ReplayProgram) -> Requirements:
    """Return the requirements of a program.

    >>> from tracejit.frontend.signature.expressions import ARGS, item
    >>> program = ReplayProgram()
    >>> n = program.bind(item(ARGS, 0), path="n")
    >>> program.require(Rule.TYPE, n, Const(int), says=("n", "int"))
    >>> [(each.path, each.shown) for each in requirements_of(program).values()]
    [('n', 'int')]
    """
    shown: dict[tuple[str, Interned], str] = {}
    conditions: defaultdict[tuple[str, Interned], list[Hashable]] = defaultdict(list)
    answers: set[tuple[str, Interned]] = set()
    meanings = Meanings.of(program)
    after_look = False

    def add(says: tuple[str, str] | None, subject: Expr, *condition: Hashable) -> None:
        path, words = says or ("", "")
        key = path, meanings[subject]
        if after_look:
            answers.add(key)
        shown[key] = words
        conditions[key].append(condition)

    for step in program.steps:
        if isinstance(step, ManyArrays):
            for array in step.arrays:
                add((array.path, step.shown), step.container, step.type, step.view)
        elif isinstance(step, RunSegment | StateLoop):
            after_look = True
        elif isinstance(step, ArrayCheck):
            add(step.says, step.array, step.type, step.view)
        elif isinstance(step, Check):
            subject, *others = step.operands
            add(step.says, subject, step.rule, *(_comparable(each, step.rule, meanings) for each in others))
    return {
        key: Requirement(key[0], words, tuple(conditions[key]), key in answers)
        for key, words in shown.items()
    }


def _comparable(operand: Expr, rule: Rule, meanings: Meanings) -> Hashable:
    """Return a key for an operand of a check, which is equal for operands that require the same."""
    return _key_of(operand.value, rule) if isinstance(operand, Const | Literal) else meanings[operand]


def _key_of(value: Any, rule: Rule) -> Hashable:
    if type(value) is tuple:
        return tuple(_key_of(each, rule) for each in value)
    if isinstance(value, BY_VALUE):
        return type(value), repr(value) if isinstance(value, float | complex | np.generic) else value
    return Identity(value if rule in BY_IDENTITY else type(value))


def differences(old: Requirements, new: Requirements) -> list[tuple[str, str, str]]:
    """Return the shown requirements that differ: (path, old, new)."""
    pairs = [(old.get(key), new.get(key)) for key in dict.fromkeys([*new, *old])]
    changed = [(was, now) for was, now in pairs if was != now]
    lost = {was.path: was for was, now in changed if was is not None and now is None}
    gained = {now.path for was, now in changed if was is None and now is not None}
    result = []
    for was, now in changed:
        if was is None and now is not None:  # maybe of another object with the same name
            was = lost.get(now.path)
        elif was is not None and now is None and was.path in gained:
            continue
        known = now if was is None else was
        if known is None or not known.path or was == now:
            continue
        before = "absent" if was is None else was.shown
        after = "absent" if now is None else now.shown
        result.append((known.path, before, f"another {after}" if before == after else after))
    return result
