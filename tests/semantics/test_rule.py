"""What the soundness rule does not follow: the function runs piecewise, and is right when it changes."""

from __future__ import annotations

import collections
import dataclasses
import functools
import operator
import types

import pytest

import tracejit as tj
from tests.semantics.cases import Thing, one

REFUSED = {}


def refused(case):
    """Decorate a case: makes a function of an array, and what changes its result."""
    REFUSED[case.__name__] = case
    return case


class Doubling:
    """Stores twice what it is given."""

    def __init__(self):
        self.t = 1

    def __setattr__(self, name, value):
        super().__setattr__(name, value * 2)


class Shifted(Thing):
    """Shows one more than it stores."""

    def __getattribute__(self, name):
        found = super().__getattribute__(name)
        return found + 1 if name == "t" else found


class Registry(Thing):
    """Keeps attributes elsewhere."""

    def __getattr__(self, name):
        return self.parts[name]


@dataclasses.dataclass
class DoublingRecord:
    t: int = 1

    def __setattr__(self, name, value):
        object.__setattr__(self, name, value * 2)


class Twice:
    """A descriptor that keeps twice what it is given, under its own name."""

    def __get__(self, holder, owner):
        return holder.__dict__["t"]

    def __set__(self, holder, value):
        holder.__dict__["t"] = value * 2


class Described:
    t = Twice()

    def __init__(self):
        self.t = 1


WAYS = {
    "Doubling": Doubling,
    "Shifted": lambda: Shifted(t=1),
    "Registry": lambda: Registry(parts={"t": 1}),
    "DoublingRecord": DoublingRecord,
    "Described": Described,
}


def counted(held, x):
    held.t = held.t + 1
    return x * held.t


@pytest.mark.parametrize("where", ["global", "argument"])
@pytest.mark.parametrize("way", WAYS)
def test_classes_with_ways_of_their_own(way, where):
    plain, held = WAYS[way](), WAYS[way]()
    step = tj.jit(counted if where == "argument" else lambda x: counted(held, x))
    for _ in range(4):
        result = step(held, one()) if where == "argument" else step(one())
        assert result.tolist() == counted(plain, one()).tolist()
        assert vars(held) == vars(plain)
    assert "runs piecewise" in step.explain()


class Echo(list):
    """Appends twice."""

    def __setitem__(self, index, item):
        super().__setitem__(index, item * 2)


class Table(dict):
    """Stores twice what it is given."""

    def __setitem__(self, key, value):
        super().__setitem__(key, value * 2)


@pytest.mark.parametrize("where", ["global", "argument"])
@pytest.mark.parametrize(
    "kind", [lambda: Echo([1]), lambda: Table({0: 1}), lambda: collections.UserList([1])]
)
def test_containers_with_ways_of_their_own(kind, where):
    def count(held, x):
        held[0] = held[0] + 1
        return x * held[0]

    plain, held = kind(), kind()
    step = tj.jit(count if where == "argument" else lambda x: count(held, x))
    for _ in range(4):
        result = step(held, one()) if where == "argument" else step(one())
        assert result.tolist() == count(plain, one()).tolist()
        assert held == plain
    assert "runs piecewise" in step.explain()


@refused
def descriptors():
    class Field:
        default = 2.0

        def __get__(self, instance, owner=None):
            return self.default

    class Model:
        k = Field()

    model = Model()
    return lambda x: x * model.k, lambda: setattr(vars(Model)["k"], "default", 5.0)


@refused
def metaclasses():
    class Meta(type):
        k = 2.0

    class Model(metaclass=Meta):
        pass

    return lambda x: x * Model.k, lambda: setattr(Meta, "k", 5.0)


@refused
def partial_methods():
    class Model:
        def scaled(self, x, k):
            return x * k

        double = functools.partialmethod(scaled, k=2.0)

    model = Model()
    return lambda x: model.double(x), lambda: setattr(
        Model, "double", functools.partialmethod(Model.scaled, k=3.0)
    )


@refused
def single_dispatch_methods():
    class Model:
        @functools.singledispatchmethod
        def kind(self, v):
            return 1.0

    model = Model()
    return lambda x: x * model.kind("a"), lambda: Model.kind.register(str, lambda self, v: 5.0)


@refused
def computed_names():
    held = Thing(rate0=2.0)
    return lambda x: x * getattr(held, f"rate{x.ndim - 1}"), lambda: setattr(held, "rate0", 5.0)


@refused
def attribute_getters():
    held, getter = Thing(rate=2.0), operator.attrgetter
    return lambda x: x * getter("rate")(held), lambda: setattr(held, "rate", 5.0)


@refused
def format_strings():
    held, shown = Thing(rate=2.0), "{0.rate}"
    return lambda x: x * float(shown.format(held)), lambda: setattr(held, "rate", 5.0)


@refused
def dictionaries_of_attributes():
    held = types.SimpleNamespace(rate=2.0)
    return lambda x: x * vars(held)["rate"], lambda: setattr(held, "rate", 5.0)


@refused
def caches():
    held = Thing(rate=2.0)
    cached = functools.lru_cache(lambda n: held.rate * n)

    def change():
        held.rate = 5.0
        cached.cache_clear()

    return lambda x: x * cached(1), change


@refused
def single_dispatch_functions():
    @functools.singledispatch
    def kind(value):
        return 2.0

    return lambda x: x * kind("a"), lambda: kind.register(str, lambda value: 5.0)


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_followed(name):
    function, change = REFUSED[name]()
    step = tj.jit(function)
    first = step(one()).tolist()
    assert (first, step(one()).tolist()) == (function(one()).tolist(), first)
    assert "runs piecewise" in step.explain()
    change()
    assert step(one()).tolist() == function(one()).tolist() != first
