"""Random loops over slices whose bounds are elements of an array: first calls and replays against NumPy.

Elements are small integers, so that sums are exact. The loops have arrays of a few or of many elements: the
latter are written in place (`frontend.jit.state_loops.cycles`).
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

import tracejit as tj
from tests.fuzz.count import COUNT
from tests.fuzz.test_branches import outcome
from tracejit.frontend.recording.look_loops import run_ahead

PARTS = (
    "x[p[k] : p[k + 1]]",
    "w[p[k] : p[k + 1]]",
    "x[p[k] : p[k + 2]]",
    "w[p[k + 1] : p[k + 2]]",
    "x[: p[k]]",
    "w[q[k] : q[k] + 3]",
    "x[q[k] : p[k + 1]]",
    "x[int(q[k]) : int(q[k]) + int(c[k])]",
    "rows[q[k] : q[k] + c[k]].sum(axis=1)",
    "c[p[k] : p[k + 1]]",
)
USES = (
    "out[k] = a.sum()",
    "out[k] = (a * 2 + 1).sum() - (a > 3).sum()",
    "out[k] = a @ a",
    "out[k + 1] = out[k] + a.sum()",
    "out[c[k]] = (a * 3).sum()",
    "s = s * 0.5 + a.sum() % 16",
    "s = (a * 1.0).sum() % 7 + s % 3",
    "z = z[::-1] + a.sum() % 5",
    "z[1] = a.sum()",
    "t += int((a > 2).sum())",
    "if int(a.sum()) % 3 == 0: t += 1",
    "if (a > 7).any(): s = s + 1",
    "out[k] = w[(abs(a) % 5).astype('int64')].sum()",
    "m = max(m, float(a.sum()))",
    "if t > 40: break",
)


def program(chance: random.Random) -> str:
    """Return a random function."""
    lines = ["def f(p, q, c, x, w, rows, out):", "    s, t, m, z = x[0] * 1.0, 0, 0.0, w[:3] * 1.0"]
    lines += ["    out = out * 1.0", "    for k in range(c.shape[0] - 2):"]
    for _ in range(chance.randint(1, 3)):
        lines.append(f"        a = {chance.choice(PARTS)}")
        lines += [f"        {chance.choice(USES)}" for _ in range(chance.randint(1, 2))]
    return "\n".join([*lines, "    return s, t, m, z, out", ""])


def arrays(rng: Any, count: int, longest: int) -> tuple[np.ndarray, ...]:
    size = count * longest + 8
    lengths = rng.integers(0, longest + 1, count)
    return (
        np.cumsum(lengths) - lengths[0],
        rng.integers(0, size - longest - 4, count),
        rng.integers(0, longest + 1, count),
        rng.integers(0, 9, size).astype("float64"),
        rng.integers(0, 9, size).astype("float64"),
        rng.integers(0, 9, (size, 2)).astype("float64"),
        np.zeros(max(count, longest) + 1),
    )


@pytest.mark.parametrize("seed", range(COUNT // 10))
def test_slices(seed, monkeypatch):
    if seed % 4 > 1:  # the first call runs native loops as soon as it can
        monkeypatch.setattr(run_ahead, "PATIENCE", 0.0)
    chance = random.Random(seed)
    text, rng = program(chance), np.random.default_rng(seed)
    namespace: dict[str, Any] = {"__name__": "slices", "np": np}
    exec(compile(text, f"<slices {seed}>", "exec"), namespace)
    function = namespace["f"]
    traced, count = tj.jit(function), chance.choice((14, 40, 1100))
    for call, longest in enumerate(chance.choices((3, 6, 6, 12), k=5)):
        given = arrays(rng, count, 12)
        given = (arrays(rng, count, longest)[0] if longest < 12 else given[0], *given[1:])
        result = outcome(traced, *map(tj.asarray, given))
        assert result == outcome(function, *(each.copy() for each in given)), f"call {call} of\n{text}"
