"""Vectorisation of a recording of one example: the replay of a `Batch` on the outer recording.

A node with a mapped operand is appended by its operator's batching rule; any other node is copied unchanged,
so a value common to all examples is computed once. Steps (see `passes.gradient.ReverseStep`) are replayed,
too, so that a gradient taken outside `vmap` uses the rules of functions inside. A rule that is a Python
function remains a rule for a single example: the batch is opened again, the rule is called in it, and its
recording is replayed in turn. A callback is called once per example, in the order of the examples.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import Any

from tracejit.errors import ArgumentError, TracejitError, locate
from tracejit.frontend.arrays.dispatch import read_all
from tracejit.frontend.arrays.random.streams import stream_values
from tracejit.frontend.grad.tape import recorded, recording_operators, region
from tracejit.frontend.recording.eager import EagerRecording
from tracejit.frontend.recording.location import user_location
from tracejit.frontend.recording.origins import RuntimeNumber, Window
from tracejit.frontend.recording.recording import Recording, thread
from tracejit.frontend.transforms.batch import Batch, BatchedDraw, Example, OuterValue
from tracejit.ir.graph import Builder, Node, Value
from tracejit.ir.view import View
from tracejit.ops import iota, random_bits, view
from tracejit.ops.batching import batch, maps
from tracejit.ops.structural import callback
from tracejit.ops.symbolic import Sym, building, emit
from tracejit.passes.copier import CopiedStep, Copier
from tracejit.passes.gradient import Items, ReverseStep


class Replay(Copier):
    """Appends the nodes and steps of a batch to the outer recording.

    replaced: the outer value for each value of the batch; mapped values have the examples along the first
              axis.
    """

    def __init__(self, inner: Batch, builder: Builder, known: dict[Value, Value] | None = None):
        super().__init__(builder)
        self.inner = inner
        self.replaced = dict(known or {})
        self.draws: dict[Value, tuple[int, int]] = {}  # by counter: its offset, and the draws per example
        self.callbacks: list[Node] = []
        self.calls: list[tuple[int, list[Value]]] = []  # callbacks to call after the recording, and operands

    def run(self, items: Items) -> Items:
        """Replay nodes and steps, and return their replacements. The caller holds `recording_operators`."""
        self._find_inputs()
        with region(self.outer) as opened:
            copies = [*self.copies(items), *self._callbacks()]
            opened.arrange = lambda _: copies
        return copies

    @property
    def outer(self) -> Recording:
        """The outer recording."""
        assert isinstance(self.builder, Recording)
        return self.builder

    # -- inputs ----------------------------------------------------------------------------------------------

    def _find_inputs(self) -> None:
        """Determine the outer values of the batch's inputs that have none yet."""
        inner, outer = self.inner, self.outer
        new = [row for row in zip(inner.inputs, inner.origins, strict=True) if row[0] not in self.replaced]
        arrays: list[tuple[Value, Any]] = [(v, b) for v, b in new if isinstance(b, Window | Example)]
        values = read_all(outer, lambda: [_read(outer, v, b) for v, b in arrays])
        self.replaced.update(zip([v for v, _ in arrays], values, strict=True))
        numbers = {
            stream: (*stream_values(outer, stream, inner.size * count), count)
            for stream, count in inner.drawn.items()
        }
        for value, origin in new:
            if isinstance(origin, OuterValue):
                self.replaced[value] = outer.known(origin.value)
            elif isinstance(origin, RuntimeNumber):
                self.replaced[value] = outer.number(origin, value.type.dtype)
            elif isinstance(origin, BatchedDraw):
                key, counter, count = numbers[origin.stream]
                self.replaced[value] = key if origin.offset is None else counter
                if origin.offset is not None:
                    self.draws[value] = origin.offset, count
        inner.drawn.clear()
        inner.inputs, inner.origins = (
            [],
            [],
        )  # resolved: avoids a reference cycle through the batch's storages

    # -- nodes and steps -------------------------------------------------------------------------------------

    def copy_node(self, node: Node) -> Items:
        """Append nodes that compute the node's results for all examples."""
        inner, builder = self.inner, self.builder
        mapped = [value in inner.mapped for value in node.inputs]
        if node.op is callback:
            self.callbacks.append(node)
            return []
        if not any(mapped):
            return super().copy_node(node)
        start = len(builder.nodes)
        try:
            if node.op is random_bits and node.inputs[1] in self.draws and inner.size:
                results = self._draw(node)
            else:
                results = batch(builder, node, [self.copy_of(v) for v in node.inputs], mapped, inner.size)
        except TracejitError as error:
            raise locate(error, node.location) from None
        self.replaced.update(zip(node.outputs, results, strict=True))
        assert maps(node.op, mapped) == (node.outputs[0] in inner.mapped)
        return builder.nodes[start:]

    def _callbacks(self) -> Items:
        """Append the callbacks, example by example. In eager code they are collected in `calls` instead."""
        start = len(self.builder.nodes)
        for example in range(self.inner.size):
            for node in self.callbacks:
                operands = [self._of_example(v, example) for v in node.inputs]
                if isinstance(self.outer, EagerRecording):
                    self.calls.append((node.attrs["id"], operands))
                else:
                    self.builder.emit(callback, *operands, location=node.location, **node.attrs)
        return self.builder.nodes[start:]

    def _of_example(self, value: Value, example: int) -> Value:
        """Return the outer value for one example of a value of the batch."""
        outer = self.copy_of(value)
        if value not in self.inner.mapped:
            return outer
        selected: Value = self.builder.emit(
            view, outer, view=View.of_shape(outer.type.shape).select(0, example)
        )
        return selected

    def _draw(self, node: Node) -> tuple[Value, ...]:
        """Append random bits, with different positions in the stream for each example."""
        offset, count = self.draws[node.inputs[1]]
        key, counter, index = (Sym(self.copy_of(v)) for v in node.inputs)
        with building(self.builder, node.location):
            first = iota(size=self.inner.size, device=index.device) * count + offset
            shape = index.shape
            if node.inputs[2] not in self.inner.mapped:
                shape = (self.inner.size, *shape)
                index = index.spread((0,), shape)
            index = index + first.spread(tuple(range(1, len(shape))), shape)
            return (emit(random_bits, key, counter, index, **node.attrs).value,)

    def copy_step(self, step: ReverseStep) -> Items:
        """Return the step for all examples."""
        if isinstance(step, CopiedStep) and step.calls_python:
            return [BatchedStep(step, self.inner, self.replaced)]
        return super().copy_step(step)

    # -- results ---------------------------------------------------------------------------------------------

    def cotangent(self, value: Value, cotangent: Value) -> Value:
        """Return the outer value of the cotangent of `value`, summed over the examples if `value` is not
        mapped but its cotangent is.
        """
        mapped = self.inner.mapped
        if value in mapped or cotangent not in mapped:
            return self.result(cotangent, 0 if value in mapped else None)
        with building(self.builder):
            return Sym(self.copy_of(cotangent)).sum((0,)).value

    def result(self, value: Value, axis: int | None) -> Value:
        """Return the outer value of a value of the batch, with the examples along `axis`; None: not
        mapped.
        """
        outer = self.copy_of(value)
        if axis is None:
            return outer
        arranged = View.of_shape(outer.type.shape)
        if value not in self.inner.mapped:
            arranged = arranged.expand(0).broadcast((self.inner.size, *outer.type.shape))
        others = list(range(1, len(arranged.shape)))
        arranged = arranged.permute((*others[:axis], 0, *others[axis:]))
        if arranged.is_identity(outer.type.shape):
            return outer
        return self.outer.emit(view, outer, view=arranged)


