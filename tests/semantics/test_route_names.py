"""Ways to values by names that are computed or stand elsewhere, and through what functions keep."""

import builtins
import functools
import operator
from typing import ClassVar

import pytest

from tests.semantics.cases import Cases, Thing, one

CASES = Cases()


@CASES.add
def computed_names_that_come(jit):
    model = Thing(mask0=1)
    step = jit(lambda x, i: x * 2 if hasattr(model, f"mask{i}") else x)
    results = [step(one(), 0), step(one(), 1)]
    model.mask1 = 1
    results += [step(one(), 0), step(one(), 1)]
    del model.mask0
    return [*results, step(one(), 0), step(one(), 1)]


@CASES.add
def names_that_a_class_gets(jit):
    class Base:
        pass

    class Model(Base):
        pass

    model = Model()
    step = jit(lambda x: x * (2 if hasattr(model, "mask") else 3))
    results = [step(one())]
    Base.mask = 1
    return [*results, step(one())]


@CASES.add
def attributes_behind_an_alias(jit):
    class Model:
        alias: ClassVar = {"rate": "learning_rate"}

        def __init__(self):
            self.learning_rate = 2.0

        def __getattr__(self, name):
            return object.__getattribute__(self, Model.alias[name])

    model = Model()
    step = jit(lambda x: x * model.rate)
    results = [step(one())]
    model.learning_rate = 5.0
    return [*results, step(one())]


GET, GETTER, PUT, HAS, SHOWN = getattr, operator.attrgetter, setattr, hasattr, "{0.rate} of {0.inner.size}"


@CASES.add
def accessors_of_another_name(jit):
    name = "ra" + "te"
    steps = [
        jit(lambda x, model: x * GET(model, name)),
        jit(lambda x, model: x * GETTER(name)(model)),
        jit(lambda x, model: x * builtins.getattr(model, name)),
        jit(lambda x, model: (x, SHOWN.format(model))),
    ]
    model = Thing(rate=2.0, inner=Thing(size=3))
    results = [step(one(), model) for step in steps]
    model.rate, model.inner.size = 5.0, 4
    return [*results, *[step(one(), model) for step in steps]]


@CASES.add
def assignments_by_another_name(jit):
    model, name = Thing(rate=2.0), "ra" + "te"

    @jit
    def step(x, n):
        PUT(model, name, n)
        return x

    results = []
    for n in (1.0, 3.0, 4.0):
        step(one(), n)
        results.append(model.rate)
        model.rate = 0.0
    return results


@CASES.add
def questions_by_another_name(jit):
    model, name = Thing(), "ra" + "te"
    step = jit(lambda x: x * (2 if HAS(model, name) else 3))
    results = [step(one())]
    model.rate = 1.0
    return [*results, step(one())]


@CASES.add
def variables_that_are_empty_at_first(jit):
    def make():
        def step(x):
            nonlocal factor
            try:
                factor = factor + 1
            except NameError:
                factor = 0.0
            return x * factor

        if jit is None:
            factor = 1
        return step

    step = jit(make())
    return [step(one()) for _ in range(4)]


@CASES.add
def variables_that_others_fill(jit):
    def make():
        def step(x):
            try:
                return x * factor
            except NameError:
                return x

        def put(value):
            nonlocal factor
            factor = value

        if jit is None:
            factor = 1
        return step, put

    step, put = make()
    step = jit(step)
    results = [step(one())]
    put(5.0)
    return [*results, step(one())]


@CASES.add
def results_that_a_cache_computes_again(jit):
    config = Thing(factor=1.0)

    def kept():
        return config.factor

    results = []
    for cache in (functools.cache, functools.lru_cache(maxsize=2)):
        config.factor = 1.0
        cached = cache(kept)
        step = jit(lambda x, cached=cached: x * cached())
        results.append(step(one()))
        config.factor = 2.0
        results.append(step(one()))
        cached.cache_clear()
        cached()
        results.append(step(one()))
    return results


@CASES.add
def iterators_and_types_of_numbers(jit):
    left = iter([2.0, 3.0, 5.0, 7.0, 11.0])

    def is_float(n):
        return type(n) is float

    @jit
    def step(x, n):
        return x * sum(zip(range(1), left, strict=False), ())[1] * (10 if is_float(n) else 1)

    return [step(one(), 1), step(one(), 1.0), list(left)]


@CASES.add
def iterators_as_arguments(jit):
    def is_float(n):
        return type(n) is float

    @jit
    def step(x, n, items):
        return x * sum(zip(range(1), items, strict=False), ())[1] * (10 if is_float(n) else 1)

    items = iter([2.0, 3.0, 5.0, 7.0])
    return [step(one(), 1, items), step(one(), 1, items), list(items)]


@CASES.add
def insides_of_functions(jit):
    def make(factor):
        def helper(x, shift=3.0):
            return x * factor + shift

        return helper

    helper = make(2.0)
    step = jit(lambda x: x * helper.__closure__[0].cell_contents * helper.__defaults__[0])
    results = [step(one())]
    helper.__defaults__ = (7.0,)
    return [*results, step(one())]


@CASES.add
def functions_whose_code_is_swapped(jit):
    def double(x):
        return x * 2

    def triple(x):
        return x * 3

    @jit
    def step(x):
        y = double(x)
        double.__code__, triple.__code__ = triple.__code__, double.__code__
        return y

    return [step(one()) for _ in range(3)]


@pytest.mark.parametrize("name", CASES)
def test_names(name):
    CASES.check(name)
