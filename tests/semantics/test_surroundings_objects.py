"""What a body reaches through objects, classes, functions and caches, and what it changes there."""

from __future__ import annotations

import bisect
import collections
import dataclasses
import fractions
import heapq
import operator
import sys
import types
import typing

import pytest

import tracejit as tj


class Counted:
    made = 0
    total = 0

    def step_class(self, x):
        Counted.made += 1
        return x * self.made

    def step_instance(self, x):
        self.total += 1
        return x * self.total


def test_counters_on_classes_and_instances():
    one = Counted()
    by_class, by_instance = tj.jit(one.step_class), tj.jit(one.step_instance)
    for i in range(1, 6):
        assert by_class(tj.ones(1)).tolist() == [i]
        assert by_instance(tj.ones(1)).tolist() == [i]
        assert (Counted.made, Counted.total, one.total) == (i, 0, i)
    assert "made" not in vars(one)
    assert by_class.cache_info().traces == 1
    assert by_instance.cache_info().traces == 2


def test_variables_of_library_modules_are_guarded(monkeypatch):
    step = tj.jit(lambda x: x * len(sys.argv) + sys.maxsize % 2)
    monkeypatch.setattr(sys, "argv", ["a", "b"])
    assert step(tj.ones(1)).tolist() == [3]
    monkeypatch.setattr(sys, "argv", ["a", "b", "c"])
    assert step(tj.ones(1)).tolist() == [4]
    sys.argv.append("d")
    assert step(tj.ones(1)).tolist() == [5]


@dataclasses.dataclass
class Options:
    alpha: float = 1.0
    weights: object = None


def test_dataclasses_reached_by_name_are_guarded_whole():
    options = Options(2.0, tj.ones(2))

    @tj.jit
    def step(x):
        return sum(leaf * x for leaf in tj.tree.leaves(options)).sum() + sum(
            value for value in dataclasses.asdict(Options(options.alpha)).values() if isinstance(value, float)
        )

    x = tj.ones(2)
    assert float(step(x)) == 4 + 2 + 2
    options.weights[...] = 5
    assert float(step(x)) == 4 + 10 + 2
    options.alpha = 3.0
    assert float(step(x)) == 6 + 10 + 3
    assert step.cache_info().traces == 2, step.explain()


def test_fractions_are_guarded():
    box = types.SimpleNamespace(scale=fractions.Fraction("0.5"))

    @tj.jit
    def step(x):
        return x * float(box.scale)

    x = tj.ones(1)
    assert [step(x).tolist() for _ in range(2)] == [[0.5], [0.5]]
    box.scale = fractions.Fraction("0.25")
    assert step(x).tolist() == [0.25]
    assert step.cache_info().traces == 2, step.explain()


def test_an_attribute_that_was_looked_for_in_vain():
    box = types.SimpleNamespace()

    @tj.jit
    def step(x):
        y = x * getattr(box, "scale", 1.0)
        return y + 1 if hasattr(box, "shift") else y

    x = tj.ones(1)
    assert step(x).tolist() == [1]
    box.scale = 3.0
    assert step(x).tolist() == [3]
    box.shift = None
    assert step(x).tolist() == [4]
    del box.scale
    assert step(x).tolist() == [2]


def test_a_function_replaced_in_another_module(monkeypatch):
    module = types.ModuleType("another_module")
    exec("SCALE = 2.0\ndef helper(x): return x * SCALE", vars(module))

    @tj.jit
    def step(x):
        return module.helper(x)

    x = tj.ones(1)
    assert step(x).tolist() == [2]
    module.SCALE = 3.0
    assert step(x).tolist() == [3]
    module.helper = lambda x: x * 10
    assert step(x).tolist() == [10]


class Slotted:
    __slots__ = ("t", "w")

    def __init__(self):
        self.t, self.w = 0, tj.zeros(1)


def test_attributes_in_slots():
    box = Slotted()
    box.t, box.w = 0, tj.zeros(1)

    @tj.jit
    def step(x):
        box.t += 1
        box.w = box.w + x * box.t
        return box.w * 1

    total = 0
    for i in range(1, 6):
        total += i
        assert step(tj.ones(1)).tolist() == [total]
        assert (box.t, box.w.tolist()) == (i, [total])
    assert type(box.t) is int
    assert step.cache_info().replays >= 3, step.explain()


RATE = 2.0
WEIGHTS = tj.ones(1)


def by_rate(x):
    return x * RATE


def weighted(x):
    return x + WEIGHTS


def test_what_two_functions_mention_is_guarded_if_one_of_them_reads_it(monkeypatch):
    """The other one, which is met first, mentions it on a line that does not run."""
    shift = 1.0

    def shifted(x):
        return x + shift

    def step(x, n):
        if n > 5:
            x = x * RATE + shift
        return shifted(by_rate(x))

    traced, x = tj.jit(step), tj.ones(1)

    def agree():
        return all(traced(x, n).tolist() == step(x, n).tolist() for n in (0, 0, 9, 9, 0))

    assert agree()
    monkeypatch.setitem(globals(), "RATE", 5.0)
    assert agree()
    shift = 7.0
    assert agree()
    assert "runs piecewise" not in traced.explain()


def test_an_array_that_two_functions_mention_is_read_again(monkeypatch):
    @tj.jit
    def step(x, n):
        if n > 5:
            x = x * WEIGHTS
        return weighted(x)

    x = tj.ones(1)
    for value in (1, 2, 3):
        monkeypatch.setitem(globals(), "WEIGHTS", tj.ones(1) * value)
        assert step(x, 0).tolist() == [1 + value]
        assert step(x, 9).tolist() == [2 * value]
    assert step.cache_info().traces == 2


