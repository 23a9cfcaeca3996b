"""Numbers that differ between the iterations of a `tj.range`: induction variables.

    for i in tj.range(2, n):      `Progression`: 2 in iteration 0, plus 1 in each; ``3 * i + 1`` is 7, plus 3
        rate = 1 / (i + 1)        `Varying`: the loop computes it in each iteration, in float64

In a recorded iteration, each number has its value of that iteration. In the graph it is a separate value
(`value_of`), which becomes an input of the loop's body. A question about its value, or an operation that
loops do not support, would have another answer in each iteration. In that case all iterations are recorded
(`RangeLoop.unroll`).
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
"""The arithmetic on floats that loops can do in each iteration."""


def does_move(number: Any) -> bool:
    """Whether a number is an induction variable of a loop that is being recorded."""
    return type(number) is NumberProxy and type(number._source) is Progression and not number._numbers.closed


def ends_of(number: Any) -> list[Any]:
    """Return the values of a number in the present iteration and in the last one, for each loop that it moves
    with.
    """
    if not does_move(number):
        return [number]
    source: Progression = number._source
    remaining = source.loop.trip_count - (source.loop.iteration + 1)
    increase = remaining if source.slope == 1 else source.slope * remaining
    return [end for base in ends_of(source.base) for end in (base, base + increase)]


# -- arithmetic ----------------------------------------------------------------------------------------------


def follow(operation: Operation, value: Any, operands: tuple[Any, ...]) -> NumberProxy:
    """Return the result of arithmetic on numbers of loops, which is again a number of a loop. Unrolls the
    loop if it does not support the operation.
    """
    inner: RangeLoop = max((o.loop for o in operands if type(o) in OF_LOOPS), key=lambda loop: loop.depth())
    if type(value) is float:
        return _vary(inner, operation, value, operands)
    bases, slopes = [], []
    for operand in operands:
        if type(operand) is Progression and operand.loop is inner:
            bases.append(operand.base)
            slopes.append(operand.slope)
            if operand.iteration != inner.iteration:
                inner.unroll("a number of the previous iteration is used in arithmetic")
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
        inner.unroll(f"{text} is not linear in the loop variable i")
    return inner.moving(slope, operation.function(*bases))


def _slope(operation: Operation, bases: list[Any], slopes: list[int]) -> int | None:
    """Return the increment of a result per iteration; None if it is not linear in the induction variable."""
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
    """Return a float that is computed in each iteration. Unrolls the loop if it does not support the
    operation.
    """
    source = Varying(loop, operation, operands, value)
    expression = source.path
    for operand in operands:
        if type(operand) in OF_LOOPS:
            of_outer = type(operand) is Progression and does_move(operand.base)
            if of_outer or (operand.loop, operand.iteration) != (loop, loop.iteration):
                loop.unroll(f"{expression} of a number of another iteration or loop")
            if type(operand) is Progression:
                _check_exact(operand, np.dtype("float64"))
        elif type(operand) not in (int, float) and type(getattr(operand, "value", None)) is not float:
            loop.unroll(f"arithmetic of the loop variable and {getattr(operand, 'path', operand)}")
        elif type(operand) is int and abs(operand) >= EXACT["float64"]:
            loop.unroll(f"{expression} of a number that float64 does not represent exactly")
    if operation not in OPERATORS or (operation is operations.DIVIDE and not _divides(loop, operands[1])):
        loop.unroll(f"{expression} is not arithmetic that a loop supports")
    proxy = NumberProxy(value, source, loop.trace.numbers)
    loop.numbers.append(weakref.ref(proxy))
    return proxy


def _divides(loop: RangeLoop, divisor: Any) -> bool:
    """Whether a divisor is nonzero in all iterations. Python raises an error for 0."""
    if type(divisor) is not Progression:
        return type(divisor) in (int, float)
    ends = ends_of(loop.number(divisor))
    return all(end > 0 for end in ends) or all(end < 0 for end in ends)


def _check_exact(source: Progression, dtype: np.dtype) -> None:
    """Check that a progression, which the loop computes by additions in `dtype`, stays within the range in
    which that dtype represents integers exactly. Unrolls the loop otherwise.
    """
    maximum = int(np.iinfo(dtype).max) if dtype.kind in "iu" else EXACT.get(str(dtype), 0)
    minimum = 0 if dtype.kind == "u" else -maximum
    if not all(minimum <= end and end <= maximum for end in ends_of(source.loop.number(source))):
        source.loop.unroll(f"{dtype} does not represent the loop variable exactly")


# -- in the graph --------------------------------------------------------------------------------------------


def value_of(trace: Trace, number: RuntimeNumber, dtype: np.dtype) -> Value:
    """Return a separate graph value for a number of a loop. Until the loop node is created, it has the value
    of the present iteration.
    """
    source = number.source
    key = "moving", source, dtype
    value = trace.scalars.get(key)
    if value is not None:
        return value
    if type(source) is Progression:
        _check_exact(source, dtype)
    elif source.iteration != source.loop.iteration:
        source.loop.unroll(f"{source.path} of the previous iteration is used")
    first = _evaluated(source, trace.numbers, _origin_of)
    if is_of(first, trace.numbers):
        value = Value(number_type(dtype))
        trace._add_input(value, RuntimeNumber(first._value, first._source))
    else:
        value = trace.emit(constant, **constant_of(number.value, dtype))
    trace.scalars[key] = value
    trace.nest.values[value] = source
    return value


def after(source: Progression | Varying, remaining: Any, numbers: Numbers) -> Any:
    """Return a number as it is after `remaining` further iterations."""
    return _evaluated(source, numbers, lambda moving: moving.base + remaining * moving.slope)


def _evaluated(source: Any, numbers: Numbers, evaluate: Callable[[Progression], Any]) -> Any:
    """Return a number, computed from the values of the progressions among its operands, for which `evaluate`
    is called.
    """
    if type(source) is Varying:
        return source.operation.function(*[_evaluated(each, numbers, evaluate) for each in source.operands])
    if type(source) is Progression:
        return evaluate(source)
    return source if type(source) in (int, float) else NumberProxy(source.value, source, numbers)


def _origin_of(source: Progression) -> Any:
    """Return the value of a progression in the iterations that are recorded before the loop: an integer, or a
    run-time number.
    """
    base = source.base
    outer = base._source if type(base) is NumberProxy else None
    return _origin_of(outer) if type(outer) is Progression else base
