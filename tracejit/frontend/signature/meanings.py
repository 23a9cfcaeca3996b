"""Meanings of values in replay programs: equal for values that any two programs compute alike.

Paths of one signature are recorded independently, so each has variables of its own. To compare what two paths
ask, and of what, a variable is traced back to how it is computed:

    v0 = args[1]                   item(ARGS, 1)
    m1 = v0 * 2                    operation *, item(ARGS, 1), literal 2
    if not (m1 > 4): ...           asked of m1 in one path, of m7 in another: one meaning

Meanings are interned (hash-consed): equal ones are one object as long as it is in use, so comparing them
takes constant time however deep they are.
"""

from __future__ import annotations

import weakref
from collections.abc import Hashable

from tracejit.frontend.python.identity import Identity
from tracejit.frontend.signature.expressions import Const, Derived, Expr, Result, Var, attribute
from tracejit.frontend.signature.program import (
    ArrayCheck,
    Bind,
    ManyArrays,
    ReplayProgram,
    RunSegment,
    StateLoop,
    Step,
)


class Meaning:
    """An interned description of how a value is computed. Meanings are compared by identity."""

    __slots__ = ("__weakref__", "key")

    def __init__(self, key: Hashable) -> None:
        self.key = key


_interned: weakref.WeakValueDictionary[Hashable, Meaning] = weakref.WeakValueDictionary()


def meaning_of(*key: Hashable) -> Meaning:
    """Return the meaning with this key."""
    meaning = _interned.get(key)
    return meaning if meaning is not None else _interned.setdefault(key, Meaning(key))


class Meanings:
    """The meanings of the values of one program.

    >>> n, m = Var("n"), Var("m")
    >>> one, other = Meanings(), Meanings()
    >>> one.add(Bind(n, attribute(Const(int), "real")))
    >>> other.add(Bind(m, attribute(Const(int), "real")))
    >>> one[n] is other[m]
    True
    """

    def __init__(self) -> None:
        self._known: dict[Var, Meaning] = {}

    @classmethod
    def of(cls, program: ReplayProgram) -> Meanings:
        """Return the meanings of the variables that a program has bound so far."""
        meanings = cls()
        for var, value in program.copies:
            meanings._known[var] = meanings[value]
        for step in program.steps:
            meanings.add(step)
        return meanings

    def __getitem__(self, value: Expr) -> Meaning:
        if isinstance(value, Derived):
            what = ("result", self[value.function]) if isinstance(value, Result) else value.what
            return meaning_of(what, *(self[operand] for operand in value.operands))
        if isinstance(value, Var):
            known = self._known.get(value)
            return known if known is not None else meaning_of("variable", value)
        return (
            meaning_of("object", Identity(value.value)) if isinstance(value, Const) else meaning_of(value.key)
        )

    def add(self, step: Step) -> None:
        """Add the meanings of the variables that a step binds."""
        known = self._known
        if isinstance(step, Bind):
            known[step.var] = self[step.value]
        elif isinstance(step, ArrayCheck):
            known[step.storage] = self[attribute(step.array, "_storage")]
        elif isinstance(step, RunSegment | StateLoop):
            if isinstance(step, RunSegment):
                vars = *step.results, step.number
            else:
                vars = step.states[step.ends].vars
            known |= {var: meaning_of("of", step.node, k) for k, var in enumerate(vars)}
        elif isinstance(step, ManyArrays):
            container = self[step.container]
            for kind, vars in (("array", step.arrays), ("storage", step.storages)):
                known |= {var: meaning_of(kind, container, k) for k, var in enumerate(vars)}
