"""The pass `roll`: runs of equal iterations in a recorded graph become `loop` nodes.

    for i in range(1000):            %3 = loop(%count, %x, %b) [moves=..., rounds=1000] graph {
        x = tanh(x + b[i])          =>   %2 = add(%0, %1)
                                         %3 = tanh(%2)
                                         %0 <- %3 }

A recording is a sequence of nodes. Where it is periodic (`periods`: the same operators, types, attributes and
lines, but any offsets of views), `wiring_of` proves how many iterations have the same dataflow, and
classifies each operand (see `Wiring`); `make_loop` builds the node. Short periods are tried first, so that
inner loops are rolled before outer ones; the pass is repeated until it finds no run.

A run that is too short, or whose iterations have much work, is not rolled: its tasks run on all workers.
Neither are iterations that cannot be proved equal. The recorded graph's note ``unrolled`` contains the
reasons.
"""

# No `from __future__ import annotations`: a named tuple compiles every annotation that is a string.

import bisect
from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from typing import Any, NamedTuple

from tracejit import ops
from tracejit.ir.graph import Effect, Graph, Node, Value
from tracejit.ir.op import Trait
from tracejit.ir.types import ArrayType
from tracejit.passes.cse import attributes_key
from tracejit.passes.rolling.periods import Periods
from tracejit.passes.rolling.wiring import NotRollable, RecordedGraph, WireKind, wiring_of

MIN_ITERATIONS = 16
"""The least number of iterations of a loop: fewer are cheap to compile, and may be fused with each other."""

MIN_NESTED_ITERATIONS = 3
"""The least number of iterations of a loop if another loop with the same body has `MIN_ITERATIONS`."""

MIN_PART_ITERATIONS, LONG_RUN = 6, 256
"""Nested loops whose iterations are recorded alike are a single run, in which offsets are affine within an
inner loop only. If a run has more than `LONG_RUN` operators, each of its parts with at least
`MIN_PART_ITERATIONS` iterations is rolled separately.
"""

MAX_SHIFTS = 64
"""The greatest number of operators that are tried as the first one of an iteration."""

MAX_BYTES = 1 << 18
"""The greatest size in bytes of the results of an iteration: a loop runs on one thread."""

MAX_MULTIPLICATIONS = 1 << 19
"""The greatest number of multiplications of matrix products in an iteration."""

LONG, LONG_SCALE = 2000, 64
"""Runs of more than `LONG` operators compile for seconds: they may have `LONG_SCALE` times the work."""

IN_REGISTERS = {Trait.ELEMENTWISE, Trait.VIEW}
"""The traits of operators that are fused into kernels whose values stay in registers."""

MAX_BODY_NODES = 16
"""The greatest number of operators of an elementwise iteration that is fused with other iterations."""

MAX_CHAIN = 1024
"""The greatest number of operators of a run of such iterations; longer runs compile faster as a loop."""

MAX_LEVELS = 6
"""The greatest number of repetitions of the pass: loops are nested less deeply."""


class RolledRun(NamedTuple):
    """The run of nodes that a loop replaces.

    level: the number of repetitions of the pass before. start: the position of the first node. period: the
    number of nodes of an iteration. trip_count: the number of iterations.
    """

    level: int
    start: int
    period: int
    trip_count: int


Cuts = Collection[tuple[int, int]]
"""Positions at which runs must end: (repetitions of the pass before, position among the nodes)."""


def roll(graph: Graph, notes: dict[str, Any] | None = None) -> Graph:
    """Replace runs of equal iterations in `graph` by loops.

    `notes` are those of the recording, if that is another graph. The note ``cuts`` contains the positions at
    which the plans of iterations differ, ``ranges`` the loops over `tj.range` that were recorded iteration by
    iteration. The note ``unrolled`` is set to the reasons why runs were not rolled, with their locations.
    """
    rolling = _Rolling()
    notes = graph.notes if notes is None else notes
    rolling.reasons |= notes.get("ranges", {})
    cuts: Cuts = notes.get("cuts", ())
    sequence: _Sequence | None = None
    for level in range(MAX_LEVELS):
        if len(graph.nodes) < MIN_ITERATIONS:
            break
        if sequence is None or sequence.graph is not graph:
            sequence = _Sequence(graph, rolling.tokens)
        refused = len(rolling.refused)
        rolled = _Level(sequence, rolling, level, cuts).run()
        if rolled is graph and len(rolling.refused) == refused:
            break
        graph = rolled
    notes["unrolled"] = rolling.reasons
    return graph


