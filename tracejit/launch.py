"""From a planned graph to a program of the engine.

    planned tasks --job, of the target--> recipes and argument blocks --load--> addresses
                  --> Program (the engine's) in a `Schedule`

Nothing here imports Numba: kernels come from the store, and `tracejit.codegen.objects.loader` has the lazy
gate for when one must be compiled. The engine's own executor comes the same way.
"""

# No `from __future__ import annotations`: a named tuple compiles every annotation that is a string.

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tracejit import engine
from tracejit.assemble import failure, locations
from tracejit.codegen.objects.loader import Kernel, Recipe, load
from tracejit.engine import native
from tracejit.ir.graph import Node, Value
from tracejit.ir.op import Trait
from tracejit.ir.types import CPU, Device
from tracejit.kernels.split import ceil_div
from tracejit.ops.communicate import BETWEEN_RANKS, agree, token
from tracejit.passes.driver import timed
from tracejit.passes.memory.aliases import can_fail
from tracejit.passes.memory.plan import BufferKind, MemoryPlan, Place, PlannedTask
from tracejit.rounds import LINE, LOOP
from tracejit.schedule import KernelInfo, Packer, Planned, Schedule
from tracejit.words import At, Distance, Job, Ref, Space, Tag, bits_of, known_numbers

# ------------------------------------------------------------------------------------------------ the program


def launch(planned: Planned, job: Callable[[PlannedTask], Job]) -> Schedule:
    """The schedule of a planned graph: its kernels are loaded, or compiled, and its program is ready. `job`:
    what the target of a task's device makes of it.
    """
    times = planned.times
    with timed(times, "lower"):
        jobs = [job(task) for task in planned.memory.tasks]
    with timed(times, "kernels"):
        executor = [] if native.loaded() else EXECUTOR  # what has to be compiled is compiled together
        loaded = load([*executor, *(recipe for job in jobs for recipe in job.recipes)])
        if any(origin == "compiled" for _, origin in loaded[: len(executor)]):
            load([LOOP])  # which is stored with the executor
        loaded = loaded[len(executor) :]
    with timed(times, "assemble"):
        return _schedule(planned, jobs, loaded)


def _schedule(planned: Planned, jobs: Sequence[Job], loaded: Sequence[tuple[Kernel, str]]) -> Schedule:
    memory = planned.memory
    graph = memory.graph
    blocks = _Blocks(memory)
    kernels = iter(loaded)
    nodes = [task.node for task in memory.tasks]
    lines = tuple(map(locations, nodes))
    tasks: list[engine.Task] = []
    urgent = _before_exchanges(memory.tasks)
    for task, this, written in zip(memory.tasks, jobs, lines, strict=True):
        addresses = [next(kernels)[0].addresses["kernel"] for _ in this.recipes]
        node, issued, between = task.node, this.issued, task.node.op in BETWEEN_RANKS
        priority = URGENT if len(tasks) in urgent and not between else node.attrs.get("priority", 0)
        function = issued.function if issued else addresses[0] if addresses else 0
        tasks.append(
            engine.Task(
                name=this.name,
                location=written[-1] if written else None,
                function=function,
                block=blocks.add(this, addresses, device_of(node)),
                units=this.units,
                chunk=this.chunk,
                after=task.after,
                uses=blocks.uses(node),
                can_fail=can_fail(node),
                callable=this.callable,
                cost=task.cost,
                priority=priority,
                lane=_lane(node, this),
                always=between,
                asynchronous=between,
                prepare=issued.prepare if issued else None,
            )
        )
    program = engine.Program(
        tasks,
        blocks.template,
        blocks.patches,
        blocks.arenas,
        max((this.scratch for this in jobs), default=0),
        _modes(memory) + [engine.WRITE] * len(blocks.tokens) + [engine.NUMBER] * bool(blocks.tags),
        lambda index, status, block: failure(nodes[index], status, jobs[index], block),
        keep=[*(kernel for kernel, _ in loaded), *(this.issued for this in jobs)],
    )
    return Schedule(
        graph=graph,
        plan=memory,
        program=program,
        tasks=tuple(tasks),
        kernels=_infos(jobs, lines, loaded),
        pack=Packer([v.type for v in (*graph.inputs, *graph.outputs)]),
        launch=_ordered_launch(program, blocks) if blocks.tokens or blocks.tags else program.launch,
        naive_bytes=planned.naive_bytes,
        operations=planned.operations,
        lines=lines,
        missed=planned.missed,
        times=planned.times,
    )


