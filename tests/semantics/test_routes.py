"""Ways by which a body reaches by name what its result depends on, and which is changed between its calls."""

import abc
import builtins
import functools
import inspect
import operator
import os
import random
import statistics
import sys
import types

import numpy as np
import pytest

import tracejit as tj
from tests.semantics.cases import Cases, Thing, one

CASES = Cases()


sys.modules["tracejit_test_routes"] = ROUTES = types.ModuleType("tracejit_test_routes")


@CASES.add
def imports_in_the_body(jit):
    ROUTES.scale, ROUTES.f = 2.0, lambda x: x * 3

    @jit
    def step(x):
        import tracejit_test_routes

        return tracejit_test_routes.f(x * tracejit_test_routes.scale)

    @jit
    def part(x):
        from tracejit_test_routes import scale as s

        return x * s

    found = [step(one()), part(one())]
    ROUTES.scale = 5.0
    found += [step(one()), part(one())]
    ROUTES.f = lambda x: x * 7
    return found, step(one())


def test_a_module_that_the_body_loads(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "tracejit_loaded_late.py").write_text("scale = 2.0\n")

    @tj.jit
    def step(x):
        import tracejit_loaded_late

        return x * tracejit_loaded_late.scale

    try:
        found = [step(one()).tolist()]
        for scale in (3.0, 3.0, 5.0):
            sys.modules["tracejit_loaded_late"].scale = scale
            found.append(step(one()).tolist())
        assert found == [[2], [3], [3], [5]]
        assert step.cache_info().replays >= 1
    finally:
        del sys.modules["tracejit_loaded_late"]


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x * float(os.environ.get("TRACEJIT_TEST_SCALE", "2")),
        lambda x: x * (3 if "TRACEJIT_TEST_SCALE" in os.environ else 4),
        lambda x: x * len(list(os.environ.keys())),
        lambda x: x * os.path.exists("no such file"),
        lambda x: x * statistics.NormalDist().samples(1)[0],
        lambda x: x * np.fromfile(os.devnull).size,
    ],
)
def test_what_the_library_asks_the_system_makes_the_function_piecewise(function):
    step = tj.jit(function)
    step(one())
    assert "piecewise" in step.explain()


def test_numpy_s_random_numbers_in_an_imported_module():
    @tj.jit
    def step(x):
        import numpy

        return x * float(numpy.random.rand())

    @tj.jit
    def part(x):
        from numpy import random

        return x * float(random.rand())

    for f in (step, part):
        assert f(one()).tolist() != f(one()).tolist()


@CASES.add
def what_super_finds(jit):
    class Base:
        k = 2.0

        def f(self, x):
            return x * 2

    class Heir(Base):
        k = 3.0

        def f(self, x):
            return super().f(x) * super().k

    h = Heir()
    step = jit(lambda x: h.f(x))
    found = [step(one())]
    Base.f = lambda self, x: x * 5
    found.append(step(one()))
    Base.k = 7.0
    return found, step(one())


class Field:
    def __init__(self, default):
        self.default = default

    def __get__(self, instance, owner=None):
        return self.default


@CASES.add
def descriptors_of_the_user_s(jit):
    class M:
        k = Field(2.0)

    m = M()
    step = jit(lambda x: x * m.k)
    found = [step(one())]
    vars(M)["k"].default = 5.0
    found.append(step(one()))
    M.k = 9.0
    return found, step(one())


@CASES.add
def methods_that_are_no_functions(jit):
    class M:
        @jit
        def inner(self, x):
            return x * 2

        cached = functools.lru_cache(lambda self, n: n * 2)

        def scaled(self, x, k):
            return x * k

        double = functools.partialmethod(scaled, k=2.0)

        @functools.singledispatchmethod
        def kind(self, v):
            return 1.0

        prop = property(operator.attrgetter("held"))

    m = M()
    m.held = 2.0
    steps = {
        "inner": jit(lambda x: m.inner(x)),
        "cached": jit(lambda x: x * m.cached(3)),
        "double": jit(lambda x: m.double(x)),
        "kind": jit(lambda x: x * m.kind("a")),
        "prop": jit(lambda x: x * m.prop),
    }
    found = [(name, step(one())) for name, step in steps.items()]
    m.held = 3.0
    M.inner = lambda self, x: x * 5
    M.cached = lambda self, n: n * 7
    M.double = functools.partialmethod(M.scaled, k=3.0)
    M.kind.register(str, lambda self, v: 5.0)
    return found, [(name, step(one())) for name, step in steps.items()]


