"""Word functions (`tracejit.kernels.compiler.words`), against Python itself."""

import ctypes
import itertools

import numpy as np
import pytest
from numba import boolean, float32, float64, int64
from numba.extending import intrinsic

from tracejit.codegen.objects.build import EntryPoint, build_object
from tracejit.codegen.objects.linker import link
from tracejit.kernels.compiler.memory import call_c, external, load, load_acquire, pointer, store
from tracejit.kernels.compiler.target import subroutine
from tracejit.kernels.compiler.words import word_function
from tracejit.kernels.executor.blocks import Loop
from tracejit.kernels.executor.threads import get, put

I64 = np.iinfo(np.int64)
WORDS = [0, 1, -1, 2, -3, 7, 64, -1000, 12345678901234, -(2**62), I64.max, I64.min]
SMALL = [-7, -1, 0, 1, 2, 5, 12]
LIMIT = 5


def wrapped(value):
    return (int(value) - I64.min) % 2**64 + I64.min


def compiled(function, arity=None):
    """A word function, or a function of words that Numba compiles, as machine code."""
    arity = function.arity if arity is None else arity
    built = build_object([EntryPoint("function", function, int64(*[int64] * arity))])
    address = link("function", built.object_code, ["function"])["function"]
    return ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * arity)(address)


@word_function
def arithmetic(a, b):
    c = a * 3 - b
    c += (a & b) ^ (a | -b)
    c -= ~a
    return -c + min(a, b) - max(b, 5)


@word_function
def shifted(a, b):
    return (a >> (b & 31)) + (a << (b & 31))


@word_function
def comparisons(a, b):
    less = a < b
    if less:
        less = less + (a <= b)
    return less * 100 + (a == b) * 10 + (a != b) + (a > b) * 3 + (a >= b) * 5 + (a in (1, b, -3)) * 1000


@word_function
def logic(a, b):
    both, either = a and b, a or b or 7
    negative = not a
    chosen = a if a > 0 and not (b < 0 or a == b) else b if b else -1
    return both + 3 * either + 5 * negative + 7 * chosen


@word_function
def branches(a, b):
    """With a text that is no statement."""
    if a < 0:
        if b < 0:
            return 1
        elif b == 0:
            pass
        else:
            a = b
    elif not b:
        return a
    a, b = b, a
    return a - 2 * b


@pytest.mark.parametrize(
    "function", [arithmetic, shifted, comparisons, logic, branches], ids=lambda f: f.py_func.__name__
)
def test_expressions_mean_what_they_mean_in_python(function):
    run = compiled(function)
    for a, b in itertools.product(WORDS, WORDS):
        assert run(a, b) == wrapped(function.py_func(a, b)), (a, b)


@word_function
def quotients(a, b):
    return a // b * 3 + a % b


def test_quotients_are_rounded_down_and_zero_for_a_divisor_of_zero():
    run = compiled(quotients)
    for a, b in itertools.product(WORDS[:-1], WORDS):
        assert run(a, b) == (wrapped(quotients.py_func(a, b)) if b else 0), (a, b)


@word_function
def loops(a, b):
    total = 0
    for i in range(a):
        for j in range(i, b):
            if j == 3:
                continue
            if total > 1000:
                break
            total += i * j
        for k in range(a, 2 * a + b, 3):
            total -= k
            k += 100  # the iteration does not change
    while True:
        total += 1
        if total % 7 == 0:
            break
    while a > 0 and (b > -5 or total < 0):
        a, b = a - 1, b - a
        if a == 4:
            continue
        total += a * b
    return total


@word_function
def returns_early(a, b):
    for i in range(a):
        while b < i:
            b += 1
            if b == 3:
                return i
    if a > 7:
        return


def test_loops_run_as_in_python():
    for function in (loops, returns_early):
        run = compiled(function)
        for a, b in itertools.product(SMALL, SMALL):
            assert run(a, b) == (function.py_func(a, b) or 0), (a, b)


def factory(offset):
    @word_function
    def shift(a):
        return a + offset + LIMIT * Loop.SPACE

    return shift


def test_constants_are_variables_of_the_module_and_of_enclosing_functions():
    first, second = factory(1), factory(20)

    @word_function
    def both(a):
        return first(a) * second(a)

    assert compiled(both)(3) == (3 + 1 + 5 * Loop.SPACE) * (3 + 20 + 5 * Loop.SPACE)


labs = external("labs", int64(int64))


@subroutine
def add_halves(out, a, b):
    x, y = pointer(a, float32), pointer(out, float64)
    y[0] = x[0] / 2 + b


