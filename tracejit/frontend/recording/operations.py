"""Operations on Python numbers, as data.

A body's operations on its run-time numbers are recorded as an `Operation` and operands (`sources`). The same
object describes the operation wherever it is executed:

    LESS.written("m2", "(1.0)")     the text of a replay: "(m2 < (1.0))"
    LESS.function(2, 1)             the answer, for iterations that run ahead of the body
    LESS: ops.less                  the operator that replaces it in a graph (`ranges.induction`,
                                    `jit.state_loops.native_loop`)

Each operation is a single object. `OPERATIONS` contains those that a file may name, by their text.

>>> LESS.written("m2", "(1.0)"), LESS.function(2, 1)
('(m2 < (1.0))', False)
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from tracejit.ir.types import DTYPES


class Operation:
    """An operation of Python on numbers.

    text:     the Python expression, with ``{}`` for each operand.
    function: computes the result.
    truth:    the operation that asks for the truth value of the result, if results may be truth values.
    """

    __slots__ = ("function", "text", "truth")

    def __init__(self, text: str, function: Callable[..., Any], truth: Operation | None = None) -> None:
        self.text, self.function, self.truth = text, function, truth

    def __repr__(self) -> str:
        return f"Operation({self.text})"

    def written(self, *operands: Any) -> str:
        """Return the text of the operation on these operands."""
        return self.text.format(*operands)


OPERATIONS: dict[str, Operation] = {}
"""Operations by text."""


CALLS: dict[tuple[str, int], Operation] = {}
"""Calls of functions, by the name of the function and the number of operands."""


def _declare(text: str, function: Callable[..., Any], truth: Operation | None = None) -> Operation:
    OPERATIONS[text] = Operation(text, function, truth)
    return OPERATIONS[text]


def _bool_of(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *operands: bool(function(*operands))


def _call(name: str, function: Callable[..., Any], *arities: int) -> None:
    """Declare ``name(...)`` for these numbers of operands, and the question for the truth value of the
    result.
    """
    for arity in arities:
        text = f"{name}({', '.join(['{}'] * arity)})"
        CALLS[name, arity] = _declare(text, function, _declare(f"bool({text})", _bool_of(function)))


def _comparison(symbol: str, function: Callable[[Any, Any], Any]) -> Operation:
    truth = _bool_of(function)
    return _declare(f"({{}} {symbol} {{}})", truth, _declare(f"bool({{}} {symbol} {{}})", truth))


IDENTITY_FUNCTION = _declare("{}", lambda x: x)
TRUTH, INT, FLOAT = _declare("bool({})", bool), _declare("int({})", int), _declare("float({})", float)
ADD = _declare("({} + {})", operator.add)
SUBTRACT = _declare("({} - {})", operator.sub)
MULTIPLY = _declare("({} * {})", operator.mul)
DIVIDE = _declare("({} / {})", operator.truediv)
FLOOR_DIVIDE = _declare("({} // {})", operator.floordiv)
REMAINDER = _declare("({} % {})", operator.mod)
POWER = _declare("({} ** {})", operator.pow)
AND = _declare("({} & {})", operator.and_)
OR = _declare("({} | {})", operator.or_)
XOR = _declare("({} ^ {})", operator.xor)
LEFT_SHIFT = _declare("({} << {})", operator.lshift)
RIGHT_SHIFT = _declare("({} >> {})", operator.rshift)
LESS = _comparison("<", operator.lt)
LESS_EQUAL = _comparison("<=", operator.le)
GREATER = _comparison(">", operator.gt)
GREATER_EQUAL = _comparison(">=", operator.ge)
EQUAL = _comparison("==", operator.eq)
NOT_EQUAL = _comparison("!=", operator.ne)
NEGATIVE = _declare("(-{})", operator.neg)
POSITIVE = _declare("(+{})", operator.pos)
ABS = _declare("abs({})", abs)
INVERT = _declare("(~{})", operator.invert)

FUNCTIONS = (
    *("acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cbrt", "ceil", "copysign", "cos", "cosh"),
    *("degrees", "erf", "erfc", "exp", "exp2", "expm1", "fabs", "floor", "fmod", "gamma", "hypot", "ldexp"),
    *("lgamma", "log", "log10", "log1p", "log2", "nextafter", "pow", "radians", "remainder", "sin", "sinh"),
    *("sqrt", "tan", "tanh", "trunc", "ulp"),
)
"""Functions of `math` that return a number for one or two numbers."""

TESTS = ("isfinite", "isinf", "isnan")
"""Functions of `math` that return a truth value."""

_call("round", round, 1, 2)
_call("min", min, 2, 3)
_call("max", max, 2, 3)
MAX, MIN = CALLS["max", 2], CALLS["min", 2]
for _name in (*FUNCTIONS, *TESTS):
    _call(f"math.{_name}", getattr(math, _name), 1, 2)
for _name, _ufunc in vars(np).items():
    if isinstance(_ufunc, np.ufunc) and _ufunc.nout == 1 and _ufunc.nin <= 2:
        _call(f"np.{_name}", _ufunc, _ufunc.nin)


def call_of(name: str, count: int) -> Operation | None:
    """Return the operation ``name(x, ...)`` on `count` operands, if it is declared."""
    return CALLS.get((name, count))


def test_of(name: str) -> Operation | None:
    """Return the question for the truth value of ``name(x)``, if it is declared."""
    operation = call_of(name, 1)
    return operation.truth if operation is not None else None


def _type_question(kind: type) -> Operation:
    name = f"np.{kind.__name__}" if issubclass(kind, np.generic) else kind.__name__
    return _declare(f"(type({{}}) is {name})", lambda x: type(x) is kind)


_KINDS: tuple[Any, ...] = (bool, int, float, complex, *(dtype.type for dtype in DTYPES))
TYPE_QUESTIONS = {kind: _type_question(kind) for kind in _KINDS}
"""The question whether a number has a type, by type. It is asked of the number itself, not of its proxy."""


def type_is(kind: type) -> Operation:
    """Return the question whether a number has this type."""
    if kind not in TYPE_QUESTIONS:
        TYPE_QUESTIONS[kind] = _type_question(kind)
    return TYPE_QUESTIONS[kind]
