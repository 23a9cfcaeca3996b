"""Random programs that look at values in loops and branch: recorded and replayed, against NumPy, bit for bit.

Loops over ranges and arrays, one in another, and ``while`` loops, change numbers of Python's and arrays in
branches. Native rounds that go several ways (`frontend.jit.state_loops.native_loop`) are among the replays.
Half of the programs look in functions and methods that they call, too, and keep state in objects.
"""

from __future__ import annotations

import random
import warnings
from typing import Any

import numpy as np
import pytest

import tracejit as tj
from tests.fuzz.count import COUNT
from tracejit.frontend.recording.look_loops import run_ahead

CONDITIONS = (
    *("v > 0.5", "v > best", "v * v < s", "(h ^ d[k]) & 1", "d[k] > 3", "d[k] == t", "h & 1", "t < 5"),
    *("v > 0.25 and t < 9", "t % 3 == 1", "z.sum() > 2.0", "float(v) < rate", "int(d[k]) % 4 == 2", "k > t"),
    *("not v < 0.75", "z[1] > v", "int(d[k]) + t > 6", "s > limit", "d[k] - d[j] > 0", "max(t, k) > 7"),
)  # fmt: skip
STATEMENTS = (
    *("t += 1", "t -= 2", "t = t // 2", "t = max(t, k)", "t = (t << 1) & 63", "t = min(t, 5) - k"),
    *("h = (h >> 1) ^ 0xA001", "h >>= 1", "h = (h * 5 + k) & 0xFFFF", "h = ~h & 0xFF | t & 1", "h = h % 97"),
    *("best = v", "at = k", "s = s + v", "s = s * 0.5 + 0.125", "s = s + x[d[k]]", "s = s + t"),
    *("z = z * 0.5 + v", "z[1] = v", "z = z[::-1] + 0.25", "out[k] = v", "out[k] = s", "out = out + 0.5"),
    *("rate *= 0.75", "rate = rate + 0.5", "s = s - rate", "limit = limit * 2.0 - t", "best = x[at]"),
    *("out[k] = max(v, x[k])", "z[1] = min(z[0], v, s)", "s = s + max(v, best)"),
    *("out[k] = max(x[k], max(v, best) - 0.5)", "z[0] = min(max(s, 0.0), 1.0)", "best = max(best, v)"),
    *("t += int((x[d[j] : d[k]] > 0.5).sum())", "z[0] = abs(x[: d[k]] - s).any()", "t += int(d[t:].sum())"),
    *("best = x[d[j] : d[j] + 3].max()", "h ^= int(d[k : d[k]].sum()) + int(d[d[x[t:n] > 0.5]].sum())"),
    *("n += int(d[k])", "n -= 1", "a = b", "b = v", "a, b = b, s", "h = h ^ t", "rate = t / 8"),
)  # fmt: skip

STARTS = ("int(d[k])", "t & 31", "h % 23", "int(d[k]) + k", "float(x[k]) * 9.0", "rate * 8.0", "n % 17")
TESTS = ("g > 1", "g >= 2", "g * g > 3", "1 < g < 40", "g != 0 and g > 0", "not g < 3", "g > 1 and t < 30")
NUMBER_STATEMENTS = (
    *(
        "t += 1",
        "n += 1",
        "rate = rate + g * 0.125",
        "q = g + q",
        "q = max(q, g)",
        "t, n = n, t",
        "c = g > 4",
    ),
    *(
        "h = (h >> 1) ^ 3",
        "h = h & 0xFF",
        "q = q * 0.5",
        "limit = limit + 0.25",
        "q = -q if q > 9 else q + 1",
    ),
)
STEPS = (
    "g = g // 2",
    "g -= 2",
    "g = g - 1 if g % 2 else g // 3",
    "g = g * 0.5",
    "g = (g - 1) / 2",
    "g -= 0.75",
)

HELPERS = """
def value(u):
    return float(u)

def above(u, v):
    return u > v and not v > 9.0

def largest(u, v):
    if u > v:
        return u
    return v

def score(u, v):
    points = 1
    if u > v:
        points = 2
    if u * v > 0.25:
        points = points + 4
    return points

class Meter:
    def __init__(self):
        self.count, self.level = 0, 0.25

    def over(self, u):
        self.count += 1
        if u > self.level:
            self.level = self.level + 0.125
            return True
        return False

    def reading(self, u):
        self.count = self.count + 2
        return u * -1.0, float(u), bool(u > self.level)

class Pair:
    def __init__(self, low, high):
        self.low, self.high = low, high

    def wide(self):
        return float(self.high - self.low) > 0.25

m = Meter()
"""
CALLING_CONDITIONS = (
    *("value(v) > 0.5", "above(v, best)", "above(s, v)", "m.over(v)", "m.over(s)", "m.reading(v)[2]"),
    *("p.wide()", "m.count % 3 == 1", "m.count > t", "value(p.low) < m.level", "largest(v, s) > 1.0"),
)
CALLING = (
    *("s = largest(s, v)", "m.count += 1", "p = Pair(p.high, v)", "rate = value(v) * 0.5", "n += m.count"),
    *("b, rate, ok = m.reading(v)", "m.level *= 0.75", "p.low = s", "t += int(m.over(v))", "s = s + p.low"),
    *(
        "m.count += int(d[k])",
        "best = largest(p.low, p.high)",
        "m.count = int(d[k]) - m.count",
        "p = Pair(v, s)",
    ),
    *(
        "n += score(v, s)",
        "t = t + n * score(x[k], best)",
        "m.count += score(v, m.level)",
        "h ^= score(s, v) << 3",
    ),
)


