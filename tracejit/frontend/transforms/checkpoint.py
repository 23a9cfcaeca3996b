"""Recomputation in the backward pass.

The nodes recorded by the function form a region of the tape. The backward pass appends copies of them and
differentiates the copies, so the forward pass needs the originals only for the result. The copies must be
distinct from the originals (common subexpression elimination must not merge them), and must not be computed
before the cotangent of the result is available. The operator `after` achieves both. It is inserted at one
operand of every node none of whose operands is recomputed:

    forward        %3 = matmul(%0, %1);  %4 = tanh(%3)
    backward       %20 = after(marker of dy, %0)                the smaller operand
                   %21 = matmul(%20, %1);  %22 = tanh(%21)
                   gradient of these

Views and identities cost nothing and are not delayed. Three kinds of nodes are not copied: fills; index
checks, which must precede all writes; and callbacks. Exchanges between ranks take place once, and their
results are kept.

The recomputations of several functions can be ordered (`RecomputationOrder`), so that they share memory:

    backward       sum the cotangents of block 3  ->  after  ->  recompute block 2, its cotangents  ->  ...
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence, Set
from typing import Any

from tracejit.frontend.grad.tape import recording_operators, region
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


class RecomputationOrder:
    """An order for the recomputation of functions: each starts after the gradients of its predecessor.

    Without an order, functions whose cotangents become available simultaneously may be recomputed
    simultaneously, and then cannot share memory.

    last: the cotangents, summed so far, of the values that the latest recomputed function reads.
    builder: the recording in which they were computed.
    """

    __slots__ = ("builder", "last")

    def __init__(self) -> None:
        self.builder: Builder | None = None
        self.last: list[Value] = []

    def finished(self, builder: Builder, cotangents: list[Value]) -> None:
        """Set the cotangents that the latest recomputed function has produced."""
        self.builder, self.last = builder, cotangents

    def dependencies(self, builder: Builder) -> list[Value]:
        """Return the values on which the next recomputation depends and that have not been launched yet."""
        if self.builder is not builder or not isinstance(builder, Recording):
            return []
        return [value for value in self.last if value in builder.defined]


def checkpoint(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return `function` with its intermediate results recomputed in the backward pass instead of stored.

    This costs the time of one additional forward pass through the function. Memory is needed only for the
    values between checkpointed functions, not for those inside them. Results, gradients and random numbers
    are unchanged. The plan of a traced function shows the saving (``planned_bytes``); eager code recomputes,
    but saves no memory. Source: Chen et al., "Training deep nets with sublinear memory cost", 2016.
    Raises ArgumentError if `function` is not callable.

    >>> import tracejit as tj
    >>> block = tj.checkpoint(lambda x: tj.tanh(tj.tanh(x)))
    >>> tj.grad(lambda x: block(x).sum())(tj.zeros(2))
    NDArray([1., 1.], dtype=float32)
    """
    check_callable("checkpoint", function)
    return checkpoint_in_order(function, None)


def checkpoint_in_order(function: Callable[..., Any], order: RecomputationOrder | None) -> Callable[..., Any]:
    """Return a checkpointed function like `checkpoint`, with its recomputation subject to `order`, if any.
    Functions are recomputed in the reverse order of their calls.
    """

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if not thread.tapes:
            return function(*args, **kwargs)
        with region(eager.current()) as body:
            result = function(*args, **kwargs)
            body.arrange = lambda items: [Recomputed(items, order)]
        return result

    return wrapper