class _Rolling:
    """The state that repetitions of the pass share. refused: the tokens of iterations that are not rolled."""

    def __init__(self) -> None:
        self.bodies: dict[Hashable, Graph] = {}
        self.reasons: dict[str, str | None] = {}
        self.tokens = _Tokens()
        self.refused: set[tuple[int, ...]] = set()


class _Sequence:
    """The nodes of a graph except constants, and what the search for runs computes from them. Repetitions of
    the pass share it until one of them changes the graph.
    """

    def __init__(self, graph: Graph, token_of: Callable[[Node], int]):
        self.graph = graph
        self.constants = [node for node in graph.nodes if node.op is ops.constant]
        self.nodes = [node for node in graph.nodes if node.op is not ops.constant]
        self.recorded = RecordedGraph(graph, self.nodes)
        self.tokens = [token_of(node) for node in self.nodes]
        self.periods = Periods(self.tokens)
        self._starts: dict[tuple[int, int, int], int | NotRollable] = {}

    def best_start(self, position: int, period: int, iterations: int) -> int:
        """The position of the first node of an iteration with the fewest loop-carried values, in the run from
        `position` on; raises `NotRollable`.
        """
        run = position, period, iterations
        start = self._starts.get(run)
        if start is None:
            start = self._starts[run] = self._search(*run)
        if isinstance(start, NotRollable):
            raise start.with_traceback(None)
        return start

    def _search(self, position: int, period: int, iterations: int) -> int | NotRollable:
        """The result of `best_start`, or its error."""
        n_tried = min(iterations - 1, MIN_ITERATIONS) if iterations > MIN_NESTED_ITERATIONS else iterations
        errors: list[NotRollable] = []
        for least in (n_tried, MIN_PART_ITERATIONS) if iterations * period > LONG_RUN else (n_tried,):
            counts = {}
            for shift in range(min(period, MAX_SHIFTS)):
                try:
                    wiring = wiring_of(self.recorded, position + shift, period, least, least)
                except NotRollable as error:
                    errors.append(error)
                    continue
                carried = {
                    s.result for sources in wiring.sources for s in sources if s.kind is WireKind.CARRIED
                }
                counts[shift] = len(carried)
            if counts:
                return position + min(counts, key=lambda shift: (counts[shift], shift))
        return errors[0].with_traceback(None)