class Calls:
    """Counts the calls of a class; heirs go on from where it is and count for themselves."""

    count = 0
    log: typing.ClassVar[list[int]] = []

    @classmethod
    def note(cls):
        cls.count += 1
        return cls.count


class MoreCalls(Calls):
    pass


def test_a_class_that_rebinds_what_it_inherits_has_an_attribute_of_its_own():
    kinds = [(type("Calls", (Calls,), {"count": 0}), {}) for _ in range(2)]
    heirs = [type("Heir", kind[:1], {}) for kind in kinds]
    held = None

    def step(x):
        return x * held.note()

    traced = tj.jit(step)
    for which in "bhhbhbb":
        seen = []
        for function, (base, _), heir in zip((step, traced), kinds, heirs, strict=True):
            held = base() if which == "b" else heir()
            seen.append((function(tj.ones(1)).tolist(), base.count, heir.count, "count" in vars(heir)))
        assert seen[0] == seen[1]


def test_what_an_object_only_inherits_is_not_made_its_classs_own():
    held = MoreCalls()

    @tj.jit
    def step(x):
        return x * held.count + Calls().note() * 0

    for i in range(3):
        assert step(tj.ones(1)).tolist() == [i]
        assert "count" not in vars(MoreCalls)
    MoreCalls.count = 10
    try:
        assert step(tj.ones(1)).tolist() == [10]
    finally:
        del MoreCalls.count


class Model:
    def __init__(self):
        self.k = 1

    def step(self):
        self.k += 1


CHANGES = {
    "a method of Python's library": lambda c: c["votes"].update("ab"),
    "a function of Python's library": lambda c: collections.Counter.update(c["votes"], "b"),
    "an unbound method of a list": lambda c: list.append(c["items"], 4),
    "an unbound method of a dict": lambda c: dict.update(c["table"], k=c["table"]["k"] + 1),
    "a heap": lambda c: heapq.heappush(c["items"], 0),
    "a sorted list": lambda c: bisect.insort(c["items"], 2),
    "an operator": lambda c: operator.setitem(c["table"], "k", c["table"]["k"] + 1),
    "an item of bytes": lambda c: c["bytes"].__setitem__(0, c["bytes"][0] + 1),
    "an operator in place": lambda c: operator.iadd(c["items"], [7]),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_body_that_starts_again_has_changed_nothing_before(change):
    """It does so if a container among the arguments is reached by name, too."""
    changed = CHANGES[change]

    def worlds():
        shared = {"w": 1.0}
        held = {"votes": collections.Counter(a=1), "items": [1, 3], "table": {"k": 1}, "bytes": bytearray(2)}

        def late():
            return shared["w"]

        def step(x, given):
            changed(held)
            return x * late() + given["w"]

        return step, shared, held

    (plain, given, expected), (step, ours, held) = worlds(), worlds()
    traced = tj.jit(step)
    for _ in range(3):
        assert traced(tj.ones(1), ours).tolist() == plain(tj.ones(1), given).tolist()
        assert held == expected


@dataclasses.dataclass
class Settings:
    a: float
    w: object


@pytest.mark.parametrize("first", [True, False])
def test_a_record_among_the_arguments_that_is_reached_by_name_is_one_object(first):
    def program():
        held = Settings(1.0, 2.0)

        def step(x, given):
            if first:
                held.a = held.a + 1
                return x * given.a + given.w
            given.a = given.a + 1
            given.w = x * 2
            return x * held.a + held.w

        return step, held

    (plain, theirs), (step, ours) = program(), program()
    traced, x = tj.jit(step), tj.ones(1)
    for other in (None, None, Settings(5.0, 1.0), None):
        result = traced(x, (other and dataclasses.replace(other)) or ours)
        expected = plain(x, (other and dataclasses.replace(other)) or theirs)
        assert result.tolist() == expected.tolist()
        assert (ours.a, float(ours.w)) == (theirs.a, float(theirs.w))


def noting(x):
    noting.calls += 1
    noting.last = x * noting.calls
    noting.mode = "odd" if noting.calls % 2 else "even"
    return x * noting.calls + noting.shift


def shifted(x):
    return noting(x) * noting.calls


@pytest.mark.parametrize("step", [noting, shifted, tj.jit(shifted)], ids=["itself", "another", "traced"])
def test_attributes_of_functions_are_read_and_written(step):
    def run(call):
        noting.calls, noting.shift, seen = 0, 1, []
        for turn in range(6):
            if turn == 3:
                noting.shift, noting.calls = 5, 10
            vars(noting).pop("last", None)
            result = call(tj.ones(2) * turn)
            seen.append((result.tolist(), noting.calls, noting.mode, noting.last.tolist()))
        return seen

    assert run(tj.jit(lambda x: step(x))) == run(step)


def test_attributes_of_a_traced_function_are_read_and_written():
    @tj.jit
    def counted(x):
        counted.calls += 1
        return x * counted.calls

    counted.calls = 0
    for n in (1, 2, 3):
        assert counted(tj.ones(1)).tolist() == [n]
        assert counted.calls == n
    counted.calls = 10
    assert counted(tj.ones(1)).tolist() == [11]
    assert "piecewise" not in counted.explain()
