"""Partial launches of a recording, so that a failure affects only the results that depend on it.

Eager results that can fail for different reasons are launched separately (`parts.partition_by_failure`). If
there is not enough memory for all results, those without memory are launched separately, and fail.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable

from tracejit.errors import AllocationError, TracejitError, locate
from tracejit.frontend.recording import parts
from tracejit.frontend.recording.origins import InputOrigin, StorageRange
from tracejit.frontend.recording.storage import Storage, StorageFailure
from tracejit.ir.graph import Graph, Value
from tracejit.ir.op import Trait

unreported: deque[StorageFailure] = deque(maxlen=256)
"""Failures of arrays, oldest first. `wait_all` raises those that no other call has raised."""


class PartialLaunch:
    """A graph to be launched, the origins of its inputs, and the storages of its outputs.

    begun:  nonempty once the graph was launched.
    failed: whether the graph cannot be launched.
    """

    __slots__ = ("begun", "failed", "graph", "key", "origins", "storages")

    def __init__(
        self, graph: Graph, key: Hashable, origins: list[InputOrigin], storages: list[Storage]
    ) -> None:
        self.graph, self.key, self.origins, self.storages = graph, key, origins, storages
        self.begun: list[int] = []
        self.failed = False

    def smaller(self) -> list[PartialLaunch]:
        """Split the launch into several: one without the results that have no memory, or one per result."""
        lost = [i for i, storage in enumerate(self.storages) if not _has_memory(storage)]
        partition = parts.partition_by_result(self.graph)
        if lost and len(lost) < len(partition):
            possible = parts.Part(frozenset((len(self.storages),)))
            for part in partition:
                if not (part.outputs and part.outputs[0] in lost):
                    possible.join(part)
            partition = [possible, *(part for part in partition if part.outputs and part.outputs[0] in lost)]
        return _split(partition, self.graph, self.key, self.origins, self.storages)

    def fail(self, error: Exception) -> Exception:
        """Fail all results, as the graph cannot be launched. Return the error, which a look at a result
        raises.
        """
        self.failed = True
        if isinstance(error, MemoryError) and not isinstance(error, TracejitError):
            error = no_memory(self.graph)
        for storage in self.storages:
            if storage.failure is None:
                unreported.append(storage.fail(error))
        windows = dict(zip(self.graph.inputs, self.origins, strict=True))
        written = [windows[effect.target] for effect in self.graph.effects]
        for storage in dict.fromkeys(
            extent.storage for extent in written if isinstance(extent, StorageRange)
        ):
            storage.failure = StorageFailure(error)  # the storage retains its old content
            unreported.append(storage.failure)
        return error


def _has_memory(storage: Storage) -> bool:
    """Whether a storage has memory; tries to allocate it."""
    try:
        if storage.variable is None:
            storage.materialise()
    except MemoryError:
        return False
    return True


def launches_of(
    graph: Graph, key: Hashable, origins: list[InputOrigin], storages: list[Storage]
) -> list[PartialLaunch]:
    """Split a graph into launches each of which has a single reason to fail."""
    is_one = len(graph.outputs) + len(graph.effects) <= 1
    if is_one or not any(Trait.CAN_FAIL in node.op.traits for node in graph.nodes):
        return [PartialLaunch(graph, key, origins, storages)]
    return _split(parts.partition_by_failure(graph), graph, key, origins, storages)


def _split(
    partition: list[parts.Part],
    graph: Graph,
    key: Hashable,
    origins: list[InputOrigin],
    storages: list[Storage],
) -> list[PartialLaunch]:
    """Return the launches for parts of a graph."""
    origin_of: dict[Value, InputOrigin] = dict(zip(graph.inputs, origins, strict=True))
    launches = []
    for index, subgraph in enumerate(parts.subgraphs_of(graph, partition)):
        part_bound = [origin_of[value] for value in subgraph.graph.inputs]
        part_storages = [storages[i] for i in subgraph.outputs]
        for value in subgraph.shared:
            storage = Storage(value.type)
            part_storages.append(storage)
            origin_of.setdefault(value, StorageRange(storage, 0, value.type.size))
        part_key = key, index, tuple(part.causes for part in partition)  # derived from the graph's key
        launches.append(PartialLaunch(subgraph.graph, part_key, part_bound, part_storages))
    return launches


def no_memory(graph: Graph, why: Exception | None = None) -> TracejitError:
    """Return the error for results that could not be computed for lack of memory, with the user's line."""
    types = ", ".join(str(value.type) for value in graph.results())
    location = next((node.location for node in reversed(graph.nodes)), None)
    message = f"there is no memory to compute {types}" + (f": {why}" if why else "")
    return locate(AllocationError(message), location)
