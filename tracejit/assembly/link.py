"""Linking of a planned graph into a program of the engine.

    planned tasks --job, of the target--> recipes and argument blocks --load--> addresses
                  --> Program (the engine's) in a `Schedule`

This module does not import Numba: kernels come from the store, and `tracejit.codegen.objects.loader` imports
Numba lazily if one must be compiled. The engine's own executor is loaded in the same way.
"""

# No `from __future__ import annotations`: a named tuple compiles every annotation that is a string.

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from tracejit import engine
from tracejit.assembly.copies import ProgramParts, with_copies
from tracejit.assembly.device_graphs import segments
from tracejit.assembly.failures import failure, locations
from tracejit.assembly.host_tasks import Routine
from tracejit.assembly.loops import LINE, LOOP
from tracejit.assembly.schedule import KernelInfo, Packer, Planned, Schedule
from tracejit.assembly.words import (
    BlockOffset,
    ExchangeTag,
    Job,
    KernelAddress,
    LaunchMemory,
    ValueAddress,
    bits_of,
    known_numbers,
)
from tracejit.codegen.objects.loader import Kernel, Recipe, is_known, load
from tracejit.config import config
from tracejit.engine import native
from tracejit.ir.graph import Node, Value
from tracejit.ir.op import Trait
from tracejit.ir.types import CPU, Device
from tracejit.kernels.split import ceil_div
from tracejit.ops.communicate import BETWEEN_RANKS, agree, token
from tracejit.passes.driver import timed
from tracejit.passes.memory.plan import BufferKind, MemoryLocation, MemoryPlan, PlannedTask

# ------------------------------------------------------------------------------------------------ the program


class EngineTask(NamedTuple):
    """A task of the engine: a task of the plan, or a segment of tasks."""

    job: Job
    numbers: tuple[int, ...]


def link(planned: Planned, job: Callable[[PlannedTask], Job]) -> Schedule:
    """Return the schedule of a planned graph: its kernels are loaded or compiled, and its program is ready
    to launch. `job` builds the job of a task, by the target of its device.
    """
    times = planned.times
    with timed(times, "lower"):
        drafts = [job(task) for task in planned.reduced.tasks]
    with timed(times, "kernels"):
        runs = _runs(planned.reduced.tasks, drafts)
        jobs = [run.job for run in runs]
        recipes = [recipe for job in jobs for recipe in job.recipes]
        executor = [] if native.loaded() else _executor_recipes()  # compiled together with the kernels
        loaded = load([*recipes, *executor])[: len(recipes)]
    with timed(times, "assemble"):
        return _schedule(planned, runs, loaded)


def _runs(tasks: Sequence[PlannedTask], drafts: Sequence[Job]) -> list[EngineTask]:
    """Return the jobs, with those of one device joined into segments. The naive engine runs every task by
    itself.
    """
    joins = [None if draft.issued is None else draft.issued.join for draft in drafts]
    lanes = [
        draft.issued.lane if draft.issued and draft.issued.join and config.engine != "naive" else None
        for draft in drafts
    ]
    runs = []
    for numbers in segments([task.after for task in tasks], lanes):
        index_in_segment = {number: index for index, number in enumerate(numbers)}
        before = [[index_in_segment[i] for i in tasks[n].after if i in index_in_segment] for n in numbers]
        join = joins[numbers[0]]
        segment_job = drafts[numbers[0]] if join is None else join([drafts[n] for n in numbers], before)
        runs.append(EngineTask(segment_job, numbers))
    return runs


