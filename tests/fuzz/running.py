"""Running a random program on NumPy and on tracejit: results and the final state of every array must agree.

`TOLERANCE` is for programs that are not exact: the difference may be that many units in the last place of the
largest number that the program has met (sums in another order, and transcendental functions within 2 to 4
ULP, both amplified by at most a few dozen statements).
"""

from __future__ import annotations

import builtins
import contextlib
import linecache
import types
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import numpy as np
import pytest

import tracejit as tj
from tests.fuzz.programs import Box, Plain, Program, in_c_order
from tests.passes.simulate import run_plan
from tracejit import compile
from tracejit.assembly.schedule import Packer
from tracejit.config import config
from tracejit.frontend.arrays import direct
from tracejit.frontend.recording import check, eager
from tracejit.ir.evaluate import evaluate
from tracejit.ir.graph import Graph
from tracejit.loopnest import sweep
from tracejit.passes.driver import optimize
from tracejit.passes.memory.legalize import legalize
from tracejit.passes.memory.plan import plan

TOLERANCE = 512
factor = 1  # every extent of a program's arrays but 1 is multiplied by it


def numbers(seed: int, shape: Any, dtype: str, exact: bool) -> np.ndarray:
    """Input data: small multiples of a half where results must be exact."""
    rng = np.random.default_rng(seed)
    shape = tuple(n * factor if n > 1 else n for n in shape)
    if exact:
        values = rng.integers(-6, 7, shape)
        return np.asarray(values * 0.5 if dtype.startswith("float") else values).astype(dtype)
    return np.asarray(rng.normal(size=shape)).astype(dtype)


class Run:
    """One execution of a program: `call` returns the result and the state after a call."""

    def __init__(
        self, program: Program, xp: Any, wrap: Callable[[np.ndarray], Any], traced: Callable[[Any], Any]
    ):
        namespace: dict[str, Any] = {"Box": Box, "Plain": Plain, "__name__": "fuzzed"}
        namespace["C"] = in_c_order if xp is np else itself
        name = f"<fuzzed {id(program)}>"
        linecache.cache[name] = (len(program.source), None, program.source.splitlines(keepends=True), name)
        exec(builtins.compile(program.source, name, "exec"), namespace)
        made = namespace["make"](
            xp, lambda seed, shape, dtype: wrap(numbers(seed, shape, dtype, program.exact))
        )
        self.step, self.fresh, self.arrays, self.tree, self.box, self.captured = made
        self.function = traced(self.step)

    def call(self, call: Any) -> tuple[Any, Any]:
        given = {"A": self.arrays}
        p, q = eval(call.p, given), eval(call.q, given)
        result = self.function(p, q, self.tree, self.box, call.n, call.r, self.fresh(call.seed))
        return result, [self.arrays, self.tree, vars(self.box), self.captured()]


def itself(value: Any) -> Any:
    """Our arrays lie in C order."""
    return value


def plain(value: Any) -> np.ndarray:
    """Arrays for NumPy."""
    return np.array(value)


def check_program(program: Program, *, traced: bool) -> Any:
    """Run the program on NumPy and here, and compare after every call; the traced function, if it is."""
    with np.errstate(all="ignore"):
        expected = Run(program, np, plain, lambda step: step)
        given = Run(program, tj, tj.asarray, tj.jit if traced else lambda step: step)
        results, scale = [], 1.0
        for k, call in enumerate(program.calls):
            where = f"call {k} of {'traced' if traced else 'eager'} program"
            try:
                wanted = expected.call(call)
            except (ValueError, TypeError, IndexError, OverflowError) as error:
                with pytest.raises((tj.TracejitError, type(error))):
                    given.call(call)
                return None
            got = given.call(call)
            scale = max(scale, largest(wanted))
            same(got, wanted, where, scale, program.exact)
            results.append((got[0], wanted[0]))
        for k, (got, wanted) in enumerate(results):
            same(got, wanted, f"result of call {k} after all calls", scale, program.exact)
    return given.function


def largest(tree: Any) -> float:
    """The largest finite magnitude in a tree."""
    if isinstance(tree, np.ndarray | np.generic):
        if tree.dtype.kind != "f" or not tree.size:
            return 0.0
        return float(np.abs(np.where(np.isfinite(tree), tree, 0)).max())
    parts = tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list | tuple) else ()
    return max(map(largest, parts), default=0.0)


def same(got: Any, wanted: Any, path: str, scale: float, exact: bool) -> None:
    """Fail unless two trees are the same."""
    if isinstance(got, tj.NDArray):
        array, expected = got.numpy(), np.asarray(wanted)
        assert (array.shape, array.dtype) == (expected.shape, expected.dtype), (
            f"{path}: {array.dtype}{array.shape}, NumPy has {expected.dtype}{expected.shape}"
        )
        close(array, expected, path, scale, exact)
    elif isinstance(got, dict):
        assert list(got) == list(wanted), f"{path}: keys {list(got)}, NumPy has {list(wanted)}"
        for key in got:
            same(got[key], wanted[key], f"{path}[{key!r}]", scale, exact)
    elif isinstance(got, list | tuple):
        assert (type(got), len(got)) == (type(wanted), len(wanted)), f"{path}: {got!r}, NumPy has {wanted!r}"
        for k, (a, b) in enumerate(zip(got, wanted, strict=True)):
            same(a, b, f"{path}[{k}]", scale, exact)
    else:
        assert type(got) is type(wanted), f"{path}: {got!r}, NumPy has {wanted!r}"
        assert got == wanted, f"{path}: {got!r}, NumPy has {wanted!r}"


