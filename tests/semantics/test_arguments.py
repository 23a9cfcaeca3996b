"""What a traced function's arguments hold: their result must be that of the function, for all of them."""

import collections
import dataclasses
import datetime
import decimal
import fractions
import gc
import math
import operator
import re
import types
import weakref
from typing import Any, NamedTuple

import numpy as np
import pytest

import tracejit as tj
from tests.semantics.cases import Cases, Thing, one

CASES = Cases()


@CASES.add
def order_of_keywords(jit):
    @jit
    def step(x, **kw):
        for v in kw.values():
            x = x * 2 + v
        return x

    return step(one(), a=1.0, b=2.0), step(one(), b=2.0, a=1.0)


VALUES = {
    "range": (range(3), range(5)),
    "slice": (slice(0, 3), slice(0, 5)),
    "Fraction": (fractions.Fraction(2), fractions.Fraction(3)),
    "Decimal": (decimal.Decimal("1.0"), decimal.Decimal("1.00")),
    "timedelta": (datetime.timedelta(1), datetime.timedelta(2)),
    "date": (datetime.date(2020, 1, 1), datetime.date(2020, 1, 2)),
    "datetime64": (np.datetime64("2020-01-01"), np.datetime64("2020-01-02")),
    "pattern": (re.compile("a"), re.compile("ab")),
    "itemgetter": (operator.itemgetter(0), operator.itemgetter(1)),
    "attrgetter": (operator.attrgetter("real"), operator.attrgetter("imag")),
    "method": ([1].__len__, [1, 2].__len__),
    "complex": (np.complex64(1), np.complex64(2)),
}


@pytest.mark.parametrize("kind", VALUES)
def test_values_that_never_change_are_compared(kind):
    @tj.jit
    def step(x, value):
        return x * len(repr(value))

    for value in (*VALUES[kind], *VALUES[kind]):
        assert step(one(), value).tolist() == [len(repr(value))]


def test_equal_values_are_of_one_signature():
    @tj.jit
    def step(x, value):
        return x * len(repr(value))

    for _ in range(3):
        step(one(), fractions.Fraction(2))
        step(one(), datetime.date(2020, 1, 1))
        step(one(), slice(0, 3))
        step(one(), range(4))
    assert step.cache_info().traces == 4


@CASES.add
def default_factories(jit):
    step = jit(lambda x, d: x * d["missing"])
    make = collections.defaultdict
    return [step(one(), make(f)) for f in (lambda: 2.0, lambda: 3.0, float, int)]


@CASES.add
def methods_of_named_tuples(jit):
    class P(NamedTuple):
        w: Any

        def f(self):
            return self.w * 2

    step = jit(lambda p: p.f())
    first = step(P(one()))
    P.f = lambda self: self.w * 5
    return first, step(P(one()))


@CASES.add
def attributes_of_tuples(jit):
    class Q(collections.namedtuple("Q", "w")):
        pass

    q = Q(one())
    q.n = 2
    step = jit(lambda q: q.w * q.n)
    first = step(q)
    q.n = 3
    return first, step(q)


class P(dict):
    pass


@CASES.add
def attributes_of_dicts(jit):
    def make(kind, scale):
        p = kind(w=one())
        p.scale = scale
        return p

    step = jit(lambda p: p["w"] * p.scale)
    asked = jit(lambda p: p["w"] * (2 if hasattr(p, "flag") else 3))
    flagged = make(P, 1.0)
    flagged.flag = True
    ordered = collections.OrderedDict
    return [
        *(step(make(kind, scale)) for kind in (P, ordered) for scale in (2.0, 3.0)),
        *(asked(p) for p in (make(P, 1.0), flagged, make(P, 1.0))),
    ]


@CASES.add
def attributes_that_dicts_get(jit):
    @jit
    def count(p):
        p.n = p["w"].shape[0] + getattr(p, "n", 0)
        return p["w"] * 2

    p = P(w=one())
    found = []
    for _ in range(3):
        found += [count(p), p.n]
    return found


@CASES.add
def methods_of_dicts(jit):
    class Mine(dict):
        def f(self):
            return self["w"] * 2

    step = jit(lambda p: p.f())
    first = step(Mine(w=one()))
    Mine.f = lambda self: self["w"] * 5
    return first, step(Mine(w=one()))


class MyError(Exception):
    pass


@CASES.add
def arguments_of_exceptions(jit):
    step = jit(lambda x, e: x * e.args[0])
    held = MyError(2.0)
    by_name = jit(lambda x: x * held.args[0])
    found = [step(one(), MyError(2.0)), step(one(), MyError(3.0)), by_name(one())]
    held.args = (5.0,)
    return found, by_name(one())


