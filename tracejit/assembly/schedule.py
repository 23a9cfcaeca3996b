"""Schedules: compiled graphs, the results of `compile_graph`, which can be launched any number of times.

    schedule = compile_graph(graph)
    packed = schedule.pack.pack(*values, *variables)     # addresses and numbers, then variables' addresses
    schedule.launch(packed, keep)                        # returns immediately; the engine runs the tasks

`values` contains, for each input and then each output of the graph, its address, or the number itself for an
input on the host. Outputs are new memory. Inputs that effects write keep their address.
"""

# No `from __future__ import annotations`: a named tuple compiles every annotation that is a string.

import struct
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from tracejit.assembly.words import kernel_name
from tracejit.engine import Program, Task
from tracejit.errors import ArgumentError
from tracejit.ir.graph import Graph
from tracejit.ir.printer import ValueNames
from tracejit.ir.types import BFLOAT16, ArrayType, is_floating, name_of
from tracejit.passes.components import Copies
from tracejit.passes.fusion.fuse import MissedFusion
from tracejit.passes.memory.plan import MemoryPlan

_CODES = {
    "bool": "?7x",
    "int8": "b7x",
    "uint8": "B7x",
    "int16": "h6x",
    "uint16": "H6x",
    "int32": "i4x",
    "uint32": "I4x",
    "int64": "q",
    "uint64": "Q",
    "float16": "e6x",
    "bfloat16": "H6x",
    "float32": "f4x",
    "float64": "d",
}
"""The formats with which `struct` packs a number into the low bytes of an 8-byte slot. A bfloat16 is
packed as its bits.
"""


class Packer:
    """Packs the arguments of a launch: ``pack(*values, *variables)``, like `struct.Struct`.

    Numbers outside the range of the dtype follow NumPy: a float becomes infinite, an integer raises
    `OverflowError`.
    """

    def __init__(self, values: Sequence[ArrayType]):
        self._types = tuple(values)
        codes = "".join(_CODES[name_of(t.dtype)] if t.on_host else "q" for t in values)
        self._struct = struct.Struct("=" + codes + "q" * len(values))
        self.size = self._struct.size
        self._pack = self._struct.pack
        self._of_bits = tuple(i for i, t in enumerate(values) if t.on_host and t.dtype == BFLOAT16)
        exact = all(not t.on_host or name_of(t.dtype) in ("bool", "float64") for t in values)
        self.pack: Callable[..., bytes] = self._pack if exact else self._pack_converting

    def _pack_converting(self, *arguments: Any) -> bytes:
        if self._of_bits:
            converted = list(arguments)
            for i in self._of_bits:
                converted[i] = bits_of_bfloat16(converted[i])
            arguments = tuple(converted)
        try:
            return self._pack(*arguments)
        except (struct.error, OverflowError):
            return self._pack(*map(_converted, self._types, arguments), *arguments[len(self._types) :])


def bits_of_bfloat16(number: float) -> int:
    """Return the 16 bits of the bfloat16 nearest to a number."""
    with np.errstate(over="ignore"):
        return int(np.asarray(number, BFLOAT16).view(np.uint16))


def _converted(type: ArrayType, value: Any) -> Any:
    if not type.on_host or type.dtype == BFLOAT16:
        return value
    if is_floating(type.dtype):
        with np.errstate(over="ignore"):
            return type.dtype.type(value)
    low, high = np.iinfo(type.dtype).min, np.iinfo(type.dtype).max
    if not low <= value <= high:
        raise OverflowError(f"the number {value} does not fit {type.dtype}, which holds {low} to {high}")
    return value


class Planned(NamedTuple):
    """The plan of a graph before any kernel is compiled. `times`: the seconds spent in each stage.

    `reduced` is the plan of the reduced graph, whose tasks have `copies`; `build_plan` returns the plan of
    the complete graph, which it builds on the first call. Without copies both plans are the same.
    """

    reduced: MemoryPlan
    copies: Copies | None
    build_plan: Callable[[], MemoryPlan]
    naive_bytes: int
    operations: int
    missed: tuple[MissedFusion, ...]
    times: dict[str, float]

    @property
    def memory(self) -> MemoryPlan:
        """The plan of the complete graph."""
        return self.build_plan()

    @property
    def planned_bytes(self) -> int:
        """The bytes of internal memory that one launch needs: the arena."""
        return self.memory.arena_bytes


