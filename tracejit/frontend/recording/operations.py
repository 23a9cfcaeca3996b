"""Operations on Python's numbers, as data.

A body's operations on its run-time numbers are recorded as an `Operation` and operands (`sources`). One
description serves all that repeat them:

    LESS.written("m2", "(1.0)")     the text of a replay: "(m2 < (1.0))"
    LESS.function(2, 1)             the answer, for rounds that are run ahead of the body
    LESS: ops.less                  what a graph can do in its place (`loops.induction`,
          `jit.state_loops.native_loop`)

Each operation is one object. `OPERATIONS` has those that a file may name, by their text.

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
    """An operation of Python's on numbers.

    text:     the expression in Python, with ``{}`` for each operand.
    function: computes the result.
    truth:    the operation that asks whether the result is true, where results may be truths.
    """

    __slots__ = ("function", "text", "truth")

    def __init__(self, text: str, function: Callable[..., Any], truth: Operation | None = None) -> None:
        self.text, self.function, self.truth = text, function, truth

    def __repr__(self) -> str:
        return f"Operation({self.text})"

    def written(self, *operands: Any) -> str:
        """The text of the operation on these operands."""
        return self.text.format(*operands)


OPERATIONS: dict[str, Operation] = {}
"""Operations by text."""


def _declare(text: str, function: Callable[..., Any], truth: Operation | None = None) -> Operation:
    OPERATIONS[text] = Operation(text, function, truth)
    return OPERATIONS[text]


def _bool_of(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *operands: bool(function(*operands))


def _call(name: str, function: Callable[..., Any], *counts: int) -> None:
    """Declare ``name(...)`` for these counts of operands, and the question whether the result is true."""
    for count in counts:
        text = f"{name}({', '.join(['{}'] * count)})"
        _declare(text, function, _declare(f"bool({text})", _bool_of(function)))


def _comparison(symbol: str, function: Callable[[Any, Any], Any]) -> Operation:
    asked = _bool_of(function)
    return _declare(f"({{}} {symbol} {{}})", asked, _declare(f"bool({{}} {symbol} {{}})", asked))


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
"""Functions of `math` that give a number for one or two."""

TESTS = ("isfinite", "isinf", "isnan")
"""Functions of `math` that give a truth."""

_call("round", round, 1, 2)
_call("min", min, 2, 3)
_call("max", max, 2, 3)
for _name in (*FUNCTIONS, *TESTS):
    _call(f"math.{_name}", getattr(math, _name), 1, 2)
for _name, _ufunc in vars(np).items():
    if isinstance(_ufunc, np.ufunc) and _ufunc.nout == 1 and _ufunc.nin <= 2:
        _call(f"np.{_name}", _ufunc, _ufunc.nin)


def call_of(name: str, count: int) -> Operation | None:
    """The operation ``name(x, ...)`` on so many operands, if it is known."""
    return OPERATIONS.get(f"{name}({', '.join(['{}'] * count)})")


def _type_question(kind: type) -> Operation:
    name = f"np.{kind.__name__}" if issubclass(kind, np.generic) else kind.__name__
    return _declare(f"(type({{}}) is {name})", lambda x: type(x) is kind)


_KINDS: tuple[Any, ...] = (bool, int, float, complex, *(dtype.type for dtype in DTYPES))
TYPE_QUESTIONS = {kind: _type_question(kind) for kind in _KINDS}
"""The question whether a number is of a type, by type. It is about the number, not a stand-in for it."""


def type_is(kind: type) -> Operation:
    """The question whether a number is of this type."""
    if kind not in TYPE_QUESTIONS:
        TYPE_QUESTIONS[kind] = _type_question(kind)
    return TYPE_QUESTIONS[kind]
