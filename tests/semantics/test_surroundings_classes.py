"""Ways to values through classes: what they, their instances and containers of such classes gain and lose."""

import functools

import pytest

import tracejit as tj
from tests.semantics.cases import Cases, one

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
def a_special_method_that_an_heir_gets(jit):
    class Base:
        def __call__(self, x):
            return x * 2

    class Heir(Base):
        pass

    heir = Heir()
    step = jit(lambda x: heir(x))
    results = [step(one())]
    Heir.__call__ = lambda self, x: x * 3
    return [*results, step(one())]


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


def twice(x):
    return x * 2


class WithoutSelf:
    rate = 3.0
    library = staticmethod(tj.tanh)
    function = staticmethod(twice)

    @staticmethod
    def scaled(x):
        return x * WithoutSelf.rate

    @classmethod
    def of_class(cls, x):
        return x * cls.rate


THING = WithoutSelf()
CALLS = {
    "library": lambda x: THING.library(x),
    "function": lambda x: THING.function(x),
    "scaled": lambda x: THING.scaled(x),
    "of_class": lambda x: THING.of_class(x),
}


@pytest.mark.parametrize("name", CALLS)
def test_static_and_class_methods_are_followed(name, monkeypatch):
    call, x = CALLS[name], tj.asarray([0.5, 2.0])

    @tj.jit(strict=True)
    def step(x):
        return call(x) + THING.rate

    def check(traces):
        wanted = (call(x) + THING.rate).tolist()
        assert [step(x).tolist() for _ in range(3)] == [wanted] * 3
        assert step.cache_info().traces == traces

    check(1)
    monkeypatch.setattr(WithoutSelf, "rate", 5.0)
    check(2)
    monkeypatch.setattr(WithoutSelf, name, staticmethod(lambda x: x - 1))
    check(3)
