"""Iterations that run without being recorded.

    while float(err) > tol:      three iterations are recorded, all others run here
        x = step(x)
        steps += 1

When a look finds the body in a state that it has been in before, the transitions from that state are known
(`state_graph.StateGraph`), and `run_ahead` follows them: it evaluates their questions on the present numbers,
launches the segment of the transition whose answers all match, on the results of the previous one, and
repeats this until no transition matches. The body then continues with the values of the last moment at which
it was in its own state. An iteration counter is a run-time number (`counters`) and is computed like all
others.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tracejit.frontend.recording.draws import WORD, DrawCounter, Total
from tracejit.frontend.recording.origins import InputOrigin, RuntimeNumber, StorageRange
from tracejit.frontend.recording.sources import Question
from tracejit.frontend.recording.storage import Storage

if TYPE_CHECKING:
    from tracejit.frontend.recording.look_loops.states import State
    from tracejit.frontend.recording.segments import Cut
    from tracejit.frontend.recording.trace import Trace

PATIENCE = 0.2
"""The time in seconds after which iterations run natively, if they can."""

SHORT = 8
"""The largest number of looks that are recorded again rather than run ahead."""


Values = tuple[tuple[Storage, ...], tuple[Any, ...]]
"""The arrays and the numbers of a state."""

DrawnRange = tuple[Any, int, int]
"""A draw from a random stream: the stream, the first position, and the number of positions."""

NativeRun = Callable[[Values], tuple[Values, tuple[Storage, ...], list[DrawnRange]]]
"""Many iterations as one launch: from values of a state to its values when it is visited last, the arrays
that have been produced, and the draws from random streams.
"""


def run_ahead(trace: Trace) -> None:
    """Follow known transitions to the last moment at which the body is in its present state."""
    graph = trace.looks.state_graph
    here, state = graph.state_ids[-1], graph.states[-1]
    if here is None or state is None or here not in graph.transitions:
        return
    if graph.recordings_left > 0:  # the last run ended soon after this state, at an unknown transition
        graph.recordings_left -= 1
        return
    execution = Execution(trace, here, state)
    values, steps_since, draw_count = execution.values, 0, 0
    native: NativeRun | None = None
    native_from: float | None = time.monotonic() + PATIENCE
    try:
        while execution.step():
            steps_since += 1
            if execution.state_id == here and execution.can_replace(state.arrays):
                values, steps_since, draw_count = execution.values, 0, len(execution.draws)
                if native_from is not None and time.monotonic() > native_from:
                    native = native or trace.looks.native_iterations(trace)
                    values = execution.run_natively(native)
                    draw_count = len(execution.draws)
                    native_from = None if native is None else time.monotonic() + PATIENCE / 16
    except BaseException:  # an error of a segment or an interrupt: the call ends here
        execution.return_draws(0)
        raise
    graph.recordings_left = steps_since if steps_since <= SHORT else 0
    execution.return_draws(draw_count)
    replace_values(trace, state, *values)


def replace_values(trace: Trace, state: State, arrays: Sequence[Storage], numbers: Sequence[Any]) -> None:
    """Replace the arrays and numbers of the body's state."""
    contents = [(new.buffer, new.variable, new.address) for new in arrays]
    for storage, content in zip(state.arrays, contents, strict=True):
        storage.buffer, storage.variable, storage.address = content
        storage._elements = None
    for source, number in zip(state.numbers, numbers, strict=True):
        source.value = number
    for proxy in trace.numbers.alive():
        proxy._value = proxy._source.value