def _schedule(planned: Planned, runs: Sequence[EngineTask], loaded: Sequence[tuple[Kernel, str]]) -> Schedule:
    memory, copies = planned.reduced, planned.copies
    blocks = _ArgumentBlocks(memory)
    kernels = iter(loaded)
    jobs = [run.job for run in runs]
    number_of = {number: index for index, run in enumerate(runs) for number in run.numbers}
    lines = tuple([_lines([memory.tasks[n].node for n in run.numbers]) for run in runs])
    tasks: list[engine.Task] = []
    urgent = _before_exchanges(memory.tasks)
    for (task_job, numbers), task_lines in zip(runs, lines, strict=True):
        addresses = [next(kernels)[0].addresses["kernel"] for _ in task_job.recipes]
        members = [memory.tasks[n] for n in numbers]
        nodes, issued = [task.node for task in members], task_job.issued
        node, is_exchange = nodes[0], nodes[0].op in BETWEEN_RANKS
        priority = max(n.attrs.get("priority", 0) for n in nodes)
        if not is_exchange and not urgent.isdisjoint(numbers):
            priority = URGENT
        after = {number_of[i] for task in members for i in task.after} - {len(tasks)}
        function = issued.function if issued else addresses[0] if addresses else task_job.plan
        tasks.append(
            engine.Task(
                name=task_job.name,
                location=task_lines[-1] if task_lines else None,
                function=function,
                block=blocks.add(task_job, addresses, result_device(node)),
                units=task_job.units,
                chunk=task_job.chunk,
                after=tuple(sorted(after)),
                uses=blocks.uses(nodes),
                can_fail=any(task.can_fail for task in members),
                callable=task_job.callable,
                cost=sum(task.cost for task in members),
                priority=priority,
                lane=_lane(node, task_job),
                always=is_exchange,
                asynchronous=is_exchange,
                plain=isinstance(task_job.callable, Routine),
                prepare=issued.prepare if issued else None,
            )
        )
    modes = _modes(memory) + [engine.WRITE] * len(blocks.tokens) + [engine.NUMBER] * bool(blocks.tags)
    parts = ProgramParts(tasks, blocks.template, blocks.patches, modes, range(len(tasks)))
    if copies is not None:
        parts = with_copies(parts, memory.graph, copies)
    graph = memory.graph if copies is None else copies.complete_graph

    def program_of(tasks: Sequence[engine.Task], modes: Sequence[int]) -> engine.Program:
        return engine.Program(
            tasks,
            parts.template,
            parts.patches,
            blocks.arenas,
            max((task_job.scratch for task_job in jobs), default=0),
            modes,
            lambda index, status, block: _failure(memory.tasks, runs[parts.origins[index]], status, block),
            keep=[*(kernel for kernel, _ in loaded), *(task_job.issued for task_job in jobs)],
        )

    def with_commit() -> engine.Program:
        point = len(parts.modes)
        committing = [t._replace(uses=(*t.uses, point)) if t.can_fail else t for t in parts.tasks]
        return program_of(committing, [*parts.modes, engine.FRESH])

    program = program_of(parts.tasks, parts.modes)
    segments = [run.numbers for run in runs] if copies is None else [(n,) for n in range(len(parts.tasks))]
    return Schedule(
        build_plan=planned.build_plan,
        program=program,
        tasks=tuple(parts.tasks),
        segments=tuple(segments),
        kernels=_infos(jobs, lines, loaded),
        pack=Packer([v.type for v in (*graph.inputs, *graph.outputs)]),
        launch=_ordered_launch(program, blocks) if blocks.tokens or blocks.tags else program.launch,
        commit=_commit(with_commit, blocks),
        naive_bytes=planned.naive_bytes,
        operations=planned.operations,
        lines=tuple([lines[n] for n in parts.origins]),
        missed=planned.missed,
        times=planned.times,
    )


def _lines(nodes: Sequence[Node]) -> tuple[str, ...]:
    """Return the user's source lines that some nodes compute, in order."""
    if len(nodes) == 1:
        return locations(nodes[0])
    return tuple(dict.fromkeys(line for node in nodes for line in locations(node)))


def _failure(tasks: Sequence[PlannedTask], run: EngineTask, status: int, block: int) -> BaseException:
    """Return the exception for a task of the engine that reported `status`."""
    index = 0
    if run.job.issued is not None and status > 0:
        index, status = run.job.issued.failed(status)
    return failure(tasks[run.numbers[index]].node, status, run.job, block)


def _lane(node: Node, job: Job) -> int | None:
    """Return the workers that run a task. None means the threads for Python."""
    if node.op in BETWEEN_RANKS:
        return engine.COMMUNICATION
    if job.callable is not None:
        return None
    return result_device(node).number if job.issued is None else job.issued.lane


def result_device(node: Node) -> Device:
    """Return the device whose workers run a node: that of its first array, results before operands."""
    return next((v.type.device for v in (*node.outputs, *node.inputs) if not v.type.on_host), CPU)


