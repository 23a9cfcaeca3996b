"""Numbers that differ from round to round of a `tj.range`: induction variables.

    for i in tj.range(2, n):      `Progression`: 2 in round 0, 1 more in each; ``3 * i + 1`` is 7, and 3 more
        rate = 1 / (i + 1)        `Varying`: the loop computes it anew in each round, in float64

In a recorded round each has its value of that round. In the graph it is a value of its own (`value_of`),
which becomes an input of the loop's body. A question about its value, or an operation that loops do not have,
would give another answer in each round: then all rounds are recorded (`RangeLoop.unroll`).
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from tracejit.frontend.recording import operations
from tracejit.frontend.recording.number import NumberProxy, is_of
from tracejit.frontend.recording.operations import Operation
from tracejit.frontend.recording.origins import RuntimeNumber
from tracejit.frontend.recording.recording import number_type
from tracejit.frontend.recording.sources import OF_LOOPS, Computed, Progression, Varying
from tracejit.frontend.recording.trace_numbers import Numbers
from tracejit.ir.graph import Value, constant_of
from tracejit.ops import add, constant, divide, multiply, negative, subtract
from tracejit.passes.rolling.wiring import EXACT

if TYPE_CHECKING:
    from tracejit.frontend.recording.ranges.ranges import RangeLoop
    from tracejit.frontend.recording.trace import Trace

OPERATORS = {
    operations.ADD: add,
    operations.SUBTRACT: subtract,
    operations.MULTIPLY: multiply,
    operations.DIVIDE: divide,
    operations.NEGATIVE: negative,
}
"""Arithmetic of floats that loops do in each round."""


def does_move(number: Any) -> bool:
    """Whether a number moves with a loop that is being recorded."""
    return type(number) is NumberProxy and type(number._source) is Progression and not number._numbers.closed


def ends_of(number: Any) -> list[Any]:
    """The values of a number in this round and in the last one of each loop that it moves with."""
    if not does_move(number):
        return [number]
    source: Progression = number._source
    rest = source.loop.count - (source.loop.round + 1)
    further = rest if source.slope == 1 else source.slope * rest
    return [end for base in ends_of(source.base) for end in (base, base + further)]


# -- arithmetic ----------------------------------------------------------------------------------------------


def follow(operation: Operation, value: Any, operands: tuple[Any, ...]) -> NumberProxy:
    """The result of arithmetic on numbers of loops: it moves or varies, too, or the loop is unrolled."""
    inner: RangeLoop = max((o.loop for o in operands if type(o) in OF_LOOPS), key=lambda loop: loop.depth())
    if type(value) is float:
        return _vary(inner, operation, value, operands)
    bases, slopes = [], []
    for operand in operands:
        if type(operand) is Progression and operand.loop is inner:
            bases.append(operand.base)
            slopes.append(operand.slope)
            if operand.round != inner.round:
                inner.unroll("a number of the round before is used in arithmetic")
        elif type(operand) is int:
            bases.append(operand)
            slopes.append(0)
        elif type(operand) in (Progression, Computed):
            bases.append(inner.number(operand))
            slopes.append(0)
        else:
            inner.unroll(f"arithmetic of the loop variable and {getattr(operand, 'path', operand)}")
    slope = _slope(operation, bases, slopes)
    if slope is None or type(value) is not int:
        text = operation.written(*["i"] * len(operands))
        inner.unroll(f"{text} does not grow evenly with the loop variable i")
    return inner.moving(slope, operation.function(*bases))


def _slope(operation: Operation, bases: list[Any], slopes: list[int]) -> int | None:
    """The growth of a result in each round; None if it does not grow evenly."""
    match operation:
        case operations.ADD:
            return slopes[0] + slopes[1]
        case operations.SUBTRACT:
            return slopes[0] - slopes[1]
        case operations.MULTIPLY if slopes[0] == 0 and type(bases[0]) is int:
            return bases[0] * slopes[1]
        case operations.MULTIPLY if slopes[1] == 0 and type(bases[1]) is int:
            return slopes[0] * bases[1]
        case operations.NEGATIVE:
            return -slopes[0]
        case operations.POSITIVE | operations.INT:
            return slopes[0]
    return None


def _vary(loop: RangeLoop, operation: Operation, value: float, operands: tuple[Any, ...]) -> NumberProxy:
    """A float that is computed in each round, or the loop is unrolled."""
    source = Varying(loop, operation, operands, value)
    what = source.path
    for operand in operands:
        if type(operand) in OF_LOOPS:
            of_outer = type(operand) is Progression and does_move(operand.base)
            if of_outer or (operand.loop, operand.round) != (loop, loop.round):
                loop.unroll(f"{what} of a number of another round or loop")
            if type(operand) is Progression:
                _check_exact(operand, np.dtype("float64"))
        elif type(operand) not in (int, float) and type(getattr(operand, "value", None)) is not float:
            loop.unroll(f"arithmetic of the loop variable and {getattr(operand, 'path', operand)}")
        elif type(operand) is int and abs(operand) >= EXACT["float64"]:
            loop.unroll(f"{what} of a number that float64 does not hold")
    if operation not in OPERATORS or (operation is operations.DIVIDE and not _divides(loop, operands[1])):
        loop.unroll(f"{what} is no arithmetic that a loop does")
    proxy = NumberProxy(value, source, loop.trace.numbers)
    loop.numbers.append(weakref.ref(proxy))
    return proxy


def _divides(loop: RangeLoop, divisor: Any) -> bool:
    """Whether a divisor is not 0 in any round: Python raises an error then."""
    if type(divisor) is not Progression:
        return type(divisor) in (int, float)
    ends = ends_of(loop.number(divisor))
    return all(end > 0 for end in ends) or all(end < 0 for end in ends)


def _check_exact(source: Progression, dtype: np.dtype) -> None:
    """Check that a number of a loop, which grows by addition, stays an integer that its dtype has exactly."""
    most = int(np.iinfo(dtype).max) if dtype.kind in "iu" else EXACT.get(str(dtype), 0)
    least = 0 if dtype.kind == "u" else -most
    if not all(least <= end and end <= most for end in ends_of(source.loop.number(source))):
        source.loop.unroll(f"{dtype} does not count the rounds exactly")


# -- in the graph --------------------------------------------------------------------------------------------


def value_of(trace: Trace, number: RuntimeNumber, dtype: np.dtype) -> Value:
    """A value of its own for a number of a loop: that of this round, until the loop is made."""
    source = number.source
    key = "moving", source, dtype
    value = trace.scalars.get(key)
    if value is not None:
        return value
    if type(source) is Progression:
        _check_exact(source, dtype)
    elif source.round != source.loop.round:
        source.loop.unroll(f"{source.path} of the round before is used")
    first = _evaluated(source, trace.numbers, _origin_of)
    if is_of(first, trace.numbers):
        value = Value(number_type(dtype))
        trace._add_input(value, RuntimeNumber(first._value, first._source))
    else:
        value = trace.emit(constant, **constant_of(number.value, dtype))
    trace.scalars[key] = value
    trace.nest.values[value] = source
    return value


def after(source: Progression | Varying, rest: Any, numbers: Numbers) -> Any:
    """A number as it is after `rest` further rounds."""
    return _evaluated(source, numbers, lambda moving: moving.base + rest * moving.slope)


def _evaluated(source: Any, numbers: Numbers, moved: Callable[[Progression], Any]) -> Any:
    """A number, computed from the values of its moving operands."""
    if type(source) is Varying:
        return source.operation.function(*[_evaluated(each, numbers, moved) for each in source.operands])
    if type(source) is Progression:
        return moved(source)
    return source if type(source) in (int, float) else NumberProxy(source.value, source, numbers)


def _origin_of(source: Progression) -> Any:
    """The source of a number in the rounds being recorded: an integer, or a run-time number."""
    base = source.base
    outer = base._source if type(base) is NumberProxy else None
    return _origin_of(outer) if type(outer) is Progression else base