class Recomputed(CopiedStep):
    """A region of nodes whose gradient is computed from copies, which are appended by the pull-back."""

    def __init__(self, items: Items, order: RecomputationOrder | None = None):
        super().__init__(read_from_outside(items), defined_by(items))
        self.items, self.order = items, order

    def pull_back(
        self, builder: Builder, cotangents: Sequence[Value | None], active: Set[Value]
    ) -> Sequence[Value | None]:
        """Append copies of the nodes, and return the gradient of the copies."""
        known = [(v, ct) for v, ct in zip(self.outputs, cotangents, strict=True) if ct is not None]
        seeds = [ct for _, ct in known]
        with recording_operators():
            earlier = [] if self.order is None else self.order.dependencies(builder)
            copier = _Recomputing(builder, [seeds[0], *earlier])
            items = copier.copies(self.items)
        ends = [copier.copy_of(v) for v, _ in known]
        active_inputs = [v for v in self.inputs if v in active]
        gradients = gradient(builder, items, ends, seeds, active_inputs, guard=recording_operators)
        totals = dict(zip(active_inputs, gradients, strict=True))
        return [totals.get(v) for v in self.inputs]

    def pulled_back(self, builder: Builder, totals: Sequence[Value | None]) -> None:
        """Let the next recomputation depend on these sums, so that their summands are dead by then."""
        if self.order is not None:
            self.order.finished(builder, [ct for ct in totals if ct is not None])

    def copy_for(self, copier: Copier) -> ReverseStep:
        """Return the step for copies of the nodes."""
        return Recomputed(copier.copies(self.items), self.order)


class _Recomputing(Copier):
    """Copies nodes such that no copy is computed before all `cotangents` on its device are available."""

    def __init__(self, builder: Builder, cotangents: Sequence[Value]):
        super().__init__(builder)
        self.cotangents = [ct for ct in cotangents if ct.type.size]
        self.devices = {ct.type.device for ct in self.cotangents}
        self.delayed: set[Value] = set()  # values that depend on the cotangents
        self.markers: dict[Device, Value] = {}

    def copy_node(self, node: Node) -> Items:
        """Copy a node such that it depends on the cotangents. Fills, index checks and callbacks are not
        copied; an exchange keeps its results.
        """
        if Trait.ORDERED in node.op.traits and node.outputs:
            operands = tuple(self.copy_of(v) for v in node.inputs)
            return [Node(node.op, operands, node.outputs, node.attrs, node.location)]  # not recomputed
        if node.op in FREE or Trait.CAN_FAIL in node.op.traits or Trait.ORDERED in node.op.traits:
            return []
        first: Items = []
        inputs = [self.copy_of(v) for v in node.inputs]
        costs = Trait.VIEW not in node.op.traits and node.op not in IDENTITIES
        if costs and self.delayed.isdisjoint(inputs):
            arrays = [v for v in node.inputs if not v.type.on_host and v.type.size]
            arrays = [v for v in arrays if v.type.device in self.devices]
            if arrays:
                first = self.delay(min(arrays, key=lambda v: v.type.nbytes), node.location)
        copies = super().copy_node(node)
        if not self.delayed.isdisjoint(self.copy_of(v) for v in node.inputs):
            self.delayed.update(self.copy_of(v) for v in node.outputs)
        return [*first, *copies]

    def delay(self, value: Value, location: str | None) -> Items:
        """Replace `value` by a copy that depends on the cotangents on its device."""
        builder, source = self.builder, self.copy_of(value)
        start = len(builder.nodes)
        marker = self.marker(source.type.device, location)
        shape = source.type.shape
        broadcast = builder.emit(view, marker, location=location, view=View(0, shape, (0,) * len(shape)))
        self.replaced[value] = builder.emit(after, broadcast, source, location=location)
        self.delayed.add(self.replaced[value])
        return builder.nodes[start:]

    def marker(self, device: Device, location: str | None) -> Value:
        """Return a bool that is available when all cotangents on a device are."""
        if device not in self.markers:
            emit = functools.partial(self.builder.emit, location=location)
            for cotangent in self.cotangents:
                if cotangent.type.device == device:
                    first = emit(view, cotangent, view=View(0, (), ()))
                    marker = emit(equal, first, first)
                    before = self.markers.get(device)
                    self.markers[device] = marker if before is None else emit(after, before, marker)
        return self.markers[device]
