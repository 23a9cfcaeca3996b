"""Words: the content of argument blocks before addresses are known, and the jobs that are made of them.

A word is what an 8-byte slot of a block will hold:

- an integer, or the bits of a number that is known now;
- `At`: the place of a value plus a byte offset; becomes a patch, for each call (inputs, outputs) or once
  (arena);
- `Ref`: the address of one of the job's kernels;
- `Distance`: bytes from the job's first block to another slot;
- `Space`: the address of the job's own memory, another one in each launch;
- `Tag`: the number of an exchange between ranks, another one in each launch.
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


class At(NamedTuple):
    """The address of `value`, plus `offset` bytes; for a number, its bits."""

    value: Value
    offset: int = 0


class Ref(NamedTuple):
    """The address of kernel number `kernel` of the job."""

    kernel: int


class Distance(NamedTuple):
    """Bytes from the start of the job's block to its slot number `slot`."""

    slot: int


class Space(NamedTuple):
    """The address of the job's `space` bytes of memory."""


class Tag(NamedTuple):
    """The number by which ranks match messages; a launch has one for each such word."""


Word = int | At | Ref | Distance | Space | Tag


class Issued(NamedTuple):
    """The part of a task that an asynchronous device runs, in the place of recipes.

    lane, function, prepare: as in `engine.Task`.
    kernels: those loaded on the device; the program refers to them.
    explain: the exception for a status that is an error of the device.
    join:    makes one job of a segment: of this one, and of others of its device with, for each, those that
             come before it. None: the job is never a part of a segment.
    draft:   the parts of a segment.
    failed:  of a segment: the number of the task that a status reports, and that task's own status.
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

    scratch: bytes of memory of the thread; space: of the launch, see `Space`.
    inner: the nodes of the tasks that a loop runs, and their jobs.
    plan: the address of the record by which machine code runs a Python task, if it can.
    """

    name: str
    recipes: tuple[Recipe, ...]
    words: tuple[Word, ...]
    units: int
    chunk: int
    scratch: int = 0
    callable: Callable[..., object] | None = None
    issued: Issued | None = None
    inner: tuple[tuple[Node, "Job"], ...] = ()
    space: int = 0
    plan: int = 0


def kernel_name(node: Node) -> str:
    """The name of a kernel: its operators, e.g. ``multiply+add``."""
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
    """Numbers that the graph itself computes from constants."""
    known: dict[Value, np.ndarray] = {}
    for node in graph.nodes:
        if node.outputs and all(v.type.on_host for v in node.outputs):
            if not all(v in known for v in node.inputs):
                raise VerificationError(
                    f"{node.op.name} computes a number from run-time numbers, which is Python's business"
                )
            with np.errstate(all="ignore"):
                results = evaluate_node(node, [known[v] for v in node.inputs])
            known.update(zip(node.outputs, results, strict=True))
    return known


def bits_of(number: np.ndarray, offset: int) -> int:
    """The bits of a number from a byte on, in the low bytes of an int64."""
    return struct.unpack("q", number.tobytes()[offset : offset + 8].ljust(8, b"\0"))[0]