class _ArgumentBlocks:
    """The argument blocks of all tasks, one after the other, and the patches that fill in addresses.

    The arguments of the engine are, in this order: the graph's inputs; its outputs; a variable for each
    token, which keeps the token's nodes in order; and, if ranks exchange data, the number of the first
    exchange.
    """

    def __init__(self, memory: MemoryPlan):
        graph = memory.graph
        self.template: list[int] = []
        self.patches: list[tuple[int, int, int]] = []
        ordered = [task.node for task in memory.tasks if Trait.ORDERED in task.node.op.traits]
        self.tokens = sorted({name for node in ordered if (name := token(node)) is not None})
        self.tags = 0  # the number of exchanges so far
        self.arenas = dict(memory.arenas)  # followed by the space of jobs
        self._locations = memory.locations
        self._input = {value: i for i, value in enumerate(graph.inputs)}
        self._outputs_start = len(graph.inputs)
        self._last = len(graph.inputs) + len(graph.outputs)
        self._numbers = known_numbers(graph)

    def add(self, job: Job, addresses: Sequence[int], device: Device) -> int:
        """Append the block of a task, and return the index of its first slot."""
        start = len(self.template)
        for word in job.words:
            if type(word) is int:  # the most frequent case
                self.template.append(word)
            elif isinstance(word, ValueAddress):
                self._add_value(*word)
            elif isinstance(word, KernelAddress):
                self.template.append(addresses[word.kernel])
            elif isinstance(word, LaunchMemory):
                self._add_space(job.space, device.number)
            elif isinstance(word, ExchangeTag):
                self.patches.append((len(self.template), self._last + len(self.tokens), self.tags))
                self.template.append(0)
                self.tags += 1
            elif isinstance(word, BlockOffset):
                self.template.append(8 * word.slot)
            else:
                self.template.append(word)
        return start

    def _add_space(self, nbytes: int, device: int) -> None:
        start = ceil_div(self.arenas.get(device, 0), LINE) * LINE
        self.arenas[device] = start + nbytes
        self.patches.append((len(self.template), engine.ARENA - device, start))
        self.template.append(0)

    def _add_value(self, value: Value, offset: int) -> None:
        slot = len(self.template)
        if value in self._numbers:
            self.template.append(bits_of(self._numbers[value], offset))
            return
        self.template.append(0)
        if value.type.on_host:
            self.patches.append((slot, self._input[value], 0))
            return
        buffer = self._locations[value]
        argument = self._argument(buffer)
        self.patches.append((slot, argument, buffer.offset + offset))

    def _argument(self, buffer: MemoryLocation) -> int:
        """Return the number of the argument whose memory contains a buffer; it is negative for an arena."""
        if buffer.kind is BufferKind.ARENA:
            return engine.ARENA - buffer.number
        return buffer.number + (self._outputs_start if buffer.kind is BufferKind.OUTPUT else 0)

    def uses(self, nodes: Sequence[Node]) -> tuple[int, ...]:
        """Return the arguments whose variables a task needs. `agree` needs all results, so that no result
        computed from the data of a failed rank can be read.
        """
        arguments: set[int] = set()
        for node in nodes:
            buffers = (self._locations[v] for v in (*node.inputs, *node.outputs) if v in self._locations)
            arguments.update([self._argument(buffer) for buffer in buffers])
            if node.op is agree:
                arguments.update(range(self._outputs_start, self._last))
            if Trait.ORDERED in node.op.traits and (name := token(node)) is not None:
                arguments.add(self._last + self.tokens.index(name))
        return tuple(sorted(argument for argument in arguments if argument >= 0))


def _modes(memory: MemoryPlan) -> list[int]:
    """Return the program's access mode for each argument: the graph's inputs, then its outputs."""
    graph, locations = memory.graph, memory.locations
    origin = memory.spans
    read: set[Value] = set()
    written: set[int] = set()
    for task in memory.tasks:
        arrays = [v for v in (*task.node.inputs, *task.node.outputs) if v in origin]
        read.update(origin[v].root for v in arrays)
        written.update(
            locations[v].number
            for v in task.node.outputs
            if v in locations and locations[v].kind is BufferKind.INPUT
        )
    modes = {
        (False, False): engine.NUMBER,  # not read
        (True, False): engine.READ,
        (True, True): engine.WRITE,
        (False, True): engine.OVERWRITE,
    }
    inputs = [modes[value in read, i in written] for i, value in enumerate(graph.inputs)]
    return [*inputs, *[engine.FRESH] * len(graph.outputs)]


def _infos(
    jobs: Sequence[Job], lines: Sequence[tuple[str, ...]], loaded: Sequence[tuple[Kernel, str]]
) -> tuple[KernelInfo, ...]:
    """Return the distinct kernels, with the user's source lines that they compute."""
    kernels: dict[str, tuple[Any, str, dict[str, None]]] = {}
    remaining = iter(loaded)
    for job, job_lines in zip(jobs, lines, strict=True):
        for _ in job.recipes:
            kernel, origin = next(remaining)
            kernels.setdefault(kernel.key, (kernel, origin, {}))[2].update(dict.fromkeys(job_lines))
        for kernel in job.issued.kernels if job.issued else ():
            kernels.setdefault(kernel.key, (kernel, kernel.origin, {}))[2].update(dict.fromkeys(job_lines))
    return tuple(
        KernelInfo(k.name, k.source, k.key, tuple(locations), k.width, origin, k.seconds)
        for k, origin, locations in kernels.values()
    )


