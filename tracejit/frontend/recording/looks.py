"""Looks of a body at values of arrays. Each look ends a segment, which is launched.

A recorded body may look at the value of an array (`if loss > limit:`, `norm.item()`). The trace is *cut*
there: the operations recorded since the last cut become a graph of their own, a *segment*. Its results are
all values that the body may still use: arrays that it created and that are alive, the new content of arrays
that it wrote, and the value that it looks at; while a gradient is taken, all values. The segment is launched,
the recorder waits for the value, and the recording continues. A result that is used later enters the
recording as an input (`Trace.adopt`). Nothing that existed before the call is written: the last launch of the
path does that. Later calls look the segments up in `segments`. Equal looks form a loop (`look_loops`).
"""

from __future__ import annotations

import types
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from tracejit.errors import file_and_line
from tracejit.frontend.python.code_loops import updated_attributes
from tracejit.frontend.recording.location import user_location
from tracejit.frontend.recording.look_loops.counters import (
    CountedRange,
    count,
    may_count,
)
from tracejit.frontend.recording.look_loops.frames import frames_of_body
from tracejit.frontend.recording.look_loops.run_ahead import run_ahead
from tracejit.frontend.recording.look_loops.state_graph import StateGraph
from tracejit.frontend.recording.look_loops.states import State, state_at
from tracejit.frontend.recording.number import NumberProxy
from tracejit.frontend.recording.origins import ConstantOrigin, InputOrigin, RuntimeNumber, StorageRange
from tracejit.frontend.recording.recording import in_operation, thread, unwatched
from tracejit.frontend.recording.restart import Restart
from tracejit.frontend.recording.segments import Cut, Segment, Segments
from tracejit.frontend.recording.sources import Source
from tracejit.frontend.recording.storage import Storage
from tracejit.frontend.recording.trace_numbers import Numbers
from tracejit.ir.graph import Value
from tracejit.ir.op import Trait
from tracejit.ir.structure import structure
from tracejit.ir.types import CPU
from tracejit.ops import constant, equal, full, not_equal

if TYPE_CHECKING:
    from tracejit.frontend.recording.trace import Trace

INT64, FLOAT64 = np.dtype("int64"), np.dtype("float64")

SEGMENTS = 256
"""The maximum number of different segments of a path. Planning one takes about 6 ms, more than its replays
save.
"""


MAX_UNKNOWN_OF_PATH = 512
"""The maximum number of looks of a path at which the state of the body is unknown: they form no loop."""

MAX_UNKNOWN = 8
"""The number of consecutive looks in unknown states after which NumPy's arrays are recorded, if the body
creates some: states are unknown if their elements change.
"""


class Looks:
    """The looks of a trace so far.

    segments:    the segments of all paths of the function; None: every look aborts the recording.
    cuts:        the looks, in order.
    different:   the distinct segments that they ended.
    origins:     origins of the values of earlier segments.
    sources:     sources of the numbers looked at, by the value of the graph.
    state_graph: the states of the body at its looks.
    ranges:      ``for`` loops whose state consists of numbers of the call, by frame and offset of the
                 instruction (see `look_loops.counters`).
    iterates:    whether there is a ``for`` over an array.
    n_unknown:   the number of consecutive looks, up to the last one, at which the state is unknown.
    total_unknown: the number of all such looks.
    loaded:      by frame or object, and name: the numbers that variables and attributes became while an
                 expression may have loaded them (see `look_loops.counters`).
    native_iterations: returns many iterations of a trace's present loop as one launch, or None (see
                 `run_ahead.Execution.run_natively`).
    """

    def __init__(self, segments: Segments | None, numbers: Numbers) -> None:
        self.segments: Any = segments
        self.cuts: list[Cut] = []
        self.origins: dict[Value, InputOrigin | ConstantOrigin] = {}
        self.sources: dict[Value, Source] = {}
        self.state_graph = StateGraph(self.cuts, numbers)
        self.ranges: dict[tuple[int, int], weakref.ref[CountedRange]] = {}
        self.iterates = False
        self.native_iterations: Callable[[Trace], Any] = lambda trace: None
        self.different: set[Segment] = set()
        self.n_unknown = self.total_unknown = 0
        self.loaded: weakref.WeakValueDictionary[tuple[int, str], NumberProxy] = weakref.WeakValueDictionary()
        self._visited: dict[tuple[int, ...], Any] = {}  # by position in the body: the state at the last look

    def refusal(self, trace: Trace, array: Any) -> str | None:
        """The reason why a look at an array, or at a number (None), cannot end a segment; None if it can."""
        if self.segments is None or trace.dry or in_operation() or trace.vouched:
            return ""
        if self.segments.ended:
            return f"which keeps producing new paths ({self.segments.ended} paths)"
        if len(self.different) >= SEGMENTS:
            return f"after {SEGMENTS} looks that each follow other operations"
        if self.total_unknown >= MAX_UNKNOWN_OF_PATH:
            return f"after {MAX_UNKNOWN_OF_PATH} looks at which the state of the body is unknown"
        if trace.numbers.concrete or (array is not None and array.dtype.kind not in "biuf"):
            return ""
        if (
            array is not None
            and array._storage.recording not in (None, trace)
            and array._storage.pending is not None
        ):
            return ""
        if any(Trait.ORDERED in node.op.traits for node in trace.nodes):
            return "after tj.callback"
        return None

    def add(self, trace: Trace, cut: Cut, state: State | None) -> None:
        """Add a look, and the state of the body there."""
        self.cuts.append(cut)
        self.different.add(cut.segment)
        trace.numbers.add_look(cut.source, cut)
        self.state_graph.note(cut, state)

    def is_other_state(self, state: State | None, codes: Iterable[types.CodeType]) -> bool:
        """Whether the body looks again at its present position, but in another state, so that counters may
        help.

        codes: the code objects that have run.
        """
        frames = frames_of_body()
        position = tuple(frame.f_lasti for frame in frames)
        key = state.key if state is not None else None
        is_other = position in self._visited and (key is None or key != self._visited[position])
        if frames:
            self._visited[position] = key
        may = self.iterates or any(may_count(frame.f_code) for frame in frames)
        return is_other and (may or any(map(updated_attributes, codes)))


