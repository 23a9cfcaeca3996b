"""Random imperative programs on NumPy, eagerly, traced and replayed, with stages of the compiler switched.

`TRACEJIT_FUZZ=10000` sets how many programs run (see `tests.fuzz.count`). Every program runs on the memory
plan's simulator, which needs no kernels; some also run without a plan, and as machine code, fused and not, on
the native engine and on the naive one.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from tests.fuzz import running
from tests.fuzz.count import COUNT, IS_ASKED
from tests.fuzz.programs import Program, programs
from tests.thorough import some

VARIANTS: dict[str, tuple[float, Any]] = {
    "planned": (1, running.simulated),
    "planned without fusion": (
        0.3,
        lambda: _both(running.simulated(), running.settings(disable=frozenset({"fuse"}))),
    ),
    "without a plan": (0.3, lambda: running.simulated(running.Evaluated)),
    "unfused": (0.15, lambda: running.settings(disable=frozenset({"fuse"}))),
    "fused": (0.2, lambda: running.settings()),
    "large": (0.1, lambda: running.enlarged(40)),
    "short bands": (0.15, lambda: running.short_bands(4)),
    "short bands, planned": (0.3, lambda: _both(running.simulated(), running.short_bands(4))),
    "naive": (0.05, lambda: running.settings(engine="naive", disable=frozenset({"fuse"}))),
    "naive fused": (0.05, lambda: running.settings(engine="naive")),
    "unoptimised": (0.05, lambda: running.settings(disable=frozenset({"fuse", "simplify", "cse"}))),
}
"""Name -> share of the programs, and how to switch it on."""


class _both:
    def __init__(self, *contexts: Any):
        self.contexts = contexts

    def __enter__(self) -> None:
        for context in self.contexts:
            context.__enter__()

    def __exit__(self, *error: Any) -> None:
        for context in reversed(self.contexts):
            context.__exit__(*error)


@pytest.mark.parametrize("variant", some(VARIANTS, 6))
@pytest.mark.parametrize("traced", [False, True], ids=["eager", "traced"])
def test_programs(variant: str, traced: bool) -> None:
    share, switch = VARIANTS[variant]

    @settings(
        max_examples=max(int(COUNT * share), 1),
        deadline=None,
        database=None,
        derandomize=not IS_ASKED,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.explicit, Phase.generate, Phase.shrink],
    )
    @given(programs())
    def run(program: Program) -> None:
        running.check_program(program, traced=traced)

    with switch():
        run()