class KernelInfo(NamedTuple):
    """A kernel of a schedule, for users. `locations`: the user's source lines that its tasks compute."""

    name: str
    source: str
    key: str
    locations: tuple[str, ...]
    width: int
    origin: str
    seconds: float

    @property
    def vectorised(self) -> bool:
        """Whether the machine code uses vector instructions."""
        return self.width > 1


class Schedule(NamedTuple):
    """A compiled graph.

    `build_plan` returns its plan, which may be built on the first request. `tasks` are the engine's tasks,
    `segments` the tasks of the plan that each of them runs, and `lines` the user's source lines.
    `operations` is the number of recorded operations, and `times` the seconds spent in each stage of
    compilation. `launch` returns immediately, and may tell that all tasks have ended without a failure: True.
    `commit` returns when no task of the launch can fail any more, or raises.
    """

    build_plan: Callable[[], MemoryPlan]
    program: Program
    tasks: tuple[Task, ...]
    segments: tuple[tuple[int, ...], ...]
    kernels: tuple[KernelInfo, ...]
    pack: Packer
    launch: Callable[..., bool | None]
    commit: Callable[..., None]
    naive_bytes: int
    operations: int
    lines: tuple[tuple[str, ...], ...]
    missed: tuple[MissedFusion, ...]
    times: dict[str, float]

    @property
    def plan(self) -> MemoryPlan:
        """The memory plan."""
        return self.build_plan()

    @property
    def graph(self) -> Graph:
        """The graph of kernels."""
        return self.plan.graph

    @property
    def planned_bytes(self) -> int:
        """The bytes of internal memory that one launch needs: the arena."""
        return self.plan.arena_bytes

    def __str__(self) -> str:
        return self.text()

    def task_at(self, file: str, line: int) -> int:
        """Return the last task that computes a value written on this line of the user's code."""
        location = f"{file}:{line}"
        for number in reversed(range(len(self.lines))):
            if location in self.lines[number]:
                return number
        raise ArgumentError(f"no task of this schedule computes anything written at {location}")

    def path(self, first: int, second: int) -> bool:
        """Return whether task `second` has to wait for task `first`."""
        waiting, seen = [second], {second}
        while waiting:
            for earlier in self.tasks[waiting.pop()].after:
                if earlier not in seen:
                    seen.add(earlier)
                    waiting.append(earlier)
        return first in seen and first != second

    def text(self) -> str:
        """Return the schedule as text, for users and golden tests: the tasks, their dependences, and the
        locations of values.
        """
        name = ValueNames()
        locations = self.plan.locations

        def located(value: Any) -> str:
            return f"{name(value)}@{locations[value]}" if value in locations else name(value)

        head = ", ".join(f"{name(v)}: {v.type}" for v in self.graph.inputs)
        lines = [f"schedule({head})"]
        for number, (numbers, task) in enumerate(zip(self.segments, self.tasks, strict=True)):
            after = f" after {', '.join(map(str, task.after))}" if task.after else ""
            split = f" [{task.units}/{task.chunk}]" if task.callable is None else " [Python]"
            if len(numbers) > 1:
                lines.append(f"  {number}: {task.name}{after}")
            for planned in (self.plan.tasks[n] for n in numbers):
                inputs = ", ".join(map(located, planned.node.inputs))
                outputs = ", ".join(map(located, planned.node.outputs))
                left = f"{outputs}{' = ' * bool(outputs)}"
                if len(numbers) > 1:
                    lines.append(f"       {left}{kernel_name(planned.node)}({inputs})")
                else:
                    lines.append(f"  {number}: {left}{task.name}({inputs}){split}{after}")
        lines.append(f"  return {', '.join(map(located, self.graph.outputs))}".rstrip())
        lines.append(f"memory: planned {self.planned_bytes} bytes, naive {self.naive_bytes}")
        return "\n".join(lines)
