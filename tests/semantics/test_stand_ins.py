"""What a body returns, keeps or raises: the same objects once, and nothing that only recordings know."""

import collections
import dataclasses
import functools
import types
from typing import Any

import pytest

import tracejit as tj
from tests.semantics.cases import Cases, Thing, one, seen
from tracejit.frontend.recording.number import NumberProxy

CASES = Cases()


@CASES.add
def results_that_are_one(jit):
    held = Thing(log=None)

    @jit
    def step(x):
        s = [x * 2]
        return {"now": s, "log": s}

    @jit
    def kept(x):
        a = [x * 2]
        held.log = a
        return a

    @jit
    def arrays(x):
        y = x * 2
        return y, y, [y]

    @jit
    def nested(x):
        a = [x * 2]
        b = (a, a)
        return b, {"b": b}, a

    found = []
    for _ in range(3):
        r, a, (p, q, (o,)), (b, d, c) = step(one()), kept(one()), arrays(one()), nested(one())
        found += [r["now"] is r["log"], held.log is a, p is q is o, b is d["b"], b[0] is b[1] is c]
        found += [r, a, p, b]
    return found


@dataclasses.dataclass(slots=True)
class Slotted:
    w: Any
    k: float


class MyList(list):
    pass


class MyError(Exception):
    pass


@pytest.mark.parametrize(
    ("make", "read"),
    [
        (lambda x, n: [n, [n]] * 2, lambda r: [r[0], r[1][0], r[2], r[3][0]]),
        (lambda x, n: (a := [n], a), lambda r: [r[0][0], r[1][0]]),
        (lambda x, n: Slotted(x, n), lambda r: [r.k]),
        (lambda x, n: Thing(k=n, below=Thing(k=[n])), lambda r: [r.k, r.below.k[0]]),
        (lambda x, n: collections.deque([n]), list),
        (lambda x, n: MyList([n, (n,)]), lambda r: [r[0], r[1][0]]),
        (lambda x, n: {(n, 1): n}, lambda r: [*r.values(), *(k[0] for k in r)]),
        (lambda x, n: functools.partial(max, n, key=n), lambda r: [r.args[0], r.keywords["key"]]),
        (lambda x, n: MyError(n, [n]), lambda r: [r.args[0], r.args[1][0]]),
        (lambda x, n: types.MethodType(len, [n]), lambda r: [r.__self__[0]]),
        (lambda x, n: lambda *, k=n: k, lambda r: [r()]),
        (lambda x, n: lambda k=n: k, lambda r: [r()]),
        (lambda x, n: lambda: n, lambda r: [r()]),
        (lambda x, n: {n}, list),
        (lambda x, n: slice(n, None), lambda r: [r.start]),
        (lambda x, n: collections.OrderedDict(a=n), lambda r: [r["a"]]),
    ],
)
def test_no_result_holds_a_stand_in_for_a_number(make, read):
    def step(x, n):
        return make(x * 2, n)

    traced = tj.jit(step)
    for n in (2, 3, 2.5, 3, 2):
        found, expected = read(traced(one(), n)), read(step(one(), n))
        assert NumberProxy not in map(type, found)
        assert (found, list(map(type, found))) == (expected, list(map(type, expected)))


class Named(dict):
    """A dict that cannot be made without a name."""

    def __init__(self, name, **items):
        super().__init__(items)
        self["name"] = name


@CASES.add
def dicts_whose_class_needs_arguments(jit):
    step = jit(lambda x: Named("a", w=x * 2))
    doubled = jit(lambda p: tj.tree.map(lambda v: v if isinstance(v, str) else v * 2, p))
    gradient = jit(tj.grad(lambda p: (p["w"] * p["w"]).sum()))
    p = Named("b", w=one())
    found = [step(one()), step(one()), doubled(p), doubled(p)]
    del p["name"]
    return [(type(each), each) for each in (*found, gradient(p), gradient(p))]


def test_what_an_error_carries_holds_no_stand_ins():
    @tj.jit
    def step(x, n):
        if n > 2:
            error = ValueError(n * 2, [n])
            error.more = {"n": n}
            raise error
        return x

    for _ in range(2):
        with pytest.raises(ValueError, match="6") as found:
            step(one(), 3)
        error = found.value
        assert [type(v) for v in (error.args[0], error.args[1][0], error.more["n"])] == [int] * 3


def _exit(n):
    raise SystemExit(n)


def _interrupt(n):
    raise KeyboardInterrupt([n])


def _cause(n):
    try:
        raise KeyError(n)
    except KeyError as error:
        raise RuntimeError from error


def _context(n):
    try:
        raise KeyError(n)
    except KeyError:
        raise RuntimeError("no") from None


def _circle(n):
    first, second = ValueError(n), KeyError(n)
    first.__cause__, second.__cause__ = second, first
    raise first


def _group(n):
    raise ExceptionGroup("two", [ValueError(n), ExceptionGroup("one", [KeyError(n)])])


def _file(n):
    raise OSError(2, "no", n)


def _name(n):
    raise ImportError("no", name=n, path=[n])


@pytest.mark.parametrize("fails", [_exit, _interrupt, _cause, _context, _circle, _group, _file, _name])
def test_what_errors_and_their_causes_carry_is_what_it_is_without_a_trace(fails):
    def carried(function):
        def told(error, known):
            if error is None or id(error) in known:
                return None
            held = [getattr(error, name, None) for name in ("code", "errno", "filename", "name", "path")]
            parts = [told(part, {*known, id(error)}) for part in getattr(error, "exceptions", ())]
            rest = [told(e, {*known, id(error)}) for e in (error.__cause__, error.__context__)]
            return type(error), seen(error.args[:1]), seen(held), parts, rest

        with pytest.raises((Exception, SystemExit, KeyboardInterrupt)) as found:
            function(one(), 3)
        return told(found.value, set())

    def step(x, n):
        fails(n)

    assert carried(tj.jit(step)) == carried(step)


@pytest.mark.parametrize("name", CASES)
def test_a_traced_function_does_what_the_function_does(name):
    CASES.check(name)
