"""Type inference of kernels: Numba's, but no question is asked twice without a reason.

Numba turns each statement into constraints on the types of its variables, and evaluates all of them until a
round changes nothing: twice at least. Here a constraint is evaluated again only if the type of one of its
statement's variables has changed since, which is rare: only loops hand a type back.
"""

from __future__ import annotations

from typing import Any

from numba.core import errors
from numba.core.typeinfer import ConstraintNetwork, TypeInferer


class _Question:
    """The constraints of a statement, the type variables it mentions, and their types when last asked."""

    def __init__(self, constraints: list[Any], variables: list[Any]) -> None:
        self.network, self.variables = ConstraintNetwork(), variables
        self.network.constraints = constraints
        self.types: list[Any] = []
        self.failed = False

    def ask(self, inference: Inference) -> bool:
        """Evaluate the constraints if there is a reason; whether there was."""
        if self.types == [variable.type for variable in self.variables]:
            return False
        self.failed = bool(self.network.propagate(inference))
        self.types = [variable.type for variable in self.variables]
        return True


class Inference(TypeInferer):
    """The inference of one function."""

    def build_constraint(self) -> None:
        """Make the constraints, as Numba does, and note which variables they are about."""
        self.questions: list[_Question] = []
        made = self.constraints.constraints
        for block in self.blocks.values():
            for statement in block.body:
                start = len(made)
                self.constrain_statement(statement)
                if len(made) > start:
                    variables = [self.typevars[variable.name] for variable in statement.list_vars()]
                    self.questions.append(_Question(made[start:], variables))

    def propagate(self, raise_errors: bool = True) -> Any:
        """Evaluate constraints until nothing changes; errors are found and raised by Numba's way of it."""
        while sum(question.ask(self) for question in self.questions):
            pass
        if any(question.failed for question in self.questions):
            return super().propagate(raise_errors)
        return None


def infer(state: Any) -> None:
    """Infer the types of the function in `state`: of its variables, its calls and its result."""
    warnings = errors.WarningsFixer(errors.NumbaWarning)
    function = state.func_ir
    inference = Inference(state.typingctx, function, warnings)
    called = state.typingctx.callstack.register(state.targetctx.target, inference, state.func_id, state.args)
    with called, warnings:
        for index, (name, given) in enumerate(zip(function.arg_names, state.args, strict=True)):
            inference.seed_argument(name, index, given)
        if state.return_type is not None:
            inference.seed_return(state.return_type)
        inference.build_constraint()
        inference.propagate()
        state.typemap, state.return_type, state.calltypes = inference.unify()
