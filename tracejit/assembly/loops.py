"""The job of a loop: the tasks of its body in one argument block, and the slots that grow in each iteration.

The body is planned like a separate graph whose inputs are windows of the loop's operands. Its plan determines
which values are computed directly in an operand, and which are copied there at the end of an iteration. The
body's tasks become one kernel call (`kernels.executor.loop`). It copies their blocks to memory of the launch,
runs the tasks in the plan's order, and advances the slots that move:

    ValueAddress(window, offset)  ->  ValueAddress(operand, offset + start), which grows by `step` elements in
                                      each iteration
    arena + offset                ->  memory of the launch, after the blocks

This module does not depend on how the block of a task is built: `job` is a parameter.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tracejit.assembly.blocks import row
from tracejit.assembly.words import (
    BlockOffset,
    Job,
    KernelAddress,
    LaunchMemory,
    LaunchWord,
    ValueAddress,
    bits_of,
    known_numbers,
)
from tracejit.codegen.objects.loader import Recipe
from tracejit.errors import VerificationError, locate
from tracejit.ir.graph import Graph, Node, Value
from tracejit.ir.moving import IterationsDiffer, Moving, enclosing_iterations, most, slope
from tracejit.ir.types import ArrayType
from tracejit.kernels.executor.blocks import KINDS, Growth, Loop, LoopTask
from tracejit.kernels.executor.layout import MEMBERS
from tracejit.kernels.split import ceil_div
from tracejit.loopnest.operands import NotSerial
from tracejit.ops.loops import case, targets
from tracejit.passes.driver import check, clean, form_kernels
from tracejit.passes.memory.legalize import legalize
from tracejit.passes.memory.plan import BufferKind, MemoryPlan, PlannedTask, plan
from tracejit.passes.memory.timing import work

if TYPE_CHECKING:
    from tracejit.passes.rolling.roll import RolledRun

LINE = 64  # bytes: the alignment of the areas in a loop's memory

ALL = 1 << 40
"""The number of units of a call that runs all units: the chunk of tasks whose chunk differs between
iterations.
"""

TASK_COST = 200
"""The cost of calling a task in an iteration. Costs are in units of 0.1 ns."""

TEAM_COST = 2_000_000
"""The minimal cost of a loop that is shared among threads."""

SUBDIVISION = 4
"""The factor by which the units of tasks that threads share are shorter than usual: sharing without queues
is cheap.
"""

CHECK_COST = 1_000_000
"""The cost of the iterations between two checks whether the thread has other work."""

LOOP = Recipe(
    "loop",
    ("executor", "loop"),
    lambda: "from tracejit.kernels.executor.loop import loop\n\nkernel = loop\n",
)


def plan_body(body: Graph) -> MemoryPlan:
    """Return the memory plan of one iteration. It is computed once for all loops with this body."""
    memory_plan: MemoryPlan | None = body.notes.get("plan")
    if memory_plan is None:
        legal = legalize(form_kernels(clean(body, rolls=False)))  # inner loops have been rolled already
        check("legalize", legal)
        memory_plan = body.notes["plan"] = plan(legal)
    return memory_plan


CUTS = 4
"""The greatest number of positions at which a run of iterations is split to keep the loop; with more, the
run is split at every iteration.
"""


class PlansDiffer(Exception):
    """Raised if iterations of a loop need different plans, so that its runs have to be split (see `roll`).

    positions: the positions of the splits; all_positions: the positions for a split at every iteration.
    """

    def __init__(self, node: Node, iterations: Sequence[int]):
        runs: list[RolledRun] = node.attrs["body"].notes["runs"]
        super().__init__(f"iterations differ from iteration {iterations[0]} on")
        self.all_positions = _positions(runs, range(runs[0].trip_count))
        is_split = 0 < len(iterations) <= CUTS and iterations[-1] > 0
        self.positions = _positions(runs, iterations) if is_split else self.all_positions


def _positions(runs: Sequence[RolledRun], iterations: Sequence[int]) -> list[tuple[int, int]]:
    return [(run.level, run.start + i * run.period) for run in runs for i in iterations]


def loop_job(node: Node, job: Callable[[PlannedTask], Job]) -> Job:
    """Return the job of a loop. `job` builds the job of a task. If not all iterations have the same plan,
    raise `PlansDiffer`, or `IterationsDiffer` for a loop within a loop. If the body contains a `case`, and
    the loop is no serial kernel, raise `VerificationError`: nothing else runs a `case`.
    """
    # Imported late: few programs have loops.
    from tracejit.assembly.serial import serial_job
    from tracejit.loopnest.serial import lower_serial

    body: Graph = node.attrs["body"]
    try:
        return serial_job(node, lower_serial(node))
    except NotSerial as error:
        if any(inner.op is case for inner in body.nodes):
            message = f"a loop with a case must be a serial kernel, but {error}"
            raise locate(VerificationError(message), node.location) from None
    try:
        return _loop_job(node, job)
    except IterationsDiffer as error:
        if "runs" not in body.notes:
            raise IterationsDiffer(enclosing_iterations(error.iterations, node.attrs["rounds"])) from None
        raise PlansDiffer(node, error.iterations) from None


def _loop_job(node: Node, job: Callable[[PlannedTask], Job]) -> Job:
    body: Graph = node.attrs["body"]
    memory, jobs = plan_body(body), _jobs(body, job, 1)
    members = _members(node, list(zip(memory.tasks, jobs, strict=True)))
    if members > 1:
        jobs = _jobs(body, job, SUBDIVISION)
    blocks = _BodyBlocks(node, memory)
    recipes: list[Recipe] = [LOOP]
    rows: list[LaunchWord] = []
    for task_job in jobs:
        start = 8 * len(blocks.words)
        blocks.add(task_job.words, len(recipes))
        split = 8 * len(blocks.words)
        blocks.add((task_job.units, task_job.chunk if isinstance(task_job.chunk, int) else ALL), 0)
        rows += row(
            {LoopTask.FUNCTION: KernelAddress(len(recipes)), LoopTask.BLOCK: start, LoopTask.UNITS: split},
            LoopTask,
        )
        recipes += task_job.recipes
    arena_at = _aligned(8 * len(blocks.words))
    growths = [blocks.growths[kind] for kind in KINDS]
    check_interval = CHECK_COST // (1 + sum(TASK_COST + work(task.node) for task in memory.tasks))
    header: dict[int, LaunchWord] = {
        Loop.COUNT: ValueAddress(node.inputs[0]),
        Loop.TASKS: len(jobs),
        **dict(zip((Loop.INTEGERS, Loop.FLOATS, Loop.DOUBLES), map(len, growths), strict=True)),
        Loop.ARENA: len(blocks.arena) // 2,
        Loop.BLOCK_BYTES: 8 * len(blocks.words),
        Loop.SPACE: LaunchMemory(),
        Loop.ARENA_OFFSET: arena_at,
        Loop.CHECK_INTERVAL: 1 + check_interval,
        Loop.MEMBERS: members,
        Loop.UNTIL: _until(node),
        **dict.fromkeys((Loop.ITERATION, Loop.TASK, Loop.UNIT), 0),
    }
    growing = [word for kind in growths for row in kind for word in row]
    words = (*row(header, Loop), *rows, *growing, *blocks.arena, *blocks.words)
    scratch = max((most(task_job.scratch) for task_job in jobs), default=0)
    space = arena_at + blocks.inner_at + max((task_job.space for task_job in jobs), default=0)
    inner = tuple(zip([task.node for task in memory.tasks], jobs, strict=True))
    return Job("loop", tuple(recipes), words, 1, 1, max(scratch, LINE), inner=inner, space=space)


def _jobs(body: Graph, job: Callable[[PlannedTask], Job], subdivision: int) -> list[Job]:
    """Return the jobs of the tasks of an iteration, which are built once per body. `subdivision`: the
    factor by which their units are shorter than usual.
    """
    cache: dict[int, list[Job]] = body.notes.setdefault("jobs", {})
    if subdivision not in cache:
        cache[subdivision] = [job(task._replace(subdivision=subdivision)) for task in plan_body(body).tasks]
    return cache[subdivision]


def _until(node: Node) -> LaunchWord:
    """Return the address of the condition that ends the loop."""
    until = node.attrs.get("until")
    return 0 if until is None else ValueAddress(node.inputs[1 + targets(node.attrs["body"])[until]])


def _members(node: Node, jobs: Sequence[tuple[PlannedTask, Job]]) -> int:
    """Return the number of threads of a loop, which is more than one if most of its work is divided into
    chunks.
    """
    divided = [
        (task, task_job)
        for task, task_job in jobs
        if isinstance(task_job.chunk, int) and most(task_job.units) > task_job.chunk
    ]
    costs = [sum(work(task.node) + TASK_COST for task, _ in tasks) for tasks in (divided, jobs)]
    if 2 * costs[0] < costs[1] or most(node.attrs["rounds"]) * costs[1] < TEAM_COST:
        return 1
    return min(MEMBERS, max(most(task_job.units) // task_job.chunk for _, task_job in divided) + 1)


def failing_task(node: Node, job: Job, block: int) -> tuple[Node, Job, int, list[int]]:
    """Return the failing task of a loop whose argument block is at `block`: its node, its job, the address
    of its block, and the iterations it failed in, outermost loop first. A serial kernel is one task.
    """
    iterations = []
    while job.inner:
        words = (ctypes.c_int64 * len(Loop)).from_address(block)
        iterations.append(words[Loop.ITERATION])
        task = words[Loop.TASK]
        row = block + 8 * (len(Loop) + task * len(LoopTask) + LoopTask.BLOCK)
        block = words[Loop.SPACE] + ctypes.c_int64.from_address(row).value
        node, job = job.inner[task]
    return node, job, block, iterations


def _aligned(nbytes: int) -> int:
    return ceil_div(nbytes, LINE) * LINE


class _BodyBlocks:
    """The argument blocks of a body's tasks, as words of the loop's block.

    growths: rows of `Growth` by dtype. arena: pairs of a slot's offset and an offset in the arena.
    inner_at: the offset in the arena of the memory of inner loops, which run one after the other and share
    it.
    """

    def __init__(self, node: Node, memory: MemoryPlan):
        self.words: list[LaunchWord] = []
        self.growths: dict[str, list[list[LaunchWord]]] = {kind: [] for kind in KINDS}
        self.arena: list[LaunchWord] = []
        self.inner_at = _aligned(memory.arena_bytes)
        self._locations = memory.locations
        self._numbers = known_numbers(memory.graph)
        self._trip_count = node.attrs["rounds"]
        moves: Sequence[tuple[int, int]] = node.attrs["moves"]

        self._operands = list(zip(node.inputs[1:], moves, strict=True))
        self._input = {value: i for i, value in enumerate(memory.graph.inputs)}

    def add(self, words: Sequence[LaunchWord], first: int) -> None:
        """Append the block of a task whose kernel 0 is kernel number `first` of the loop."""
        for word in words:
            if isinstance(word, ValueAddress):
                self._add_value(*word)
            elif isinstance(word, KernelAddress):
                self.words.append(KernelAddress(first + word.kernel))
            elif isinstance(word, BlockOffset):
                self.words.append(8 * word.slot)
            elif isinstance(word, Moving):
                self._add_moving(word)
            elif isinstance(word, LaunchMemory):
                self._add_in_arena(self.inner_at)
            else:
                self.words.append(word)

    def _add_moving(self, number: Moving) -> None:
        first, step = slope(number, self._trip_count)
        self._grow(step)
        self.words.append(first)

    def _add_value(self, value: Value, offset: int) -> None:
        if value in self._numbers:
            self.words.append(bits_of(self._numbers[value], offset))
        elif value.type.on_host:
            operand, (_, step) = self._operands[self._input[value]]
            if offset == 0:
                self._grow(_step(value.type, step) if step else 0, str(value.type.dtype))
            self.words.append(ValueAddress(operand, offset))
        else:
            buffer = self._locations[value]
            first, buffer_step = slope(buffer.offset + offset, self._trip_count)
            if buffer.kind is BufferKind.ARENA:
                self._grow(buffer_step)
                self._add_in_arena(first)
                return
            operand, (start, step) = self._operands[buffer.number]
            size = value.type.dtype.itemsize
            self._grow(step * size + buffer_step)
            self.words.append(ValueAddress(operand, start * size + first))

    def _add_in_arena(self, offset: Any) -> None:
        self.arena += (8 * len(self.words), offset)
        self.words.append(0)

    def _grow(self, step: Any, dtype: str = "int64") -> None:
        """Make the next slot grow by `step` in each iteration. Integers of all dtypes grow as int64."""
        if isinstance(step, Moving) or step:
            slots: dict[int, Any] = {Growth.SLOT: 8 * len(self.words), Growth.STEP: step}
            self.growths[dtype if dtype in KINDS else "int64"].append(list(row(slots, Growth)))


def _step(type: ArrayType, step: int) -> int:
    """Return a step in the form in which it is added: an integer, or the bits of a float."""
    if type.dtype.kind != "f":
        return step
    code = "f4x" if type.dtype.itemsize == 4 else "d"
    (bits,) = struct.unpack("q", struct.pack(code, step))
    return int(bits)
