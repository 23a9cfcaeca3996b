"""Vectorisation of a recording of one example over all: the replay of a `Batch` on the outer recording.

Every node is appended by its operator's batching rule if an operand is mapped, and as it is if none is: a
value common to all examples is computed once. Steps (see `passes.gradient.ReverseStep`) come along, so that a
gradient taken around `vmap` knows the rules of functions inside. A rule that is a Python function stays one
for a single example: it is called in the batch, opened again, and what it records is replayed in turn.
A callback happens once for each example, in their order.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import Any

from tracejit.errors import ArgumentError, TracejitError, locate
from tracejit.frontend.arrays.dispatch import read_all
from tracejit.frontend.arrays.random.streams import stream_values
from tracejit.frontend.grad.tape import part, recorded, recording_operators
from tracejit.frontend.recording.eager import EagerRecording
from tracejit.frontend.recording.location import user_location
from tracejit.frontend.recording.origins import RuntimeNumber, TrackedExtent
from tracejit.frontend.recording.recording import Recording, thread
from tracejit.frontend.transforms.batch import Batch, BatchedDraw, Example, Given
from tracejit.ir.graph import Builder, Node, Value
from tracejit.ir.view import View
from tracejit.ops import iota, random_bits, view
from tracejit.ops.batching import batch, maps
from tracejit.ops.structural import callback
from tracejit.ops.symbolic import Sym, building, emit
from tracejit.passes.copier import CopiedStep, Copier
from tracejit.passes.gradient import Items, ReverseStep


class Replay(Copier):
    """Appends what a batch recorded to the recording around it.

    replaced: what stands there for a value of the batch; mapped ones have the examples along the first axis.
    """

    def __init__(self, inner: Batch, builder: Builder, known: dict[Value, Value] | None = None):
        super().__init__(builder)
        self.inner = inner
        self.replaced = dict(known or {})
        self.draws: dict[Value, tuple[int, int]] = {}  # counters: offset, and how many an example draws
        self.callbacks: list[Node] = []
        self.calls: list[tuple[int, list[Value]]] = []  # callbacks to call when all is recorded, and operands

    def run(self, items: Items) -> Items:
        """Replay nodes and steps; returns their replacements. The caller records operators."""
        self._find_inputs()
        with part(self.outer) as opened:
            copies = [*self.copies(items), *self._callbacks()]
            opened.arrange = lambda _: copies
        return copies

    @property
    def outer(self) -> Recording:
        """The recording around."""
        assert isinstance(self.builder, Recording)
        return self.builder

    # -- inputs ----------------------------------------------------------------------------------------------

    def _find_inputs(self) -> None:
        """Find the outer values of new inputs of the batch."""
        inner, outer = self.inner, self.outer
        new = [row for row in zip(inner.inputs, inner.bound, strict=True) if row[0] not in self.replaced]
        arrays: list[tuple[Value, Any]] = [(v, b) for v, b in new if isinstance(b, TrackedExtent | Example)]
        found = read_all(outer, lambda: [_read(outer, v, b) for v, b in arrays])
        self.replaced.update(zip([v for v, _ in arrays], found, strict=True))
        numbers = {
            stream: (*stream_values(outer, stream, inner.size * count), count)
            for stream, count in inner.drawn.items()
        }
        for value, bound in new:
            if isinstance(bound, Given):
                self.replaced[value] = outer.known(bound.value)
            elif isinstance(bound, RuntimeNumber):
                self.replaced[value] = outer.number(bound, value.type.dtype)
            elif isinstance(bound, BatchedDraw):
                key, counter, count = numbers[bound.stream]
                self.replaced[value] = key if bound.offset is None else counter
                if bound.offset is not None:
                    self.draws[value] = bound.offset, count
        inner.drawn.clear()
        inner.inputs, inner.bound = [], []  # found; they refer to storages of the batch, which refer to it

    # -- nodes and steps -------------------------------------------------------------------------------------

    def copy_node(self, node: Node) -> Items:
        """Append nodes that compute a node for all examples."""
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
                results = batch(builder, node, [self.found(v) for v in node.inputs], mapped, inner.size)
        except TracejitError as error:
            raise locate(error, node.location) from None
        self.replaced.update(zip(node.outputs, results, strict=True))
        assert maps(node.op, mapped) == (node.outputs[0] in inner.mapped)
        return builder.nodes[start:]

    def _callbacks(self) -> Items:
        """Append the callbacks, example by example; without a trace around they are to be called at once."""
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
        """The outer value of one example of the batch's value."""
        found = self.found(value)
        if value not in self.inner.mapped:
            return found
        chosen: Value = self.builder.emit(
            view, found, view=View.of_shape(found.type.shape).select(0, example)
        )
        return chosen

    def _draw(self, node: Node) -> tuple[Value, ...]:
        """Random bits, of other positions for each example."""
        offset, count = self.draws[node.inputs[1]]
        key, counter, index = (Sym(self.found(v)) for v in node.inputs)
        with building(self.builder, node.location):
            first = iota(size=self.inner.size, device=index.device) * count + offset
            shape = index.shape
            if node.inputs[2] not in self.inner.mapped:
                shape = (self.inner.size, *shape)
                index = index.spread((0,), shape)
            index = index + first.spread(tuple(range(1, len(shape))), shape)
            return (emit(random_bits, key, counter, index, **node.attrs).value,)

    def copy_step(self, step: ReverseStep) -> Items:
        """A step for all examples."""
        if isinstance(step, CopiedStep) and step.calls_python:
            return [BatchedStep(step, self.inner, self.replaced)]
        return super().copy_step(step)

    # -- results ---------------------------------------------------------------------------------------------

    def cotangent(self, value: Value, cotangent: Value) -> Value:
        """The outer value of a cotangent of the batch: summed over examples where `value` is not mapped."""
        mapped = self.inner.mapped
        if value in mapped or cotangent not in mapped:
            return self.result(cotangent, 0 if value in mapped else None)
        with building(self.builder):
            return Sym(self.found(cotangent)).sum((0,)).value

    def result(self, value: Value, axis: int | None) -> Value:
        """The outer value of one of the batch, with the examples along `axis`; None: it is not mapped."""
        found = self.found(value)
        if axis is None:
            return found
        seen = View.of_shape(found.type.shape)
        if value not in self.inner.mapped:
            seen = seen.expand(0).broadcast((self.inner.size, *found.type.shape))
        rest = list(range(1, len(seen.shape)))
        seen = seen.permute((*rest[:axis], 0, *rest[axis:]))
        if seen.is_whole(found.type.shape):
            return found
        return self.outer.emit(view, found, view=seen)


