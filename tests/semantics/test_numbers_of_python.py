"""Numbers in a body that looks at them in unusual ways."""

import collections
import datetime
import decimal
import fractions
import math
import statistics

import numpy as np
import pytest

import tracejit as tj
from tests.frontend.samples import same_tree
from tests.semantics.cases import Cases, Thing, one

CASES = Cases()
ALIAS = type


@CASES.add
def errors_of_arithmetic(jit):
    def inverse(x, n):
        try:
            r = 1.0 / n
        except ZeroDivisionError:
            r = 7.0
        return x * r

    def shifted(x, n):
        try:
            return x * (1 << n)
        except (ValueError, TypeError):
            return x * -1

    held = Thing(n=3)

    def counted(x, n):
        held.n -= 1
        try:
            return x * (10 % held.n)
        except ZeroDivisionError:
            return x * 100

    steps = jit(inverse), jit(shifted), jit(counted)
    return [step(one(), n) for step in steps for n in (0.0, 2.0, 4, -1, 0, 3)]


@CASES.add
def types_of_numbers(jit):
    table = {float: 2.0, int: 5.0}

    def kind_of(v):
        return type(v)

    def assigned(x, n):
        kind = type(n)
        return x * 2 if kind is float else x * 3

    steps = (
        jit(assigned),
        jit(lambda x, n: x * 2 if isinstance(0.5, type(n)) else x * 3),
        jit(lambda x, n: x * (2 if kind_of(n) is float else 3)),
        jit(lambda x, n: x * table.get(kind_of(n), 9.0)),
        jit(lambda x, n: x * type(n)(3)),
    )
    return [step(one(), n) for step in steps for n in (2.5, 2, 2.5)]


@CASES.add
def types_asked_for_by_code_that_catches_everything(jit):
    def helper(n):
        return 1 if type(n) is int else 2

    @jit
    def step(x, n):
        try:
            r = helper(n)
        except BaseException:
            r = 100
        return x * r

    @jit
    def looks(x, n):
        try:
            r = helper(n)
        except BaseException:
            x += 100
            r = float(x.sum())
        return x * r

    x = one()
    return [step(one(), n) for n in (1, 2.5, 1)], [looks(x, n) for n in (1, 2.5)], x


@CASES.add
def libraries_that_take_no_stand_ins(jit):
    mean = jit(lambda x, ns: (x, statistics.mean(ns)))
    delta = jit(lambda x, n: x * datetime.timedelta(seconds=n).total_seconds())
    exact = jit(lambda x, n: x * float(decimal.Decimal(n)))
    found = [mean(one(), [1.0, n, 4.0]) for n in (2.0, 3.0)]
    return found, [step(one(), n) for step in (delta, exact) for n in (2, 3)]


@CASES.add
def negative_powers(jit):
    step = jit(lambda x, n: x**n)

    def tried(n):
        try:
            return step(tj.asarray(np.array([3], np.int32)), n)
        except tj.errors.ArgumentError:
            return "error"

    return [tried(n) for n in (2, 3, -1, 2, -2, 0)]


@CASES.add
def lists_of_numbers(jit):
    steps = jit(lambda x, n: tj.asarray([n, 1, [2.0][0]])), jit(lambda x, n: tj.asarray([True, n]))
    found = [step(one(), n) for step in steps for n in (2.5, 3, 2.5)]
    return [(f.dtype.name, f) for f in found], tj.asarray([True, 2.5]).dtype.name


@CASES.add
def numpy_s_truths_and_floors(jit):
    steps = jit(lambda x, n: x * ~(n > 1)), jit(lambda x, n: x * (math.floor(n) + math.ceil(n)))
    return [step(one(), np.float32(n)) for step in steps for n in (2.5, 0.5, 2.5)]


@CASES.add
def numpy_s_numbers(jit):
    step = jit(lambda x, n: x * float(n**2))
    return [step(one(), kind(n)) for kind in (np.float32, np.int8, np.float64) for n in (2, 3, 2)]


