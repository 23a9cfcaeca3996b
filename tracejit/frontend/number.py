"""Numbers of a traced call: run-time inputs until the body looks at their value.

A `NumberProxy` stands for an int or float argument while its call is recorded. Arithmetic between numbers
gives another proxy whose `source` is the Python expression that computes it; replays evaluate that
expression, so Python's own rules hold, and only results cross into kernels. Whoever looks at the value (a
comparison, ``math.sqrt``, formatting, ``range``, hashing) gets it, and the trace guards what was looked at.

The proxy subclasses no number, because C code would read a subclass's C value and bypass us; it answers
``isinstance`` through ``__class__``.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

Guard = Callable[[str, Any], None]
"""Called with an expression and the value it had: the trace holds only for calls where it has it again."""


def source_of(value: Any) -> str:
    """A number as an expression that gives exactly it."""
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return f"float({str(value)!r})"
    return f"({value!r})"


class NumberProxy:
    """An int or float of the call being recorded."""

    __slots__ = ("_guard", "_source", "_value")

    def __init__(self, value: Any, source: str, guard: Guard):
        self._value, self._source, self._guard = value, source, guard

    __class__ = property(lambda self: type(self._value))

    def _look(self) -> Any:
        self._guard(self._source, self._value)
        return self._value

    def __float__(self) -> float:
        return float(self._look())

    def __int__(self) -> int:
        return int(self._look())

    def __index__(self) -> int:
        return operator.index(self._look())

    def __complex__(self) -> complex:
        return complex(self._look())

    def __bool__(self) -> bool:
        truth = bool(self._value)
        self._guard(f"bool({self._source})", truth)
        return truth

    def __hash__(self) -> int:
        return hash(self._look())

    def __repr__(self) -> str:
        return repr(self._look())

    def __str__(self) -> str:
        return str(self._look())

    def __format__(self, spec: str) -> str:
        return format(self._look(), spec)

    def __round__(self, digits: int | None = None) -> Any:
        return round(self._look(), digits) if digits is not None else round(self._look())

    def __trunc__(self) -> int:
        return int(self._look())

    def __floor__(self) -> int:
        return self._look().__floor__()

    def __ceil__(self) -> int:
        return self._look().__ceil__()

    def __reduce__(self) -> Any:
        value = self._look()
        return type(value), (value,)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._look(), name)


def is_number(value: Any) -> bool:
    """Whether `value` is a Python number (not a bool) or a proxy for one."""
    return type(value) is NumberProxy or (isinstance(value, (int, float)) and not isinstance(value, bool))


def plain(value: Any) -> Any:
    """The number itself, if `value` is a proxy: this looks at it."""
    return value._look() if type(value) is NumberProxy else value


def _operand(value: Any) -> tuple[Any, str] | None:
    if type(value) is NumberProxy:
        return value._value, value._source
    if isinstance(value, (bool, int, float)):
        return value, source_of(value)
    return None


def _binary(symbol: str, function: Callable[[Any, Any], Any], template: str | None = None) -> tuple[Any, Any]:
    form = template or f"({{0}} {symbol} {{1}})"

    def forward(self: NumberProxy, other: Any) -> Any:
        known = _operand(other)
        if known is None:
            return NotImplemented
        value, source = known
        return NumberProxy(function(self._value, value), form.format(self._source, source), self._guard)

    def backward(self: NumberProxy, other: Any) -> Any:
        known = _operand(other)
        if known is None:
            return NotImplemented
        value, source = known
        return NumberProxy(function(value, self._value), form.format(source, self._source), self._guard)

    return forward, backward


def _comparison(symbol: str, function: Callable[[Any, Any], Any]) -> Any:
    def compare(self: NumberProxy, other: Any) -> Any:
        known = _operand(other)
        if known is None:
            return NotImplemented
        value, source = known
        truth = function(self._value, value)
        self._guard(f"({self._source} {symbol} {source})", truth)
        return truth

    return compare


def _unary(template: str, function: Callable[[Any], Any]) -> Any:
    def apply(self: NumberProxy) -> Any:
        return NumberProxy(function(self._value), template.format(self._source), self._guard)

    return apply


for _name, _symbol, _function in (
    ("add", "+", operator.add),
    ("sub", "-", operator.sub),
    ("mul", "*", operator.mul),
    ("truediv", "/", operator.truediv),
    ("floordiv", "//", operator.floordiv),
    ("mod", "%", operator.mod),
    ("pow", "**", operator.pow),
    ("and", "&", operator.and_),
    ("or", "|", operator.or_),
    ("xor", "^", operator.xor),
    ("lshift", "<<", operator.lshift),
    ("rshift", ">>", operator.rshift),
):
    _forward, _backward = _binary(_symbol, _function)
    setattr(NumberProxy, f"__{_name}__", _forward)
    setattr(NumberProxy, f"__r{_name}__", _backward)
for _name, _symbol, _function in (
    ("lt", "<", operator.lt),
    ("le", "<=", operator.le),
    ("gt", ">", operator.gt),
    ("ge", ">=", operator.ge),
    ("eq", "==", operator.eq),
    ("ne", "!=", operator.ne),
):
    setattr(NumberProxy, f"__{_name}__", _comparison(_symbol, _function))
for _name, _template, _single in (
    ("neg", "(-{0})", operator.neg),
    ("pos", "(+{0})", operator.pos),
    ("abs", "abs({0})", abs),
    ("invert", "(~{0})", operator.invert),
):
    setattr(NumberProxy, f"__{_name}__", _unary(_template, _single))
