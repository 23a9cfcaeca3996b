"""Random `loop` nodes whose bodies compute single elements, and their kernels, called directly.

    graph = random_loop(rng)          # inputs: the trip count, then the operands; outputs: those of the loop
    (outputs,) = run([(graph, inputs)])

The bodies contain registers of all dtypes, induction variables, moving windows, elements that are read and
written at computed positions and through strided views, and loops and cases in each other.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from tracejit import ops
from tracejit.codegen.cpu import serial as emission
from tracejit.codegen.objects.loader import Recipe, load
from tracejit.ir.evaluate import evaluate
from tracejit.ir.graph import Builder, Effect, Graph, Node, Value, constant_of
from tracejit.ir.types import CPU, HOST, ArrayType
from tracejit.ir.verify import verify
from tracejit.ir.view import View
from tracejit.kernels.executor import layout
from tracejit.loopnest.serial import lower_serial
from tracejit.loopnest.statements import OperandSlot
from tracejit.ops.loops import COUNT, targets

BOOL, I8, F8 = np.dtype("bool"), np.dtype("int64"), np.dtype("float64")
INTEGERS = [np.dtype(n) for n in ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")]
FLOATS = [np.dtype("float32"), F8]
DTYPES = [BOOL, *INTEGERS, *FLOATS, I8, F8, I8]

ARITHMETIC = (ops.add, ops.subtract, ops.multiply, ops.maximum, ops.minimum)
OF_INTEGERS = (*ARITHMETIC, ops.floor_divide, ops.remainder, ops.bitwise_and, ops.bitwise_or, ops.bitwise_xor)
OF_BOOLS = (ops.logical_and, ops.logical_or, ops.bitwise_xor)
COMPARISONS = (ops.less, ops.less_equal, ops.greater, ops.greater_equal, ops.equal, ops.not_equal)


def loop_graph(
    body: Graph, moves: Sequence[tuple[Any, Any]], rounds: int, operands: Sequence[ArrayType], **attrs: Any
) -> Graph:
    """Return a graph that consists of a loop over its inputs."""
    b = Builder()
    inputs = [b.input(COUNT), *(b.input(type) for type in operands)]
    outputs = b.emit(ops.loop, *inputs, body=body, moves=tuple(moves), rounds=rounds, **attrs)
    return b.graph(outputs)


class Scope:
    """A graph under construction: the scalars, numbers of the host and arrays that it knows. Those of the
    numbers that are at most `MOST` are `counts`.

    An array is a list of its older values and of the one that it has now. `staleness`: how often older ones
    are read, which serial kernels refuse.
    """

    def __init__(self, rng: np.random.Generator, staleness: float) -> None:
        self.rng, self.builder = rng, Builder()
        self.staleness = staleness
        self.scalars: list[Value] = []
        self.hosts: list[Value] = []
        self.counts: list[Value] = []
        self.arrays: list[list[Value]] = []
        self.shorts: list[Value] = []

    # -- choices

    def one(self, items: Sequence[Any]) -> Any:
        return items[int(self.rng.integers(len(items)))]

    def chance(self, probability: float) -> bool:
        return bool(self.rng.random() < probability)

    def emit(self, op: Any, *inputs: Value, **attrs: Any) -> Any:
        return self.builder.emit(op, *inputs, **attrs)

    def scalar(self, dtype: np.dtype) -> Value:
        """Return a scalar of a dtype, of shape ()."""
        fitting = [v for v in self.scalars if v.type.dtype == dtype]
        if fitting and self.chance(0.85):
            value = fitting[-1 - min(int(self.rng.exponential(2)), len(fitting) - 1)]
            if value.type.shape != ():
                value = self.emit(ops.view, value, view=View.of_shape(()))
            return value
        others = [
            v
            for v in self.scalars
            if v.type.dtype != dtype and (v.type.dtype.kind != "f" or dtype.kind in "fb")
        ]
        if others and self.chance(0.6):
            value = self.one(others)
            if value.type.shape != ():
                value = self.emit(ops.view, value, view=View.of_shape(()))
            return self.keep(self.emit(ops.astype, value, dtype=dtype))
        hosts = [v for v in self.hosts if v.type.dtype == dtype]
        if hosts and self.chance(0.6):
            return self.keep(self.emit(ops.full, self.one(hosts), shape=(), device=CPU))
        return self.number(self.literal(dtype), dtype)

    def literal(self, dtype: np.dtype) -> Any:
        if dtype == BOOL:
            return self.chance(0.5)
        if dtype.kind == "f":
            return self.one([0.0, -0.0, 1.0, 0.5, -2.0, 3.25])
        info = np.iinfo(dtype)
        number = self.one([0, 1, 2, 3, 5, -1, -4, info.max, info.min, info.max // 3])
        return max(number, info.min)

    def number(self, number: Any, dtype: np.dtype) -> Value:
        number = self.emit(ops.constant, **constant_of(number, dtype))
        return self.emit(ops.full, number, shape=(), device=CPU)

    def keep(self, value: Value) -> Value:
        self.scalars.append(value)
        return value

    def index(self, extent: int) -> Value:
        """Return an index that is in range."""
        index = self.emit(ops.remainder, self.scalar(I8), self.number(extent, I8))
        return self.emit(ops.view, index, view=View.of_shape((1,))) if self.chance(0.2) else index

    # -- statements

    def compute(self) -> None:
        dtype = self.one(DTYPES)
        x, y = self.scalar(dtype), self.scalar(dtype)
        kind = self.rng.random()
        if kind < 0.3:
            self.keep(self.emit(self.one(COMPARISONS), x, y))
        elif kind < 0.4:
            self.keep(self.emit(ops.where, self.scalar(BOOL), x, y))
        elif dtype == BOOL:
            self.keep(self.emit(self.one(OF_BOOLS), x, y))
        else:
            self.arithmetic(x, y)

    def arithmetic(self, x: Value, y: Value) -> None:
        """Apply an operator of numbers. NumPy's `maximum` of 0.0 and -0.0 is either of them; adding 0.0
        makes it 0.0.
        """
        dtype = x.type.dtype
        op = self.one(ARITHMETIC if dtype.kind == "f" else OF_INTEGERS)
        result = self.emit(op, x, y)
        if dtype.kind == "f" and op in (ops.maximum, ops.minimum):
            result = self.emit(ops.add, result, self.number(0.0, dtype))
        self.keep(result)

    def array(self) -> list[Value] | None:
        return self.one(self.arrays) if self.arrays else None

    def current(self, versions: list[Value]) -> Value:
        return versions[-1] if not self.chance(self.staleness) else self.one(versions)

    def elements(self, array: Value) -> Value:
        """Return elements of an array, as an array of one or two dimensions."""
        size = array.type.size
        kind = self.rng.random()
        if kind < 0.5 or size < 4:
            return self.emit(ops.view, array, view=View.of_shape((size,)))
        if kind < 0.7:
            step = self.one([2, 3, -1, -2])
            extent = (size + abs(step) - 1) // abs(step)
            start = 0 if step > 0 else (extent - 1) * -step
            return self.emit(ops.view, array, view=View(start, (extent,), (step,)))
        if kind < 0.85:
            start = int(self.rng.integers(size - 1))
            return self.emit(ops.view, array, view=View(start, (size - start,), (1,)))
        return self.emit(
            ops.view, array, view=View(0, (2, size // 2), self.one([(size // 2, 1), (1, 2), (1, 1), (0, 1)]))
        )

    def read(self) -> None:
        versions = self.array()
        if versions is None:
            return
        x = self.current(versions)
        if self.chance(0.2):
            view = View(int(self.rng.integers(x.type.size)), (), ())
            self.keep(self.emit(ops.view, x, view=view))
            return
        x = self.elements(x)
        while x.type.shape:
            axis = int(self.rng.integers(x.type.ndim))
            x = self.emit(ops.gather, x, self.index(x.type.shape[axis]), axis=axis)
        self.keep(x)

    def write(self) -> None:
        versions = self.array()
        if versions is None:
            return
        base = self.current(versions)
        value = self.scalar(base.type.dtype)
        if self.chance(0.3):
            view = View(int(self.rng.integers(base.type.size)), (), ())
            versions.append(self.emit(ops.update, base, value, view=view))
            return
        flat = (
            base if base.type.ndim == 1 else self.emit(ops.view, base, view=View.of_shape((base.type.size,)))
        )
        index = self.index(flat.type.size)
        value = self.emit(ops.view, value, view=View.of_shape(index.type.shape))
        flat = self.emit(ops.scatter, flat, value, index, axis=0)
        versions.append(self.emit(ops.view, flat, view=View.of_shape(base.type.shape)))

    def exchange(self) -> None:
        """Exchange two elements, like a sort."""
        versions = self.array()
        if versions is None:
            return
        x = versions[-1]
        x = self.emit(ops.view, x, view=View.of_shape((x.type.size,)))
        i, j = self.index(x.type.size), self.index(x.type.size)
        a, b = self.emit(ops.gather, x, i, axis=0), self.emit(ops.gather, x, j, axis=0)
        x = self.emit(ops.scatter, x, self.emit(ops.view, b, view=View.of_shape(i.type.shape)), i, axis=0)
        x = self.emit(ops.scatter, x, self.emit(ops.view, a, view=View.of_shape(j.type.shape)), j, axis=0)
        versions.append(self.emit(ops.view, x, view=View.of_shape(versions[-1].type.shape)))

    # -- short arrays

    def short(self) -> None:
        """Compute an array of few elements, or use one."""
        kind = self.rng.random()
        if kind < 0.4 or not self.shorts:
            self.new_short()
            return
        x = self.one(self.shorts)
        dtype, size = x.type.dtype, x.type.size
        alike = [y for y in self.shorts if y.type == x.type]
        if kind < 0.6:
            compare = self.chance(0.3) or dtype == BOOL
            ops_of = COMPARISONS if compare else (ops.add, ops.subtract, ops.multiply)
            self.shorts.append(self.emit(self.one(ops_of), x, self.one(alike)))
            masks = [y for y in self.shorts if y.type.dtype == BOOL and y.type.shape == x.type.shape]
            if masks:
                self.shorts.append(self.emit(ops.where, self.one(masks), x, self.one(alike)))
        elif kind < 0.68 and dtype != BOOL and x.type.ndim == 1:
            scans = [ops.cumulative_sum, ops.cumulative_prod]
            scans += [ops.cumulative_max, ops.cumulative_min] * (dtype.kind in "iu")
            self.shorts.append(self.emit(self.one(scans), x, axis=0))
        elif kind < 0.72:
            self.reduce(x)
        elif kind < 0.78:
            view = View(int(self.rng.integers(size)), (), ())
            self.shorts.append(self.emit(ops.update, x, self.scalar(dtype), view=view))
        elif kind < 0.88:
            versions = next((each for each in self.arrays if each[-1].type.dtype == dtype), None)
            if versions is not None and versions[-1].type.size >= size and x.type.ndim == 1:
                base = self.current(versions)
                start = int(self.rng.integers(base.type.size - size + 1))
                versions.append(self.emit(ops.update, base, x, view=View(start, (size,), (1,))))
        else:
            self.keep(self.emit(ops.view, x, view=View(int(self.rng.integers(size)), (), ())))

    def reduce(self, x: Value) -> None:
        """Reduce a short array in a way that does not depend on the order of its elements."""
        dtype = x.type.dtype
        reductions = [ops.any, ops.all] if dtype == BOOL else [ops.max, ops.min]
        reductions += [ops.sum, ops.prod] * (dtype.kind in "iu")
        axes = self.one([tuple(range(x.type.ndim)), (int(self.rng.integers(x.type.ndim)),)])
        result = self.emit(self.one(reductions), x, axes=axes)
        (self.shorts.append if result.type.ndim else self.keep)(result)

    def new_short(self) -> None:
        """Compute an array of few elements from scalars, or elements of an array."""
        kind, size = self.rng.random(), self.one([2, 3, 5])
        versions = self.array()
        if kind < 0.15:
            self.shorts.append(self.emit(ops.iota, size=size, device=CPU))
        elif kind < 0.4 or versions is None:
            shape = self.one([(size,), (2, 2)])
            view = View(0, shape, (0,) * len(shape))
            self.shorts.append(self.emit(ops.view, self.scalar(self.one(DTYPES)), view=view))
        elif kind < 0.7:
            x = self.current(versions)
            size = min(size, x.type.size)
            if size >= 2:
                start, step = int(self.rng.integers(x.type.size - size + 1)), 1
                if self.chance(0.4):
                    start, step = start + size - 1, -1
                self.shorts.append(self.emit(ops.view, x, view=View(start, (size,), (step,))))
        else:
            x = self.elements(self.current(versions))
            indices = [y for y in self.shorts if y.type.dtype == I8 and y.type.ndim == 1]
            if x.type.ndim == 1 and indices:
                index = self.one(indices)
                extent = self.emit(
                    ops.view, self.number(x.type.shape[0], I8), view=View(0, index.type.shape, (0,))
                )
                self.shorts.append(self.emit(ops.gather, x, self.emit(ops.remainder, index, extent), axis=0))

    def statements(self, count: int, depth: int) -> None:
        for _ in range(count):
            if self.chance(0.2):
                self.short()
                continue
            kind = self.rng.random()
            if kind < 0.45 or (kind >= 0.7 and depth == 0):
                self.compute()
            elif kind < 0.58:
                self.read()
            elif kind < 0.67:
                self.write()
            elif kind < 0.7:
                self.exchange()
            elif kind < 0.86:
                self.case(depth - 1)
            else:
                self.loop(depth - 1)

    # -- nested graphs

    def case(self, depth: int) -> None:
        n_branches = self.one([2, 2, 2, 3, 4])
        is_bool = n_branches == 2 and self.chance(0.8)
        which = self.scalar(BOOL) if is_bool else self.index(n_branches)
        scalars = [v for v in dict.fromkeys(self.scalars) if self.chance(0.5)][-8:]
        hosts = [v for v in self.hosts if self.chance(0.7)]
        arrays = [versions for versions in self.arrays if self.chance(0.7)]
        current = [self.current(versions) for versions in arrays]
        returned = [k for k in range(len(arrays)) if self.chance(0.8)]
        returned += [k for k in range(len(arrays)) if k not in returned and self.chance(0.7)]
        dtypes = [self.one(DTYPES) for _ in range(self.one([0, 1, 2, 3]))]
        shorts = [v for v in dict.fromkeys(self.shorts) if self.chance(0.4)][-3:]
        kept = [k for k in range(len(shorts)) if self.chance(0.7)]
        branches = []
        for _ in range(n_branches):
            inner = Scope(self.rng, self.staleness)
            inner.scalars = [inner.builder.input(v.type) for v in scalars]
            inner.hosts = [inner.builder.input(v.type) for v in hosts]
            inner.counts = [x for v, x in zip(hosts, inner.hosts, strict=True) if v in self.counts]
            inner.arrays = [[inner.builder.input(v.type)] for v in current]
            whole, inner.arrays = inner.arrays, [inner.arrays[k] for k in returned]
            inner.shorts = [inner.builder.input(v.type) for v in shorts]
            if inner.arrays or self.chance(0.5):
                inner.statements(self.one([0, 1, 2, 4]), depth)
            outputs = [inner.scalar(dtype) for dtype in dtypes]
            for k in kept:
                outputs.append(self.one([v for v in inner.shorts if v.type == shorts[k].type]))
            branches.append(inner.builder.graph([*outputs, *(whole[k][-1] for k in returned)]))
        if not dtypes and not returned and not kept:
            return
        results = self.emit(ops.case, which, *scalars, *hosts, *current, *shorts, branches=tuple(branches))
        for value in results[: len(dtypes)]:
            self.keep(value)
        self.shorts += results[len(dtypes) : len(dtypes) + len(kept)]
        for k, value in zip(returned, results[len(dtypes) + len(kept) :], strict=True):
            arrays[k].append(value)

    def loop(self, depth: int) -> None:
        if not self.counts:
            return
        operands: list[Value] = [self.scalar(self.one(DTYPES)) for _ in range(self.one([0, 1, 2, 3]))]
        arrays = [versions for versions in self.arrays if self.chance(0.6)]
        parts = LoopParts(self.rng, MOST, self.staleness)
        for value in operands:
            parts.register(value.type)
        for value in self.hosts:
            parts.number(value.type, [0, -1] if value in self.counts else None)
        operands += self.hosts
        for versions in arrays:
            operands.append(self.current(versions))
            parts.array(operands[-1].type)
        if self.arrays and self.chance(0.3):  # a view of an array that the loop only reads
            others = [versions for versions in self.arrays if versions not in arrays]
            others = others or (self.arrays if self.staleness else [])
        else:
            others = []
        if others:
            operands.append(self.elements(self.current(self.one(others))))
            parts.array(operands[-1].type, is_read_only=True)
        graph, moves, written, attrs = parts.finish(self.one([1, 2, 4, 6]), depth)
        results = self.emit(
            ops.loop, self.one(self.counts), *operands, body=graph, moves=tuple(moves), rounds=MOST, **attrs
        )
        for i, value in zip(written, results, strict=True):
            for versions in arrays:
                if versions[-1] is operands[i]:
                    versions.append(value)
            if operands[i].type.size == 1 and value.type.shape == ():
                self.keep(value)


MOST = 5
"""The greatest number of iterations."""


class LoopParts:
    """The body of a loop under construction."""

    def __init__(self, rng: np.random.Generator, rounds: int, staleness: float) -> None:
        self.scope, self.rounds = Scope(rng, staleness), rounds
        self.types: list[ArrayType] = []
        self.moves: list[tuple[int, int]] = []
        self.registers: list[tuple[Value, int]] = []
        self.targets: list[tuple[Value, list[Value]]] = []

    def _input(self, operand: ArrayType, type: ArrayType, move: tuple[int, int]) -> Value:
        self.types.append(operand)
        self.moves.append(move)
        return self.scope.builder.input(type)

    def register(self, type: ArrayType) -> None:
        value = self.scope.keep(self._input(type, type, (0, 0)))
        if self.scope.chance(0.8):
            self.registers.append((value, len(self.types) - 1))

    def number(self, type: ArrayType, steps: Sequence[int] | None = None) -> None:
        """Add a number of the host. `steps`: the steps that a count may have."""
        scope = self.scope
        step = scope.one(steps or [0, 0, 1, -1, 2, 3, -7]) if type.dtype != BOOL else 0
        scope.hosts.append(self._input(type, type, (0, step)))
        if steps:
            scope.counts.append(scope.hosts[-1])

    def array(self, type: ArrayType, *, is_read_only: bool = False) -> None:
        """Add an array: all of it, or a window that moves."""
        scope, size = self.scope, type.size
        kind = scope.rng.random()
        if kind < 0.6 or size < self.rounds:
            value = self._input(type, type, (0, 0))
        elif kind < 0.8 or size < self.rounds + 3:  # an element in each iteration
            step = scope.one([1, -1, 0])
            start = int(scope.rng.integers(size - (self.rounds - 1) * abs(step)))
            start += (self.rounds - 1) * (step < 0)
            value = self._input(type, ArrayType((), type.dtype), (start, step))
            if step and not is_read_only and scope.chance(0.5):
                self.targets.append((value, []))
            scope.keep(value)
            return
        else:
            extent, step = scope.one([2, 3]), scope.one([1, -1])
            start = 0 if step > 0 else self.rounds - 1
            value = self._input(type, ArrayType((extent,), type.dtype), (start, step))
        scope.arrays.append([value])
        if not is_read_only and scope.chance(0.75):
            self.targets.append((value, scope.arrays[-1]))
        else:
            scope.arrays.pop()
            view = View(int(scope.rng.integers(value.type.size)), (), ())
            scope.keep(scope.emit(ops.view, value, view=view))
            i = scope.index(value.type.size)
            flat = scope.emit(ops.view, value, view=View.of_shape((value.type.size,)))
            scope.keep(scope.emit(ops.gather, flat, i, axis=0))

    def finish(
        self, count: int, depth: int
    ) -> tuple[Graph, list[tuple[int, int]], list[int], dict[str, Any]]:
        """Return the body, its moves, the positions of the operands that it writes, and other attributes."""
        scope = self.scope
        scope.statements(count, depth)
        effects: list[tuple[Value, Value]] = []
        for value, _ in self.registers:
            result = scope.scalar(value.type.dtype)
            if value.type.shape:
                result = scope.emit(ops.view, result, view=View.of_shape(value.type.shape))
            effects.append((value, result))
        if len(effects) > 1 and scope.chance(0.4):  # registers that are exchanged
            for a, b in zip(range(len(effects)), range(1, len(effects)), strict=False):
                if effects[a][0].type == effects[b][0].type:
                    effects[a], effects[b] = (effects[a][0], effects[b][0]), (effects[b][0], effects[a][0])
        for value, versions in self.targets:
            effects.append((value, versions[-1] if versions else scope.scalar(value.type.dtype)))
        position = {value: i for i, value in enumerate(scope.builder.inputs)}
        written = [position[target] for target, _ in effects]
        attrs: dict[str, Any] = {}
        bools = [
            k
            for k, (v, _) in enumerate(effects)
            if v.type.dtype == BOOL and v.type.size == 1 and self.types[written[k]].size == 1
        ]
        if bools and scope.chance(0.5):
            attrs["until"] = scope.one(bools)
        graph = scope.builder.graph([], [Effect(target, value) for target, value in effects])
        return verify(graph), self.moves, written, attrs


def random_loop(rng: np.random.Generator) -> Graph:
    """Return a graph that is one random loop."""
    parts = LoopParts(rng, MOST, 0.1 if rng.random() < 0.2 else 0.0)
    scope = parts.scope
    for _ in range(scope.one([1, 2, 4])):
        parts.register(ArrayType(scope.one([(), (), (), (1,)]), scope.one(DTYPES)))
    for steps in ([0], [-1, 0, 1]):
        parts.number(COUNT, steps)
    for _ in range(2):
        parts.number(ArrayType((), scope.one(DTYPES), HOST))
    for _ in range(scope.one([1, 2, 3])):
        shape = scope.one([(5,), (7,), (8,), (12,), (2, 6), (3, 4), (2,)])
        parts.array(ArrayType(shape, scope.one(DTYPES)))
    graph, moves, written, attrs = parts.finish(scope.one([3, 6, 10, 20]), 2)
    if not written:
        return random_loop(rng)
    return loop_graph(graph, moves, MOST, parts.types, **attrs)


def random_operands(graph: Graph, rng: np.random.Generator, count: int | None = None) -> list[np.ndarray]:
    """Return a trip count, and operands."""
    arrays = [np.array(int(rng.integers(MOST + 1)) if count is None else count)]
    for value, (_, step) in zip(graph.inputs[1:], node_of(graph).attrs["moves"], strict=True):
        type = value.type
        if type == COUNT:
            arrays.append(np.array(int(rng.integers(-1, MOST + 1 if step < 1 else 2)), I8))
        elif type.dtype == BOOL:
            arrays.append(rng.random(type.shape) < 0.5)
        elif type.dtype.kind == "f":
            numbers = rng.integers(-6, 7, type.shape)
            arrays.append(
                np.asarray(numbers if type.on_host else np.where(numbers == 0, -0.0, numbers / 4), type.dtype)
            )
        else:
            info = np.iinfo(type.dtype)
            small = rng.integers(0, 9, type.shape)
            large = rng.integers(info.min, info.max, type.shape, dtype=type.dtype, endpoint=True)
            arrays.append(np.where(rng.random(type.shape) < 0.7, small, large).astype(type.dtype))
    return arrays


def expected_of(graph: Graph, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Return the outputs by the evaluator."""
    with np.errstate(all="ignore"):
        return evaluate(graph, list(arrays))[0]