def _lane(node: Node, this: Job) -> int | None:
    """The workers that run a task; None: the threads for Python."""
    if node.op in BETWEEN_RANKS:
        return engine.COMMUNICATION
    if this.callable is not None:
        return None
    return device_of(node).number if this.issued is None else this.issued.lane


def device_of(node: Node) -> Device:
    """The device whose workers run a node: for a copy, that on which the result lies."""
    return next((v.type.device for v in (*node.outputs, *node.inputs) if not v.type.on_host), CPU)


class _Blocks:
    """The argument blocks of all tasks, one after the other, and where addresses have to be filled in.

    The engine's arguments are the graph's inputs, then its outputs; then a variable for each token, which
    keeps its nodes in order; and where ranks exchange something, the number of the first exchange.
    """

    def __init__(self, memory: MemoryPlan):
        graph = memory.graph
        self.template: list[int] = []
        self.patches: list[tuple[int, int, int]] = []
        ordered = [task.node for task in memory.tasks if Trait.ORDERED in task.node.op.traits]
        self.tokens = sorted({name for node in ordered if (name := token(node)) is not None})
        self.tags = 0  # so far
        self.arenas = dict(memory.arenas)  # and behind them the space of jobs
        self._places = memory.places
        self._input = {value: i for i, value in enumerate(graph.inputs)}
        self._outputs_start = len(graph.inputs)
        self._last = len(graph.inputs) + len(graph.outputs)
        self._numbers = known_numbers(graph)

    def add(self, job: Job, addresses: Sequence[int], device: Device) -> int:
        """Append the block of a task; the index of its first slot."""
        start = len(self.template)
        for word in job.words:
            if type(word) is int:  # most are
                self.template.append(word)
            elif isinstance(word, At):
                self._add_value(*word)
            elif isinstance(word, Ref):
                self.template.append(addresses[word.kernel])
            elif isinstance(word, Space):
                self._add_space(job.space, device.number)
            elif isinstance(word, Tag):
                self.patches.append((len(self.template), self._last + len(self.tokens), self.tags))
                self.template.append(0)
                self.tags += 1
            elif isinstance(word, Distance):
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
        place = self._places[value]
        argument = self._argument(place)
        self.patches.append((slot, argument, place.offset + offset))

    def _argument(self, place: Place) -> int:
        """The number of the argument whose memory it is; negative for an arena."""
        if place.kind is BufferKind.ARENA:
            return engine.ARENA - place.number
        return place.number + (self._outputs_start if place.kind is BufferKind.OUTPUT else 0)

    def uses(self, node: Node) -> tuple[int, ...]:
        """The arguments whose variables a task needs. `agree` needs all results: nobody may read one that was
        computed from what another rank sent when it had failed.
        """
        places = (self._places[v] for v in (*node.inputs, *node.outputs) if v in self._places)
        found = {self._argument(place) for place in places}
        if node.op is agree:
            found.update(range(self._outputs_start, self._last))
        if Trait.ORDERED in node.op.traits and (name := token(node)) is not None:
            found.add(self._last + self.tokens.index(name))
        return tuple(sorted(argument for argument in found if argument >= 0))


