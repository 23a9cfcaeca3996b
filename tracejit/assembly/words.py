"""Words: the content of argument blocks before addresses are known, and the jobs that contain them.

A word is the symbolic content of an 8-byte slot of a block:

- an integer, or the bits of a number that is known at link time;
- `ValueAddress`: the address of a value plus a byte offset; it becomes a patch, applied for each call
  (inputs, outputs) or once (arena);
- `KernelAddress`: the address of one of the job's kernels;
- `BlockOffset`: the bytes from the start of the job's block to one of its slots;
- `LaunchMemory`: the address of the job's own memory, which differs between launches;
- `ExchangeTag`: the number of an exchange between ranks, which differs between launches.
"""

# No `from __future__ import annotations`: a named tuple compiles every annotation that is a string.

import struct
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from tracejit import ops
from tracejit.codegen.objects.loader import Recipe
from tracejit.errors import TracejitError, VerificationError
from tracejit.ir.evaluate import evaluate_node
from tracejit.ir.graph import Graph, Node, Value
from tracejit.ir.op import Trait


class ValueAddress(NamedTuple):
    """The address of `value` plus `offset` bytes; for a number, its bits."""

    value: Value
    offset: int = 0


class KernelAddress(NamedTuple):
    """The address of kernel number `kernel` of the job."""

    kernel: int


class BlockOffset(NamedTuple):
    """The bytes from the start of the job's block to its slot number `slot`."""

    slot: int


class LaunchMemory(NamedTuple):
    """The address of the job's `space` bytes of memory."""


class ExchangeTag(NamedTuple):
    """The number by which ranks match messages. A launch has a separate number for each such word."""


LaunchWord = int | ValueAddress | KernelAddress | BlockOffset | LaunchMemory | ExchangeTag


class DeviceWork(NamedTuple):
    """The part of a job that an asynchronous device runs. Such a job has no recipes.

    lane, function, prepare: see `engine.Task`.
    kernels: the kernels loaded on the device; the program keeps references to them.
    explain: returns the exception for a status that is an error of the device.
    join:    builds the job of a segment from this job and others of its device, with the predecessors of each
             within the segment. None: the job is never part of a segment.
    draft:   the description of the kernel from which `join` builds the segment.
    failed:  for a segment, returns the number of the task that a status reports, and the status of that task.
    """

    lane: int
    function: int
    prepare: Callable[[int], object]
    kernels: tuple[Any, ...]
    explain: Callable[[int], TracejitError]
    join: "Callable[[Sequence[Job], Sequence[Sequence[int]]], Job] | None" = None
    draft: Any = None
    failed: Callable[[int], tuple[int, int]] = lambda status: (0, status)


class Job(NamedTuple):
    """A task before addresses are known. Kernel 0 is the one that the engine calls.

    scratch: bytes of memory of the thread; space: bytes of memory of the launch, see `LaunchMemory`.
    inner: the nodes of the tasks that a loop runs, and their jobs.
    plan: the address of the record by which machine code runs a Python task, or 0 if it cannot.
    """

    name: str
    recipes: tuple[Recipe, ...]
    words: tuple[LaunchWord, ...]
    units: int
    chunk: int
    scratch: int = 0
    callable: Callable[..., object] | None = None
    issued: DeviceWork | None = None
    inner: tuple[tuple[Node, "Job"], ...] = ()
    space: int = 0
    plan: int = 0


def kernel_name(node: Node) -> str:
    """Return the name of a kernel, which lists its operators, e.g. ``multiply+add``."""
    body: Graph | None = node.attrs.get("body")
    if body is None:
        return node.op.name
    name: str | None = body.notes.get("name")
    if name is None:
        names = [n.op.name for n in body.nodes if Trait.VIEW not in n.op.traits and n.op is not ops.constant]
        text = "+".join(dict.fromkeys(names)) or "view"
        name = body.notes["name"] = text if len(text) <= 60 else text[:57] + "..."
    return name


def known_numbers(graph: Graph) -> dict[Value, np.ndarray]:
    """Return the numbers that the graph computes from constants."""
    known: dict[Value, np.ndarray] = {}
    for node in graph.nodes:
        if node.outputs and all(v.type.on_host for v in node.outputs):
            if not all(v in known for v in node.inputs):
                raise VerificationError(
                    f"{node.op.name} computes a number from run-time numbers; only Python computes those"
                )
            with np.errstate(all="ignore"):
                results = evaluate_node(node, [known[v] for v in node.inputs])
            known.update(zip(node.outputs, results, strict=True))
    return known


def bits_of(number: np.ndarray, offset: int) -> int:
    """Return the bits of a number, starting at a byte offset, in the low bytes of an int64."""
    return struct.unpack("q", number.tobytes()[offset : offset + 8].ljust(8, b"\0"))[0]
