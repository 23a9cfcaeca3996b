"""Rounds of a ``while`` that are run without being recorded.

    while float(err) > tol:      three rounds are recorded, and all others run here
        x = step(x)
        rounds += 1

When a body stands at a look as it stood at the look before (`rounds.state_at`), the round between them is
every further one, as long as its questions have the same answers. So `run_ahead` launches the round's segment
again and again, on what the last round left, and asks its questions, until one has another answer. The look
becomes that of the last round: the body goes on with what that found, and leaves the loop. What counts the
rounds is a number of the call (`counters`), computed like all others.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tracejit import engine
from tracejit.frontend.recording import eager
from tracejit.frontend.recording.number import FORMS, Computed, Looked, Source
from tracejit.frontend.recording.recording import Bound, Extent, RuntimeNumber
from tracejit.frontend.recording.storage import Storage
from tracejit.ops.loops import graph_can_fail

if TYPE_CHECKING:
    from tracejit.frontend.recording.segments import Cut
    from tracejit.frontend.recording.trace import Trace


def run_ahead(trace: Trace, cut: Cut) -> Cut:
    """The look at the end of the last of the rounds that are like the one that `cut` has ended."""
    before = trace.cuts[-1] if trace.cuts else None
    if before is None or before.state is None or cut.state is None or before.state.key != cut.state.key:
        return cut
    rounds = Rounds(trace, before, cut)
    return rounds.run() if rounds.are_known else cut


class Rounds:
    """The rounds from look `before` to look `cut`, and all that follow.

    steps:     what is computed and asked in a round, before its segment is launched.
    are_known: whether all that a round uses is known here.
    """

    def __init__(self, trace: Trace, before: Cut, cut: Cut) -> None:
        self.trace, self.before, self.cut = trace, before, cut
        assert before.state is not None
        assert cut.state is not None
        self.first, self.last = before.state, cut.state
        steps = trace.numbers.steps
        self.steps: list[Any] = steps[steps.index(before) + 1 :]
        self.are_known = not cut.draws and self._knows_arrays() and self._knows_numbers()

    def _knows_arrays(self) -> bool:
        """Whether a round uses what is in the state before, and changes only what it makes."""
        gone = set(self.before.made) - set(self.first.carriers)
        made = set(self.cut.made)
        return not any(type(b) is Extent and b.storage in gone for b in self.cut.bound) and all(
            now in made or now is then
            for now, then in zip(self.last.carriers, self.first.carriers, strict=True)
        )

    def _knows_numbers(self) -> bool:
        known: set[Any] = set(self.first.sources)
        for step in self.steps:
            if step.form not in FORMS:
                return False
            for operand in step.operands:
                if operand not in known and not hasattr(operand, "value") and not _is_plain(operand):
                    return False
            known.add(step)
        made = {self.cut.source, *self._since_equal()}
        if not all(
            now in made or now is then
            for now, then in zip(self.last.sources, self.first.sources, strict=True)
        ):
            return False
        numbers = [b.source for b in self.cut.bound if isinstance(b, RuntimeNumber)]
        return all(source in known or _is_settled(source) for source in numbers)

    def _since_equal(self) -> list[Any]:
        """What was computed since the first of the rounds like this one: a loop hands on no other numbers."""
        cuts, steps = [*self.trace.cuts, self.cut], self.trace.numbers.steps
        places = [steps.index(cut) for cut in self.trace.cuts] + [len(steps)]
        first = len(cuts) - 2
        asked = _asked(self.steps)
        while first > 0 and cuts[first].segment is self.cut.segment:
            state = cuts[first - 1].state
            between = steps[places[first - 1] + 1 : places[first]]
            if state is None or state.key != self.last.key or _asked(between) != asked:
                break
            first -= 1
        return [step for step in steps[places[first] + 1 :] if isinstance(step, Computed)]

    def run(self) -> Cut:
        """Run rounds until a question has another answer."""
        found = {cut.source: cut.value for cut in (*self.trace.cuts, self.cut)}
        numbers: dict[Any, Any] = {
            source: found[source] if isinstance(source, Source) else source.value
            for source in self.last.sources
        }
        carriers, made = self.last.carriers, self.cut.made
        while True:
            values = dict(zip(self.first.sources, (numbers[s] for s in self.last.sources), strict=True))
            if not self._go_on(values):
                break
            held = dict(zip(self.first.carriers, carriers, strict=True))
            made = self._launch(held, values)
            numbers = {s: values.get(s, numbers[s]) for s in self.last.sources}
            numbers[self.cut.source] = made[0].memory().reshape(-1)[0].item()
            renewed = dict(zip(self.cut.made, made, strict=True))
            carriers = tuple(renewed.get(c, c) for c in self.last.carriers)
        return self._end(numbers, carriers, made)

    def _go_on(self, values: dict[Any, Any]) -> bool:
        """Compute the numbers of a round, and ask its questions: whether the answers are the same."""
        for step in self.steps:
            operands = [values[o] if o in values else getattr(o, "value", o) for o in step.operands]
            try:
                found = FORMS[step.form](*operands)
            except (ArithmeticError, ValueError):
                return False  # the body will raise it
            if type(found) is not type(step.value):
                return False
            if isinstance(step, Looked) and repr(found) != repr(step.value):
                return False
            values[step] = found
        return True

    def _launch(self, held: Mapping[Storage, Storage], values: Mapping[Any, Any]) -> tuple[Storage, ...]:
        """Launch the segment of a round, and wait for the value that is looked at."""
        segment = self.cut.segment
        bound: list[Bound] = []
        for each in self.cut.bound:
            if isinstance(each, Extent):
                bound.append(Extent(held.get(each.storage, each.storage), each.lo, each.hi))
            else:
                bound.append(RuntimeNumber(values.get(each.source, each.value), each.source))
        places = [Storage(storage.type) for storage in self.cut.made]
        eager.run(segment.graph, bound, places, segment.schedule)
        awaited = places if graph_can_fail(segment.graph) else places[:1]
        engine.wait(*(storage.variable for storage in awaited))
        return tuple(places)

    def _end(
        self, numbers: Mapping[Any, Any], carriers: tuple[Storage, ...], made: tuple[Storage, ...]
    ) -> Cut:
        """The look of the last round: what the body holds is what that left."""
        renewed = dict(zip(self.cut.made, made, strict=True))
        carried = self.trace.carried
        for value, bound in list(carried.items()):
            if type(bound) is Extent and bound.storage in renewed:
                carried[value] = Extent(renewed[bound.storage], bound.lo, bound.hi)
        for source in self.last.sources:
            if isinstance(source, Computed):
                source.value = numbers[source]
        for proxy in self.trace.numbers.alive():
            proxy._value = numbers.get(proxy._source, proxy._value)
        state = self.last._replace(carriers=carriers)
        return self.cut._replace(value=numbers[self.cut.source], made=made, state=state)


def _asked(steps: list[Any]) -> list[Any]:
    """What a round computes and asks, with the answers."""
    return [(step.form, repr(step.value) if isinstance(step, Looked) else None) for step in steps]


def _is_plain(operand: Any) -> bool:
    return isinstance(operand, (bool, int, float))


def _is_settled(source: Any) -> bool:
    """Whether a number is the same in all rounds."""
    return isinstance(source, Computed) or _is_plain(source) or hasattr(source, "value")
