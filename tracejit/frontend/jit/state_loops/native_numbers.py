"""Python's numbers in the body of a native loop (see `native_loop`): the graph computes and compares them.

    while n % 3 or float(err) > tol:     remainder, equal, greater: nodes on arrays without dimensions
        n += 1

Integers are int64, other numbers float64, and the results are those of Python: bounds on the magnitude of
integers are derived from their operands, and `LoopNumbers.evaluate` adds the conditions under which the
bounds hold.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from tracejit import ops
from tracejit.frontend.recording import operations
from tracejit.frontend.recording.operations import Operation
from tracejit.frontend.recording.sources import Computed, Question, Source
from tracejit.frontend.signature.expressions import Var
from tracejit.ir.graph import Builder, Value, constant_of
from tracejit.ir.types import Device
from tracejit.kernels import c_functions
from tracejit.ops.c_library import C_FUNCTIONS as C_OPERATORS

EXACT = 1 << 52
"""The largest magnitude of an integer with which an iteration starts."""

EXACT_IN_FLOATS, MAX_BOUND, HUGE = 1 << 53, 1 << 62, (1 << 63) - 1
"""The largest magnitudes of integers that are converted to float as in Python does, of computed integers, and
of literals.
"""

MAX_FACTOR = 1 << 30
"""The limit of both factors of a product that may become large; where one factor is small, that of the other
one is larger. Sums of such products still have a bound.
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
"""Operations of an integer and a literal; a left shift multiplies by a power of two."""

DIVISIONS = {operations.FLOOR_DIVIDE: ops.floor_divide, operations.REMAINDER: ops.remainder}
"""Operations by a number that is not zero; Python's results are NumPy's."""

ROUNDED: dict[Operation | None, Any] = {
    operations.INT: None,
    operations.call_of("math.trunc", 1): None,
    operations.call_of("math.floor", 1): ops.floor,
    operations.call_of("math.ceil", 1): ops.ceil,
}
"""Conversions of a float to an integer, and the operator before the conversion, which truncates."""

SQUARE_ROOT = operations.call_of("math.sqrt", 1)
ABSOLUTE = operations.call_of("math.fabs", 1)

SCALED: dict[Operation | None, float] = {
    operations.call_of("math.degrees", 1): 180.0 / math.pi,
    operations.call_of("math.radians", 1): math.pi / 180.0,
}
"""Functions that multiply a float by a number."""

C_FUNCTIONS: dict[Operation | None, str] = {
    **{operations.call_of(f"math.{name}", 1): name for name in c_functions.UNARY},
    **{operations.call_of(f"math.{name}", 2): name for name in c_functions.BINARY},
}
"""Functions that Python takes from the C library."""

MAX_POWER = 8
"""The largest exponent of an integer that is raised to a power by multiplications."""

TESTS = {operations.test_of(f"math.{op.name}"): op for op in (ops.isfinite, ops.isinf, ops.isnan)}
"""Questions about a float."""

TYPES = {operations.TYPE_QUESTIONS[kind]: dtype for kind, dtype in DTYPES.items()}
"""Questions about the type of a number, and the dtype that has it. Where Python's power of two floats is
complex, the C library's is not finite.
"""

MAX_SHIFT = 61
"""The largest number of bits by which the graph shifts."""

CHOICES = {
    operations.MAX: ops.greater,
    operations.MIN: ops.less,
}
"""Python's choice between two numbers: the second one, if it compares to the first one in this way."""


def _form(operation: Operation, operands: Sequence[Any]) -> str:
    """Return an operation on these operands as users know it: ``max(x, y, z)``."""
    return operation.written(*"xyzuvw"[: len(operands)]) if len(operands) <= 6 else operation.text


class Unsupported(Exception):
    """The graph cannot compute or ask what the body does; the message says why."""