def _read(outer: Recording, value: Value, origin: Window | Example) -> Value:
    if isinstance(origin, Example):
        return outer.read(origin.target._storage, origin.target._view)
    return outer.read(origin.storage, View.of_shape(value.type.shape).moved(origin.lo))


class BatchedStep(CopiedStep):
    """A step of a batch, for all examples, on the outer recording; `known` has the outer values."""

    calls_python = True

    def __init__(self, step: CopiedStep, inner: Batch, known: dict[Value, Value]):
        self.step, self.inner, self.known = step, inner, dict(known)
        super().__init__([known.get(v, v) for v in step.inputs], [known.get(v, v) for v in step.outputs])

    def copy_for(self, copier: Copier) -> ReverseStep:
        """Return the step for copies of the outer values."""
        return BatchedStep(self.step, self.inner, {v: copier.copy_of(o) for v, o in self.known.items()})

    def pull_back(
        self, builder: Builder, cotangents: Sequence[Value | None], active: Set[Value]
    ) -> Sequence[Value | None]:
        """Pull back one example's cotangents in the reopened batch, and replay the recorded nodes."""
        inner, step = self.inner, self.step
        assert isinstance(builder, Recording)
        active_inputs = {v for v, o in zip(step.inputs, self.inputs, strict=True) if o in active}
        replay = Replay(inner, builder, self.known)
        with inner.opened(builder):
            seeds = [
                None if ct is None else inner.input_for(ct, mapped=v in inner.mapped)
                for v, ct in zip(step.outputs, cotangents, strict=True)
            ]
            items, results = recorded_items(inner, lambda: step.pull_back(inner, seeds, active_inputs))
        with recording_operators():
            replay.run(items)
            if replay.calls:
                what = (
                    "vmap: tj.callback cannot be used in a custom gradient here; trace the call with tj.jit"
                )
                raise locate(ArgumentError(what), user_location())
            return [
                None if ct is None else replay.cotangent(v, ct)
                for v, ct in zip(step.inputs, results, strict=True)
            ]


def recorded_items(inner: Batch, run: Any) -> tuple[Items, Any]:
    """Call `run()` with the batch open. Return the recorded nodes, with steps if a gradient is being taken,
    and the result.
    """
    start = len(inner.nodes)
    if not thread.tapes:
        result = run()
        return inner.nodes[start:], result
    with recorded() as tape:
        result = run()
        return tape.nodes(), result
