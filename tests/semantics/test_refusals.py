"""What a replay does not follow makes the function piecewise, with its line; results are Python's."""

import builtins
import collections
import dataclasses
import decimal
import functools
import inspect
import operator
import types

import numpy as np
import pytest

import tracejit as tj
from tests.semantics.cases import Thing, one
from tracejit.errors import ReplayError

NAME = "rate"
GET, PUT, HAS, SHOWN = getattr, setattr, hasattr, "{0.rate} of {0.inner}"
BY_RATE, CALLED = operator.attrgetter("rate"), operator.methodcaller("total", 2)
MODULE = types.ModuleType("settings")


class Model:
    """An object with attributes, found by name and as an argument."""

    def __init__(self):
        self.rate, self.inner = 2.0, 3.0

    def total(self, factor):
        return self.rate * factor


class Alias:
    """Finds attributes under other names."""

    def __getattr__(self, name):
        return HELD.rate


class Field:
    """A descriptor."""

    def __get__(self, instance, owner=None):
        return HELD.rate


class Described:
    rate = Field()

    def scaled(self, factor):
        return HELD.rate * factor

    double = functools.partialmethod(scaled, 2)

    @functools.singledispatchmethod
    def kind(self, value):
        return HELD.rate


class Meta(type):
    @property
    def rate(cls):
        return HELD.rate


class Formed(metaclass=Meta):
    """A class of a metaclass."""


@functools.singledispatch
def kind(value):
    return 1.0


@functools.cache
def kept():
    return [2.0]


def put(model, rate):
    PUT(model, NAME, rate)
    return 1.0


def swap_code(double, triple):
    double.__code__, triple.__code__ = triple.__code__, double.__code__
    return double(1.0)


def closure(factor):
    return lambda: factor


def change_class(model):
    model.__class__ = Model
    return 2.0


def define_class(model):
    class Local:
        rate = model.rate

    return Local.rate


def empty():
    def read(model):
        try:
            return later
        except NameError:
            return HELD.rate

    if HELD is None:
        later = 1.0
    return read


class Title(str):
    """A value with attributes."""

    rate = property(lambda self: HELD.rate)


class Samples(np.ndarray):
    """An array with attributes."""

    rate = property(lambda self: HELD.rate)


TITLE, SAMPLES, OBJECTS = Title("a"), np.ones(1).view(Samples), np.empty(1, object)
HALF, FAILURE = decimal.Decimal("0.5"), ValueError(2.0)
HELD, FACTOR, LEFT, ALIAS, DESCRIBED = Model(), closure(2.0), iter(range(2, 99)), Alias(), Described()
OBJECTS[0], RATES = HELD, {HELD: [2.0]}

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
    "an alias": lambda model: ALIAS.speed,
    "a descriptor": lambda model: DESCRIBED.rate,
    "a partial method": lambda model: DESCRIBED.double(),
    "a method of single dispatch": lambda model: DESCRIBED.kind("a"),
    "a metaclass": lambda model: Formed.rate,
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
    "a class statement": define_class,
    "an error": lambda model: FAILURE.args[0],
    "a decimal": lambda model: float(HALF),
    "a key that is an object": lambda model: RATES[HELD][0],
    "a value with attributes": lambda model: TITLE.rate,
    "an array with attributes": lambda model: SAMPLES.rate,
    "an array of objects": lambda model: OBJECTS[0].rate,
    "a variable without a value": empty(),
    "an iterator": lambda model: next(LEFT) * 0 + 1.0,
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


class Told:
    t = Twice()

    def __init__(self):
        self.t = 1


WAYS = {
    "Doubling": Doubling,
    "Shifted": lambda: Shifted(t=1),
    "Registry": lambda: Registry(parts={"t": 1}),
    "DoublingRecord": DoublingRecord,
    "Told": Told,
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


class Extended(dict):
    """A dict that may get attributes."""


STORED = types.SimpleNamespace(made=None)
HIDDEN = [tj.ones(3)]


@tj.pure
def hidden():
    return HIDDEN[0]


def stores_an_object(table, x):
    STORED.made = object()  # here
    return x


def gives_an_object(table, x):
    table["a"] = x + 1
    table["b"] = object()  # here


def gives_a_list_that_holds_itself(table, x):
    made = [x]
    made.append(made)
    table["b"] = made  # here


def gives_an_attribute(table, x):
    table.extra = 1  # here
    return x


def uses_a_hidden_array(table, x):
    y = hidden()
    return x + y  # here


@pytest.mark.parametrize(
    "body",
    [
        stores_an_object,
        gives_an_object,
        gives_a_list_that_holds_itself,
        gives_an_attribute,
        uses_a_hidden_array,
    ],
)
def test_a_reason_found_at_the_end_has_its_line(body):
    lines, first = inspect.getsourcelines(body)
    (offset,) = (i for i, line in enumerate(lines) if line.endswith("# here\n"))
    step = tj.jit(body)
    step(Extended(a=None, b=None), tj.ones(3))
    told = step.explain()
    assert "runs piecewise" in told
    assert f"{__file__}:{first + offset}" in told, told
