"""Numbers of Python's in the body of a native loop (see `exits`): computed, and asked, by the graph.

    while n % 3 or float(err) > tol:     remainder, equal, greater: nodes on arrays without dimensions
        n += 1

Whole numbers are int64, others float64, and results are those of Python: the sizes of whole numbers are
bounded from what they are computed of, and `RoundNumbers.ask` adds the conditions under which that holds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tracejit import ops
from tracejit.frontend.recording import operations
from tracejit.frontend.recording.operations import Operation
from tracejit.frontend.recording.sources import Computed, Question, Source
from tracejit.frontend.signature.expressions import Var
from tracejit.ir.graph import Builder, Value, constant_of
from tracejit.ir.types import Device

EXACT = 1 << 52
"""Whole numbers with which a round begins are at most as large."""

EXACT_IN_FLOATS, LARGEST, HUGE = 1 << 53, 1 << 62, (1 << 63) - 1
"""Whole numbers up to the first one become floats as in Python; those that are computed are up to the second
one, literals up to the third one.
"""

FLOAT, INTEGER, TRUTH = np.dtype("float64"), np.dtype("int64"), np.dtype("bool")
DTYPES = {float: FLOAT, int: INTEGER, bool: TRUTH}

TRUTHS = "a truth value is used as a number"

COMPARISONS = {
    operations.LESS: ops.less,
    operations.LESS_EQUAL: ops.less_equal,
    operations.GREATER: ops.greater,
    operations.GREATER_EQUAL: ops.greater_equal,
    operations.EQUAL: ops.equal,
    operations.NOT_EQUAL: ops.not_equal,
}
ARITHMETIC = {operations.ADD: ops.add, operations.SUBTRACT: ops.subtract, operations.MULTIPLY: ops.multiply}
UNARY: dict[Operation, Any] = {
    operations.NEGATIVE: ops.negative,
    operations.ABS: ops.abs,
    operations.POSITIVE: None,
}
BITWISE = {
    operations.AND: ops.bitwise_and,
    operations.OR: ops.bitwise_or,
    operations.XOR: ops.bitwise_xor,
}
BY_LITERALS = {
    operations.FLOOR_DIVIDE: ops.floor_divide,
    operations.REMAINDER: ops.remainder,
    operations.RIGHT_SHIFT: ops.bitwise_right_shift,
    operations.LEFT_SHIFT: ops.multiply,
}
"""Operations of whole numbers and a literal, which is positive; the last one by a power of two."""

MOST_BITS = 61
"""The largest literal by which the graph shifts."""

CHOICES = {
    operations.OPERATIONS["max({}, {})"]: ops.greater,
    operations.OPERATIONS["min({}, {})"]: ops.less,
}
"""Python's choice of two numbers: the second one, if it compares so with the first one."""


def _form(operation: Operation, operands: Sequence[Any]) -> str:
    """An operation of so many operands, for people: ``max(x, y, z)``."""
    return operation.written(*"xyzuvw"[: len(operands)]) if len(operands) <= 6 else operation.text


class Unfit(Exception):
    """The graph cannot ask what the body asks; the message says why."""


