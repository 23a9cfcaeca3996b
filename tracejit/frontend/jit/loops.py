"""The looks of a recorded path as steps of its replay: what is launched at each, and which rounds are a loop.

Two looks at which the rest of the body depends on the same (`recording.rounds`) begin equal rounds, as long
as what is done and asked between them is the same, too. Such rounds become one `Loop`:

    look 1; (err > tol) is True; look 2; (err > tol) is True; look 3; (err > tol) is False; last part
            |------ a round ---------|   |------ again ------|

Whatever comes after the loop finds what the last round left in the variables of its state. What a round
made and did not leave there is not kept; if a later part needs it, the rounds stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, NamedTuple

from tracejit.frontend.jit import launch as launches
from tracejit.frontend.jit import numbers
from tracejit.frontend.jit.exits import EXACT, ExitLoop, exit_loop
from tracejit.frontend.recording.draws import DrawCounter, DrawKey
from tracejit.frontend.recording.number import Computed, Looked, Source
from tracejit.frontend.recording.recording import Bound, Extent, RuntimeNumber
from tracejit.frontend.recording.segments import Cut, Place, Segment
from tracejit.frontend.recording.storage import Storage
from tracejit.frontend.recording.trace import Trace
from tracejit.frontend.signature.arguments import Arguments
from tracejit.frontend.signature.program import Const, Expr, Form, Loop, ReplayProgram, Run, Step, Var
from tracejit.frontend.signature.runtime import element_of


class Rounds(NamedTuple):
    """Equal rounds, from look `first` to look `last`, and what describes them.

    arrays, numbers: which ones of the state each round changes.
    """

    first: int
    last: int
    key: Hashable
    arrays: tuple[int, ...]
    numbers: tuple[int, ...]


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
    """Emits the looks of a trace; made before results are described: these are in variables of loops."""

    def __init__(self, trace: Trace, arguments: Arguments, computed: dict[Computed | Source, Var]) -> None:
        self.trace, self.arguments, self.computed = trace, arguments, computed
        self.place: Place | None = None
        self.told: list[Told] = []
        self.until: Cut | None = None  # the last look of the rounds that are being left out
        for cut in trace.cuts:
            for storage in cut.made:
                arguments.arrays[storage] = Var("t", storage), None
        self.begins = {r.first: r for r in _all_rounds(trace)}
        self.earlier: dict[int, tuple[dict[Storage, Any], dict[Any, Var]]] = {}  # what each has replaced
        self.states: dict[int, tuple[Var, ...]] = {}
        for rounds in self.begins.values():
            self._enter(rounds)

    def _enter(self, rounds: Rounds) -> None:
        """From the last of the rounds on, what they leave is found in the variables of the loop."""
        state = self.trace.cuts[rounds.last].state
        assert state is not None
        self.earlier[rounds.first] = (
            {state.carriers[k]: self.arguments.arrays[state.carriers[k]] for k in rounds.arrays},
            {state.sources[k]: self.computed[state.sources[k]] for k in rounds.numbers},
        )
        arrays = [Var("c", state.carriers[k]) for k in rounds.arrays]
        numbers = [
            Var("c", self.computed[s].value, s.path) for s in (state.sources[k] for k in rounds.numbers)
        ]
        for k, var in zip(rounds.arrays, arrays, strict=True):
            self.arguments.arrays[state.carriers[k]] = var, None
        for k, var in zip(rounds.numbers, numbers, strict=True):
            self.computed[state.sources[k]] = var
        for var in (*arrays, *numbers):
            var.bound = True
        self.states[rounds.first] = (*arrays, *numbers)

    def emit(self, step: Any, program: ReplayProgram) -> bool:
        """Emit a step of the trace if it is a look, or belongs to a loop; whether it was one."""
        if self.until is not None:
            if step is self.until:
                self.until = None
                self._begin(self.trace.cuts.index(step), program)
            return True
        if not isinstance(step, Cut):
            return False
        self.place = self.trace.segments.place(self.place, step.segment)
        run = self._run(step, self.place, self.computed)
        program.steps.append(run)
        self._begin(self.trace.cuts.index(step), program)
        return True

    def _run(self, cut: Cut, place: Place | None, computed: dict[Any, Var]) -> Run:
        run = launches.run_of(cut, place, self.trace, self.arguments, computed)
        for var in (*run.made, run.found):
            var.bound = True
        return run

    def _begin(self, index: int, program: ReplayProgram) -> None:
        """Emit the loop that begins at a look, if one does."""
        rounds = self.begins.get(index)
        if rounds is None:
            return
        cuts, trace = self.trace.cuts, self.trace
        first, second = cuts[index].state, cuts[index + 1].state
        assert first is not None
        assert second is not None
        state, kept = self.states[index], self.arguments.arrays
        arrays, computed = dict(kept), dict(self.computed)
        for begin, (places, variables) in reversed(self.earlier.items()):
            if begin >= index:
                arrays |= places
                computed |= variables
        before = self._held(first, rounds, arrays, computed)
        for k, var in zip(rounds.arrays, state, strict=False):
            arrays[first.carriers[k]] = var, None
        for k, var in zip(rounds.numbers, state[len(rounds.arrays) :], strict=True):
            computed[first.sources[k]] = var
        for storage in cuts[index + 1].made:
            arrays[storage] = Var("t", storage), None
        try:
            self.arguments.arrays = arrays
            between = _between(trace, index)
            steps = self._asked(between, computed)
            native = exit_loop(trace, index, between, rounds.arrays, rounds.numbers)
            cut = cuts[index + 1]
            if isinstance(native, ExitLoop):
                self.told.append(Told(cut.source.path, native.segment, ""))
                launched, after = self._launch(native, rounds, computed)
            else:
                self.told.append(Told(cut.source.path, None, native))
                computed[cut.source] = Var("l", cut.value, cut.source.path)
                launched = (self._run(cut, None, computed),)
                after = self._held(second, rounds, arrays, computed)
        finally:
            self.arguments.arrays = kept
        self.place = trace.segments.place(self.place, cuts[index + 1].segment, rounds.key)
        program.steps.append(Loop(self.place, state, before, after, (*steps, *launched)))
        self.until = cuts[rounds.last]

    def _held(self, state: Any, rounds: Rounds, arrays: Any, computed: Any) -> tuple[Var, ...]:
        """The variables of what a round changes, at one look."""
        found = [arrays[state.carriers[k]][0] for k in rounds.arrays]
        return (*found, *(computed[state.sources[k]] for k in rounds.numbers))

    def _asked(self, steps: list[Any], computed: dict[Any, Var]) -> tuple[Step, ...]:
        """What a round computes of its numbers, and asks."""
        program = ReplayProgram()
        computed |= numbers.variables_of(steps)
        for step in steps:
            numbers.emit(step, computed, program)
        return tuple(program.steps)

    def _launch(
        self, native: ExitLoop, rounds: Rounds, computed: dict[Any, Var]
    ) -> tuple[tuple[Step, ...], tuple[Var, ...]]:
        """The steps of many rounds, and the variables of what they change."""
        program = ReplayProgram()
        for source in native.whole:
            program.require(
                f"-{EXACT} < {{}} < {EXACT}", source if isinstance(source, Var) else computed[source]
            )
        launch = launches.launch_of_rounds(native, self.trace, self.arguments, computed)
        made = [Var("t", Storage(value.type)) for value in native.segment.graph.outputs]
        found = [Var("l") for _ in rounds.numbers]
        for var in (*made, found[0]):
            var.bound = True
        program.steps.append(Run(None, launch, tuple(made), found[0]))
        for var, storage in zip(found[1:], made[1:], strict=False):
            program.define(var, Form("{}({})", Const(element_of(storage.value.type.dtype)), storage))
        return tuple(program.steps), (*made[len(found) :], *found)


def _between(trace: Trace, index: int) -> list[Any]:
    """Computations and questions between a look and the next one."""
    steps = trace.numbers.steps
    begin, end = steps.index(trace.cuts[index]), steps.index(trace.cuts[index + 1])
    return steps[begin + 1 : end]


def _all_rounds(trace: Trace) -> list[Rounds]:
    """The loops of a path, in order."""
    found: list[Rounds] = []
    cuts, index = trace.cuts, 0
    while index + 1 < len(cuts):
        rounds = _rounds_from(trace, index)
        if rounds is None or not _is_complete(trace, rounds):
            index += 1
            continue
        found.append(rounds)
        index = rounds.last
    return found


def _rounds_from(trace: Trace, first: int) -> Rounds | None:
    """The longest run of equal rounds from a look on."""
    cuts, last, key = trace.cuts, first, None
    while last + 1 < len(cuts):
        now, then = cuts[last].state, cuts[last + 1].state
        if now is None or then is None or now.key != then.key:
            break
        described = _describe(trace, last)
        if key is not None and described != key:
            break
        key, last = described, last + 1
    if key is None:
        return None
    now, then = cuts[first].state, cuts[first + 1].state
    assert now is not None
    assert then is not None
    arrays = tuple(k for k, c in enumerate(now.carriers) if then.carriers[k] is not c)
    numbers = tuple(k for k, s in enumerate(now.sources) if then.sources[k] is not s)
    return Rounds(first, last, key, arrays, numbers)


def _describe(trace: Trace, index: int) -> Hashable:
    """Equal for rounds that do and ask the same, and leave their results in the same places."""
    cut, now, then = trace.cuts[index + 1], trace.cuts[index].state, trace.cuts[index + 1].state
    assert now is not None
    assert then is not None
    names: dict[Any, Hashable] = {c: ("state", k) for k, c in enumerate(now.carriers)}
    names |= {s: ("number", k) for k, s in enumerate(now.sources)}
    names |= {storage: ("made", k) for k, storage in enumerate(cut.made)}

    def name(operand: Any) -> Hashable:
        if isinstance(operand, Storage | Computed | Source | Expr):
            return names.get(operand, id(operand))
        return type(operand), repr(operand)

    steps = []
    for step in _between(trace, index):
        steps.append((type(step), step.form, *map(name, step.operands)))
        if isinstance(step, Computed):
            names[step] = "computed", len(steps)
        else:
            steps.append((type(step.value), repr(step.value)))
    names[cut.source] = "found"
    ends = [*map(name, then.carriers), *map(name, then.sources)]
    totals = [trace.draws.totals[index][1] for index in cut.draws]
    ends += [(total.fixed, name(total.further)) for total in totals]
    return id(cut.segment), tuple(steps), tuple(_origin(b, cut, trace, name) for b in cut.bound), tuple(ends)


def _origin(bound: Bound, cut: Cut, trace: Trace, name: Callable[[Any], Hashable]) -> Hashable:
    """Where an input of a round's segment comes from."""
    if not isinstance(bound, RuntimeNumber):
        return name(bound.storage), bound.lo, bound.hi
    source = bound.source
    if not isinstance(source, DrawKey | DrawCounter):
        return name(source)
    position = source.stream - cut.draws.start  # within the round; one of another round is another
    return type(source), position, id(trace.draws.totals[source.stream][0]), *map(name, source[1:])


