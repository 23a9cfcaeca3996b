"""Objects of records, slots, properties and named tuples: each call leaves them as plain Python would."""

import collections
import dataclasses
import typing

import numpy as np
import pytest

import tracejit as tj


class Plain:
    def __init__(self):
        self.t = 1
        self.w = None


class Property:
    def __init__(self):
        self._t = 1
        self.w = None

    @property
    def t(self):
        return self._t

    @t.setter
    def t(self, value):
        self._t = value * 2


class Slotted:
    __slots__ = ("t", "w")

    def __init__(self):
        self.t = 1
        self.w = None


@dataclasses.dataclass
class Record:
    t: int = 1
    w: typing.Any = None


@dataclasses.dataclass(frozen=True)
class Frozen:
    t: int = 1
    w: typing.Any = None


@dataclasses.dataclass(slots=True)
class SlottedRecord:
    t: int = 1
    w: typing.Any = None


class ShiftedTuple(collections.namedtuple("ShiftedTuple", "u w", defaults=(1, None))):
    @property
    def t(self):
        return self[0] + 1


MUTABLE = [Plain, Property, Slotted, Record, SlottedRecord]
FIXED = [Frozen, ShiftedTuple]


def read(o, x):
    return x * o.t


def count(o, x):
    o.t = o.t + 1
    return x * o.t


def keep_an_array(o, x):
    o.w = x * 3
    return x


def add(o, x):
    o.z = 5
    return x


def give(o, x):
    return o, x


def read_item(o, x):
    return x * o[0]


CASES = [(kind, body) for kind in MUTABLE for body in (read, count, keep_an_array, add, give)]
CASES = [case for case in CASES if case[1] is not add or hasattr(case[0](), "__dict__")]
CASES += [(kind, body) for kind in FIXED for body in (read, give)]
CASES += [(kind, read_item) for kind in FIXED if issubclass(kind, tuple)]


def shown(value):
    """Class and what is truly held, with arrays as numbers."""
    if isinstance(value, tj.NDArray | np.ndarray | np.float32):
        return float(value)
    if isinstance(value, tuple):
        return type(value), [*map(shown, tuple.__iter__(value))]
    if type(value) not in (*MUTABLE, *FIXED):
        return value
    names = [name for name in ("t", "w") if hasattr(type(value), "__slots__")]
    held = {name: object.__getattribute__(value, name) for name in names}
    if not names:
        held = object.__getattribute__(value, "__dict__")
    return type(value), {name: shown(item) for name, item in held.items()}


HELD = None


@pytest.mark.parametrize(("kind", "body"), CASES, ids=lambda c: c.__name__)
def test_a_global_object_is_left_as_plain_python_leaves_it(kind, body, monkeypatch):
    def call(x):
        return body(HELD, x)

    expected = []
    monkeypatch.setitem(globals(), "HELD", kind())
    for _ in range(4):
        expected.append((shown(call(np.float32(2))), shown(HELD)))
    monkeypatch.setitem(globals(), "HELD", kind())
    traced, seen = tj.jit(call), []
    for _ in range(4):
        seen.append((shown(traced(tj.asarray(np.float32(2)))), shown(HELD)))
    assert seen == expected


@pytest.mark.parametrize(("kind", "body"), CASES, ids=lambda c: c.__name__)
def test_an_object_among_the_arguments_is_left_as_plain_python_leaves_it(kind, body):
    plain, given = kind(), kind()
    traced = tj.jit(body)
    for _ in range(4):
        expected = shown(body(plain, np.float32(2))), shown(plain)
        assert (shown(traced(given, tj.asarray(np.float32(2)))), shown(given)) == expected


@pytest.mark.parametrize("kind", [Record, SlottedRecord, *FIXED])
def test_trees_hold_what_the_objects_hold(kind):
    tree = kind()
    leaves, structure = tj.tree.flatten(tree)
    assert shown(tj.tree.unflatten(structure, leaves)) == shown(tree)