class RoundNumbers:
    """Numbers in the body of a loop under construction."""

    def __init__(self, body: Builder, device: Device) -> None:
        self.body, self.device = body, device
        self._literals: dict[Value, Any] = {}
        self._bounds: dict[Value, int] = {}  # of whole numbers that are computed
        self._conditions: list[Value] = []
        self._limited: set[Value] = set()  # by one of the conditions

    def ask(
        self, steps: Sequence[Any], numbers: dict[Any, Value], outside: Callable[[Any], Value]
    ) -> list[Value]:
        """Compute what a round computes of its numbers, which are added to them, and ask what it asks; other
        numbers are found `outside`. Gives truth values: all are true, where Python computes the same and has
        the same answers.
        """
        self._conditions, self._limited = [], set()
        for step in steps:
            operands = [self._operand(operand, numbers, outside) for operand in step.operands]
            if isinstance(step, Computed):
                numbers[step] = self._compute(step.operation, operands)
            elif isinstance(step, Question) and type(step.value) is bool:
                truth = self._truth(step.operation, operands)
                if isinstance(truth, Value):
                    self._conditions.append(truth if step.value else self._emit(ops.logical_not, truth))
            else:
                raise Unfit(f"the value of {step.path} is asked for")
        return self._conditions

    def array(self, number: Value) -> Value:
        """A number as an array without dimensions."""
        return self.filled(self.body, number) if number.type.on_host else number

    def filled(self, builder: Builder, number: Value) -> Value:
        """An array without dimensions that holds a number of the host."""
        found: Value = builder.emit(ops.full, number, shape=(), device=self.device)
        return found

    def literal(self, value: Any) -> Value:
        """A plain number in the body."""
        found: Value = self._emit(ops.constant, **constant_of(value, DTYPES[type(value)]))
        self._literals[found] = value
        if type(value) is int:
            self._bounds[found] = abs(value)
        return found

    def all(self, conditions: Sequence[Value]) -> Value:
        """Whether all conditions hold."""
        found = conditions[0]
        for condition in conditions[1:]:
            found = self._emit(ops.logical_and, found, condition)
        return found

    # -- computing -------------------------------------------------------------------------------------------

    def _emit(self, op: Any, *operands: Value, **attrs: Any) -> Any:
        return self.body.emit(op, *operands, **attrs)

    def _operand(self, operand: Any, numbers: dict[Any, Value], outside: Callable[[Any], Value]) -> Value:
        if isinstance(operand, Computed | Source | Var):
            return numbers[operand] if operand in numbers else outside(operand)
        if type(operand) not in DTYPES:
            raise Unfit(f"{operand} is no number that the graph has")
        if type(operand) is int:  # a larger one compares alike with all that is computed
            operand = max(-HUGE, min(operand, HUGE))
        return self.literal(operand)

    def _compute(self, operation: Operation, operands: list[Value]) -> Value:
        if any(value.type.dtype == TRUTH for value in operands):
            raise Unfit(TRUTHS)
        if operation is operations.IDENTITY_FUNCTION:
            return self._sized(self.array(operands[0]), self._bounded(operands[0]))
        if operation is operations.FLOAT:
            return self._as_float(operands[0])
        if operation in UNARY:
            bound = self._bounded(operands[0])
            made = self._emit(UNARY[operation], *operands) if UNARY[operation] else operands[0]
            return self._sized(made, bound)
        if operation is operations.DIVIDE:
            x, y = [self._as_float(value) for value in operands]
            self._conditions.append(self._emit(ops.not_equal, y, self.literal(0.0)))
            return self._arithmetic(ops.divide, x, y)
        if operation in CHOICES:
            return self._chosen(CHOICES[operation], *operands)
        if operation in ARITHMETIC:
            x, y = self._together(operands)
            a, b = self._bounded(x), self._bounded(y)
            made = self._arithmetic(ARITHMETIC[operation], x, y)
            return self._sized(made, a * b if operation is operations.MULTIPLY else a + b)
        if all(value.type.dtype == INTEGER for value in operands):
            return self._of_integers(operation, operands)
        raise Unfit(f"numbers are computed by {_form(operation, operands)}")

    def _of_integers(self, operation: Operation, operands: list[Value]) -> Value:
        """The result of an operation of whole numbers only."""
        bounds = [self._bounded(value) for value in operands]
        if operation is operations.INVERT:
            return self._sized(self._emit(ops.bitwise_invert, self.array(operands[0])), bounds[0] + 1)
        if operation in BITWISE:
            bound = (1 << max(bounds).bit_length()) - 1
            positive = [self._literals[v] for v in operands if self._literals.get(v, -1) >= 0]
            if positive and operation is operations.AND:
                bound = min(positive)
            return self._sized(self._arithmetic(BITWISE[operation], *operands), bound + 1)
        literal = self._literals.get(operands[-1], -1)
        is_shift = operation in (operations.LEFT_SHIFT, operations.RIGHT_SHIFT)
        if operation not in BY_LITERALS or not (0 <= literal <= MOST_BITS if is_shift else literal > 0):
            raise Unfit(f"numbers are computed by {_form(operation, operands)}")
        if operation is operations.LEFT_SHIFT:
            literal = 1 << literal
        made = self._arithmetic(BY_LITERALS[operation], operands[0], self.literal(literal))
        bound = bounds[0] * literal if operation is operations.LEFT_SHIFT else max(bounds[0], literal)
        return self._sized(made, bound)

    def _arithmetic(self, op: Any, x: Value, y: Value) -> Value:
        if x.type.on_host and y.type.on_host:
            x = self.array(x)
        made: Value = self._emit(op, x, y)
        return made

    def _chosen(self, compare: Any, x: Value, y: Value) -> Value:
        """The second number if it compares so with the first one, else that."""
        if x.type.dtype != y.type.dtype:
            raise Unfit("one of two numbers of different types is chosen")
        is_second = self._arithmetic(compare, y, x)
        bound = max(self._bounded(x), self._bounded(y))
        return self._sized(self._emit(ops.where, is_second, y, x), bound)

    # -- asking ----------------------------------------------------------------------------------------------

    def _truth(self, operation: Operation, operands: list[Value]) -> Value | bool:
        """The answer to a question; a truth of Python's where every round has it."""
        if operation in COMPARISONS:
            huge = {v: n for v in operands if abs(n := self._literals.get(v, 0)) > LARGEST}
            if huge and all(value.type.dtype == INTEGER for value in operands):
                for value in operands:
                    self._bounded(value)
                return bool(operation.function(*(huge.get(value, 0) for value in operands)))
            return self._arithmetic(COMPARISONS[operation], *self._together(operands))
        if operation is not operations.TRUTH:
            raise Unfit(f"a round asks for {_form(operation, operands)}")
        x = self.array(operands[0])
        if x.type.dtype == TRUTH:
            return x
        return self._arithmetic(ops.not_equal, x, self.literal(0.0 if x.type.dtype == FLOAT else 0))

    def _together(self, operands: list[Value]) -> list[Value]:
        """Operands of one dtype, as Python compares and adds them."""
        dtypes = {value.type.dtype for value in operands}
        if len(dtypes) == 1:
            return operands
        if TRUTH in dtypes:
            raise Unfit(TRUTHS)
        return [self._as_float(value) for value in operands]

    def _as_float(self, value: Value) -> Value:
        if value.type.dtype == FLOAT:
            return value
        if value.type.dtype != INTEGER:
            raise Unfit(TRUTHS)
        if self._bounded(value) > EXACT_IN_FLOATS:
            raise Unfit("large whole numbers become floats")
        if value in self._literals:
            return self.literal(float(self._literals[value]))
        made: Value = self._emit(ops.astype, value, dtype=FLOAT)
        return made

    # -- sizes -----------------------------------------------------------------------------------------------

    def _sized(self, value: Value, bound: int) -> Value:
        """A computed number, with the bound of its size."""
        if value.type.dtype == INTEGER:
            if bound > LARGEST:
                raise Unfit("whole numbers may become large")
            self._bounds[value] = bound
        return value

    def _bounded(self, value: Value) -> int:
        """The bound of a whole number. What a round begins with, or finds, is at most `EXACT`: this becomes a
        condition.
        """
        if value.type.dtype != INTEGER:
            return 0
        if value in self._bounds:
            return self._bounds[value]
        if value not in self._limited:
            self._limited.add(value)
            for end in (-EXACT, EXACT):
                compare = ops.greater_equal if end < 0 else ops.less_equal
                self._conditions.append(self._emit(compare, value, self.literal(end)))
        return EXACT