@CASES.add
def computed_names(jit):
    class C:
        rate_up = 2.0

        def f_up(self, x):
            return x * 2

    c = C()
    module = types.ModuleType("some_module")
    module.rate_up = 2.0
    steps = (
        jit(lambda x, mode: x * getattr(c, "rate_" + mode)),
        jit(lambda x, mode: getattr(c, "f_" + mode)(x)),
        jit(lambda x, mode: x * getattr(module, "rate_" + mode)),
        jit(lambda x, mode: x * sum(v for k, v in C.__dict__.items() if k == "rate_" + mode)),
        jit(lambda x, mode: x * sum(v for k, v in vars(C).items() if k == "rate_" + mode)),
        jit(lambda x, mode: x * len([n for n in dir(c) if n.startswith("r")])),
        jit(lambda x, mode: x * len(vars(c))),
    )
    found = [step(one(), "up") for step in steps]
    C.rate_up = module.rate_up = 5.0
    C.f_up = lambda self, x: x * 5
    c.run = c.rest = 1
    return found, [step(one(), "up") for step in steps]


@CASES.add
def empty_slots(jit):
    class S:
        __slots__ = ("k",)

    s, t = S(), S()
    step = jit(lambda x: x * (s.k if hasattr(s, "k") else 1))

    @jit
    def put(x):
        t.k = 3
        return x * 2

    found = [step(one())]
    s.k = 5.0
    found.append(step(one()))
    for _ in range(3):
        put(one())
        found.append(t.k)
        del t.k
    return found


@CASES.add
def getters(jit):
    node = Thing(k=2.0, below=Thing(k=2.0), f=lambda: 2.0, g=lambda *, k: k)
    by_k, below, call = (
        operator.attrgetter("k"),
        operator.attrgetter("below.k"),
        operator.methodcaller("f"),
    )
    keyword = operator.methodcaller("g", k=2.0)
    steps = [jit(lambda x, get=get: x * get(node)) for get in (by_k, below, call, keyword)]
    found = [step(one()) for step in steps]
    node.k, node.below.k, node.f, node.g = 5.0, 6.0, lambda: 7.0, lambda *, k: k + 6.0
    return found, [step(one()) for step in steps]


@CASES.add
def methods_of_containers(jit):
    items = [1, 2]
    size = items.__len__
    step = jit(lambda x: x * size())
    found = [step(one())]
    items.append(3)
    return found, step(one())


@CASES.add
def what_a_cache_keeps(jit):
    @functools.cache
    def config():
        return Thing(k=2.0)

    @functools.lru_cache(maxsize=3)
    def table(n):
        return {"k": [n]}

    step = jit(lambda x: x * config().k)
    other = jit(lambda x: x * table(2)["k"][0])
    found = []
    for k in (2.0, 5.0, 6.0):
        found += [step(one()), other(one())]
        config().k = table(2)["k"][0] = k
    found += [step(one()), other(one())]
    config.cache_clear()
    table.cache_clear()
    return found, step(one()), other(one())


@CASES.add
def what_a_cached_function_names(jit):
    held = Thing(k=2.0)

    @functools.cache
    def scale(n):
        return held.k * n

    scale(3)
    step = jit(lambda x: x * scale(3))
    found = [step(one()), step(one())]
    held.k = 5.0
    found.append(step(one()))
    scale.cache_clear()
    return found, step(one()), step(one())


@CASES.add
def single_dispatch(jit):
    @functools.singledispatch
    def kind(v):
        return 1.0

    step = jit(lambda x, s: x * kind(s))
    found = [step(one(), "a")]
    kind.register(str, lambda v: 5.0)
    return found, step(one(), "a"), step(one(), 3)


@CASES.add
def code_of_functions(jit):
    def g(x):
        return x * 2

    step = jit(lambda x: g(x))
    first = step(one())
    g.__code__ = (lambda x: x * 5).__code__
    return first, step(one())


@CASES.add
def special_methods(jit):
    class B:
        def __init__(self):
            self.k = 2.0

        def __eq__(self, other):
            return False

        def __repr__(self):
            return "B"

        __hash__ = None

    b = B()
    made, same, shown = (
        jit(lambda x: x * B().k),
        jit(lambda x: x * (2 if b == 3 else 1)),
        jit(lambda x: x * len(repr(b))),
    )
    found = [step(one()) for step in (made, same, shown)]
    B.__init__ = lambda self: setattr(self, "k", 5.0)
    B.__eq__ = lambda self, other: True
    B.__repr__ = lambda self: "longer"
    return found, [step(one()) for step in (made, same, shown)]


@CASES.add
def metaclasses(jit):
    items = {}

    class M(type):
        k = 2.0

        def __getitem__(cls, key):
            return items[key]

        def f(cls):
            return 2.0

    class C(metaclass=M):
        pass

    class A(abc.ABC):
        j = 2.0

        @abc.abstractmethod
        def f(self):
            pass

    items["C"] = C
    C.own = 2.0
    steps = (
        jit(lambda x: x * C.k),
        jit(lambda x: x * C["C"].own),
        jit(lambda x: x * C.f()),
        jit(lambda x: x * A.j),
    )
    found = [step(one()) for step in steps]
    M.k = C.own = A.j = 5.0
    M.f = lambda cls: 7.0
    return found, [step(one()) for step in steps]


