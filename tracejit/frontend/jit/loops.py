"""The looks of a recorded path as steps of its replay: what is launched at each, and which ones are a loop.

Looks at which the rest of the body depends on the same (`recording.ways`) begin rounds, which may have
branches and loops in them. From the first look with such a state to the last one, the path is a `Loop`: its
states, and the ways from each that the body has gone. A replay is in one state, goes the way whose checks
hold, launches its segment, and is in the next state:

    look 1: A, look 2: B, look 3: B, look 4: A, look 5: B, last part
            |--------- ways A to B, B to B, B to A --|

It leaves where no way is known: to the path's last part if that has the answers, else to another path, or the
call is recorded. What comes after the loop finds all that it needs in the variables of its last state.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Hashable
from typing import Any, NamedTuple

from tracejit.frontend.jit import launch as launches
from tracejit.frontend.jit import numbers as asked
from tracejit.frontend.jit.exits import EXACT, ExitLoop, exit_loop
from tracejit.frontend.jit.numbers import Variables
from tracejit.frontend.recording.number import Computed, Source
from tracejit.frontend.recording.recording import Extent
from tracejit.frontend.recording.rounds import State
from tracejit.frontend.recording.segments import Cut, Place, Segment
from tracejit.frontend.recording.storage import Storage
from tracejit.frontend.recording.trace import Trace
from tracejit.frontend.recording.ways import Looks
from tracejit.frontend.signature.arguments import Arguments
from tracejit.frontend.signature.program import (
    ArrayCheck,
    Bind,
    Const,
    Expr,
    Form,
    Loop,
    ManyArrays,
    ReplayProgram,
    Run,
    Standing,
    Var,
    Way,
    attribute,
    meaning,
)
from tracejit.frontend.signature.runtime import element_of


class Region(NamedTuple):
    """Looks `first` to `last` of a path, which are a loop.

    ways:    by the number of a state, in order of first visit: the looks with which different ways begin.
    arrays, numbers: which ones of each state are variables: others are the same whenever a body is in it.
    """

    first: int
    last: int
    ways: dict[int, tuple[int, ...]]
    arrays: dict[int, tuple[int, ...]]
    numbers: dict[int, tuple[int, ...]]


class Told(NamedTuple):
    """What became of rounds, for people.

    path:    the look with which they end.
    segment: the rounds as one launch, if they are one.
    reason:  why they are not.
    """

    path: str
    segment: Segment | None
    reason: str


class Loops:
    """Emits the numbers and looks of a trace; made before results are described: these are in variables of
    loops.

    arrays, numbers: the variables of all that the body knows, at the step that is emitted.
    """

    def __init__(self, trace: Trace, arguments: Arguments, computed: Variables) -> None:
        self.trace, self.arguments = trace, arguments
        self.place: Place | None = None
        self.told: list[Told] = []
        for cut in trace.cuts:
            for storage in cut.made:
                arguments.arrays[storage] = Var("t", storage), None
        self.arrays: ChainMap[Storage, Any] = ChainMap({}, arguments.arrays)
        self.numbers: ChainMap[Any, Var] = ChainMap({}, computed)
        self.regions = {region.first: region for region in regions_of(trace)}
        self.vars: dict[int, dict[int, tuple[Var, ...]]] = {}
        for region in self.regions.values():
            self._enter(region, computed)
        self._meanings: dict[Expr, int] = {}

    def _enter(self, region: Region, computed: Variables) -> None:
        """Make the variables of its states. From its last look on, they hold what the body knows."""
        looks, own = self.trace.looks, {}
        for at in region.ways:
            index = max(i for i in range(region.first, region.last + 1) if looks.at[i] == at)
            state = state_at(looks, index)
            found = [Var("c", state.carriers[k]) for k in region.arrays[at]]
            found += [Var("c", s.value, s.path) for s in (state.sources[k] for k in region.numbers[at])]
            for var in found:
                var.bound = True
            own[at] = tuple(found)
        self.vars[region.first] = own
        for storage, source, var in self._carried(region, region.last):
            if storage is not None:
                self.arrays.maps[0].setdefault(storage, self.arguments.arrays[storage])
                self.arguments.arrays[storage] = var, None
            else:
                self.numbers.maps[0].setdefault(source, computed[source])
                computed[source] = var

    def _carried(self, region: Region, index: int) -> list[tuple[Storage | None, Any, Var]]:
        """What the variables of a state hold at a look: (array, None, variable), (None, number, variable)."""
        looks = self.trace.looks
        state, at = state_at(looks, index), number_at(looks, index)
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
                asked.emit(step, self.numbers, program)
                continue
            index += 1
            self.place = self.trace.segments.place(self.place, step.segment)
            program.steps.append(launches.run_of(step, self.place, self.trace, self.arrays, self.numbers))
            region = self.regions.get(index)
            if region is not None:
                program.steps.append(self._loop(region, program))
                last = self.trace.cuts[region.last]
                while step is not last:
                    step = next(steps)
                index = region.last

    # -- loops -----------------------------------------------------------------------------------------------

    def _loop(self, region: Region, program: ReplayProgram) -> Loop:
        """The loop that begins at a look; what comes after it finds its variables."""
        looks, own = self.trace.looks, self.vars[region.first]
        order = {at: number for number, at in enumerate(region.ways)}
        first = state_at(looks, region.first)
        begins = number_at(looks, region.first)
        before = (
            *(self.arrays[first.carriers[k]][0] for k in region.arrays[begins]),
            *(self.numbers[first.sources[k]] for k in region.numbers[begins]),
        )
        self._meanings = _meanings(program)
        segment = self.trace.cuts[region.first + 1].segment
        self.place = self.trace.segments.place(self.place, segment, self._key(region))
        states = tuple(
            Standing(own[at], tuple(self._way(region, index, order) for index in ways))
            for at, ways in region.ways.items()
        )
        for storage, source, var in self._carried(region, region.last):
            if storage is not None:
                self.arrays.maps[0][storage] = var, None
            else:
                self.numbers.maps[0][source] = var
        return Loop(self.place, states, before, order[number_at(looks, region.last)])

    def _way(self, region: Region, index: int, order: dict[int, int]) -> Way:
        """The way from a look to the next one."""
        looks, cut = self.trace.looks, self.trace.cuts[index + 1]
        then, ends = state_at(looks, index + 1), number_at(looks, index + 1)
        arrays, numbers = self.arrays.new_child(), self.numbers.new_child()
        for storage, source, var in self._carried(region, index):
            if storage is not None:
                arrays[storage] = var, None
            else:
                numbers[source] = var
        program = ReplayProgram()
        for step in looks.between(index):
            asked.emit(step, numbers, program)
        native = self._native(region, index)
        if isinstance(native, ExitLoop):
            self._launch(region, index, native, arrays, numbers, program)
        else:
            self.told.append(Told(cut.source.path, None, native))
            program.steps.append(launches.run_of(cut, None, self.trace, arrays, numbers))
        after = (
            *(arrays[then.carriers[k]][0] for k in region.arrays[ends]),
            *(numbers[then.sources[k]] for k in region.numbers[ends]),
        )
        return Way(tuple(program.steps), order[ends], after)

    def _native(self, region: Region, index: int) -> ExitLoop | str:
        """A way that leads back to its state as many rounds in one launch, or why it is not."""
        looks, at = self.trace.looks, number_at(self.trace.looks, index)
        if looks.at[index + 1] != at:
            return "a round looks at several values, or at one in several states"
        if len(region.ways[at]) > 1:
            return "rounds have branches"
        return exit_loop(self.trace, index, *self._changed(region, index))

    def _changed(self, region: Region, index: int) -> tuple[list[int], list[int]]:
        """Which arrays and numbers of its state a way back to it changes."""
        now, then = state_at(self.trace.looks, index), state_at(self.trace.looks, index + 1)
        at = number_at(self.trace.looks, index)
        arrays = [k for k in region.arrays[at] if now.carriers[k] is not then.carriers[k]]
        numbers = [k for k in region.numbers[at] if now.sources[k] is not then.sources[k]]
        return arrays, numbers

    def _launch(
        self,
        region: Region,
        index: int,
        native: ExitLoop,
        arrays: ChainMap[Storage, Any],
        numbers: ChainMap[Any, Var],
        program: ReplayProgram,
    ) -> None:
        """The steps of many rounds; their results are the arrays and numbers of the state at their end."""
        for source in native.whole:
            program.require(
                f"-{EXACT} < {{}} < {EXACT}", source if isinstance(source, Var) else numbers[source]
            )
        launch = launches.launch_of_rounds(native, arrays, numbers)
        self.told.append(Told(self.trace.cuts[index + 1].source.path, native.segment, ""))
        made = [Var("t", Storage(value.type)) for value in native.segment.graph.outputs]
        changed_arrays, changed_numbers = self._changed(region, index)
        found = [Var("l") for _ in changed_numbers]
        for var in (*made, found[0]):
            var.bound = True
        program.steps.append(Run(None, launch, tuple(made), found[0]))
        for var, storage in zip(found[1:], made[1:], strict=False):
            program.define(var, Form("{}({})", Const(element_of(storage.value.type.dtype)), storage))
        then = state_at(self.trace.looks, index + 1)
        for k, var in zip(changed_numbers, found, strict=True):
            numbers[then.sources[k]] = var
        for k, var in zip(changed_arrays, made[len(found) :], strict=True):
            arrays[then.carriers[k]] = var, None

    def _key(self, region: Region) -> Hashable:
        """Equal for loops of two paths that are in the same states, keep the same, and go the same ways."""
        looks = self.trace.looks
        order = {at: number for number, at in enumerate(region.ways)}
        kept: list[Any] = []
        for at in order:
            state = state_at(looks, looks.at.index(at, region.first))
            kept += [c for k, c in enumerate(state.carriers) if k not in region.arrays[at]]
            kept += [self.numbers[s] for k, s in enumerate(state.sources) if k not in region.numbers[at]]
        ways = tuple(
            (order[at], order[number_at(looks, index + 1)], self._meaning(looks.described[index]))
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
    """What the variables mean that a program has bound so far."""
    known: dict[Expr, int] = {}
    for var, form in program.copies:
        known[var] = meaning(form, known)
    for step in program.steps:
        if isinstance(step, Bind):
            known[step.var] = meaning(step.value, known)
        elif isinstance(step, ArrayCheck):
            known[step.storage] = meaning(attribute(step.array, "_storage"), known)
        elif isinstance(step, Run | Loop):
            made = (*step.made, step.found) if isinstance(step, Run) else step.states[step.ends].vars
            known |= {var: hash((id(step.place), k)) for k, var in enumerate(made)}
        elif isinstance(step, ManyArrays):
            for kind, vars in (("array", step.arrays), ("storage", step.storages)):
                held = meaning(step.container, known)
                known |= {var: hash((kind, held, k)) for k, var in enumerate(vars)}
    return known


# -- which looks are loops -----------------------------------------------------------------------------------


def state_at(looks: Looks, index: int) -> State:
    """The state at a look of a loop."""
    state = looks.states[index]
    assert state is not None
    return state


def number_at(looks: Looks, index: int) -> int:
    """The number of that state."""
    number = looks.at[index]
    assert number is not None
    return number


def regions_of(trace: Trace) -> list[Region]:
    """The loops of a path, in order."""
    looks = trace.looks
    last = {at: index for index, at in enumerate(looks.at) if at is not None}
    found, index = [], 0
    while index < len(looks.at):
        first, end = index, _end(looks, index, last)
        if end > first and _is_complete(trace, first, end):
            found.append(_region(looks, first, end))
            index = end
        index += 1
    return found


def _end(looks: Looks, first: int, last: dict[int, int]) -> int:
    """The last look of the loop that begins at a look; that itself, if there is none."""
    end = index = first
    while index <= end and index < len(looks.at):
        at = looks.at[index]
        if at is None or (index > first and looks.described[index - 1] is None):
            return first  # the way there uses what nobody knows
        end = max(end, last[at])
        index += 1
    return end


def _region(looks: Looks, first: int, last: int) -> Region:
    """The ways between the looks, and what they change."""
    ways: dict[int, tuple[int, ...]] = {}
    known = set()
    for index in range(first, last + 1):
        at = number_at(looks, index)
        ways.setdefault(at, ())
        if index < last and (way := (at, looks.at[index + 1], looks.described[index])) not in known:
            known.add(way)
            ways[at] = (*ways[at], index)
    kept = _kept(looks, first, last)
    arrays, numbers = {}, {}
    for at in ways:
        state = state_at(looks, looks.at.index(at, first))
        arrays[at] = tuple(k for k in range(len(state.carriers)) if ("array", at, k) not in kept)
        numbers[at] = tuple(k for k in range(len(state.sources)) if ("number", at, k) not in kept)
    return Region(first, last, ways, arrays, numbers)


def _kept(looks: Looks, first: int, last: int) -> set[Any]:
    """Which arrays and numbers of the states are what they were before the loop, whatever ways are gone."""
    objects: dict[Any, set[Any]] = {}
    for index in range(first, last + 1):
        for place, held in _places(looks, index).items():
            objects.setdefault(place, set()).add(held)
    inside = _made_inside(looks, first, last)
    kept = {
        place: next(iter(held))
        for place, held in objects.items()
        if len(held) == 1 and inside.isdisjoint(held)
    }
    while True:
        gone = set()
        for index in range(first, last):
            now = {held: place for place, held in _places(looks, index).items()}
            for place, held in _places(looks, index + 1).items():
                if place in kept and held in now and now[held] not in kept:
                    gone.add(place)
        if not gone:
            return set(kept)
        for place in gone:
            del kept[place]


def _places(looks: Looks, index: int) -> dict[tuple[str, int, int], Any]:
    """The arrays and numbers of the state at a look."""
    state, at = state_at(looks, index), number_at(looks, index)
    arrays: dict[Any, Any] = {("array", at, k): storage for k, storage in enumerate(state.carriers)}
    return arrays | {("number", at, k): source for k, source in enumerate(state.sources)}


def _made_inside(looks: Looks, first: int, last: int) -> set[Any]:
    """What is made, computed or found after look `first`, up to look `last`."""
    cuts = looks.cuts[first + 1 : last + 1]
    made: set[Any] = {storage for cut in cuts for storage in cut.made} | {cut.source for cut in cuts}
    return made.union(*({s for s in looks.between(i) if isinstance(s, Computed)} for i in range(first, last)))


def _is_complete(trace: Trace, first: int, last: int) -> bool:
    """Whether what comes after the loop finds in its last state what it needs."""
    looks = trace.looks
    state = state_at(looks, last)
    gone = _made_inside(looks, first, last) - {*state.carriers, *state.sources}
    for bound in (*trace.bound, *(b for cut in trace.cuts[last + 1 :] for b in cut.bound)):
        if (bound.storage if isinstance(bound, Extent) else bound.source) in gone:
            return False
    steps = [step for step in looks.since(last) if not isinstance(step, Cut)]
    return not any(isinstance(o, Computed | Source) and o in gone for step in steps for o in step.operands)
