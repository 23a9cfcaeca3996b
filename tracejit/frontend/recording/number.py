"""Numbers of a traced call: run-time inputs until the body looks at their value.

A `NumberProxy` represents an int or float argument while its call is recorded. Arithmetic on proxies returns
another proxy, and the trace records the computation (`sources.Computed`). Replays repeat these computations
in Python, in the body's order. Python's own rules therefore apply, including its errors, and only results are
passed to kernels. Code that asks for the value (a comparison, ``math.sqrt``, formatting, ``range``, hashing)
gets it, and the answer is guarded (`sources.Question`):

    m2 = (n0 * (2))                  # n0: the argument lr
    if not ((m2 > (1.0)) is False): return MISS

The proxy is not a subclass of a number type, because C code would read the C value of the base class and
bypass the proxy. It answers ``isinstance`` through ``__class__``.
"""

from __future__ import annotations

import math
import operator
import sys
import types
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tracejit.frontend.recording import operations
from tracejit.frontend.recording.location import user_location
from tracejit.frontend.recording.operations import Operation, call_of

if TYPE_CHECKING:
    from tracejit.frontend.recording.trace_numbers import Numbers

ANSWERING: set[type] = set()
"""Classes of arrays of this package, whose own methods implement an operation with a number."""


class NumberProxy:
    """An int or float of the call being recorded. `_source` describes how a replay obtains or computes it."""

    __slots__ = ("__weakref__", "_numbers", "_source", "_value")

    def __init__(self, value: Any, source: Any, numbers: Numbers):
        self._value, self._source, self._numbers = value, source, numbers

    __class__ = property(lambda self: type(self._value))

    def _look(self) -> Any:
        self._numbers.check(self)
        self._numbers.ask(self._value, operations.IDENTITY_FUNCTION, self._source)
        return self._value

    def converted(self, kind: type) -> Any:
        """Convert the number to ``float`` or ``int``. The result for a number that depends on an array is
        another proxy.
        """
        numbers = self._numbers
        if numbers.closed or not numbers.is_recomputed(self._source):
            return kind(self._look())
        if type(self._value) is kind:
            return self
        operation = operations.INT if kind is int else operations.FLOAT
        return numbers.compute(operation, kind(self._value), self._source)

    def __float__(self) -> float:
        return float(self._look())

    def __int__(self) -> int:
        integer = self.converted(int)
        return integer._look() if type(integer) is NumberProxy else integer

    def __index__(self) -> int:
        return operator.index(self._look())

    def __complex__(self) -> complex:
        return complex(self._look())

    def __bool__(self) -> bool:
        truth = bool(self._value)
        self._numbers.ask(truth, operations.TRUTH, self._source)
        self._numbers.answered(self, truth, sys._getframe(1))
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
        arguments = (self,) if digits is None else (self, digits)
        return computed_by(round, "round", arguments, self._numbers)

    def __trunc__(self) -> Any:
        return computed_by(math.trunc, "math.trunc", (self,), self._numbers)

    def __floor__(self) -> Any:
        return computed_by(math.floor, "math.floor", (self,), self._numbers)

    def __ceil__(self) -> Any:
        return computed_by(math.ceil, "math.ceil", (self,), self._numbers)

    def __divmod__(self, other: Any) -> Any:
        return self // other, self % other

    def __rdivmod__(self, other: Any) -> Any:
        return other // self, other % self

    def __copy__(self) -> NumberProxy:
        return self

    def __deepcopy__(self, memo: Any) -> NumberProxy:
        return self

    def __reduce__(self) -> Any:
        value = self._look()
        return type(value), (value,)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.asarray(self._look(), dtype)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        """Compute a NumPy function. Floats and numbers that depend on arrays stay proxies; of other numbers,
        the values are looked at. Arrays of other kinds implement the function by their own method.
        """
        supported = (NumberProxy, np.ndarray, np.generic, bool, int, float, list, tuple)
        if not all(issubclass(type(x), supported) for x in inputs):
            return NotImplemented
        if method == "__call__" and not options:
            return computed_by(ufunc, f"np.{ufunc.__name__}", inputs, self._numbers)
        return getattr(ufunc, method)(*map(concrete, inputs), **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._look(), name)


