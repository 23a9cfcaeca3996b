"""Rounds between looks as a native loop, where the graph can compute whether to go on.

A replay repeats equal rounds in a loop of Python's (`jit.loops`): it asks the body's questions, launches a
segment, waits for the number that is looked at. Where the questions are comparisons, and numbers only added,
multiplied or divided, the graph can ask them itself. Then the launch runs many rounds, up to the one after
which an answer is another one:

    while True:
        if not (err > tol): break            asked in Python once, before the launch
        x, err = launch(x, err, tol)         loop until not (err > tol), at most `ROUNDS` rounds

Python's loop stays around it and asks again, so the graph may end a loop too early: where a number leaves
what int64 and float64 compute as Python does, or a denominator is zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from tracejit import ops
from tracejit.frontend.recording import operations
from tracejit.frontend.recording.loops.states import State
from tracejit.frontend.recording.operations import Operation
from tracejit.frontend.recording.origins import Bound, Extent
from tracejit.frontend.recording.segments import Cut, Segment
from tracejit.frontend.recording.sources import Computed, Question, Source
from tracejit.frontend.recording.storage import Storage
from tracejit.frontend.recording.trace import Trace
from tracejit.frontend.signature.program import Var
from tracejit.ir.graph import Builder, Effect, Graph, Node, Value, constant_of
from tracejit.ir.op import Trait
from tracejit.ir.structure import structure
from tracejit.ir.types import HOST, ArrayType, Device
from tracejit.ir.view import View
from tracejit.ops.loops import COUNT, graph_can_fail, loop
from tracejit.passes.rolling.roll import check_size
from tracejit.passes.rolling.wiring import Unlike, check_plain

ROUNDS = 4096
"""Most rounds of a launch."""

LIKELY = 64
"""How many rounds are expected, where costs are estimated."""

EXACT = 1 << 52
"""Whole numbers up to here are as in Python, in float64 too, also after one more addition."""

FLOAT, INTEGER, TRUTH = np.dtype("float64"), np.dtype("int64"), np.dtype("bool")
DTYPES = {float: FLOAT, int: INTEGER, bool: TRUTH}

TRUTHS = "a truth value is used as a number"

COMPARISONS = {
    operations.LESS: ops.less,
    operations.LESS_EQUAL: ops.less_equal,
    operations.GREATER: ops.greater,
    operations.GREATER_EQUAL: ops.greater_equal,
    operations.EQUAL: ops.equal,
    operations.NOT_EQUAL: ops.not_equal,
}
ARITHMETIC = {operations.ADD: ops.add, operations.SUBTRACT: ops.subtract, operations.MULTIPLY: ops.multiply}
UNARY: dict[Operation, Any] = {
    operations.NEGATIVE: ops.negative,
    operations.ABS: ops.abs,
    operations.POSITIVE: None,
}


class Unfit(Exception):
    """The graph cannot ask what the body asks; the message says why."""


class ExitLoop(NamedTuple):
    """Rounds as one launch.

    segment: the graph and its schedule. Outputs are the numbers of the state that each round changes, and
             then the arrays.
    words:   what stands for its inputs: a count, storages of the state, sources of numbers, what is bound.
    integers: sources of integers: they have to be exact.
    """

    segment: Segment
    words: tuple[Any, ...]
    integers: tuple[Any, ...]


def exit_loop(trace: Trace, index: int, arrays: Sequence[int], numbers: Sequence[int]) -> ExitLoop | str:
    """The native loop of the rounds from look `index` on, which change these arrays and numbers of the state;
    or why there is none.
    """
    states = trace.looks.graph
    now, then = states.state(index), states.state(index + 1)
    try:
        builder = _LoopBuilder(trace.looks.cuts[index + 1], now, then, states.between(index))
        graph = builder.graph(arrays, numbers)
    except (Unfit, Unlike) as error:
        return str(error)
    segment = trace.looks.segments.find(("rounds", structure(graph)), graph)
    return ExitLoop(segment, tuple(builder.words), tuple(builder.integers))


class _LoopBuilder:
    """A loop under construction: the graph around it, and its body."""

    def __init__(self, cut: Cut, now: State, then: State, steps: Sequence[Any]) -> None:
        self.cut, self.now, self.then, self.steps = cut, now, then, steps
        if cut.draws:
            raise Unfit("a round draws random numbers")
        if graph_can_fail(cut.segment.graph):
            raise Unfit("an index may be out of range in a round")
        nodes = [node for node in cut.segment.graph.nodes if node.op is not ops.constant]
        check_plain(nodes)
        check_size(nodes)
        self.device: Device = cut.made[0].type.device
        self.outer, self.body = Builder(), Builder()
        self.count = self.outer.input(COUNT)
        self.words: list[Any] = [ROUNDS]
        self.integers: list[Any] = []
        self.operands: list[Value] = []
        self.known: dict[Any, Value] = {}  # numbers that stay, in the body
        self.literals: set[Value] = set()

    def graph(self, arrays: Sequence[int], numbers: Sequence[int]) -> Graph:
        """The graph around the loop."""
        then = self.then
        places = {self.now.carriers[k]: self._array(self.now.carriers[k]) for k in arrays}
        sources = {self.now.sources[k]: self._number(self.now.sources[k]) for k in numbers}
        round = dict(sources)
        self._ask(round, [])
        made = dict(zip(self.cut.made, self._segment(places, round), strict=True))
        round[self.cut.source] = self._found(made[self.cut.made[0]])
        ends: list[tuple[Value, Value | None]] = [
            (sources[self.now.sources[k]], round.get(then.sources[k])) for k in numbers
        ]
        next_round = {self.now.sources[k]: value for k, (_, value) in zip(numbers, ends, strict=True)}
        left = places | made
        ends += [(places[self.now.carriers[k]], left.get(then.carriers[k])) for k in arrays]
        flag = self._operand(self._filled(self._literal(self.outer, True)))
        ends.append((flag, self._goes_on(next_round)))
        effects, used = [], set(self.body.inputs)
        for target, value in ends:
            if value is None or value.type != target.type:
                raise Unfit("a round hands on what was there before the loop")
            if value in used:
                value = self.body.emit(ops.copy, value)
            used.add(value)
            effects.append(Effect(target, value))
        body = self.body.graph([], effects)
        finals = self.outer.emit(
            loop,
            self.count,
            *self.operands,
            body=body,
            moves=((0, 0),) * len(self.operands),
            rounds=LIKELY,
            until=len(effects) - 1,
        )
        return self.outer.graph(finals[:-1])

    # -- operands --------------------------------------------------------------------------------------------

    def _input(self, type: ArrayType, word: Any) -> Value:
        self.words.append(word)
        return self.outer.input(type)

    def _operand(self, value: Value) -> Value:
        """An input of the body for a value around it."""
        self.operands.append(value)
        return self.body.input(value.type)

    def _filled(self, number: Value) -> Value:
        return self.outer.emit(ops.full, number, shape=(), device=self.device)

    def _literal(self, builder: Builder, value: Any) -> Value:
        return builder.emit(ops.constant, **constant_of(value, DTYPES[type(value)]))

    def _array(self, storage: Storage) -> Value:
        """An array of the state that rounds change."""
        kind = storage.type
        for value, bound in zip(self.cut.segment.graph.inputs, self.cut.bound, strict=True):
            if isinstance(bound, Extent) and bound.storage is storage:
                if (bound.lo, bound.hi) != (0, storage.type.size):
                    raise Unfit("a round reads a part of an array that it changes")
                kind = value.type
        return self._operand(self._input(kind, storage))

    def _number(self, source: Any) -> Value:
        """A number, as an array without dimensions."""
        kind = type(source.value)
        if kind not in DTYPES:
            raise Unfit(f"a number is a {kind.__name__}")
        if kind is int:
            self.integers.append(source)
        return self._operand(self._filled(self._input(ArrayType((), DTYPES[kind], HOST), source)))

    # -- numbers ---------------------------------------------------------------------------------------------

    def _ask(self, numbers: dict[Any, Value], conditions: list[Value]) -> None:
        """Compute what a round computes of its numbers, and ask what it asks."""
        for step in self.steps:
            operands = [self._operand_of(operand, numbers) for operand in step.operands]
            if isinstance(step, Computed):
                numbers[step] = self._compute(step.operation, operands, conditions)
            elif isinstance(step, Question) and type(step.value) is bool:
                truth = self._truth(step.operation, operands, conditions)
                conditions.append(truth if step.value else self.body.emit(ops.logical_not, truth))
            else:
                raise Unfit(f"the value of {step.path} is asked for")

    def _goes_on(self, numbers: dict[Any, Any]) -> Value:
        """Whether the round that finds these numbers asks its questions with the answers of this one."""
        conditions: list[Value] = []
        self._ask(numbers, conditions)
        if not conditions:
            raise Unfit("nothing is asked in a round")
        found = conditions[0]
        for condition in conditions[1:]:
            found = self.body.emit(ops.logical_and, found, condition)
        return found

    def _operand_of(self, operand: Any, numbers: dict[Any, Value]) -> Value:
        if isinstance(operand, Computed | Source | Var):
            if operand in numbers:
                return numbers[operand]
            if operand not in self.known:
                self.known[operand] = self._number(operand)
            return self.known[operand]
        if type(operand) not in DTYPES or (type(operand) is int and abs(operand) > EXACT):
            raise Unfit(f"{operand} is no number that the graph has exactly")
        literal = self._literal(self.body, operand)
        self.literals.add(literal)
        return literal

    def _compute(self, operation: Operation, operands: list[Value], conditions: list[Value]) -> Value:
        emit = self.body.emit
        if any(value.type.dtype == TRUTH for value in operands):
            raise Unfit(TRUTHS)
        if operation is operations.FLOAT:
            return self._as_float(operands[0], conditions)
        if operation in UNARY:
            self._bounded(operands[0], conditions)
            return emit(UNARY[operation], *operands) if UNARY[operation] else operands[0]
        if operation is operations.DIVIDE:
            x, y = [self._as_float(value, conditions) for value in operands]
            conditions.append(emit(ops.not_equal, y, self._literal(self.body, 0.0)))
            return emit(ops.divide, x, y)
        if operation not in ARITHMETIC:
            raise Unfit(f"numbers are computed by {operation.written('x', 'y')}")
        operands = self._together(operands, conditions)
        if operands[0].type.dtype == INTEGER and ARITHMETIC[operation] is ops.multiply:
            raise Unfit("whole numbers are multiplied")
        for value in operands:
            self._bounded(value, conditions)
        return emit(ARITHMETIC[operation], *operands)

    def _truth(self, operation: Operation, operands: list[Value], conditions: list[Value]) -> Value:
        if operation in COMPARISONS:
            return self.body.emit(COMPARISONS[operation], *self._together(operands, conditions))
        if operation is not operations.TRUTH:
            raise Unfit(f"a round asks for {operation.written('x', 'y')}")
        (x,) = operands
        if x.type.dtype == TRUTH:
            return x
        zero = self._literal(self.body, 0.0 if x.type.dtype == FLOAT else 0)
        return self.body.emit(ops.not_equal, x, zero)

    def _together(self, operands: list[Value], conditions: list[Value]) -> list[Value]:
        """Operands of one dtype, as Python compares and adds them."""
        dtypes = {value.type.dtype for value in operands}
        if len(dtypes) == 1:
            return operands
        if TRUTH in dtypes:
            raise Unfit(TRUTHS)
        return [self._as_float(value, conditions) for value in operands]

    def _as_float(self, value: Value, conditions: list[Value]) -> Value:
        if value.type.dtype == FLOAT:
            return value
        if value.type.dtype != INTEGER:
            raise Unfit(TRUTHS)
        self._bounded(value, conditions)
        return self.body.emit(ops.astype, value, dtype=FLOAT)

    def _bounded(self, value: Value, conditions: list[Value]) -> None:
        """The loop ends where a whole number is larger than `EXACT`: sums of two others fit into int64."""
        if value.type.dtype != INTEGER or value in self.literals:
            return
        for end in (-EXACT, EXACT):
            compare = ops.greater_equal if end < 0 else ops.less_equal
            conditions.append(self.body.emit(compare, value, self._literal(self.body, end)))

    # -- arrays ----------------------------------------------------------------------------------------------

    def _found(self, looked: Value) -> Value:
        """The number that is looked at."""
        dtype = looked.type.dtype
        if dtype == TRUTH:
            wanted: np.dtype = TRUTH
        elif dtype.kind == "f":
            wanted = FLOAT
        elif dtype.kind == "i" or (dtype.kind == "u" and dtype.itemsize < 8):
            wanted = INTEGER
        else:
            raise Unfit(f"a number is a {dtype}")
        value = looked if looked.type.shape == () else self._viewed(looked, View.of_shape(()))
        return value if dtype == wanted else self.body.emit(ops.astype, value, dtype=wanted)

    def _viewed(self, value: Value, view: View) -> Value:
        return self.body.emit(ops.view, value, view=view)

    def _segment(self, places: dict[Storage, Value], numbers: dict[Any, Value]) -> list[Value]:
        """The outputs of the round's segment in the body."""
        values: dict[Value, Value] = {}
        for value, bound in zip(self.cut.segment.graph.inputs, self.cut.bound, strict=True):
            values[value] = self._bound(value, bound, places, numbers)
        for node in self.cut.segment.graph.nodes:
            inputs = [values[value] for value in node.inputs]
            outputs = self._node(node, inputs)
            values.update(zip(node.outputs, outputs, strict=True))
        return [values[value] for value in self.cut.segment.graph.outputs]

    def _bound(self, value: Value, bound: Bound, places: Any, numbers: Any) -> Value:
        """The value of the body for an input of the segment."""
        if isinstance(bound, Extent):
            if bound.storage in places:
                return places[bound.storage]
            return self._operand(self._input(value.type, bound))
        if bound.source not in numbers:
            return self._operand(self._input(value.type, bound))
        number, dtype = numbers[bound.source], value.type.dtype
        if dtype == number.type.dtype:
            return number
        if dtype.kind != "f" or number.type.dtype == TRUTH:
            raise Unfit(f"a number that rounds change becomes a {dtype}")
        return self.body.emit(ops.astype, number, dtype=dtype)

    def _node(self, node: Node, inputs: list[Value]) -> Sequence[Value]:
        """A node of the segment; numbers that rounds change are arrays without dimensions here."""
        pairs = list(zip(node.inputs, inputs, strict=True))
        if not any(given.type.on_host and not value.type.on_host for given, value in pairs):
            return self.body.copy(node, inputs)
        shape = next((given.type.shape for given in node.inputs if not given.type.on_host), ())
        if node.op is ops.full:
            return [self._spread(inputs[0], node.output.type.shape)]
        if Trait.ELEMENTWISE not in node.op.traits:
            raise Unfit(f"{node.op.name} takes a number that rounds change")
        spread = [
            self._spread(value, shape) if given.type.on_host and not value.type.on_host else value
            for given, value in pairs
        ]
        return self.body.copy(node, spread)

    def _spread(self, number: Value, shape: tuple[int, ...]) -> Value:
        """A number at all places of a shape."""
        return self._viewed(number, View.of_shape(()).broadcast(shape)) if shape else number