# ---------------------------------------------------------------------------------------------------- order

URGENT = 1 << 32
"""The priority of kernels that an exchange between ranks, and thereby other ranks, wait for."""

_orders: dict[str, engine.Variable] = {}


def order_of(token: str) -> engine.Variable:
    """Return the variable of a token. Launches that contain nodes of the token write the variable, which
    keeps them in order.
    """
    return _orders.setdefault(token, engine.Variable(token))


class Tags:
    """Allocates the numbers of exchanges. Ranks that launch the same exchanges in the same order obtain
    the same numbers.
    """

    def __init__(self) -> None:
        self._next = 0

    def allocate(self, n: int) -> int:
        """Allocate `n` consecutive numbers, and return the first."""
        first = self._next
        self._next = first + n
        return first


TAGS = Tags()


def _extended(blocks: "_ArgumentBlocks") -> tuple[Callable[[], bytes], bytes, list[engine.Variable]]:
    """Return the additional arguments of a launch: their values, the last of which is the first tag, their
    addresses, and the variables of all tokens.
    """
    orders, tags = [order_of(name) for name in blocks.tokens], blocks.tags
    values = bytes(8 * len(orders))
    addresses = struct.pack(f"{len(orders)}q", *[order.address for order in orders]) + bytes(8 * bool(tags))
    more = (lambda: values + struct.pack("q", TAGS.allocate(tags))) if tags else lambda: values
    return more, addresses, orders


def _ordered_launch(program: engine.Program, blocks: "_ArgumentBlocks") -> Callable[..., None]:
    """Return `program.launch` with the variables of all tokens and the first tag as last arguments."""
    more, addresses, orders = _extended(blocks)

    def launch(packed: bytes, keep: object, started: list[int] | None = None) -> None:
        half = len(packed) // 2
        program.launch(packed[:half] + more() + packed[half:] + addresses, (keep, orders), started)

    return launch


def _commit(with_commit: Callable[[], engine.Program], blocks: "_ArgumentBlocks") -> Callable[..., None]:
    """Return a launch function that returns when all tasks that can fail have ended, and raises if one has
    failed.

    These tasks have one more argument, the commit point of the launch; all other tasks may still run. The
    next call reuses the same variable unless the launch has failed.
    """
    more, addresses, orders = _extended(blocks)
    program: engine.Program | None = None
    free_points: list[tuple[engine.Variable, bytes]] = []

    def commit(packed: bytes, keep: object, started: list[int] | None = None) -> None:
        nonlocal program
        if program is None:
            program = with_commit()
        try:
            point, last = free_points.pop()
        except IndexError:
            point = engine.Variable("commit point")
            last = addresses + struct.pack("q", point.address)
        half = len(packed) // 2
        arguments = packed[:half] + more() + _WORD + packed[half:] + last
        program.launch(arguments, (keep, orders, point), started)
        if not point.ready:
            engine.wait(point)
        free_points.append((point, last))

    return commit


_WORD = bytes(8)


def _before_exchanges(tasks: Sequence[PlannedTask]) -> set[int]:
    """Return the tasks that an exchange between ranks waits for, directly or indirectly."""
    pending = [number for number, task in enumerate(tasks) if task.node.op in BETWEEN_RANKS]
    awaited: set[int] = set()
    for number in pending:
        added = [earlier for earlier in tasks[number].after if earlier not in awaited]
        awaited.update(added)
        pending += added
    return awaited


# -------------------------------------------------------------------------------------------------- executor


_MODULE = "tracejit.kernels.executor.entry_points"

EXECUTOR = Recipe(
    "executor",
    ("executor", "ENTRIES"),
    lambda: f"from {_MODULE} import ENTRIES\n",
    entries=(_MODULE, "ENTRIES"),
)
"""The recipe of the executor's entry points."""

_executor: list[Kernel] = []  # alive until the process ends, because the engine calls them


def _executor_recipes() -> list[Recipe]:
    """Return the recipe of the executor. If the executor must be compiled, include the kernel that runs the
    iterations of loops: all programs share it, too, so it is in the store wherever the executor is.
    """
    return [EXECUTOR] if is_known(EXECUTOR) else [EXECUTOR, LOOP]


def load_executor() -> Mapping[str, int]:
    """Return the addresses of the engine's native functions."""
    (executor, _), *_ = load(_executor_recipes())
    _executor.append(executor)
    return executor.addresses
