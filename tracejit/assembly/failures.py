"""Failures of tasks, as exceptions that name the operator, its values and the user's source line."""

from __future__ import annotations

import ctypes
from operator import index
from typing import TYPE_CHECKING

import numpy as np

from tracejit import ops
from tracejit.assembly.loops import failing_task
from tracejit.assembly.words import Job, ValueAddress
from tracejit.errors import LinAlgError, OutOfBoundsError, locate, message_of
from tracejit.ir.evaluate import evaluate_node
from tracejit.ir.graph import Graph, Node, Value
from tracejit.ir.moving import IterationsDiffer
from tracejit.ir.op import Op, Trait
from tracejit.ops.movement import index_error_message
from tracejit.passes.memory.aliases import can_fail

if TYPE_CHECKING:
    from tracejit.assembly.serial import FailedCheck


def locations(node: Node) -> tuple[str, ...]:
    """Return the user's source lines that a node computes, in order."""
    inner = node.attrs["body"].nodes if "body" in node.attrs else ()
    lines = [n.location for n in (*inner, node) if n.location]
    return tuple(dict.fromkeys(lines))


def failure(node: Node, status: int, job: Job, block: int) -> BaseException:
    """Return the exception for a task that reported `status`, which is 1 plus the position of the first
    bad index.

    The index itself is computed by repeating the check on the operands that the task's argument block, at
    address `block`, points to. A later launch may have overwritten these; then only the position is known.
    The blocks of a loop are those of the iteration that failed. If its extents or offsets change between
    iterations, only the position is known.
    """
    if job.issued is not None and status < 0:
        return locate(job.issued.explain(status), node.location)
    suffix = ""
    if node.op is ops.loop:
        first, is_counted = node.attrs.get("first", 0), node.attrs.get("until") is None
        node, job, block, iterations = failing_task(node, job, block)
        check: FailedCheck | None = None
        if node.op is ops.loop:
            from tracejit.assembly.serial import failed_check  # imported late: few programs have loops

            check = failed_check(node, job, block)
            iterations += check.iterations
        if is_counted:  # otherwise the launch runs only some of the user's iterations
            suffix = (
                f" in iteration {', '.join(map(str, [iterations[0] + first, *iterations[1:]]))} of the loop"
            )
        if check is not None:
            return _wrong_index(check.node, check.bad_index, suffix)
    if Trait.HOST in node.op.traits:
        description = _WRONG_MATRICES.get(
            node.op, "the iteration does not converge; is an element nan or infinite?"
        )
        return locate(LinAlgError(f"{node.op.name}: {description}{suffix}"), node.location)
    if job.issued is None:  # otherwise its operands are not in host memory
        try:
            _check_again(node, job, block, suffix)
        except OutOfBoundsError as error:
            return error
        except IterationsDiffer:
            pass
    return _unnamed(node, status, suffix)


def _wrong_index(check: Node, index: int, suffix: str) -> BaseException:
    """Return the exception for an index that is out of range."""
    try:
        evaluate_node(check, [np.full(check.output.type.shape, index)])
    except OutOfBoundsError as error:
        return locate(OutOfBoundsError(message_of(error) + suffix), check.location)
    raise AssertionError(f"index {index} is in range")


_WRONG_MATRICES: dict[Op, str] = {
    ops.cholesky: "matrix is not positive definite",
    ops.solve: "singular matrix",
    ops.inv: "singular matrix",
}


def _unnamed(node: Node, status: int, suffix: str) -> BaseException:
    """Return the exception for a bad index of which only the position is known."""
    inner = node.attrs["body"].nodes if node.op is ops.fused else (node,)
    checks = [n for n in inner if can_fail(n)]
    axes = [
        f"axis {n.attrs['axis']} with extent {n.attrs['extent']}, expected {-n.attrs['extent']} to "
        f"{n.attrs['extent'] - 1}"
        for n in checks
        if "what" not in n.attrs
    ]
    messages = [f"index number {status - 1} is out of bounds for {'; or '.join(axes)}"] if axes else []
    messages += [
        index_error_message(n.attrs["what"], f"number {status - 1}", n.attrs["extent"])
        for n in checks
        if "what" in n.attrs
    ]
    unnamed = OutOfBoundsError("; or ".join(dict.fromkeys(messages)) + suffix)
    return locate(unnamed, checks[0].location if checks else node.location)


def _check_again(node: Node, job: Job, block: int, suffix: str) -> None:
    """Repeat the index checks of a task in the NumPy evaluator. `suffix` is appended to the message of an
    error.
    """
    body: Graph | None = node.attrs.get("body")
    nodes, inputs = (body.nodes, body.inputs) if body else ((node,), node.inputs)
    needed: set[Value] = set()
    needed_nodes = []
    for inner in reversed(nodes):
        if can_fail(inner) or not needed.isdisjoint(inner.outputs):
            needed_nodes.append(inner)
            needed.update(inner.inputs)
    memory = _operands(node, job, block)
    known = {v: memory[outer] for v, outer in zip(inputs, node.inputs, strict=True) if outer in memory}
    for inner in reversed(needed_nodes):
        if known.keys() >= set(inner.inputs):
            try:
                results = evaluate_node(inner, [known[v] for v in inner.inputs])
            except OutOfBoundsError as error:
                message = message_of(error)
                raise locate(OutOfBoundsError(message + suffix), inner.location) from None
            known.update(zip(inner.outputs, results, strict=True))


def _operands(node: Node, job: Job, block: int) -> dict[Value, np.ndarray]:
    """Return the inputs of a task in memory, located through its argument block at address `block`."""
    arrays = {}
    for position, word in enumerate(job.words):
        if isinstance(word, ValueAddress) and word.value in node.inputs:
            start, type = block + 8 * position, word.value.type
            if not type.on_host:
                start = ctypes.c_int64.from_address(start).value - index(word.offset)
            memory = memoryview((ctypes.c_char * index(type.nbytes)).from_address(start))
            arrays[word.value] = np.ndarray(type.shape, type.dtype, memory)
    return arrays
