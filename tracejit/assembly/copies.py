"""Copies of tasks: the program of a graph from that of its components of different kinds.

Parts of a graph that are equal go through the passes once (see `passes.components`), and their tasks are made
once, too. A copy of a task runs the same kernel. It has a block of its own, which is filled from its own
arguments, and waits for copies of the tasks that the first one waits for, where these are of its part.

    task 0  block 0  uses 0, 1           task 0  block 0  uses 0, 1
                                   =>    task 1  block 6  uses 2, 3

A task that needs memory of the launch has no copies: that memory is planned for the complete graph.
"""

# No `from __future__ import annotations`: a named tuple compiles every annotation that is a string.

from collections.abc import Sequence
from typing import NamedTuple

from tracejit import engine
from tracejit.ir.graph import Graph
from tracejit.ops import loop
from tracejit.ops.communicate import COLLECTIVE
from tracejit.passes.components import Copies
from tracejit.passes.memory.aliases import is_task
from tracejit.passes.memory.plan import MemoryPlan

Patch = tuple[int, int, int]


class Parts(NamedTuple):
    """The tasks of a program, its blocks, and the modes of its arguments; see `engine.Program`.

    origins: the number that each task had before it was copied.
    """

    tasks: Sequence[engine.Task]
    template: Sequence[int]
    patches: Sequence[Patch]
    modes: Sequence[int]
    origins: Sequence[int]


def are_copyable(memory: MemoryPlan) -> bool:
    """Whether the tasks of a plan may have copies: none needs memory of the launch, or is issued to a device
    together with others, or needs all results of the launch (`agree`).
    """
    return not memory.arena_bytes and not any(
        task.node.op is loop
        or task.node.op in COLLECTIVE
        or any(
            not v.type.device.is_addressable
            for v in task.node.outputs + task.node.inputs
            if not v.type.on_host
        )
        for task in memory.tasks
    )


def with_copies(parts: Parts, graph: Graph, copies: Copies) -> Parts:
    """The parts of the complete program, from those of `graph`, whose tasks are in its order."""
    return _Copier(parts, copies).run(graph)


class _Copier:
    """The state of one walk over the tasks."""

    def __init__(self, parts: Parts, copies: Copies):
        self.parts, self.behind = parts, copies.behind
        inputs, outputs = len(copies.whole.inputs), len(copies.whole.outputs)
        further = range(inputs + outputs, inputs + outputs + len(parts.modes) - len(copies.arguments))
        self.arguments = dict(enumerate([*copies.arguments, *further]))
        self.modes = [engine.NUMBER] * (inputs + outputs + len(further))
        self.tasks: list[engine.Task] = []
        self.template: list[int] = []
        self.patches: list[Patch] = []
        self.origins: list[int] = []
        self.places: dict[int, int] = {}  # of tasks that are no copies
        ends = [*[task.block for task in parts.tasks[1:]], len(parts.template)]
        self.blocks = [slice(task.block, end) for task, end in zip(parts.tasks, ends, strict=True)]
        self.patches_of: list[list[Patch]] = [[] for _ in parts.tasks]
        number = 0
        for patch in parts.patches:  # in the order of their slots
            while patch[0] >= ends[number]:
                number += 1
            self.patches_of[number].append(patch)

    def run(self, graph: Graph) -> Parts:
        """Walk over the nodes of a graph, each of which is followed by the copies behind it."""
        numbers: dict[int, int] = {}  # of tasks, by the positions of their nodes
        self._note_modes(self.arguments)
        for position, node in enumerate(graph.nodes):
            if is_task(node):
                number = numbers[position] = len(numbers)
                self.places[number] = self._add(number, self.arguments, self.places)
            for copy in self.behind.get(position, ()):
                self._note_modes(copy.arguments)
                places: dict[int, int] = {}
                for at in copy.nodes:
                    if (known := numbers.get(at)) is not None:
                        places[known] = self._add(known, copy.arguments, places)
        return Parts(self.tasks, self.template, self.patches, self.modes, self.origins)

    def _note_modes(self, arguments: dict[int, int]) -> None:
        modes = self.parts.modes
        for mine, theirs in arguments.items():
            self.modes[theirs] = modes[mine]

    def _add(self, number: int, arguments: dict[int, int], places: dict[int, int]) -> int:
        """Append a task with these arguments, behind those at `places`, if not behind the first ones; its
        own place.
        """
        task, start, known = self.parts.tasks[number], len(self.template), self.places
        self.template += self.parts.template[self.blocks[number]]
        by = start - task.block
        for slot, argument, addend in self.patches_of[number]:
            self.patches.append((slot + by, arguments[argument] if argument >= 0 else argument, addend))
        after = [places[t] if t in places else known[t] for t in task.after]
        uses = sorted([arguments[a] for a in task.uses])
        self.tasks.append(task._replace(block=start, after=tuple(sorted(after)), uses=tuple(uses)))
        self.origins.append(number)
        return len(self.tasks) - 1