@CASES.add
def names_among_the_builtins(jit):
    builtins.tracejit_rate, builtins.tracejit_f, builtins.tracejit_w = 2.0, lambda x: x * 2, one()
    step = jit(eval("lambda x: tracejit_f(x) * tracejit_rate + tracejit_w"))
    try:
        found = [step(one())]
        builtins.tracejit_rate, builtins.tracejit_w = 5.0, one() * 3
        found.append(step(one()))
        builtins.tracejit_f = lambda x: x * 3
        return found, step(one())
    finally:
        del builtins.tracejit_rate, builtins.tracejit_f, builtins.tracejit_w


@CASES.add
def fields_in_patterns_and_formats(jit):
    class P:
        __match_args__ = ("r_up",)
        __slots__ = ("r_up",)

        def __init__(self, r):
            self.r_up = r

    def pattern(x, p, m):
        match p:
            case P(r):
                return x * r

    steps = (
        jit(pattern),
        jit(lambda x, p, m: x * float(f"{p.r_up}")),
        jit(lambda x, p, m: x * getattr(p, "r_" + m)),
        jit(lambda x, p, m: x * next(v for n, v in inspect.getmembers(p) if n[0] != "_")),
    )
    return [step(one(), P(r), "up") for step in steps for r in (2.0, 3.0)]


@CASES.add
def attributes_of_anything_that_is_called(jit):
    def g(x):
        return x

    p, c = functools.partial(lambda x: x), functools.cache(lambda n: 1.0)
    g.r_up = p.rp = c.rc = 2.0
    steps = (
        jit(lambda x, m: g(x) * getattr(g, "r_" + m)),
        jit(lambda x, m: p(x) * p.rp),
        jit(lambda x, m: x * c(1) * c.rc),
    )
    found = [step(one(), "up") for step in steps]
    g.r_up = p.rp = c.rc = 5.0
    return found, [step(one(), "up") for step in steps]


@CASES.add
def modules_that_find_names_themselves(jit):
    module = sys.modules["tracejit_test_lazy"] = types.ModuleType("tracejit_test_lazy")
    module.__getattr__ = lambda name: 2.0
    module.rate = 2.0
    steps = jit(lambda x: x * module.scale), jit(lambda x: x * __import__("tracejit_test_lazy").rate)
    found = [step(one()) for step in steps]
    module.__getattr__ = lambda name: 5.0
    module.rate = 5.0
    try:
        return found, [step(one()) for step in steps]
    finally:
        del sys.modules["tracejit_test_lazy"]


@CASES.add
def names_that_the_body_computes(jit):
    held, other, totals = Thing(), Thing(), {"a": 0, "b": 0}

    @jit
    def put(x, kw):
        for k, v in kw.items():
            setattr(held, k, v)
        return x

    @jit
    def put_all(x, kw):
        other.__dict__.update(kw)
        return x

    @jit
    def add(x, v):
        for k in totals:
            totals[k] += v
        return x

    found = []
    for i in range(3):
        put(one(), {"z": i, "a": 1.5})
        put_all(one(), {"z": i})
        add(one(), i)
        found += [dict(vars(held)), dict(vars(other)), dict(totals)]
    return found


@CASES.add
def classes_that_the_body_assigns(jit):
    class Fresh:
        k = 2.0

    class Trained:
        k = 3.0

    m = Fresh()

    @jit
    def step(x):
        r = x * m.k
        m.__class__ = Trained
        return r

    found = []
    for _ in range(3):
        found += [step(one()), type(m).__name__]
    m.__class__ = Fresh
    return found, step(one()), type(m).__name__


@CASES.add
def arrays_of_objects(jit):
    class A(np.ndarray):
        pass

    o = np.empty(1, object)
    o[0] = {"k": 2.0}
    a = np.ones(1).view(A)
    a.k = 2.0
    steps = jit(lambda x: x * o[0]["k"]), jit(lambda x: x * a.k)
    found = [step(one()) for step in steps]
    o[0]["k"] = a.k = 5.0
    return found, [step(one()) for step in steps]


LOG = functools.partial(print, "loss")


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x * (LOG(x.shape) is None),
        lambda x: x * len(list(map(print, ["a"]))),
        lambda x: x * sum(map(random.getrandbits, [30])),
    ],
)
def test_functions_with_effects_that_are_handed_on_make_the_function_piecewise(function, capsys):
    step = tj.jit(function)
    found = {step(one()).tolist()[0] for _ in range(3)}
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) == 3 or len(found) == 3
    assert "runs piecewise" in step.explain()


def test_functions_with_effects_that_are_not_called_cost_nothing():
    def step(x, verbose=False):
        return x * (2 if not verbose else print(x.shape))

    traced = tj.jit(step)
    traced(one()), traced(one())
    assert traced.cache_info().replays == 1


@pytest.mark.parametrize("name", CASES)
def test_a_traced_function_does_what_the_function_does(name):
    CASES.check(name)
