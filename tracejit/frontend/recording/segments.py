"""Looks at values while a call is recorded: each ends a segment, which is launched.

A recorded body may look at the value of an array (`if loss > limit:`, `norm.item()`). The trace is *cut*
there: what was recorded since the last cut becomes a graph of its own, a *segment*, whose results are all
that the body may still use: arrays that it made and that are alive, the new content of arrays that it
wrote, and the value that it looks at; while a gradient is taken, everything. The segment is launched, the
value is waited for, and the recording goes on; a result that is used later enters it as an input
(`Trace.adopt`). Nothing that existed before the call is written: that is left to the last launch of the
path.

What always holds:
- The results of a segment are decided when it ends, and not by what follows. So calls that begin alike have
  the same segments (`Segments.find`) in the same places (`Segments.place`), whatever they do later.
- Segments with one structure have one schedule: the rounds of a loop are compiled once.
"""

from __future__ import annotations

import weakref
from collections.abc import Collection, Hashable
from typing import TYPE_CHECKING, Any, NamedTuple

from tracejit import compile, engine
from tracejit.frontend.recording import eager
from tracejit.frontend.recording.loops.states import State, state_at
from tracejit.frontend.recording.recording import Bound, Extent, Literal
from tracejit.frontend.recording.sources import Source
from tracejit.frontend.recording.storage import Storage
from tracejit.ir.graph import Graph, Value
from tracejit.ir.structure import copied, structure
from tracejit.ops import constant
from tracejit.ops.loops import graph_can_fail

if TYPE_CHECKING:
    from tracejit.frontend.recording.trace import Trace


class Segment:
    """The part of a path between two looks."""

    __slots__ = ("__weakref__", "graph", "schedule")

    def __init__(self, graph: Graph, schedule: Any) -> None:
        self.graph, self.schedule = graph, schedule


class Place:
    """A segment in a path, or the rounds of a loop with it. Paths that begin alike share places."""

    __slots__ = ("__weakref__", "segment")

    def __init__(self, segment: Segment) -> None:
        self.segment = segment


class Segments:
    """The segments of all paths of one traced function, and their places, as long as a path holds them.

    ended: how many paths there were when it was found that new ones keep coming, so that looks give up;
           else 0.
    counted: whether what counts rounds is a run-time number (see `counters`); None: this is not known yet.
    computes_math: whether `math` computes with run-time numbers (see `surroundings.math_module`).
    """

    def __init__(self) -> None:
        self.ended = 0
        self.counted: bool | None = None
        self.computes_math = False
        self._known: weakref.WeakValueDictionary[Any, Segment] = weakref.WeakValueDictionary()
        self._places: weakref.WeakValueDictionary[Any, Place] = weakref.WeakValueDictionary()

    def find(self, key: Hashable, graph: Graph) -> Segment:
        """The segment with this structure; a schedule is compiled if there is none yet."""
        name = key, tuple(node.location for node in graph.nodes)  # errors name lines
        found = self._known.get(name)
        if found is None:
            found = self._known[name] = Segment(graph, compile.compile_graph(copied(graph)))
        return found

    def place(self, before: Place | None, segment: Segment, loop: Hashable = None) -> Place:
        """The place of a segment after `before` (None: it is the first), or of a loop whose rounds `loop`
        describes.
        """
        name = before, segment, loop
        found = self._places.get(name)
        if found is None:
            found = self._places[name] = Place(segment)
        return found


class Cut(NamedTuple):
    """A look in a recorded call: the segment that it ended, and how it was launched.

    source: the number looked at, which is element 0 of the first of `made`.
    draws:  numbers of the random streams (in `Draws.totals`) that the segment draws from.
    state:  what the rest of the body depends on; None where that is not known.
    """

    segment: Segment
    source: Source
    bound: tuple[Bound, ...]
    made: tuple[Storage, ...]
    draws: range
    state: State | None = None


def cut(trace: Trace, value: Value, source: Source, looked: Collection[Storage]) -> Cut:
    """End the segment of a trace by a look at `value`, the only element of the arrays on `looked`."""
    value = trace.known(value)
    alive = [s.pending for s in trace.live()] + [w.value for w in trace.written()]
    if trace.tapes:
        alive += [v for node in trace.nodes for v in node.outputs if not v.type.on_host]
    inputs = dict(zip(trace.inputs, trace.bound, strict=True))
    fresh = [v for v in dict.fromkeys(alive) if v is not value and v in trace.defined and v not in inputs]
    outputs = [value, *fresh]
    graph = trace.graph(outputs)
    segment = trace.segments.find(structure(graph), graph)
    places = [Storage(v.type) for v in outputs]
    draws = trace.draws.take()
    eager.run(graph, trace.bound, places, segment.schedule)
    awaited = places if graph_can_fail(graph) else places[:1]
    engine.wait(*(storage.variable for storage in awaited))
    source.value = places[0].memory().reshape(-1)[0].item()
    bound = tuple(trace.bound)
    _carry(trace, outputs, places)
    return Cut(segment, source, bound, tuple(places), draws, state_at(trace, source, looked))


def _carry(trace: Trace, outputs: list[Value], places: list[Storage]) -> None:
    """Begin the next segment: what the last one knew is found where it lies now."""
    carried = trace.carried
    for found, bound in zip(trace.inputs, trace.bound, strict=True):
        carried.setdefault(found, bound)
    for node in trace.nodes:
        if node.op is constant:
            carried[node.output] = Literal(node.attrs, node.location)
    for found, storage in zip(outputs, places, strict=True):
        carried.setdefault(found, Extent(storage, 0, storage.type.size))
    trace.begin_segment()
