"""Native loops with branches: an iteration performs one transition, selected by branches like the user's.

    while lo < hi:                               case(lo < hi)
        mid = (lo + hi) // 2                         false: the loop ends
        if x[mid] < value: lo = mid + 1              true: case(x[mid] < value)
        else: hi = mid                                   false: hi = mid; true: lo = mid + 1

The transitions from one state share their computations and questions up to the first different answer, so
they are a decision tree: a `case` for each question. An iteration that has no transition, because an answer
is new, a number is too large, or an index is out of range, changes nothing and ends the loop; the body's
Python code or the transition's own launch does what is right. So nothing in the loop can fail.

Such a loop is worth it if it is one kernel in which the branches are branches (`loopnest.serial`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from types import MappingProxyType
from typing import Any

from tracejit import ops
from tracejit.frontend.jit.state_loops.intervals import BranchFacts, Intervals
from tracejit.frontend.jit.state_loops.loop_builder import (
    UNSIGNED,
    BodyTransition,
    LoopBuilder,
    NativeLoop,
)
from tracejit.frontend.jit.state_loops.native_numbers import TRUTH, Unsupported
from tracejit.frontend.jit.state_loops.regions import LoopRegion
from tracejit.frontend.recording.look_loops.state_graph import Transition
from tracejit.frontend.recording.origins import RuntimeNumber
from tracejit.frontend.recording.sources import Computed
from tracejit.frontend.recording.trace import Trace
from tracejit.ir.graph import Builder, Graph, Node, Value, constant_of
from tracejit.ir.op import Op
from tracejit.ir.view import View
from tracejit.loopnest.operands import NotSerial
from tracejit.loopnest.serial import lower_serial
from tracejit.ops.loops import COUNT, loop
from tracejit.passes.cse import cse
from tracejit.passes.simplify import simplify

MAX_TRANSITIONS = 64
"""The largest number of transitions of a loop."""

READS: tuple[Op, ...] = (ops.gather, ops.scatter, ops.update, loop)
"""Operators that run only where the indices before them are in range."""


TransitionPairs = list[tuple[BodyTransition, dict[Any, Value]]]


class _Branch(Builder):
    """A branch of a `case` under construction. Values of the enclosing builder become inputs when they are
    used.
    """

    def __init__(self, enclosing: _Branch | None, intervals: Intervals) -> None:
        super().__init__()
        self.enclosing, self.intervals = enclosing, intervals
        self.captured: dict[Value, Value] = {}
        self._own: set[Value] = set()

    def local(self, value: Value) -> Value:
        """Return a value as this graph knows it."""
        if self.enclosing is None or value in self._own:
            return value
        if value not in self.captured:
            self.captured[value] = self.input(value.type)
            self._own.add(self.captured[value])
            self.intervals.note_input(self.captured[value], value)
        return self.captured[value]

    def append(self, op: Op, inputs: tuple[Value, ...], location: str | None, attrs: Any) -> Any:
        outputs = super().append(op, tuple(map(self.local, inputs)), location, attrs)
        self._note(self.nodes[-1])
        return outputs

    def copy(self, node: Node, inputs: Any) -> tuple[Value, ...]:
        outputs = super().copy(node, map(self.local, inputs))
        self._note(self.nodes[-1])
        return outputs

    def _note(self, node: Node) -> None:
        self._own.update(node.outputs)
        self.intervals.note_node(node)

    def branch(self, operands: Sequence[Value], outputs: Sequence[Value]) -> Graph:
        """Return the finished graph, whose inputs are these values of the enclosing builder."""
        outputs = [self.local(value) for value in outputs]
        self.inputs = [self.local(value) for value in operands]
        return self.graph(outputs)


class BranchingLoop(LoopBuilder):
    """A loop whose iterations branch."""

    ITERATIONS = 1 << 40
    MAY_DRAW = True

    body: _Branch

    def __init__(self, region: LoopRegion, transitions: Sequence[Transition], head: Transition) -> None:
        if len(transitions) > MAX_TRANSITIONS:
            raise Unsupported(f"a loop has more than {MAX_TRANSITIONS} branches")
        self.intervals = Intervals()
        self._ends: list[
            tuple[BranchFacts, dict[int, Value]]
        ] = []  # of all branches that perform a transition
        super().__init__(region, transitions, head, _Branch(None, self.intervals))
        self.numbers.magnitude = self._magnitude
        self.nodes = {each: _nodes_of(each) for each in self.transitions}
        self.from_start = {each: _counting_from_start(each) for each in self.transitions}

    def loop(self, trace: Trace, *, counts: bool = False) -> NativeLoop:
        """Return the loop. `counts`: whether a last output is the number of iterations before the last one
        that started in the first state. It exists only if there are several states.
        """
        self._add_counters()
        self._add_slots(self.slots.changed)
        for value in self.values.values():
            self._assume_exact(value)
        self.state: Value | None = None
        self.visit: Any = None
        if len(self.states) > 1:
            self.state, self.visit = self._operand(self._around(0)), self._operand(self._around(0))
            zero = self.outer.emit(ops.constant, **constant_of(0, COUNT.dtype))
            self.iteration = self._operand(zero, step=1)
        flag = self._operand(self._around(True))
        if self.state is None:
            results = self._from_state(self.states[0])
        else:
            results = self._case(self.state, [partial(self._from_state, each) for each in self.states])
        n_before = int(self.state is not None) + len(self.counters)
        results[-1] = self._continues(results[-1], results[n_before:])
        first = [*([] if self.state is None else [self.state]), *self.counters.values()]
        last = [] if self.visit is None else [self.visit]
        n_outputs = len(first) + len(self.values) + (len(last) if counts else 0)
        graph = self._outer_graph([*first, *self.values.values(), *last, flag], results, n_outputs)
        try:
            lower_serial(graph.nodes[-1])
        except NotSerial as error:
            raise Unsupported(str(error)) from None
        return self._finished(trace, graph, branches=True)

    def _continues(self, continues: Value, results: Sequence[Value]) -> Value:
        """Return whether the loop continues: only if integers stay exact, which each iteration assumes.
        `results`: the values of the slots after the iteration.
        """
        slots = {value: slot for slot, value in self.values.items()}
        ends = dict(zip(self.values, results, strict=False))
        relied_on = [value for value in slots if self.numbers.exact.get(value)]
        for value in relied_on:
            assumed = self._stays_exact(slots[value])
            if assumed is None:
                continues = self.numbers.all([continues, *self.numbers.is_exact(ends[slots[value]])])
            else:
                relied_on += [each for each in slots if each in assumed and each not in relied_on]
        return continues

    def _stays_exact(self, slot: int) -> set[Value] | None:
        """Return the integers whose exactness implies that of a slot after each iteration; None if the slot
        may become inexact.
        """
        found = set[Value]()
        for facts, slots in self._ends:
            assumed = self.intervals.is_exact(slots.get(slot, self.values[slot]), facts)
            if assumed is None:
                return None
            found |= assumed
        return found

    def _assume_exact(self, value: Value) -> None:
        self.numbers.assume_exact(value)
        self.intervals.assume_exact(value)

    def _always(self, condition: Value) -> bool | None:
        """Return whether a condition is true; None if it depends on the iteration."""
        known = self.intervals.truth(condition)
        if known is None:
            return None
        self.numbers.exact.update(dict.fromkeys(known[1], True))
        return known[0]

    def _magnitude(self, value: Value) -> tuple[int, Iterable[Value]] | None:
        interval = self.intervals.of(value, self.intervals.facts)
        return None if interval is None else (max(-interval.lo, interval.hi), interval.assumed)

    def _number(self, source: Any) -> Value:
        value = super()._number(source)
        self._assume_exact(value)  # Python checks it before the launch
        return value

    # -- branches --------------------------------------------------------------------------------------------
    # A method that builds a branch returns the results of the iteration: the slots, and whether the loop
    # continues. If there are several states, the first result is the state, and the last but one the number
    # of the last iteration that started in the first state. The counters of random streams precede the slots.

    def _case(self, which: Value, branches: Sequence[Callable[[], list[Value]]]) -> list[Value]:
        """Return the results of one of several branches."""
        which, built = self.numbers.array(which), []
        for number, build in enumerate(branches):
            with self._inside() as branch:
                if which.type.dtype == TRUTH:
                    self.intervals.learn(which, bool(number))
                results = build()
                built.append((branch, [branch.local(value) for value in results]))
        operands = list(dict.fromkeys(value for branch, _ in built for value in branch.captured))
        graphs = tuple(branch.branch(operands, results) for branch, results in built)
        return list(self.body.emit(ops.case, which, *operands, branches=graphs))

    @contextmanager
    def _inside(self) -> Iterator[_Branch]:
        """Build a branch of the graph that is built now."""
        enclosing = self.body
        self.body = self.numbers.body = _Branch(enclosing, self.intervals)
        limited, facts = self.numbers.limited.copy(), self.intervals.facts.copy()
        yield self.body
        self.body = self.numbers.body = enclosing
        self.numbers.limited, self.intervals.facts = limited, facts

    def _results(
        self,
        state: int | None,
        slots: dict[int, Value],
        continues: bool,
        draws: Mapping[Any, int] = MappingProxyType({}),
    ) -> list[Value]:
        """Return the results of an iteration; `state` is None if it does not change. `draws`: how many random
        numbers it has drawn from each stream.
        """
        results = [
            self._advanced(stream, draws[stream]) if draws.get(stream) else counter
            for stream, counter in self.counters.items()
        ]
        results += [slots.get(slot, value) for slot, value in self.values.items()]
        if continues:
            self._ends.append((self.intervals.facts.copy(), slots))
        if self.state is not None:
            end = self.state if state is None else self.numbers.number(self.states.index(state))
            results = [end, *results, self.visit]
        return [*results, self.numbers.number(continues)]

    def _exit(self) -> list[Value]:
        """Return the results of an iteration that performs no transition."""
        return self._results(None, {}, continues=False)

    def _from_state(self, state: int) -> list[Value]:
        """Return the results of an iteration that starts in a state."""
        if self.state is not None and state == self.states[0]:
            visit, self.visit = self.visit, self.numbers.array(self.iteration)
            results = self._from_this(state)
            self.visit = visit
            return results
        return self._from_this(state)

    def _from_this(self, state: int) -> list[Value]:
        transitions = [each for each in self.transitions if each.start == state]
        if not transitions:
            return self._exit()
        values = [self._values_before(each, self.values) for each in transitions]
        return self._decide(list(zip(transitions, values, strict=True)), 0)

    def _decide(self, transitions: TransitionPairs, first: int) -> list[Value]:
        """Perform one of some transitions, whose steps before step `first` are the same, with the same
        answers. The transitions are paired with the values of storages and sources.
        """
        transition, values = transitions[0]
        outside = partial(self._invariant_number, transition)
        for k in range(first, len(transition.steps)):
            if len({each.descriptions[k : k + 1] for each, _ in transitions}) > 1:
                raise Unsupported("iterations with the same answers differ")
            steps = [each.steps[k] for each, _ in transitions]
            if isinstance(steps[0], Computed):
                number = self.numbers.computed(steps[0], values, outside)
                for step, (_, each) in zip(steps, transitions, strict=True):
                    each[step] = number
                continue
            if type(steps[0].value) is int:
                return self._decide_by_value(transitions, k)
            truth = self.numbers.answer(steps[0], values, outside)
            sides: tuple[TransitionPairs, TransitionPairs] = [], []
            for step, pair in zip(steps, transitions, strict=True):
                sides[bool(step.value)].append(pair)
            branches = [partial(self._decide, side, k + 1) if side else self._exit for side in sides]
            known = truth if isinstance(truth, bool) else self._always(truth)
            if known is not None:
                return self._guarded(branches[known])
            assert isinstance(truth, Value)
            return self._guarded(partial(self._case, truth, branches))
        if len(transitions) > 1:
            raise Unsupported("iterations with the same answers differ")
        return self._guarded(partial(self._perform, transition, values))

    def _decide_by_value(self, transitions: TransitionPairs, k: int) -> list[Value]:
        """Perform one of some transitions that ask, in step `k`, for the exact value of an integer."""
        transition, values = transitions[0]
        value = transition.steps[k].value
        same = [pair for pair in transitions if pair[0].steps[k].value == value]
        others = [pair for pair in transitions if pair[0].steps[k].value != value]
        outside = partial(self._invariant_number, transition)
        is_same = self.numbers.is_value(transition.steps[k], values, outside)
        otherwise = partial(self._decide, others, k) if others else self._exit
        branches: list[Callable[[], list[Value]]] = [otherwise, partial(self._decide, same, k + 1)]
        return self._guarded(partial(self._case, is_same, branches))

    def _guarded(self, build: Callable[[], list[Value]]) -> list[Value]:
        """Return the results of a branch; exit if numbers so far may differ from Python's."""
        conditions = [each for each in self.numbers.take_conditions() if not self._always(each)]
        if not conditions:
            return build()
        return self._case(self.numbers.all(conditions), [self._exit, build])

    # -- transitions -----------------------------------------------------------------------------------------

    def _perform(self, transition: BodyTransition, values: dict[Any, Value]) -> list[Value]:
        """Perform a transition."""
        copied = self._segment_inputs(transition, values)
        return self._run(transition, values, self.nodes[transition], copied)

    def _run(
        self,
        transition: BodyTransition,
        values: dict[Any, Value],
        nodes: Sequence[Node],
        copied: dict[Value, Value],
    ) -> list[Value]:
        """Run the nodes of a segment, and return the results of the iteration. `copied`: the values of the
        body for those of the segment.
        """
        in_range: list[Value] = []
        for position, node in enumerate(nodes):
            inputs = [copied[value] for value in node.inputs]
            if in_range and node.op in READS:
                rest = partial(self._run, transition, values, nodes[position:], copied)
                return self._case(self.numbers.all(in_range), [self._exit, rest])
            if node.op is ops.check_index:
                from_start = node.inputs[0] in self.from_start[transition]
                outputs: Sequence[Value] = [self._checked_index(node, inputs[0], in_range, from_start)]
            else:
                outputs = self._node(node, inputs)
            copied.update(zip(node.outputs, outputs, strict=True))
        if in_range:
            rest = partial(self._run, transition, values, (), copied)
            return self._case(self.numbers.all(in_range), [self._exit, rest])
        results = [copied[value] for value in transition.graph.outputs]
        draws = {stream: total.fixed for stream, total in transition.cut.totals}
        slots = self._values_after(transition, values, results)
        return self._results(transition.end, slots, continues=True, draws=draws)

    def _checked_index(self, node: Node, index: Value, in_range: list[Value], from_start: bool) -> Value:
        """Return an index that counts from the start, and append the condition that it is in range. If the
        index counts `from_start`, negative ones end the loop, too.
        """
        if index.type.size != 1:
            raise Unsupported("an iteration checks several indices")
        emit, extent = self.body.emit, node.attrs["extent"]
        wrapped = index
        if not from_start:
            is_negative = emit(ops.less, index, self.numbers.literal(0))
            wrapped = emit(ops.where, is_negative, emit(ops.add, index, self.numbers.literal(extent)), index)
        unsigned = emit(ops.bitcast, wrapped, dtype=UNSIGNED)  # negative ones are large
        is_valid = emit(ops.less, unsigned, emit(ops.constant, **constant_of(extent, UNSIGNED)))
        if not self._always(is_valid):
            is_valid = is_valid if is_valid.type.shape == () else self._viewed(is_valid, View.of_shape(()))
            in_range.append(is_valid)
        return wrapped