@CASES.add
def exceptions_that_are_dataclasses(jit):
    @dataclasses.dataclass
    class Err(Exception):
        k: float

    step = jit(lambda x, e: x * e.k)
    give = jit(lambda x: (Err(2.0), x * 2))
    return step(one(), Err(2.0)), step(one(), Err(3.0)), [(type(e), e.k, x) for e, x in (give(one()),) * 2]


@CASES.add
def objects_as_keys(jit):
    a, b, c = Thing(), Thing(), Thing()
    rates = {a: 2.0, b: 3.0}
    step = jit(lambda x, op: x * rates[op])
    among = jit(lambda x, op: x * (2 if op in rates else 3))
    given = jit(lambda x, rates, op: x * rates[op])
    found = [given(one(), rates, op) for op in (a, b, a)]
    return [step(one(), a), step(one(), b), *(among(one(), op) for op in (a, b, c, c, a)), *found]


@CASES.add
def names_of_functions(jit):
    def make(name):
        def f():
            return 2.0

        f.__name__ = name
        return f

    rates = {"a": 2.0, "b": 3.0}
    step = jit(lambda x, f: x * rates[f.__name__])
    return step(one(), make("a")), step(one(), make("b"))


@CASES.add
def kinds_of_keys(jit):
    @jit
    def step(d):
        for k, v in d.items():
            r = v * math.copysign(1.0, k)
        return r, list(d)

    return [step({key: one()}) for key in (0.0, -0.0, 1, True, 1.0, 1)]


@CASES.add
def kinds_of_keys_found_by_name(jit):
    tables = {}

    @jit
    def step(x):
        for k in tables:
            x = x * math.copysign(1.0, k)
        return x, list(tables)

    found = []
    for key in (0.0, -0.0, 1, True, 1.0, 1):
        tables.clear()
        tables[key] = None
        found.append(step(one()))
    return found


@CASES.add
def containers_that_hold_themselves(jit):
    @dataclasses.dataclass
    class T:
        w: Any
        parent: Any = None
        child: Any = None

    root = T(one())
    root.child = T(one() + 1, root)
    loop = [one()]
    loop.append(loop)
    table = {"w": one()}
    table["self"] = table
    tree = jit(lambda t: t.w + t.child.w + t.child.parent.w)
    walk = jit(lambda a: a[1][1][0] * 2)
    look = jit(lambda d: d["self"]["self"]["w"] * 3)

    @jit
    def give(x):
        made = [x * 2]
        made.append(made)
        return made

    found = []
    for _ in range(2):
        made = give(one())
        found += [tree(root), walk(loop), look(table), made[0], made[1] is made]
    return found


@CASES.add
def functions_that_are_arguments_and_globals(jit):
    def make():
        return lambda x: x * 2

    f, g, h = make(), make(), make()
    step = jit(lambda x, k: k(x) * (10 if k is f else 20 if k == g else 1))
    return [step(one(), k) for k in (h, f, g, h, make(), f)]


@CASES.add
def arrays_that_are_arguments_and_globals(jit):
    w = one()
    frozen = [one()]

    @jit
    def step(params, g):
        for p in params:
            if any(p is q for q in frozen):
                continue
            p -= g

    same = jit(lambda x: x * 2 if x is w else x * 3)
    found = [same(x) for x in (one(), w, one(), w)]
    for params in ([one() * 5], [frozen[0]], [one()]):
        step(params, one())
        found += [params[0], frozen[0]]
    return found


@CASES.add
def views_in_a_body_that_catches_everything(jit):
    base = tj.zeros(6)

    @jit
    def step(a):
        try:
            a += 1
            return base[1:4] * 2
        except BaseException:
            return a * 100

    return [step(base[:3]) for _ in range(3)], base


@CASES.add
def classes_of_the_library_s_classes(jit):
    class Config(collections.UserDict):
        pass

    class Names(types.SimpleNamespace):
        pass

    class Sequence(collections.UserList):
        pass

    step = jit(lambda x, c: x * c["lr"])
    shown = jit(lambda x, n: x * len(repr(n)))
    first = jit(lambda x, s: x * s[0])
    held = Config(lr=2.0)
    by_name = jit(lambda x: x * held["lr"])
    found = [step(one(), Config(lr=lr)) for lr in (2.0, 3.0)]
    found += [shown(one(), Names(a=a)) for a in (1, 100)] + [first(one(), Sequence([k])) for k in (1, 2)]
    found.append(by_name(one()))
    held["lr"] = 5.0
    return found, by_name(one())


def test_functions_given_to_a_call_are_not_kept():
    class Big:
        pass

    step = tj.jit(lambda x, f: f(x))
    big = Big()
    seen_by = weakref.ref(big)
    step(one(), lambda x, big=big: x * 2)
    del big
    gc.collect()
    assert seen_by() is None


@pytest.mark.parametrize("name", CASES)
def test_a_traced_function_does_what_the_function_does(name):
    CASES.check(name)