def _read(outer: Recording, value: Value, bound: TrackedExtent | Example) -> Value:
    if isinstance(bound, Example):
        return outer.read(bound.target._storage, bound.target._view)
    return outer.read(bound.storage, View.of_shape(value.type.shape).moved(bound.lo))


class BatchedStep(CopiedStep):
    """A step of a batch, for all examples, on the recording around; `known`: what stands there for values."""

    calls_python = True

    def __init__(self, step: CopiedStep, inner: Batch, known: dict[Value, Value]):
        self.step, self.inner, self.known = step, inner, dict(known)
        super().__init__([known.get(v, v) for v in step.inputs], [known.get(v, v) for v in step.outputs])

    def copy_for(self, copier: Copier) -> ReverseStep:
        """The step for copies of the outer values."""
        return BatchedStep(self.step, self.inner, {v: copier.found(o) for v, o in self.known.items()})

    def pull_back(
        self, builder: Builder, cotangents: Sequence[Value | None], active: Set[Value]
    ) -> Sequence[Value | None]:
        """Pull back one example's cotangents in the batch, and replay what this records."""
        inner, step = self.inner, self.step
        assert isinstance(builder, Recording)
        wanted = {v for v, o in zip(step.inputs, self.inputs, strict=True) if o in active}
        replay = Replay(inner, builder, self.known)
        with inner.opened(builder):
            seeds = [
                None if ct is None else inner.given(ct, mapped=v in inner.mapped)
                for v, ct in zip(step.outputs, cotangents, strict=True)
            ]
            items, found = recorded_items(inner, lambda: step.pull_back(inner, seeds, wanted))
        with recording_operators():
            replay.run(items)
            if replay.calls:
                what = (
                    "vmap: tj.callback cannot be used in a gradient of one's own here; trace it with tj.jit"
                )
                raise locate(ArgumentError(what), user_location())
            return [
                None if ct is None else replay.cotangent(v, ct)
                for v, ct in zip(step.inputs, found, strict=True)
            ]


def recorded_items(inner: Batch, run: Any) -> tuple[Items, Any]:
    """The nodes that `run()` records on an open batch, with steps while a gradient is taken; its result."""
    start = len(inner.nodes)
    if not thread.tapes:
        result = run()
        return inner.nodes[start:], result
    with recorded() as tape:
        result = run()
        return tape.nodes(), result