def program(chance: random.Random, *, calls: bool) -> str:
    """The text of a function ``f(x, d)``."""
    conditions = CONDITIONS + CALLING_CONDITIONS * 3 * calls
    statements = STATEMENTS + CALLING * 3 * calls

    def number_loop(depth: int) -> list[str]:
        """A loop that computes with numbers only."""
        lines = [f"g, q = {chance.choice(STARTS)}, 0", f"while {chance.choice(TESTS)}:"]
        lines += [f"    {chance.choice(NUMBER_STATEMENTS)}" for _ in range(chance.randint(0, 2))]
        if chance.random() < 0.5:
            test = chance.choice(["g > 5", "q > t", "c", "g % 3 == 0", "h & 1"])
            lines += [f"    if {test}:", f"        {chance.choice(NUMBER_STATEMENTS)}"]
            lines += [f"        {chance.choice(['break', 't -= 1', 'q += 2'])}"]
        lines += [f"    {chance.choice(STEPS)}", "s = s + q"]
        return ["    " * depth + line for line in lines]

    def block(depth: int) -> list[str]:
        lines = ["    " * depth + chance.choice(statements) for _ in range(chance.choice([1, 1, 2, 3]))]
        if chance.random() < 0.15:
            lines += number_loop(depth)
        if depth < 5 and chance.random() < (0.9 if depth < 3 else 0.3):
            lines.append("    " * depth + f"if {chance.choice(conditions)}:")
            lines += block(depth + 1)
            kind = chance.random()
            if kind < 0.1:
                lines.append("    " * (depth + 1) + chance.choice(["break", "continue"]))
            if kind > 0.5:
                lines += ["    " * depth + "else:", *block(depth + 1)]
        return lines

    lines = [
        "def f(x, d):",
        "    q, c = 0, False",
        "    t, h, n, at, j, k, rate, limit = 0, 40503, 0, 0, 0, 0, 0.5, 1.5",
    ]
    lines += ["    v = best = s = a = b = x[0]", "    z, out = x[:3] * 0.5, x * 0.0"]
    lines += ["    m.count, m.level, p, ok = 0, 0.25, Pair(v, s), False"] * calls
    match chance.randrange(4):
        case 0:
            lines += ["    for k in range(x.shape[0]):", "        v = x[k]", *block(2)]
        case 1:
            lines += ["    for v in x:", *block(2), "        k = (k + 1) % 12"]
        case 2:
            lines += [f"    for k in range({chance.choice(['12', '11, -1, -1', '1, 12, 2'])}):"]
            lines += [*block(2), f"        for j in range({chance.choice(['3', '5'])}):"]
            lines += ["            v = v * 0.5 + x[j]", *block(3)]
        case _:
            lines += [
                "    while bool(v < 4.0) and k < 11:",
                "        v = v * 1.25 + 0.125",
                "        k += 1",
                *block(2),
            ]
    lines.append("    return t, h, n, at, rate, limit, best, s, a, b, z, out")
    lines[-1] += ", m.count, m.level, p.low, p.high, ok" * calls
    if calls and chance.random() < 0.5:
        lines = [lines[0].replace("f(", "inner("), *lines[1:], "", "def f(x, d):", "    return inner(x, d)"]
    return HELPERS * calls + "\n".join(lines)


def bits(results: Any) -> list[Any]:
    """Results as something that is equal only for equal bits; numbers of Python's are of their own type."""
    found: list[Any] = []
    for each in results:
        if type(each) in (bool, int, float):
            found.append((type(each).__name__, repr(each)))
        else:
            found.append((str(np.asarray(each).dtype), np.asarray(each).tobytes()))
    return found


def outcome(function: Any, *arguments: Any) -> Any:
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            return bits(function(*arguments))
        except (ArithmeticError, IndexError) as error:
            return type(error).__mro__[-4].__name__


@pytest.mark.parametrize("seed", range(COUNT // 20))
def test_branches(seed, monkeypatch):
    if seed % 4 > 1:  # the first call runs native loops as soon as it can
        monkeypatch.setattr(run_ahead, "PATIENCE", 0.0)
    chance = random.Random(seed)
    text = program(chance, calls=seed % 2 == 1)
    namespace: dict[str, Any] = {"__name__": "branches"}
    exec(compile(text, f"<branches {seed}>", "exec"), namespace)
    function, rng = namespace["f"], np.random.default_rng(seed)
    traced = tj.jit(function)
    for call in range(5):
        x, d = rng.random(12), rng.integers(0, 12, 12)
        if call == 3:
            d[5] = 40
        given = outcome(traced, tj.array(x), tj.array(d))
        assert given == outcome(function, x.copy(), d), f"call {call} of\n{text}\n{traced.explain()}"
