"""What kernels may say (`tracejit.kernels.compiler.typing`, `ranges`, `target`), against Python itself."""

import ctypes
import inspect
import subprocess
import sys

import numpy as np
import pytest
from numba import float32, float64, int64, types
from numba.core.errors import TypingError, UnsupportedError

from tests.kernels.loops import CALL
from tracejit.codegen.objects.build import EntryPoint, build_object
from tracejit.codegen.objects.linker import link
from tracejit.kernels.compiler.memory import number_slot, pointer_slot, slot
from tracejit.kernels.compiler.target import noinline_subroutine, subroutine, translate

I64 = np.iinfo(np.int64)
INTEGERS = [0, 1, -1, 2, 3, -3, 7, -7, 64, -1000, 12345678901234, -(2**62), 2**62]


def compiled(function):
    """`function` of int64, as machine code."""
    arity = len(inspect.signature(function).parameters)
    built = build_object([EntryPoint("function", function, int64(*[int64] * arity))])
    address = link("function", built.object_code, ["function"])["function"]
    return ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * arity)(address)


def wrapped(value):
    return (value - I64.min) % 2**64 + I64.min


@pytest.mark.parametrize(
    "function",
    [
        lambda a, b: a // b,
        lambda a, b: a % b,
        lambda a, b: min(a, b) - max(a, b),
        lambda a, b: (a & b) ^ (a | b),
        lambda a, b: -a * b,
        lambda a, b: int64(a < b) + 2 * int64(a <= b) + 4 * int64(a == b) + 8 * int64(a != b),
        lambda a, b: int64(a in (b, 7, -3)) + 2 * int64(a not in (0, b)),
        lambda a, b: 10 if a > 0 and not b > 0 else 20 if a >= b or b == 7 else 30,
    ],
)
def test_integers_are_those_of_python(function):
    machine = compiled(function)
    namespace = {"int64": int}
    python = type(function)(function.__code__, namespace)
    for a in INTEGERS:
        for b in INTEGERS:
            try:
                expected = python(a, b)
            except ZeroDivisionError:
                expected = machine(a, b)  # below
            assert machine(a, b) == wrapped(expected), (a, b)


def test_nothing_divided_by_zero_is_zero():
    quotient, remainder = compiled(lambda a, b: a // b), compiled(lambda a, b: a % b)
    assert [(quotient(a, 0), remainder(a, 0)) for a in (0, 5, -5)] == [(0, 0), (0, 0), (0, 0)]


def test_assignments_in_place():
    def function(a, b):
        a += b
        a *= 3
        a -= 1
        a //= 5
        a %= 11
        a |= 64
        a &= 127
        a ^= b
        return a

    machine = compiled(function)
    assert all(machine(a, b) == function(a, b) for a in range(-40, 40, 7) for b in (-9, 2, 30))


def test_a_variable_may_have_a_literal_first_and_other_types_later():
    def function(a, b):
        value = 0
        if a > b:
            value = a
        total = value
        value = float64(value) / 2.0
        return int64(value) + total

    machine = compiled(function)
    assert [machine(9, 1), machine(1, 9)] == [13, 0]


@pytest.mark.parametrize("start", [-3, 0, 5])
@pytest.mark.parametrize("stop", [-7, -3, 0, 1, 6, 23])
def test_ranges(start, stop):
    def three(start, stop, step):
        total = 0
        for i in range(start, stop, step):
            total = total * 3 + i
        return total

    def nested(start, stop):
        total = 0
        for i in range(stop):
            for j in range(start, stop):
                if j == 4:
                    continue
                if i == 5:
                    break
                total += i * j
        return total

    machine = compiled(three)
    assert [machine(start, stop, n) for n in (1, 2, 5, 40)] == [three(start, stop, n) for n in (1, 2, 5, 40)]
    assert compiled(nested)(start, stop) == nested(start, stop)


def test_a_subroutine_is_compiled_for_the_types_it_gets():
    @subroutine
    def scaled(x, factor):
        return x * factor, factor

    @subroutine
    def total(values, count, start):
        for i in range(count):
            start = start + values[i]
        return start

    def kernel(block, lo, hi, scratch):
        out = pointer_slot(block, 0, float32)
        a, b = scaled(number_slot(block, 1, float32), float32(3))
        c, d = scaled(slot(block, 2), hi)
        out[0], out[1] = a, b
        out[2], out[3] = float32(c), float32(d)
        out[4] = total(out, lo, float32(0.5))
        return total(pointer_slot(block, 3, int64), 3, 0)

    built = build_object([EntryPoint("kernel", kernel)])
    run = CALL(link("kernel", built.object_code, ["kernel"])["kernel"])
    out, numbers = np.zeros(5, np.float32), np.array([100, 20, 3])
    block = np.array([out.ctypes.data, 0, -7, numbers.ctypes.data])
    block[1:2].view(np.float32)[0] = 2.5
    assert run(block.ctypes.data, 4, 5, 0) == 123
    assert out.tolist() == [7.5, 3.0, -35.0, 5.0, -19.0]


def test_several_functions_in_one_object_share_subroutines_and_show_nothing_else():
    @subroutine
    def twice(x):
        return x + x

    entries = [
        EntryPoint("first", lambda a: twice(a) + 1, int64(int64)),
        EntryPoint("second", lambda a: twice(a) + 2, int64(int64)),
        EntryPoint("nothing", lambda: None, types.void()),
    ]
    built = build_object(entries)
    addresses = link("three", built.object_code, ["first", "second", "nothing"])
    call = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)
    assert (call(addresses["first"])(20), call(addresses["second"])(20)) == (41, 42)
    ctypes.CFUNCTYPE(None)(addresses["nothing"])()
    visible = [
        line for line in built.llvm_ir.splitlines() if line.startswith("define ") and "internal" not in line
    ]
    assert len(visible) == 3


@pytest.mark.parametrize(("declare", "n_functions"), [(subroutine, 1), (noinline_subroutine, 2)])
def test_llvm_does_not_inline_a_noinline_subroutine(declare, n_functions):
    @declare
    def cube(x):
        return x * x * x

    built = build_object([EntryPoint("function", lambda a: cube(a) + 1, int64(int64))])
    assert built.llvm_ir.count("\ndefine ") == n_functions
    address = link("function", built.object_code, ["function"])["function"]
    assert ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(address)(3) == 28


def test_classes_are_found_without_numba_s_containers():
    program = """
import sys
from numba import int64
from tracejit.codegen.objects.build import EntryPoint, draft

def function(a):
    return int64(bool(a))

draft([EntryPoint("function", function, int64(int64))])
assert "numba.typed.typeddict" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_subroutine_cannot_be_called_from_python():
    @subroutine
    def twice(x):
        return x + x

    with pytest.raises(TypeError, match="twice can only be called from kernels"):
        twice(3)


def test_what_kernels_may_not_say_is_an_error():
    def lists(a):
        return len([a, a])

    def raises(a):
        if a > 3:
            raise ValueError("too large")
        return a

    def may_raise(a):
        first, second = range(a)
        return first - second

    for function, error, message in (
        (lists, TypingError, "list"),
        (raises, UnsupportedError, "raise"),
        (may_raise, TypeError, "kernels cannot raise exceptions, here .*ValueError"),
    ):
        with pytest.raises(error, match=message):
            translate(function, int64(int64), function.__name__)