def is_number(value: Any) -> bool:
    """Whether `value` is a Python number (not a bool) or a proxy of one."""
    return type(value) is NumberProxy or (
        isinstance(value, (int, float, complex)) and not isinstance(value, bool)
    )


def concrete(value: Any) -> Any:
    """Return the number itself if `value` is a proxy: this is a look at it."""
    return value._look() if type(value) is NumberProxy else value


def unproxied(value: Any) -> Any:
    """Return the number itself, without a guard, if `value` is a proxy."""
    return value._value if type(value) is NumberProxy else value


def is_of(value: Any, numbers: Numbers | None) -> bool:
    """Whether `value` is a proxy of these numbers, and their trace is still recording."""
    return type(value) is NumberProxy and value._numbers is numbers and not numbers.closed


def _operand(value: Any, numbers: Numbers) -> tuple[Any, Any] | None:
    """Return a number and its source, or None for other values. A number that is not a proxy is its own
    source.
    """
    if is_of(value, numbers):
        return value._value, value._source
    value = unproxied(value)
    if type(value) in (bool, int, float) or isinstance(value, np.integer | np.floating):
        return value, value
    return None


def _answers(other: Any, method: str) -> bool:
    """Whether the other operand of a proxy implements the operation by its own `method`: an array, a list to
    be repeated in place, an object whose class is written in Python, or an object that no number equals. All
    others need the number itself: complex numbers, and those of a class that the user defines or that is
    written in C (`decimal.Decimal`).
    """
    kind = type(other)
    if issubclass(kind, (int, float, complex)):
        return False
    if hasattr(kind, "__array_ufunc__") or (method == "__mul__" and hasattr(kind, "__imul__")):
        return True
    own = getattr(kind, method, None)
    if method in ("__eq__", "__ne__") and (own is getattr(object, method) or kind.__module__ == "builtins"):
        return True
    return own is not None and not isinstance(own, types.WrapperDescriptorType)


def computed_by(function: Callable[..., Any], name: str, arguments: Sequence[Any], numbers: Numbers) -> Any:
    """Call ``function(*arguments)``. If an operand is a float, depends on an array, or counts iterations, a
    replay computes the result again, and a truth value is a question. Otherwise the values of the operands
    are looked at.
    """
    operation = call_of(name, len(arguments))
    is_recorded = any(
        is_of(each, numbers) and (isinstance(each._value, float) or numbers.is_recomputed(each._source))
        for each in arguments
    )
    operands = [_operand(each, numbers) for each in arguments] if is_recorded else []
    if not is_recorded or None in operands or operation is None:
        return function(*map(concrete, arguments))
    with Guarding(*arguments):
        result = function(*(value for value, _ in operands))  # type: ignore[misc]
    sources = [source for _, source in operands]  # type: ignore[misc]
    if isinstance(result, bool | np.bool_):
        assert operation.truth is not None
        numbers.ask(bool(result), operation.truth, *sources)
        return result
    return numbers.compute(operation, result, *sources)


class Guarding:
    """A context that guards the operands of a computation if it raises, since the body may catch the error
    and continue. Numbers that depend on arrays cannot be guarded (see `Numbers.raised`).
    """

    def __init__(self, *operands: Any) -> None:
        self.operands = operands

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        if kind is None or not issubclass(kind, Exception):
            return
        for operand in self.operands:
            if type(operand) is NumberProxy and operand._source in operand._numbers.from_arrays:
                operand._numbers.raised = user_location()
            else:
                concrete(operand)


