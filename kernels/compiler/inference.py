"""Type inference of kernels: Numba's, but without redundant evaluations of constraints.

Numba turns each statement into constraints on the types of its variables and evaluates all of them until an
iteration changes nothing, at least twice. Here a constraint is evaluated again only if the type of a variable
of its statement has changed since. That is rare: only loops propagate types backwards.
"""

from __future__ import annotations

from typing import Any

from numba.core import errors
from numba.core.typeinfer import TypeInferer


class _StatementConstraints:
    """The constraints of a statement, its type variables, and their types after the last evaluation."""

    def __init__(self, constraints: list[Any], variables: list[Any]) -> None:
        self.constraints, self.variables = constraints, variables
        self.types: list[Any] = []
        self.failed = False

    def evaluate(self, inference: Inference) -> bool:
        """Evaluate the constraints if the type of a variable has changed; return whether one had."""
        if self.types == [variable.type for variable in self.variables]:
            return False
        self.failed = not self.propagate(inference)
        self.types = [variable.type for variable in self.variables]
        return True

    def propagate(self, inference: Inference) -> bool:
        """Evaluate the constraints; return whether all of them succeeded."""
        succeeded = True
        for constraint in self.constraints:
            try:
                constraint(inference)
            except Exception:  # Numba evaluates it again and reports the error if it persists
                succeeded = False
        return succeeded


class Inference(TypeInferer):
    """The inference of one function."""

    def build_constraint(self) -> None:
        """Build the constraints as Numba does, and record the variables of each statement."""
        self.statements: list[_StatementConstraints] = []
        constraints = self.constraints.constraints
        for block in self.blocks.values():
            for statement in block.body:
                start = len(constraints)
                self.constrain_statement(statement)
                if len(constraints) > start:
                    variables = [self.typevars[variable.name] for variable in statement.list_vars()]
                    self.statements.append(_StatementConstraints(constraints[start:], variables))

    def propagate(self, raise_errors: bool = True) -> Any:
        """Evaluate the constraints until no type changes; Numba's own method reports errors."""
        while sum(statement.evaluate(self) for statement in self.statements):
            pass
        if any(statement.failed for statement in self.statements):
            return super().propagate(raise_errors)
        return None


def infer(state: Any) -> None:
    """Infer the types of the variables, calls and result of the function in the compiler `state`."""
    warnings = errors.WarningsFixer(errors.NumbaWarning)
    function = state.func_ir
    inference = Inference(state.typingctx, function, warnings)
    frame = state.typingctx.callstack.register(state.targetctx.target, inference, state.func_id, state.args)
    with frame, warnings:
        for index, (name, argument) in enumerate(zip(function.arg_names, state.args, strict=True)):
            inference.seed_argument(name, index, argument)
        if state.return_type is not None:
            inference.seed_return(state.return_type)
        inference.build_constraint()
        inference.propagate()
        state.typemap, state.return_type, state.calltypes = inference.unify()