@CASES.add
def complex_numbers(jit):
    asked = jit(lambda x, n: x * (5 if n == (2 + 0j) else 3))
    times = jit(lambda x, n: x * (n * 1j + 1j * n + 2).imag)
    return [f(one(), n) for f in (asked, times) for n in (2, 3, 2, 2.0)]


@CASES.add
def powers_with_a_modulus(jit):
    step = jit(lambda x, n: x * pow(n, 3, 5))
    return [step(one(), n) for n in (2, 3, 2)]


@CASES.add
def numbers_of_the_library(jit):
    half, third = decimal.Decimal("0.5"), fractions.Fraction(1, 3)

    def equal(x, n):
        found = n == half, half != n, n in [1, half], {half: 1}.get(n)
        return x, found, n == third, n in [third], {third: 2}.get(n)

    def compared(x, n):
        try:
            return x, n < half, half >= n, third <= n, n > third
        except TypeError:
            return "none of these"

    def computed(x, n):
        return x, str((half + n, n - half, n**half, divmod(half, n))), str((n * third, third / n))

    asked, worked = (jit(equal), jit(compared)), jit(computed)
    found = [step(one(), n) for step in asked for n in (0.5, 0.5, 0.25, 1, 0.5, 1 / 3)]
    return found, [worked(one(), n) for n in (3, 3, 2)]


@CASES.add
def durations(jit):
    wait = datetime.timedelta(seconds=4)
    step = jit(lambda x, n: x * (wait * n + n * wait / n).total_seconds())
    return [step(one(), n) for n in (2, 3, 2, 0.5)]


@CASES.add
def sequences_repeated_in_place(jit):
    @jit
    def step(x, n):
        listed, queue = [1, 2], collections.deque([1])
        first, second = listed, queue
        listed *= n
        queue *= n
        return x, listed is first, queue is second, first, len(second), n * [3], n * "ab"

    return [step(one(), n) for n in (2, 3, 2)]


def test_what_cannot_equal_a_number_and_what_computes_with_any_does_not_look_at_it():
    class Weight:
        def __init__(self, w):
            self.w = w

        def __rmul__(self, factor):
            return Weight(self.w * factor)

    @tj.jit
    def step(x, n):
        if n == "auto" or n in (None, "a", [], object()):
            return x
        return x + (n * Weight(x)).w

    assert [step(one(), n).tolist() for n in (0.5, 0.25, 2.0)] == [[1.5], [1.25], [3.0]]
    assert step.cache_info().traces == 1


@pytest.mark.parametrize("name", CASES)
def test_a_traced_function_does_what_the_function_does(name):
    CASES.check(name)


def dtypes_of_numpy(x):
    k, z = int(x[0]), float(x[1])
    counts, sums, rows = np.zeros(3, dtype=int), np.empty(2, float), x.astype(int)
    counts[1] = k
    sums[:] = z
    return (
        counts,
        sums,
        rows,
        np.full(2, z, dtype=int),
        np.zeros_like(x, dtype=int),
        x.sum(dtype=float),
        k * z,
    )


def class_and_dtype(x):
    k = int(x[0])
    return np.zeros(2, dtype=int) + k if isinstance(len(x), int) else x


def handed_on(x, make=lambda n, kind: np.zeros(n, kind) + (kind is int)):
    return make(2, int) + int(x[0])


@pytest.mark.parametrize(
    ("body", "replays"), [(dtypes_of_numpy, True), (class_and_dtype, False), (handed_on, False)]
)
def test_names_of_dtypes_that_are_also_called(body, replays):
    """``np.zeros(n, int)`` beside ``int(x[0])``: the number is one of the call, and no guard. A body that
    uses the class in another way gets the class.
    """
    step = tj.jit(body)
    for first in (3.0, 7.0, -2.5):
        x = np.array([first, 1.5, 2.5])
        same_tree(step(tj.asarray(x)), body(x))
    assert (step.cache_info().traces == 1) == replays, step.explain()