class LoopNumbers:
    """Numbers in the body of a loop under construction.

    magnitude: returns the bound on the magnitude of an integer that follows from more than its operands, and
               the integers whose exactness it relies on; None if there is none.
    """

    def __init__(self, body: Builder, device: Device) -> None:
        self.body, self.device = body, device
        self.magnitude: Callable[[Value], tuple[int, Iterable[Value]] | None] = lambda value: None
        self._literals: dict[Value, Any] = {}
        self._bounds: dict[Value, int] = {}  # of computed integers
        self.exact: dict[Value, bool] = {}
        self._conditions: list[Value] = []
        self.limited: set[Value] = set()  # by one of the conditions

    def evaluate(
        self, steps: Sequence[Any], numbers: dict[Any, Value], outside: Callable[[Any], Value]
    ) -> list[Value]:
        """Perform the computations and questions of an iteration. Computed values are added to `numbers`;
        numbers that are not in it come from `outside`. Return truth values that are all true if Python
        computes the same numbers and its questions have the recorded answers.
        """
        self.limited = set()
        for step in steps:
            if isinstance(step, Computed):
                numbers[step] = self.computed(step, numbers, outside)
                continue
            truth = self.answer(step, numbers, outside)
            if isinstance(truth, Value):
                self._conditions.append(truth if step.value else self._emit(ops.logical_not, truth))
        return self.take_conditions()

    def computed(self, step: Computed, numbers: dict[Any, Value], outside: Callable[[Any], Value]) -> Value:
        """Return the number that a computation results in; see `evaluate`."""
        operands = [self._operand(operand, numbers, outside) for operand in step.operands]
        return self._compute(step.operation, operands)

    def answer(
        self, question: Question, numbers: dict[Any, Value], outside: Callable[[Any], Value]
    ) -> Value | bool:
        """Return the answer to a question; a Python bool if it is the same in every iteration."""
        if type(question.value) is not bool:
            raise Unsupported(f"the value of {question.path} is asked for")
        operands = [self._operand(operand, numbers, outside) for operand in question.operands]
        return self._truth(question.operation, operands)

    def is_value(
        self, question: Question, numbers: dict[Any, Value], outside: Callable[[Any], Value]
    ) -> Value:
        """Return whether an integer, whose exact value is asked for, has the recorded value."""
        number = self._operand(question.operands[0], numbers, outside)
        if number.type.dtype != INTEGER or abs(question.value) > EXACT:
            raise Unsupported(f"the value of {question.path} is asked for")
        return self._arithmetic(ops.equal, number, self.literal(question.value))

    def take_conditions(self) -> list[Value]:
        """Return the conditions under which the numbers since the last call are those that Python
        computes.
        """
        conditions, self._conditions = self._conditions, []
        return conditions

    def number(self, value: Any) -> Value:
        """Return a Python number as an array without dimensions."""
        return self.array(self.literal(value))

    def array(self, number: Value) -> Value:
        """Return a number as an array without dimensions."""
        return self.filled(self.body, number) if number.type.on_host else number

    def filled(self, builder: Builder, number: Value) -> Value:
        """Return an array without dimensions that contains a number of the host."""
        array: Value = builder.emit(ops.full, number, shape=(), device=self.device)
        return array

    def assume_exact(self, value: Value) -> None:
        """Assume that the magnitude of an integer is at most `EXACT` when an iteration starts. Its value in
        `exact` tells whether a computation relies on that.
        """
        if value.type.dtype == INTEGER:
            self.exact[value] = False

    def is_exact(self, value: Value) -> list[Value]:
        """Return conditions under which an integer is at least -`EXACT` and less than `EXACT`."""
        return [
            self._emit(ops.greater_equal, value, self.literal(-EXACT)),
            self._emit(ops.less, value, self.literal(EXACT)),
        ]

    def literal(self, value: Any) -> Value:
        """Return a Python number as a constant of the body."""
        constant: Value = self._emit(ops.constant, **constant_of(value, DTYPES[type(value)]))
        self._literals[constant] = value
        if type(value) is int:
            self._bounds[constant] = abs(value)
        return constant

    def all(self, conditions: Sequence[Value]) -> Value:
        """Return whether all conditions are true."""
        result = conditions[0]
        for condition in conditions[1:]:
            result = self._emit(ops.logical_and, result, condition)
        return result

    # -- computing -------------------------------------------------------------------------------------------

    def _emit(self, op: Any, *operands: Value, **attrs: Any) -> Any:
        return self.body.emit(op, *operands, **attrs)

    def _operand(self, operand: Any, numbers: dict[Any, Value], outside: Callable[[Any], Value]) -> Value:
        if isinstance(operand, Computed | Source | Var):
            return numbers[operand] if operand in numbers else outside(operand)
        if type(operand) not in DTYPES:
            raise Unsupported(f"{operand} is no number that the graph has")
        if type(operand) is int:  # larger ones compare to all computed integers as this one does
            operand = max(-HUGE, min(operand, HUGE))
        return self.literal(operand)

    def _compute(self, operation: Operation, operands: list[Value]) -> Value:
        if any(value.type.dtype == TRUTH for value in operands):
            raise Unsupported(TRUTHS)
        if operation is operations.IDENTITY_FUNCTION:
            return self._with_bound(self.array(operands[0]), self._bound_of(operands[0]))
        if operation is operations.FLOAT:
            return self._as_float(operands[0])
        if operation in ROUNDED:
            return self._rounded(ROUNDED[operation], operands[0])
        if operation is SQUARE_ROOT:
            x = self._as_float(operands[0])
            self._conditions.append(self._arithmetic(ops.greater_equal, x, self.literal(0.0)))
            return self._emit(ops.sqrt, self.array(x))
        if operation is ABSOLUTE:
            return self._emit(ops.abs, self.array(self._as_float(operands[0])))
        if operation in SCALED:
            return self._arithmetic(
                ops.multiply, self._as_float(operands[0]), self.literal(SCALED[operation])
            )
        if operation in C_FUNCTIONS:
            return self._of_c(C_FUNCTIONS[operation], operands)
        if operation in UNARY:
            bound = self._bound_of(operands[0])
            result = self._emit(UNARY[operation], *operands) if UNARY[operation] else operands[0]
            return self._with_bound(result, bound)
        if operation is operations.DIVIDE:
            x, y = [self._as_float(value) for value in operands]
            self._conditions.append(self._emit(ops.not_equal, y, self.literal(0.0)))
            return self._arithmetic(ops.divide, x, y)
        if operation in CHOICES:
            return self._choose(CHOICES[operation], *operands)
        if operation in ARITHMETIC:
            x, y = self._promote(operands)
            a, b = self._bound_of(x), self._bound_of(y)
            result = self._arithmetic(ARITHMETIC[operation], x, y)
            if operation is not operations.MULTIPLY:
                return self._with_bound(result, a + b)
            if a * b > MAX_BOUND and self._magnitude_of(result) > MAX_BOUND:
                limit = max(MAX_FACTOR**2 // max(min(a, b), 1), MAX_FACTOR)
                a, b = self._limit(x, a, limit), self._limit(y, b, limit)
            return self._with_bound(result, a * b)
        if all(value.type.dtype == INTEGER for value in operands):
            return self._of_integers(operation, operands)
        if operation is operations.POWER:
            return self._of_c("pow", operands)
        if operation in DIVISIONS:
            return self._divided(operation, [self._as_float(value) for value in operands], 0.0)
        raise Unsupported(f"numbers are computed by {_form(operation, operands)}")

    def _of_c(self, name: str, operands: list[Value]) -> Value:
        """Return the result of a function of the C library. Where it is not finite, Python may raise."""
        if self.device.kind != "cpu" or not c_functions.agrees(name):
            raise Unsupported(f"numbers are computed by {name}")
        result: Value = self._emit(C_OPERATORS[name], *[self.array(self._as_float(x)) for x in operands])
        self._conditions.append(self._emit(ops.isfinite, result))
        return result

    def _divided(self, operation: Operation, operands: list[Value], zero: Any) -> Value:
        """Return the quotient or remainder of two numbers of one type. That the second one is not zero
        becomes a condition.
        """
        x, y = operands
        self._conditions.append(self._arithmetic(ops.not_equal, y, self.literal(zero)))
        return self._arithmetic(DIVISIONS[operation], x, y)

    def _power(self, x: Value, exponent: int) -> Value:
        """Return an integer raised to a small power."""
        result = x
        for _ in range(exponent - 1):
            result = self._compute(operations.MULTIPLY, [result, x])
        return result

    def _of_integers(self, operation: Operation, operands: list[Value]) -> Value:
        """Return the result of an operation on integers."""
        bounds = [self._bound_of(value) for value in operands]
        if operation is operations.INVERT:
            inverted = self._emit(ops.bitwise_invert, self.array(operands[0]))
            return self._with_bound(inverted, bounds[0] + 1)
        if operation in BITWISE:
            bound = (1 << max(bounds).bit_length()) - 1
            positive = [self._literals[v] for v in operands if self._literals.get(v, -1) >= 0]
            if positive and operation is operations.AND:
                bound = min(positive)
            return self._with_bound(self._arithmetic(BITWISE[operation], *operands), bound + 1)
        literal = self._literals.get(operands[-1], -1)
        if operation is operations.POWER and 1 <= literal <= MAX_POWER:
            return self._power(operands[0], literal)
        if operation in DIVISIONS and literal <= 0:
            bound = bounds[1] if operation is operations.REMAINDER else bounds[0]
            return self._with_bound(self._divided(operation, operands, 0), bound + 1)
        is_shift = operation in (operations.LEFT_SHIFT, operations.RIGHT_SHIFT)
        if operation not in BY_LITERALS or not (0 <= literal <= MAX_SHIFT if is_shift else literal > 0):
            raise Unsupported(f"numbers are computed by {_form(operation, operands)}")
        if operation is operations.LEFT_SHIFT:
            literal = 1 << literal
        result = self._arithmetic(BY_LITERALS[operation], operands[0], self.literal(literal))
        if operation is operations.LEFT_SHIFT:
            return self._with_bound(result, bounds[0] * literal)
        return self._with_bound(result, literal if operation is operations.REMAINDER else max(bounds[0], 1))

    def _rounded(self, op: Any, x: Value) -> Value:
        """Return a number as an integer. That its magnitude is at most `EXACT` becomes a condition."""
        if x.type.dtype == INTEGER:
            return self._with_bound(self.array(x), self._bound_of(x))
        x = self.array(x)
        self._conditions.append(
            self._emit(ops.less_equal, self._emit(ops.abs, x), self.literal(float(EXACT)))
        )
        rounded = self._emit(op, x) if op else x
        return self._with_bound(self._emit(ops.astype, rounded, dtype=INTEGER), EXACT)

    def _arithmetic(self, op: Any, x: Value, y: Value) -> Value:
        if x.type.on_host and y.type.on_host:
            x = self.array(x)
        result: Value = self._emit(op, x, y)
        return result

    def _choose(self, compare: Any, x: Value, y: Value) -> Value:
        """Return y if the comparison of y to x is true, else x."""
        if x.type.dtype != y.type.dtype:
            raise Unsupported("one of two numbers of different types is chosen")
        is_second = self._arithmetic(compare, y, x)
        bound = max(self._bound_of(x), self._bound_of(y))
        return self._with_bound(self._emit(ops.where, is_second, y, x), bound)

    # -- questions -------------------------------------------------------------------------------------------

    def _truth(self, operation: Operation, operands: list[Value]) -> Value | bool:
        """Return the answer to a question; a Python bool if it is the same in every iteration."""
        if operation in COMPARISONS:
            huge = {v: n for v in operands if abs(n := self._literals.get(v, 0)) > MAX_BOUND}
            if huge and all(value.type.dtype == INTEGER for value in operands):
                for value in operands:
                    self._bound_of(value)
                return bool(operation.function(*(huge.get(value, 0) for value in operands)))
            return self._arithmetic(COMPARISONS[operation], *self._promote(operands))
        if operation in TYPES:
            return operands[0].type.dtype == TYPES[operation]
        if operation in TESTS:
            return self._emit(TESTS[operation], self.array(self._as_float(operands[0])))
        if operation is not operations.TRUTH:
            raise Unsupported(f"a round asks for {_form(operation, operands)}")
        x = self.array(operands[0])
        if x.type.dtype == TRUTH:
            return x
        return self._arithmetic(ops.not_equal, x, self.literal(0.0 if x.type.dtype == FLOAT else 0))

    def _promote(self, operands: list[Value]) -> list[Value]:
        """Return the operands in one dtype, as Python compares and adds them."""
        dtypes = {value.type.dtype for value in operands}
        if len(dtypes) == 1:
            return operands
        if TRUTH in dtypes:
            raise Unsupported(TRUTHS)
        return [self._as_float(value) for value in operands]

    def _as_float(self, value: Value) -> Value:
        if value.type.dtype == FLOAT:
            return value
        if value.type.dtype != INTEGER:
            raise Unsupported(TRUTHS)
        bound = self._bound_of(value)
        if bound > EXACT_IN_FLOATS and self._magnitude_of(value) > EXACT_IN_FLOATS:
            self._limit(value, bound, EXACT_IN_FLOATS)
        if value in self._literals:
            return self.literal(float(self._literals[value]))
        converted: Value = self._emit(ops.astype, value, dtype=FLOAT)
        return converted

    # -- bounds ----------------------------------------------------------------------------------------------

    def _with_bound(self, value: Value, bound: int) -> Value:
        """Note the bound on the magnitude of a computed number, and return the number."""
        if value.type.dtype == INTEGER:
            if bound > MAX_BOUND:
                bound = self._magnitude_of(value)
                if bound > MAX_BOUND:
                    raise Unsupported("integers may become large")
            self._bounds[value] = bound
        return value

    def _magnitude_of(self, value: Value) -> int:
        """Return the bound on the magnitude of an integer that follows from more than its operands."""
        known = self.magnitude(value)
        if known is None or known[0] > MAX_BOUND:
            return HUGE
        self.exact.update(dict.fromkeys(known[1], True))
        return known[0]

    def _limit(self, value: Value, bound: int, limit: int) -> int:
        """Make it a condition that the magnitude of a factor is within a limit. Return its bound."""
        if bound <= limit:
            return bound
        self._conditions.append(self._emit(ops.greater_equal, value, self.literal(-limit)))
        self._conditions.append(self._emit(ops.less_equal, value, self.literal(limit)))
        return limit

    def _bound_of(self, value: Value) -> int:
        """Return the bound on the magnitude of an integer. That an integer with which an iteration starts, or
        that it looks at, is at most `EXACT` becomes a condition.
        """
        if value.type.dtype != INTEGER:
            return 0
        if value in self._bounds:
            return self._bounds[value]
        if value in self.exact:
            self.exact[value] = True
        elif value not in self.limited:
            self.limited.add(value)
            self._conditions += self.is_exact(value)
        return EXACT
