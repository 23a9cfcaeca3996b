"""Rounds that differ in something that no variable shows are not taken to be equal: NumPy is the oracle."""

from __future__ import annotations

import types

import numpy as np
import pytest

import tracejit as tj


class Title(str):
    """A plain value with attributes."""


def counter():
    """A function that counts its calls."""
    count = 0

    def tick():
        nonlocal count
        count += 1
        return count

    return tick


# -- rounds of a `while` ------------------------------------------------------------------------------------


def on_the_stack(x, tol):
    n = 0
    while n * -0.5 + float(x.sum()) > tol:
        x = x * 0.9
        n += 1
    return x, n


def sum_of_many(x, tol):
    rate = 0.5
    while True:
        found = rate * 3 + abs(-rate) + float(x.sum())
        if found < tol:
            return x, found, rate
        x = x * 0.9
        rate = rate * 0.5


def chosen(x, tol):
    n = 0
    while min(n * -0.5, -0.75) + float(x.sum()) > tol:
        x = x * 0.9
        n += 1
    return x, n


def looked_at_again(x, tol):
    n = 0
    while float(largest := x.max()) > tol:
        x = x * 0.9
        n += float(largest) > 2
    return x, n, float(largest)


def in_a_closure(x, tol):
    tick = counter()
    while float(x.sum()) > tol:
        x = x * 0.9
        tick()
    return x, tick()


def in_a_closure_of_two(x, tol):
    """What the first function holds is not taken for what the second holds."""

    def other():
        return 0

    tick = counter()
    while float(x.sum()) > tol:
        x = x * 0.9
        tick()
    return x, tick() + other()


def in_an_attribute(x, tol):
    def f():
        return 0

    f.n = 0
    while float(x.sum()) > tol:
        x = x * 0.9
        f.n += 1
    return x, f.n


def in_a_default(x, tol):
    def f(seen=[0]):  # noqa: B006
        seen[0] += 1
        return seen[0]

    while float(x.sum()) > tol:
        x = x * 0.9
        f()
    return x, f()


def in_a_method(x, tol):
    append = [].append
    while float(x.sum()) > tol:
        x = x * 0.9
        append(1)
    return x, len(append.__self__)


def in_a_plain_value(x, tol):
    title = Title("rounds")
    title.n = 0
    while float(x.sum()) > tol:
        x = x * 0.9
        title.n += 1
    return x, title.n


WHILE = [on_the_stack, sum_of_many, chosen, looked_at_again, in_a_closure, in_a_closure_of_two]
WHILE += [in_an_attribute, in_a_default, in_a_method, in_a_plain_value]


def equal(found, wanted):
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(np.asarray(one), other, rtol=1e-12)


@pytest.mark.parametrize("body", WHILE, ids=lambda body: body.__name__)
def test_rounds_of_a_while(body):
    traced = tj.jit(body)
    for start in (3.0, 1.5, 3.0, 6.0, 0.25):
        x = np.array([start, start + 1])
        equal(traced(tj.asarray(x), 1.25), body(x, 1.25))


@pytest.mark.parametrize("body", WHILE[:4], ids=lambda body: body.__name__)
def test_what_an_expression_has_computed_is_part_of_the_loop(body):
    """Any number of rounds is one path."""
    traced = tj.jit(body, strict=True)
    for start in (30.0, 45.0, 120.0, 60.0, 35.0):
        traced(tj.asarray([start, start + 1]), 1.25)
    assert traced.cache_info().traces == 1


# -- rounds of `tj.range` -----------------------------------------------------------------------------------


def a_closure(x, n, rounds):
    def other():
        return 0

    tick = counter()
    for i in rounds(n):
        x = x * 0.5 + i
        tick()
    return x, tick() + other()


def a_method(x, n, rounds):
    append = [].append
    for i in rounds(n):
        x = x * 0.5 + i
        append(1)
    return x, len(append.__self__)


def a_class(x, n, rounds):
    class Count:
        n = 0

    for i in rounds(n):
        x = x * 0.5 + i
        Count.n += 1
    return x, Count.n


def a_plain_value(x, n, rounds):
    title = Title("rounds")
    title.n = 0
    for i in rounds(n):
        x = x * 0.5 + i
        title.n += 1
    return x, title.n