class _Level:
    """One repetition of the pass, which rolls the innermost runs.

    known: the tokens of the iterations of long runs, with the total number of operators of these runs.
    Shorter runs of the same iterations are rolled, too, because they occur in the iterations of an outer
    loop.
    """

    def __init__(
        self,
        sequence: _Sequence,
        rolling: _Rolling,
        level: int,
        cuts: Cuts,
    ):
        self.sequence, self.rolling, self.level = sequence, rolling, level
        self.nodes, self.tokens = sequence.nodes, sequence.tokens
        self.cuts = sorted(position for at, position in cuts if at == level)
        self.known: dict[tuple[int, ...], int] = {}
        self.first_tokens: set[int] = set()  # the first tokens of these iterations
        # By period: start and end of a run of unlike iterations, and where longer periods are not tried.
        self.failed: dict[int, tuple[int, int, int]] = {}
        self.no_run_below: dict[int, int] = {}  # by position: no run with a shorter period begins there

    def run(self) -> Graph:
        """Return the graph with loops, or the graph itself if there are none."""
        graph = self.sequence.graph
        self._survey()
        if not self.known:
            return graph
        new: list[Node] = list(self.sequence.constants)
        renamed: dict[Value, Value] = {}
        position, has_loops = 0, False
        while position < len(self.nodes):
            replacement, end = self._replacement(position, renamed)
            new += [_renamed(node, renamed) for node in replacement]
            has_loops = has_loops or end > position + 1
            position = end
        if not has_loops:
            return graph
        return Graph(
            graph.inputs,
            tuple(new),
            tuple(renamed.get(v, v) for v in graph.outputs),
            tuple(Effect(e.target, renamed.get(e.value, e.value)) for e in graph.effects),
        )

    def _survey(self) -> None:
        """Collect the iterations of all long runs whose iterations have the same dataflow."""
        position = 0
        while run := self._first_run(position, len(self.nodes), len(self.nodes)):
            key, operators, position = run
            self.known[key] = self.known.get(key, 0) + operators
            self.first_tokens.add(key[0])

    def _first_run(self, position: int, end: int, below: int) -> tuple[tuple[int, ...], int, int] | None:
        """The first innermost run that begins in `position` to `end` with a period less than `below`.

        Returns the tokens of an iteration, the number of operators of the run, and its end; None without a
        run.
        """
        for start in range(position, end):
            if self.no_run_below.get(start, 0) >= below:
                continue
            # A period that failed at every start within an iteration fails in the entire run, and so do its
            # multiples. In long runs, parts of which may be rolled, these are tried in the first iteration.
            failed = {p: tried for p, (first, last, tried) in self.failed.items() if first <= start < last}
            failed_multiples = [p for p, tried in failed.items() if start >= tried]
            for period, iterations in self._runs(start, MIN_ITERATIONS, min([below, *failed_multiples])):
                if period in failed:
                    continue
                inner = self._first_run(start, start + period, period // 2 + 1)
                if inner is not None:
                    return inner
                try:
                    first_node = self._start(start, period, iterations)
                except NotRollable as error:
                    self._note_reason(error)
                    is_long = period * iterations > LONG_RUN
                    self.failed[period] = start, start + period * iterations, start + period * is_long
                    if is_long:
                        continue
                    break
                key = tuple(self.tokens[first_node : first_node + period])
                if key not in self.rolling.refused:
                    return key, iterations * period, start + iterations * period
                self.failed[period] = start, start + period * iterations, start
                break
            self.no_run_below[start] = below
        return None

    def _start(self, position: int, period: int, iterations: int) -> int:
        """The best position of the first node of an iteration in a run; raises `NotRollable`.

        It is the start of a known iteration, or else the position with the fewest loop-carried values.
        """
        for start in range(position, position + min(period, MAX_SHIFTS)):
            if (
                self.tokens[start] in self.first_tokens
                and tuple(self.tokens[start : start + period]) in self.known
            ):
                return start
        return self.sequence.best_start(position, period, iterations)

    def _runs(self, position: int, least: int, below: int) -> Iterator[tuple[int, int]]:
        """Yield (period, iterations) of the runs from a position to the next cut at most."""
        cut = bisect.bisect_right(self.cuts, position)
        for period, iterations in self.sequence.periods.at(position, least, below):
            if cut < len(self.cuts):
                iterations = min(iterations, (self.cuts[cut] - position) // period)
            if iterations >= least:
                yield period, iterations
            elif least == MIN_ITERATIONS:
                self._note_reason(
                    NotRollable("iterations need different plans", self.nodes[position].location)
                )

    def _replacement(self, position: int, renamed: dict[Value, Value]) -> tuple[Sequence[Node], int]:
        """The nodes that replace those from `position` on, and the position of the next nodes."""
        nodes, recorded = self.nodes, self.sequence.recorded
        runs = (
            self._runs(position, MIN_NESTED_ITERATIONS, len(nodes))
            if self.tokens[position] in self.first_tokens
            else ()
        )
        for period, iterations in runs:
            key = tuple(self.tokens[position : position + period])
            n_operators = self.known.get(key)
            if n_operators is None:
                continue
            from tracejit.passes.rolling.make_loop import make_loop  # imported late: few graphs have loops

            try:
                _check_work(nodes[position : position + period], n_operators)
                wiring = wiring_of(recorded, position, period, iterations, MIN_NESTED_ITERATIONS)
                _check_work(nodes[wiring.end - period : wiring.end], n_operators)
                replacement = make_loop(recorded, wiring, renamed, self.rolling.bodies)
            except NotRollable as error:
                self._note_reason(error)
                self.rolling.refused.add(key)
                continue
            (loop,) = [node for node in replacement if node.op is ops.loop]
            run = RolledRun(self.level, position, period, wiring.trip_count)
            loop.attrs["body"].notes.setdefault("runs", []).append(run)
            return replacement, wiring.end
        return nodes[position : position + 1], position + 1

    def _note_reason(self, error: NotRollable) -> None:
        self.rolling.reasons.setdefault(str(error), error.location)


def _check_work(body: list[Node], operators: int) -> None:
    """Raise `NotRollable` for iterations with work for several workers, or whose values fit in registers."""
    check_size(body, LONG_SCALE if operators > LONG else 1)
    if (
        len(body) <= MAX_BODY_NODES
        and operators <= MAX_CHAIN
        and all(n.op.traits & IN_REGISTERS for n in body)
    ):
        raise NotRollable("some kernels compute several iterations each", body[0].location)


def check_size(body: Sequence[Node], scale: int = 1) -> None:
    """Raise `NotRollable` for iterations with enough work for several workers."""
    computing = [n for n in body if n.op not in (ops.view, ops.update, ops.scatter, ops.loop)]
    products = (
        n.op.work([v.type.shape for v in n.inputs + n.outputs], n.attrs) for n in computing if n.op.work
    )
    if (
        sum(v.type.nbytes for n in computing for v in n.outputs) > scale * MAX_BYTES
        or sum(products) > scale * MAX_MULTIPLICATIONS
    ):
        raise NotRollable("an iteration is long enough for several workers", body[0].location)


def _renamed(node: Node, renamed: dict[Value, Value]) -> Node:
    inputs = tuple([renamed.get(v, v) for v in node.inputs])
    return node if inputs == node.inputs else Node(node.op, inputs, node.outputs, node.attrs, node.location)


class _Tokens:
    """Assigns tokens to nodes: nodes with equal tokens may be the same node of two iterations.

    Tokens do not depend on operands and on the offsets of views.
    """

    def __init__(self) -> None:
        self._numbers: dict[Hashable, int] = {}
        self._known: dict[int, tuple[object, int]] = {}  # by identity: an object (kept alive) and its number

    def __call__(self, node: Node) -> int:
        types = tuple([self._number(v.type, _kind) for v in node.inputs])
        key = (node.op, node.location, self._attributes(node), types)
        return self._numbers.setdefault(key, len(self._numbers))

    def _number(self, item: Any, describe: Callable[[Any], Hashable]) -> int:
        """The number of ``describe(item)``, cached by identity: `describe` is slow, and items recur."""
        cached = self._known.get(id(item))
        if cached is None:
            number = self._numbers.setdefault(describe(item), len(self._numbers))
            cached = self._known[id(item)] = item, number
        return cached[1]

    def _attributes(self, node: Node) -> Hashable:
        attrs = node.attrs
        if node.op is ops.view or node.op is ops.update:
            view = attrs["view"]
            return _sizes(view.shape), view.strides
        if node.op is ops.loop:
            return self._number(attrs["body"], self._body), len(attrs["moves"])
        if "shape" in attrs:
            return attributes_key({**attrs, "shape": _sizes(attrs["shape"])})
        return attributes_key(attrs)

    def _body(self, body: Graph) -> Hashable:
        number = {value: i for i, value in enumerate(body.inputs)}
        key: list[Hashable] = [self._number(value.type, _kind) for value in body.inputs]
        for node in body.nodes:
            key += (self(node), *map(number.__getitem__, node.inputs))
            for value in node.outputs:
                number[value] = len(number)
        key += [(number[effect.target], number[effect.value]) for effect in body.effects]
        return tuple(key)


def _kind(type: ArrayType) -> Hashable:
    return type.dtype, type.device, _sizes(type.shape)


def _sizes(shape: Sequence[Any]) -> tuple[int, ...]:
    """Classify extents as 0, 1 or more (2)."""
    return tuple([min(n, 2) if isinstance(n, int) else 2 for n in shape])
