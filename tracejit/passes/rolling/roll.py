"""The pass `roll`: runs of equal rounds in a recorded graph become `loop` nodes.

    for i in range(1000):            %3 = loop(%count, %x, %b) [moves=..., rounds=1000] graph {
        x = tanh(x + b[i])          =>   %2 = add(%0, %1)
                                         %3 = tanh(%2)
                                         %0 <- %3 }

A recording is a row of nodes. Where it is periodic (`periods`: the same operators, types, attributes and
lines, whatever the offsets of views), `rounds_of` proves how many rounds are wired alike, and what each
operand is (see `Wiring`); `make_loop` writes the node. Short periods come first, so that inner loops are
rolled before outer ones; the pass is repeated until nothing is found.

A run that is too short, or has rounds of much work, stays unrolled: its tasks run on all workers. So do
rounds that are not proved equal. The recorded graph's note ``unrolled`` says why.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from typing import Any, NamedTuple

from tracejit import ops
from tracejit.ir.graph import Effect, Graph, Node, Value
from tracejit.ir.op import Trait
from tracejit.ir.types import ArrayType
from tracejit.passes.cse import attributes_key
from tracejit.passes.rolling.make_loop import make_loop
from tracejit.passes.rolling.periods import Periods
from tracejit.passes.rolling.wiring import RecordedGraph, Unlike, WireKind, rounds_of

ROUNDS = 16
"""The least rounds of a loop: fewer are cheap to compile, and may fuse with one another."""

LEAST = 3
"""The least rounds of a loop of which another one has `ROUNDS`."""

PART, PARTS = 6, 256
"""Nested loops whose rounds are recorded alike are one run, but places move evenly in the rounds of an inner
loop only. If a run has more than `PARTS` operators, each of its parts with at least `PART` rounds is rolled.
"""

SHIFTS = 64
"""The most operators that are tried as the first one of a round."""

WORK = 1 << 18
"""The most bytes that the results of a round may have: a loop runs on one thread."""

PRODUCTS = 1 << 19
"""The most multiplications of products in a round."""

LONG, LONG_SCALE = 2000, 64
"""Operators beyond which a first call takes seconds: they are rolled up to `LONG_SCALE` times the work."""

REGISTERS = {Trait.ELEMENTWISE, Trait.VIEW}
"""Operators of these traits join kernels whose values stay in registers."""

SHORT = 16
"""The most operators, all elementwise, of rounds that share a kernel with others."""

CHAIN = 1024
"""The most operators of such rounds that stay a few kernels; more are faster compiled as a loop."""

DEPTH = 6
"""The most walks over a graph: loops nest less deeply."""


class LoopPlace(NamedTuple):
    """The place of a loop: repetitions of the pass before, position among the nodes, nodes of a round."""

    level: int
    start: int
    period: int
    rounds: int


Cuts = Collection[tuple[int, int]]
"""The ends of runs: (repetitions of the pass before, position among the nodes)."""


def roll(graph: Graph, notes: dict[str, Any] | None = None) -> Graph:
    """`graph` with runs of equal rounds as loops.

    `notes`: those of the recording, if that is another graph. ``cuts`` in it says where plans of rounds were
    found to differ, ``ranges`` which loops over `tj.range` were recorded round by round; ``unrolled`` is set
    to what was not rolled, and why.
    """
    rolling = _Rolling()
    notes = graph.notes if notes is None else notes
    rolling.reasons |= notes.get("ranges", {})
    cuts: Cuts = notes.get("cuts", ())
    for level in range(DEPTH):
        if len(graph.nodes) < ROUNDS:
            break
        refused = len(rolling.refused)
        rolled = _Level(graph, rolling, level, cuts).run()
        if rolled is graph and len(rolling.refused) == refused:
            break
        graph = rolled
    notes["unrolled"] = rolling.reasons
    return graph


class _Rolling:
    """State that walks over a graph share. refused: the tokens of rounds that are not rolled."""

    def __init__(self) -> None:
        self.bodies: dict[Hashable, Graph] = {}
        self.reasons: dict[str, str | None] = {}
        self.tokens = _Tokens()
        self.refused: set[tuple[int, ...]] = set()


class _Level:
    """One walk over a graph, which rolls the innermost runs.

    known: the tokens of the rounds of long runs, with the number of operators in all of them. Shorter runs of
    the same rounds are rolled, too: they are in the rounds of another loop.
    """

    def __init__(
        self,
        graph: Graph,
        rolling: _Rolling,
        level: int,
        cuts: Cuts,
    ):
        self.graph, self.rolling, self.level = graph, rolling, level
        self.constants = [node for node in graph.nodes if node.op is ops.constant]
        self.nodes = [node for node in graph.nodes if node.op is not ops.constant]
        self.recorded = RecordedGraph(graph, self.nodes)
        self.tokens = [rolling.tokens(node) for node in self.nodes]
        self.periods = Periods(self.tokens)
        self.cuts = sorted(position for at, position in cuts if at == level)
        self.known: dict[tuple[int, ...], int] = {}
        self.begin: set[int] = set()  # the tokens that these rounds begin with
        # By period: from where to where rounds are not alike, and where several as one are worth no try.
        self.failed: dict[int, tuple[int, int, int]] = {}
        self.none: dict[int, int] = {}  # by position: shorter rounds do not begin a run there

    def run(self) -> Graph:
        """The graph with loops; itself if there are none."""
        self._survey()
        if not self.known:
            return self.graph
        new: list[Node] = list(self.constants)
        renamed: dict[Value, Value] = {}
        position, found = 0, False
        while position < len(self.nodes):
            made, end = self._made(position, renamed)
            new += [_renamed(node, renamed) for node in made]
            found = found or end > position + 1
            position = end
        if not found:
            return self.graph
        graph = self.graph
        return Graph(
            graph.inputs,
            tuple(new),
            tuple(renamed.get(v, v) for v in graph.outputs),
            tuple(Effect(e.target, renamed.get(e.value, e.value)) for e in graph.effects),
        )

    def _survey(self) -> None:
        """Find the rounds of long runs that are wired alike."""
        position = 0
        while found := self._first_run(position, len(self.nodes), len(self.nodes)):
            key, operators, position = found
            self.known[key] = self.known.get(key, 0) + operators
            self.begin.add(key[0])

    def _first_run(self, position: int, end: int, below: int) -> tuple[tuple[int, ...], int, int] | None:
        """The first innermost run of rounds of less than `below` operators that begins before `end`: the
        tokens of a round, the operators of the run, and where it ends.
        """
        for start in range(position, end):
            if self.none.get(start, 0) >= below:
                continue
            # A failure at every start of a round is one in all of the run, also of several rounds as one: in
            # long runs, whose parts may be rolled, these are tried, but in the first round only.
            barred = {p: tried for p, (first, last, tried) in self.failed.items() if first <= start < last}
            hopeless = [p for p, tried in barred.items() if start >= tried]
            for period, rounds in self._runs(start, ROUNDS, min([below, *hopeless])):
                if period in barred:
                    continue
                inner = self._first_run(start, start + period, period // 2 + 1)
                if inner is not None:
                    return inner
                try:
                    begin = self._start(start, period, rounds)
                except Unlike as error:
                    self._tell(error)
                    is_long = period * rounds > PARTS
                    self.failed[period] = start, start + period * rounds, start + period * is_long
                    if is_long:
                        continue
                    break
                key = tuple(self.tokens[begin : begin + period])
                if key not in self.rolling.refused:
                    return key, rounds * period, start + rounds * period
                self.failed[period] = start, start + period * rounds, start
                break
            self.none[start] = below
        return None

    def _start(self, position: int, period: int, rounds: int) -> int:
        """The first node of a round in a run: where known rounds begin, else where the fewest values are
        carried.
        """
        shifts = min(period, SHIFTS)
        for start in range(position, position + shifts):
            if self.tokens[start] in self.begin and tuple(self.tokens[start : start + period]) in self.known:
                return start
        several = min(rounds - 1, ROUNDS) if rounds > LEAST else rounds
        errors: list[Unlike] = []
        for least in (several, PART) if rounds * period > PARTS else (several,):
            counts = {}
            for shift in range(shifts):
                try:
                    wiring = rounds_of(self.recorded, position + shift, period, least, least)
                except Unlike as unlike:
                    errors.append(unlike)
                    continue
                carried = {
                    s.place for sources in wiring.sources for s in sources if s.kind is WireKind.CARRIED
                }
                counts[shift] = len(carried)
            if counts:
                return position + min(counts, key=lambda shift: (counts[shift], shift))
        raise errors[0]

    def _runs(self, position: int, least: int, below: int) -> Iterator[tuple[int, int]]:
        """(period, rounds) of the runs from a position to the next cut."""
        cut = bisect.bisect_right(self.cuts, position)
        for period, rounds in self.periods.at(position, least, below):
            if cut < len(self.cuts):
                rounds = min(rounds, (self.cuts[cut] - position) // period)
            if rounds >= least:
                yield period, rounds
            elif least == ROUNDS:
                self._tell(Unlike("rounds need plans of their own", self.nodes[position].location))

    def _made(self, position: int, renamed: dict[Value, Value]) -> tuple[Sequence[Node], int]:
        """The nodes that replace those from a position on, and where the next begin."""
        nodes = self.nodes
        runs = self._runs(position, LEAST, len(nodes)) if self.tokens[position] in self.begin else ()
        for period, rounds in runs:
            key = tuple(self.tokens[position : position + period])
            total = self.known.get(key)
            if total is None:
                continue
            try:
                _check_work(nodes[position : position + period], total)
                wiring = rounds_of(self.recorded, position, period, rounds, LEAST)
                _check_work(nodes[wiring.end - period : wiring.end], total)
                made = make_loop(self.recorded, wiring, renamed, self.rolling.bodies)
            except Unlike as error:
                self._tell(error)
                self.rolling.refused.add(key)
                continue
            (loop,) = [node for node in made if node.op is ops.loop]
            run = LoopPlace(self.level, position, period, wiring.rounds)
            loop.attrs["body"].notes.setdefault("runs", []).append(run)
            return made, wiring.end
        return nodes[position : position + 1], position + 1

    def _tell(self, error: Unlike) -> None:
        self.rolling.reasons.setdefault(str(error), error.location)


def _check_work(body: list[Node], operators: int) -> None:
    """Refuse rounds with work for several workers, and those whose values are better in registers."""
    check_size(body, LONG_SCALE if operators > LONG else 1)
    if len(body) <= SHORT and operators <= CHAIN and all(n.op.traits & REGISTERS for n in body):
        raise Unlike("some kernels compute several rounds each", body[0].location)


def check_size(body: Sequence[Node], scale: int = 1) -> None:
    """Refuse rounds with work for several workers."""
    made = [n for n in body if n.op not in (ops.view, ops.update, ops.loop)]
    products = (n.op.work([v.type.shape for v in n.inputs + n.outputs], n.attrs) for n in made if n.op.work)
    if sum(v.type.nbytes for n in made for v in n.outputs) > scale * WORK or sum(products) > scale * PRODUCTS:
        raise Unlike("a round is long enough for several workers", body[0].location)


def _renamed(node: Node, renamed: dict[Value, Value]) -> Node:
    inputs = tuple([renamed.get(v, v) for v in node.inputs])
    return node if inputs == node.inputs else Node(node.op, inputs, node.outputs, node.attrs, node.location)


class _Tokens:
    """Numbers nodes: equal numbers may be one node of two rounds, apart from wiring and offsets."""

    def __init__(self) -> None:
        self._numbers: dict[Hashable, int] = {}
        self._known: dict[int, tuple[object, int]] = {}  # by identity: an object and its number

    def __call__(self, node: Node) -> int:
        types = tuple([self._number(v.type, _kind) for v in node.inputs])
        key = (node.op, node.location, self._attributes(node), types)
        return self._numbers.setdefault(key, len(self._numbers))

    def _number(self, item: Any, describe: Callable[[Any], Hashable]) -> int:
        """The number of what `describe` says of `item`: it takes long, and many nodes have one type."""
        found = self._known.get(id(item))
        if found is None:
            number = self._numbers.setdefault(describe(item), len(self._numbers))
            found = self._known[id(item)] = item, number
        return found[1]

    def _attributes(self, node: Node) -> Hashable:
        attrs = node.attrs
        if node.op is ops.view or node.op is ops.update:
            seen = attrs["view"]
            return _sizes(seen.shape), seen.strides
        if node.op is ops.loop:
            return self._number(attrs["body"], self._body), len(attrs["moves"])
        if "shape" in attrs:
            return attributes_key({**attrs, "shape": _sizes(attrs["shape"])})
        return attributes_key(attrs)

    def _body(self, body: Graph) -> Hashable:
        number = {value: i for i, value in enumerate(body.inputs)}
        parts: list[Hashable] = [self._number(value.type, _kind) for value in body.inputs]
        for node in body.nodes:
            parts += (self(node), *map(number.__getitem__, node.inputs))
            for value in node.outputs:
                number[value] = len(number)
        parts += [(number[effect.target], number[effect.value]) for effect in body.effects]
        return tuple(parts)


def _kind(type: ArrayType) -> Hashable:
    return type.dtype, type.device, _sizes(type.shape)


def _sizes(shape: Sequence[Any]) -> tuple[int, ...]:
    """Extents by class: no element, one, or several (2)."""
    return tuple([min(n, 2) if isinstance(n, int) else 2 for n in shape])
