"""Rounds that are run without being recorded.

    while float(err) > tol:      three rounds are recorded, and all others run here
        x = step(x)
        rounds += 1

When a look finds the body in a state that it had before, the ways that it took from there are known
(`ways.StateGraph`), and `run_ahead` follows them. It asks their questions of the numbers found, and launches
the segment of the way that has all the answers, on the results of the last one, until no way has them. The
body then gets the results of the last time that it was in its own state, and continues from there. The
counter of the rounds is a number of the call (`counters`), computed like all others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tracejit.frontend.recording.draws import WORD, DrawCounter, Total
from tracejit.frontend.recording.origins import Bound, Extent, RuntimeNumber
from tracejit.frontend.recording.sources import Question
from tracejit.frontend.recording.storage import Storage

if TYPE_CHECKING:
    from tracejit.frontend.recording.loops.states import State
    from tracejit.frontend.recording.segments import Cut
    from tracejit.frontend.recording.trace import Trace

SHORT = 8
"""Most looks that are recorded again rather than run ahead."""


def run_ahead(trace: Trace) -> None:
    """Follow known ways to the last time that the body is in its present state."""
    graph = trace.looks.graph
    here, state = graph.at[-1], graph.states[-1]
    if here is None or state is None or here not in graph.ways:
        return
    if graph.again > 0:  # the ways that were run last lead to one that is not known
        graph.again -= 1
        return
    execution = Execution(trace, here, state)
    held, since, drawn = execution.held, 0, 0
    try:
        while execution.go():
            since += 1
            if execution.at == here and execution.can_replace(state.carriers):
                held, since, drawn = execution.held, 0, len(execution.drawn)
    except BaseException:  # an error of a segment, an interrupt: the call ends here
        execution.give_back(0)
        raise
    graph.again = since if since <= SHORT else 0
    execution.give_back(drawn)
    hold(trace, state, *held)


def hold(trace: Trace, state: State, arrays: Sequence[Storage], numbers: Sequence[Any]) -> None:
    """Replace the arrays and numbers of the body's state."""
    places = [(new.buffer, new.variable, new.address) for new in arrays]
    for storage, place in zip(state.carriers, places, strict=True):
        storage.buffer, storage.variable, storage.address = place
        storage._elements = None
    for source, number in zip(state.sources, numbers, strict=True):
        source.value = number
    for proxy in trace.numbers.alive():
        proxy._value = proxy._source.value


class Execution:
    """The execution of ways without the body, from a state of its graph.

    at:    the number of its state now.
    held:  the arrays and the numbers of that.
    drawn: what segments took of random streams: (stream, start, total).
    """

    def __init__(self, trace: Trace, at: int, state: State) -> None:
        self.trace, self.at = trace, at
        self.held = state.carriers, tuple(source.value for source in state.sources)
        self.drawn: list[tuple[Any, int, int]] = []
        self.made: set[Storage] = set()

    def go(self) -> bool:
        """Follow the way that has all the answers, if one is known."""
        graph = self.trace.looks.graph
        for index in graph.ways.get(self.at, {}).values():
            now, then = graph.state(index), graph.state(index + 1)
            arrays: dict[Any, Storage] = dict(zip(now.carriers, self.held[0], strict=True))
            numbers = dict(zip(now.sources, self.held[1], strict=True))
            if not _has_answers(graph.between(index), numbers):
                continue
            cut = self.trace.looks.cuts[index + 1]
            made, numbers[cut.source] = self._launch(cut, arrays, numbers)
            arrays |= zip(cut.made, made, strict=True)
            self.held = tuple(map(arrays.__getitem__, then.carriers)), tuple(map(numbers.get, then.sources))
            self.at = graph.number(index + 1)
            return True
        return False

    def _launch(
        self, cut: Cut, held: Mapping[Any, Storage], numbers: Mapping[Any, Any]
    ) -> tuple[tuple[Storage, ...], Any]:
        """Launch the segment of a way; its results, and the number that is looked at."""
        trace = self.trace
        first = len(self.drawn)
        for index in cut.draws:
            stream, total = trace.draws.totals[index]
            count = total.fixed + _value(total.further, numbers)
            self.drawn.append((stream, stream.advance(count), count))
        bound: list[Bound] = []
        for each in cut.bound:
            if isinstance(each, Extent):
                bound.append(Extent(held.get(each.storage, each.storage), each.lo, each.hi))
                continue
            value = numbers.get(each.source, each.value)
            if isinstance(each.source, DrawCounter):
                start = self.drawn[first + each.source.stream - cut.draws.start][1]
                value = (start + each.source.fixed + _value(each.source.further, numbers)) % WORD
            bound.append(RuntimeNumber(value, each.source))
        made, number = cut.segment.run(bound)
        self.made.update(made)
        return made, number

    def can_replace(self, carriers: Sequence[Storage]) -> bool:
        """Whether the arrays of the body's state can be replaced: old and new ones are made by segments."""
        made = self.trace.looks.graph.made
        return all(
            new is old or (old in made and (new in made or new in self.made))
            for new, old in zip(self.held[0], carriers, strict=True)
        )

    def give_back(self, kept: int) -> None:
        """Return the draws after the first ones, which are those of the call."""
        for stream, start, total in reversed(self.drawn[kept:]):
            stream.give_back(start, total)
        draws = self.trace.draws
        draws.totals += [(stream, Total(count)) for stream, _, count in self.drawn[:kept]]
        draws.taken += self.drawn[:kept]


def _value(further: Any, numbers: Mapping[Any, Any]) -> int:
    """The count of random numbers that a loop of a run-time count has drawn."""
    value: int = 0 if further is None else numbers.get(further, further.value)
    return value


def _has_answers(steps: Sequence[Any], numbers: dict[Any, Any]) -> bool:
    """Compute the numbers of a way, and ask its questions: whether the answers are its own."""
    for step in steps:
        operands = [numbers[o] if o in numbers else getattr(o, "value", o) for o in step.operands]
        try:
            found = step.operation.function(*operands)
        except (ArithmeticError, ValueError):
            return False  # the body will raise it
        if type(found) is not type(step.value):
            return False
        if isinstance(step, Question) and repr(found) != repr(step.value):
            return False
        numbers[step] = found
    return True
