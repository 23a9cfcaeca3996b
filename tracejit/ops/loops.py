"""The structural operators `loop` and `case`, which run nested graphs.

`loop` runs a graph once for each iteration of a counted loop:

    finals = loop(count, operand, ...)  [body, moves, rounds, until]

The inputs of the body are *windows* of the operands: in iteration r, an input of n elements is the n elements
of its operand from offset ``start + r * step`` on, where ``moves`` contains (start, step) for each operand.
An operand that is read in full in every iteration has (0, 0). The body's *effects* write windows: later
iterations read from the operand what an earlier iteration stored through its input. So an operand is one of

- loop-invariant: read in full, never written;
- a sequence: read through a moving window;
- loop-carried: written in full; each iteration reads what the previous one wrote;
- a state with a moving window: read and written through that window;
- a host number: an induction variable that starts as the operand and grows by `step` (integers wrap; floats
  must be integers that their dtype represents exactly, so that sums are exact).

The outputs are the final contents of the written operands, in the order of the effects. Operands are values:
if one value is passed as two operands, writes to one are not visible through the other.

`rounds` is the trip count at the time the loop was created, for cost estimates and for bounds checks. `first`
is the number of iterations of the user's loop that precede this loop; messages to users add it to r. `until`,
if not None, is the index of an output that is a single bool: the loop ends after the iteration that makes it
false, or after `count` iterations.

`case` runs one of several graphs, all of which take the operands as inputs:

    results = case(which, operand, ...)  [branches]

`which` is a bool (branch 0 if it is false, 1 if it is true), or an int64 that is the index of a branch.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tracejit.errors import VerificationError
from tracejit.ir.evaluate import evaluate
from tracejit.ir.graph import Graph, Node
from tracejit.ir.iterations import restrict
from tracejit.ir.moving import Moving
from tracejit.ir.op import CAN_FAIL, Trait, register
from tracejit.ir.types import HOST, ArrayType
from tracejit.ops.batching import refusing
from tracejit.ops.symbolic import Operator

BOOL = np.dtype("bool")
COUNT = ArrayType((), np.dtype("int64"), HOST)
Moves = Sequence[tuple[int, int]]


def _infer_loop(
    *types: ArrayType, body: Graph, moves: Moves, rounds: int, until: int | None = None, first: int = 0
) -> tuple[ArrayType, ...]:
    if not types or types[0] != COUNT:
        raise VerificationError(f"loop: the count must be an int64 number, got {types[:1]}")
    if not len(types) - 1 == len(body.inputs) == len(moves):
        raise VerificationError(f"loop of {len(body.inputs)} inputs got {len(types) - 1} operands")
    if body.outputs:
        raise VerificationError("the body of a loop has outputs; its results must be effects")
    for type, value, (start, step) in zip(types[1:], body.inputs, moves, strict=True):
        inner = value.type
        if (type.dtype, type.device) != (inner.dtype, inner.device):
            raise VerificationError(f"loop: the body takes {inner}, the operand is {type}")
        if type.on_host:
            continue
        if any(isinstance(n, Moving) for n in (start, step, rounds, inner.size, type.size)):
            continue  # in a nested loop: depends on the outer iteration
        last = start + max(rounds - 1, 0) * step
        if not (min(start, last) >= 0 and max(start, last) + inner.size <= type.size):
            raise VerificationError(f"loop: windows of {inner} from {start} by {step} leave {type}")
    finals = tuple(types[1 + i] for i in targets(body))
    if until is not None and (finals[until].dtype, finals[until].size) != (BOOL, 1):
        raise VerificationError(f"loop: its condition is {finals[until]}, which is not a single bool")
    return finals


def targets(body: Graph) -> list[int]:
    """The indices of the body's inputs that it writes, in the order of its effects."""
    position = {value: i for i, value in enumerate(body.inputs)}
    return [position[effect.target] for effect in body.effects]


def _evaluate_loop(
    count: np.ndarray,
    *operands: np.ndarray,
    body: Graph,
    moves: Moves,
    rounds: int,
    until: int | None = None,
    first: int = 0,
) -> tuple[np.ndarray, ...]:
    written = targets(body)
    contents = [np.array(x, order="C") if i in written else x for i, x in enumerate(operands)]
    for iteration in range(int(count)):
        windows = []
        for x, value, (start, step) in zip(contents, body.inputs, moves, strict=True):
            if value.type.on_host:
                windows.append(x)
                continue
            offset = start + iteration * step
            windows.append(x.reshape(-1)[offset : offset + value.type.size].reshape(value.type.shape))
        results = evaluate(restrict(body, iteration, iteration + 1), windows)[1]
        copies = [np.array(result) for result in results]  # a result may be a window that is written, too
        for i, result in zip(written, copies, strict=True):
            windows[i][...] = result
        for i, (value, (_, step)) in enumerate(zip(body.inputs, moves, strict=True)):
            if value.type.on_host and step:
                contents[i] = np.add(contents[i], np.array(step).astype(value.type.dtype))  # integers wrap
        if until is not None and not contents[written[until]].all():
            break
    return tuple(contents[i] for i in written)


loop = Operator(
    "loop",
    _infer_loop,
    _evaluate_loop,
    traits=frozenset({Trait.NESTED}),
    doc="A nested graph that runs repeatedly on windows of the operands; its outputs are always a tuple.",
    batch=refusing("a rolled loop is no longer an operator; map the function before it is compiled"),
)
register(loop)


def _infer_case(*types: ArrayType, branches: Sequence[Graph]) -> tuple[ArrayType, ...]:
    if not types or types[0].on_host or types[0].size != 1 or types[0].dtype not in (BOOL, COUNT.dtype):
        raise VerificationError(f"case: the choice must be a single bool or int64, got {types[:1]}")
    if types[0].dtype == BOOL and len(branches) != 2:
        raise VerificationError(f"case: a bool chooses between 2 branches, not {len(branches)}")
    results = tuple(value.type for value in branches[0].outputs)
    for branch in branches:
        inputs = tuple(value.type for value in branch.inputs)
        if inputs != types[1:]:
            raise VerificationError(f"case: a branch takes {inputs}, the operands are {types[1:]}")
        if branch.effects or tuple(value.type for value in branch.outputs) != results:
            raise VerificationError("case: the branches have different results, or effects")
    return results


def _evaluate_case(
    which: np.ndarray, *operands: np.ndarray, branches: Sequence[Graph]
) -> tuple[np.ndarray, ...]:
    return tuple(evaluate(branches[int(which.item())], operands)[0])


case = Operator(
    "case",
    _infer_case,
    _evaluate_case,
    traits=frozenset({Trait.NESTED}),
    doc="One of several nested graphs, chosen by a number; its outputs are always a tuple.",
    batch=refusing("a loop over looks is no longer an operator; map the function before it is compiled"),
)
register(case)


def nested_graphs(node: Node) -> Sequence[Graph]:
    """Return the graphs that a `loop` or `case` runs; other nodes have none."""
    if node.op is loop:
        return (node.attrs["body"],)
    return node.attrs["branches"] if node.op is case else ()


def graph_can_fail(graph: Graph) -> bool:
    """Whether running a graph may report an error, such as an index out of range, from a nested loop too."""
    return any(
        CAN_FAIL in node.op.traits or any(map(graph_can_fail, nested_graphs(node))) for node in graph.nodes
    )