@pytest.mark.parametrize("body", [a_closure, a_method, a_class, a_plain_value], ids=lambda b: b.__name__)
def test_rounds_of_a_range(body):
    traced = tj.jit(lambda x, n: body(x, n, tj.range))
    for count in (8, 20, 3, 8):
        x = np.array([1.0, 2.0])
        equal(traced(tj.asarray(x), count), body(x, count, range))


@pytest.mark.parametrize(
    "traces",
    [3, pytest.param(1, marks=pytest.mark.cpu("a loop on a GPU is recorded for each number of rounds"))],
    ids=["at most one for each count", "one for all counts"],
)
def test_a_function_that_is_made_anew_in_each_round_is_the_same(traces):
    @tj.jit(strict=True)
    def f(x, n):
        for i in tj.range(n):
            shift = lambda y, i=i: y + i  # noqa: E731
            x = shift(x) * 0.5
        return shift(x)

    for count in (8, 20, 50):
        x, shifted = np.ones(2), None
        for i in range(count):
            x = (x + i) * 0.5
            shifted = x + i
        np.testing.assert_allclose(f(tj.ones(2, "float64"), count).numpy(), shifted)
    assert f.cache_info().traces <= traces


# -- functions that a body wraps in each iteration ----------------------------------------------------------

WRAPPERS = {
    "grad": lambda f: tj.grad(lambda v: f(v).sum()),
    "value_and_grad": lambda f: lambda v: tj.value_and_grad(lambda w: f(w).sum())(v)[1],
    "vmap": tj.vmap,
    "checkpoint": tj.checkpoint,
    "jvp": lambda f: lambda v: tj.jvp(f, (v,), (v,))[1],
    "jit": tj.jit,
}


def in_a_module(x, tol):
    settings = types.ModuleType("settings")
    settings.rate = 0.9
    while float(x.max()) > tol:
        x = x * settings.rate
        settings.rate = 1.6 - settings.rate
    return x


def test_a_module_that_the_body_creates():
    traced = tj.jit(in_a_module)
    for tol in (0.3, 0.1, 0.03, 0.1):
        assert traced(tj.ones(3), tol).tolist() == in_a_module(tj.ones(3), tol).tolist()


def wraps_anew(wrap):
    """The first function that is wrapped has another constant than the later ones, whose memory is reused."""

    def body(x, tol):
        factor, g = 0.75, None
        while float(x.max()) > tol:
            x = x * 0.9 if g is None else x - 0.1 * g(x)
            del g
            g = wrap(lambda v, factor=factor: v * v * factor)
            factor = 0.5
        return x

    return body


@pytest.mark.parametrize("name", WRAPPERS)
def test_functions_that_are_wrapped_anew_have_their_own_constants(name):
    """The state of the body has what the wrapper wraps, and not just the address of the wrapper."""
    body = wraps_anew(WRAPPERS[name])
    traced = tj.jit(body)
    for tol in (0.3, 0.1, 0.03, 0.1):
        assert traced(tj.ones(3), tol).tolist() == body(tj.ones(3), tol).tolist(), (name, tol)


@pytest.mark.parametrize("name", ["grad", "vmap", "checkpoint"])
def test_wrapped_functions_of_a_range_have_their_own_constants(name):
    def body(x, n, numbers):
        factor, g = 0.75, None
        for _ in numbers(n):
            x = x * 0.9 if g is None else g(x) * 0.5
            g = None
            g = WRAPPERS[name](lambda v, factor=factor: v * v * factor + v * 0.25)
            factor = 0.5
        return x

    traced = tj.jit(lambda x, n: body(x, n, tj.range))
    for count in (4, 9, 30, 9):
        x = tj.ones(3)
        np.testing.assert_allclose(traced(x, count).numpy(), body(x, count, range).numpy(), rtol=1e-6)


@pytest.mark.parametrize("name", ["grad", "vmap", "checkpoint"])
@pytest.mark.cpu("a loop on a GPU is recorded for each number of iterations")
def test_iterations_that_wrap_equal_functions_are_one_recording(name):
    wrap = WRAPPERS[name]

    @tj.jit(strict=True)
    def f(x, tol):
        while float(x.max()) > tol:
            x = x - 0.25 * wrap(lambda v: v * v * 0.5)(x)
        return x

    for tol in (1e-1, 0.7, 0.3, 0.01):
        f(tj.ones(3), tol)
    assert f.cache_info()[:2] == (1, 3)
