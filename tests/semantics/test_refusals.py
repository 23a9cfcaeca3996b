"""What a replay does not follow makes the function piecewise, with its line; results are Python's."""

import builtins
import dataclasses
import functools
import inspect
import operator
import types
from typing import ClassVar

import pytest

import tracejit as tj
from tests.semantics.cases import one
from tracejit.errors import ReplayError

NAME = "rate"
GET, PUT, HAS, SHOWN = getattr, setattr, hasattr, "{0.rate} of {0.inner}"
BY_RATE, CALLED = operator.attrgetter("rate"), operator.methodcaller("total", 2)
MODULE = types.ModuleType("settings")


class Model:
    """An object with attributes, found by name and as an argument."""

    names: ClassVar = {"speed": "rate"}

    def __init__(self):
        self.rate, self.inner = 2.0, 3.0

    def total(self, factor):
        return self.rate * factor

    def __getattr__(self, name):
        return object.__getattribute__(self, Model.names[name])


class Validated:
    """Stores attributes through a method that is given their names."""

    def __setattr__(self, name, value):
        object.__setattr__(self, name, value)


class Doubling(dict):
    """Stores twice what it is given."""

    def __setitem__(self, key, value):
        super().__setitem__(key, value * 2)


@functools.singledispatch
def kind(value):
    return 1.0


@functools.cache
def kept():
    return [2.0]


def put(model, rate):
    PUT(model, NAME, rate)
    return 1.0


def validate(rate):
    VALIDATED.rate = rate
    return VALIDATED.rate


def swap_code(double, triple):
    double.__code__, triple.__code__ = triple.__code__, double.__code__
    return double(1.0)


def closure(factor):
    return lambda: factor


def change_class(model):
    model.__class__ = Model
    return 2.0


HELD, FACTOR, VALIDATED, COUNTS, LEFT = Model(), closure(2.0), Validated(), Doubling(a=1), iter(range(2, 99))

BODIES = {
    "a computed name": lambda model: getattr(model, NAME[:2] + "te"),
    "a computed name in a branch": lambda model: 2.0 if hasattr(model, f"rat{'e'}") else 3.0,
    "a computed name of a module": lambda model: getattr(MODULE, NAME[:2] + "te"),
    "an accessor among the builtins": lambda model: builtins.getattr(model, NAME),
    "an accessor of another name": lambda model: GET(model, NAME),
    "a question by another name": lambda model: 2.0 if HAS(model, NAME) else 3.0,
    "an accessor that is handed on": lambda model: sum(map(getattr, [model], ["rate"])),
    "an assignment by another name": lambda model: put(model, 4.0),
    "vars": lambda model: vars(model)["rate"],
    "dir": lambda model: len([name for name in dir(model) if name == NAME]),
    "the dictionary of an object": lambda model: model.__dict__["rate"],
    "the dictionary of a class": lambda model: len([n for n in Model.__dict__ if n == "total"]),
    "getmembers": lambda model: dict(inspect.getmembers(model))["rate"],
    "an alias": lambda model: HELD.speed,
    "a method that is given names": lambda model: validate(2.0),
    "an attrgetter": lambda model: BY_RATE(model),
    "an attrgetter that is made": lambda model: operator.attrgetter(NAME)(model),
    "a methodcaller": lambda model: CALLED(model),
    "a format": lambda model: len(str.format("{0.rate}", model)),
    "a format found by name": lambda model: len(SHOWN.format(model)),
    "single dispatch": lambda model: kind("a"),
    "a cache": lambda model: kept()[0],
    "a closure's content": lambda model: FACTOR.__closure__[0].cell_contents,
    "defaults": lambda model: (closure.__defaults__ is None) * 2.0,
    "code that is swapped": lambda model: swap_code(lambda x: x * 2, lambda x: x * 3),
    "a class that is assigned": change_class,
    "an iterator": lambda model: next(LEFT) * 0 + 1.0,
    "a container that stores in its own way": lambda model: COUNTS["a"],
}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_what_is_not_followed_is_piecewise_and_right(body):
    MODULE.rate = 2.0

    def call(x, model):
        return x * body(model)

    step = tj.jit(call)
    for rate in (2.0, 5.0, 2.0):
        HELD.rate = MODULE.rate = rate
        given = Model()
        given.rate = rate
        assert step(one(), given).tolist() == call(one(), given).tolist()
    assert step.cache_info().replays == 0
    assert __file__.rpartition("/")[2] in step.explain()
    with pytest.raises(ReplayError):
        tj.jit(call, strict=True)(one(), Model())


def test_names_that_are_constants_are_followed():
    @dataclasses.dataclass(frozen=True)
    class Frozen:
        rate: float

    @tj.jit(strict=True)
    def step(x, model):
        steps = getattr(model, "steps", 0) + 1
        setattr(model, "steps", steps)  # noqa: B010
        return x * Frozen(model.rate).rate * (2 if hasattr(model, "total") else 3)

    model = Model()
    model.steps = 0
    for n, rate in enumerate((2.0, 5.0, 2.0), 1):
        model.rate = rate
        assert step(one(), model).tolist() == [rate * 2]
        assert model.steps == n
    assert step.cache_info().replays == 1
