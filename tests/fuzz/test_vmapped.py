"""Random imperative programs for a batch of examples: `tj.vmap` of a program against a loop on NumPy.

All arrays that a program makes come from the batch, so its views alias parts of mapped arrays, and its
statements write into these. Other arrays are the same for all examples, and are written once. Compared are
results, what containers and captured names hold in the end, and the arrays themselves.
"""

from __future__ import annotations

import builtins
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings

import tracejit as tj
from tests.fuzz import running
from tests.fuzz.count import COUNT, IS_ASKED
from tests.fuzz.programs import Box, Plain, Program, in_c_order, programs

SIZE = 2
FRESH = 100  # the number of the array that a call gets beside those of the program


def one_example(program: Program, xp: Any) -> Any:
    """A function of the program's arrays: what its first call returns, and what it leaves behind."""
    namespace: dict[str, Any] = {"Box": Box, "Plain": Plain, "__name__": "fuzzed"}
    namespace["C"] = in_c_order if xp is np else running.itself
    exec(builtins.compile(program.source, "<fuzzed>", "exec"), namespace)
    call = program.calls[0]

    def function(arrays: dict[int, Any]) -> Any:
        step, fresh, made, tree, box, captured = namespace["make"](xp, lambda k, *_: arrays[k])
        p, q = (eval(part, {"A": made}) for part in (call.p, call.q))
        result = step(p, q, tree, box, call.n, call.r, fresh(FRESH))
        return only_arrays([result, tree, box.x, captured()])

    return function


def only_arrays(tree: Any) -> list[Any]:
    """The arrays of a tree, in order."""
    if isinstance(tree, dict):
        tree = list(tree.values())
    if isinstance(tree, list | tuple):
        return [leaf for child in tree for leaf in only_arrays(child)]
    return [tree] if isinstance(tree, np.ndarray | np.generic | tj.NDArray) else []


def batch_of(program: Program) -> dict[int, np.ndarray]:
    """The arrays of all examples, stacked."""
    found: dict[int, np.ndarray] = {}

    def array(k: int, shape: Any, dtype: str) -> np.ndarray:
        each = [running.numbers(k + 1000 * i, shape, dtype, program.exact) for i in range(SIZE)]
        found[k] = np.stack(each)
        return each[0].copy()

    namespace: dict[str, Any] = {"Box": Box, "Plain": Plain, "C": in_c_order}
    exec(builtins.compile(program.source, "<fuzzed>", "exec"), namespace)
    namespace["make"](np, array)[1](FRESH)
    return found


def check(program: Program, traced: bool, mapped: set[int]) -> None:
    """Run a program for a batch, of which only the arrays with these numbers are mapped."""
    stacked = batch_of(program)
    arrays = {k: x if k in mapped else x[0, ...].copy() for k, x in stacked.items()}
    given = {k: tj.asarray(x) for k, x in arrays.items()}
    function = tj.vmap(
        one_example(program, tj), ({k: 0 if k in mapped else None for k in arrays},), axis_size=SIZE
    )
    run = tj.jit(function) if traced else function
    for attempt in range(2 if traced else 1):
        where = f"call {attempt} of a {'traced' if traced else 'eager'} batch"
        seen = [{k: x[i, ...] if k in mapped else x.copy() for k, x in arrays.items()} for i in range(SIZE)]
        try:
            with np.errstate(all="ignore"):
                each = [one_example(program, np)(example) for example in seen]
        except (ValueError, TypeError, IndexError, OverflowError) as error:
            with pytest.raises((tj.TracejitError, type(error))):
                run(given)
            return
        try:
            found = list(run(given))
        except tj.errors.ArgumentError as error:
            if mapped >= set(arrays) or "common to all examples" not in str(error):
                raise
            return  # a program may store anything anywhere
        arrays |= {k: x for k, x in seen[0].items() if k not in mapped}
        wanted, after = [np.stack(rows) for rows in zip(*each, strict=True)], list(arrays.values())
        scale = max(1.0, running.largest(wanted), running.largest(after))
        running.same(found, wanted, where, scale, program.exact)
        running.same(list(given.values()), after, f"arrays after {where}", scale, program.exact)


@pytest.mark.parametrize(
    "mapped", [range(FRESH + 1), (0, 2, FRESH), (1, 3, 5)], ids=["all", "some", "others"]
)
@pytest.mark.parametrize("traced", [False, True], ids=["eager", "traced"])
def test_batches_of_programs(traced: bool, mapped: Iterable[int]) -> None:
    @settings(
        max_examples=max(COUNT // 15, 1),
        deadline=None,
        database=None,
        derandomize=not IS_ASKED,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.explicit, Phase.generate, Phase.shrink],
    )
    @given(programs(picks=False))
    def run(program: Program) -> None:
        check(program, traced, set(mapped))

    with running.simulated():
        run()
