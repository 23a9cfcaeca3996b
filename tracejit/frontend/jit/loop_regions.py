"""Regions of a path that are a loop: from the first look in a state of the body to the last one, if the path
comes to that state again.

    look 1: A, look 2: B, look 3: B, look 4: A, look 5: B, last part
            |--------- ways A to B, B to B, B to A --|
"""

from __future__ import annotations

from typing import Any, NamedTuple

from tracejit.frontend.recording.loops.ways import StateGraph
from tracejit.frontend.recording.origins import Extent
from tracejit.frontend.recording.segments import Cut
from tracejit.frontend.recording.sources import Computed, Source
from tracejit.frontend.recording.trace import Trace


class LoopRegion(NamedTuple):
    """Looks `first` to `last` of a path, which are a loop.

    ways:    by the number of a state, in order of first visit: the looks with which different ways begin.
    arrays, numbers: which ones of each state are variables: others are the same whenever a body is in it.
    """

    first: int
    last: int
    ways: dict[int, tuple[int, ...]]
    arrays: dict[int, tuple[int, ...]]
    numbers: dict[int, tuple[int, ...]]


def regions_of(trace: Trace) -> list[LoopRegion]:
    """The loops of a path, in order."""
    graph = trace.looks.graph
    last = {at: index for index, at in enumerate(graph.at) if at is not None}
    found, index = [], 0
    while index < len(graph.at):
        first, end = index, _end(graph, index, last)
        if end > first and _is_complete(trace, first, end):
            found.append(_region(graph, first, end))
            index = end
        index += 1
    return found


def _end(graph: StateGraph, first: int, last: dict[int, int]) -> int:
    """The last look of the loop that begins at a look; that itself, if there is none."""
    end = index = first
    while index <= end and index < len(graph.at):
        at = graph.at[index]
        if at is None or (index > first and graph.way_keys[index - 1] is None):
            return first  # the way there uses what nobody knows
        end = max(end, last[at])
        index += 1
    return end


def _region(graph: StateGraph, first: int, last: int) -> LoopRegion:
    """The ways between the looks, and what they change."""
    ways: dict[int, tuple[int, ...]] = {}
    known = set()
    for index in range(first, last + 1):
        at = graph.number(index)
        ways.setdefault(at, ())
        if index < last and (way := (at, graph.at[index + 1], graph.way_keys[index])) not in known:
            known.add(way)
            ways[at] = (*ways[at], index)
    kept = _unchanged(graph, first, last)
    arrays, numbers = {}, {}
    for at in ways:
        state = graph.state(graph.at.index(at, first))
        arrays[at] = tuple(k for k in range(len(state.carriers)) if ("array", at, k) not in kept)
        numbers[at] = tuple(k for k in range(len(state.sources)) if ("number", at, k) not in kept)
    return LoopRegion(first, last, ways, arrays, numbers)


def _unchanged(graph: StateGraph, first: int, last: int) -> set[Any]:
    """Arrays and numbers of the states that are what they were before the loop, whatever ways are gone."""
    objects: dict[Any, set[Any]] = {}
    for index in range(first, last + 1):
        for place, held in _places(graph, index).items():
            objects.setdefault(place, set()).add(held)
    inside = _made_inside(graph, first, last)
    kept = {
        place: next(iter(held))
        for place, held in objects.items()
        if len(held) == 1 and inside.isdisjoint(held)
    }
    while True:
        gone = set()
        for index in range(first, last):
            now = {held: place for place, held in _places(graph, index).items()}
            for place, held in _places(graph, index + 1).items():
                if place in kept and held in now and now[held] not in kept:
                    gone.add(place)
        if not gone:
            return set(kept)
        for place in gone:
            del kept[place]


def _places(graph: StateGraph, index: int) -> dict[tuple[str, int, int], Any]:
    """The arrays and numbers of the state at a look."""
    state, at = graph.state(index), graph.number(index)
    arrays: dict[Any, Any] = {("array", at, k): storage for k, storage in enumerate(state.carriers)}
    return arrays | {("number", at, k): source for k, source in enumerate(state.sources)}


def _made_inside(graph: StateGraph, first: int, last: int) -> set[Any]:
    """Arrays and numbers made, computed or found after look `first`, up to look `last`."""
    cuts = graph.cuts[first + 1 : last + 1]
    made: set[Any] = {storage for cut in cuts for storage in cut.made} | {cut.source for cut in cuts}
    return made.union(*({s for s in graph.between(i) if isinstance(s, Computed)} for i in range(first, last)))


def _is_complete(trace: Trace, first: int, last: int) -> bool:
    """Whether what comes after the loop finds in its last state what it needs."""
    graph = trace.looks.graph
    state = graph.state(last)
    gone = _made_inside(graph, first, last) - {*state.carriers, *state.sources}
    for bound in (*trace.bound, *(b for cut in trace.looks.cuts[last + 1 :] for b in cut.bound)):
        if (bound.storage if isinstance(bound, Extent) else bound.source) in gone:
            return False
    steps = [step for step in graph.since(last) if not isinstance(step, Cut)]
    return not any(isinstance(o, Computed | Source) and o in gone for step in steps for o in step.operands)
