"""Recomputation in the backward pass.

The nodes that the function records are marked as a part of the tape. The backward pass appends them again and
takes the gradient of these copies, so the first ones are needed for the result only. Two things keep the
copies apart from the originals: they are other values, so that common subexpressions do not become one again;
and they are not computed before the cotangent of the result is there. One operator does both (`after`), on
one operand of each node that nothing recomputed flows into:

    forward        %3 = matmul(%0, %1);  %4 = tanh(%3)
    backward       %20 = after(mark of dy, %0)                  the smaller operand
                   %21 = matmul(%20, %1);  %22 = tanh(%21)
                   gradient of these

Views and what only passes an array on cost nothing, so nothing keeps them back. Fills are not copied, nor are
index checks, which must come before anything is written, and callbacks. Exchanges between ranks take place
once; their results are kept.

Functions can be computed again in turn (`InTurn`), so that their memory is shared:

    backward       cotangents of block 3, added up  ->  after  ->  block 2 again, its cotangents  ->  ...
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence, Set
from typing import Any

from tracejit.frontend.grad.tape import part, recording_operators
from tracejit.frontend.recording import eager
from tracejit.frontend.recording.location import check_callable
from tracejit.frontend.recording.recording import Recording, thread
from tracejit.ir.graph import Builder, Node, Value
from tracejit.ir.op import Trait
from tracejit.ir.types import Device
from tracejit.ir.view import View
from tracejit.ops import after, constant, copy, empty, equal, full, iota, stop_gradient, view
from tracejit.passes.copier import CopiedStep, Copier, defined_by, read_from_outside
from tracejit.passes.gradient import Items, ReverseStep, gradient

FREE = frozenset({constant, empty, full, iota})
IDENTITIES = frozenset({copy, stop_gradient})


class InTurn:
    """Functions that are computed again one after the other: none before the gradients of the one before it.

    Without an order, those whose cotangents are known at the same time may be computed at the same time, and
    their memory is not shared. `last` are the cotangents of what the latest one reads, summed up so far, in
    the recording where they were taken.
    """

    __slots__ = ("builder", "last")

    def __init__(self) -> None:
        self.builder: Builder | None = None
        self.last: list[Value] = []

    def taken(self, builder: Builder, cotangents: list[Value]) -> None:
        """The cotangents of the one whose turn it was are these."""
        self.builder, self.last = builder, cotangents

    def before(self, builder: Builder) -> list[Value]:
        """The values that the next one has to wait for, except those that have been launched."""
        if self.builder is not builder or not isinstance(builder, Recording):
            return []
        return [value for value in self.last if value in builder.defined]


def checkpoint(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function`, whose intermediate results are not kept for the backward pass but computed again there.

    That takes the time of one more forward pass through it, and the memory of what lies between two such
    functions instead of all that lies inside. Results, gradients and random numbers are the same. The plan of
    a traced function shows what is saved (``planned_bytes``); eager code computes again, but saves nothing.
    Source: Chen et al., "Training deep nets with sublinear memory cost", 2016.
    Raises ArgumentError for what cannot be called.

    >>> import tracejit as tj
    >>> block = tj.checkpoint(lambda x: tj.tanh(tj.tanh(x)))
    >>> tj.grad(lambda x: block(x).sum())(tj.zeros(2))
    NDArray([1., 1.], dtype=float32)
    """
    check_callable("checkpoint", function)
    return checkpoint_in_turn(function, None)


def checkpoint_in_turn(function: Callable[..., Any], turn: InTurn | None) -> Callable[..., Any]:
    """`checkpoint`, of functions that are computed again in turn, the last one first."""

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if not thread.tapes:
            return function(*args, **kwargs)
        with part(eager.current()) as body:
            result = function(*args, **kwargs)
            body.arrange = lambda items: [Recomputed(items, turn)]
        return result

    return wrapper


