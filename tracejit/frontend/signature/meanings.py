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

from collections.abc import Hashable

from tracejit.frontend.python.identity import Identity
from tracejit.frontend.python.interned import Interned, interned
from tracejit.frontend.signature.expressions import Const, Derived, Expr, Result, Var, attribute
from tracejit.frontend.signature.program import (
    ArrayCheck,
    Bind,
    ManyArrays,
    ProgramStep,
    ReplayProgram,
    RunSegment,
    StateLoop,
)


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
        self._known: dict[Var, Interned | tuple[Hashable, ...]] = {}  # tuples are interned when needed

    @classmethod
    def of(cls, program: ReplayProgram) -> Meanings:
        """Return the meanings of the variables that a program has bound so far."""
        meanings = cls()
        for step in program.steps:
            meanings.add(step)
        for var, value in program.copies:  # of variables that steps bind
            meanings._known[var] = meanings[value]
        return meanings

    def __getitem__(self, value: Expr) -> Interned:
        if isinstance(value, Derived):
            what = ("result", self[value.function]) if isinstance(value, Result) else value.what
            return interned(what, *(self[operand] for operand in value.operands))
        if isinstance(value, Var):
            known = self._known.get(value, ("variable", value))
            if isinstance(known, tuple):
                known = self._known[value] = interned(*known)
            return known
        return interned("object", Identity(value.value)) if isinstance(value, Const) else interned(value.key)

    def add(self, step: ProgramStep) -> None:
        """Add the meanings of the variables that a step binds."""
        known = self._known
        if isinstance(step, Bind):
            known[step.var] = self[step.value]
        elif isinstance(step, ArrayCheck):
            known[step.storage] = self[attribute(step.array, "_storage")]
        elif isinstance(step, RunSegment):
            known |= {var: ("of", step.node, k) for k, var in enumerate((*step.results, step.number))}
        elif isinstance(step, StateLoop):
            end = step.states[step.ends]
            own = set(end.vars)
            known |= {var: ("of", step.node, end.key, k) for k, var in enumerate(end.values) if var in own}
        elif isinstance(step, ManyArrays):
            container = self[step.container]
            for kind, vars in (("array", step.arrays), ("storage", step.storages)):
                known |= {var: (kind, container, k) for k, var in enumerate(vars)}
