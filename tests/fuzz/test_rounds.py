"""Random programs with loops of many rounds: recorded, rolled and replayed, against NumPy.

Rounds read and write rows at places that move, carry values, swap them, collect them, and hold inner loops.
What can be rolled depends on the program; about half of them have a rolled loop.
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

import tracejit as tj
from tests.fuzz.count import COUNT
from tracejit.passes.rolling.roll import MIN_ITERATIONS

VALUES = (
    *("x*0.5+y", "xp.tanh(x)+a[i]", "x+a[i-1]", "x-y*a[i]", "xp.maximum(x, y)", "x*(i*0.125)", "x+i", "x@m"),
    *("a[i:i+2].sum(0)+x", "xp.where(x > y, x, y)", "x/(1.0+xp.abs(y))", "x+b[n-1-i]", "y+0.25", "c[i]*x"),
    *("x[::-1].copy()+y", "xp.exp(-x*x)", "x+x.sum()", "a[i]", "b[2*i]*x", "x+c[i].sum()"),
    *("(a[:n]*c[:n]).sum(0)", "a[:i].sum(0)*0.1+x", "x+xp.flip(b[:i, 0])@c[:i]*0.1", "(a[i:n]-x).sum(0)*0.1"),
    *("m[:, 0]@a[i]*x", "a[0]+x", "b[1:i+1].mean(0)"),
)  # fmt: skip
STATEMENTS = (
    *("x = xp.tanh({})", "y = xp.tanh({})", "a[i] = xp.tanh({})", "a[i+1] = {}", "b[i, 1:3] = ({})[1:3]"),
    *("x = x.copy(); x[1:] += y[:-1]", "out.append({})", "a[i] += xp.tanh({})", "s = s*0.5 + ({}).sum()"),
    *("c[:, 0] *= 0.5", "y[i % 4] = xp.tanh(s)", "b[i] = a[i] + a[i+1]; x = xp.tanh({})"),
    *("x, y = y, xp.tanh({})", "b[:n] = b[:n]*0.5 + a[:n]", "a[:i] = a[:i]*0.5 + xp.tanh({})"),
    *("c[i:n, 1] += 0.1*xp.flip(b[i:n, 0])", "b[n-1-i:n] *= 0.5"),
)  # fmt: skip


def program(chance: random.Random) -> tuple[str, int]:
    """The text of a function ``f(xp, x, y, a, b, c, m)``, and the number of its rounds."""

    def statement(depth: int) -> str:
        return "    " * depth + chance.choice(STATEMENTS).format(chance.choice(VALUES))

    n = chance.choice([MIN_ITERATIONS, MIN_ITERATIONS + 1, MIN_ITERATIONS + 4, 2 * MIN_ITERATIONS + 1])
    lines = ["def f(xp, x, y, a, b, c, m):", f"    n, out, s = {n}, [], x.sum()", "    for i in range(1, n):"]
    lines += [statement(2) for _ in range(chance.randint(1, 5))]
    if chance.random() < 0.3:
        count = chance.choice([str(MIN_ITERATIONS), "i", "i, n", f"i+{MIN_ITERATIONS}"])
        lines += [f"        for j in range({count}):", statement(3).replace("a[i", "a[j")]
    if chance.random() < 0.2:
        lines += ["        if i % 3 == 0:", statement(3)]
    if chance.random() < 0.3:
        lines += ["    for i in range(n - 1, 0, -1):", statement(2), statement(2)]
    return "\n".join([*lines, "    return [x, y, s, *out, a, b, c]"]), n


@pytest.mark.parametrize("seed", range(COUNT // 20))
def test_rounds(seed):
    chance = random.Random(seed)
    text, n = program(chance)
    namespace: dict[str, Any] = {}
    exec(compile(text, f"<rounds {seed}>", "exec"), namespace)
    function, rng = namespace["f"], np.random.default_rng(seed)
    shapes = (4,), (4,), *((2 * n + 2, 4),) * 3, (4, 4)
    arrays = [rng.random(shape) for shape in shapes]
    arrays[-1] *= 0.3
    traced = tj.jit(lambda *given: function(tj, *given))
    results = [[np.asarray(r) for r in traced(*map(tj.array, arrays))] for _ in range(2)]
    with np.errstate(all="ignore"):
        expected = function(np, *(x.copy() for x in arrays))
    for recorded, replayed, wanted in zip(*results, expected, strict=True):
        np.testing.assert_array_equal(recorded, replayed)
        np.testing.assert_allclose(recorded, wanted, rtol=1e-7, atol=1e-7, err_msg=text)
