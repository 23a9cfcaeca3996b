"""Random graphs for property tests, and the comparison of two graphs by their meaning.

`random_graph(rng, ...)` makes a valid graph of array inputs, run-time numbers and a mixture of operators:
elementwise arithmetic, casts, comparisons, views (slices, transposes, flips, broadcasts, reshapes),
updates, reductions, products, gathers with checked indices, fills and index ranges, with outputs and
effects. Values stay small integers or dyadic fractions of small size, so that most sums are exact, and
every operator's NumPy meaning is deterministic.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from tracejit import ops
from tracejit.ir.evaluate import evaluate
from tracejit.ir.graph import Builder, Effect, Graph, Value, constant_of
from tracejit.ir.types import CPU, HOST, ArrayType
from tracejit.ir.view import View
from tracejit.passes.dce import dce
from tracejit.passes.fusion import fuse as fusion
from tracejit.passes.fusion.prepare import prepare

F4, F8, I4, I8, B1 = (np.dtype(n) for n in ("float32", "float64", "int32", "int64", "bool"))
NUMBERS = (F4, F8, I4, I8)


def _beginning(x):
    """The view of the first elements of a larger array that has the shape of `x`."""
    return View.of_shape(x.type.shape)


@dataclass
class Maker:
    """A graph that grows by one random node at a time."""

    rng: np.random.Generator
    builder: Builder = field(default_factory=Builder)
    arrays: list[Value] = field(default_factory=list)
    numbers: list[Value] = field(default_factory=list)

    def choose(self, items):
        return items[int(self.rng.integers(len(items)))]

    def recent(self, wanted=lambda v: True) -> Value | None:
        """An array that fits, more likely a young one."""
        fitting = [v for v in self.arrays if wanted(v)]
        if not fitting:
            return None
        return fitting[-1 - min(int(self.rng.exponential(3)), len(fitting) - 1)]

    def emit(self, op, *inputs, **attrs) -> Value:
        line = f"model.py:{len(self.builder.nodes) + 1}"
        return self.builder.emit(op, *inputs, location=line, **attrs)

    def keep(self, value: Value) -> Value:
        self.arrays.append(value)
        return value

    def number(self, dtype: np.dtype) -> Value:
        """A constant or a run-time number."""
        fitting = [v for v in self.numbers if v.type.dtype == dtype]
        if fitting and self.rng.random() < 0.5:
            return self.choose(fitting)
        value = (
            self.choose([0, 1, 2, -1, 3])
            if dtype.kind == "i"
            else self.choose([0.0, -0.0, 1.0, 2.0, 0.5, -3.0])
        )
        return self.emit(ops.constant, **constant_of(value, dtype))

    def shape(self) -> tuple[int, ...]:
        return tuple(int(n) for n in self.rng.choice([1, 2, 3, 4, 6], size=self.rng.integers(0, 4)))

    # -- one kind of node each -----------------------------------------------------------------------------

    def elementwise(self) -> None:
        x = self.recent(lambda v: v.type.dtype in NUMBERS)
        if x is None:
            return
        kind = x.type.dtype.kind
        unary = [ops.negative, ops.abs, ops.sign] + ([ops.floor] if kind == "f" else [ops.bitwise_invert])
        if self.rng.random() < 0.3:
            self.keep(self.emit(self.choose(unary), x))
            return
        binary = [ops.add, ops.subtract, ops.multiply, ops.maximum, ops.minimum]
        binary += [ops.divide] if kind == "f" else [ops.bitwise_and, ops.bitwise_or, ops.bitwise_xor]
        y = self.partner(x)
        pair = (x, y) if self.rng.random() < 0.7 else (y, x)
        self.keep(self.emit(self.choose(binary), *pair))

    def partner(self, x: Value) -> Value:
        same = self.recent(lambda v: v.type == x.type)
        return self.number(x.type.dtype) if self.rng.random() < 0.4 or same is None else same

    def power(self) -> None:
        """Exponents that NumPy treats alike in every memory layout."""
        x = self.recent(lambda v: v.type.dtype in (F4, F8))
        if x is not None:
            exponent = constant_of(self.choose([0.5, 1.0, 2.0, -1.0]), x.type.dtype)
            self.keep(self.emit(ops.pow, x, self.emit(ops.constant, **exponent)))

    def cast(self) -> None:
        x = self.recent(lambda v: v.type.dtype in (I4, I8, F4, B1))
        if x is not None:
            wider = {I4: (I8, F8, I4), I8: (I4, F8), F4: (F8, F4), B1: NUMBERS}[x.type.dtype]
            self.keep(self.emit(ops.astype, x, dtype=self.choose(wider)))

    def choice(self) -> None:
        x = self.recent(lambda v: v.type.dtype in NUMBERS)
        if x is None:
            return
        condition = self.keep(self.emit(self.choose([ops.less, ops.equal]), x, self.partner(x)))
        first, second = self.partner(x), self.partner(x)
        self.keep(self.emit(ops.where, condition, first, second))

    def view(self) -> None:
        x = self.recent()
        if x is not None:
            self.keep(self.emit(ops.view, x, view=self.some_view(x, broadcast=True)))

    def some_view(self, x: Value, broadcast: bool) -> View:
        view = View.of_shape(x.type.shape)
        for _ in range(int(self.rng.integers(1, 4))):
            ndim = len(view.shape)
            kind = self.choose(["slice", "permute", "flip", "expand", "reshape", "select", "broadcast"])
            axis = int(self.rng.integers(ndim)) if ndim else 0
            if kind == "slice" and ndim:
                start = int(self.rng.integers(0, view.shape[axis] + 1))
                view = view.slice_axis(
                    axis, start if self.rng.random() < 0.7 else 0, None, self.choose([1, 1, 2])
                )
            elif kind == "permute":
                view = view.permute(tuple(self.rng.permutation(ndim).tolist()))
            elif kind == "flip" and ndim:
                view = view.slice_axis(axis, None, None, -1)
            elif kind == "select" and ndim and view.shape[axis]:
                view = view.select(axis, int(self.rng.integers(view.shape[axis])))
            elif kind == "expand" and ndim < 4:
                view = view.expand(axis)
            elif kind == "reshape":
                view = view.reshape((view.size,)) or view
            elif kind == "broadcast" and broadcast and ndim < 4:
                view = view.broadcast((2, *view.shape))
        return view

    def update(self) -> None:
        base = self.recent()
        if base is None:
            return
        view = self.some_view(base, broadcast=False)
        x = self.recent(lambda v: v.type.dtype == base.type.dtype and v.type.shape == view.shape)
        if x is None:
            if base.type.dtype == B1:
                return
            x = self.emit(ops.full, self.number(base.type.dtype), shape=view.shape, device=CPU)
        self.keep(self.emit(ops.update, base, x, view=view))

    def reduce(self) -> None:
        x = self.recent(lambda v: v.type.dtype in NUMBERS and v.type.ndim > 0 and v.type.size > 0)
        if x is None:
            return
        count = int(self.rng.integers(1, x.type.ndim + 1))
        axes = tuple(sorted(self.rng.choice(x.type.ndim, size=count, replace=False).tolist()))
        y = self.keep(self.emit(self.choose([ops.sum, ops.max, ops.min]), x, axes=axes, pieces=0))
        view = View.of_shape(y.type.shape)
        for axis in axes:
            view = view.expand(axis)
        self.keep(self.emit(ops.view, y, view=view.broadcast(x.type.shape)))

    def scan(self) -> None:
        """Sums of integers: exact in any order."""
        x = self.recent(lambda v: v.type.dtype in (I4, I8) and v.type.ndim > 0)
        if x is not None:
            axis = int(self.rng.integers(x.type.ndim))
            self.keep(self.emit(ops.cumulative_sum, x, axis=axis))

    def product(self) -> None:
        x = self.recent(lambda v: v.type.dtype in NUMBERS and v.type.ndim == 2 and v.type.size > 0)
        if x is None:
            return
        transposed = self.emit(ops.view, x, view=View.of_shape(x.type.shape).permute((1, 0)))
        y = self.recent(
            lambda v: v.type.dtype == x.type.dtype and v.type.ndim == 2 and v.type.shape[0] == x.type.shape[1]
        )
        self.keep(self.emit(ops.matmul, x, transposed if y is None or self.rng.random() < 0.5 else y))

    def index(self) -> None:
        x = self.recent(lambda v: v.type.ndim > 0 and v.type.size > 0)
        if x is None:
            return
        axis = int(self.rng.integers(x.type.ndim))
        extent = x.type.shape[axis]
        grid = self.emit(ops.iota, size=2 * extent, device=CPU)
        shifted = self.emit(ops.subtract, grid, self.emit(ops.constant, value=extent, dtype=I8))
        index = self.emit(ops.check_index, shifted, extent=extent, axis=axis)
        y = self.keep(self.emit(ops.gather, x, index, axis=axis))
        if x.type.dtype in NUMBERS and self.rng.random() < 0.5:
            self.keep(self.emit(ops.scatter_add, y, index, axis=axis, extent=extent))
        if self.rng.random() < 0.5:
            base = x if self.rng.random() < 0.5 else self.emit(ops.view, y, view=_beginning(x))
            self.keep(self.emit(ops.scatter, base, y, index, axis=axis))

    def create(self) -> None:
        dtype = self.choose(NUMBERS)
        if self.rng.random() < 0.5:
            self.keep(self.emit(ops.full, self.number(dtype), shape=self.shape(), device=CPU))
        else:
            self.keep(self.emit(ops.iota, size=int(self.rng.integers(1, 7)), device=CPU))

    def duplicate(self) -> None:
        x = self.recent()
        if x is not None:
            self.keep(self.emit(self.choose([ops.copy, ops.stop_gradient]), x))


KINDS = (
    ["elementwise"] * 8 + ["view"] * 4 + ["update"] * 4 + ["reduce"] * 2 + ["scan"] * 2
    + ["power", "cast", "choice", "product", "index", "create", "duplicate"]
)  # fmt: skip


def random_graph(seed: int, *, nodes: int = 25, inputs: int = 4, kinds: list[str] = KINDS) -> Graph:
    """A valid random graph: the same one for the same seed."""
    maker = Maker(np.random.default_rng(seed))
    rng = maker.rng
    for _ in range(inputs):
        shape = (
            maker.shape() if not maker.arrays or rng.random() < 0.5 else maker.choose(maker.arrays).type.shape
        )
        maker.keep(maker.builder.input(ArrayType(shape, maker.choose(NUMBERS))))
    for dtype in (F4, I8):
        maker.numbers.append(maker.builder.input(ArrayType((), dtype, HOST)))
    while len(maker.builder.nodes) < nodes:
        getattr(maker, maker.choose(kinds))()
    arrays = list(maker.arrays)
    outputs = [maker.choose(arrays) for _ in range(int(rng.integers(1, 4)))]
    effects = []
    for target in arrays[:inputs]:
        fitting = [v for v in arrays if v.type == target.type and v is not target]
        if fitting and rng.random() < 0.7:
            effects.append(Effect(target, fitting[-1 - min(int(rng.exponential(2)), len(fitting) - 1)]))
    return maker.builder.graph(outputs, effects)


def random_inputs(graph: Graph, seed: int) -> list[np.ndarray]:
    """Small numbers for the inputs of `graph`; floats are halves, some of them zeros with a sign."""
    rng = np.random.default_rng(seed)
    arrays = []
    for value in graph.inputs:
        numbers = rng.integers(-4, 5, value.type.shape)
        array = numbers.astype(value.type.dtype)
        if value.type.dtype.kind == "f":
            array = np.where(numbers == 0, -0.0, numbers / 2).astype(value.type.dtype)
        arrays.append(array)
    return arrays


def assert_same(result: list[np.ndarray], expected: list[np.ndarray]) -> None:
    """Equal types and bits, except for the sign and payload of nan."""
    assert len(result) == len(expected)
    for got, wanted in zip(result, expected, strict=True):
        assert got.dtype == wanted.dtype
        assert got.shape == wanted.shape
        np.testing.assert_array_equal(got, wanted)
        if got.dtype.kind == "f":
            numbers = ~np.isnan(wanted)
            np.testing.assert_array_equal(np.signbit(got)[numbers], np.signbit(wanted)[numbers])


def outcome(graph: Graph, arrays: list[np.ndarray]) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Outputs, and what the inputs' storages hold after the call, by the evaluator."""
    outputs, effects = evaluate(graph, arrays)
    after = dict(zip(graph.inputs, arrays, strict=True))
    after.update({e.target: array for e, array in zip(graph.effects, effects, strict=True)})
    return outputs, list(after.values())


def assert_same_meaning(graph: Graph, original: Graph, seed: int = 0) -> None:
    """Both graphs give the same outputs and effects on the same inputs."""
    arrays = random_inputs(original, seed)
    assert graph.inputs == original.inputs
    for got, expected in zip(outcome(graph, arrays), outcome(original, arrays), strict=True):
        assert_same(got, expected)


def fuse(graph, missed=None):
    """Return a clean graph as kernels, by the passes that the driver runs last."""
    return fusion.fuse(dce(prepare(graph)), missed)
