"""Launches of a recording that are smaller than all of it, so that a failure takes only what depends on it.

Eager results that can fail for different reasons are launched separately (`parts.by_failure`). Where there is
not enough memory for all results, those without memory are launched separately, and fail.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable

from tracejit.errors import AllocationError, TracejitError, locate
from tracejit.frontend.recording import parts
from tracejit.frontend.recording.origins import Bound, Extent
from tracejit.frontend.recording.storage import Storage, StorageFailure
from tracejit.ir.graph import Graph, Value
from tracejit.ir.op import Trait

unreported: deque[StorageFailure] = deque(maxlen=256)
"""Failures of arrays, oldest first; `wait_all` raises those that nothing else has raised."""


class PartialLaunch:
    """A graph that is to be launched, the origins of its inputs, and the storages of its outputs.

    begun: not empty once it was launched; failed: whether it cannot be.
    """

    __slots__ = ("begun", "bound", "failed", "graph", "key", "places")

    def __init__(self, graph: Graph, key: Hashable, bound: list[Bound], places: list[Storage]) -> None:
        self.graph, self.key, self.bound, self.places = graph, key, bound, places
        self.begun: list[int] = []
        self.failed = False

    def smaller(self) -> list[PartialLaunch]:
        """Split it into several launches: one without the results that have no memory, or one for each."""
        lost = [i for i, storage in enumerate(self.places) if not _has_memory(storage)]
        found = parts.by_result(self.graph)
        if lost and len(lost) < len(found):
            rest = parts.Part(frozenset((len(self.places),)))
            for part in found:
                if not (part.outputs and part.outputs[0] in lost):
                    rest.join(part)
            found = [rest, *(part for part in found if part.outputs and part.outputs[0] in lost)]
        return _apart(found, self.graph, self.key, self.bound, self.places)

    def fail(self, error: Exception) -> Exception:
        """Fail all results, as nothing can be launched. A look at one raises the error, which is returned."""
        self.failed = True
        if isinstance(error, MemoryError) and not isinstance(error, TracejitError):
            error = no_memory(self.graph)
        for storage in self.places:
            if storage.failure is None:
                unreported.append(storage.fail(error))
        windows = dict(zip(self.graph.inputs, self.bound, strict=True))
        written = [windows[effect.target] for effect in self.graph.effects]
        for storage in dict.fromkeys(place.storage for place in written if isinstance(place, Extent)):
            storage.failure = StorageFailure(error)  # it keeps its content
            unreported.append(storage.failure)
        return error


def _has_memory(storage: Storage) -> bool:
    """Whether there is memory for a storage; if so, it has it now."""
    try:
        if storage.variable is None:
            storage.materialise()
    except MemoryError:
        return False
    return True


def launches_of(
    graph: Graph, key: Hashable, bound: list[Bound], places: list[Storage]
) -> list[PartialLaunch]:
    """Split a graph into launches each of which has one reason to fail."""
    is_one = len(graph.outputs) + len(graph.effects) <= 1
    if is_one or not any(Trait.CAN_FAIL in node.op.traits for node in graph.nodes):
        return [PartialLaunch(graph, key, bound, places)]
    return _apart(parts.by_failure(graph), graph, key, bound, places)


def _apart(
    found: list[parts.Part],
    graph: Graph,
    key: Hashable,
    bound: list[Bound],
    places: list[Storage],
) -> list[PartialLaunch]:
    """Parts of a graph as launches."""
    where: dict[Value, Bound] = dict(zip(graph.inputs, bound, strict=True))
    launches = []
    for number, piece in enumerate(parts.cut(graph, found)):
        part_bound = [where[value] for value in piece.graph.inputs]
        part_places = [places[i] for i in piece.outputs]
        for value in piece.shared:
            storage = Storage(value.type)
            part_places.append(storage)
            where.setdefault(value, Extent(storage, 0, value.type.size))
        name = key, number, tuple(part.causes for part in found)  # the key of the whole names its parts
        launches.append(PartialLaunch(piece.graph, name, part_bound, part_places))
    return launches


def no_memory(graph: Graph, why: Exception | None = None) -> TracejitError:
    """The error for results that could not be computed for lack of memory, with the line."""
    types = ", ".join(str(value.type) for value in graph.results())
    location = next((node.location for node in reversed(graph.nodes)), None)
    message = f"there is no memory to compute {types}" + (f": {why}" if why else "")
    return locate(AllocationError(message), location)