@intrinsic
def is_odd(typingctx, a):
    def codegen(context, builder, signature, args):
        return builder.trunc(args[0], context.get_value_type(signature.return_type))

    return boolean(int64), codegen


@word_function
def calls(record, a):
    put(record, 0, labs(a) + is_odd(a))
    store(record + 8, load(record + 16, float32))
    add_halves(record + 24, record + 16, get(record, 0))
    return load_acquire(record) - int64(a)


@word_function
def calls_back(function, a):
    return call_c(function, (a, a + 1))


def test_calls_of_intrinsics_subroutines_and_c_functions():
    words = np.zeros(4, np.int64)
    words[2:3].view(np.float32)[0] = 3.0
    assert compiled(calls)(words.ctypes.data, -5) == 6 + 5
    assert words[1:2].view(np.float32)[0] == 3.0
    assert words[3:].view(np.float64)[0] == 7.5

    @ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_int64, ctypes.c_int64)
    def difference(a, b):
        return a - 10 * b

    address = ctypes.cast(difference, ctypes.c_void_p).value
    assert compiled(calls_back)(address, 4) == 4 - 50


def test_numba_s_functions_call_word_functions():
    @word_function
    def larger(a, b):
        return a if a > b else b

    def kernel(a, b):
        x = float64(larger(a, b)) * 1.5 + larger(a > 3, 0)
        return int64(x) if larger(b, 1) == b else 0

    run = compiled(kernel, 2)
    assert [run(4, 2), run(2, 4), run(7, 0)] == [7, 6, 0]
    with pytest.raises(Exception, match="larger takes words, not float64"):
        compiled(lambda a: larger(a, 0.5), 1)


def test_a_call_with_a_wrong_number_of_arguments_is_an_error():
    wrong = word_function(miscounts)
    with pytest.raises(TypeError, match="arithmetic takes 2 arguments, not 1"):
        compiled(wrong)


def test_a_word_function_is_compiled_once_and_hidden():
    @word_function
    def twice(a):
        return a + a

    @word_function
    def first(a):
        return twice(a) + 1

    @word_function
    def second(a):
        return twice(a) - 1

    built = build_object([EntryPoint("first", first), EntryPoint("second", second)])
    assert twice.library is twice.library
    addresses = link("two", built.object_code, ["first", "second"])
    call = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)
    assert [call(addresses[name])(20) for name in ("first", "second")] == [41, 39]
    with pytest.raises(TypeError, match="twice can only be called from kernels"):
        twice(3)


def miscounts(a):
    return arithmetic(a)


def lists(a):
    return [a]


def reads_an_element(a):
    return a[0]


def writes_an_element(a):
    get[a] = 1


def two_targets(a):
    b = a = 3
    return a + b


def floats(a):
    return a * 0.5


def divides(a):
    return a / 2


def returns_a_float(a):
    return load(a, float64)


def walks(a):
    for i in (1, 2, a):
        a += i
    return a


def between(a):
    return 0 < a < 3


def with_else(a):
    while a > 0:
        a -= 1
    else:
        a = 5
    return a


def names_an_argument(a):
    return get(a, offset=0)


def calls_a_variable(a):
    return a(1)


def calls_python(a):
    return max(a, 3, 5)


def raises(a):
    raise ValueError(a)


def unknown(a):
    return a + nowhere  # noqa: F821


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lists, r"\[a\]: not supported"),
        (reads_an_element, r"a\[0\]: not supported"),
        (writes_an_element, r"get\[a\]: not supported"),
        (two_targets, "b = a = 3: not supported"),
        (floats, "0.5: not a word"),
        (divides, "a / 2: not supported"),
        (returns_a_float, r"load\(a, float64\): not a word"),
        (walks, r"\(1, 2, a\): not supported"),
        (between, "0 < a < 3: not supported"),
        (with_else, "a = 5: not supported"),
        (names_an_argument, r"get\(a, offset=0\): not supported"),
        (calls_a_variable, "a: not a constant"),
        (calls_python, r"max\(a, 3, 5\): not supported"),
        (raises, r"raise ValueError\(a\): not supported"),
        (unknown, "nowhere: not a constant"),
    ],
)
def test_everything_else_is_an_error_at_its_line(function, message):
    with pytest.raises(SyntaxError, match=message + " in a word function") as caught:
        compiled(word_function(function))
    assert caught.value.filename == __file__
    first = function.__code__.co_firstlineno
    assert first < caught.value.lineno < first + 6