def _is_complete(trace: Trace, rounds: Rounds) -> bool:
    """Whether the rounds make all that they leave, and what comes after them finds in it what it needs."""
    cuts, state = trace.cuts, trace.cuts[rounds.last].state
    assert state is not None
    inside = range(rounds.first + 1, rounds.last + 1)
    steps = trace.numbers.steps
    begin, end = steps.index(cuts[rounds.first]), steps.index(cuts[rounds.last])
    gone: set[Any] = {storage for k in inside for storage in cuts[k].made}
    gone |= {s for s in steps[begin + 1 : end] if isinstance(s, Computed)}
    gone |= {cuts[k].source for k in inside}
    changed = {state.carriers[k] for k in rounds.arrays} | {state.sources[k] for k in rounds.numbers}
    if not changed <= gone:  # too few rounds: one leaves what was there before the first, under another name
        return False
    gone -= {*state.carriers, *state.sources}
    draws = range(cuts[rounds.first].draws.stop, cuts[rounds.last].draws.stop)
    later: list[Bound] = [*trace.bound, *(b for c in cuts[rounds.last + 1 :] for b in c.bound)]
    for bound in later:
        if isinstance(bound, Extent):
            if bound.storage in gone:
                return False
        elif isinstance(bound.source, DrawKey | DrawCounter):
            if bound.source.stream in draws:
                return False
        elif isinstance(bound.source, Computed | Source) and bound.source in gone:
            return False
    asked = [s for s in steps[end + 1 :] if isinstance(s, Computed | Looked)]
    return not any(isinstance(o, Computed | Source) and o in gone for s in asked for o in s.operands)
