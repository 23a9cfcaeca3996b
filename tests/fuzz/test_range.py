"""Random programs with loops over `tj.range`, which index by the loop variable, draw random numbers, nest,
and have gradients.

The oracle is Python's `range` in the place of `tj.range`, or of a `range` of which a few rounds are recorded
as the body is long (`loops.plain`), recorded with the pass `roll` left out. Values are
equal bit for bit where all operators are elementwise. Gradients add up over rounds, which fused kernels of
the unrolled recording may do in another order.
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

import tracejit as tj
from tests.fuzz.count import COUNT
from tracejit import config
from tracejit.errors import OutOfBoundsError
from tracejit.frontend.recording.ranges import builtin_range as ranges_of_python

VALUES = (
    *("x*0.5+y", "tj.tanh(x)+a[i]", "x+a[i-1]", "x-y*a[i+1]", "tj.maximum(x, y)", "x*(i*0.125)", "x+i"),
    *("b[n-1-i]-x", "x+1/(i+1)", "y*(0.5*i-n*0.25)", "tj.where(x > y, x, y)", "x[::-1]+y", "b[2*i]*x"),
    *("c[i]*x", "x+c[i+1]", "b[i:i+2, 1][0]+y", "a[i, ::-1]", "prev*0.5", "y+0.25", "a[i]"),
    *("x+tj.random.uniform(shape=4)", "tj.nn.dropout(y, 0.25)", "a[i]*tj.random.uniform(-1, 1, shape=4)"),
)  # fmt: skip
STATEMENTS = (
    *("x = tj.tanh({})", "y = tj.tanh({})", "a[i] = tj.tanh({})", "a[i+1] = tj.tanh({})"),
    *("x = x*1; x[1:] += y[:-1]", "b[i, 1:3] = ({})[1:3]", "prev = {}", "a[i] += tj.tanh({})"),
    *("c[i] = tj.tanh(({})[0])", "x, y = y, tj.tanh({})", "y[1] = 0.5", "prev = a[i]"),
    "x = tj.checkpoint(lambda v: tj.sin(v))({})",
)  # fmt: skip


def program(chance: random.Random) -> str:
    """The text of a function ``f(x, y, a, b, c, n, rounds)``."""

    def statement(depth: int) -> str:
        return "    " * depth + chance.choice(STATEMENTS).format(chance.choice(VALUES))

    lines = ["def f(x, y, a, b, c, n, rounds):", "    prev = y*1", "    for i in rounds(1, n):"]
    lines += [statement(2) for _ in range(chance.randint(1, 4))]
    if chance.random() < 0.4:
        inner = chance.choice(["j", "n - 1 - i", "i"])
        lines += [
            f"        for j in rounds({chance.choice([4, 5, 'i'])}):",
            statement(3).replace("[i", f"[{inner}"),
        ]
        lines += [statement(2)]
    if chance.random() < 0.3:
        lines += ["    for i in rounds(n - 1, 0, -1):", statement(2), statement(2)]
    return "\n".join([*lines, "    return [x, y, a, b, c, prev]"])


def arguments() -> list[Any]:
    made = np.random.default_rng(7)
    shapes = ((4,), (4,), (40, 4), (80, 4), (40,))
    return [tj.asarray(made.normal(size=shape).astype(np.float32) * 0.5) for shape in shapes]


@pytest.mark.parametrize("seed", range(max(1, COUNT // 75)))
def test_range(seed, monkeypatch):
    text = program(random.Random(seed))
    namespace: dict[str, Any] = {"tj": tj}
    exec(compile(text, f"<program {seed}>", "exec"), namespace)
    f = namespace["f"]

    def gradient(x, y, *others):
        return tj.grad(lambda x, y: sum(v.sum() for v in f(x * 1, y * 1, *others)), argnums=(0, 1))(x, y)

    for function, exact in ((f, True), (gradient, False)):
        traced, plain = tj.jit(function), tj.jit(function)
        for n in (14, 14, 11):
            found = arguments()
            tj.random.seed(n)
            results = [np.asarray(v) for v in tj.tree.leaves((traced(*found, n, tj.range), found))]
            counter = tj.random.stream().counter
            with monkeypatch.context() as patched:
                patched.setattr(config, "disable", frozenset({"roll"}))
                wanted = arguments()
                tj.random.seed(n)
                expected = [np.asarray(v) for v in tj.tree.leaves((plain(*wanted, n, range), wanted))]
            assert tj.random.stream().counter == counter, text
            for one, other in zip(results, expected, strict=True):
                if exact:
                    np.testing.assert_array_equal(one, other, err_msg=text)
                else:
                    np.testing.assert_allclose(one, other, rtol=2e-5, atol=2e-6, err_msg=text)


def results_of(function, n):
    """Return the results of a call and its arguments, or the text of the error that it raises."""
    given = arguments()
    try:
        return [np.asarray(v) for v in tj.tree.leaves((function(*given, n, None), given))]
    except OutOfBoundsError as error:
        return str(error)


@pytest.mark.parametrize("seed", range(COUNT // 10))
def test_range_of_a_long_body(seed, monkeypatch):
    text = program(random.Random(seed)).replace(" rounds(", " range(")
    namespace: dict[str, Any] = {"tj": tj}
    exec(compile(text, f"<program {seed}>", "exec"), namespace)
    monkeypatch.setattr(ranges_of_python, "LONG_RECORDING", 12)
    monkeypatch.setattr(ranges_of_python, "MIN_TRIP_COUNT", 4)
    traced, plain = tj.jit(namespace["f"]), tj.jit(namespace["f"])
    for n in (24, 24, 21):
        tj.random.seed(n)
        results = results_of(traced, n)
        counter = tj.random.stream().counter
        with monkeypatch.context() as patched:
            patched.setattr(config, "disable", frozenset({"roll"}))
            tj.random.seed(n)
            expected = results_of(plain, n)
        if isinstance(expected, str):  # a slice of a few programs is empty, and is indexed
            assert results == expected, text
            continue
        assert tj.random.stream().counter == counter, text
        for one, other in zip(results, expected, strict=True):
            np.testing.assert_array_equal(one, other, err_msg=text)
