"""Type inference of kernels: Numba's, but a constraint is evaluated again only for a reason.

Numba turns each statement into constraints on the types of its variables, and evaluates all of them until a
round changes nothing: twice at least. Here a constraint is evaluated again only if the type of one of its
statement's variables has changed since, which is rare: only loops hand a type back.
"""

from __future__ import annotations

from typing import Any

from numba.core import errors
from numba.core.typeinfer import TypeInferer


class _StatementConstraints:
    """The constraints of a statement, its type variables, and their types at the last evaluation."""

    def __init__(self, constraints: list[Any], variables: list[Any]) -> None:
        self.constraints, self.variables = constraints, variables
        self.types: list[Any] = []
        self.failed = False

    def evaluate(self, inference: Inference) -> bool:
        """Evaluate the constraints if a type has changed; return whether one had."""
        if self.types == [variable.type for variable in self.variables]:
            return False
        self.failed = not self.propagate(inference)
        self.types = [variable.type for variable in self.variables]
        return True

    def propagate(self, inference: Inference) -> bool:
        """Evaluate the constraints; return whether all could be."""
        good = True
        for constraint in self.constraints:
            try:
                constraint(inference)
            except Exception:  # Numba evaluates it again, and reports it, if it is an error in the end
                good = False
        return good


class Inference(TypeInferer):
    """The inference of one function."""

    def build_constraint(self) -> None:
        """Build the constraints as Numba does, and record the variables of each statement."""
        self.statements: list[_StatementConstraints] = []
        made = self.constraints.constraints
        for block in self.blocks.values():
            for statement in block.body:
                start = len(made)
                self.constrain_statement(statement)
                if len(made) > start:
                    variables = [self.typevars[variable.name] for variable in statement.list_vars()]
                    self.statements.append(_StatementConstraints(made[start:], variables))

    def propagate(self, raise_errors: bool = True) -> Any:
        """Evaluate constraints until nothing changes; Numba's own method reports errors."""
        while sum(statement.evaluate(self) for statement in self.statements):
            pass
        if any(statement.failed for statement in self.statements):
            return super().propagate(raise_errors)
        return None


def infer(state: Any) -> None:
    """Infer the types of the variables, the calls and the result of the function in `state`."""
    warnings = errors.WarningsFixer(errors.NumbaWarning)
    function = state.func_ir
    inference = Inference(state.typingctx, function, warnings)
    called = state.typingctx.callstack.register(state.targetctx.target, inference, state.func_id, state.args)
    with called, warnings:
        for index, (name, argument) in enumerate(zip(function.arg_names, state.args, strict=True)):
            inference.seed_argument(name, index, argument)
        if state.return_type is not None:
            inference.seed_return(state.return_type)
        inference.build_constraint()
        inference.propagate()
        state.typemap, state.return_type, state.calltypes = inference.unify()