class Execution:
    """The execution of transitions without the body, from a state of its graph.

    state_id: the id of the present state.
    values:   the arrays and the numbers of that state.
    draws:    what segments drew from random streams.
    produced: the arrays of that state that segments have produced.
    """

    def __init__(self, trace: Trace, state_id: int, state: State) -> None:
        self.trace, self.state_id = trace, state_id
        self.values: Values = state.arrays, tuple(source.value for source in state.numbers)
        self.draws: list[DrawnRange] = []
        self.produced: set[Storage] = set()

    def step(self) -> bool:
        """Perform the transition whose answers all match; False if no known one does."""
        graph = self.trace.looks.state_graph
        for transition in graph.transitions.get(self.state_id, {}).values():
            before, after, cut = transition.before, transition.after, transition.cut
            arrays: dict[Any, Storage] = dict(zip(before.arrays, self.values[0], strict=True))
            numbers = dict(zip(before.numbers, self.values[1], strict=True))
            if not _answers_match(transition.steps, numbers):
                continue
            results, numbers[cut.source] = self._launch(cut, arrays, numbers)
            arrays |= zip(cut.results, results, strict=True)
            self.values = (
                tuple(map(arrays.__getitem__, after.arrays)),
                tuple(map(numbers.get, after.numbers)),
            )
            self.produced = {each for each in self.values[0] if each in self.produced or each in results}
            self.state_id = transition.end
            return True
        return False

    def run_natively(self, native: NativeRun | None) -> Values:
        """Perform iterations as a native loop, if there is one, from the present state, in which the body is,
        to the same state. Return the values of the state.
        """
        if native is not None:
            self.values, results, draws = native(self.values)
            self.draws += draws
            self.produced = {each for each in self.values[0] if each in self.produced or each in results}
        return self.values

    def _launch(
        self, cut: Cut, arrays: Mapping[Any, Storage], numbers: Mapping[Any, Any]
    ) -> tuple[tuple[Storage, ...], Any]:
        """Launch the segment of a transition; return its results and the number that is looked at."""
        first = len(self.draws)
        for stream, total in cut.totals:
            count = total.fixed + _value(total.further, numbers)
            self.draws.append((stream, stream.advance(count), count))
        origins: list[InputOrigin] = []
        for each in cut.origins:
            if isinstance(each, StorageRange):
                origins.append(StorageRange(arrays.get(each.storage, each.storage), each.lo, each.hi))
                continue
            value = numbers.get(each.source, each.value)
            if isinstance(each.source, DrawCounter):
                start = self.draws[first + each.source.stream - cut.draws.start][1]
                value = (start + each.source.fixed + _value(each.source.further, numbers)) % WORD
            origins.append(RuntimeNumber(value, each.source))
        return cut.segment.run(origins)

    def can_replace(self, arrays: Sequence[Storage]) -> bool:
        """Whether the arrays of the body's state can be replaced: segments produced the old and the new
        ones.
        """
        produced = self.trace.looks.state_graph.produced
        return all(
            new is old or (old in produced and (new in produced or new in self.produced))
            for new, old in zip(self.values[0], arrays, strict=True)
        )

    def return_draws(self, kept: int) -> None:
        """Return all draws to their streams but for the first `kept` ones, which become draws of the call."""
        for stream, start, total in reversed(self.draws[kept:]):
            stream.give_back(start, total)
        draws = self.trace.draws
        draws.totals += [(stream, Total(count)) for stream, _, count in self.draws[:kept]]
        draws.taken += self.draws[:kept]


def _value(further: Any, numbers: Mapping[Any, Any]) -> int:
    """How many random numbers a loop with a run-time trip count has drawn."""
    value: int = 0 if further is None else numbers.get(further, further.value)
    return value


def _answers_match(steps: Sequence[Any], numbers: dict[Any, Any]) -> bool:
    """Compute the numbers of a transition, and return whether its questions have its own answers."""
    for step in steps:
        operands = [numbers[o] if o in numbers else getattr(o, "value", o) for o in step.operands]
        try:
            result = step.operation.function(*operands)
        except (ArithmeticError, ValueError):
            return False  # the body will raise it
        if type(result) is not type(step.value):
            return False
        if isinstance(step, Question) and repr(result) != repr(step.value):
            return False
        numbers[step] = result
    return True
