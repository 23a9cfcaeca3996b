"""The structural operator `loop`: a nested graph that runs once for each of a number of rounds.

    finals = loop(count, operand, ...)  [body, moves, rounds, until]

The operands are the inputs of the body, which sees of each operand a *window*: `size` elements (those of its
input's type) from ``start + r * step`` on in round r, where ``moves`` has (start, step) for each operand.
An operand that does not move and is read in full has (0, 0). The body's *effects* write windows: later
rounds read from the operand what was stored in the input. So an operand is one of

- loop-invariant: read in full, never written;
- a sequence: read through a window that moves;
- loop-carried: written in full, the next round reads what this one wrote;
- a state with a place that moves: read and written through one window;
- a number: it starts as the operand and grows by `step` (integers wrap; floats must stay integers that their
  dtype represents exactly, so that sums are exact).

The outputs are what the written operands hold after the last round, in the order of the effects. An operand
is a value: two operands that are the same value do not see one another's writes.

`rounds` is the count when the loop was made: what its cost is estimated from, and for what it is checked.
`first` is the number of the first of its rounds for people: so many of the user's loop come before it.
`until`, if there is one, is the number of an output that is one truth value: the loop ends after the round
that makes it false, at the latest after `count` rounds.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tracejit.errors import VerificationError
from tracejit.ir.evaluate import evaluate
from tracejit.ir.graph import Graph
from tracejit.ir.moving import Moving
from tracejit.ir.op import CAN_FAIL, Trait, register
from tracejit.ir.rounds import part
from tracejit.ir.types import HOST, ArrayType
from tracejit.ops.batching import refusing
from tracejit.ops.symbolic import Operator

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
        raise VerificationError("the body of a loop has outputs; it gives its results as effects")
    for type, value, (start, step) in zip(types[1:], body.inputs, moves, strict=True):
        inner = value.type
        if (type.dtype, type.device) != (inner.dtype, inner.device):
            raise VerificationError(f"loop: the body takes {inner}, the operand is {type}")
        if type.on_host:
            continue
        if any(isinstance(n, Moving) for n in (start, step, rounds, inner.size, type.size)):
            continue  # of a loop in a loop
        last = start + max(rounds - 1, 0) * step
        if not (min(start, last) >= 0 and max(start, last) + inner.size <= type.size):
            raise VerificationError(f"loop: windows of {inner} from {start} by {step} leave {type}")
    finals = tuple(types[1 + i] for i in targets(body))
    if until is not None and (finals[until].dtype, finals[until].size) != (np.dtype("bool"), 1):
        raise VerificationError(
            f"loop: it goes on as long as {finals[until]} says so, which is no truth value"
        )
    return finals


def targets(body: Graph) -> list[int]:
    """The numbers of the body's inputs that it writes, in the order of its effects."""
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
    memory = [np.array(x, order="C") if i in written else x for i, x in enumerate(operands)]
    for this in range(int(count)):
        windows = []
        for x, value, (start, step) in zip(memory, body.inputs, moves, strict=True):
            if value.type.on_host:
                windows.append(x)
                continue
            low = start + this * step
            windows.append(x.reshape(-1)[low : low + value.type.size].reshape(value.type.shape))
        results = evaluate(part(body, this, this + 1), windows)[1]
        for i, result in zip(written, results, strict=True):
            windows[i][...] = result
        for i, (value, (_, step)) in enumerate(zip(body.inputs, moves, strict=True)):
            if value.type.on_host and step:
                memory[i] = np.add(memory[i], np.array(step).astype(value.type.dtype))  # integers wrap
        if until is not None and not memory[written[until]].all():
            break
    return tuple(memory[i] for i in written)


loop = Operator(
    "loop",
    _infer_loop,
    _evaluate_loop,
    traits=frozenset({Trait.NESTED}),
    doc="A nested graph that runs a number of times, on windows of the operands; always a tuple of outputs.",
    batch=refusing("a rolled loop is no longer an operator; map the function before it is compiled"),
)
register(loop)


def graph_can_fail(graph: Graph) -> bool:
    """Whether running a graph of operators may report an error, an index out of range."""
    return any(
        CAN_FAIL in node.op.traits or (node.op is loop and graph_can_fail(node.attrs["body"]))
        for node in graph.nodes
    )
