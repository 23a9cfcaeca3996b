"""Live variables: a function computes the same when all others are lost at each of its instructions."""

from __future__ import annotations

import ctypes
import sys
import types
from collections.abc import Callable
from typing import Any

import pytest

from tests.semantics.test_serial_loops import partition
from tracejit.frontend.python.bytecode import operations
from tracejit.frontend.python.code_loops import updated_variables
from tracejit.frontend.python.liveness import live_after


class Lost:
    """The value of a variable that is not read any more."""


LOST = Lost()


def collatz(n: int) -> int:
    steps = 0
    while n != 1:
        half, rest = divmod(n, 2)
        n = 3 * n + 1 if rest else half
        steps += 1
    return steps


def swaps(a: int, b: int) -> tuple[int, int, int]:
    s = t = 0
    while b:
        a, b = b, a % b
        s, t = t + a, s
    x, y, z = a, s, t
    return z, x, y


def comprehensions(n: int) -> tuple[Any, ...]:
    squares = [i * i for i in range(n) if i % 2]
    i = len(squares)
    pairs = {(i, j): k for k, (i, j) in enumerate(zip(squares, squares, strict=True))}
    total = sum(k for k in squares)
    return i, pairs, total


def walrus(values: list[int]) -> list[int]:
    found, position = [], 0
    while (position := position + 1) < len(values):
        if (value := values[position]) > 2 and (twice := 2 * value) < 20:
            found.append(twice)
        elif value == 2:
            continue
        else:
            del value
    return found


def nested(n: int) -> int:
    total = 0
    for i in range(n):
        for j in range(i, n):
            if (i + j) % 3 == 0:
                continue
            for k in range(j):
                if k > i:
                    break
                total += i * j - k
            else:
                total -= 1
    return total


def matched(values: list[Any]) -> list[Any]:
    out = []
    for value in values:
        match value:
            case [x, y, *rest]:
                out.append((x, rest, y))
            case {"a": a, **others}:
                out.append((a, others))
            case int(n) if n > 1:
                out.append(n)
            case other:
                out.append(other)
    return out


CASES: list[tuple[Callable[..., Any], tuple[Any, ...]]] = [
    (collatz, (27,)),
    (partition, ([3, 1, 4, 1, 5, 9, 2, 6],)),
    (swaps, (252, 105)),
    (comprehensions, (9,)),
    (walrus, ([5, 1, 2, 7, 3, 12, 2],)),
    (nested, (6,)),
    (matched, ([[1, 2, 3], {"a": 1, "b": 2}, 7, 0, "x"],)),
]


@pytest.mark.parametrize(("function", "arguments"), CASES, ids=lambda x: getattr(x, "__name__", ""))
def test_lost_variables_are_not_missed(function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    def fresh() -> list[Any]:
        return [list(x) if isinstance(x, list) else x for x in arguments]

    expected, lost = function(*fresh()), set[str]()
    code, previous = function.__code__, -1

    def at_instruction(frame: types.FrameType, event: str, argument: Any) -> Any:
        nonlocal previous
        frame.f_trace_opcodes = True
        if event == "opcode":
            live = None if previous < 0 else live_after(code, previous)
            if live is not None:
                names = [name for name in frame.f_locals if name in code.co_varnames and name not in live]
                for name in names:
                    frame.f_locals[name] = LOST
                lost.update(names)
                if sys.version_info < (3, 13):
                    ctypes.pythonapi.PyFrame_LocalsToFast(ctypes.py_object(frame), ctypes.c_int(0))
            previous = frame.f_lasti
        return at_instruction

    sys._getframe().f_trace_opcodes = True  # 3.12 sends no such events without
    sys.settrace(lambda frame, *_: at_instruction if frame.f_code is code else None)
    try:
        found = function(*fresh())
    finally:
        sys.settrace(None)
    assert found == expected
    if live_after(code, 0) is not None:  # a comprehension in the code itself (3.12) handles exceptions
        assert lost, "no variable was ever lost"


def test_what_reads_all_variables() -> None:
    def reads(x: int) -> Any:
        y = x + 1
        return locals() if y else None

    def catches(x: int) -> int:
        try:
            y = x + 1
        except ValueError:
            return 0
        return y

    class Base:
        def scaled(self, x: int) -> int:
            return 3 * x

    class Scaled(Base):
        def scaled(self, x: int) -> int:
            y = x + 1
            return super().scaled(y)

    for function in (reads, catches, Scaled.scaled):
        assert live_after(function.__code__, operations(function.__code__)[-1].offset) is None


def test_variables_computed_from_their_old_values_through_others() -> None:
    def f(a: Any, n: int) -> Any:
        lo, hi, best = 0, n, 0
        while lo < hi:
            m = (lo + hi) // 2
            if a[m] < 3:
                lo = m + 1
            else:
                hi = m
            last = best
            fixed = 2 * n
            best = max(best, lo + 1)
            other = g(other)  # noqa: F821
        return lo, last, fixed, other

    def gcd(x: int, y: int) -> int:
        while y:
            x, y = y, x % y
        return x

    assert updated_variables(f.__code__) == {"lo", "hi", "m", "best"}
    assert updated_variables(gcd.__code__) == {"x", "y"}