def _modes(memory: MemoryPlan) -> list[int]:
    """How the program uses each argument: the graph's inputs, then its outputs."""
    graph, places = memory.graph, memory.places
    origin = memory.spans
    read: set[Value] = set()
    written: set[int] = set()
    for task in memory.tasks:
        arrays = [v for v in (*task.node.inputs, *task.node.outputs) if v in origin]
        read.update(origin[v].root for v in arrays)
        written.update(
            places[v].number for v in task.node.outputs if v in places and places[v].kind is BufferKind.INPUT
        )
    modes = {
        (False, False): engine.NUMBER,  # nobody looks at it
        (True, False): engine.READ,
        (True, True): engine.WRITE,
        (False, True): engine.OVERWRITE,
    }
    inputs = [modes[value in read, i in written] for i, value in enumerate(graph.inputs)]
    return [*inputs, *[engine.FRESH] * len(graph.outputs)]


def _infos(
    jobs: Sequence[Job], lines: Sequence[tuple[str, ...]], loaded: Sequence[tuple[Kernel, str]]
) -> tuple[KernelInfo, ...]:
    """The distinct kernels with the user's lines they compute."""
    found: dict[str, tuple[Any, str, dict[str, None]]] = {}
    each = iter(loaded)
    for this, written in zip(jobs, lines, strict=True):
        for _ in this.recipes:
            kernel, origin = next(each)
            found.setdefault(kernel.key, (kernel, origin, {}))[2].update(dict.fromkeys(written))
        for kernel in this.issued.kernels if this.issued else ():
            found.setdefault(kernel.key, (kernel, kernel.origin, {}))[2].update(dict.fromkeys(written))
    return tuple(
        KernelInfo(k.name, k.source, k.key, tuple(places), k.width, origin, k.seconds)
        for k, origin, places in found.values()
    )


# ---------------------------------------------------------------------------------------------------- order

URGENT = 1 << 32
"""The priority of kernels that an exchange between ranks waits for: other ranks wait for it, too."""

_orders: dict[str, engine.Variable] = {}


def order_of(token: str) -> engine.Variable:
    """The variable of a token. Launches with nodes of it write it, so these keep their order."""
    return _orders.setdefault(token, engine.Variable(token))


class Tags:
    """Numbers of exchanges. Ranks that launch the same exchanges in the same order count alike."""

    def __init__(self) -> None:
        self._next = 0

    def take(self, count: int) -> int:
        """The first of the next `count` numbers."""
        first = self._next
        self._next = first + count
        return first


TAGS = Tags()


def _ordered_launch(program: engine.Program, blocks: "_Blocks") -> Callable[..., None]:
    """`program.launch` with the variables of all tokens and the first tag as last arguments."""
    orders, tags = [order_of(name) for name in blocks.tokens], blocks.tags
    values = bytes(8 * len(orders))
    variables = struct.pack(f"{len(orders)}q", *[order.address for order in orders]) + bytes(8 * bool(tags))

    def launch(packed: bytes, keep: object, started: list[int] | None = None) -> None:
        half = len(packed) // 2
        more = values + struct.pack("q", TAGS.take(tags)) if tags else values
        program.launch(packed[:half] + more + packed[half:] + variables, (keep, orders), started)

    return launch


def _before_exchanges(tasks: Sequence[PlannedTask]) -> set[int]:
    """The tasks that an exchange between ranks waits for."""
    pending = [number for number, task in enumerate(tasks) if task.node.op in BETWEEN_RANKS]
    found: set[int] = set()
    for number in pending:
        fresh = [earlier for earlier in tasks[number].after if earlier not in found]
        found.update(fresh)
        pending += fresh
    return found


# -------------------------------------------------------------------------------------------------- executor


def _part(attribute: str) -> Recipe:
    """Entry points of the executor that are compiled together."""
    module = "tracejit.kernels.executor.entry_points"
    return Recipe(
        "executor",
        ("executor", attribute),
        lambda: f"from {module} import {attribute}\n",
        entries=(module, attribute),
    )


EXECUTOR = [_part("QUEUES"), _part("THREADS")]


_executor: list[Kernel] = []  # the engine calls them until the process ends


def load_executor() -> Mapping[str, int]:
    """Addresses of the engine's native functions."""
    _executor.extend(part for part, _ in load(EXECUTOR))
    return {name: address for part in _executor for name, address in part.addresses.items()}