def close(array: np.ndarray, expected: np.ndarray, path: str, scale: float, exact: bool) -> None:
    """Fail unless two arrays are equal, or as close as rounding explains."""
    if exact or array.dtype.kind != "f":
        equal = np.array_equal(array, expected, equal_nan=array.dtype.kind == "f")
        assert equal, f"{path}:\n{array!r}\nNumPy has\n{expected!r}"
        return
    bound = TOLERANCE * np.finfo(np.float32).eps * scale
    near = np.allclose(array, expected, rtol=0, atol=bound, equal_nan=True)
    assert near, f"{path} differs by more than {bound}:\n{array!r}\nNumPy has\n{expected!r}"


# -- variants ------------------------------------------------------------------------------------------------


class Simulated:
    """A schedule that runs its memory plan on real bytes, in a random order, without kernels."""

    kernels = missed = ()
    planned_bytes = naive_bytes = 0

    def __init__(self, graph: Graph, aliases: Any = ()):
        self.graph = graph
        legal = legalize(optimize(graph), aliases)
        self.plan = plan(legal, aliases)
        self._types = [v.type for v in (*graph.inputs, *graph.outputs)]
        self.pack = Packer(self._types)
        self.tasks = (types.SimpleNamespace(uses=range(len(self._types))),)
        self._rng = np.random.default_rng(0)

    def run(self, inputs: list[np.ndarray]) -> tuple[list[Any], list[Any]]:
        """Outputs, and what the inputs hold afterwards."""
        return run_plan(self.plan, inputs, self._rng)

    def launch(self, packed: bytes, keep: Any, *_started: Any) -> None:
        for storage in keep:
            tj.engine.wait(storage.variable, exclusive=True)
        values = [check._argument(packed, i, t, keep) for i, t in enumerate(self._types)]
        count = len(self.graph.inputs)
        outputs, storages = self.run([np.array(v) for v in values[:count]])
        for target, result in zip(values[count:], outputs, strict=True):
            target[...] = result
        for target, type_, result in zip(values, self._types, storages, strict=False):
            if not type_.on_host:
                target[...] = result

    commit = launch  # what can fail has raised


class Evaluated(Simulated):
    """The same without a plan: every value has memory of its own, and the operators run as recorded."""

    def run(self, inputs: list[np.ndarray]) -> tuple[list[Any], list[Any]]:
        outputs, effects = evaluate(self.graph, inputs)
        after = dict(zip((e.target for e in self.graph.effects), effects, strict=True))
        return outputs, [after.get(v, x) for v, x in zip(self.graph.inputs, inputs, strict=True)]


@contextlib.contextmanager
def simulated(schedule: type[Simulated] = Simulated) -> Iterator[None]:
    """Everything is compiled up to its memory plan only, which is simulated.

    Of eager operations, those on the smallest arrays are computed at once, between recorded ones.
    """
    some = mock.patch.object(eager, "SMALL", 6)
    by_numpy = mock.patch.object(direct, "_compiled", return_value=None)
    with some, by_numpy, mock.patch.object(compile, "compile_graph", schedule), fresh_schedules():
        yield


@contextlib.contextmanager
def settings(**changes: Any) -> Iterator[None]:
    """The configuration with some changes."""
    before = {name: getattr(config, name) for name in changes}
    for name, value in changes.items():
        setattr(config, name, value)
    try:
        with fresh_schedules():
            yield
    finally:
        try:
            tj.wait_all()
        finally:  # no other test runs with them, whatever fails
            for name, value in before.items():
                setattr(config, name, value)


@contextlib.contextmanager
def enlarged(by: int) -> Iterator[None]:
    """Larger arrays, which several workers share."""
    with mock.patch(f"{__name__}.factor", by), fresh_schedules():
        yield


@contextlib.contextmanager
def short_bands(by: int) -> Iterator[None]:
    """Larger arrays, and sweeps over many bands of them."""
    numbers = {
        "MIN_ROWS_PER_EDGE": 1,
        "ROWS_PER_EDGE": 1,
        "MIN_BANDS": 0,
        "RUN_LENGTH": 2,
        "elements_per_unit": lambda program: 1,
    }
    with mock.patch.multiple(sweep, **numbers), enlarged(by):
        yield


@contextlib.contextmanager
def fresh_schedules() -> Iterator[None]:
    """Eager schedules made under other settings are not used."""
    kept = dict(eager._schedules)
    eager._schedules.clear()
    try:
        yield
    finally:
        try:
            eager.flush()
        finally:  # whatever fails, no other test uses them
            eager._schedules.clear()
            eager._schedules.update(kept)