def look_at(trace: Trace, array: Any, what: str, used_up: Sequence[Storage] = ()) -> NumberProxy:
    """Launch what was recorded so far, and return the only element of an array as a number of the call.

    used_up: storages that an unfinished operation of the body refers to, but does not read any more.
    """
    looks = trace.looks
    reason = looks.refusal(trace, array)
    if reason is not None:
        trace.refuse_look(array, what, reason)
    content = _content(trace, array)
    if content in looks.sources:
        return trace.numbers.proxy(looks.sources[content])
    looked = [array._storage, *used_up]
    if not array.device.is_addressable:
        array = array.to(CPU)  # by a copy in the graph
        looked.append(array._storage)
    producer = next((node.op for node in reversed(trace.nodes) if content in node.outputs), None)
    asks = producer is equal or producer is not_equal
    cut = _look(trace, lambda: trace.read(array._storage, array._view), what, looked, asks_equality=asks)
    if content is not None:
        looks.sources[content] = cut.source
    return trace.numbers.proxy(cut.source)


def look_at_number(trace: Trace, number: NumberProxy, answer: Any = None) -> None:
    """Launch what was recorded so far, and look at a number of the call, which is known: only so that the
    state of the body here is a state of the graph. `answer`: a value that the body is going to use. Nothing
    happens if a look would abort the recording.
    """
    if trace.looks.refusal(trace, None) is not None:
        return

    def value() -> Value:
        dtype = FLOAT64 if isinstance(number._value, float) else INT64
        here = trace.number(RuntimeNumber(number._value, number._source), dtype)
        array: Value = trace.emit(full, here, shape=(), device=CPU)
        return array

    _look(trace, value, "a number", (), answer=answer)


def _look(
    trace: Trace,
    value: Callable[[], Value],
    what: str,
    looked: Sequence[Storage],
    **kinds: Any,
) -> Cut:
    """Launch what was recorded so far, and look at a value, which the storages `looked` contain. `kinds`: see
    `state_at`.
    """
    looks, location = trace.looks, user_location()
    if trace.nest.loops:
        trace.nest.loops[0].unroll("an iteration looks at a value")
    literals = count(trace, frames_of_body()) if trace.assumed.counted else ()
    with unwatched(), _outside(trace):
        cut = _cut(trace, value(), Source(f"{what} of line {file_and_line(location)[1]}"))
        state = None if literals is None else state_at(trace, cut.source, looked, literals, **kinds)
        looks.add(trace, cut, state)
        run_ahead(trace)
    looks.n_unknown = looks.n_unknown + 1 if state is None else 0
    looks.total_unknown += state is None
    if looks.n_unknown == MAX_UNKNOWN:
        trace.record_numpy()
    if trace.assumed.counted is None and looks.is_other_state(state, trace.body.executed):
        trace.interrupt(Restart(counted=True))
    return cut


@contextmanager
def _outside(trace: Trace) -> Iterator[None]:
    """A context for the recorder's own work at a look: its array operations are not part of the trace."""
    thread.trace = None
    try:
        yield
    finally:
        thread.trace = trace


def _content(trace: Trace, array: Any) -> Value | None:
    """The graph value of an array, if this recording has produced it and the array covers it completely."""
    storage, view = array._storage, array._view
    value = storage.pending if storage.recording is trace else None
    return value if value is not None and view.is_identity(value.type.shape) else None


def _cut(trace: Trace, value: Value, source: Source) -> Cut:
    """End the segment of a trace with a look at `value`, which becomes the number `source`."""
    value = trace.known(value)
    alive = [s.pending for s in trace.live()] + [w.value for w in trace.written()]
    if trace.tapes:
        alive += [v for node in trace.nodes for v in node.outputs if not v.type.on_host]
    inputs = dict(zip(trace.inputs, trace.origins, strict=True))
    fresh = [v for v in dict.fromkeys(alive) if v is not value and v in trace.defined and v not in inputs]
    outputs = [value, *fresh]
    graph = trace.graph(outputs)
    segment: Segment = trace.looks.segments.find(structure(graph), graph)
    draws = trace.draws.take()
    results, source.value = segment.run(trace.origins)
    input_origins = tuple(trace.origins)
    _begin_segment(trace, outputs, results)
    totals = tuple(trace.draws.totals[index] for index in draws)
    return Cut(segment, source, input_origins, results, draws, totals)


def _begin_segment(trace: Trace, outputs: Sequence[Value], results: Sequence[Storage]) -> None:
    """Begin the next segment, and note the origins of the values of the last one."""
    origins = trace.looks.origins
    for value, origin in zip(trace.inputs, trace.origins, strict=True):
        origins.setdefault(value, origin)
    for node in trace.nodes:
        if node.op is constant:
            origins[node.output] = ConstantOrigin(node.attrs, node.location)
    for value, storage in zip(outputs, results, strict=True):
        origins.setdefault(value, StorageRange(storage, 0, storage.type.size))
    trace.begin_segment()
