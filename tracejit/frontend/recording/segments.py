"""Segments of a traced function: the operations that its calls launch between two looks (see `looks`).

Invariants:
- The results of a segment are fixed when it ends, independent of what follows. Calls that start with the same
  operations and answers therefore share segments (`Segments.find`) and nodes of the trace tree
  (`Segments.tree_node`), whatever they do later.
- Segments with the same structure share a schedule: the iterations of a loop are compiled once.
"""

# No `from __future__ import annotations`: a named tuple compiles every annotation that is a string.

import weakref
from collections import deque
from collections.abc import Hashable
from typing import Any, NamedTuple

from tracejit import compile, engine
from tracejit.frontend.recording import eager
from tracejit.frontend.recording.draws import Total
from tracejit.frontend.recording.origins import InputOrigin
from tracejit.frontend.recording.sources import Source
from tracejit.frontend.recording.storage import Storage
from tracejit.ir.graph import Graph
from tracejit.ir.structure import copied
from tracejit.ops.loops import graph_can_fail

RECENT = 32
"""The number of recent paths whose transitions a new path may adopt."""


class Segment:
    """The operations of a path between two looks: their graph and its schedule."""

    __slots__ = ("__weakref__", "graph", "schedule")

    def __init__(self, graph: Graph, schedule: Any) -> None:
        self.graph, self.schedule = graph, schedule

    def run(self, origins: list[InputOrigin]) -> tuple[tuple[Storage, ...], Any]:
        """Launch the segment, and wait for the number that is looked at, element 0 of the first result.
        Return the results and that number.
        """
        results = tuple([Storage(value.type) for value in self.graph.outputs])
        eager.run(self.graph, origins, list(results), self.schedule)
        awaited = results if graph_can_fail(self.graph) else results[:1]
        engine.wait(*(storage.variable for storage in awaited))
        return results, results[0].memory().reshape(-1)[0].item()


MIN_BUCKET, MAX_SHARED_BUCKET = 8, 64
"""Slices of varying length are padded to a power of two: at least to the former, and those up to the latter
to a common one (see `arrays.padded_slices`).
"""


class TreeNode:
    """A node of a function's trace tree: a segment at its position in a path, or a loop over looks. Paths
    with a common prefix share nodes.
    """

    __slots__ = ("__weakref__", "segment")

    def __init__(self, segment: Segment) -> None:
        self.segment = segment


class Segments:
    """The segments of all paths of one traced function, and the nodes of its trace tree. Both live as long as
    a path refers to them.

    ended:         the number of paths after which looks abort recordings, because new paths kept coming; 0
                   before that.
    counted:       whether iteration counters are run-time numbers (see `look_loops.counters`); None: not
                   known yet.
    stepped, unasked: see `Assumptions`.
    computes_math: whether `math` computes with run-time numbers (see `surroundings.math_module`).
    """

    def __init__(self) -> None:
        self.ended = 0
        self.counted: bool | None = None
        self.computes_math = False
        self.stepped: bool | None = None
        self.unasked: set[Any] = set()
        self._lengths: dict[Hashable, tuple[int, int]] = {}  # the first length, and the capacity
        self._known: weakref.WeakValueDictionary[Any, Segment] = weakref.WeakValueDictionary()
        self._tree: weakref.WeakValueDictionary[Any, TreeNode] = weakref.WeakValueDictionary()
        self._paths: deque[weakref.ref[Any]] = deque(maxlen=RECENT)

    def slice_capacity(self, site: Hashable, length: int) -> int:
        """Return how many elements a slice of this length, at this place in the code, is padded to; 0 if it
        has always had this length. Longer slices than `MAX_SHARED_BUCKET` do not increase the result.
        """
        first, capacity = self._lengths.setdefault(site, (length, 0))
        if capacity or length != first:
            capacity = max(capacity, MIN_BUCKET)
            while capacity < min(max(length, first), MAX_SHARED_BUCKET):
                capacity *= 2
            self._lengths[site] = first, capacity
        return capacity

    def find(self, key: Hashable, graph: Graph) -> Segment:
        """Return the segment with this structure. Its schedule is compiled when it is new."""
        name = key, tuple(node.location for node in graph.nodes)  # errors name lines
        segment = self._known.get(name)
        if segment is None:
            segment = self._known[name] = Segment(graph, compile.compile_graph(copied(graph)))
        return segment

    def tree_node(self, parent: TreeNode | None, segment: Segment, loop: Hashable = None) -> TreeNode:
        """Return the child of `parent` (None: the root) for a segment, or for the loop that `loop` describes,
        which contains this segment.
        """
        name = parent, segment if loop is None else None, loop
        node = self._tree.get(name)
        if node is None:
            node = self._tree[name] = TreeNode(segment)
        return node

    def add_path(self, transitions: Any) -> None:
        """Add a path, given its transitions, which live as long as it."""
        self._paths.append(weakref.ref(transitions))

    def recent_paths(self) -> list[Any]:
        """Return the transitions of recently recorded paths (`state_loops.adoption.KnownTransitions`), newest
        first.
        """
        return [path for reference in reversed(self._paths) if (path := reference()) is not None]


class Cut(NamedTuple):
    """A look in a recorded call: the segment that it ended, and how it was launched.

    source:  the number looked at, element 0 of the first of `results`.
    origins:   the origins of the segment's inputs.
    results: the storages of the segment's outputs.
    draws:   the positions, in `Draws.totals`, of the random streams that the segment draws from.
    totals:  these streams, and the total drawn from each.
    """

    segment: Segment
    source: Source
    origins: tuple[InputOrigin, ...]
    results: tuple[Storage, ...]
    draws: range
    totals: tuple[tuple[Any, Total], ...]
