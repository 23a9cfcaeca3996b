"""Copies of tasks: the program of a complete graph, from the tasks of its distinct components.

Equal subgraphs go through the passes once (see `passes.components`), and their tasks are built once, too. A
copy of a task runs the same kernel. It has its own block, which is filled from its own arguments. It waits
for the copies of the tasks that the original waits for, if these are in the same subgraph.

    task 0  block 0  uses 0, 1           task 0  block 0  uses 0, 1
                                   =>    task 1  block 6  uses 2, 3

A task that needs memory of the launch is not copied: that memory is planned for the complete graph.
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


class ProgramParts(NamedTuple):
    """The tasks of a program, its blocks, and the modes of its arguments; see `engine.Program`.

    origins: the number of the original of each task.
    """

    tasks: Sequence[engine.Task]
    template: Sequence[int]
    patches: Sequence[Patch]
    modes: Sequence[int]
    origins: Sequence[int]


def are_copyable(memory: MemoryPlan) -> bool:
    """Return whether the tasks of a plan may be copied. None may need memory of the launch, be issued to a
    device together with others, or need all results of the launch (`agree`).
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


def with_copies(parts: ProgramParts, graph: Graph, copies: Copies) -> ProgramParts:
    """Return the parts of the complete program from those of `graph`, whose tasks are in the order of its
    nodes.
    """
    return _Copier(parts, copies).run(graph)


class _Copier:
    """The state of one traversal of the tasks."""

    def __init__(self, parts: ProgramParts, copies: Copies):
        self.parts, self.copies_after = parts, copies.copies_after
        inputs, outputs = len(copies.complete_graph.inputs), len(copies.complete_graph.outputs)
        extra_arguments = range(inputs + outputs, inputs + outputs + len(parts.modes) - len(copies.arguments))
        self.arguments = dict(enumerate([*copies.arguments, *extra_arguments]))
        self.modes = [engine.NUMBER] * (inputs + outputs + len(extra_arguments))
        self.tasks: list[engine.Task] = []
        self.template: list[int] = []
        self.patches: list[Patch] = []
        self.origins: list[int] = []
        self.positions: dict[int, int] = {}  # new numbers of the original tasks
        ends = [*[task.block for task in parts.tasks[1:]], len(parts.template)][: len(parts.tasks)]
        self.blocks = [slice(task.block, end) for task, end in zip(parts.tasks, ends, strict=True)]
        self.patches_of: list[list[Patch]] = [[] for _ in parts.tasks]
        number = 0
        for patch in parts.patches:  # sorted by slot
            while patch[0] >= ends[number]:
                number += 1
            self.patches_of[number].append(patch)

    def run(self, graph: Graph) -> ProgramParts:
        """Traverse the nodes of a graph, and append each task followed by its copies."""
        numbers: dict[int, int] = {}  # of tasks, by the indices of their nodes
        self._note_modes(self.arguments)
        for position, node in enumerate(graph.nodes):
            if is_task(node):
                number = numbers[position] = len(numbers)
                self.positions[number] = self._add(number, self.arguments, self.positions)
            for copy in self.copies_after.get(position, ()):
                self._note_modes(copy.arguments)
                copied: dict[int, int] = {}
                for index in copy.nodes:
                    if (original := numbers.get(index)) is not None:
                        copied[original] = self._add(original, copy.arguments, copied)
        return ProgramParts(self.tasks, self.template, self.patches, self.modes, self.origins)

    def _note_modes(self, arguments: dict[int, int]) -> None:
        modes = self.parts.modes
        for own, target in arguments.items():
            self.modes[target] = modes[own]

    def _add(self, number: int, arguments: dict[int, int], numbers: dict[int, int]) -> int:
        """Append a task with these arguments, and return its new number. `numbers` contains the new
        numbers of tasks copied with it; it waits for those if it can, else for the originals.
        """
        task, start, originals = self.parts.tasks[number], len(self.template), self.positions
        self.template += self.parts.template[self.blocks[number]]
        shift = start - task.block
        for slot, argument, addend in self.patches_of[number]:
            self.patches.append((slot + shift, arguments[argument] if argument >= 0 else argument, addend))
        after = [numbers[t] if t in numbers else originals[t] for t in task.after]
        uses = sorted([arguments[a] for a in task.uses])
        self.tasks.append(task._replace(block=start, after=tuple(sorted(after)), uses=tuple(uses)))
        self.origins.append(number)
        return len(self.tasks) - 1
