"""Which object is which: a body that asks finds the objects that it would find without `tj.jit`."""

from __future__ import annotations

import dataclasses
import functools
import gc
import weakref

import numpy as np
import pytest

import tracejit as tj
from tests.semantics.cases import Cases, Thing, one

CASES = Cases()
TABLE = np.arange(3.0)


@CASES.add
def the_type_of_a_numpy_array(jit):
    def total(values):
        return float(values.sum()) if type(values) is np.ndarray else -1.0

    step = jit(lambda x: (x * total(TABLE), x * (2 if TABLE.__class__ is np.ndarray else 3)))
    return [step(one()) for _ in range(3)]


@CASES.add
def a_numpy_array_under_two_names(jit):
    state = Thing(table=TABLE, other=np.arange(3.0), tables=[TABLE], fixed=(TABLE,))

    @jit
    def step(x):
        found = [state.table, state.other, state.tables[0], state.fixed[0]]
        return x * (2 if state.table is TABLE else 3), [each is TABLE for each in found]

    seen = [step(one()), step(one())]
    state.other = TABLE
    seen += [step(one()), step(one())]
    state.other = np.arange(3.0)
    return [*seen, step(one())]


@CASES.add
def a_numpy_array_that_takes_the_place_of_another(jit):
    state = Thing(now=TABLE, best=TABLE)

    @jit
    def step(x):
        is_best = state.now is state.best
        state.now = state.best
        return x * (2 if is_best else 3)

    seen = [step(one())]
    state.now = np.arange(3.0)
    seen += [step(one()), step(one())]
    return [*seen, state.now is TABLE, type(state.now).__name__]


@CASES.add
def a_numpy_array_in_a_cache_and_in_a_class(jit):
    @functools.lru_cache
    def table():
        return TABLE

    @jit
    def step(x):
        class Tables:
            first = TABLE

        return x * float(table().sum()), Tables

    kept = [step(one())[1].first is TABLE for _ in range(2)]
    return [*kept, table() is TABLE]


@CASES.add
def a_view_that_is_an_argument_and_has_a_name(jit):
    base = tj.ones(4)
    state = Thing(view=base[0:2], views=[base[0:2], base[2:4]])

    def same(a, b):
        return a is b

    @jit
    def step(x):
        return x * (2 if x is state.view else 3)

    @jit
    def helped(x):
        return x * (2 if same(x, state.view) else 3)

    @jit
    def listed(x):
        return x, [index for index, view in enumerate(state.views) if view is x]

    given = [state.views[1], state.view, state.view, base[0:2], *state.views, state.view]
    return [[step(x), helped(x), listed(x)] for x in given]


@dataclasses.dataclass(eq=False)
class Told:
    """A dataclass whose objects are told apart."""

    weight: float


@CASES.add
def hashes(jit):
    step = jit(lambda x, thing, told: (x * told.weight, hash(thing), hash(thing.told), hash(told)))
    things, told = [Thing(told=Told(1.0)) for _ in range(3)], [Told(1.0) for _ in range(3)]
    found = [step(one(), *each)[1:] for each in zip(things, told, strict=True)]
    expected = [(hash(a), hash(a.told), hash(b)) for a, b in zip(things, told, strict=True)]
    return [a == b for a, b in zip(found, expected, strict=True)]


@CASES.add
def ids(jit):
    told = [Told(1.0), Told(2.0)]
    known = {id(TABLE): 2.0, id(told[0]): 3.0, id(told[1]): 5.0}
    step = jit(lambda x, each: x * known.get(id(TABLE), 0.0) * known.get(id(each), 0.0))
    return [step(one(), each) for each in (*told, Told(1.0))]


@pytest.mark.parametrize("name", CASES)
def test_a_case(name):
    CASES.check(name)


def test_numpy_arrays_that_are_compared_are_replayed():
    state = Thing(table=TABLE)
    step = tj.jit(lambda x: x * (2 if state.table is TABLE else 3))
    for _ in range(3):
        assert step(one()).tolist() == [2.0]
    assert step.cache_info().replays == 2


def test_a_numpy_array_in_a_tuple_leaves_numbers_as_they_are():
    state = Thing(tables=(TABLE,))
    step = tj.jit(lambda x, rate: x * rate * (2 if state.tables[0] is TABLE else 3))
    for rate in (1.0, 2.0, 3.0):
        assert step(one(), rate).tolist() == [2 * rate]
    assert step.cache_info().replays == 2


def test_objects_whose_hash_and_address_nobody_sees_may_change():
    weights = {f"w{i}": tj.asarray([float(i)]) for i in range(3)}

    @tj.jit
    def step(x, thing):
        for i in range(3):
            x = x + weights[f"w{i}"] * thing.rate
        if thing.is_shown:
            raise ValueError(f"this is {thing}, with {set(weights)}")
        return x

    for rate in (1.0, 2.0, 3.0):
        assert step(one(), Thing(rate=rate, is_shown=False)).tolist() == [1 + 3 * rate]
    traces = step.cache_info().traces
    for _ in range(3):
        step(one(), Thing(rate=3.0, is_shown=False))
    assert step.cache_info().traces == traces


class Settings:
    table = None


def test_a_captured_array_is_not_kept_until_the_collector_comes():
    step = tj.jit(lambda x: x * Settings.table)

    def use(n):
        Settings.table = np.ones(n, np.float32)
        assert step(tj.ones(n)).tolist() == [1.0] * n
        array, Settings.table = weakref.ref(Settings.table), None
        return array

    use(2)
    gc.disable()
    try:
        assert use(3)() is None
    finally:
        gc.enable()
