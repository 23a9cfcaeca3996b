"""Native loops in the call that is being recorded.

    for i in range(n):           a few iterations are recorded, some hundreds run one by one (`run_ahead`),
        if x[i] > best: ...      and all others as a native loop

A recorded call knows a loop over looks after a few iterations. If the loop is long, waiting for iterations
that are launched one by one takes more time than compiling the native loop, which replays need anyway.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tracejit.frontend.jit.state_loops.branching import BranchingLoop
from tracejit.frontend.jit.state_loops.loop_builder import NativeLoop
from tracejit.frontend.jit.state_loops.native_numbers import EXACT, Unsupported
from tracejit.frontend.jit.state_loops.regions import LoopRegion, StateVariable, region_so_far
from tracejit.frontend.recording.draws import DrawCounter, DrawKey
from tracejit.frontend.recording.look_loops.run_ahead import DrawnRange, Values
from tracejit.frontend.recording.origins import InputOrigin, RuntimeNumber, StorageRange
from tracejit.frontend.recording.storage import Storage
from tracejit.frontend.recording.trace import Trace
from tracejit.passes.rolling.wiring import NotRollable


def native_iterations(trace: Trace) -> NativeIterations | None:
    """Return the loop that the last look of a trace is in as a native loop, or None."""
    graph = trace.looks.state_graph
    region = region_so_far(graph)
    if region is None:
        return None
    try:
        head = region.transitions[region.start][0]
        native = BranchingLoop(region, region.all_transitions, head).loop(trace, counts=True)
    except (Unsupported, NotRollable):
        return None
    return NativeIterations(region, native)


class NativeIterations:
    """A native loop from the state of a look to the same state."""

    def __init__(self, region: LoopRegion, native: NativeLoop) -> None:
        self.native = native
        self.state_id, self.state = native.head.start, native.head.before
        self.carried = set(region.variables(self.state_id))

    def __call__(self, values: Values) -> tuple[Values, tuple[Storage, ...], list[DrawnRange]]:
        """Perform iterations from these values of the state's arrays and numbers on. Return the values when
        the state is visited last, the arrays that have been produced, and the draws from random streams.
        """
        native = self.native
        known = dict(zip(self.state.arrays, values[0], strict=True))
        numbers = dict(zip(self.state.numbers, values[1], strict=True))
        if any(abs(numbers.get(source, source.value)) >= EXACT for source in native.integers):
            return values, (), []
        draws = [(stream, stream.advance(most), most) for stream, most in native.draws]
        try:
            inputs = [_origin(each, known, numbers, draws) for each in native.inputs]
            results, first = native.segment.run(inputs)
            if len(native.states) > 1 and native.states[first] != self.state_id:
                inputs[0] = RuntimeNumber(_number(results[-1]), None)
                results, first = native.segment.run(inputs)
                assert native.states[first] == self.state_id
            counters = results[int(len(native.states) > 1) :]
            draws = [
                (stream, start, stream.keep_until(_number(end), start, count))
                for end, (stream, start, count) in zip(counters, draws, strict=False)
            ]
        except BaseException:
            for draw in reversed(draws):
                draw[0].give_back(*draw[1:])
            raise
        arrays = [self._value(True, k, each, results) for k, each in enumerate(values[0])]
        counts = [self._value(False, k, each, results) for k, each in enumerate(values[1])]
        return (tuple(arrays), tuple(counts)), results, draws

    def _value(self, is_array: bool, k: int, before: Any, results: tuple[Storage, ...]) -> Any:
        """Return array or number `k` of the state after the iterations."""
        variable = StateVariable(self.state_id, is_array, k)
        if variable not in self.carried:
            return before
        output = self.native.outputs.get(self.native.slots.slot_of[variable])
        if output is None:
            return before
        return results[output] if is_array else _number(results[output])


def _number(storage: Storage) -> Any:
    return storage.memory().reshape(-1)[0].item()


def _origin(
    each: Any, arrays: dict[Any, Storage], numbers: dict[Any, Any], draws: Sequence[DrawnRange]
) -> InputOrigin:
    """Return the origin of an input of a native loop, given the present values of the state, and the draws of
    the launch.
    """
    if isinstance(each, Storage):
        return StorageRange(arrays.get(each, each), 0, each.type.size)
    if isinstance(each, StorageRange):
        return StorageRange(arrays.get(each.storage, each.storage), each.lo, each.hi)
    if isinstance(each, RuntimeNumber):
        if isinstance(each.source, DrawKey | DrawCounter):
            stream, start, _ = draws[each.source.stream]
            return RuntimeNumber(stream.key if isinstance(each.source, DrawKey) else start, each.source)
        return RuntimeNumber(numbers.get(each.source, each.value), each.source)
    return RuntimeNumber(each if type(each) is int else numbers.get(each, each.value), each)