def _counting_from_start(transition: BodyTransition) -> set[Value]:
    """Return the run-time numbers of a segment, as arrays, that are not negative where it was recorded. If
    they are indices, they probably never count from the end.
    """
    cut = transition.cut
    numbers = {
        value
        for value, origin in zip(transition.graph.inputs, cut.origins, strict=True)
        if isinstance(origin, RuntimeNumber) and type(origin.value) is int and origin.value >= 0
    }
    arrays = (node for node in transition.graph.nodes if node.op is ops.full)
    return {node.output for node in arrays if node.inputs[0] in numbers}


def _nodes_of(transition: BodyTransition) -> list[Node]:
    """Return the nodes of a transition's graph, checks of indices first. The graph is simplified if elements
    which it has written are indices: ``p[i] = p[p[i]]; i = p[i]``.
    """
    try:
        return _checks_first(transition.graph)
    except Unsupported:
        transition.graph = simplify(cse(transition.graph))
        return _checks_first(transition.graph)


def _checks_first(graph: Graph) -> list[Node]:
    """Return the nodes of a graph, in an order in which the checks of indices are first, and what they need.

    Raises Unsupported if an index depends on what has been written: then it is not known before the write
    whether it is in range.
    """
    needed: set[Value] = set()
    first: set[int] = set()
    for node in reversed(graph.nodes):
        if node.op is ops.check_index or not needed.isdisjoint(node.outputs):
            if node.op in (ops.scatter, ops.update, loop):
                raise Unsupported("an index depends on elements that the iteration has written")
            needed.update(node.inputs)
            first.add(id(node))
    return sorted(graph.nodes, key=lambda node: id(node) not in first)
