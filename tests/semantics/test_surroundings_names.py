"""Ways by which a body reaches by name what its result depends on, and which is changed between its calls."""

import builtins
import functools
import os
import random
import statistics
import sys
import types

import numpy as np
import pytest

import tracejit as tj
from tests.semantics.cases import Cases, one

CASES = Cases()


sys.modules["tracejit_test_module"] = MODULE = types.ModuleType("tracejit_test_module")


@CASES.add
def imports_in_the_body(jit):
    MODULE.scale, MODULE.f = 2.0, lambda x: x * 3

    @jit
    def step(x):
        import tracejit_test_module

        return tracejit_test_module.f(x * tracejit_test_module.scale)

    @jit
    def part(x):
        from tracejit_test_module import scale as s

        return x * s

    found = [step(one()), part(one())]
    MODULE.scale = 5.0
    found += [step(one()), part(one())]
    MODULE.f = lambda x: x * 7
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
def methods_of_containers(jit):
    items = [1, 2]
    size = items.__len__
    step = jit(lambda x: x * size())
    found = [step(one())]
    items.append(3)
    return found, step(one())


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

    def pattern(x, p):
        match p:
            case P(r):
                return x * r

    steps = jit(pattern), jit(lambda x, p: x * float(f"{p.r_up}"))
    return [step(one(), P(r)) for step in steps for r in (2.0, 3.0)]


@CASES.add
def attributes_of_anything_that_is_called(jit):
    def g(x):
        return x

    p, c = functools.partial(lambda x: x), functools.cache(lambda n: 1.0)
    g.r_up = p.rp = c.rc = 2.0
    steps = (
        jit(lambda x, m: g(x) * g.r_up),
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
def names_that_a_class_gets(jit):
    class Base:
        pass

    class Model(Base):
        pass

    model = Model()
    step = jit(lambda x: x * (2 if hasattr(model, "mask") else 3))
    results = [step(one())]
    Base.mask = 1
    return [*results, step(one())]


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
