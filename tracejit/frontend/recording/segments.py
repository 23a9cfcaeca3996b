"""Segments of a traced function: what its calls launch between two looks at values (see `looks`).

What always holds:
- The results of a segment are decided when it ends, and not by what follows. So calls that begin alike have
  the same segments (`Segments.find`) in the same places (`Segments.place`), whatever they do later.
- Segments with one structure have one schedule: the rounds of a loop are compiled once.
"""

from __future__ import annotations

import weakref
from collections.abc import Hashable
from typing import Any, NamedTuple

from tracejit import compile, engine
from tracejit.frontend.recording import eager
from tracejit.frontend.recording.origins import Bound
from tracejit.frontend.recording.sources import Source
from tracejit.frontend.recording.storage import Storage
from tracejit.ir.graph import Graph
from tracejit.ir.structure import copied
from tracejit.ops.loops import graph_can_fail


class Segment:
    """The part of a path between two looks."""

    __slots__ = ("__weakref__", "graph", "schedule")

    def __init__(self, graph: Graph, schedule: Any) -> None:
        self.graph, self.schedule = graph, schedule

    def run(self, bound: list[Bound]) -> tuple[tuple[Storage, ...], Any]:
        """Launch it, and wait for the number that is looked at, which is element 0 of its first result.
        Returns the results and that number.
        """
        made = tuple([Storage(value.type) for value in self.graph.outputs])
        eager.run(self.graph, bound, list(made), self.schedule)
        awaited = made if graph_can_fail(self.graph) else made[:1]
        engine.wait(*(storage.variable for storage in awaited))
        return made, made[0].memory().reshape(-1)[0].item()


class PathPlace:
    """The place of a segment in a path, or of the rounds of a loop. Paths that begin alike share places."""

    __slots__ = ("__weakref__", "segment")

    def __init__(self, segment: Segment) -> None:
        self.segment = segment


class Segments:
    """The segments of all paths of one traced function, and their places, as long as a path refers to them.

    ended: the number of paths at which looks began to give up because new paths kept coming; else 0.
    counted: whether what counts rounds is a run-time number (see `loops.counters`); None: this is not known
           yet.
    computes_math: whether `math` computes with run-time numbers (see `surroundings.math_module`).
    """

    def __init__(self) -> None:
        self.ended = 0
        self.counted: bool | None = None
        self.computes_math = False
        self._known: weakref.WeakValueDictionary[Any, Segment] = weakref.WeakValueDictionary()
        self._places: weakref.WeakValueDictionary[Any, PathPlace] = weakref.WeakValueDictionary()

    def find(self, key: Hashable, graph: Graph) -> Segment:
        """The segment with this structure; a schedule is compiled if there is none yet."""
        name = key, tuple(node.location for node in graph.nodes)  # errors name lines
        found = self._known.get(name)
        if found is None:
            found = self._known[name] = Segment(graph, compile.compile_graph(copied(graph)))
        return found

    def place(self, before: PathPlace | None, segment: Segment, loop: Hashable = None) -> PathPlace:
        """The place of a segment after `before` (None: it is the first), or of a loop whose rounds `loop`
        describes.
        """
        name = before, segment, loop
        found = self._places.get(name)
        if found is None:
            found = self._places[name] = PathPlace(segment)
        return found


class Cut(NamedTuple):
    """A look in a recorded call: the segment that it ended, and how it was launched.

    source: the number looked at, which is element 0 of the first of `made`.
    draws:  numbers of the random streams (in `Draws.totals`) that the segment draws from.
    """

    segment: Segment
    source: Source
    bound: tuple[Bound, ...]
    made: tuple[Storage, ...]
    draws: range