# -- kernels ------------------------------------------------------------------------------------------------

LEAVES = 1
"""The state ENGINE_PAUSED of an engine whose threads leave their kernels."""


def node_of(graph: Graph) -> Node:
    """Return the only loop of a graph."""
    (node,) = (node for node in graph.nodes if node.op is ops.loop)
    return node


class Kernels:
    """The serial kernels of the loops of some graphs. `interval`: the number of iterations between checks."""

    def __init__(self, graphs: Sequence[Graph], interval: int = emission.CHECK_INTERVAL) -> None:
        self.lowered = [lower_serial(node_of(graph)) for graph in graphs]
        recipes = []
        for lowered in self.lowered:
            program, n_slots = lowered.program, len(lowered.slots)
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(emission, "CHECK_INTERVAL", interval)
                source = emission.emit_serial(program, n_slots)
            structure = "serial", program, n_slots, interval
            recipes.append(Recipe("loop", structure, lambda source=source: source))
        self.loaded = [kernel for kernel, _ in load(recipes)]
        self.graphs = list(graphs)

    def run(
        self, position: int, arrays: Sequence[np.ndarray], *, leaves: bool = False
    ) -> tuple[list[np.ndarray], int]:
        """Return the outputs, and how often the kernel was left."""
        graph, lowered = self.graphs[position], self.lowered[position]
        node, address = node_of(graph), self.loaded[position].addresses["kernel"]
        position_of = {value: i for i, value in enumerate(graph.inputs)}
        operands = [
            np.array(arrays[position_of[value]], value.type.dtype, order="C") for value in node.inputs
        ]
        words = []
        for slot in lowered.slots:
            if not isinstance(slot, OperandSlot):
                words.append(slot.value)
            elif node.inputs[slot.operand].type.on_host:
                bits = operands[slot.operand].tobytes().ljust(8, b"\0")
                words.append(struct.unpack("q", bits)[0])
            else:
                words.append(operands[slot.operand].ctypes.data)
        block = np.array([*words, 0], "int64")
        engine, thread, scratch = np.zeros(512, "int64"), np.zeros(512, "int64"), np.zeros(64, "int64")
        engine[layout.ENGINE_PAUSED // 8] = LEAVES
        at = scratch.ctypes.data + 256
        scratch[32 + layout.SCRATCH_ENGINE // 8] = engine.ctypes.data
        scratch[32 + layout.SCRATCH_THREAD // 8] = thread.ctypes.data if leaves else 0
        kernel = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * 4)(address)
        times = 0
        status = kernel(block.ctypes.data, 0, 1, at)
        while status == layout.LEFT:
            times += 1
            status = kernel(block.ctypes.data, 1, 1, at)
        assert status == 0
        written = targets(node.attrs["body"])
        return [operands[1 + i] for i in written], times
