"""Containers of other classes than Python's own four: each call leaves them as plain Python would."""

import collections
import contextlib

import numpy as np
import pytest

import tracejit as tj
from tracejit.frontend.python import content


class Configured(dict):
    """Behaves as a dict, with an attribute."""

    name = "none"


def seven():
    return 7


MAPPINGS = {
    "dict": dict,
    "Counter": collections.Counter,
    "OrderedDict": collections.OrderedDict,
    "defaultdict": lambda items: collections.defaultdict(seven, items),
    "Configured": Configured,
}
SEQUENCES = {"list": list, "deque": collections.deque}
SETS = {"set": set}


def read(d, x):
    return x * d["b"]


def replace(d, x):
    d["b"] = d["b"] + 1


def add(d, x):
    d["c"] = 5


def count(d, x):
    d["c"] = d.get("c", 0) + 1


def remove(d, x):
    d.pop("b", None)


def ask_for_what_is_missing(d, x):
    with contextlib.suppress(KeyError):
        d["z"]


def move_to_the_end(d, x):
    value = d.pop("b", 3)
    d["b"] = value


def update(d, x):
    d.update({"a": 10})


def keep_an_array(d, x):
    d["w"] = x * 2


def give(d, x):
    return d


def read_first(s, x):
    return x * s[0]


def append(s, x):
    s.append(5)


def replace_first(s, x):
    s[0] = 9


def extend(s, x):
    s.extend([4])


def add_to_set(s, x):
    s.add(len(s) + 7)


def update_set(s, x):
    s.update({3})


BODIES = {
    tuple(MAPPINGS): (
        *(read, replace, add, count, remove, ask_for_what_is_missing, move_to_the_end, update),
        *(keep_an_array, give),
    ),
    tuple(SEQUENCES): (read_first, append, replace_first, extend),
    tuple(SETS): (add_to_set, update_set),
}
CASES = [(kind, body) for kinds, bodies in BODIES.items() for kind in kinds for body in bodies]


def made(kind):
    if kind in MAPPINGS:
        return MAPPINGS[kind]({"b": 1, "a": 2})
    return SEQUENCES[kind]([1, 2]) if kind in SEQUENCES else SETS[kind]({1, 2})


def shown(value):
    """Class and true content, with arrays as numbers."""
    if isinstance(value, tj.NDArray | np.ndarray):
        return float(value)
    if isinstance(value, dict):
        base = collections.OrderedDict if isinstance(value, collections.OrderedDict) else dict
        factory = getattr(value, "default_factory", None)
        return type(value), [(k, shown(v)) for k, v in base.items(value)], factory
    if isinstance(value, set):
        return type(value), sorted(map(repr, value))
    if isinstance(value, list | collections.deque):
        return type(value), [*map(shown, value)]
    return value


HELD = None


@pytest.mark.parametrize(("kind", "body"), CASES, ids=lambda c: getattr(c, "__name__", c))
def test_a_global_container_is_left_as_plain_python_leaves_it(kind, body, monkeypatch):
    def call(x):
        return body(HELD, x), x + 1

    expected = []
    monkeypatch.setitem(globals(), "HELD", made(kind))
    for _ in range(4):
        expected.append((shown(call(np.float32(2))[0]), shown(HELD)))
    monkeypatch.setitem(globals(), "HELD", made(kind))
    traced, seen = tj.jit(call), []
    for _ in range(4):
        seen.append((shown(traced(tj.asarray(np.float32(2)))[0]), shown(HELD)))
    assert seen == expected


@pytest.mark.parametrize(("kind", "body"), CASES, ids=lambda c: getattr(c, "__name__", c))
def test_a_container_among_the_arguments_is_left_as_plain_python_leaves_it(kind, body):
    plain, given = made(kind), made(kind)
    traced = tj.jit(body)
    for _ in range(4):
        expected = shown(body(plain, np.float32(2))), shown(plain)
        assert (shown(traced(given, tj.asarray(np.float32(2)))), shown(given)) == expected


@pytest.mark.parametrize("kind", MAPPINGS)
def test_a_new_container_is_the_same_in_every_call(kind):
    @tj.jit
    def make(x, n):
        made = MAPPINGS[kind]({"a": x + 1})
        made["n"] = n + 1
        return made

    for n in range(4):
        expected = MAPPINGS[kind]({"a": np.float32(3)})
        expected["n"] = n + 1
        assert shown(make(tj.asarray(np.float32(2)), n)) == shown(expected)


def test_attributes_of_a_new_container_are_not_lost():
    @tj.jit
    def make(x):
        made = Configured(a=x + 1)
        made.name = "run"
        return made

    for _ in range(3):
        found = make(tj.asarray(np.float32(2)))
        assert (float(found["a"]), found.name) == (3, "run")


@pytest.mark.parametrize("kind", MAPPINGS)
def test_trees_of_mappings_keep_class_and_content(kind):
    tree = {"m": made(kind), "x": 5}
    leaves, structure = tj.tree.flatten(tree)
    content_ = [v for _, v in shown(tree["m"])[1]]
    assert leaves == [*content_, 5]
    again = tj.tree.unflatten(structure, leaves)
    assert shown(again) == shown(tree)
    assert tj.tree.flatten(again)[1] == structure


def test_trees_of_defaultdicts_agree_whatever_their_factories():
    a, b = (collections.defaultdict(lambda: 7, w=n) for n in (1, 2))
    found = tj.tree.map(lambda x, y: x + y, a, b)
    assert found == {"w": 3}
    assert found["missing"] == 7


@pytest.mark.parametrize("kind", [*MAPPINGS, *SEQUENCES, *SETS])
def test_fill_makes_the_content_equal_whatever_the_class(kind):
    rng = np.random.default_rng(0)
    keys = [0, 1, True, "a", 2.0, 2, None, "b"]
    for _ in range(300):
        picked = [[keys[i] for i in rng.integers(len(keys), size=rng.integers(6))] for _ in range(2)]
        if kind in MAPPINGS:
            old, new = ({key: int(rng.integers(9)) for key in some} for some in picked)
        else:
            old, new = (set(some) if kind in SETS else some for some in picked)
        held = {**MAPPINGS, **SEQUENCES, **SETS}[kind]([])
        content.fill(held, old)
        assert content.same_items(held, old)
        content.fill(held, new)
        assert content.same_items(held, new)
        assert content.same_items(content.content_of(held), new)