def _method(answering: str, function: Callable[[Any, Any], Any], record: Callable[..., Any]) -> Any:
    """Return the method of an operator. It calls `record` if the other operand is a number, and `function`
    otherwise. An operand that has the method `answering` implements the operation itself.
    """

    def apply(self: NumberProxy, other: Any) -> Any:
        if self._numbers.closed:
            return function(self._value, other)
        if type(other) in ANSWERING:
            return NotImplemented
        operand = _operand(other, self._numbers)
        if operand is None:
            return NotImplemented if _answers(other, answering) else function(self._look(), other)
        return record(self, other, *operand)

    return apply


def _binary(name: str, operation: Operation) -> tuple[Any, Any]:
    """Return the methods of an operator, with the proxy as its left and as its right operand."""
    function = operation.function

    def forward(self: NumberProxy, other: Any, value: Any, source: Any) -> Any:
        with Guarding(self, other):
            result = function(self._value, value)
        return self._numbers.compute(operation, result, self._source, source)

    def backward(self: NumberProxy, other: Any, value: Any, source: Any) -> Any:
        with Guarding(self, other):
            result = function(value, self._value)
        return self._numbers.compute(operation, result, source, self._source)

    return (
        _method(f"__r{name}__", function, forward),
        _method(f"__{name}__", lambda x, y: function(y, x), backward),
    )


def _modular(power: Callable[[Any, Any], Any]) -> Any:
    """Return the method of ``pow`` with two or three arguments."""

    def forward(self: NumberProxy, other: Any, modulus: Any = None) -> Any:
        return (
            power(self, other) if modulus is None else pow(self._look(), concrete(other), concrete(modulus))
        )

    return forward


def _comparison(mirrored: str, operation: Operation, function: Callable[[Any, Any], Any]) -> Any:
    def record(self: NumberProxy, other: Any, value: Any, source: Any) -> Any:
        truth = function(self._value, value)  # an np.bool for NumPy numbers: ``~`` differs from Python's
        question = operation if truth is bool(truth) else operation.truth
        self._numbers.ask(bool(truth), question, self._source, source)  # type: ignore[arg-type]
        self._numbers.answered(self, truth, sys._getframe(2))  # the caller of the method
        return truth

    return _method(f"__{mirrored}__", function, record)


def _unary(operation: Operation) -> Any:
    def apply(self: NumberProxy) -> Any:
        with Guarding(self):
            result = operation.function(self._value)
        return self._numbers.compute(operation, result, self._source)

    return apply


for _name, _operation in (
    ("add", operations.ADD),
    ("sub", operations.SUBTRACT),
    ("mul", operations.MULTIPLY),
    ("truediv", operations.DIVIDE),
    ("floordiv", operations.FLOOR_DIVIDE),
    ("mod", operations.REMAINDER),
    ("pow", operations.POWER),
    ("and", operations.AND),
    ("or", operations.OR),
    ("xor", operations.XOR),
    ("lshift", operations.LEFT_SHIFT),
    ("rshift", operations.RIGHT_SHIFT),
):
    _forward, _backward = _binary(_name, _operation)
    setattr(NumberProxy, f"__{_name}__", _modular(_forward) if _name == "pow" else _forward)
    setattr(NumberProxy, f"__r{_name}__", _backward)
for _name, _mirrored, _operation in (
    ("lt", "gt", operations.LESS),
    ("le", "ge", operations.LESS_EQUAL),
    ("gt", "lt", operations.GREATER),
    ("ge", "le", operations.GREATER_EQUAL),
    ("eq", "eq", operations.EQUAL),
    ("ne", "ne", operations.NOT_EQUAL),
):
    setattr(NumberProxy, f"__{_name}__", _comparison(_mirrored, _operation, getattr(operator, _name)))
for _name, _operation in (
    ("neg", operations.NEGATIVE),
    ("pos", operations.POSITIVE),
    ("abs", operations.ABS),
    ("invert", operations.INVERT),
):
    setattr(NumberProxy, f"__{_name}__", _unary(_operation))
