"""The looks of a recorded path as steps of its replay: what is launched at each, and which ones are a loop.

Looks at which the rest of the body depends on the same (`recording.loops.ways`) begin rounds, which may have
branches and loops in them. From the first look with such a state to the last one, the path is a `StateLoop`:
its states, and the ways from each that the body has gone. A replay is in one state, goes the way whose checks
hold, launches its segment, and is in the next state:

    look 1: A, look 2: B, look 3: B, look 4: A, look 5: B, last part
            |--------- ways A to B, B to B, B to A --|

It leaves where no way is known: to the path's last part if that has the answers, else to another path, or the
call is recorded. What comes after the loop finds all that it needs in the variables of its last state.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple

from tracejit.frontend.jit import launch_records
from tracejit.frontend.jit import number_variables as number_steps
from tracejit.frontend.jit.carried import places_of
from tracejit.frontend.jit.exit_numbers import EXACT
from tracejit.frontend.jit.exits import ExitLoop, exit_loop
from tracejit.frontend.jit.loop_regions import LoopRegion, regions_of
from tracejit.frontend.jit.number_variables import Variables
from tracejit.frontend.recording.segments import Cut, PathPlace, Segment
from tracejit.frontend.recording.sources import Question
from tracejit.frontend.recording.storage import Storage
from tracejit.frontend.recording.trace import Trace
from tracejit.frontend.signature.arguments import Arguments
from tracejit.frontend.signature.expressions import (
    Const,
    Expr,
    GetItem,
    Literal,
    Result,
    Var,
    attribute,
    meaning,
)
from tracejit.frontend.signature.program import (
    ArrayCheck,
    Bind,
    ManyArrays,
    ReplayProgram,
    Rule,
    RunSegment,
    Standing,
    StateLoop,
    Step,
    Transition,
)
from tracejit.frontend.signature.runtime import element_of


class LoopReport(NamedTuple):
    """The way in which rounds run, for people.

    path:    the look with which they end.
    segment: the rounds as one launch, if they are one.
    reason:  why they are not.
    """

    path: str
    segment: Segment | None
    reason: str


class LookEmitter:
    """Emits the numbers and looks of a trace.

    arrays, numbers: the variables of all that the body knows, at the step that is emitted. Results are
                     described before the steps are emitted, so `introduce` makes those of the end first.
    """

    def __init__(self, trace: Trace, arguments: Arguments, computed: Variables) -> None:
        self.trace, self.graph = trace, trace.looks.graph
        self.place: PathPlace | None = None
        self.reports: list[LoopReport] = []
        self._arrays_at_end, self._numbers_at_end = arguments.arrays, computed
        self.arrays: ChainMap[Storage, Any] = ChainMap({}, arguments.arrays)
        self.numbers: ChainMap[Any, Var] = ChainMap({}, computed)
        self.regions = {region.first: region for region in regions_of(trace)}
        self.vars: dict[int, dict[int, tuple[Var, ...]]] = {}
        self._meanings: dict[Expr, int] = {}
        self._natives: dict[tuple[int, int | None], ExitLoop | str] = {}

    def introduce(self) -> None:
        """Add variables for what segments make to the caller's arrays; variables of states of loops take the
        places of what its arrays and numbers were known as.
        """
        for cut in self.trace.looks.cuts:
            for storage in cut.made:
                self._arrays_at_end[storage] = Var("t", storage), None
        for region in self.regions.values():
            self._enter(region)

    def _enter(self, region: LoopRegion) -> None:
        """Make the variables of its states. From its last look on, they hold what the body knows."""
        graph, own = self.graph, {}
        for at in region.ways:
            index = max(i for i in range(region.first, region.last + 1) if graph.at[i] == at)
            state = graph.state(index)
            found = [Var("c", state.carriers[k]) for k in region.arrays[at]]
            found += [Var("c", s.value, s.path) for s in (state.sources[k] for k in region.numbers[at])]
            for var in found:
                var.bound = True
            own[at] = tuple(found)
        self.vars[region.first] = own
        for storage, source, var in self._carried(region, region.last):
            if storage is not None:
                self.arrays.maps[0].setdefault(storage, self._arrays_at_end[storage])
                self._arrays_at_end[storage] = var, None
            else:
                self.numbers.maps[0].setdefault(source, self._numbers_at_end[source])
                self._numbers_at_end[source] = var

    def _carried(self, region: LoopRegion, index: int) -> list[tuple[Storage | None, Any, Var]]:
        """The variables of a state, each with the array or the number that it holds at a look."""
        graph = self.graph
        state, at = graph.state(index), graph.number(index)
        arrays = [(state.carriers[k], None) for k in region.arrays[at]]
        numbers = [(None, state.sources[k]) for k in region.numbers[at]]
        pairs = zip([*arrays, *numbers], self.vars[region.first][at], strict=True)
        return [(storage, source, var) for (storage, source), var in pairs]

    # -- steps -----------------------------------------------------------------------------------------------

    def emit(self, program: ReplayProgram) -> None:
        """Compute what the body computed of its numbers, launch the segments that looks ended, and check what
        it looked at, in its order.
        """
        steps = iter(self.trace.numbers.steps)
        index = -1
        for step in steps:
            if not isinstance(step, Cut):
                number_steps.emit(step, self.numbers, program)
                continue
            index += 1
            self.place = self.trace.looks.segments.place(self.place, step.segment)
            program.steps.append(
                launch_records.run_of(step, self.place, self.trace, self.arrays, self.numbers)
            )
            region = self.regions.get(index)
            if region is not None:
                program.steps.append(self._loop(region, program))
                last = self.trace.looks.cuts[region.last]
                while step is not last:
                    step = next(steps)
                index = region.last

    # -- loops -----------------------------------------------------------------------------------------------

    def _loop(self, region: LoopRegion, program: ReplayProgram) -> StateLoop:
        """The loop that begins at a look; what comes after it finds its variables."""
        graph, own = self.graph, self.vars[region.first]
        order = {at: number for number, at in enumerate(region.ways)}
        first = graph.state(region.first)
        begins = graph.number(region.first)
        before = (
            *(self.arrays[first.carriers[k]][0] for k in region.arrays[begins]),
            *(self.numbers[first.sources[k]] for k in region.numbers[begins]),
        )
        self._meanings = _meanings(program)
        segment = self.trace.looks.cuts[region.first + 1].segment
        self.place = self.trace.looks.segments.place(self.place, segment, self._key(region))
        states = tuple(
            Standing(own[at], tuple(self._way(region, index, order) for index in ways))
            for at, ways in region.ways.items()
        )
        for storage, source, var in self._carried(region, region.last):
            if storage is not None:
                self.arrays.maps[0][storage] = var, None
            else:
                self.numbers.maps[0][source] = var
        return StateLoop(self.place, states, before, order[graph.number(region.last)])

    def _way(self, region: LoopRegion, index: int, order: dict[int, int]) -> Transition:
        """The way from a look to the next one; or rounds, the first one of which goes it."""
        graph, cut = self.graph, self.trace.looks.cuts[index + 1]
        then, ends = graph.state(index + 1), graph.number(index + 1)
        arrays, numbers = self._known_at(region, index)
        program = ReplayProgram()
        for step in graph.between(index):
            number_steps.emit(step, numbers, program)
        native = self._native(region, index)
        if isinstance(native, ExitLoop):
            self.reports.append(LoopReport(cut.source.path, native.segment, ""))
            return self._rounds(region, native.beginning(index), order, program)
        if native:
            self.reports.append(LoopReport(cut.source.path, None, native))
        program.steps.append(launch_records.run_of(cut, None, self.trace, arrays, numbers))
        after = (
            *(arrays[then.carriers[k]][0] for k in region.arrays[ends]),
            *(numbers[then.sources[k]] for k in region.numbers[ends]),
        )
        return Transition(tuple(program.steps), order[ends], {order[ends]: after})

    def _known_at(self, region: LoopRegion, index: int) -> tuple[ChainMap[Storage, Any], ChainMap[Any, Var]]:
        """The variables of what is known at a look in the loop."""
        arrays, numbers = self.arrays.new_child(), self.numbers.new_child()
        for storage, source, var in self._carried(region, index):
            if storage is not None:
                arrays[storage] = var, None
            else:
                numbers[source] = var
        return arrays, numbers

    def _native(self, region: LoopRegion, index: int) -> ExitLoop | str:
        """Rounds as one launch, the first one of which goes the way from a look; or why there are none.
        Rounds go all ways of the loop, and begin in the state where it begins; if this cannot be, those from
        a state back to it.
        """
        at, first = self.graph.number(index), region.first
        known = self._exit_loop(region, None, first)
        if isinstance(known, ExitLoop):
            return known if at == self.graph.number(first) else ""
        if self.graph.at[index + 1] != at or len(region.ways) == 1:
            return known
        return self._exit_loop(region, at, index)

    def _exit_loop(self, region: LoopRegion, at: int | None, head: int) -> ExitLoop | str:
        """The native loop of all ways, or of those from a state back to it, made once."""
        key = region.first, at
        if key not in self._natives:
            ways = self._in_order(region, [*region.ways] if at is None else [at])
            ways = [i for i in ways if at is None or self.graph.at[i + 1] == at]
            self._natives[key] = exit_loop(self.trace, region, ways, head)
        return self._natives[key]

    def _in_order(self, region: LoopRegion, states: Sequence[int]) -> list[int]:
        """The ways from states, in an order that their answers decide: so paths that went them in another
        order have the same native loop.
        """
        graph = self.graph

        def answers(index: int) -> list[str]:
            return [repr(step.value) for step in graph.between(index) if isinstance(step, Question)]

        return [index for at in states for index in sorted(region.ways[at], key=answers)]

    def _rounds(
        self, region: LoopRegion, native: ExitLoop, order: dict[int, int], program: ReplayProgram
    ) -> Transition:
        """Append the launch of rounds; what it makes are the arrays and numbers of the state at their end."""
        arrays, numbers = self._known_at(region, native.head)
        for source in native.integers:
            number = source if isinstance(source, Var) else numbers[source]
            program.require(Rule.WITHIN, number, Literal(EXACT))
        launch = launch_records.launch_of_rounds(native, arrays, numbers)
        made = [Var("t", Storage(value.type)) for value in native.segment.graph.outputs]
        many, slots = len(native.states) > 1, native.slots
        held: dict[int, Var] = {
            slots.of[place]: numbers[each] if not place.is_array else arrays[each][0]
            for place, each in slots.held(native.head).items()
        }
        found = Var("l")
        for var in (*made, found):
            var.bound = True
        program.steps.append(RunSegment(None, launch, tuple(made), found))
        for slot, output in native.outputs.items():
            held[slot] = made[output]
            if not slots.slots[slot][0].is_array:
                held[slot] = found
                if output > 0:
                    held[slot] = Var("l")
                    element = Const(element_of(made[output].value.type.dtype))
                    program.define(held[slot], Result(element, made[output]))
        after = {
            order[at]: tuple(held[slots.of[place]] for place in places_of(region, at)) for at in native.states
        }
        state: int | Var = order[native.states[0]]
        if many:
            places = [order[at] for at in native.states]
            state = Var("s")
            program.define(state, GetItem(Literal(tuple(places)), found))
        return Transition(tuple(program.steps), state, after)

    def _key(self, region: LoopRegion) -> Hashable:
        """Equal for loops of two paths that are in the same states, keep the same, and go the same ways."""
        graph = self.graph
        order = {at: number for number, at in enumerate(region.ways)}
        kept: list[Any] = []
        for at in order:
            state = graph.state(graph.at.index(at, region.first))
            kept += [c for k, c in enumerate(state.carriers) if k not in region.arrays[at]]
            kept += [self.numbers[s] for k, s in enumerate(state.sources) if k not in region.numbers[at]]
        ways = tuple(
            (order[at], order[graph.number(index + 1)], self._meaning(graph.way_keys[index]))
            for at in order
            for index in region.ways[at]
        )
        vars = tuple((region.arrays[at], region.numbers[at]) for at in order)
        return ways, vars, self._meaning(tuple(kept))

    def _meaning(self, part: Any) -> Hashable:
        """A part of what describes a way, as what it means in any path."""
        if isinstance(part, tuple):
            return tuple(map(self._meaning, part))
        if isinstance(part, Storage):
            return meaning(self.arrays[part][0], self._meanings)
        return meaning(part, self._meanings) if isinstance(part, Expr) else part


def _meanings(program: ReplayProgram) -> dict[Expr, int]:
    """Meanings of the variables that a program has bound so far."""
    known: dict[Expr, int] = {}
    for var, value in program.copies:
        known[var] = meaning(value, known)
    for step in program.steps:
        note_meaning(step, known)
    return known


def note_meaning(step: Step, known: dict[Expr, int]) -> None:
    """Add the meanings of the variables that a step binds: two that are computed alike mean the same."""
    if isinstance(step, Bind):
        known[step.var] = meaning(step.value, known)
    elif isinstance(step, ArrayCheck):
        known[step.storage] = meaning(attribute(step.array, "_storage"), known)
    elif isinstance(step, RunSegment | StateLoop):
        made = (*step.made, step.found) if isinstance(step, RunSegment) else step.states[step.ends].vars
        known |= {var: hash((id(step.place), k)) for k, var in enumerate(made)}
    elif isinstance(step, ManyArrays):
        for kind, vars in (("array", step.arrays), ("storage", step.storages)):
            held = meaning(step.container, known)
            known |= {var: hash((kind, held, k)) for k, var in enumerate(vars)}