class Recomputed(CopiedStep):
    """Nodes whose gradient is that of copies of them, made when it is taken."""

    def __init__(self, items: Items, turn: InTurn | None = None):
        super().__init__(read_from_outside(items), defined_by(items))
        self.items, self.turn = items, turn

    def pull_back(
        self, builder: Builder, cotangents: Sequence[Value | None], active: Set[Value]
    ) -> Sequence[Value | None]:
        """The gradient of copies of the nodes."""
        known = [(v, ct) for v, ct in zip(self.outputs, cotangents, strict=True) if ct is not None]
        seeds = [ct for _, ct in known]
        with recording_operators():
            earlier = [] if self.turn is None else self.turn.before(builder)
            copier = _Recomputing(builder, [seeds[0], *earlier])
            items = copier.copies(self.items)
        ends = [copier.found(v) for v, _ in known]
        wanted = [v for v in self.inputs if v in active]
        found = gradient(builder, items, ends, seeds, wanted, guard=recording_operators)
        totals = dict(zip(wanted, found, strict=True))
        return [totals.get(v) for v in self.inputs]

    def pulled_back(self, builder: Builder, totals: Sequence[Value | None]) -> None:
        """The next one in turn comes after these sums, so that what was added to them is needed no more."""
        if self.turn is not None:
            self.turn.taken(builder, [ct for ct in totals if ct is not None])

    def copy_for(self, copier: Copier) -> ReverseStep:
        """The step for copies of the nodes."""
        return Recomputed(copier.copies(self.items), self.turn)


class _Recomputing(Copier):
    """Copies nodes so that they are not computed before any of `cotangents`."""

    def __init__(self, builder: Builder, cotangents: Sequence[Value]):
        super().__init__(builder)
        self.cotangents = [ct for ct in cotangents if ct.type.size]
        self.devices = {ct.type.device for ct in self.cotangents}
        self.late: set[Value] = set()  # values that come after them
        self.marks: dict[Device, Value] = {}

    def copy_node(self, node: Node) -> Items:
        """A copy that comes after the cotangents; none of what costs nothing or must come early."""
        if Trait.ORDERED in node.op.traits and node.outputs:
            operands = tuple(self.found(v) for v in node.inputs)
            return [Node(node.op, operands, node.outputs, node.attrs, node.location)]  # for its gradient only
        if node.op in FREE or Trait.CAN_FAIL in node.op.traits or Trait.ORDERED in node.op.traits:
            return []
        first: Items = []
        inputs = [self.found(v) for v in node.inputs]
        costs = Trait.VIEW not in node.op.traits and node.op not in IDENTITIES
        if costs and self.late.isdisjoint(inputs):
            arrays = [v for v in node.inputs if not v.type.on_host and v.type.size]
            arrays = [v for v in arrays if v.type.device in self.devices]
            if arrays:
                first = self.delay(min(arrays, key=lambda v: v.type.nbytes), node.location)
        copies = super().copy_node(node)
        if not self.late.isdisjoint(self.found(v) for v in node.inputs):
            self.late.update(self.found(v) for v in node.outputs)
        return [*first, *copies]

    def delay(self, value: Value, location: str | None) -> Items:
        """Let `value` stand for one that comes after the cotangents on its device."""
        builder, source = self.builder, self.found(value)
        start = len(builder.nodes)
        mark = self.mark(source.type.device, location)
        shape = source.type.shape
        everywhere = builder.emit(view, mark, location=location, view=View(0, shape, (0,) * len(shape)))
        self.replaced[value] = builder.emit(after, everywhere, source, location=location)
        self.late.add(self.replaced[value])
        return builder.nodes[start:]

    def mark(self, device: Device, location: str | None) -> Value:
        """A bool that is there when all cotangents on a device are."""
        if device not in self.marks:
            emit = functools.partial(self.builder.emit, location=location)
            for cotangent in self.cotangents:
                if cotangent.type.device == device:
                    first = emit(view, cotangent, view=View(0, (), ()))
                    mark = emit(equal, first, first)
                    before = self.marks.get(device)
                    self.marks[device] = mark if before is None else emit(after, before, mark)
        return self.marks[device]
