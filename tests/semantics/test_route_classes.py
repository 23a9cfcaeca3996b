"""Ways to values through classes: what they, their instances and containers of such classes gain and lose."""

import builtins
import functools
import operator
from typing import ClassVar

import pytest

import tracejit as tj
from tests.semantics.cases import Cases, Thing, one

CASES = Cases()


class Config(dict):
    """A dict with attributes."""


class Bag(set):
    """A set whose class knows more."""

    factor = 2.0

    def total(self):
        return sum(self) * self.factor


@CASES.add
def attributes_of_a_large_dict(jit):
    config = Config({str(i): float(i) for i in range(9)})
    config.scale, config.t = 2.0, 0

    @jit
    def step(x):
        config.t += 1
        return x * config.scale * config["3"]

    results = [step(one()), step(one())]
    config.scale = 5.0
    return [*results, step(one()), config.t]


@CASES.add
def methods_of_a_set(jit):
    class Own(Bag):
        pass

    bag = Own([1.0, 2.0])
    step = jit(lambda x: x * bag.total())
    results = [step(one())]
    Own.factor = 5.0
    results.append(step(one()))
    Own.total = lambda self: 0.0
    return [*results, step(one())]


@CASES.add
def attributes_of_a_set(jit):
    bag = Bag([1.0, 2.0])
    step = jit(lambda x: x * bag.total())
    results = [step(one())]
    bag.factor = 3.0
    return [*results, step(one())]


@CASES.add
def a_new_attribute_of_a_class(jit):
    class Model:
        pass

    @jit
    def step(x, n):
        Model.last = n * 2
        Model.kept = x * n
        return x

    results = []
    for n in (1, 5, 5):
        step(one(), n)
        results += [Model.last, Model.kept]
    return results


@CASES.add
def a_new_attribute_of_a_base(jit):
    class Base:
        pass

    class Model(Base):
        pass

    @jit
    def step(x, n):
        Base.last = n * 2
        return x * Model.last

    return [step(one(), 1), step(one(), 5), Model.last, "last" in vars(Model)]


@CASES.add
def a_new_attribute_of_a_class_and_an_error(jit):
    class Model:
        pass

    @jit
    def step(x, n):
        Model.last = x * n
        if n == 0:
            raise ValueError
        return x

    with pytest.raises(ValueError, match=r"^$"):
        step(one(), 0)
    step(one(), 1)
    return Model.last


@CASES.add
def a_counter_of_a_subclass(jit):
    class Base:
        n = 0

    class Model(Base):
        pass

    @jit
    def step(x):
        Model.n += 1
        return x * Model.n, type(x).__name__

    return [step(one()), step(one()), Model.n, Base.n]


@CASES.add
def a_counter_in_a_classmethod(jit):
    class Base:
        n = 0

        @classmethod
        def count(cls):
            cls.n += 1

    class Model(Base):
        pass

    @jit
    def step(x):
        Model.count()
        return x * Model.n, type(x).__name__

    return [step(one()), step(one()), Model.n, Base.n]


class Lazy:
    """Computes what it is asked for when it is asked for it first."""

    def __init__(self, flag):
        self.flag, self.factor, self.asked = flag, 2.0, 0

    @functools.cached_property
    def amount(self):
        self.asked += 1
        return self.factor * 3


@CASES.add
def a_cached_property_that_another_branch_reads(jit):
    step = jit(lambda x, model: x * model.amount if model.flag else x)
    first, second = Lazy(True), Lazy(False)
    results = [step(one(), first), step(one(), first), step(one(), second)]
    results += [second.asked, "amount" in vars(second)]
    second.flag, second.factor = True, 10.0
    return [*results, step(one(), second), second.asked]


@CASES.add
def a_cached_property_that_counts(jit):
    @jit
    def step(x, model):
        model.asked += 100
        return x * model.amount

    first, second = Lazy(True), Lazy(True)
    results = [step(one(), first), step(one(), first), step(one(), second)]
    return [*results, first.asked, second.asked]


@CASES.add
def an_attribute_that_only_some_instances_hold(jit):
    class Model:
        def __init__(self):
            self.flag, self.amount = True, 2.0

        def __getattr__(self, name):
            raise RuntimeError(name)

    step = jit(lambda x, model: x * model.amount if model.flag else x)
    first, second = Model(), Model()
    second.flag = False
    del second.amount
    return [step(one(), first), step(one(), second), step(one(), first)]


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
def an_instance_that_comes_to_shadow_its_class(jit):
    class Schedule:
        rate0 = 2.0

    schedule = Schedule()
    step = jit(lambda x, i: x * getattr(schedule, f"rate{i}"))
    results = [step(one(), 0)]
    schedule.rate0 = 10.0
    return [*results, step(one(), 0)]


@CASES.add
def bases_that_change(jit):
    class Double:
        def f(self, x):
            return x * 2

    class Triple:
        def f(self, x):
            return x * 3

    class Model(Double):
        def f(self, x):
            return super().f(x)

    model = Model()
    step = jit(lambda x: (model.f(x), isinstance(model, Double)))
    results = [step(one())]
    Model.__bases__ = (Triple,)
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
def test_classes(name):
    CASES.check(name)


def test_a_step_counted_in_a_large_dict_is_replayed():
    config = {f"option{i}": float(i) for i in range(20)} | {"t": 0}

    @tj.jit(strict=True)
    def step(x):
        config["t"] += 1
        return x * config["option3"] * config["t"]

    assert [step(one()).item() for _ in range(3)] == [3.0, 6.0, 9.0]
    config["option3"] = 5.0
    assert step(one()).item() == 20.0
    assert step.cache_info().traces == 1


def test_large_containers_of_a_class_are_replayed():
    config = Config({str(i): float(i) for i in range(20)})
    config.scale = 2.0
    step = tj.jit(lambda x: x * config.scale * config["3"], strict=True)
    assert [step(one()).item() for _ in range(3)] == [6.0] * 3
    assert step.cache_info().traces == 1
